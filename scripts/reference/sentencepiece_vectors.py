#!/usr/bin/env python3
"""Writes test vectors for tokenizer.model files with the Python package sentencepiece (0.2.3).

The script trains small models on the text of this repository, unless they exist already. Then each model
encodes and decodes the strings of corpus.jsonl.gz, which tokenizer_vectors.py wrote.

Usage: sentencepiece_vectors.py files/tokenizer/testdata [MODEL...]     write missing models, and the vectors
       sentencepiece_vectors.py --show MODEL STRING-NUMBER              print the vectors' answers for a string

spm-MODEL.model.gz is a tokenizer.model. spm-MODEL.bin has 8 bytes for every string: the first 4 bytes of the
SHA-256 of the ids, and the first 4 of the SHA-256 of the texts decoded from the ids and from the ids in
reverse. In the hashed data each list and each text follows its length, a little-endian uint32.
"""

import gzip
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
from tokenizer_vectors import RULES, SENTENCES, ids_digest, pack, text_digest, write_rules

# The training settings of each model.
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=800, normalization_rule_name="nmt_nfkc"),
    "unigram-bytes": dict(model_type="unigram", vocab_size=1000, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "unigram-defined": dict(
        model_type="unigram", vocab_size=700, normalization_rules=RULES, add_dummy_prefix=False, user_defined_symbols=["<|", "the", "▁▁", "中", "ﬁne", "x y"],
        control_symbols=["<mask>"], unk_surface="?", split_digits=True, allow_whitespace_only_pieces=True,
    ),
    "bpe": dict(model_type="bpe", vocab_size=800, normalization_rule_name="nfkc"),
    "bpe-llama": dict(model_type="bpe", vocab_size=1200, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True),
    "bpe-gemma": dict(
        model_type="bpe", vocab_size=1200, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        user_defined_symbols=["<mask>", "\n\n", "▁▁", "▁▁▁", "the", "Ġ", "中a"], split_digits=True,
    ),
    "bpe-words": dict(model_type="bpe", vocab_size=600, normalization_rules=RULES, split_by_whitespace=False, user_defined_symbols=["th", "e "], control_symbols=["the"], split_by_unicode_script=False),
}
# Models with newly drawn scores. Many scores are equal, so several segmentations of a word have the
# same sum.
DRAWN = {"unigram-drawn": "unigram-defined", "bpe-drawn": "bpe-llama"}


def train(name, root):
    if name in DRAWN:
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto.FromString(train(DRAWN[name], root))
        r = random.Random(name)
        for piece in proto.pieces:
            if piece.type == piece.NORMAL and (name == "unigram-drawn" or len(piece.piece) > 1):
                piece.score = r.choice([-1.1, -2.2, -3.3, -4.4, 0.5, -0.7, -12.3])
        return proto.SerializeToString()
    given = dict(MODELS[name])
    model = io.BytesIO()
    texts = [p.read_text() for p in sorted(root.glob("docs/*.md"))] + [SENTENCES] * 4
    lines = [line for text in texts for line in text.split("\n") if line]
    with tempfile.TemporaryDirectory() as folder:
        if rules := given.pop("normalization_rules", None):
            path = pathlib.Path(folder) / "rules.tsv"
            write_rules(path, rules)
            given["normalization_rule_tsv"] = str(path)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, num_threads=1, minloglevel=2, hard_vocab_limit=False, **given)
    return model.getvalue()


def answers(processor, text):
    ids = processor.encode(text, out_type=int)
    return ids, [processor.decode(ids), processor.decode(ids[::-1])]


def load(raw):
    return sentencepiece.SentencePieceProcessor(model_proto=raw)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    folder = root / "files" / "tokenizer" / "testdata" if sys.argv[1] == "--show" else pathlib.Path(sys.argv[1])
    texts = [json.loads(line) for line in gzip.decompress((folder / "corpus.jsonl.gz").read_bytes()).decode().split("\n")[:-1]]
    if sys.argv[1] == "--show":
        processor = load(gzip.decompress((folder / f"spm-{sys.argv[2]}.model.gz").read_bytes()))
        text = texts[int(sys.argv[3])]
        ids, decoded = answers(processor, text)
        print(ascii(text), ids, [processor.id_to_piece(i) for i in ids], *map(ascii, decoded), sep="\n")
        return
    for name in sys.argv[2:] or [*MODELS, *DRAWN]:
        path = folder / f"spm-{name}.model.gz"
        if not path.exists():
            path.write_bytes(pack(train(name, root)))
        processor = load(gzip.decompress(path.read_bytes()))
        out = b""
        for text in texts:
            ids, decoded = answers(processor, text)
            out += ids_digest(ids) + text_digest(*decoded)
        (folder / f"spm-{name}.bin").write_bytes(out)
        print(name, processor.vocab_size(), len(texts))


if __name__ == "__main__":
    main()
