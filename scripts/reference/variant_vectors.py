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


def gpt_oss(r):
    c = base(r, "gpt_oss", "GptOssForCausalLM")
    heads = r.choice([2, 3, 4])
    scaling = r.choice([None, {**YARN, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}, dict(rope_type="default")])
    c |= dict(num_attention_heads=heads, num_key_value_heads=r.choice([1, heads]), head_dim=r.choice([4, 6, 8]), rope_scaling=scaling)
    c |= dict(sliding_window=r.choice([3, 6, 20]), attention_bias=r.random() < 0.7, num_local_experts=r.choice([3, 4, 9]))
    c |= dict(num_experts_per_tok=r.choice([1, 2, 3]), swiglu_limit=r.choice([0.7, 7.0]), swiglu_alpha=r.choice([1.0, 1.702]))
    return without_null_scaling(c)


def gemma(r):
    c = base(r, "gemma", "GemmaForCausalLM") | dict(head_dim=r.choice([4, 8, 16]), attention_bias=r.random() < 0.3)
    return c | dict(hidden_act=r.choice(["gelu", "gelu_pytorch_tanh"]))


def llama4(r):
    c = base(r, "llama4_text", "Llama4ForCausalLM")
    heads = r.choice([2, 3, 4])
    c |= dict(num_attention_heads=heads, num_key_value_heads=r.choice([1, heads]), head_dim=r.choice([4, 6, 8]), num_hidden_layers=3)
    scaling = dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=r.choice([1.0, 4.0]), original_max_position_embeddings=32)
    c["rope_scaling"] = r.choice([None, scaling, YARN])
    c |= dict(intermediate_size_mlp=r.choice([22, 30]), num_local_experts=r.choice([3, 4, 9]), num_experts_per_tok=r.choice([1, 1, 2]))
    c |= dict(attention_chunk_size=r.choice([3, 7, 20, None]), floor_scale=r.choice([3, 8, 8192]), attn_scale=r.choice([0.1, 0.5]))
    c |= dict(use_qk_norm=r.random() < 0.7, attn_temperature_tuning=r.random() < 0.7, attention_bias=r.random() < 0.3)
    c |= r.choice([dict(no_rope_layer_interval=2), dict(no_rope_layers=[1, 0, 1]), dict(no_rope_layers=[])])
    return without_null_scaling(c | r.choice([dict(interleave_moe_layer_step=2), dict(moe_layers=[0, 2]), {}]))


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
    gpt_oss=gpt_oss,
    gemma=gemma,
    llama4=llama4,
)

SMALL = dict(vocab_size=32, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)

PARTLY = dict(num_attention_heads=2, num_key_value_heads=1, partial_rotary_factor=0.75)  # heads of 8, of which 6 turn
LONG = PARTLY | dict(
    original_max_position_embeddings=16,
    rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.25], long_factor=[1.5, 6.0, 20.0]),
)

ABSENT = object()  # a field that config.json does not have
THREE = dict(num_attention_heads=3, hidden_size=12)
GEMMA_BARE = {k: ABSENT for k in ("head_dim", "hidden_act", "tie_word_embeddings", "rms_norm_eps", "max_position_embeddings", "rope_theta")}
GEMMA_BARE |= dict(num_attention_heads=1, num_key_value_heads=1, hidden_size=4, rope_scaling=None)

GPT = dict(head_dim=6, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, swiglu_limit=0.7, tie_word_embeddings=False)
GPT_PUBLISHED = dict(
    attention_bias=True,
    attention_dropout=0.0,
    experts_per_token=2,
    hidden_act="silu",
    initial_context_length=32,
    layer_types=["sliding_attention", "full_attention"],
    output_router_logits=False,
    rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=32, rope_type="yarn", truncate=False),
    rope_theta=150000,
    router_aux_loss_coef=0.9,
    swiglu_limit=7.0,
)
GPT_ODD = dict(
    **THREE,
    num_key_value_heads=3,
    attention_bias=False,
    layer_types=["full_attention", "sliding_attention"],
    rope_scaling=dict(rope_type="default"),
    num_experts_per_tok=1,
    num_local_experts=5,
)
# Heads of 64 elements, and 128 experts of which 4 are chosen.
GPT_BARE = {k: ABSENT for k in ("head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window", "swiglu_limit", "swiglu_alpha")}
GPT_BARE |= {k: ABSENT for k in ("attention_bias", "rope_scaling", "rope_theta", "rms_norm_eps", "max_position_embeddings", "tie_word_embeddings")}
GPT_BARE |= dict(num_attention_heads=2, num_key_value_heads=1, hidden_size=4, intermediate_size=2, num_hidden_layers=1)
GPT_NULL = dict(num_experts=6, num_local_experts=ABSENT, layer_types=None, rope_scaling=None, rope_parameters=None, tie_word_embeddings=True)

LLAMA4 = dict(head_dim=6, intermediate_size_mlp=22, num_local_experts=4, num_experts_per_tok=1, tie_word_embeddings=False, attention_bias=False)
LLAMA4 |= dict(floor_scale=3, attn_scale=0.5, attn_temperature_tuning=True, use_qk_norm=True, no_rope_layer_interval=ABSENT)
LLAMA4_PUBLISHED = dict(
    attention_chunk_size=7,
    for_llm_compressor=False,
    hidden_act="silu",
    interleave_moe_layer_step=1,
    moe_layers=[0, 1],
    no_rope_layers=[1, 0],
    output_router_logits=False,
    rope_scaling=dict(factor=16.0, high_freq_factor=1.0, low_freq_factor=1.0, original_max_position_embeddings=32, rope_type="llama3"),
    router_aux_loss_coef=0.001,
    router_jitter_noise=0.0,
)
LLAMA4_ODD = dict(**THREE, num_key_value_heads=1, num_experts_per_tok=2, use_qk_norm=False, attention_bias=True, attention_chunk_size=3)
LLAMA4_ODD |= dict(no_rope_layers=[], no_rope_layer_interval=2, moe_layers=[], interleave_moe_layer_step=ABSENT, rope_scaling=None)
LLAMA4_MIXED = dict(moe_layers=None, interleave_moe_layer_step=2, attention_chunk_size=None, attn_temperature_tuning=False, no_rope_layers=[0, 1])
LLAMA4_MIXED |= dict(layer_types=None, tie_word_embeddings=True, rope_scaling=YARN)
LLAMA4_BARE = {k: ABSENT for k in ("attention_chunk_size", "attn_temperature_tuning", "floor_scale", "attn_scale", "use_qk_norm", "head_dim", "moe_layers")}
LLAMA4_BARE |= {k: ABSENT for k in ("interleave_moe_layer_step", "no_rope_layers", "no_rope_layer_interval", "attention_bias", "rope_theta")}
LLAMA4_BARE |= {k: ABSENT for k in ("rope_scaling", "rms_norm_eps", "max_position_embeddings", "num_experts_per_tok", "num_local_experts")}
LLAMA4_BARE |= dict(num_attention_heads=1, num_key_value_heads=1, hidden_size=4, intermediate_size=2, intermediate_size_mlp=3, num_hidden_layers=4)

# Fields that may be null in a configuration.
NULLS = ("sliding_window", "eos_token_id", "pad_token_id", "layer_types", "rope_parameters", "moe_layers", "attention_chunk_size", "hidden_activation")

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
    "gpt_oss": ("gpt_oss", GPT | GPT_PUBLISHED, 1, 30),
    "gpt_oss_odd": ("gpt_oss", GPT | GPT_ODD, 2, 9),
    "gpt_oss_bare": ("gpt_oss", GPT_BARE, 2, 7),
    "gpt_oss_null": ("gpt_oss", GPT | GPT_NULL, 1, 12),
    "gemma": ("gemma", dict(head_dim=6, hidden_act="gelu", hidden_activation=None, attention_bias=False, rope_scaling=None), 2, 9),
    "gemma_odd": ("gemma", dict(**THREE, num_key_value_heads=1, head_dim=6, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=False), 2, 9),
    "gemma_bias": ("gemma", dict(head_dim=8, num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True, rope_scaling=YARN), 1, 40),
    "gemma_bare": ("gemma", GEMMA_BARE, 1, 7),
    "llama4": ("llama4", LLAMA4 | LLAMA4_PUBLISHED, 1, 30),
    "llama4_odd": ("llama4", LLAMA4 | LLAMA4_ODD, 2, 9),
    "llama4_mixed": ("llama4", LLAMA4 | LLAMA4_MIXED, 2, 9),
    "llama4_bare": ("llama4", LLAMA4_BARE, 1, 7),
}


def without_null_scaling(c):
    return {k: v for k, v in c.items() if v is not ABSENT and (k != "rope_scaling" or v is not None)}


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
    given = {k: v for k, v in c.items() if v is not None or k in NULLS or "softcap" in k}
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
        greedy = model.generate(ids[:1, :5], max_new_tokens=32, do_sample=False, use_cache=False)[0]
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
