"""Writes learn/train/testdata/adamw.json: parameters after each step of torch.optim.AdamW.

Needs: python3-torch (Debian 1.13 or newer)
Run from the repository's root: python3 scripts/reference/adamw_vectors.py
"""
import json

import torch

torch.manual_seed(7)
torch.set_num_threads(1)


def numbers(tensor):
    # The shortest decimal that converts back to the same float32 has at most nine digits.
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


cases = []
for betas, eps, decay in [((0.9, 0.95), 1e-8, 0.1), ((0.9, 0.999), 1e-5, 0.0)]:
    weight = torch.randn(3, 4)
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=betas, eps=eps, weight_decay=decay)
    steps = []
    for i in range(6):
        lr = 1e-2 * (i + 1) / 3
        gradient = torch.randn(3, 4) * 10.0 ** (i - 3)
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = gradient.clone()
        optimizer.step()
        steps.append({"lr": lr, "gradient": numbers(gradient), "parameter": numbers(parameter.detach())})
    cases.append({"betas": betas, "eps": eps, "weight_decay": decay, "shape": [3, 4],
                  "parameter": numbers(weight), "steps": steps})

with open("learn/train/testdata/adamw.json", "w") as file:
    json.dump({"torch": torch.__version__, "cases": cases}, file, indent=1)
    file.write("\n")
