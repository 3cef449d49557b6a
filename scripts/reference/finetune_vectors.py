#!/usr/bin/env python3
"""Reference values for a run of three members that fine-tunes a small Qwen 3: the loss of every batch, with
the model of transformers and DisTrO written in PyTorch. The files also contain the losses of AdamW with the same batches.

    python3 scripts/reference/finetune_vectors.py build/bin/psyche-client   # writes proof/e2e/testdata/finetune

The samples are questions and answers packed into rows; only the answers are learned. The decay of the
momentum is 0, so that a member's results do not depend on its earlier batches. The committed
values were made with transformers 5.24.0, PyTorch 2.15.0 and pyarrow 26.0.1.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[2] / "proof/e2e/testdata/finetune"
LENGTH, ROWS = 64, 48
STEPS, MEMBERS, BATCH = 24, 3, 2  # each member trains BATCH sequences
RATE, CHUNK, TOPK = 2e-3, 32, 8

CONFIG = dict(
    architectures=["Qwen3ForCausalLM"],
    model_type="qwen3",
    vocab_size=256,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    max_position_embeddings=64,
    tie_word_embeddings=False,
    rope_theta=1000000.0,
)


def samples():
    rows, number = [], 0
    for _ in range(ROWS):
        row = dict(inputs=[], labels=[], position_ids=[], sequence_lengths=[])
        while True:
            question, answer = f"Q: {number % 23}+{number % 7}?\n".encode(), f"A: {number % 23 + number % 7}.\n".encode()
            if len(row["inputs"]) + len(question) + len(answer) > LENGTH:
                break
            row["inputs"] += [*question, *answer]
            row["labels"] += [-100] * len(question) + [*answer]
            row["position_ids"] += range(len(question) + len(answer))
            row["sequence_lengths"].append(len(question) + len(answer))
            number += 1
        if rest := LENGTH - len(row["inputs"]):
            row["inputs"] += [0] * rest
            row["labels"] += [-100] * rest
            row["position_ids"] += range(row["position_ids"][-1] + 1, row["position_ids"][-1] + 1 + rest)
            row["sequence_lengths"].append(rest)
        rows.append(row)
    return rows


def loss_of(model, rows):
    """Return the mean loss over the labels of some rows. Each row is computed as a whole."""
    total, counted = torch.zeros(()), 0
    for row in rows:
        positions = torch.tensor([i for length in row["sequence_lengths"] for i in range(length)])
        logits = model(torch.tensor(row["inputs"])[None], position_ids=positions[None], use_cache=False).logits[0]
        labels = torch.tensor(row["labels"])[1:]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels, reduction="sum")
        counted += int((labels != -100).sum())
    return total / counted


def edge(n):
    return n if n <= CHUNK else max(d for d in range(1, CHUNK + 1) if n % d == 0)


def cosines(n):
    points = torch.arange(n, dtype=torch.float64)
    basis = torch.cos(math.pi / n * (points[None, :] + 0.5) * points[:, None]) * math.sqrt(2 / n)
    basis[0] /= math.sqrt(2)
    return basis.float()


class Chunks:
    """The chunks of a tensor: [rows, columns of chunks, height·width]."""

    def __init__(self, shape):
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        self.shape, self.h, self.w = shape, edge(rows), edge(columns)
        self.across, self.along = rows // self.h, columns // self.w

    def transform(self, x):
        x = x.reshape(self.across, self.h, self.along, self.w).permute(0, 2, 1, 3)
        return (cosines(self.h) @ x @ cosines(self.w).T).reshape(self.across, self.along, -1)

    def inverse(self, c):
        x = cosines(self.h).T @ c.reshape(self.across, self.along, self.h, self.w) @ cosines(self.w)
        return x.permute(0, 2, 1, 3).reshape(self.shape)

    def spread(self, of_chunks):
        """Return a tensor with each chunk's number in all elements of the chunk."""
        return of_chunks[:, None, :, None].expand(-1, self.h, -1, self.w).reshape(self.shape)

    def signs(self, gradient):
        """Return the signs of the largest coefficients, else 0; all 0 for a chunk with almost no momentum."""
        c = self.transform(gradient)
        kept = torch.topk(c.abs(), min(TOPK, c.shape[-1]), dim=-1).indices
        signs = torch.zeros_like(c).scatter(-1, kept, c.sign().gather(-1, kept))
        floor = gradient.square().mean().sqrt() / 1024
        return signs * (c.abs().amax(-1, keepdim=True) >= floor)


def distro(model, rows):
    """Return the loss of each batch of each step."""
    losses, chunks = [], [Chunks(tuple(p.shape)) for p in model.parameters()]
    for step in range(STEPS):
        sent = [[] for _ in chunks]
        for member in range(MEMBERS):
            first = (step * MEMBERS + member) * BATCH
            loss = loss_of(model, [rows[(first + i) % ROWS] for i in range(BATCH)])
            model.zero_grad()
            loss.backward()
            losses.append(loss.item())
            for i, p in enumerate(model.parameters()):
                sent[i].append(chunks[i].signs(p.grad))
        with torch.no_grad():
            for i, p in enumerate(model.parameters()):
                signs = torch.stack(sent[i])
                mean = signs.sum(0) / (signs != 0).sum(0).clamp(min=1)
                share = (signs != 0).any(-1).float().mean(0)  # fraction of the members that sent something in a chunk
                p.sub_(RATE * chunks[i].spread(share) * chunks[i].inverse(mean).sign())
    return losses


def adamw(model, rows):
    """Return the loss of each step with all its batches."""
    losses, optimizer = [], torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(STEPS):
        loss = loss_of(model, [rows[(step * MEMBERS * BATCH + i) % ROWS] for i in range(MEMBERS * BATCH)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    rows = samples()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    whole = pa.large_list(pa.int32())
    schema = pa.schema([("inputs", whole), ("labels", whole), ("position_ids", whole), ("sequence_lengths", pa.large_list(pa.int64()))])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), OUT / "data-00000-of-00001.parquet", compression="zstd")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "init-model", "--config", OUT / "config.json", "--seed", "1", "--output", folder + "/model"], check=True)
        fresh = lambda: AutoModelForCausalLM.from_pretrained(folder + "/model", attn_implementation="eager", dtype=torch.float32).train()
        found = dict(batches=distro(fresh(), rows), adamw=adamw(fresh(), rows))
    (OUT / "losses.json").write_text(json.dumps(found) + "\n")
    per = MEMBERS
    means = [sum(found["batches"][i * per : (i + 1) * per]) / per for i in range(STEPS)]
    print("DisTrO", [round(x, 3) for x in means[:: STEPS // 8] + means[-1:]])
    print("AdamW ", [round(x, 3) for x in found["adamw"][:: STEPS // 8] + found["adamw"][-1:]])


if __name__ == "__main__":
    main()
