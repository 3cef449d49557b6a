#!/usr/bin/env python3
"""Reference values for the DeepSeek tests: logits, loss and gradients of tiny models.

    python3 scripts/reference/deepseek_vectors.py            # writes learn/model/deepseek/testdata
    python3 scripts/reference/deepseek_vectors.py --check    # only compares with transformers

A plain implementation in PyTorch, in double precision. Only the tables of the rotary positions
are rounded to single precision, as in transformers. Needs PyTorch >= 1.13
and numpy (Debian: python3-torch). If transformers with DeepseekV2ForCausalLM is installed, its
models (single precision) must agree to 1e-5. They did with transformers 5.23.0 on PyTorch 2.9.1, and
with 5.24.0 on 2.15.0, for the cases that transformers can compute. It has no loss that balances the
experts (the comparison omits this loss), no norm_topk_prob in V2 and no moe_layer_freq.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy as np
import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/model/deepseek/testdata"

V2 = dict(
    architectures=["DeepseekV2ForCausalLM"],
    model_type="deepseek_v2",
    vocab_size=24,
    hidden_size=12,
    intermediate_size=20,
    moe_intermediate_size=6,
    num_hidden_layers=3,
    num_attention_heads=2,
    num_key_value_heads=2,
    q_lora_rank=None,
    kv_lora_rank=8,
    qk_nope_head_dim=6,
    qk_rope_head_dim=8,
    v_head_dim=5,
    n_routed_experts=6,
    n_shared_experts=2,
    num_experts_per_tok=3,
    first_k_dense_replace=1,
    moe_layer_freq=1,
    topk_method="greedy",
    scoring_func="softmax",
    norm_topk_prob=False,
    routed_scaling_factor=1.0,
    n_group=1,
    topk_group=1,
    aux_loss_alpha=0.0,
    seq_aux=True,
    hidden_act="silu",
    max_position_embeddings=160,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    attention_bias=False,
    tie_word_embeddings=False,
    initializer_range=0.02,
    bos_token_id=0,
    eos_token_id=1,
)
YARN = dict(
    type="yarn",
    factor=40,
    original_max_position_embeddings=4,
    beta_fast=32,
    beta_slow=1,
    mscale=1.0,
    mscale_all_dim=0.707,
)
V3 = {
    **V2,
    **dict(
        architectures=["DeepseekV3ForCausalLM"],
        model_type="deepseek_v3",
        q_lora_rank=10,
        n_routed_experts=8,
        n_shared_experts=1,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        n_group=4,
        topk_group=2,
    ),
}

# name: (config, batch, tokens)
CASES = {
    "v2-lite": ({**V2, "rope_scaling": {**YARN, "mscale": 0.707}}, 2, 9),
    "v2-grouped": (
        {
            **V2,
            **dict(
                q_lora_rank=10,
                topk_method="group_limited_greedy",
                n_routed_experts=8,
                n_group=4,
                topk_group=2,
                routed_scaling_factor=16.0,
                aux_loss_alpha=0.3,
                rope_scaling=YARN,
            ),
        },
        2,
        8,
    ),
    "v2-normalized": ({**V2, **dict(norm_topk_prob=True, moe_layer_freq=2, aux_loss_alpha=0.3, seq_aux=False, num_hidden_layers=4)}, 2, 7),
    "v3": ({**V3, "rope_scaling": YARN}, 2, 9),
    "v3-halves": ({**V3, **dict(rope_interleave=False, tie_word_embeddings=True, aux_loss_alpha=0.3, num_hidden_layers=2)}, 2, 6),
    # The published settings, except the sizes and the balance loss, which is 0.001 there.
    "kimi-k2": (
        {
            **V3,
            **dict(
                model_type="kimi_k2",
                n_group=1,
                topk_group=1,
                num_hidden_layers=2,
                num_nextn_predict_layers=0,
                routed_scaling_factor=2.827,
                rope_theta=50000.0,
                rope_scaling={**YARN, "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale_all_dim": 1.0},
            ),
        },
        2,
        9,
    ),
}
BIAS = "mlp.gate.e_score_correction_bias"


def is_v3(c):
    return c["architectures"] == ["DeepseekV3ForCausalLM"]


def sparse(c, layer):
    return layer >= c["first_k_dense_replace"] and layer % c["moe_layer_freq"] == 0


def shapes(c):
    h, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    out = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], h)
    for i in range(c["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": (h,),
            "post_attention_layernorm.weight": (h,),
            "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, h),
            "self_attn.kv_a_layernorm.weight": (rank,),
            "self_attn.kv_b_proj.weight": (heads * (nope + value), rank),
            "self_attn.o_proj.weight": (h, heads * value),
        }
        if c["q_lora_rank"] is None:
            layer["self_attn.q_proj.weight"] = (heads * (nope + rope), h)
        else:
            layer["self_attn.q_a_proj.weight"] = (c["q_lora_rank"], h)
            layer["self_attn.q_a_layernorm.weight"] = (c["q_lora_rank"],)
            layer["self_attn.q_b_proj.weight"] = (heads * (nope + rope), c["q_lora_rank"])
        feed = {}
        if sparse(c, i):
            inner = c["moe_intermediate_size"]
            layer["mlp.gate.weight"] = (c["n_routed_experts"], h)
            if is_v3(c):
                layer[BIAS] = (c["n_routed_experts"],)
            feed["mlp.shared_experts"] = inner * c["n_shared_experts"]
            feed.update({f"mlp.experts.{e}": inner for e in range(c["n_routed_experts"])})
        else:
            feed["mlp"] = c["intermediate_size"]
        for name, inner in feed.items():
            layer[name + ".gate_proj.weight"] = (inner, h)
            layer[name + ".up_proj.weight"] = (inner, h)
            layer[name + ".down_proj.weight"] = (h, inner)
        out.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
    return out


def mscale(factor, scale=1.0):
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def tables(c, tokens):
    """Return the cosines and sines [tokens, D/2] of the rotary positions."""
    d, s = c["qk_rope_head_dim"], c["rope_scaling"]
    power = c["rope_theta"] ** (torch.arange(0, d, 2).float() / d)
    frequency, scale = 1 / power, 1.0
    if s:
        border = lambda turns: d * math.log(s["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(c["rope_theta"]))
        low, high = max(math.floor(border(s["beta_fast"])), 0), min(math.ceil(border(s["beta_slow"])), d - 1)
        ramp = ((torch.arange(d // 2).float() - low) / (high - low + (0.001 if high == low else 0))).clamp(0, 1)
        frequency = ramp / (s["factor"] * power) + (1 - ramp) / power
        scale = mscale(s["factor"], s["mscale"]) / mscale(s["factor"], s["mscale_all_dim"])
    angle = torch.outer(torch.arange(tokens).float(), frequency)
    return (angle.cos() * scale).double(), (angle.sin() * scale).double()


def rms_norm(x, weight, eps):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


def attention(c, p, x):
    batch, tokens, _ = x.shape
    heads, nope, rope, value = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    cos, sin = tables(c, tokens)

    def turn(t):  # [B,heads,T,rope]
        if c.get("rope_interleave", True):
            a, b = t[..., 0::2], t[..., 1::2]
        else:
            a, b = t[..., : rope // 2], t[..., rope // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    if c["q_lora_rank"] is None:
        q = x @ p("self_attn.q_proj").T
    else:
        q = rms_norm(x @ p("self_attn.q_a_proj").T, p("self_attn.q_a_layernorm"), 1e-6) @ p("self_attn.q_b_proj").T
    q = q.view(batch, tokens, heads, nope + rope).transpose(1, 2)
    q = torch.cat([q[..., :nope], turn(q[..., nope:])], -1)
    kv = x @ p("self_attn.kv_a_proj_with_mqa").T
    latent, shared = kv.split([c["kv_lora_rank"], rope], -1)
    kv = rms_norm(latent, p("self_attn.kv_a_layernorm"), 1e-6) @ p("self_attn.kv_b_proj").T
    kv = kv.view(batch, tokens, heads, nope + value).transpose(1, 2)
    k = torch.cat([kv[..., :nope], turn(shared.unsqueeze(1)).expand(-1, heads, -1, -1)], -1)
    scale = 1 / math.sqrt(nope + rope)
    if c["rope_scaling"]:
        scale *= mscale(c["rope_scaling"]["factor"], c["rope_scaling"]["mscale_all_dim"]) ** 2
    mask = torch.full((tokens, tokens), float("-inf"), dtype=torch.float64).triu(1)
    mixed = ((q @ k.transpose(-1, -2)) * scale + mask).softmax(-1) @ kv[..., nope:]
    return mixed.transpose(1, 2).reshape(batch, tokens, heads * value) @ p("self_attn.o_proj").T


def feed_forward(p, name, x):
    gate = x @ p(name + ".gate_proj").T
    return (gate * torch.sigmoid(gate) * (x @ p(name + ".up_proj").T)) @ p(name + ".down_proj").T


def experts(c, p, x, balance):
    n, k, groups = c["n_routed_experts"], c["num_experts_per_tok"], c["n_group"]
    logits = x.reshape(-1, x.shape[-1]) @ p("mlp.gate").T
    scores = logits.sigmoid() if is_v3(c) else logits.softmax(-1)
    ranked = scores.detach().clone()
    if is_v3(c):
        ranked += p(BIAS, "")
    if c["topk_method"] != "greedy":
        grouped = ranked.view(-1, groups, n // groups)
        good = grouped.topk(2, -1).values.sum(-1) if is_v3(c) else grouped.max(-1).values
        keep = torch.zeros_like(good).scatter(1, good.topk(c["topk_group"], -1).indices, 1.0).bool()
        ranked = grouped.masked_fill(~keep.unsqueeze(-1), float("-inf")).view(-1, n)
    choice = ranked.topk(k, -1).indices
    share = scores.gather(1, choice)
    if c["norm_topk_prob"]:
        share = share / share.sum(-1, keepdim=True)
    if is_v3(c) or not c["norm_topk_prob"]:
        share = share * c["routed_scaling_factor"]
    rows = x.reshape(-1, x.shape[-1])
    out = []
    for t in range(rows.shape[0]):
        out.append(sum(share[t, j] * feed_forward(p, f"mlp.experts.{choice[t, j].item()}", rows[t]) for j in range(k)))
    if c["aux_loss_alpha"]:
        sequences = x.shape[0] if c["seq_aux"] else 1
        mean = (scores / scores.sum(-1, keepdim=True) if is_v3(c) else scores).view(sequences, -1, n).mean(1)
        load = torch.nn.functional.one_hot(choice, n).sum(1).double().view(sequences, -1, n).mean(1) * n / k
        balance.append(c["aux_loss_alpha"] * (mean * load).sum(-1).mean())
    return torch.stack(out).view(x.shape) + feed_forward(p, "mlp.shared_experts", x)


def forward(c, w, ids):
    """Return the logits, and the losses that balance the experts."""
    x, balance = w["model.embed_tokens.weight"][ids], []
    for i in range(c["num_hidden_layers"]):
        p = lambda name, end=".weight": w[f"model.layers.{i}.{name}{end}"]
        x = x + attention(c, p, rms_norm(x, p("input_layernorm"), c["rms_norm_eps"]))
        h = rms_norm(x, p("post_attention_layernorm"), c["rms_norm_eps"])
        x = x + (experts(c, p, h, balance) if sparse(c, i) else feed_forward(p, "mlp", h))
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T, sum(balance)


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def compute(c, weights, ids, targets):
    w = {name: t.double().requires_grad_(not name.endswith(BIAS)) for name, t in weights.items()}
    logits, balance = forward(c, w, ids)
    loss = cross_entropy(logits, targets)
    (loss + balance).backward()
    grads = {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in w.items() if t.requires_grad}
    return logits.detach(), loss.item(), grads


def compare_with_transformers(name, c, weights, ids, targets):
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        return print(f"{name}: transformers is not installed, not compared")
    if c["moe_layer_freq"] != 1 or (c["norm_topk_prob"] and not is_v3(c)):
        return print(f"{name}: transformers cannot compute this, not compared")
    import tempfile

    c = {**c, "aux_loss_alpha": 0.0}
    if c["model_type"] == "kimi_k2":
        c["model_type"] = "deepseek_v3"  # transformers has no other name for it
    logits, _, grads = compute(c, weights, ids, targets)
    with tempfile.TemporaryDirectory() as folder:
        # Use a checkpoint, so that the names of its tensors are tested too.
        pathlib.Path(folder, "config.json").write_text(json.dumps(c))
        write_safetensors(pathlib.Path(folder, "model.safetensors"), {k: t.numpy() for k, t in weights.items()}, {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, experts_implementation="eager")
        out = model(ids).logits
        cross_entropy(out, targets).backward()
        theirs = {n: p.grad for n, p in model.named_parameters()}
    worst = 0.0
    for key, ours in grads.items():
        if ".mlp.experts." in key:
            prefix, _, rest = key.partition(".experts.")
            number, kind = rest.split(".")[:2]
            stack = theirs[f"{prefix}.experts." + ("down_proj" if kind == "down_proj" else "gate_up_proj")][int(number)]
            inner = c["moe_intermediate_size"]
            grad = {"gate_proj": stack[:inner], "up_proj": stack[inner:], "down_proj": stack}[kind]
        else:
            grad = theirs[key]
        worst = max(worst, (grad - ours).abs().max().item())
    largest = max(g.abs().max().item() for g in grads.values())
    difference = (out.detach() - logits).abs().max().item()
    print(f"{name}: against transformers: logits {difference:.1e}, gradients {worst:.1e} of at most {largest:.1f}")
    assert difference < 1e-5 and worst < 1e-5 * max(1, largest)


def write_safetensors(path, tensors, metadata=None):
    header, blobs, offset = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
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
    for number, (name, (c, batch, tokens)) in enumerate(CASES.items()):
        random = np.random.default_rng(number)
        weights = {}
        for key, shape in shapes(c).items():
            norm = len(shape) == 1 and not key.endswith(BIAS)
            values = random.normal(0, 0.3, shape) + (1 if norm else 0)
            weights[key] = torch.from_numpy(values.astype(np.float32))
        ids = torch.from_numpy(random.integers(0, c["vocab_size"], (batch, tokens)))
        targets = torch.from_numpy(random.integers(0, c["vocab_size"], (batch, tokens)))
        targets[0, 1] = -100
        compare_with_transformers(name, c, weights, ids, targets)
        if check:
            continue
        logits, loss, grads = compute(c, weights, ids, targets)
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
