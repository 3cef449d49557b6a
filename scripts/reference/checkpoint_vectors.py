"""Writes files/checkpoint/testdata/reference with the reference implementations of safetensors
and of the Hub's sharding. Checks files/checkpoint/testdata/own, which this project's writer made from it.

Needs: pip install safetensors==0.4.5 huggingface_hub==2.4.0
Run from the repository's root: python scripts/reference/checkpoint_vectors.py write,
then go test ./files/checkpoint -update, then python scripts/reference/checkpoint_vectors.py check
"""
import hashlib
import json
import pathlib
import sys

from huggingface_hub.serialization import split_state_dict_into_shards_factory
from safetensors import deserialize, serialize

ROOT = pathlib.Path("files/checkpoint/testdata")
REFERENCE = ROOT / "reference"
CONFIG = '{"architectures": ["LlamaForCausalLM"], "vocab_size": 4, "hidden_size": 3, "num_hidden_layers": 2}\n'
# name -> (the writer's type name, the file's type name, bytes per element, shape)
TENSORS = {
    "model.embed_tokens.weight": ("bfloat16", "BF16", 2, [4, 3]),
    "model.layers.0.mlp.up_proj.weight": ("float16", "F16", 2, [3, 5]),
    "model.layers.1.mlp.up_proj.weight": ("float32", "F32", 4, [2, 2, 3]),
    "model.norm.weight": ("float32", "F32", 4, [3]),
    "counter": ("int64", "I64", 8, []),
    "scale": ("float16", "F16", 2, []),
    "empty": ("float32", "F32", 4, [0, 7]),
    "mask": ("bool", "BOOL", 1, [5]),
    'odd "n\u00e4me" </a>': ("uint8", "U8", 1, [1]),
}


def data(name, size):
    """Return arbitrary bytes, including NaNs and negative zeros."""
    return (hashlib.shake_128(name.encode()).digest(size)) if size else b""


def size(name):
    _, _, width, shape = TENSORS[name]
    count = 1
    for n in shape:
        count *= n
    return count * width


def write_file(path, names, metadata):
    tensors = {n: {"dtype": TENSORS[n][0], "shape": TENSORS[n][3], "data": data(n, size(n))} for n in names}
    path.write_bytes(serialize(tensors, metadata))


def write():
    for layout in ("whole", "sharded"):
        (REFERENCE / layout).mkdir(parents=True, exist_ok=True)
        (REFERENCE / layout / "config.json").write_text(CONFIG)
    odd = {"format": "pt", "": "empty key", "quote\"\n": "\u00fc\\"}
    write_file(REFERENCE / "whole" / "model.safetensors", TENSORS, odd)
    split = split_state_dict_into_shards_factory(
        {n: (n,) for n in TENSORS}, get_storage_size=lambda t: size(t[0]), max_shard_size=64,
        filename_pattern="model{suffix}.safetensors")
    for name, members in split.filename_to_tensors.items():
        write_file(REFERENCE / "sharded" / name, members, {"format": "pt"})
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
    (REFERENCE / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    listed = [{"name": n, "dtype": TENSORS[n][1], "shape": TENSORS[n][3],
               "sha256": hashlib.sha256(data(n, size(n))).hexdigest()} for n in sorted(TENSORS)]
    (REFERENCE / "tensors.json").write_text(json.dumps(listed, indent=1) + "\n")


def check():
    for layout in ("whole", "sharded"):
        folder = ROOT / "own" / layout
        found = {}
        for path in sorted(folder.glob("*.safetensors")):
            for name, tensor in deserialize(path.read_bytes()):
                found[name] = (path.name, tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
        want = {n: (TENSORS[n][1], TENSORS[n][3], data(n, size(n))) for n in TENSORS}
        assert {n: f[1:] for n, f in found.items()} == want, layout
        if layout == "sharded":
            index = json.loads((folder / "model.safetensors.index.json").read_text())
            assert index["weight_map"] == {n: f[0] for n, f in found.items()}
            assert index["metadata"]["total_size"] == sum(map(size, TENSORS))
        print(f"ok: {layout}, {len(found)} tensors in {len(list(folder.glob('*.safetensors')))} files")


{"write": write, "check": check}[sys.argv[1]]()
