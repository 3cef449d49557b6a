#!/usr/bin/env python3
"""Writes token files in the formats of datatrove, Megatron-LM and llm.c, for the tests of files/data/local.

Needs: pip install datatrove==0.10.1 tokenizers==0.23.3 numpy
Run from the repository's root: scripts/reference/token_files.py files/data/local/testdata/formats

datatrove writes its own files. This script writes the .idx of Megatron-LM
(megatron/core/datasets/indexed_dataset.py) and the header of llm.c (dev/data/data_common.py) itself, because
those programs need a GPU or are scripts. numpy writes the arrays. Every file has the ids 0, 1000, 2000 and so
on: all below 128,256, the size of the vocabulary, that fit into a token.
"""

import struct
import sys
from pathlib import Path

import numpy as np
from datatrove.io import get_datafolder
from datatrove.pipeline.tokens.tokenizer import TokenizedFile


def ids(dtype):
    return np.arange(0, min(128256, np.iinfo(dtype).max + 1), 1000).astype(dtype)


def datatrove(out):
    for size, dtype in ((2, np.uint16), (4, np.uint32)):
        file = TokenizedFile(get_datafolder(str(out)), f"datatrove-{size}.ds", save_index=False,
                             tokenizer_name_or_path="a/tokenizer", save_final_metadata=True, token_size=size)
        file.write(ids(dtype).tolist(), None)
        file.close()


def megatron(out):
    codes = {np.int16: 3, np.int32: 4, np.int64: 5, np.uint16: 8}
    for dtype, code in codes.items():
        tokens = ids(dtype)
        lengths = np.array([20, len(tokens) - 20], dtype=np.int32)
        places = np.array([0, 20 * tokens.itemsize], dtype=np.int64)
        documents = np.array([0, 1, 2], dtype=np.int64)
        name = out / f"megatron-{np.dtype(dtype).name}"
        name.with_suffix(".bin").write_bytes(tokens.tobytes())
        head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
        name.with_suffix(".idx").write_bytes(head + lengths.tobytes() + places.tobytes() + documents.tobytes())


def llmc(out):
    for name, magic, version, dtype in (("gpt2", 20240520, 1, np.uint16), ("llama3", 20240801, 7, np.uint32)):
        header = np.zeros(256, dtype=np.int32)
        tokens = ids(dtype)
        header[:3] = magic, version, len(tokens)
        (out / f"llmc-{name}.bin").write_bytes(header.tobytes() + tokens.tobytes())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    datatrove(folder)
    megatron(folder)
    llmc(folder)
