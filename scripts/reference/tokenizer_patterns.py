#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/patterns.json: how the reference splits texts by patterns whose
meaning differs between regular expression syntaxes; null if it refuses the pattern.

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
    r"\w+", r"\W", r"[\w]+", r"[^\w\s]+", r"[\W]", r"[^\W]+", r"\w+|[^\w\s]+", r"\bx?\d+\b", r"\b\w", r"\w\B", r"\D+", r"[\D]+", r"\h+", r"[\H&&\S]+", r"\S+$", r"^.", r"^\s*\w+", r"a$|^b|\n", r"x\Z|\n",
    r"[\w-]+", r"[-\w]", r"[\w-a]+", r"[[:alpha:]-a]+", r"[a-\w]", r"[a-[:alpha:]]", r"[\w-]", r"[a\d-]", r"[\d-a]", r"[\s-~]", r"[a-c-e]+", r"[\w\-.]+", r"[+\-*]", r"[\]-a]+", r"[^\s\p{L}\p{N}-]+", r"[a\P{L}]+", r"[^\P{L}a]+", r"\p{^L}+", r"[\p{^L}]", r"\P{^Lu}",
    r"[[:alpha:]]+", r"[[:^alpha:]]+", r"[^[:space:]]+", r"[[:digit:][:punct:]]+", r"[^[:alnum:]\s]", r"[[:upper:]a-c]+", r"[[:xdigit:]]{2}", r"[[:word:]²]+", r"\p{Word}+", r"\p{Alpha}+", r"\p{Punct}+", r"[\p{Upper}\p{Lower}]+",
    r"(?i)AB|é", r"(?i)[^a]+", r"(?m:a.b)|x", r"(?<=\w)\W(?=\w)", r"(?i:\bAB)\b",
    # From well-known tokenizers: GPT-2, cl100k in two ways, o200k, Qwen 3.5, Tekken, DeepSeek
    # Coder, CLIP, BERT's words.
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\s?\p{L}+", r"\s?\p{P}+", r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", r"\w+|[^\w\s]", r"\p{Sc}|\p{Sm}+",
    r"[]a]", r"[[]a]b]", r"[^]a]", r"[a^]", r"[[a^]6]", r"[-a[b]]", r"[a[b-]x]", r"[\d&&[^3-5]]{2}", r"[\d&&1-4&&[^2]]+", r"[a[x&&[x-z]]]", r"[^[^ab]]", r"[^^a]", r"[\p{Ll}&&[^\p{Latin}]]|\d[[^1]]",
]
TEXTS = ["12345678 1x12 ababab", "12345", "aab ab12 345\n 6x", "x  ", "a^b]-c[e x3]y&&é я1", "a²b_c ½—٣ 中é\u0301 \u200d a-b.c d\n\nab\r\nx\n", "Don't WE'LL I'd 12,345 $9.50 (ABa) {ǅ} «да» a\tb  \n", "²", ""]

if __name__ == "__main__":
    made = []
    for pattern in PATTERNS:
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception:  # the reference refuses the pattern
            made.append({"pattern": pattern, "text": "", "pieces": None})
            continue
        for text in TEXTS:
            pieces = [piece for piece, _ in split.pre_tokenize_str(text)]
            made.append({"pattern": pattern, "text": text, "pieces": pieces})
    out = pathlib.Path("files/tokenizer/testdata/patterns.json")
    out.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in made) + "\n]\n")
