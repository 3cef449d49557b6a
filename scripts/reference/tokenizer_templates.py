#!/usr/bin/env python3
"""Writes files/tokenizer/testdata/templates.json: the ids from the reference for a text with several
templates in sequence; no ids if the reference returns an error.

Needs: pip install tokenizers==0.23.3
Run from the repository's root: scripts/reference/tokenizer_templates.py
"""

import json
import pathlib

from tokenizers import Tokenizer, models, processors

SPECIAL = [("<s>", 4), ("</s>", 5)]


def template(single, pair="$A $B"):
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=SPECIAL)


CASES = {
    "one": [template("<s> $A </s>")],
    "two": [template("<s> $A"), template("$A </s>")],
    "two, backwards": [template("$A </s>"), template("<s> $A")],
    "three": [template("<s> $A"), template("$A </s>"), template("<s> $A")],
    "ByteLevel between": [template("<s> $A"), processors.ByteLevel(), template("$A </s>")],
    "one that adds nothing first": [template("$A"), template("<s> $A </s>")],
    "within each other": [processors.Sequence([template("<s> $A")]), processors.Sequence([template("$A </s>")])],
    "two pieces, a pair that adds": [template("<s> $A"), template("$A </s>", "$A </s> $B")],
    "two pieces, a pair that turns": [template("<s> $A"), template("$A </s>", "$B $A")],
    "three pieces": [template("<s> $A </s>"), template("<s> $A")],
}


def run(parts):
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2, "<unk>": 3}, merges=[("a", "b")]))
    tokenizer.add_special_tokens([name for name, _ in SPECIAL])
    tokenizer.post_processor = processors.Sequence(parts)
    text = tokenizer.to_str()
    try:
        ids = tokenizer.encode("abb").ids
    except BaseException:  # the Rust library panics
        ids = None
    return {"tokenizer": json.loads(text), "ids": ids}


if __name__ == "__main__":
    made = {name: run(parts) for name, parts in CASES.items()}
    pathlib.Path("files/tokenizer/testdata/templates.json").write_text(json.dumps(made, ensure_ascii=False) + "\n")
