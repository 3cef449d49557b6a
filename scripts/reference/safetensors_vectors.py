"""Writes files/safetensors/testdata/reference.safetensors with the reference implementation.

Needs: pip install safetensors==0.4.5
Run from the repository's root: python scripts/reference/safetensors_vectors.py
"""
import struct

from safetensors import serialize

# the reference's name of the dtype, and the bytes per element
DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "float64": 8, "int64": 8, "uint64": 8,
}


def pattern(count, start):
    return bytes((start + 7 * i) % 256 for i in range(count))


tensors = {
    f"layer.{name}": {"dtype": name, "shape": [2, 3], "data": pattern(6 * width, i)}
    for i, (name, width) in enumerate(DTYPES.items())
}
tensors["bools"] = {"dtype": "bool", "shape": [3], "data": bytes([0, 1, 1])}
tensors["scalar"] = {"dtype": "float32", "shape": [], "data": struct.pack("<f", -1.5)}
tensors["empty"] = {"dtype": "float32", "shape": [0, 3], "data": b""}
tensors['h\u00e9llo "q" <&>\n'] = {"dtype": "float32", "shape": [1], "data": struct.pack("<f", 0.25)}

with open("files/safetensors/testdata/reference.safetensors", "wb") as file:
    file.write(serialize(tensors, {"format": "pt"}))
