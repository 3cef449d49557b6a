#!/usr/bin/python3
"""Write test vectors of Decoupled Momentum Optimization (DeMo), arXiv 2411.19870.

This script implements the algorithm from the paper (algorithm 1 and section 3) with
PyTorch in double precision, so that package distro can be compared with an independent
implementation:

    m   <- decay * m + lr * g                     momentum
    q   <- k largest coefficients of DCT(m), per chunk
    m   <- m - IDCT(q)                            remove the sent part from the momentum
    Q   <- mean of each coefficient over its senders
    w   <- w - lr * sign(IDCT(Q))

A chunk is a block of the last two dimensions (or of a vector's only dimension). Its edge is the
dimension itself, or the dimension's largest divisor that is at most the target.

Usage: demo_vectors.py learn/distro/testdata/demo.json
Inputs are multiples of 2**-8, stored as int16, so that they and the momentum are exact in
single precision. Numbers are base64 of little-endian integers or floats: uint16 indices,
float32 values, the first sender's residual as float32, and the updates IDCT(Q) as float16.
The updates are divided by their largest magnitude, because only their sign and nearness to
zero matter.
"""

import base64
import json
import math
import sys

import torch

CASES = [
    # shape, chunk target, top-k, senders
    ([64, 128], 64, 8, 4),
    ([64, 64], 64, 32, 2),
    ([100, 48], 64, 8, 3),  # blocks of 50 x 48
    ([58, 44], 32, 6, 2),  # blocks of 29 x 22
    ([192], 64, 4, 3),
    ([100], 64, 5, 1),  # blocks of 50
    ([3, 32, 20], 64, 8, 4),
    ([2, 2, 32, 16], 16, 2, 4),
]
DECAY, LR = 0.875, 0.03125  # exact in binary, so that the momentum is comparable to the last bit


def edge(n, target):
    return n if n <= target else max(d for d in range(1, target + 1) if n % d == 0)


def dct_matrix(n):
    """Return the orthonormal DCT-II as a matrix: coefficient k of x is matrix[k] @ x."""
    k = torch.arange(n, dtype=torch.float64)[:, None]
    i = torch.arange(n, dtype=torch.float64)[None, :]
    matrix = torch.cos(math.pi * (2 * i + 1) * k / (2 * n)) * math.sqrt(2 / n)
    matrix[0] = math.sqrt(1 / n)
    return matrix


class Chunks:
    """Cuts a tensor into chunks of h x w: to [chunks, h, w] and back."""

    def __init__(self, shape, target):
        self.shape = shape
        height = shape[-2] if len(shape) > 1 else 1
        self.h, self.w = edge(height, target), edge(shape[-1], target)
        self.stack = math.prod(shape[:-2])
        self.y, self.x = height // self.h, shape[-1] // self.w
        self.rows, self.cols = dct_matrix(self.h), dct_matrix(self.w)

    def cut(self, t):
        t = t.reshape(self.stack, self.y, self.h, self.x, self.w)
        return t.permute(0, 1, 3, 2, 4).reshape(-1, self.h, self.w)

    def join(self, t):
        t = t.reshape(self.stack, self.y, self.x, self.h, self.w)
        return t.permute(0, 1, 3, 2, 4).reshape(self.shape)

    def forward(self, t):
        return self.rows @ self.cut(t) @ self.cols.T

    def inverse(self, coefficients):
        return self.join(self.rows.T @ coefficients @ self.cols)


def encode(chunks, momentum, gradient, topk):
    momentum = DECAY * momentum + LR * gradient
    coefficients = chunks.forward(momentum).flatten(1)
    size = coefficients.shape[1]
    topk = min(topk, size)
    # One more coefficient than is sent, to show how close the choice was.
    order = coefficients.abs().sort(dim=1, descending=True)
    gap = order.values[:, topk - 1] - (order.values[:, topk] if topk < size else 0)
    indices = order.indices[:, :topk].sort(dim=1).values
    values = coefficients.gather(1, indices)
    sent = torch.zeros_like(coefficients).scatter(1, indices, values)
    residual = momentum - chunks.inverse(sent.reshape(-1, chunks.h, chunks.w))
    return dict(indices=indices, values=values, residual=residual, gap=gap, peak=order.values[:, 0])


def mean_inverse(chunks, results, quantize):
    size = chunks.h * chunks.w
    n = results[0]["indices"].shape[0]
    total, count = torch.zeros(n, size, dtype=torch.float64), torch.zeros(n, size, dtype=torch.float64)
    for r in results:
        values = r["values"].sign() if quantize else r["values"]
        total.scatter_add_(1, r["indices"], values)
        count.scatter_add_(1, r["indices"], torch.ones_like(values))
    mean = torch.where(count > 0, total / count.clamp(min=1), torch.zeros_like(total))
    return chunks.inverse(mean.reshape(-1, chunks.h, chunks.w))


def packed(tensor, dtype):
    return base64.b64encode(tensor.flatten().numpy().astype("<" + dtype).tobytes()).decode()


def relative(update):
    return packed(update / update.abs().max(), "f2")


STEP = 2.0**-8


def exact_normal(generator, shape, scale):
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale / STEP).round() * STEP


def case(generator, shape, target, topk, senders):
    chunks = Chunks(shape, target)
    out = dict(shape=shape, chunk=target, topk=topk, decay=DECAY, lr=LR, senders=[])
    results = []
    for _ in range(senders):
        momentum = exact_normal(generator, shape, 0.5)
        # Gradients with a common part, as in training one model: sometimes senders agree.
        gradient = exact_normal(generator, shape, 8)
        if results:
            gradient = gradient + results[0]["gradient"]
        r = encode(chunks, momentum, gradient, topk)
        r["gradient"] = gradient
        results.append(r)
        out["senders"].append(
            dict(
                momentum=packed(momentum / STEP, "i2"),
                gradient=packed(gradient / STEP, "i2"),
                indices=packed(r["indices"], "u2"),
                values=packed(r["values"], "f4"),
                gap=packed(r["gap"], "f4"),
                peak=packed(r["peak"], "f4"),
            )
        )
    out["residual"] = packed(results[0]["residual"], "f4")
    # The update of the first n senders, for every n.
    out["updates"] = [
        dict(signs=relative(mean_inverse(chunks, results[:n], True)), values=relative(mean_inverse(chunks, results[:n], False)))
        for n in range(1, senders + 1)
    ]
    return out


def main():
    generator = torch.Generator().manual_seed(20241129)
    cases = [case(generator, *c) for c in CASES]
    with open(sys.argv[1], "w") as f:
        json.dump(dict(script="scripts/reference/demo_vectors.py", torch=torch.__version__, cases=cases), f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
