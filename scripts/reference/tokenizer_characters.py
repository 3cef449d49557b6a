#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/characters.json: what the reference's normalizers make of every
character, which ones its BertPreTokenizer splits at, and which belong to a letter before them (Precompiled replaces
an e with what belongs to it). A digest stands for 4096 characters:
the first 4 bytes of the SHA-256 of the lines made of them.

Needs: pip install tokenizers==0.23.3
Run from the repository's root: scripts/reference/tokenizer_characters.py
"""

import gzip
import hashlib
import json
import pathlib

from tokenizers import Tokenizer, normalizers, pre_tokenizers

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

if __name__ == "__main__":
    made = {}
    for name, answer in KINDS.items():
        made[name] = []
        for page in range(0, 0x110000, 0x1000):
            lines = [answer(chr(c)) + "\n" for c in range(page, page + 0x1000) if not 0xD800 <= c < 0xE000]
            made[name].append(hashlib.sha256("".join(lines).encode()).hexdigest()[:8])
    out = pathlib.Path("files/tokenizer/testdata/characters.json")
    out.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(all, separators=(',', ':'))}" for name, all in made.items()) + "\n}\n")
