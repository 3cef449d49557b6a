"""Local steps whose parts are exchanged at different steps: see "Parts at different steps" in README.md.

Three members train the model of model.json with Muon inside (AdamW for embeddings, norms and the output layer), all in this process. After
every H/parts steps one part of the model is exchanged, so each is every H steps: what a member has of it goes through
DCT chunks, of which the k largest coefficients are sent in 2 bits, with error feedback, and the mean moves the common
weights --delay steps later. It is the question of Streaming DiLoCo (arXiv 2501.18512), asked of local steps.

The tokens are those that proof/bench/parity prepares. A reference alone: nothing is built or tested with it.

    python3 streaming.py --data build/parity/data --parts 4 --delay 2 --keep --own
"""

import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

HIDDEN, MLP, LAYERS, HEADS, WIDTH, VOCABULARY = 320, 832, 2, 5, 64, 256
MEMBERS, VALUE_BITS = 3, 2

flags = argparse.ArgumentParser()
flags.add_argument("--data", required=True, help="folder of train-00000.ds and heldout/heldout.ds")
flags.add_argument("--tokens", type=int, default=600_000)
flags.add_argument("--length", type=int, default=256, help="tokens of a sequence")
flags.add_argument("--batch", type=int, default=3, help="sequences of a member's step")
flags.add_argument("--steps", type=int, default=8, help="H: a member's steps between two exchanges of the same part")
flags.add_argument("--parts", type=int, default=1, choices=(1, 2, 4))
flags.add_argument("--delay", type=int, default=0, help="steps between sending a part and moving it; 0: it is waited for")
flags.add_argument("--keep", action="store_true", help="a member goes on with what of its own was not sent yet")
flags.add_argument("--own", action="store_true", help="a member goes on with its own result until that of all moves the part")
flags.add_argument("--back", action="store_true", help="the parts that are not exchanged are put back to the common weights too")
flags.add_argument("--topk", type=int, default=32)
flags.add_argument("--chunk", type=int, default=32)
flags.add_argument("--lr", type=float, default=2e-3)
flags.add_argument("--seed", type=int, default=1)
o = flags.parse_args()
if o.steps % o.parts:
    flags.error(f"--steps {o.steps} is no multiple of --parts {o.parts}")
torch.set_num_threads(1)
torch.manual_seed(o.seed)

# The weights of a member are one row, and a tensor is a stretch of it.
SHAPES = [("embed", (VOCABULARY, HIDDEN))]
for layer in range(LAYERS):
    SHAPES += [(f"{layer}.norm1", (HIDDEN,)), (f"{layer}.q", (HEADS * WIDTH, HIDDEN)), (f"{layer}.k", (WIDTH, HIDDEN)),
               (f"{layer}.v", (WIDTH, HIDDEN)), (f"{layer}.o", (HIDDEN, HEADS * WIDTH)), (f"{layer}.norm2", (HIDDEN,)),
               (f"{layer}.gate", (MLP, HIDDEN)), (f"{layer}.up", (MLP, HIDDEN)), (f"{layer}.down", (HIDDEN, MLP))]
SHAPES += [("norm", (HIDDEN,)), ("head", (VOCABULARY, HIDDEN))]
SPANS, SIZE = [], 0
for name, shape in SHAPES:
    SPANS.append((name, slice(SIZE, SIZE + math.prod(shape)), shape))
    SIZE += math.prod(shape)


def part_of(name):
    """Layers are the parts, or each layer's attention and MLP; embedding and output layer are of the first and last."""
    if o.parts == 1:
        return 0
    last = not (name == "embed" or name[0] == "0")
    if o.parts == 2:
        return int(last)
    return 2 * last + name.endswith((".gate", ".up", ".down", ".norm2"))


MASKS = [torch.cat([torch.full((math.prod(shape),), part_of(name) == part) for name, _, shape in SPANS]) for part in range(o.parts)]


def sequences():
    train = np.memmap(os.path.join(o.data, "train-00000.ds"), dtype="<u2", mode="r")
    held = np.fromfile(os.path.join(o.data, "heldout", "heldout.ds"), dtype="<u2")
    order = np.random.default_rng(o.seed).permutation(len(train) // o.length - 1)
    half, count = len(held) // 2, 512
    spread = [np.stack([held[at + i * (half // count - 1) :][: o.length + 1] for i in range(count)]).astype(np.int64) for at in (0, half)]
    return train, order, *map(torch.from_numpy, spread)


TRAIN, ORDER, VALIDATION, TEST = sequences()


def batch(first, count):
    rows = [TRAIN[ORDER[i] * o.length :][: o.length + 1] for i in range(first, first + count)]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


turns = torch.arange(o.length)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2).float() / WIDTH)[None]
COS, SIN = torch.cat([turns.cos()] * 2, -1), torch.cat([turns.sin()] * 2, -1)


def turned(x):
    a, b = x.chunk(2, dim=-1)
    return x * COS + torch.cat((-b, a), dim=-1) * SIN


def normed(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight[:, None]


def linear(x, weight):
    return torch.bmm(x, weight.transpose(1, 2))


def losses(weights, tokens):
    """Loss of each member [M] on its tokens [M, batch, length + 1], by weights [M, SIZE]."""
    members, count, length = tokens.shape[0], tokens.shape[1], tokens.shape[2] - 1
    w = {name: weights[:, at].view(members, *shape) for name, at, shape in SPANS}
    x = torch.stack([w["embed"][m][tokens[m, :, :-1].reshape(-1)] for m in range(members)])
    for layer in range(LAYERS):
        h = normed(x, w[f"{layer}.norm1"])
        q = turned(linear(h, w[f"{layer}.q"]).view(members * count, length, HEADS, WIDTH).transpose(1, 2))
        k = turned(linear(h, w[f"{layer}.k"]).view(members * count, 1, length, WIDTH))
        v = linear(h, w[f"{layer}.v"]).view(members * count, 1, length, WIDTH)
        a = F.scaled_dot_product_attention(q, k.expand(-1, HEADS, -1, -1), v.expand(-1, HEADS, -1, -1), is_causal=True)
        x = x + linear(a.transpose(1, 2).reshape(members, count * length, HEADS * WIDTH), w[f"{layer}.o"])
        h = normed(x, w[f"{layer}.norm2"])
        x = x + linear(F.silu(linear(h, w[f"{layer}.gate"])) * linear(h, w[f"{layer}.up"]), w[f"{layer}.down"])
    logits = linear(normed(x, w["norm"]), w["head"])
    each = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[..., 1:].reshape(-1), reduction="none")
    return each.view(members, -1).mean(1)


@torch.no_grad()
def measure(weights, held, count):
    return sum(losses(weights[None], held[None, i : i + 32]).item() for i in range(0, count, 32)) / (count // 32)


def orthogonal(g):
    """Muon's five iterations of Newton and Schulz."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.transpose(-2, -1)
    for _ in range(5):
        a = x @ x.transpose(-2, -1)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if wide else x.transpose(-2, -1)


class Inner:
    """The members' optimizers. Running means go on from round to round."""

    def __init__(self):
        self.first, self.second, self.muon, self.made = *(torch.zeros(MEMBERS, SIZE) for _ in range(3)), 0

    @torch.no_grad()
    def step(self, weights, gradient, rate):
        self.made += 1
        gradient = gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1.0)
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        update = (self.first / (1 - 0.9**self.made)) / ((self.second / (1 - 0.99**self.made)).sqrt_() + 1e-8)
        self.muon.mul_(0.95).add_(gradient)
        for name, at, shape in SPANS:
            if len(shape) == 2 and name not in ("embed", "head"):
                mean = (gradient[:, at] + 0.95 * self.muon[:, at]).view(-1, *shape)
                update[:, at] = (orthogonal(mean) * 0.2 * math.sqrt(max(shape))).reshape(MEMBERS, -1)
        weights.mul_(1 - rate * 0.1).add_(update, alpha=-rate)


places = torch.arange(o.chunk).float()
DCT = torch.cos(math.pi * (2 * places[None] + 1) * places[:, None] / (2 * o.chunk)) * math.sqrt(2 / o.chunk)
DCT[0] /= math.sqrt(2)


def compressed(error, part):
    """What of a member's error [SIZE] is sent of a part, and about how many bits it takes: the sets' entropy and the levels."""
    sent, bits = torch.zeros_like(error), 0.0
    for name, at, shape in SPANS:
        if part_of(name) != part:
            continue
        if len(shape) == 1:
            sent[at], bits = error[at], bits + 4 * math.prod(shape)
            continue
        tall, wide = shape[0] // o.chunk, shape[1] // o.chunk
        chunks = error[at].view(tall, o.chunk, wide, o.chunk).transpose(1, 2).reshape(-1, o.chunk, o.chunk)
        values = (DCT @ chunks @ DCT.T).reshape(-1, o.chunk**2)
        size = values.abs()
        kept = torch.where(size >= size.topk(o.topk, dim=1).values[:, -1:], size, 0)
        best = least = levels = None
        for unit in (size.amax(1, keepdim=True) * 2 ** (-i / 4) for i in range(20)):
            level = (kept / unit.clamp(min=1e-30)).round().clamp(max=2 ** (VALUE_BITS - 1))
            wrong = ((kept - level * unit) ** 2).sum(1, keepdim=True)
            if best is None:
                best, least, levels = level * unit, wrong, level
            better = wrong < least
            best, least, levels = torch.where(better, level * unit, best), torch.where(better, wrong, least), torch.where(better, level, levels)
        count, n = (levels > 0).sum(1).float(), o.chunk**2
        sets = (math.lgamma(n + 1) - torch.lgamma(count + 1) - torch.lgamma(n - count + 1)) / math.log(2)
        bits += (sets + VALUE_BITS * count + 3).sum().item()
        back = DCT.T @ (best * values.sign()).view(-1, o.chunk, o.chunk) @ DCT
        sent[at] = back.view(tall, wide, o.chunk, o.chunk).transpose(1, 2).reshape(-1)
    return sent, bits


class Exchange:
    """The common weights, the members', and what is between them."""

    def __init__(self):
        self.common = torch.cat([torch.ones(math.prod(s)) if len(s) == 1 else torch.randn(math.prod(s)) * 0.02 for _, _, s in SPANS])
        self.weights = self.common.repeat(MEMBERS, 1)
        self.base = self.weights.clone()  # where the members went on from
        self.error = torch.zeros(MEMBERS, SIZE)
        self.waiting, self.bits = [], 0.0

    @torch.no_grad()
    def send(self, part, due):
        mask = MASKS[part]
        self.error = torch.where(mask, self.error + self.base - self.weights, self.error)
        results = []
        for m in range(MEMBERS):
            result, bits = compressed(self.error[m], part)
            self.bits += bits / MEMBERS
            self.error[m] -= result
            results.append(result)
        results = torch.stack(results)
        begin = self.common - o.keep * self.error - o.own * results
        self.weights, self.base = torch.where(mask, begin, self.weights), torch.where(mask, begin, self.base)
        self.waiting.append((due, mask, results))

    @torch.no_grad()
    def move(self, step, last):
        while self.waiting and (last or self.waiting[0][0] <= step):
            _, mask, results = self.waiting.pop(0)
            mean = results.mean(0)
            self.common = torch.where(mask, self.common - mean, self.common)
            shift = torch.where(mask, o.own * results - mean, 0)
            self.weights, self.base = self.weights + shift, self.base + shift

    @torch.no_grad()
    def put_back(self):
        self.error += self.base - self.weights
        self.weights = self.common.repeat(MEMBERS, 1)
        self.base = self.weights.clone()


def main():
    total = o.tokens // (MEMBERS * o.batch * o.length)
    warmup = max(1, 0.03 * total)
    every, exchanged, optimizer, x = o.steps // o.parts, 0, Inner(), Exchange()
    print(json.dumps(vars(o) | {"data": ""}), f"{SIZE} parameters, {total} steps", flush=True)
    begun, sums = time.time(), []
    for step in range(1, total + 1):
        last = step == total
        rate = o.lr * min(step / warmup, 1) * 0.5 * (1 + math.cos(math.pi * max(0, step - 1 - warmup) / (total - warmup)))
        x.weights.requires_grad_(True)
        loss = losses(x.weights, batch((step - 1) * MEMBERS * o.batch, MEMBERS * o.batch).view(MEMBERS, o.batch, -1))
        (gradient,) = torch.autograd.grad(loss.sum(), x.weights)
        x.weights = x.weights.detach()
        optimizer.step(x.weights, gradient, rate)
        sums.append(loss.mean().item())
        x.move(step, last)
        if step % every and not last:
            continue
        for part in range(o.parts) if last else [exchanged % o.parts]:
            x.send(part, step + o.delay)
            x.move(step, last)
        if o.back:
            x.put_back()
        exchanged += 1
        if exchanged % max(1, total // every // 12) == 0 or last:
            print(f"step {step}/{total}  loss {sum(sums) / len(sums):.4f}  validation {measure(x.common, VALIDATION, 128):.4f}"
                  f"  bits of a parameter {x.bits / SIZE:.2f}  {time.time() - begun:.0f} s", flush=True)
            sums = []
    print(f"end  validation {measure(x.common, VALIDATION, 512):.4f}  test {measure(x.common, TEST, 512):.4f}"
          f"  bits of a parameter {x.bits / SIZE:.2f}", flush=True)


if __name__ == "__main__":
    main()
