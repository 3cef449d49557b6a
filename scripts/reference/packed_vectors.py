#!/usr/bin/env python3
"""Reference values for samples that contain several packed texts. transformers computes loss and gradients from
whole rows with position_ids that restart for each text. pyarrow writes the samples as a Parquet file, with the
columns and types of scripts that pack conversations.

    python3 scripts/reference/packed_vectors.py   # writes learn/train/testdata/packed

The committed values were made with transformers 5.24.0, PyTorch 2.15.0 and pyarrow 26.0.1.
"""

import json
import pathlib
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from variant_vectors import saved, write

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/train/testdata/packed"
LENGTH, VOCABULARY = 24, 48

BASE = dict(
    vocab_size=VOCABULARY,
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=32,
    head_dim=8,
    bos_token_id=1,
    eos_token_id=None,
    pad_token_id=None,
)
MODELS = {
    "qwen3": BASE | dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3"),
    "mixtral": BASE | dict(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
    "gemma3": BASE
    | dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", sliding_window=4, sliding_window_pattern=2, hidden_activation="gelu_pytorch_tanh"),
}

# For each row: the lengths of its texts, the number of learned tokens at the end of each text, and
# the padding.
ROWS = [([7, 3, 9], [4, 2, 9]), ([24], [10]), ([1, 5, 2, 12], [1, 0, 2, 8])]


def rows():
    """Return rows of LENGTH tokens. If a whole text is learned, so is its first token, which the last token of the
    previous text predicts."""
    out = []
    for lengths, learned in ROWS:
        ids = torch.randint(0, VOCABULARY, (LENGTH,))
        labels, positions, seen = torch.full((LENGTH,), -100), [], list(lengths)
        for length, count in zip(lengths, learned):
            end = len(positions) + length
            labels[end - count : end] = ids[end - count : end]
            positions += range(length)
        if rest := LENGTH - len(positions):
            ids[len(positions) :] = 0
            seen.append(rest)
            positions += range(positions[-1] + 1, positions[-1] + 1 + rest)  # positions continue in the padding, as those scripts write them
        out.append(dict(inputs=ids.tolist(), labels=labels.tolist(), position_ids=positions, sequence_lengths=seen))
    return out


def anew(lengths):
    return [i for length in lengths for i in range(length)]


def compute(c, samples):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(c))
        config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).train()
    model.set_experts_implementation("eager")
    one_more = c["model_type"].startswith("gemma")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1 if p.dim() == 1 and not one_more else 0))
    vectors = {"weight/" + k: v for k, v in saved(model).items()}
    total, counted = torch.zeros(()), 0
    for sample in samples:
        ids, labels = torch.tensor(sample["inputs"])[None], torch.tensor(sample["labels"])
        logits = model(ids, position_ids=torch.tensor(anew(sample["sequence_lengths"]))[None], use_cache=False).logits[0]
        first = 0
        with torch.no_grad():  # check that transformers keeps the texts separate
            for length in sample["sequence_lengths"]:
                alone = model(ids[:, first : first + length]).logits[0]
                assert (alone - logits[first : first + length]).abs().max() < 1e-4
                first += length
        total = total + torch.nn.functional.cross_entropy(logits[:-1], labels[1:], reduction="sum")
        counted += int((labels[1:] != -100).sum())
    loss = total / counted
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.zeros_like(p) if p.grad is None else p.grad)
    vectors |= {"gradient/" + k: v for k, v in saved(model).items()}
    vectors["loss"] = torch.tensor([loss.item()]).numpy()
    return vectors


def main():
    torch.manual_seed(1)
    samples = rows()
    whole = pa.large_list(pa.int32())
    schema = pa.schema([("inputs", whole), ("labels", whole), ("position_ids", whole), ("sequence_lengths", pa.large_list(pa.int64()))])
    OUT.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(samples, schema=schema), OUT / "data-00000-of-00001.parquet")
    for name, c in MODELS.items():
        vectors = compute(c, samples)
        (OUT / name).mkdir(exist_ok=True)
        (OUT / name / "config.json").write_text(json.dumps(c, indent=2) + "\n")
        write(OUT / name / "vectors.safetensors", vectors)
        print(f"{name}: loss {vectors['loss'][0]:.6f}")


if __name__ == "__main__":
    main()
