#!/usr/bin/env python3
"""Reference values for models that differ from Llama: logits, loss, gradients and greedy text, computed
by transformers.

    python3 scripts/reference/variant_vectors.py                      # writes learn/model/llama/testdata
    python3 scripts/reference/variant_vectors.py --random 8 --out DIR # random tiny models of each kind
    PSYCHE_MODEL_VECTORS=DIR go test ./learn/model/llama -run Vectors -v
    python3 scripts/reference/variant_vectors.py --load DIR           # what that test wrote, in transformers

The committed values were made with transformers 5.24.0 on PyTorch 2.15.0. Weights and gradients
have the names of the checkpoints that transformers writes.
"""

import argparse
import json
import pathlib
import random
import struct
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/model/llama/testdata"
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def base(r, kind, architecture):
    """A random shape, as config.json says it."""
    heads = r.choice([2, 4, 6])
    c = dict(
        architectures=[architecture],
        model_type=kind,
        vocab_size=r.choice([32, 97]),
        hidden_size=heads * r.choice([6, 8]),
        intermediate_size=r.choice([20, 34]),
        num_hidden_layers=r.choice([2, 3]),
        num_attention_heads=heads,
        num_key_value_heads=r.choice([k for k in (1, 2, heads) if heads % k == 0]),
        max_position_embeddings=128,
        rms_norm_eps=r.choice([1e-5, 1e-6]),
        tie_word_embeddings=r.random() < 0.4,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=None,
        rope_theta=r.choice([1e4, 1e6]),
    )
    scaling = r.choice([None, None, YARN, dict(rope_type="linear", factor=4.0)])
    if scaling:
        c["rope_scaling"] = scaling
    return c


def llama(r):
    c = base(r, "llama", "LlamaForCausalLM")
    c["rope_scaling"] = r.choice(
        [
            YARN,
            {**YARN, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
            {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
            {**YARN, "attention_factor": 0.9},
            dict(rope_type="dynamic", factor=2.0),
        ]
    )
    return c


def mistral(r):
    c = base(r, "mistral", "MistralForCausalLM")
    return {**c, "head_dim": r.choice([4, 8, 16]), "sliding_window": r.choice([2, 5, 9, 20])}


def qwen2(r):
    c = base(r, "qwen2", "Qwen2ForCausalLM")
    return {**c, "use_sliding_window": True, "sliding_window": r.choice([3, 6, 20]), "max_window_layers": r.choice([0, 1])}


def qwen3(r):
    c = base(r, "qwen3", "Qwen3ForCausalLM")
    c |= dict(head_dim=r.choice([4, 8, 16]), attention_bias=r.random() < 0.3)
    if r.random() < 0.3:
        c |= dict(use_sliding_window=True, sliding_window=r.choice([3, 6]), max_window_layers=1)
    return c


def qwen3_moe(r):
    c = base(r, "qwen3_moe", "Qwen3MoeForCausalLM")
    experts = r.choice([4, 6, 9])
    return c | dict(
        head_dim=r.choice([4, 8]),
        num_experts=experts,
        num_experts_per_tok=r.choice([1, 2, 3]),
        moe_intermediate_size=r.choice([6, 10]),
        norm_topk_prob=r.random() < 0.6,
        decoder_sparse_step=r.choice([1, 1, 2]),
        mlp_only_layers=r.choice([[], [], [1]]),
    )


def mixtral(r):
    c = base(r, "mixtral", "MixtralForCausalLM")
    return c | dict(
        head_dim=r.choice([4, 8]),
        num_local_experts=r.choice([3, 4, 8]),
        num_experts_per_tok=r.choice([1, 2, 3]),
        sliding_window=r.choice([None, None, 5]),
    )


def olmo2(r):
    return base(r, "olmo2", "Olmo2ForCausalLM") | dict(attention_bias=r.random() < 0.3)


def gemma2(r):
    c = base(r, "gemma2", "Gemma2ForCausalLM")
    c |= dict(head_dim=r.choice([4, 8, 16]), sliding_window=r.choice([3, 6, 20]), query_pre_attn_scalar=r.choice([4, 16]))
    c |= dict(attn_logit_softcapping=r.choice([None, 5.0, 50.0]), final_logit_softcapping=r.choice([None, 3.0, 30.0]))
    return c | dict(hidden_activation="gelu_pytorch_tanh", attention_bias=r.random() < 0.3)


def gemma3(r):
    c = base(r, "gemma3_text", "Gemma3ForCausalLM")
    c.pop("rope_scaling", None)
    c |= dict(head_dim=r.choice([4, 8, 16]), sliding_window=r.choice([3, 6, 20]), query_pre_attn_scalar=r.choice([4, 16]))
    c |= dict(sliding_window_pattern=r.choice([2, 3]), num_hidden_layers=3, hidden_activation="gelu_pytorch_tanh")
    scaling = r.choice([None, dict(rope_type="linear", factor=8.0), YARN])
    if r.random() < 0.5:
        c |= dict(rope_local_base_freq=r.choice([1e3, 1e4])) | ({"rope_scaling": scaling} if scaling else {})
    else:
        full, local = dict(rope_theta=1e6, **(scaling or {"rope_type": "default"})), dict(rope_type="default", rope_theta=1e4)
        c |= dict(rope_parameters=dict(full_attention=full, sliding_attention=local))
        c.pop("rope_theta")
    return c


def smollm3(r):
    c = base(r, "smollm3", "SmolLM3ForCausalLM") | dict(num_hidden_layers=3, attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    c |= r.choice([dict(no_rope_layer_interval=2), dict(no_rope_layers=[1, 0, 1]), dict(no_rope_layers=[0, 0, 1])])
    if r.random() < 0.4:
        c |= dict(use_sliding_window=True, sliding_window=r.choice([3, 6]))
    return c


def longrope(r, pairs):
    """The rope_scaling of Phi 3, with a factor for each pair."""
    short, long = ([round(r.uniform(least, most), 3) for _ in range(pairs)] for least, most in ((1, 1.5), (1, 30)))
    c = dict(type="longrope", short_factor=short, long_factor=long)
    return c | r.choice([{}, dict(factor=4.0), dict(attention_factor=1.1)])


def phi3(r):
    c = base(r, "phi3", "Phi3ForCausalLM") | dict(sliding_window=r.choice([None, 5, 20]))
    c.pop("rope_scaling", None)
    return c


def phi3_long(r):
    """Phi 3 of which a part of each head turns, some otherwise in long texts."""
    c = phi3(r)
    part = r.choice([0.5, 0.75, 1.0])
    c |= dict(partial_rotary_factor=part, hidden_size=8 * c["num_attention_heads"])
    if r.random() < 0.8:
        c |= dict(rope_scaling=longrope(r, int(8 * part) // 2), original_max_position_embeddings=r.choice([12, 24, 100]))
    return c


def granite(r):
    c = base(r, "granite", "GraniteForCausalLM") | dict(attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)
    c |= dict(embedding_multiplier=r.choice([1.0, 12.0]), attention_multiplier=r.choice([1.0, 0.2]))
    return c | dict(residual_multiplier=r.choice([1.0, 0.22]), logits_scaling=r.choice([1.0, 8.0]))


KINDS = dict(
    llama=llama,
    mistral=mistral,
    qwen2=qwen2,
    qwen3=qwen3,
    qwen3_moe=qwen3_moe,
    mixtral=mixtral,
    olmo2=olmo2,
    gemma2=gemma2,
    gemma3=gemma3,
    smollm3=smollm3,
    phi3=phi3,
    phi3_long=phi3_long,
    granite=granite,
)

SMALL = dict(vocab_size=32, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)

PARTLY = dict(num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75)  # heads of 8, of which 6 turn
LONG = PARTLY | dict(
    original_max_position_embeddings=16,
    rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.25], long_factor=[1.5, 6.0, 20.0]),
)

# name: (kind, what its configuration has besides, batch, tokens). A rope_scaling of None is left out.
CASES = {
    "yarn": ("llama", dict(rope_scaling={**YARN, "beta_fast": 16.0}), 1, 40),
    "mistral_window": ("mistral", dict(head_dim=6, sliding_window=5, rope_scaling=None), 2, 12),
    "qwen2_window": ("qwen2", dict(sliding_window=4, max_window_layers=1, rope_scaling=None), 1, 40),
    "qwen3": ("qwen3", dict(head_dim=8, use_sliding_window=False, attention_bias=False, tie_word_embeddings=True, rope_scaling=None), 2, 9),
    "qwen3_yarn": ("qwen3", dict(head_dim=6, use_sliding_window=False, attention_bias=True, rope_scaling=YARN), 1, 40),
    "qwen3_moe": (
        "qwen3_moe",
        dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=6, norm_topk_prob=True, rope_scaling=None),
        2,
        9,
    ),
    "qwen3_moe_mixed": (
        "qwen3_moe",
        dict(num_experts=4, num_experts_per_tok=3, moe_intermediate_size=6, norm_topk_prob=False, mlp_only_layers=[1], rope_scaling=None),
        1,
        7,
    ),
    "mixtral": ("mixtral", dict(head_dim=4, num_local_experts=4, num_experts_per_tok=2, sliding_window=None, rope_scaling=None), 2, 9),
    "olmo2": ("olmo2", dict(attention_bias=False, rope_scaling=None), 2, 9),
    "gemma2": ("gemma2", dict(head_dim=6, sliding_window=4, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, rope_scaling=None), 2, 9),
    "gemma3": ("gemma3", dict(head_dim=6, num_hidden_layers=2, sliding_window=4, sliding_window_pattern=2), 2, 9),
    "smollm3": ("smollm3", dict(no_rope_layers=[1, 0], use_sliding_window=False, attention_bias=False, mlp_bias=False, rope_scaling=None), 2, 9),
    "phi3": ("phi3", dict(sliding_window=5), 2, 9),
    "granite": (
        "granite",
        dict(
            embedding_multiplier=12.0,
            attention_multiplier=0.2,
            residual_multiplier=0.22,
            logits_scaling=8.0,
            attention_bias=False,
            mlp_bias=False,
            rope_scaling=None,
        ),
        2,
        9,
    ),
    "dynamic": ("llama", dict(rope_scaling=dict(rope_type="dynamic", factor=2.0)), 1, 40),
    "phi3_part": ("phi3", dict(**PARTLY, sliding_window=None), 2, 9),
    # The text of 37 tokens outgrows the original context, within which it is computed otherwise.
    "phi3_longrope": ("phi3", dict(**LONG, sliding_window=None), 2, 9),
    "phi3_longrope_long": ("phi3", dict(**LONG, sliding_window=5), 1, 40),
}


def without_null_scaling(c):
    return {k: v for k, v in c.items() if k != "rope_scaling" or v is not None}


def read(path):
    """Tensors of a safetensors file, F32 alone."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[t["data_offsets"][0] : t["data_offsets"][1]], dtype=np.float32).reshape(t["shape"])
        for name, t in header.items()
    }


def write(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, array in sorted(tensors.items()):
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        blobs.append(np.ascontiguousarray(array).tobytes())
        header[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[offset, offset + len(blobs[-1])])
        offset += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return read(pathlib.Path(folder, "model.safetensors"))


def compute(c, batch, tokens):
    given = {k: v for k, v in c.items() if v is not None or k in ("sliding_window", "eos_token_id", "pad_token_id") or "softcap" in k}
    with tempfile.TemporaryDirectory() as folder:  # by way of a file, since that is how it is read
        pathlib.Path(folder, "config.json").write_text(json.dumps(given))
        config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).train()
    model.set_experts_implementation("eager")  # the default does not take widths this small
    one_more = c["model_type"].startswith("gemma")  # norms multiply with their weights and one
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1 if p.dim() == 1 and not name.endswith("bias") and not one_more else 0))
    vectors = {"weight/" + k: v for k, v in saved(model).items()}
    ids, targets = (torch.randint(0, c["vocab_size"], (batch, tokens)) for _ in range(2))
    targets[0, 1] = -100
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()
    model.eval()
    with torch.no_grad():
        greedy = model.generate(ids[:1, :5], max_new_tokens=32, do_sample=False)[0]
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    vectors |= {"gradient/" + k: v for k, v in saved(model).items()}
    vectors |= dict(ids=ids.numpy(), targets=targets.numpy(), logits=logits.detach().numpy(), greedy=greedy.numpy())
    vectors["loss"] = np.array([loss.item()], dtype=np.float32)
    return given, vectors


def store(folder, c, batch, tokens):
    given, vectors = compute(c, batch, tokens)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(given, indent=2) + "\n")
    write(folder / "vectors.safetensors", vectors)
    print(f"{folder.name}: loss {vectors['loss'][0]:.6f}, {len(vectors)} tensors")


def load(out):
    """Loads what the Go test wrote, and writes text from it."""
    for folder in sorted(out.glob("*/written")):
        options = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
        wrong = {k: v for k, v in info.items() if v}
        raw = (folder.parent / "vectors.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", raw[:8])
        first, last = json.loads(raw[8 : 8 + size])["greedy"]["data_offsets"]
        want = np.frombuffer(raw[8 + size + first : 8 + size + last], dtype=np.int64).tolist()
        got = model.generate(torch.tensor([want[:5]]), max_new_tokens=32, do_sample=False)[0].tolist()
        print(f"{folder.parent.name}: loads{' with ' + str(wrong) if wrong else ''}, text {'equal' if got == want else 'DIFFERS'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="N", help="N random models of each kind instead")
    parser.add_argument("--only", nargs="*", help="these cases or kinds")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("--load", type=pathlib.Path, metavar="DIR")
    a = parser.parse_args()
    if a.load:
        return load(a.load)
    if a.random:
        for kind, make in KINDS.items():
            for n in range(a.random):
                if a.only and kind not in a.only:
                    continue
                r = random.Random(f"{kind} {n}")
                torch.manual_seed(n)
                store(a.out / f"{kind}-{n}", make(r), r.choice([1, 2]), r.choice([7, 30, 60]))
        return
    for number, (name, (kind, changes, batch, tokens)) in enumerate(CASES.items()):
        if a.only and name not in a.only:
            continue
        torch.manual_seed(number)
        store(a.out / name, without_null_scaling({**KINDS[kind](random.Random(name)), **SMALL, **changes}), batch, tokens)


if __name__ == "__main__":
    main()
