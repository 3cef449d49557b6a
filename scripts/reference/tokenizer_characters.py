#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/characters.json: for every character, the output of the reference's normalizers,
whether its BertPreTokenizer splits at the character, and whether the character belongs to the letter before it
(Precompiled replaces an e together with such characters). A digest covers 16,384 characters. It is the first 3
bytes of the SHA-256 of their output lines. For classes of characters in patterns, it covers the pieces that a
Split makes of all characters, each followed by a zero byte.

Needs: pip install tokenizers==0.23.3
Run from the repository's root: scripts/reference/tokenizer_characters.py
"""

import gzip
import hashlib
import json
import pathlib

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

XLMR = Tokenizer.from_str(gzip.decompress(pathlib.Path("files/tokenizer/testdata/xlmr.json.gz").read_bytes()).decode())


def bert(**only):
    settings = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **only}
    return normalizers.BertNormalizer(**settings).normalize_str


def split(character):
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a" + character + "a")
    return "|".join(piece for piece, _ in pieces)


KINDS = {
    "clean_text": bert(clean_text=True),
    "handle_chinese_chars": bert(handle_chinese_chars=True),
    "strip_accents": bert(strip_accents=True),
    "Lowercase": normalizers.Lowercase().normalize_str,
    "StripAccents": normalizers.StripAccents().normalize_str,
    "Nmt": normalizers.Nmt().normalize_str,
    "BertPreTokenizer": split,
    "Precompiled": lambda c: XLMR.normalizer.normalize_str("e" + c + "e"),
}

CLASSES = [
    r"\w", r"\W", r"[\w]", r"\d", r"\s", r"\h", r"\S", r"\p{Word}", r"\p{Punct}", r"\p{Letter}",
    *(f"[[:{name}:]]" for name in "alnum alpha ascii blank cntrl digit lower punct space upper word xdigit".split()),
    *(r"\p{%s}" % name for name in "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Han Latin Thai Arabic Hangul".split()),
]

if __name__ == "__main__":
    made = {}
    for expression in CLASSES:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
        made[expression] = []
        for page in range(0, 0x110000, 0x4000):
            text = "".join(chr(c) for c in range(page, page + 0x4000) if not 0xD800 <= c < 0xE000)
            pieces = "".join(piece + "\0" for piece, _ in split.pre_tokenize_str(text))
            made[expression].append(hashlib.sha256(pieces.encode()).hexdigest()[:6])
    for name, answer in KINDS.items():
        made[name] = []
        for page in range(0, 0x110000, 0x4000):
            lines = [answer(chr(c)) + "\n" for c in range(page, page + 0x4000) if not 0xD800 <= c < 0xE000]
            made[name].append(hashlib.sha256("".join(lines).encode()).hexdigest()[:6])
    out = pathlib.Path("files/tokenizer/testdata/characters.json")
    out.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(all, separators=(',', ':'))}" for name, all in made.items()) + "\n}\n")
