"""Writes testdata/formats: the same rows in each format that is read, and the token ids of each.

The ids are those of Python's datasets (which reads the files again) and tokenizers. The tests
compare with what is committed and need no Python. To make it again, in this folder:

    pip install datasets pyarrow tokenizers zstandard lz4 brotli
    python formats.py
"""

import csv
import gzip
import json
import shutil
from pathlib import Path

import brotli
import lz4.frame
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import zstandard
from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from tokenizers import Tokenizer

OUT = Path("formats")
TOKENIZER = Path("../../../tokenizer/testdata/gpt2.json.gz")

encode = Tokenizer.from_str(gzip.decompress(TOKENIZER.read_bytes()).decode())


def ids(text):
    return encode.encode(text, add_special_tokens=False).ids


TEXTS = ["The first text.", "Zwölf Boxkämpfer,\njagen \"Viktor\"", "", None, "日本語 and 🙂\ttabs", "a" * 40, "x, y; z\n\nend"]
ROWS = [
    {
        "id": i,
        "text": text,
        "meta": {"title": f"title {i}", "tags": ["one", "two"][: i % 3]} if i != 3 else None,
        "messages": [{"role": "user", "content": f"question {i}?"}, {"role": "assistant", "content": text}][: i % 4],
        "answers": {"text": [f"answer {i}", "another"][: i % 3], "start": [1, 2][: i % 3]},
        "input_ids": ids(text or ""),
    }
    for i, text in enumerate(TEXTS)
]


def strings(value):
    """What is in a value and in its lists, one after the other."""
    if isinstance(value, list):
        return [s for v in value for s in strings(v)]
    return [] if value is None else [value]


FIELDS = {
    "text": lambda r: strings(r["text"]),
    "meta.title": lambda r: strings((r["meta"] or {}).get("title")),
    "meta.tags": lambda r: strings((r["meta"] or {}).get("tags")),
    "messages.content": lambda r: strings([m["content"] for m in r["messages"] or []]),
    "messages[1].content": lambda r: strings([m["content"] for m in (r["messages"] or [])[1:2]]),
    "answers.text[0]": lambda r: strings(r["answers"]["text"][:1]),
    "input_ids": None,
}


def row_ids(row, field):
    if field == "input_ids":
        return list(row["input_ids"] or [])
    return ids("\n".join(FIELDS[field](row)))


expected = []


def expect(path, rows, fields=FIELDS, split=""):
    for field in fields:
        of = [row_ids(row, field) for row in rows]
        expected.append({"path": path, "field": field, "split": split, "ids": [i for i in of if i]})


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    lines = "".join(json.dumps(r, ensure_ascii=i % 2 == 0) + "\n" for i, r in enumerate(ROWS)).encode()
    array = json.dumps(ROWS, indent=1, ensure_ascii=False).encode()
    (OUT / "rows.jsonl").write_bytes(lines)
    (OUT / "rows.json").write_bytes(array)
    (OUT / "rows.jsonl.gz").write_bytes(gzip.compress(lines, mtime=0))
    (OUT / "rows.json.zst").write_bytes(zstandard.compress(array))
    (OUT / "rows.jsonl.lz4").write_bytes(lz4.frame.compress(lines))
    (OUT / "rows.jsonl.br").write_bytes(brotli.compress(lines))
    for name, delimiter in {"rows.csv": ",", "rows.tsv": "\t"}.items():
        with open(OUT / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(["id", "text"])
            writer.writerows([r["id"], r["text"]] for r in ROWS)
    (OUT / "rows.csv.br").write_bytes(brotli.compress((OUT / "rows.csv").read_bytes()))

    table = pa.Table.from_pylist(ROWS)
    for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
        pq.write_table(table, OUT / f"{codec}.parquet", compression=codec, row_group_size=4, data_page_version="2.0" if codec == "zstd" else "1.0")
    with pa.OSFile(str(OUT / "stream.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    with pa.OSFile(str(OUT / "file.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    large = {"text": pa.large_string(), "input_ids": pa.large_list(pa.uint16()), "id": pa.uint8()}
    schema = pa.schema([pa.field(f.name, large.get(f.name, f.type)) for f in table.schema])
    for codec in ["lz4", "zstd"]:
        pyarrow.feather.write_feather(pa.Table.from_pylist(ROWS, schema=schema), OUT / f"{codec}.feather", compression=codec)

    data = Dataset.from_list(ROWS)
    data.save_to_disk(str(OUT / "saved"), num_shards=2)
    DatasetDict({"train": data.select(range(5)), "test": data.select(range(5, 7))}).save_to_disk(str(OUT / "splits"))

    cache = Path("formats.cache")
    for path in sorted(OUT.iterdir()):
        kind = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}.get(path.suffix)
        options = {"sep": "\t"} if path.suffix == ".tsv" else {}
        if kind:
            rows = list(load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache), **options))
            expect(path.name, rows, ["text"] if kind == "csv" else FIELDS)
    for name, of in {"rows.jsonl.gz": "rows.jsonl", "rows.json.zst": "rows.json", "rows.jsonl.lz4": "rows.jsonl", "rows.jsonl.br": "rows.jsonl", "rows.csv.br": "rows.csv"}.items():
        expected.extend([{**e, "path": name} for e in expected if e["path"] == of and e["field"] in ("text", "input_ids")])
    for name in ["stream.arrow", "file.arrow"]:
        open_ = pa.ipc.open_stream if name == "stream.arrow" else pa.ipc.open_file
        expect(name, open_((OUT / name).read_bytes()).read_all().to_pylist())
    for codec in ["lz4", "zstd"]:
        expect(f"{codec}.feather", pyarrow.feather.read_table(OUT / f"{codec}.feather").to_pylist())
    expect("saved", list(load_from_disk(str(OUT / "saved"))))
    for split in ["", "train", "test"]:
        expect("splits", list(load_from_disk(str(OUT / "splits"))[split or "train"]), ["text", "messages.content"], split)
    shutil.rmtree(cache, ignore_errors=True)
    text = ",\n".join(json.dumps(e, separators=(",", ":")) for e in expected)
    Path("formats.json").write_text("[\n" + text + "\n]\n")


main()
