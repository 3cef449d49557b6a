#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/numbers.json: the values that the reference reads from numbers, as the
bits of a float64 in hexadecimal; null if it refuses the file.

Needs: pip install tokenizers==0.23.3
Run from the repository's root: scripts/reference/tokenizer_numbers.py
"""

import json
import pathlib
import random
import struct

from tokenizers import Tokenizer

SOME = """0 -0 0.0 -0.0 1 -1 12 18446744073709551615 18446744073709551616 184467440737095516150 -9223372036854775808 -9223372036854775809
99999999999999999999 123456789012345678901234567890 123456789012345678901.5 123456789012345678901e2 12345678901234567890.12345678901234567890e-5
0.1 0.3 -7.2739257078329596 1e0 1E+5 1.5e-7 1e22 1e23 1e308 1e309 1.8e308 179769313486231570000e288 17976931348623157e292 1e-308 1e-309 4.9e-324 1e-324 123456e-330 1e-400
0.00000000000000000000000000000000000000001 0e999 0e-999 1e-999 1.0e5000 0.5e1 2.50 2.5000000000000000000000000000001""".split()


def reference(text):
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", "HERE"]], "byte_fallback": False}}
    try:
        made = Tokenizer.from_str(json.dumps(file).replace('"HERE"', text))
    except Exception:
        return None
    # The reference writes the shortest digits that are nearest to the number, and Python reads them
    # exactly.
    return struct.pack(">d", json.loads(made.to_str())["model"]["vocab"][0][1]).hex()


if __name__ == "__main__":
    r = random.Random(7)
    numbers = list(SOME)
    for _ in range(300):
        numbers.append(repr(-r.expovariate(0.1)))
    for _ in range(100):
        numbers.append(f"{r.randrange(10 ** r.randint(1, 25))}.{r.randrange(10 ** r.randint(1, 25))}e{r.randint(-340, 320)}")
    made = {number: reference(number) for number in numbers}
    pathlib.Path("files/tokenizer/testdata/numbers.json").write_text(json.dumps(made, indent=0) + "\n")
