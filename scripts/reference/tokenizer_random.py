#!/usr/bin/env python3
"""Write random tokenizer configurations with difficult texts, and the answers of the reference implementation,
the Python package tokenizers (0.23.3).

Usage: tokenizer_random.py OUTPUT.jsonl.gz SEED CONFIGURATIONS TEXTS

files/tokenizer/testdata/random.jsonl.gz has seed 1, 190 configurations and 8 texts each. To compare more
configurations, write them into a folder, set PSYCHE_TOKENIZER_VECTORS to the folder, and run

    go test ./files/tokenizer -run RandomConfigurations -v

Needs: pip install tokenizers==0.23.3 sentencepiece protobuf

Each line of the output is [NAME, FILE, CASES]: FILE is a tokenizer.json, and each case is
[TEXT, IDS, IDS WITH SPECIAL, DECODED, DECODED WITHOUT SPECIAL, OTHER IDS, OTHERS DECODED]. The decoded texts
come from the ids with special ids. The other ids are the ids in reverse, or random, and decode without special
tokens. The output omits files that the reference refuses, and texts for which it panics; the script prints their
numbers. The answers for a few configurations change in each run: if the normalizer makes two added tokens equal,
the reference chooses one of them at random.
"""

import base64
import gzip
import json
import os
import pathlib
import random
import resource
import signal
import sys
import tempfile

from tokenizers import Tokenizer

MEMORY, SECONDS = 3 << 30, 30  # limits of the reference, for the texts of one configuration

BYTES = {}
_next = 0x100
for _b in range(256):
    if 33 <= _b <= 126 or 0xA1 <= _b <= 0xAC or 0xAE <= _b <= 0xFF:
        BYTES[_b] = chr(_b)
    else:
        BYTES[_b] = chr(_next)
        _next += 1

LETTERS = list("abcdeABE01 .,'-!") + ["▁", "é", "É", "e\u0301"[1], "中", "ß", "Ġ", "\n", "ﬁ", "😀", "İ", "가", "²"]
WORDS = ["ab", "abc", "a b", "  ", " ", "EOS", "eos", "<s>", "</s>", "<unk>", "é", "É", "e\u0301", "ﬁ", "fi", "A", "▁", "▁a", "a▁", " a", "a ", "\n", "\u3000", "Ġ", "<0x41>", "##a", "中", "ab!", "'s", "1", "İ", "가", "각", "...", "\u0301", "\t ", "don't", "not", "..", " ."]
ATOMS = WORDS + LETTERS + [
    "   ", "    ", "\r\n", "\u00a0", "\u200b", "\u2028", "\ufeff", "\x00", "\x01", "\x7f", "\ufffd", "\u0323", "\u0344", "\u0323\u0301", "Å", "\u212b", "①", "½", "Ⅷ", "٣", "\uac00\u11a8", "\u1100\u1161", "👩‍👩‍👧", "🇩🇪🇯🇵", "👍🏽", "q", "x", "x\u0301",
    "の", "か\u3099", "\u0958", "\u1e9b\u0323", "\u00ad", "\u202e", "ſ", "Σ", "ς", "ά", "ऩ", "\U0001d15e", "_", "__", "[", "]", "(", "ab ab", "aab", "bb", "11", "12", "a1", "do not", " ' ", " n't", "'ve", "?", "<0xE4>", "<0xB8>", "<0xFF>", "<0x20>", "Ċ", "Ã", "©", "Ã©",
]
PATTERNS = [
    {"String": " "}, {"String": "  "}, {"String": "a"}, {"String": "ab"}, {"String": "▁"}, {"String": "é"}, {"String": "e\u0301"}, {"String": "."}, {"String": "\n"}, {"String": "aa"}, {"String": "中"},
    {"Regex": " {2,}"}, {"Regex": r"\s+"}, {"Regex": r"\s"}, {"Regex": "ab"}, {"Regex": "[aeiou]"}, {"Regex": r"\p{L}+"}, {"Regex": r"\d"}, {"Regex": r"\w+|[^\w\s]+"}, {"Regex": r"\p{M}"}, {"Regex": r"(?<=a)b"},
    {"Regex": "^ "}, {"Regex": "^a"}, {"Regex": " $"}, {"Regex": r"[\r\n]"}, {"Regex": r"\S+\s?"}, {"Regex": "a(?=b)"}, {"Regex": r"\p{Lu}"}, {"Regex": "(?i:ab)"}, {"Regex": "."}, {"Regex": r"^\s+"}, {"Regex": r"^.\b"}, {"Regex": "^[^a]"}, {"Regex": r"\p{N}{1,3}"},
    {"Regex": "a|ab"}, {"Regex": "(?<!a)b"}, {"Regex": "(?:a|b)+?"}, {"Regex": "[[:alpha:]]+"}, {"Regex": r"[^\S\n]+"}, {"Regex": r"\p{Han}"}, {"Regex": r"\A."}, {"Regex": "[a-c&&[^b]]+"}, {"Regex": r"\h"}, {"Regex": r"(?<=\s)\S"}, {"Regex": "a*"}, {"Regex": r"\X"},
]
RULES = [
    {"e": "E", "é": "e", "ab": "X", "a": "<", "\r": " ", "\n": "\n\n", "ﬁ": "fi", "\u0301": "'", "\u200d": "", "가": "ga", "각": "", "👍🏽": "ok", "中": " 中 ", "の": "no", "12": "3", "1": "one", "▁": "_", "q": "", "\x01": ""},
    {"a": "", "b": "bb", "x\u0301": "y", " ": "▁", "ab": "", "é": "ee", "中": "", "\u3000": " "},
    {"\t": " ", "\n": " ", "A": "a", "É": "é", "①": "1", "½": "1/2", "ﬁ": "fi", "\u00a0": " ", "İ": "i"},
]
BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def charsmap(rules):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rules.tsv"
        hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)
        path.write_text("".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in rules.items()))
        (pathlib.Path(folder) / "text").write_text("a b c d e\n" * 9)
        sentencepiece.SentencePieceTrainer.train(input=f"{folder}/text", model_prefix=f"{folder}/m", vocab_size=9, normalization_rule_tsv=str(path), hard_vocab_limit=False, minloglevel=2)
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString((pathlib.Path(folder) / "m.model").read_bytes())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


CHARSMAPS = []


class Drawing:
    """A random tokenizer.json."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, p):
        return self.r.random() < p

    def flag(self):
        return self.r.random() < 0.5

    def pick(self, *of):
        return self.r.choice(of)

    def sequence(self, key, draw, most):
        """Return null, one part, or several parts, possibly nested."""
        count = self.r.choice([0, 1, 1, 2, 2, 3, most])
        if count == 0:
            return None
        parts = [draw() for _ in range(count)]
        if count == 1 and self.flag():
            return parts[0]
        if count > 2 and self.maybe(0.15):
            parts = [{"type": "Sequence", key: parts[:2]}, *parts[2:]]
        return {"type": "Sequence", key: parts}

    def replace(self):
        return {"type": "Replace", "pattern": self.pick(*PATTERNS), "content": self.pick("", " ", "  ", "x", "▁", "ab", "0", "é", "中", "a ", "e\u0301", "\u0301")}

    def metaspace(self):
        part = {"type": "Metaspace", "replacement": self.pick("▁", "▁", "▁", "_", "Ġ", " ", "a"), "prepend_scheme": self.pick("first", "first", "always", "never"), "split": self.flag()}
        if self.maybe(0.15):
            del part["split"]
        if self.maybe(0.1):
            part["prepend_scheme"], part["add_prefix_space"] = "never", False
        return part

    def byte_level(self):
        return {"type": "ByteLevel", "add_prefix_space": self.flag(), "trim_offsets": self.flag(), "use_regex": self.flag()}

    def normalizer(self):
        kind = self.pick("NFC", "NFD", "NFKC", "NFKD", "Prepend", "Prepend", "Strip", "Strip", "Lowercase", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "BertNormalizer", "Precompiled", "Precompiled", "Replace", "Replace", "Replace", "Replace")
        if kind == "Prepend":
            return {"type": kind, "prepend": self.pick("▁", "▁", " ", "x", "ab", "é", "e", "\u0301")}
        if kind == "Strip":
            return {"type": kind, "strip_left": self.flag(), "strip_right": self.flag()}
        if kind == "BertNormalizer":
            return {"type": kind, "clean_text": self.flag(), "handle_chinese_chars": self.flag(), "strip_accents": self.pick(None, True, False), "lowercase": self.flag()}
        if kind == "Precompiled":
            return {"type": kind, "precompiled_charsmap": self.pick(*CHARSMAPS)}
        if kind == "Replace":
            return self.replace()
        return {"type": kind}

    def pre_tokenizer(self):
        kind = self.pick("ByteLevel", "Split", "Split", "Digits", "Punctuation", "BertPreTokenizer", "Metaspace", "Metaspace", "Metaspace", "Whitespace", "WhitespaceSplit")
        if self.maybe(0.02):
            return self.pick({"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 2}, {"type": "CharDelimiterSplit", "delimiter": "a"})
        if kind == "ByteLevel":
            return self.byte_level()
        if kind == "Split":
            return {"type": kind, "pattern": self.pick(*PATTERNS), "behavior": self.pick(*BEHAVIOURS), "invert": self.flag()}
        if kind == "Digits":
            return {"type": kind, "individual_digits": self.flag()}
        if kind == "Punctuation":
            return {"type": kind, "behavior": self.pick(*BEHAVIOURS)}
        if kind == "Metaspace":
            return self.metaspace()
        return {"type": kind}

    def template(self, tokens):
        one = lambda: [{"SpecialToken": {"id": self.pick(*tokens), "type_id": 0}} for _ in range(self.pick(0, 0, 1, 1, 2))]
        single = one() + [{"Sequence": {"id": "A", "type_id": 0}}] + one()
        pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
        if self.maybe(0.2):
            pair = one() + pair
        used = {p["SpecialToken"]["id"] for p in single + pair if "SpecialToken" in p}
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": {t: {"id": t, "ids": [self.vocab[t]] * self.pick(1, 1, 1, 2), "tokens": [t] * 1} for t in sorted(used)},
        }

    def post_processor(self):
        tokens = self.r.sample(sorted(self.vocab), 3)
        kind = self.pick("TemplateProcessing", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel")
        if kind == "TemplateProcessing":
            part = self.template(tokens)
            for token in part["special_tokens"].values():
                token["tokens"] = [token["id"]] * len(token["ids"])
            return part
        if kind == "ByteLevel":
            return self.byte_level()
        part = {"type": kind, "sep": [tokens[0], self.vocab[tokens[0]]], "cls": [tokens[1], self.vocab[tokens[1]]]}
        if kind == "RobertaProcessing":
            part.update(trim_offsets=self.flag(), add_prefix_space=self.flag())
        return part

    def around(self):
        """Return a post-processor. The reference panics on most post-processors with several parts."""
        if self.maybe(0.08):
            return self.sequence("processors", self.post_processor, 3)
        part = self.pick(None, self.post_processor(), self.post_processor())
        return part if self.flag() else {"type": "Sequence", "processors": [self.byte_level()] * self.pick(0, 1) + [part]} if part else None

    def decoder(self):
        kind = self.pick("ByteLevel", "ByteFallback", "ByteFallback", "Fuse", "Fuse", "Strip", "Metaspace", "Metaspace", "Replace", "WordPiece")
        if self.maybe(0.02):
            return self.pick({"type": "BPEDecoder", "suffix": "</w>"}, {"type": "CTC", "pad_token": "<s>", "word_delimiter_token": "a", "cleanup": True})
        if kind == "ByteLevel":
            return self.byte_level()
        if kind == "Strip":
            return {"type": kind, "content": self.pick(" ", "▁", "a", "é"), "start": self.pick(0, 1, 1, 2), "stop": self.pick(0, 0, 1)}
        if kind == "Metaspace":
            return self.metaspace()
        if kind == "WordPiece":
            return {"type": kind, "prefix": self.pick("##", "##", "", "a", "▁"), "cleanup": self.flag()}
        if kind == "Replace":
            return self.replace()
        return {"type": kind}

    def number(self, tokens):
        """Assign ids to tokens, sometimes with gaps."""
        gap = self.pick(3, 20) if self.maybe(0.08) else len(tokens)
        self.vocab = {t: i + i // gap for i, t in enumerate(tokens)}

    def symbols(self):
        """Return the tokens from which other tokens are composed."""
        all = self.r.sample(LETTERS, self.r.randint(len(LETTERS) // 2, len(LETTERS)))
        if self.maybe(0.3):
            all += [c for c in BYTES.values() if c not in all]
            if self.maybe(0.2):
                all.remove(self.pick(*all))
        if self.maybe(0.4):
            all += [f"<0x{b:02X}>" for b in range(256) if self.full or self.maybe(0.6)]
        return all

    def model(self):
        kind = self.pick("BPE", "BPE", "BPE", "Unigram", "WordPiece")
        self.full = self.maybe(0.7)
        special = ["<unk>", "<s>", "</s>"]
        tokens = special + self.symbols()
        made = [t for t in tokens[3:] if not t.startswith("<0x")]
        merges = []
        if kind == "BPE":
            for _ in range(self.r.randint(0, 40)):
                a, b = self.pick(*made), self.pick(*made)
                if len(a + b) > 5 or [a, b] in merges:
                    continue
                merges.append([a, b])
                if a + b not in tokens:
                    tokens.append(a + b)
                made += [a + b] * 3
            if self.maybe(0.3):
                tokens += [w for w in self.r.sample(WORDS, 6) if w not in tokens]
            model = {
                "type": kind, "dropout": self.pick(None, None, None, 0.0), "unk_token": self.pick("<unk>", "<unk>", None, "a" if "a" in tokens else None), "continuing_subword_prefix": self.pick(None, None, ""),
                "end_of_word_suffix": None, "fuse_unk": self.flag(), "byte_fallback": self.flag(), "ignore_merges": self.flag(),
            }
            self.number(tokens)
            if self.maybe(0.03):
                model[self.pick("continuing_subword_prefix", "end_of_word_suffix")] = "@"
                merges = []
            model["vocab"] = self.vocab
            model["merges"] = merges
            return model
        count = self.r.randint(3, 40)
        prefix = self.pick("##", "##", "##", "", "a", "▁")
        for _ in range(count):
            word = "".join(self.pick(*made) for _ in range(self.r.randint(1, 4)))
            if kind == "WordPiece" and self.flag():
                word = prefix + word
            if word not in tokens:
                tokens.append(word)
        self.vocab = {t: i for i, t in enumerate(tokens)}
        if kind == "WordPiece":
            self.number(tokens)
            return {"type": kind, "unk_token": self.pick("<unk>", "<unk>", "a" if "a" in tokens else "<unk>"), "continuing_subword_prefix": prefix, "max_input_chars_per_word": self.pick(100, 100, 4, 1, 0), "vocab": self.vocab}
        scores = [round(-12 * self.r.random(), self.pick(0, 1, 6)) for _ in tokens]
        return {"type": kind, "unk_id": self.pick(0, 0, self.r.randrange(len(tokens))), "vocab": [[t, s] for t, s in zip(tokens, scores)], "byte_fallback": self.flag()}

    def added(self):
        contents = self.r.sample(WORDS, self.pick(0, 1, 2, 3, 5, 8)) + self.r.sample(["<s>", "</s>", "<unk>"], self.pick(0, 1, 3))
        if self.maybe(0.2):
            contents.append(self.pick(*self.vocab))
        fresh, all = len(self.vocab), []
        for content in dict.fromkeys(contents):
            number = self.vocab.get(content)
            if number is None and fresh in self.vocab.values():
                continue
            if number is None:
                number, fresh = fresh, fresh + 1
            all.append({"id": number, "content": content, "single_word": self.maybe(0.25), "lstrip": self.maybe(0.35), "rstrip": self.maybe(0.35), "normalized": self.flag(), "special": self.flag()})
        return all

    def file(self):
        model = self.model()
        added = self.added()
        for token in added:
            self.vocab = {**self.vocab, token["content"]: token["id"]}
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": self.sequence("normalizers", self.normalizer, 4),
            "pre_tokenizer": self.sequence("pretokenizers", self.pre_tokenizer, 4),
            "post_processor": self.around(),
            "decoder": self.sequence("decoders", self.decoder, 5),
            "model": model,
        }

    def others(self):
        """Return random ids, or None."""
        ids = sorted(self.vocab.values())
        return [self.pick(*ids) for _ in range(self.r.randint(1, 6))] if self.flag() else None

    def text(self, contents):
        pool = ATOMS + contents * 6
        if self.maybe(0.1):
            return self.pick("", " ", "a", "  ", "\n", "a" * 120, "ab" * 60, " " * 70, "é" * 60, "中" * 30, "e" + "\u0301\u0323" * 20, "ab " * 40)
        count = self.pick(1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12)
        glue = self.pick("", "", "", " ", " ", "  ")
        return glue.join(self.character() if self.maybe(0.05) else self.pick(*pool) for _ in range(count))

    def character(self):
        """Return a random character, mostly from blocks that normal forms change."""
        return chr(self.r.randrange(*self.pick((0x20, 0x250), (0x300, 0x370), (0x900, 0xE00), (0x1E00, 0x2100), (0x3000, 0x3400), (0xAC00, 0xD7A4), (0xF900, 0x10000), (0x1D100, 0x1D200), (0x10000, 0x20000))))


def answer(tokenizer, text, others):
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    others = others or plain[::-1]
    special = tokenizer.encode(text, add_special_tokens=True).ids
    return [
        text, plain, special,
        tokenizer.decode(special, skip_special_tokens=False),
        tokenizer.decode(special, skip_special_tokens=True),
        others,
        tokenizer.decode(others, skip_special_tokens=True),
    ]


def ask(file, texts, out):
    """Write the answer for each text, or null if the reference panics; nothing if it cannot read the file."""
    try:
        tokenizer = Tokenizer.from_str(file)
    except BaseException:  # a panic is not an Exception
        return
    for text, others in texts:
        try:
            out.write(compact(answer(tokenizer, text, others)) + "\n")
        except BaseException:
            out.write("null\n")
        out.flush()


def answers(name, file, texts, counts):
    """Return a line of the output, or None if the reference cannot read the file. Texts are pairs of a text and
    other ids; None means the ids of the text in reverse.

    A separate process runs the reference, because it sometimes aborts or uses all memory."""
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.alarm(SECONDS)
            ask(file, texts, out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        lines = out.read().split("\n")[:-1]
    if not lines and status == 0:
        counts["refused"] += 1
        return None
    cases = [case for case in map(json.loads, lines) if case]
    counts["aborts"] += status != 0
    counts["panics"] += len(texts) - len(cases)
    counts["with panics"] += len(cases) < len(texts)
    counts["cases"] += len(cases)
    return [name, file, cases] if cases else None


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write(path, lines):
    text = "".join(compact(line) + "\n" for line in lines if line)
    pathlib.Path(path).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main():
    os.environ["RUST_BACKTRACE"] = "0"
    seed, configurations, texts = map(int, sys.argv[2:])
    counts = {"cases": 0, "refused": 0, "aborts": 0, "with panics": 0, "panics": 0}
    lines = []
    CHARSMAPS.extend(charsmap(rules) for rules in RULES)
    for number in range(configurations):
        name = f"{seed}/{number}"
        drawing = Drawing(name)
        file = drawing.file()
        contents = [t["content"] for t in file["added_tokens"]]
        lines.append(answers(name, compact(file), [(drawing.text(contents), drawing.others()) for _ in range(texts)], counts))
    write(sys.argv[1], lines)
    print(sum(line is not None for line in lines), "configurations,", ", ".join(f"{n} {name}" for name, n in counts.items()))


if __name__ == "__main__":
    main()
