"""A Llama in plain eager PyTorch, as Hugging Face writes it, for comparison.

Started by the Go program beside it. It reads lines from standard input; for each it does
one step (forward, cross-entropy, backward, gradients dropped) on random tokens and prints
the seconds that took, those of the processor, and the loss. It ends at the end of its input and prints the most
memory it held, in KiB.
"""

import argparse
import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Attention(nn.Module):
    def __init__(self, c, sdpa):
        super().__init__()
        self.heads, self.keys, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.sdpa = sdpa
        hidden = c["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(hidden, self.keys * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, self.keys * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=False)

    def forward(self, x, cos, sin, mask):
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.keys, self.width).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.keys, self.width).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        q, k = q.to(v.dtype), k.to(v.dtype)
        groups = self.heads // self.keys
        k = k[:, :, None].expand(B, self.keys, groups, T, self.width).reshape(B, self.heads, T, self.width)
        v = v[:, :, None].expand(B, self.keys, groups, T, self.width).reshape(B, self.heads, T, self.width)
        if self.sdpa:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / self.width**0.5 + mask
            out = F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype) @ v
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, sdpa):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c, sdpa)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, c, sdpa):
        super().__init__()
        self.width, self.theta = c["head_dim"], c["rope_theta"]
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, sdpa) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c.get("tie_word_embeddings"):
            self.lm_head.weight = self.embed_tokens.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed_tokens(ids)
        T = ids.shape[1]
        turns = torch.arange(T, device=x.device).float()[:, None]
        turns = turns / self.theta ** (torch.arange(0, self.width, 2, device=x.device).float() / self.width)
        angles = torch.cat((turns, turns), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        mask = torch.full((T, T), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def peak():
    with open("/proc/self/status") as status:
        return next(line.split()[1] for line in status if line.startswith("VmHWM"))


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--config", required=True)
    flags.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    flags.add_argument("--pure", action="store_true", help="bf16 weights instead of autocast over f32 weights")
    flags.add_argument("--batch", type=int, default=1)
    flags.add_argument("--tokens", type=int, default=512)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--device", default="cpu")
    flags.add_argument("--sdpa", action="store_true")
    flags.add_argument("--compile", action="store_true")
    o = flags.parse_args()
    torch.set_num_threads(o.threads)
    with open(o.config) as file:
        config = json.load(file)
    model = Llama(config, o.sdpa).to(o.device)
    kind = torch.device(o.device).type
    if o.dtype == "bf16" and o.pure:
        model = model.bfloat16()
    autocast = o.dtype == "bf16" and not o.pure
    forward = torch.compile(model) if o.compile else model
    ids = torch.randint(0, config["vocab_size"], (o.batch, o.tokens + 1), device=o.device)
    print("ready", torch.__version__, flush=True)
    for _ in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        with torch.autocast(kind, torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = forward(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        for p in model.parameters():
            p.grad = None
        if kind == "cuda":
            torch.cuda.synchronize()
        print(time.perf_counter() - start, time.process_time() - cpu, loss.item(), flush=True)
    print(peak(), 0, flush=True)


main()
