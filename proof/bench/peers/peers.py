"""One member of a PyTorch run that proof/bench/peers compares with: see README.md beside it.

Every member is a process of its own; together they train by one of these systems:

  ddp         DistributedDataParallel over gloo, gradients in f32, AdamW
  ddp-fp16    the same with fp16_compress_hook
  powersgd    the same with powerSGD_hook of rank 4
  diloco      DiLoCo (arXiv 2311.08105): AdamW inside, Nesterov's momentum on the mean of what it did
  sparseloco  SparseLoCo (arXiv 2508.15706): AdamW inside, error feedback, the 64 largest of every 4,096
              values in 2 bits, 12 bits a place, their mean

It prints a line of JSON for each exchange, and a last one with the SHA-256 of its weights.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

CHUNK, KEPT = 4096, 64


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.keys, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden = c["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(hidden, self.keys * self.width, bias=False)
        self.v_proj = nn.Linear(hidden, self.keys * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.width).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.keys, self.width).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.keys, self.width).transpose(1, 2)
        q, k = (t * cos + turned(t) * sin for t in (q, k))
        k, v = (t.repeat_interleave(self.heads // self.keys, dim=1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


def turned(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


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
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.width, self.theta = c["head_dim"], c["rope_theta"]
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c.get("tie_word_embeddings"):
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, ids):
        """Logits [batch, length, vocabulary] of token ids [batch, length]."""
        x = self.embed_tokens(ids)
        turns = torch.arange(ids.shape[1]).float()[:, None]
        turns = turns / self.theta ** (torch.arange(0, self.width, 2).float() / self.width)
        angles = torch.cat((turns, turns), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def load(folder):
    """The model of a Hugging Face directory with one file of weights in f32."""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    model = Llama(config)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise SystemExit(f"{folder}: {name} is {entry['dtype']}, want F32")
        begin, end = entry["data_offsets"]
        tensor = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        weights[name.removeprefix("model.")] = tensor.view(entry["shape"]).clone()
    model.load_state_dict(weights, strict=not config.get("tie_word_embeddings"))
    return model


def sequences(path, length):
    """The sequences of a file of tokens of two bytes, each with one token more than the model reads."""
    return torch.from_numpy(np.fromfile(path, dtype="<u2").astype(np.int64)).view(-1, length + 1)


def loss_of(model, batch):
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


def rate(o, step):
    """Linear warm-up, then half a cosine down to a tenth; steps count from 1."""
    if step < o.warmup:
        return o.lr * step / o.warmup
    done = min(1.0, (step - o.warmup) / (o.total - o.warmup))
    return o.lr * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


class Member:
    def __init__(self, o):
        self.o = o
        self.model = load(o.model)
        self.parameters = list(self.model.parameters())
        matrices = [p for name, p in self.model.named_parameters() if o.muon and p.ndim == 2 and "layers." in name]
        others = [p for p in self.parameters if not any(p is m for m in matrices)]
        self.optimizers = [torch.optim.AdamW(others, lr=0.0, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay)]
        if matrices:
            self.optimizers.append(torch.optim.Muon(matrices, lr=0.0, weight_decay=o.weight_decay, momentum=0.95,
                                                    adjust_lr_fn="match_rms_adamw"))
        self.tokens, self.held_out = sequences(o.tokens, o.length), sequences(o.held_out, o.length)
        self.forward = self.model
        if o.system in ("ddp", "ddp-fp16", "powersgd"):
            self.forward = self.replicated()
        self.outer = None
        if o.system == "diloco":
            self.outer = torch.optim.SGD(self.parameters, lr=o.outer_lr, momentum=o.outer_momentum, nesterov=True)
        self.errors = [torch.zeros_like(p) for p in self.parameters]

    def replicated(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        options = {}
        if self.o.system == "powersgd":
            # Over gloo ranks may exchange the factors of two buckets in different orders, and fail: one bucket.
            dist._DEFAULT_FIRST_BUCKET_BYTES, options = 1 << 30, {"bucket_cap_mb": 1024}
        model = nn.parallel.DistributedDataParallel(self.model, **options)
        if self.o.system == "ddp-fp16":
            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        if self.o.system == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=self.o.dense_steps)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model

    def inner(self, batch):
        loss = loss_of(self.forward, batch)
        self.forward.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()

    def step(self, step):
        """One exchange. Returns the mean loss of what this member trained."""
        o = self.o
        each = o.batch // o.world
        first = (step - 1) * o.batch + o.rank * each
        share = self.tokens[first : first + each]
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate(o, step)
        if self.forward is not self.model:
            return self.inner(share)
        before = [p.detach().clone() for p in self.parameters]
        losses = [self.inner(part) for part in share.tensor_split(o.inner)]
        self.exchange(before)
        return sum(losses) / len(losses)

    @torch.no_grad()
    def exchange(self, before):
        """What all members' inner steps move the weights by together."""
        moved = [b - p for b, p in zip(before, self.parameters)]
        for p, b in zip(self.parameters, before):
            p.copy_(b)
        if self.outer:
            flat = torch.cat([m.reshape(-1) for m in moved])
            dist.all_reduce(flat)
            flat /= self.o.world
            at = 0
            for p in self.parameters:
                p.grad = flat[at : at + p.numel()].view_as(p).clone()
                at += p.numel()
            self.outer.step()
            return
        sent = b"".join(self.compress(i, m) for i, m in enumerate(moved))
        mine = torch.frombuffer(bytearray(sent), dtype=torch.uint8)
        all_sent = [torch.empty_like(mine) for _ in range(self.o.world)]
        dist.all_gather(all_sent, mine)
        at = 0
        for p in self.parameters:
            size = payload_size(p.numel())
            mean = sum(unpack(bytes(one[at : at + size].numpy()), p.numel()) for one in all_sent) / self.o.world
            p.sub_(self.o.outer_lr * mean.view_as(p))
            at += size

    def compress(self, i, moved):
        error = self.errors[i].mul_(self.o.error_decay).add_(moved)
        payload = pack(error.reshape(-1))
        error.sub_(unpack(payload, error.numel()).view_as(error))
        return payload

    @torch.no_grad()
    def measure(self):
        """The loss of the held-out text, each member a share of it."""
        mine = self.held_out[self.o.rank :: self.o.world]
        total = torch.zeros(2, dtype=torch.float64)
        for part in mine.split(8):
            total += torch.tensor([loss_of(self.model, part).item() * len(part), len(part)], dtype=torch.float64)
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def save(self, step):
        """Writes all that training goes on from; a process that is killed here leaves the last checkpoint."""
        state = {"step": step, "model": self.model.state_dict(), "optimizers": [one.state_dict() for one in self.optimizers]}
        torch.save(state, self.o.checkpoint + ".part")
        os.replace(self.o.checkpoint + ".part", self.o.checkpoint)

    def resume(self):
        """Reads the checkpoint, if there is one. Returns the exchange that it was made after."""
        if not os.path.exists(self.o.checkpoint):
            return 0
        state = torch.load(self.o.checkpoint)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        return state["step"]


def digest(parameters):
    whole = hashlib.sha256()
    for p in parameters:
        whole.update(p.detach().numpy().tobytes())
    return whole.hexdigest()[:16]


def payload_size(count):
    chunks = -(-count // CHUNK)
    kept = chunks * min(KEPT, count)
    return 16 + (kept * 12 + 7) // 8 + (kept * 2 + 7) // 8


def bits(values, width):
    return np.packbits((values[:, None] >> np.arange(width)) & 1, axis=None, bitorder="little").tobytes()


def unbits(data, width, count):
    wide = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: count * width].reshape(count, width)
    return (wide.astype(np.int64) << np.arange(width)).sum(axis=1)


def chunked(flat):
    chunks = -(-flat.numel() // CHUNK)
    width = CHUNK if chunks > 1 else flat.numel()
    return F.pad(flat, (0, chunks * width - flat.numel())).view(chunks, width), width


def pack(flat):
    """The largest values of each chunk: four levels, the means of each sign's smaller and larger half."""
    parts, width = chunked(flat)
    places = parts.abs().topk(min(KEPT, width), dim=1, sorted=False).indices
    values = parts.gather(1, places).reshape(-1)
    large = values.abs() > values.abs().mean()
    kind = 2 * (values > 0).long() + large.long()
    levels = torch.stack([values[kind == j].mean() if (kind == j).any() else torch.zeros(()) for j in range(4)])
    return levels.numpy().tobytes() + bits(places.reshape(-1).numpy(), 12) + bits(kind.numpy(), 2)


def unpack(payload, count):
    chunks = -(-count // CHUNK)
    width = CHUNK if chunks > 1 else count
    kept = chunks * min(KEPT, width)
    middle = 16 + (kept * 12 + 7) // 8
    levels = torch.from_numpy(np.frombuffer(payload[:16], np.float32).copy())
    places = torch.from_numpy(unbits(payload[16:middle], 12, kept)).view(chunks, -1)
    kind = torch.from_numpy(unbits(payload[middle:], 2, kept))
    return torch.zeros(chunks, width).scatter_(1, places, levels[kind].view(chunks, -1)).view(-1)[:count]


def interface(address):
    """The name of the device that a member reaches the others by."""
    if address.startswith("127."):
        return "lo"
    return next(name for _, name in socket.if_nameindex() if name != "lo")


def flags(systems):
    flags = argparse.ArgumentParser()
    flags.add_argument("--system", default=systems[0], choices=systems)
    flags.add_argument("--model", required=True, help="folder of the first weights")
    flags.add_argument("--logits", action="store_true", help="print the logits of the first held-out sequence, and end")
    flags.add_argument("--tokens", default="")
    flags.add_argument("--held-out", required=True)
    flags.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    flags.add_argument("--rank", type=int, default=0)
    flags.add_argument("--world", type=int, default=1)
    flags.add_argument("--address", default="127.0.0.1", help="own address")
    flags.add_argument("--first", default="127.0.0.1:29400", help="address of rank 0")
    flags.add_argument("--batch", type=int, default=24, help="sequences of an exchange, of all members")
    flags.add_argument("--inner", type=int, default=1, help="steps of a member between two exchanges")
    flags.add_argument("--steps", type=int, default=1, help="exchanges to make")
    flags.add_argument("--total", type=int, default=100, help="exchanges of the schedule")
    flags.add_argument("--warmup", type=int, default=10)
    flags.add_argument("--lr", type=float, default=2e-3)
    flags.add_argument("--beta1", type=float, default=0.9)
    flags.add_argument("--beta2", type=float, default=0.99)
    flags.add_argument("--weight-decay", type=float, default=0.1)
    flags.add_argument("--muon", action="store_true", help="Muon moves the matrices of layers, AdamW the rest")
    flags.add_argument("--outer-lr", type=float, default=0.7)
    flags.add_argument("--outer-momentum", type=float, default=0.9)
    flags.add_argument("--error-decay", type=float, default=0.95)
    flags.add_argument("--dense-steps", type=int, default=10, help="of PowerSGD: steps before it compresses")
    flags.add_argument("--measure-every", type=int, default=0, help="exchanges between two measurements; 0: none")
    flags.add_argument("--checkpoint", default="", help="file to go on from where there is one, and to write")
    flags.add_argument("--save-every", type=int, default=5, help="exchanges between two checkpoints")
    return flags


def main():
    o = flags(("ddp", "ddp-fp16", "powersgd", "diloco", "sparseloco")).parse_args()
    torch.set_num_threads(1)
    if o.logits:
        with torch.no_grad():
            print(json.dumps(load(o.model)(sequences(o.held_out, o.length)[:1, :-1])[0].tolist()))
        return
    os.environ["GLOO_SOCKET_IFNAME"] = interface(o.address)
    meeting = f"tcp://{o.first}"
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun says all else
        meeting, o.rank, o.world = "env://", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=o.rank, world_size=o.world,
                            timeout=datetime.timedelta(minutes=10))
    member = Member(o)
    done = member.resume() if o.checkpoint else 0
    if o.measure_every:
        say(Step=done, HeldOut=member.measure())
    dist.barrier()
    say(Step=done, Rank=o.rank, PID=os.getpid())
    for step in range(done + 1, o.steps + 1):
        line = {"Step": step, "Rank": o.rank, "PID": os.getpid(), "Loss": member.step(step)}
        line["Time"], line["CPU"] = time.time(), time.process_time()
        if o.measure_every and (step % o.measure_every == 0 or step == o.steps):
            line["HeldOut"] = member.measure()
        say(**line)
        if o.checkpoint and o.rank == 0 and step % o.save_every == 0:
            member.save(step)
    say(Step=o.steps, Digest=digest(member.parameters))
    dist.barrier()
    dist.destroy_process_group()


def say(**line):
    print(json.dumps({"Time": time.time(), "CPU": time.process_time(), **line}), flush=True)


if __name__ == "__main__":
    main()
