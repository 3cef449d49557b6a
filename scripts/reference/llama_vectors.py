#!/usr/bin/env python3
"""Reference values for the Llama tests: logits, loss and gradients of tiny models.

    python3 scripts/reference/llama_vectors.py            # writes learn/model/llama/testdata
    python3 scripts/reference/llama_vectors.py --check    # only compares with transformers

A plain implementation in PyTorch, in double precision. Only the tables of the rotary positions
are rounded to single precision, as in transformers. Needs PyTorch >= 1.13
and numpy (Debian: python3-torch). If transformers is installed, its model of the
architecture (single precision) must agree to 1e-5. It did with transformers 5.24.0 on
PyTorch 2.15.0, for all cases.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy as np
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/model/llama/testdata"

BASE = dict(
    architectures=["LlamaForCausalLM"],
    model_type="llama",
    vocab_size=32,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    hidden_act="silu",
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=False,
    initializer_range=0.02,
    bos_token_id=1,
    eos_token_id=2,
)

# name: (changes of the config, batch, tokens)
CASES = {
    "gqa": (dict(head_dim=8), 2, 11),
    "tied": (dict(tie_word_embeddings=True), 2, 7),
    "llama3": (
        dict(
            hidden_size=32,
            num_attention_heads=2,
            num_key_value_heads=1,
            rope_theta=500000.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        1,
        40,
    ),
    "linear": (dict(rope_scaling=dict(type="linear", factor=2.0), num_hidden_layers=1), 1, 9),
    "mha": (dict(num_key_value_heads=4, num_hidden_layers=1), 3, 5),
    # Longer than one block of queries of the attention.
    "long": (dict(num_hidden_layers=1), 1, 200),
    "biases": (dict(attention_bias=True, mlp_bias=True, head_dim=8), 2, 9),
    "attention_bias": (dict(attention_bias=True, tie_word_embeddings=True, num_hidden_layers=1), 1, 12),
    "mistral": (dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=256, head_dim=6), 2, 10),
    "qwen2": (dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False, sliding_window=8, rope_theta=1e6), 2, 13),
    "qwen2_tied": (
        dict(
            architectures=["Qwen2ForCausalLM"],
            model_type="qwen2",
            num_key_value_heads=1,
            tie_word_embeddings=True,
            rope_scaling=dict(type="linear", factor=4.0),
        ),
        1,
        70,
    ),
}


def biased(c, name):
    """Report whether a matrix has a bias."""
    if c["model_type"] == "qwen2":
        return name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return c["attention_bias"] and name.startswith("self_attn.") or c["mlp_bias"] and name.startswith("mlp.")


def shapes(c):
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    h, f = c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": (h,),
            "self_attn.q_proj": (q, h),
            "self_attn.k_proj": (kv, h),
            "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, q),
            "post_attention_layernorm": (h,),
            "mlp.gate_proj": (f, h),
            "mlp.up_proj": (f, h),
            "mlp.down_proj": (h, f),
        }.items():
            out[f"model.layers.{i}.{name}.weight"] = shape
            if biased(c, name):
                out[f"model.layers.{i}.{name}.bias"] = shape[:1]
    return out


def frequencies(c, d):
    pairs = torch.arange(0, d, 2, dtype=torch.int64).float()
    freq = 1.0 / (c["rope_theta"] ** (pairs / d))
    s = c["rope_scaling"]
    if s is None:
        return freq
    kind = s.get("rope_type") or s["type"]
    if kind == "linear":
        return freq / s["factor"]
    assert kind == "llama3"
    result = []
    for f in freq.tolist():
        wavelength = 2 * math.pi / f
        context = s["original_max_position_embeddings"]
        if wavelength < context / s["high_freq_factor"]:
            result.append(f)
        elif wavelength > context / s["low_freq_factor"]:
            result.append(f / s["factor"])
        else:
            smooth = (context / wavelength - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
            result.append((1 - smooth) * f / s["factor"] + smooth * f)
    return torch.tensor(result, dtype=torch.float32)


def rms_norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def forward(c, w, ids):
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim") or c["hidden_size"] // heads
    batch, tokens = ids.shape
    angle = torch.outer(torch.arange(tokens).float(), frequencies(c, d))
    cos, sin = (torch.cat([t, t], -1).double() for t in (angle.cos(), angle.sin()))

    def rotate(x):  # [B,heads,T,d]
        half = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * cos + half * sin

    hidden_from = torch.full((tokens, tokens), float("-inf"), dtype=torch.float64).triu(1)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = lambda name: w[f"model.layers.{i}.{name}.weight"]
        linear = lambda x, name: x @ p(name).T + w.get(f"model.layers.{i}.{name}.bias", 0)
        h = rms_norm(x, p("input_layernorm"), c["rms_norm_eps"])
        split = lambda t, n: t.view(batch, tokens, n, d).transpose(1, 2)
        q = rotate(split(linear(h, "self_attn.q_proj"), heads))
        k = rotate(split(linear(h, "self_attn.k_proj"), kv)).repeat_interleave(heads // kv, 1)
        v = split(linear(h, "self_attn.v_proj"), kv).repeat_interleave(heads // kv, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(d) + hidden_from
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, heads * d)
        x = x + linear(mixed, "self_attn.o_proj")
        h = rms_norm(x, p("post_attention_layernorm"), c["rms_norm_eps"])
        gate = linear(h, "mlp.gate_proj")
        x = x + linear(gate * torch.sigmoid(gate) * linear(h, "mlp.up_proj"), "mlp.down_proj")
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def compute(c, weights, ids, targets):
    w = {name: t.double().requires_grad_() for name, t in weights.items()}
    logits = forward(c, w, ids)
    loss = cross_entropy(logits, targets)
    loss.backward()
    return logits.detach(), loss.item(), {name: t.grad for name, t in w.items()}


def compare_with_transformers(name, c, weights, ids, targets, logits, grads):
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        return print(f"{name}: transformers is not installed, not compared")
    given = {k: v for k, v in c.items() if v is not None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**given), attn_implementation="eager", dtype=torch.float32)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    out = model(ids).logits
    cross_entropy(out, targets).backward()
    theirs = dict(model.named_parameters())
    a = (out.detach() - logits).abs().max().item()
    b = max((theirs[n].grad - g).abs().max().item() for n, g in grads.items())
    print(f"{name}: against transformers: logits {a:.1e}, gradients {b:.1e}")
    assert a < 1e-5 and b < 1e-5


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, array in sorted(tensors.items()):
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        blobs.append(array.tobytes())
        header[name] = dict(dtype=kind, shape=list(array.shape), data_offsets=[offset, offset + len(blobs[-1])])
        offset += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    for number, (name, (changes, batch, tokens)) in enumerate(CASES.items()):
        c = {**BASE, **changes}
        random = np.random.default_rng(number)
        weights = {}
        for key, shape in shapes(c).items():
            values = random.normal(0, 0.3, shape) + (1 if len(shape) == 1 and not key.endswith(".bias") else 0)
            weights[key] = torch.from_numpy(values.astype(np.float32))
        ids = torch.from_numpy(random.integers(0, c["vocab_size"], (batch, tokens)))
        targets = torch.from_numpy(random.integers(0, c["vocab_size"], (batch, tokens)))
        targets[0, 1] = -100
        logits, loss, grads = compute(c, weights, ids, targets)
        compare_with_transformers(name, c, weights, ids, targets, logits, grads)
        if check:
            continue
        vectors = {"ids": ids.numpy(), "targets": targets.numpy(), "logits": logits.float().numpy()}
        vectors["loss"] = np.array([loss], dtype=np.float32)
        vectors.update({"weight/" + k: t.numpy() for k, t in weights.items()})
        vectors.update({"gradient/" + k: t.float().numpy() for k, t in grads.items()})
        (OUT / name).mkdir(parents=True, exist_ok=True)
        (OUT / name / "config.json").write_text(json.dumps(c, indent=2) + "\n")
        write_safetensors(OUT / name / "vectors.safetensors", vectors)
        print(f"{name}: loss {loss:.6f}")


if __name__ == "__main__":
    main()
