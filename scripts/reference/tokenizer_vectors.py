#!/usr/bin/env python3
"""Write test vectors for package tokenizer with the reference implementation, the
Python package tokenizers (0.23.3); package sentencepiece (0.2.3, with protobuf) compiles the rules of
normalizers.

The script trains small tokenizers with the configurations of well-known families on the text of
this repository and on the sentences below, unless they exist already. Then each tokenizer encodes
and decodes a corpus of difficult strings.

Usage: tokenizer_vectors.py files/tokenizer/testdata [FAMILY...]    write missing tokenizers, and the vectors
       tokenizer_vectors.py --show FAMILY STRING-NUMBER  print the vectors' answers for a string

corpus.jsonl.gz has a JSON string in every line. FAMILY.json.gz is a tokenizer.json.
FAMILY.bin has 8 bytes for every string: the first 4 bytes of the SHA-256 of the ids with and
without special tokens, and the first 4 of the SHA-256 of the results of three ways of decoding. The
ids and lengths are little-endian uint32.
"""

import base64
import gzip
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = """
The quick brown fox jumps over the lazy dog; it doesn't care, we're sure they'll agree, I've said so and I'd say it again.
Die schnelle braune Füchsin springt über den faulen Hund, während es draußen regnet und stürmt.
Le petit chat noir s'endort près de la fenêtre, où l'été déjà s'achève sans bruit.
El niño pequeño jugó en la montaña mañana y después volvió a su casa.
Быстрая коричневая лиса прыгает через ленивую собаку и бежит в тёмный лес.
Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί και τρέχει στο δάσος.
快速的棕色狐狸跳过了懒狗。我们今天在公园里散步，天气非常好，人们都很高兴。
素早い茶色の狐がのろまな犬を飛び越える。今日は公園を散歩しました。カタカナもあります。
빠른 갈색 여우가 게으른 개를 뛰어넘는다. 오늘은 공원에서 산책을 했습니다.
الثعلب البني السريع يقفز فوق الكلب الكسول ثم يجري إلى الغابة.
השועל החום המהיר קופץ מעל הכלב העצלן ורץ אל היער.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है और जंगल में भाग जाती है।
สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจแล้ววิ่งเข้าไปในป่า
Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng rồi chạy vào rừng.
In 2024, 12345678 people paid 3.14159 or 1,000,000.00 for 0x7fff bits; 99% said "yes" (or 'no').
for (int i = 0; i < n; ++i) { a[i] += b[i] * c[i]; } // done
def f(x):\n\treturn {k: v for k, v in x.items() if v is not None}\n
😀 😃 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 🇯🇵 ❤️
"""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = (
    r"[\p{Han}]+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{NOT_HAN}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
DEEPSEEK3_CJK = "[一-龥\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK2 = [
    "[\r\n]",
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ]+",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$",
    "[一-龥ࠀ-一가-퟿]+",
]


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(*before, prefix=False, regex=False):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)])


def added(content, special=True, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special, **flags}


SENTENCEPIECE_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
PREPEND = {
    "type": "Sequence",
    "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


def template(before=(), after=()):
    part = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [part(x) for x in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [part(x) for x in after],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {x: {"id": x, "ids": [x], "tokens": [x]} for x in (*before, *after)},
    }


# Rules of a normalizer: single characters, some before marks, pairs, and characters that are
# removed.
RULES = {
    "e": "E", "é": "e", "ab": "X", "a": "<", "\r": " ", "\n": "\n\n", "ﬁ": "fi", "x\u0301": "☃", "\u0301": "'", "\u0308": "", "\u200d": "", "\u0600": "+",
    "가": "ga", "각": "", "👍": "👎", "👍🏽": "ok", "中": " 中 ", "の": "no", "12": "3", "1": "one", "\u3099": "", "か\u3099": "が", "▁": "_", "q": "", "\x1b": "",
}


def write_rules(path, rules):
    hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)
    path.write_text("".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in rules.items()))


def charsmap(rules):
    """Compile the given rules of a normalizer, or the rules with the given name, with SentencePiece."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"normalization_rule_name": rules}
        if not isinstance(rules, str):
            path = pathlib.Path(folder) / "rules.tsv"
            write_rules(path, rules)
            given = {"normalization_rule_tsv": str(path)}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["ab c"]), model_writer=model, model_type="char", vocab_size=7, minloglevel=2, **given)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def compile_rules(normalizer):
    if normalizer and normalizer["type"] == "Precompiled":
        return {**normalizer, "precompiled_charsmap": charsmap(normalizer["precompiled_charsmap"])}
    if normalizer and normalizer["type"] == "Sequence":
        return {**normalizer, "normalizers": [compile_rules(n) for n in normalizer["normalizers"]]}
    return normalizer


# The training settings of a family (vocabulary size, pre-tokenizer, special tokens in the
# vocabulary), and other settings of its file.
FAMILIES = {
    "gpt2": (1500, byte_level(regex=True), ["<|endoftext|>"], dict(post_processor=BYTE_LEVEL, string_merges=True, added=[added("<|endoftext|>")])),
    "roberta": (
        1000,
        byte_level(prefix=True, regex=True),
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        dict(
            post_processor=template(["<s>"], ["</s>"]),
            added=[added("<s>"), added("<pad>"), added("</s>"), added("<unk>"), added("<mask>", lstrip=True)],
            model=dict(continuing_subword_prefix="", end_of_word_suffix=""),
        ),
    ),
    "llama2": (
        1500,
        pre_tokenizers.Metaspace(),
        "sentencepiece",
        dict(
            normalizer=PREPEND,
            pre_tokenizer=None,
            post_processor=template(["<s>"]),
            decoder=SENTENCEPIECE_DECODER,
            added=[added("<unk>"), added("<s>"), added("</s>")],
            model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        ),
    ),
    "mistral": (
        1500,
        pre_tokenizers.Metaspace(),
        "sentencepiece",
        dict(
            pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
            post_processor=template(["<s>"]),
            decoder=SENTENCEPIECE_DECODER,
            added=[added("<unk>"), added("<s>"), added("</s>"), added("[INST]"), added("[/INST]")],
            model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=True),
        ),
    ),
    "gemma": (
        1500,
        pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="never", split=False), pre_tokenizers.Split(Regex("▁▁+|\n+"), "isolated")]),
        "sentencepiece",
        dict(
            normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            post_processor=template(["<s>"]),
            decoder={"type": "Sequence", "decoders": SENTENCEPIECE_DECODER["decoders"][:3]},
            added=[added("<unk>"), added("<s>"), added("</s>"), added("\n\n", special=False, normalized=False), added("▁▁▁", special=False, normalized=False)],
            model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        ),
    ),
    "llama3": (
        2000,
        byte_level(isolated(LLAMA3)),
        [],
        dict(
            post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, template(["<|begin_of_text|>"])]},
            added=[added("<|begin_of_text|>"), added("<|end_of_text|>"), added("<|start_header_id|>"), added("<|end_header_id|>"), added("<|eot_id|>")],
            model=dict(ignore_merges=True),
        ),
    ),
    "qwen2": (
        2000,
        byte_level(isolated(QWEN2)),
        [],
        dict(
            normalizer={"type": "NFC"},
            post_processor=BYTE_LEVEL,
            string_merges=True,
            added=[added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>"), added("<tool_call>", special=False, normalized=False), added("</tool_call>", special=False, normalized=False)],
        ),
    ),
    "deepseek2": (
        1500,
        byte_level(*[isolated(p) for p in DEEPSEEK2], pre_tokenizers.Digits(individual_digits=True)),
        [],
        dict(
            normalizer={"type": "Sequence", "normalizers": []},
            post_processor=template(["<｜begin▁of▁sentence｜>"]),
            added=[added("<｜begin▁of▁sentence｜>", normalized=True), added("<｜end▁of▁sentence｜>", normalized=True), added("ø", special=False, normalized=True), added("<｜User｜>", special=False, normalized=True)],
        ),
    ),
    "deepseek3": (
        1500,
        byte_level(isolated(r"\p{N}{1,3}"), isolated(DEEPSEEK3_CJK), isolated(DEEPSEEK3)),
        [],
        dict(
            normalizer={"type": "Sequence", "normalizers": []},
            post_processor=template(["<｜begin▁of▁sentence｜>"]),
            added=[added("<｜begin▁of▁sentence｜>"), added("<｜end▁of▁sentence｜>"), added("<｜User｜>", special=False, normalized=True), added("<think>", special=False, normalized=True)],
        ),
    ),
    "o200k": (1500, byte_level(isolated(O200K)), [], dict(post_processor=BYTE_LEVEL, added=[added("<|endoftext|>"), added("<|endofprompt|>")])),
    "falcon": (
        1500,
        pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]),
        ["<|endoftext|>", "<s>", "</s>"],
        dict(
            post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False},
            added=[added("<|endoftext|>"), added("<s>"), added("</s>")],
        ),
    ),
    "bloom": (1500, byte_level(isolated(BLOOM)), ["<unk>", "<s>", "</s>"], dict(post_processor=BYTE_LEVEL, added=[added("<unk>"), added("<s>"), added("</s>")])),
    "kimi": (2000, byte_level(isolated(KIMI)), [], dict(added=[added("<|endoftext|>")])),
    # Unigram over an alphabet with its bytes, as in Japanese models, and without bytes.
    "unigram": (
        1500,
        pre_tokenizers.Metaspace(),
        "unigram",
        dict(
            normalizer=PREPEND,
            pre_tokenizer=None,
            post_processor=template(["<s>"]),
            decoder=SENTENCEPIECE_DECODER,
            added=[added("<unk>"), added("<s>"), added("</s>")],
            model=dict(byte_fallback=True),
        ),
    ),
    "words": (
        800,
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous")]),
        "unigram",
        dict(
            post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
            decoder=None,
            added=[added("<unk>"), added("<s>"), added("</s>")],
        ),
    ),
    # SentencePiece's normalizer: the rules of T5 and XLM-R, and some rules of this project.
    "t5": (
        1500,
        pre_tokenizers.Metaspace(),
        "unigram",
        dict(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "nmt_nfkc"},
            pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
            post_processor=template([], ["</s>"]),
            decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            added=[added("<unk>"), added("<s>"), added("</s>")],
        ),
    ),
    "xlmr": (
        1500,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        "unigram",
        dict(
            normalizer={"type": "Sequence", "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": RULES}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ]},
            post_processor=template(["<s>"], ["</s>"]),
            decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            added=[added("<unk>"), added("<s>"), added("</s>"), added("ﬁne", special=False)],
        ),
    ),
    # WordPiece: BERT uncased and cased, and options that neither uses.
    "bert": (
        1500,
        pre_tokenizers.BertPreTokenizer(),
        "wordpiece",
        dict(
            normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            post_processor=template(["<s>"], ["</s>"]),
            decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
            added=[added("<unk>"), added("<s>"), added("</s>"), added("<mask>", lstrip=True)],
        ),
    ),
    "bertcased": (
        1500,
        pre_tokenizers.BertPreTokenizer(),
        "wordpiece",
        dict(
            normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False},
            post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
            decoder={"type": "WordPiece", "prefix": "##", "cleanup": False},
            added=[added("<unk>"), added("<s>"), added("</s>"), added("the", special=False, single_word=True)],
            model=dict(max_input_chars_per_word=9),
        ),
    ),
    "odd4": (
        1000,
        pre_tokenizers.WhitespaceSplit(),
        "wordpiece",
        dict(
            normalizer={"type": "Sequence", "normalizers": [
                {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False},
                {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Nmt"},
            ]},
            decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "WordPiece", "prefix": "", "cleanup": True}]},
            added=[added("<unk>"), added("<s>"), added("the", special=False, single_word=True), added("ﬁne", special=False)],
            model=dict(continuing_subword_prefix=""),
        ),
    ),
    "odd5": (
        1000,
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        "wordpiece",
        dict(
            normalizer={"type": "ByteLevel"},
            pre_tokenizer=None,
            decoder={"type": "Sequence", "decoders": [{"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]},
            added=[added("<unk>"), added("é!", special=False), added("é", special=False, normalized=False)],
            model=dict(max_input_chars_per_word=100_000),
        ),
    ),
    # Not a known family; covers all remaining options.
    "odd1": (
        1000,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=False)]),
        ["<unk>", "<s>"],
        dict(
            normalizer={
                "type": "Sequence",
                "normalizers": [
                    {"type": "NFKC"},
                    {"type": "Strip", "strip_left": True, "strip_right": True},
                    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[aeiou](?=\d)"}, "content": " _"},
                ],
            },
            post_processor=template(["<s>"], ["<s>"]),
            decoder={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            added=[added("<unk>"), added("<s>"), added("ﬁne", special=False), added("the", special=False, single_word=True), added("<r>", special=False, rstrip=True, normalized=False), added("<lr>", special=False, rstrip=True, lstrip=True, normalized=True)],
            model=dict(unk_token="<unk>"),
        ),
    ),
    "odd2": (
        1000,
        pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"[.,;!?]+"), "merged_with_next"), pre_tokenizers.Split("-", "contiguous"),
            pre_tokenizers.Split(Regex(r"\p{Lu}"), "removed"), pre_tokenizers.Split(Regex(r"[\p{Ll}\s]+"), "merged_with_previous", invert=True),
            pre_tokenizers.Split(Regex(r"\d++|\p{Han}{2}"), "isolated"),
        ]),
        ["<unk>"],
        dict(normalizer={"type": "NFKD"}, decoder=None, added=[added("<unk>"), added("é", special=False), added("é!", special=False, normalized=False)], model=dict(unk_token="<unk>", fuse_unk=True)),
    ),
    "odd3": (
        600,
        byte_level(isolated(r"\S+\s?"), prefix=True),
        [],
        dict(
            normalizer={"type": "NFD"},
            pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "Split", "pattern": {"Regex": "[ĠĊ]"}, "behavior": "Contiguous", "invert": True}]},
            decoder={"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "Strip", "content": "e", "start": 2, "stop": 0}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "_"}]},
            added=[added("<|endoftext|>")],
        ),
    ),
}


def train(name, root):
    size, pre, special, rest = FAMILIES[name]
    unigram, wordpiece = special == "unigram", special == "wordpiece"
    if unigram or wordpiece:
        special = ["<unk>", "<s>", "</s>"]
    elif special == "sentencepiece":
        special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>" if "<unk>" in special else None))
    tokenizer.pre_tokenizer = pre
    alphabet = pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in repr(pre) else []
    texts = [p.read_text() for p in sorted(root.glob("docs/*.md")) + sorted(root.glob("*/*.go"))[:40]] + SENTENCES.split("\n") * 4
    if unigram:
        # Bytes that occur in no text, so that they are tokens but are never found.
        more = [f"<0x{b:02X}>" for b in range(256)] if rest.get("model") else []
        trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=special + more, unk_token="<unk>", show_progress=False)
        tokenizer.model = models.Unigram()
        tokenizer.train_from_iterator(texts, trainer)
    elif wordpiece:
        tokenizer.model = models.WordPiece(unk_token="<unk>")
        tokenizer.normalizer = normalizers.NFD() if rest["normalizer"]["type"] == "BertNormalizer" else None
        tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    else:
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=sorted(alphabet), show_progress=False, min_frequency=2, max_token_length=16))
    file = json.loads(tokenizer.to_str())
    if "added" in rest:
        vocab, tokens = file["model"]["vocab"], []
        if unigram:
            vocab = {token: number for number, (token, _) in enumerate(vocab)}
        for token in rest["added"]:
            number = vocab.get(token["content"], len(vocab) + sum(t["content"] not in vocab for t in tokens))
            tokens.append({"id": number, **token})
        file["added_tokens"] = sorted(tokens, key=lambda t: t["id"])
    ids = {t["content"]: t["id"] for t in file["added_tokens"]}
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if key in rest:
            file[key] = rest[key]
    if "decoder" not in rest:
        file["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    fill_ids(file["post_processor"], ids)
    file["normalizer"] = compile_rules(file["normalizer"])
    file["model"].update(rest.get("model", {}))
    if rest.get("string_merges"):
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    return json.dumps(file, ensure_ascii=False, separators=(",", ":"))


def fill_ids(processor, ids):
    if processor and processor["type"] == "Sequence":
        for inner in processor["processors"]:
            fill_ids(inner, ids)
    if processor and processor["type"] == "TemplateProcessing":
        for token in processor["special_tokens"].values():
            token["ids"] = [ids.get(x, x) for x in token["ids"]]


def corpus():
    """Return difficult strings, the same in each call."""
    r = random.Random(20260)
    words = SENTENCES.split()
    contractions = [a + b for a in ("I", "we", "THEY", "é", "中", "", " ") for b in ("'s", "'S", "'t", "'RE", "'re", "'Ve", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'ſ", "’s", "'x", "'", "''s")]
    spaces = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\u2029", "\u0085", "\u200b", "\ufeff", "\u1680", "\x0b", "\x0c", "\x1c", "\u202f", "\u180e", "\u2060"]
    marks = ["\u0301", "\u0308", "\u0327", "\u0345", "\u0323", "\u0334", "\u20dd", "\ufe0f", "\u200d", "\u05b0", "\u0651", "\u093c", "\u3099", "\u1dc4", "\u0898", "\u1e08f", "\u1abf"]
    names = sorted({t["content"] for f in FAMILIES.values() for t in f[3].get("added", [])})
    emoji = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇯🇵", "❤️", "😀", "🧑🏿‍🚀", "#️⃣", "🫨", "\U0001fae9"]
    code = ["func main() {\n\tfmt.Println(\"hi\")\n}", "if (a<=b&&c!=d){x->y++;}", "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a='b';", "#include <stdio.h>\r\n", "x = [i**2 for i in range(10)]", "$HOME/.config/*~", "// --- ===", "\\n\\t\\\\", "a_b.c-d/e:f@g", "0xDEADBEEF 1e-9 1_000", "{{{{}}}}", "%%%@@@!!!???"]
    digits = ["1", "12", "123", "1234", "12345", "1,234.5", "٣٤٥", "१२३", "²³", "½", "Ⅷ", "①②", "𝟘𝟙", "百", "𖭐", "\U00010d40\U00010d41", "\U0001ccf0", "\U00011de0"]
    normal = ["\u00e9", "e\u0301", "\u00c5", "\u212b", "A\u030a", "\ufb01", "\ufb03", "①", "\uff71", "\uff76\uff9e", "\uac00", "\u1100\u1161", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u1e69", "s\u0323\u0307", "s\u0307\u0323", "\u0390", "\u1fd3", "\u3300", "\u32ff", "\u01c4", "\u017f", "\u1e9b\u0323", "\ufdfa", "\U00011935\U00011930", "\u0958", "\uf900", "\U0001f16c", "\u0130", "\u00df", "\u2126", "\u0344", "\u1f7d"]
    special = ["\ufffd", "\x00", "\x01\x02", "\x7f", "\x1b[0m", "\ud7ff", "\ue000", "\uffff", "\ufffe", "\U0010ffff", "\U000e0041", "\u202e", "\u2066", "\u00ad", "▁", "▁▁", "Ġ", "Ċ", "<0x41>", "<0xFF>", "<|", "|>", "<", "<unk>", "<s", "s>"]

    def plane():
        low, high = r.choice([(0, 0x80), (0x80, 0x250), (0x250, 0x900), (0x900, 0x2000), (0x2000, 0x3400), (0x3400, 0xd800), (0xe000, 0x10000), (0x10000, 0x20000), (0x20000, 0x32000), (0xe0000, 0x110000)])
        return chr(r.randrange(low, high))

    def word():
        w = r.choice(words)
        return w[: r.randint(1, len(w))] if r.random() < 0.3 else w

    def atom():
        kind = r.random()
        if kind < 0.25:
            return word()
        if kind < 0.30:
            return word().upper() if r.random() < 0.5 else word().capitalize()
        pool = r.choice([contractions, spaces, spaces, names, emoji, code, digits, normal, special, marks, None])
        return plane() if pool is None else r.choice(pool)

    out = ["", " ", "  ", "a", "\n", "ab" * 40, " " * 100, "\n" * 50, " \n" * 30, "a" * 1000, "中" * 300, "é" * 300, "e" + "\u0301" * 70 + "\u0323" * 40, "1" * 100, "!" * 200, "x y" * 100]
    out += contractions + spaces + marks + names + emoji + code + digits + normal + special + SENTENCES.split("\n")
    out += [a + b for a in names for b in names]
    out += [chr(c) for c in range(0x20, 0x250)]
    for name in names:  # cut, repeated, between letters, with blanks, and in other cases
        out += [name[:-1], name[1:], name * 3, "a" + name + "b", " " + name + " ", "\t " + name + "\u3000 x", name.upper(), name + "s", "." + name + ".", "_" + name, "é" + name + "\u0301"]
    out += [a + b + c for a in ("a", "", "1", "'") for b in spaces for c in ("a", "", "1", "\n", "'s")]
    while len(out) < 6500:
        n = r.choice([1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 20])
        glue = r.choice(["", "", "", " ", " ", r.choice(spaces)])
        out.append(glue.join(atom() for _ in range(n)))
    while len(out) < 8500:
        out.append("".join(plane() for _ in range(r.randint(1, 12))))
    while len(out) < 9900:
        out.append(" ".join(word() for _ in range(r.randint(3, 12))) + r.choice([".", "!", "", "\n"]))
    while len(out) < 10100:
        base = r.choice([*normal, "a", "中", "ا", "ก"])
        out.append(base + "".join(r.choice(marks) for _ in range(r.randint(1, 40))) + r.choice(["", "x", " "]))
    fresh = [0x2ebf0, 0x1c89, 0xa7cb, 0x10d50, 0x113d4, 0x897, 0x1171e, 0x16d40, 0x1e5f1, 0x1fae9, 0x2427, 0x11bc0]
    return out + [a + chr(c) + b for c in fresh for a in ("a", " ", "1", "!", "") for b in ("a", " ", "1", "!", "\u0301")]


def ids_digest(*lists):
    h = hashlib.sha256()
    for ids in lists:
        h.update(struct.pack(f"<I{len(ids)}I", len(ids), *ids))
    return h.digest()[:4]


def text_digest(*texts):
    h = hashlib.sha256()
    for text in texts:
        raw = text.encode()
        h.update(struct.pack("<I", len(raw)) + raw)
    return h.digest()[:4]


def answers(tokenizer, text):
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    decode = [
        tokenizer.decode(special, skip_special_tokens=False),
        tokenizer.decode(special, skip_special_tokens=True),
        tokenizer.decode(plain[::-1], skip_special_tokens=False),
    ]
    return plain, special, decode


def pack(data):
    return gzip.compress(data, 9, mtime=0)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    if sys.argv[1] == "--show":
        family, number = sys.argv[2], int(sys.argv[3])
        folder = root / "files" / "tokenizer" / "testdata"
        tokenizer = Tokenizer.from_str(gzip.decompress((folder / f"{family}.json.gz").read_bytes()).decode())
        text = corpus()[number]
        plain, special, decode = answers(tokenizer, text)
        print(ascii(text), plain, [tokenizer.id_to_token(i) for i in plain], special, *map(ascii, decode), sep="\n")
        return
    folder = pathlib.Path(sys.argv[1])
    texts = corpus()
    (folder / "corpus.jsonl.gz").write_bytes(pack("".join(json.dumps(t, ensure_ascii=False) + "\n" for t in texts).encode()))
    for name in sys.argv[2:] or FAMILIES:
        path = folder / f"{name}.json.gz"
        if not path.exists():
            path.write_bytes(pack(train(name, root).encode()))
        tokenizer = Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())
        out = b""
        for text in texts:
            plain, special, decode = answers(tokenizer, text)
            out += ids_digest(plain, special) + text_digest(*decode)
        (folder / f"{name}.bin").write_bytes(out)
        print(name, tokenizer.get_vocab_size(), len(texts))


if __name__ == "__main__":
    main()
