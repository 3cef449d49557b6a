#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/patterns.json: how the reference splits texts by patterns whose
meaning differs between the syntaxes of regular expressions.

Needs: pip install tokenizers==0.23.3
Run from the repository's root: scripts/reference/tokenizer_patterns.py
"""

import json
import pathlib

from tokenizers import Regex, pre_tokenizers

PATTERNS = [
    r"\p{N}{1,3}", r"\p{N}{1,3}+", r"\p{N}{3}+", r"\p{N}{2,}+", r"\p{N}{1,2}+\p{N}", r"\p{N}++\p{N}|x",
    r"(?:ab){1,2}+b?", r"(?:ab|a){2}+", r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s",
    r"[a[bc]]", r"[^a[b ]]", r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]", r"[a[^b]]", r"[^a[^bx]]", r"[[a][b]&&[b\d]]", r"[^[ab]\d&&[^3-5]]", r"[\d1]+",
    r"[]a]", r"[[]a]b]", r"[^]a]", r"[a^]", r"[[a^]6]", r"[-a[b]]", r"[a[b-]x]", r"[\d&&[^3-5]]{2}", r"[\d&&1-4&&[^2]]+", r"[a[x&&[x-z]]]", r"[^[^ab]]", r"[^^a]", r"[\p{Ll}&&[^\p{Latin}]]|\d[[^1]]",
]
TEXTS = ["12345678 1x12 ababab", "12345", "aab ab12 345\n 6x", "x  ", "a^b]-c[e x3]y&&é я1"]

if __name__ == "__main__":
    made = []
    for pattern in PATTERNS:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        for text in TEXTS:
            pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
            made.append({"pattern": pattern, "text": text, "pieces": pieces})
    out = pathlib.Path("files/tokenizer/testdata/patterns.json")
    out.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in made) + "\n]\n")
