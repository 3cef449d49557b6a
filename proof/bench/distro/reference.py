"""The DisTrO optimizer as a composition of PyTorch operations, to compare times with.

Reads one JSON line {"shapes", "threads", "chunk", "topk", "peers"} and answers "ready";
then for each line "encode" or "decode" does that once for all tensors and answers with
the seconds it took, and the seconds of CPU time.
"""

import json
import math
import sys
import time

import torch


def chunk_edge(n, target):
    if n <= target:
        return n
    return max(d for d in range(1, target + 1) if n % d == 0)


def cosine_basis(n):
    """Rows are the orthonormal DCT-II basis vectors of n points."""
    points = torch.arange(n, dtype=torch.float64)
    basis = torch.cos(math.pi / n * (points[None, :] + 0.5) * points[:, None]) * math.sqrt(2 / n)
    basis[0] /= math.sqrt(2)
    return basis.float()


class Tensor:
    """One parameter with its momentum."""

    def __init__(self, shape, options, generator):
        self.weight = torch.randn(shape, generator=generator) * 0.02
        self.gradient = torch.randn(shape, generator=generator)
        self.momentum = torch.zeros(shape)
        rows, cols = (shape if len(shape) == 2 else (1, shape[0]))
        self.h, self.w = chunk_edge(rows, options["chunk"]), chunk_edge(cols, options["chunk"])
        self.view = (rows // self.h, self.h, cols // self.w, self.w)
        self.vertical, self.horizontal = cosine_basis(self.h), cosine_basis(self.w)
        self.topk, self.peers = min(options["topk"], self.h * self.w), options["peers"]
        self.received = []

    # Two large matrix products and a transposition each were the fastest of five
    # compositions, einsum and batched products among them.

    def transform(self, x):
        """Coefficients [y, x, b·d] of the chunks of a tensor."""
        y, h, x_, w = self.view
        rows = (x.view(-1, w) @ self.horizontal.T).view(y, h, x_, w)
        columns = rows.permute(0, 2, 3, 1).reshape(-1, h) @ self.vertical.T
        return columns.view(y, x_, w, h).transpose(-1, -2).reshape(y, x_, h * w)

    def inverse(self, coefficients):
        y, h, x_, w = self.view
        rows = (coefficients.view(-1, w) @ self.horizontal).view(y, x_, h, w)
        columns = rows.transpose(-1, -2).reshape(-1, h) @ self.vertical
        return columns.view(y, x_, w, h).permute(0, 3, 1, 2).reshape(self.weight.shape)

    def scatter(self, indices, values):
        zeros = torch.zeros(self.view[0], self.view[2], self.h * self.w)
        return zeros.scatter_reduce(-1, indices, values, reduce="mean", include_self=False)

    def encode(self):
        self.momentum.mul_(0.999).add_(self.gradient, alpha=4e-4)
        coefficients = self.transform(self.momentum)
        indices = torch.topk(coefficients.abs(), self.topk, dim=-1, largest=True, sorted=False).indices
        values = coefficients.gather(-1, indices)
        self.momentum.sub_(self.inverse(self.scatter(indices, values)))
        if len(self.received) < self.peers:
            self.received.append((indices, values.sign()))

    def decode(self):
        indices = torch.cat([i for i, _ in self.received], dim=-1)
        values = torch.cat([v for _, v in self.received], dim=-1)
        self.weight.add_(self.inverse(self.scatter(indices, values)).sign_(), alpha=-4e-4)


def main():
    options = json.loads(sys.stdin.readline())
    torch.set_num_threads(options["threads"])
    generator = torch.Generator().manual_seed(1)
    tensors = [Tensor(shape, options, generator) for shape in options["shapes"]]
    for _ in range(options["peers"]):
        for tensor in tensors:
            tensor.encode()
    print("ready", flush=True)
    for line in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        for tensor in tensors:
            getattr(tensor, line.strip())()
        print(time.perf_counter() - start, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
