#!/usr/bin/env python3
"""Reference values for the padding token of config.json: gradients, and the losses of 12 steps of AdamW. transformers
computes them with nn.Embedding's padding_idx, like published models, and without it.

    python3 scripts/reference/padding_vectors.py [WEIGHTS]   # writes learn/train/testdata/padding

WEIGHTS is a model.safetensors for the config.json there; default: the committed weights. The tokens in tokens.ds have
two bytes.
The committed values were made with transformers 5.24.0 on PyTorch 2.15.0.
"""

import pathlib
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from variant_vectors import read, write

OUT = pathlib.Path(__file__).resolve().parents[2] / "learn/train/testdata/padding"
STEPS, SEQUENCES, LENGTH, RATE = 12, 4, 17, 1e-3


def model(weights, padded):
    config = AutoConfig.from_pretrained(OUT)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).train()
    network.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    assert network.model.embed_tokens.padding_idx == config.pad_token_id
    if not padded:
        network.model.embed_tokens.padding_idx = None
    return network


def loss_of(network, batch):
    logits = network(batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def losses(network, batches):
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    out = []
    for batch in batches:
        loss = loss_of(network, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return np.array(out, dtype=np.float32)


def main():
    if len(sys.argv) > 1:
        weights = read(pathlib.Path(sys.argv[1]))
    else:
        weights = {k[len("weight/") :]: v for k, v in read(OUT / "vectors.safetensors").items() if k.startswith("weight/")}
    tokens = np.fromfile(OUT / "tokens.ds", dtype="<u2")[: STEPS * SEQUENCES * LENGTH]
    batches = torch.from_numpy(tokens.astype(np.int64)).view(STEPS, SEQUENCES, LENGTH)
    vectors = {"weight/" + k: v for k, v in weights.items()}
    for padded, name in ((True, "losses_with_padding_idx"), (False, "losses")):
        network = model(weights, padded)
        loss_of(network, batches[0]).backward()
        if padded:
            vectors |= {"gradient/" + k: p.grad.numpy().copy() for k, p in network.named_parameters()}
        else:
            vectors["unpadded_embedding"] = network.model.embed_tokens.weight.grad.numpy().copy()
        vectors[name] = losses(model(weights, padded), batches)
        print(name, vectors[name][[0, 5, 11]])
    write(OUT / "vectors.safetensors", vectors)


if __name__ == "__main__":
    main()
