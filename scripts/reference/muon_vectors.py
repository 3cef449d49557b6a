"""Writes learn/train/testdata/muon.json: parameters after each step of torch.optim.Muon. Its Newton-Schulz
iteration uses float32 instead of bfloat16, whose rounding changes such small steps by up to a tenth.

Needs: torch 2.9 or newer
Run from the repository's root: python3 scripts/reference/muon_vectors.py
"""
import inspect
import json

import torch
from torch.optim import _muon

source = inspect.getsource(_muon._zeropower_via_newtonschulz)
assert "torch.bfloat16" in source
exec(source.replace("torch.bfloat16", "torch.float32"), _muon.__dict__)

torch.manual_seed(7)
torch.set_num_threads(1)


def numbers(tensor):
    # The shortest decimal that converts back to the same float32 has at most nine digits.
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


cases = []
for shape, decay in [((6, 10), 0.1), ((10, 6), 0.0), ((8, 8), 0.01)]:
    weight = torch.randn(*shape)
    parameter = torch.nn.Parameter(weight.clone())
    optimizer = torch.optim.Muon([parameter], lr=1.0, momentum=0.95, nesterov=True, weight_decay=decay,
                                 adjust_lr_fn="match_rms_adamw")
    steps = []
    for i in range(5):
        lr = 1e-2 * (i + 1) / 3
        gradient = torch.randn(*shape) * 10.0 ** (i - 3)
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = gradient.clone()
        optimizer.step()
        steps.append({"lr": lr, "gradient": numbers(gradient), "parameter": numbers(parameter.detach())})
    cases.append({"weight_decay": decay, "shape": list(shape), "parameter": numbers(weight), "steps": steps})

with open("learn/train/testdata/muon.json", "w") as file:
    json.dump({"torch": torch.__version__, "cases": cases}, file, indent=1)
    file.write("\n")
