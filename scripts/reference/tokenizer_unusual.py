#!/usr/bin/env python3
"""Write files/tokenizer/testdata/unusual.jsonl.gz: tokenizers with unusual combinations of settings, and the
answers of the reference implementation, the Python package tokenizers (0.23.3), for some texts.

Needs: pip install tokenizers==0.23.3 sentencepiece protobuf
Run from the repository's root: scripts/reference/tokenizer_unusual.py

The output has the format of tokenizer_random.py.
"""

from tokenizer_random import RULES, answers, charsmap, compact, write

VOCAB = ["<s>", "</s>", "<unk>", "▁", "x", "0", "a", "b", "c", "d", "e", "f", "g", "h", " ", "-", "?", "!"]
NEXT = len(VOCAB)


def file(added=(), normalizer=None, pre_tokenizer=None, decoder=None, **model):
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(VOCAB)}, "merges": [], **model,
        },
    }


def added(content, id=NEXT, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False, **flags}


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def normal(*all):
    return {"type": "Sequence", "normalizers": list(all)}


def pre(*all):
    return {"type": "Sequence", "pretokenizers": list(all)}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


FIRST = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
RAW = dict(normalized=False)


def files():
    # Metaspace's prepend_scheme "first" depends on the original position of a piece's first
    # character.
    yield "metaspace-first-replace", file(normalizer=replace(" {2,}", "0"), pre_tokenizer=FIRST)
    yield "metaspace-first-replace-a", file(normalizer=replace("ab", "x"), pre_tokenizer=FIRST)
    yield "metaspace-first-replace-inside", file(normalizer=replace(" {2,}", " "), pre_tokenizer=FIRST)
    yield "metaspace-first-strip", file(normalizer={"type": "Strip", "strip_left": True, "strip_right": False}, pre_tokenizer=FIRST)
    yield "metaspace-first-nfkc", file(normalizer={"type": "NFKC"}, pre_tokenizer=FIRST)
    yield "metaspace-first-strip-both-replace", file(normalizer=normal(replace("a", "ab"), {"type": "Strip", "strip_left": True, "strip_right": True}), pre_tokenizer=FIRST)
    yield "metaspace-first-accents", file(normalizer=normal({"type": "NFD"}, {"type": "StripAccents"}), pre_tokenizer=FIRST)
    yield "metaspace-first-nfd-token-inside", file([added("a", 6)], normalizer={"type": "NFD"}, pre_tokenizer=FIRST)
    yield "metaspace-first-nfc-reordered", file([added("b", 7)], normalizer=normal({"type": "Prepend", "prepend": "b"}, {"type": "NFC"}), pre_tokenizer=FIRST)
    yield "metaspace-first-prepend-split", file(normalizer={"type": "Prepend", "prepend": "ab"}, pre_tokenizer=pre(split("a"), FIRST))
    yield "metaspace-first-byte-level", file(normalizer={"type": "Lowercase"}, pre_tokenizer=pre(BYTE_LEVEL, FIRST))
    yield "metaspace-first-digits", file(normalizer=replace("^a", "0a0b"), pre_tokenizer=pre({"type": "Digits", "individual_digits": True}, FIRST, FIRST))
    yield "metaspace-first-clean", file(normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, pre_tokenizer=pre({"type": "WhitespaceSplit"}, FIRST))
    for number, rules in enumerate(RULES):
        precompiled = {"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}
        yield f"metaspace-first-precompiled-{number}", file(normalizer=normal(precompiled, replace(" {2,}", "▁")), pre_tokenizer=pre(split("b", "MergedWithPrevious"), FIRST))
    # Special tokens that the normalizer changes.
    yield "lower-normalized-added", file([added("EOS")], normalizer={"type": "Lowercase"})
    yield "lower-normalized-special", file([added("EOS", special=True)], normalizer={"type": "Lowercase"})
    yield "prepend-normalized-special", file([added("</s>", 1, special=True)], normalizer={"type": "Prepend", "prepend": "▁"})
    yield "nfkc-normalized-special", file([added("ﬁ", special=True), added("b!", NEXT + 1, special=True)], normalizer={"type": "NFKC"})
    yield "accents-normalized-special", file([added("é", special=True)], normalizer=normal({"type": "NFD"}, {"type": "StripAccents"}), decoder={"type": "Fuse"})
    yield "byte-level-normalized-special", file([added("a b", special=True)], normalizer={"type": "ByteLevel"}, decoder=BYTE_LEVEL)
    yield "normalized-like-another-special", file([added("EOS"), added("eos", NEXT + 1, special=True, normalized=False)], normalizer={"type": "Lowercase"})
    # Added tokens that consist of blanks.
    for name, flags in {"none": {}, "lstrip": dict(lstrip=True), "rstrip": dict(rstrip=True), "both": dict(lstrip=True, rstrip=True)}.items():
        yield f"spaces-{name}", file([added("  ", **RAW, **flags)])
    both = dict(lstrip=True, rstrip=True)
    yield "space-both", file([added(" ", 14, **RAW, **both)])
    yield "space-both-normalized", file([added(" ", 14, **both)], normalizer={"type": "Prepend", "prepend": " "})
    yield "line-both", file([added("\n", **RAW, **both), added("\n ", NEXT + 1, **RAW, **both)])
    yield "spaces-of-two-kinds", file([added("  ", **RAW, **both), added(" ", 14, **RAW, lstrip=True)])
    yield "spaces-single-word", file([added(" ", 14, **RAW, single_word=True, **both)], pre_tokenizer=FIRST)
    yield "tok-rstrip-adjacent", file([added("ab", **RAW, rstrip=True), added(" ab", NEXT + 1, **RAW)])
    # A word that is a token, and a part of the word that is also a token.
    words = {**{t: i for i, t in enumerate(VOCAB)}, "ab": NEXT, "▁ab": NEXT + 1}
    yield "ignore-merges-mark", file(ignore_merges=True, vocab=words, pre_tokenizer={**FIRST, "split": False})
    scores = [[t, -5.0] for t in VOCAB] + [[f"<0x{b:02X}>", -9.0] for b in b"<unk>"]
    yield "unigram-text-of-unknown", {**file(), "model": dict(type="Unigram", unk_id=2, byte_fallback=True, vocab=scores)}


TEXTS = [
    "", "a", "  a", "ab", "abc", "a  b", "   a b", " a", "    ", "     ", "  ab ab", "EOS a", "eos a", "a EOS eos b", "</s> a", "▁</s> a", "ab ab", "ab  ab ab", "ﬁ a", "fi b!", "é a", "e\u0301a", "\u0301\u0323a", "áb", "a\u0323\u0301",
    "İa b", "a\n\n b", "\n \n", " \n ", "a    b  ", "\u00a0\u2003 a", "\x01\x02a", "中a", "a中", "12", "q a", "①ab", "가 각a", "<unk>", "xx", "abxx ab", "a0 0b", "\tab", "A B", "ss  s", "a b a b",
]


def main():
    counts = {"cases": 0, "refused": 0, "aborts": 0, "with panics": 0, "panics": 0}
    lines = [answers(name, compact(of), [(text, None) for text in TEXTS], counts) for name, of in files()]
    write("files/tokenizer/testdata/unusual.jsonl.gz", lines)
    print(len(lines), "tokenizers,", ", ".join(f"{n} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main()
