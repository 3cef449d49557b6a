"""Writes testdata/variants: rows in the less common types of Arrow and encodings of Parquet, and their token ids.

The ids are those of Python's tokenizers for what pyarrow (or datasets, for folders) reads again from
the files. The tests compare with what is committed and need no Python. To make it again, in this folder:

    pip install datasets pyarrow tokenizers
    python variants.py
"""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, load_from_disk
from tokenizers import Tokenizer

OUT = Path("variants")
TOKENIZER = Path("../../../tokenizer/testdata/gpt2.json.gz")

encode = Tokenizer.from_str(gzip.decompress(TOKENIZER.read_bytes()).decode())
expected = []


def ids(text):
    return encode.encode(text, add_special_tokens=False).ids


def flat(value, steps):
    """What steps lead to in a value, and in the lists on the way."""
    if value is None:
        return []
    if isinstance(value, list):
        return [v for inner in value for v in flat(inner, steps)]
    if isinstance(value, tuple):  # of a map
        value = {"key": value[0], "value": value[1]}
    if isinstance(value, bytes):
        value = value.decode()
    return flat(value[steps[0]], steps[1:]) if steps else [value]


def expect(path, rows, fields):
    for field in fields:
        of = [flat(row, field.split(".")) for row in rows]
        of = [v if v and isinstance(v[0], int) else ids("\n".join(v)) for v in of]
        expected.append({"path": path, "field": field, "split": "", "ids": [v for v in of if v]})


LONG = ["The first text, which is longer than a view.", "Zwölf Boxkämpfer,\njagen \"Viktor\"", "", None, "日本語 and 🙂\ttabs", "twelve bytes", "thirteen byte", "end"]
WORDS = ["one", "two", None, "one", "three", "three", "one", "four and some more letters"]
LISTS = [["one", "two"], [], None, ["three", None, "one"], ["two"], ["one"] * 3, [], ["a text that is longer than twelve bytes"]]
NUMBERS = [[1, 2, 3], None, [], [5, 6], [7], [8, 9], [10], [11]]


def views():
    entry = pa.struct([("role", pa.string_view()), ("content", pa.string_view())])
    entries = [[{"role": "user", "content": w}, {"role": "assistant", "content": t}] for w, t in zip(WORDS, LONG)]
    return pa.table(
        {
            "before": pa.array(LONG, pa.string_view()),
            "text": pa.array(LONG, pa.string_view()),
            "bytes": pa.array([None if t is None else t.encode() for t in LONG], pa.binary_view()),
            "large": pa.array([None if t is None else t.encode() for t in LONG], pa.large_binary()),
            "messages": pa.array(entries, pa.large_list(entry)),
            "list": pa.array(LISTS, pa.list_view(pa.string())),
            "lists": pa.array(LISTS, pa.large_list_view(pa.string_view())),
            "input_ids": pa.array(NUMBERS, pa.list_view(pa.uint16())),
            "nested": pa.array([[v] if v else v for v in LISTS], pa.large_list(pa.large_list(pa.large_string()))),
            "fixed": pa.array([[i, i + 1] for i in range(8)], pa.list_(pa.int16(), 2)),
            "map": pa.array([[(w or "", t)] for w, t in zip(WORDS, LONG)], pa.map_(pa.string(), pa.string())),
        }
    )


def categories():
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 0, 3, 4, 4, 2, 0], pa.uint32()), pa.array([7, 500, 11, 900, 30], pa.int64()))
    return pa.table(
        {
            "before": pa.array(WORDS).dictionary_encode(),
            "text": pa.DictionaryArray.from_arrays(pa.array([7, 6, 5, 4, 3, 2, 1, 0], pa.int8()), pa.array(LONG)),
            # Of the missing values one is no place, and one is a place of no value.
            "large": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 1, 0, 3, 3], pa.uint16()), pa.array(["one", None, "three", ""], pa.large_string())),
            "views": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 2, 1, 0, 3, 3], pa.int64()), pa.array(LONG[:4], pa.string_view())),
            "list": pa.array(LISTS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
            "input_ids": pa.ListArray.from_arrays([0, 3, 3, 3, 5, 6, 8, 9, 10], numbers),
            "object": pa.StructArray.from_arrays([pa.array(WORDS).dictionary_encode()], ["name"]),
            "lists": pa.DictionaryArray.from_arrays(pa.array([0, 3, 1, 2, None, 0, 0, 0], pa.int8()), pa.array(LISTS[:4], pa.list_(pa.string()))),
        }
    )


def growing():
    """Batches whose dictionary grows, and then is another."""
    grows = [["one", "two"], ["one", "two", "three"], ["one", "two", "three", "four"], ["five", "six"]]
    for values, places in zip(grows, [[0, 1, 1], [2, 0, None], [3, 2, 1, 0], [0, 1, 0]]):
        yield pa.record_batch({"text": pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array(values))})


def write(path, opened, table, **options):
    with pa.OSFile(str(OUT / path), "wb") as sink, opened(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)


def parquet():
    """Strings that share beginnings, and integers, in each encoding that pages can have of them."""
    texts = [f"https://data.example/{n // 7:04d}/{'a' * (n % 40)}{n}" if n % 11 else None for n in range(120)] + [None] * 120 + LONG
    lists = [[n % 900, n % 7, 3] if n % 5 else [] for n in range(len(texts))]
    table = pa.table({"text": pa.array(texts), "input_ids": pa.array(lists, pa.list_(pa.int32())), "long": pa.array(lists, pa.list_(pa.int64()))})
    for name, text, integers, version, codec in [
        ("shared", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "1.0", "none"),
        ("shared-v2", "DELTA_BYTE_ARRAY", "DELTA_BINARY_PACKED", "2.0", "snappy"),
        ("lengths", "DELTA_LENGTH_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "2.0", "zstd"),
        ("lengths-v1", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BINARY_PACKED", "1.0", "lz4"),
    ]:
        path = OUT / f"{name}.parquet"
        encodings = {"text": text, "input_ids.list.element": integers, "long.list.element": integers}
        pq.write_table(
            table, path, use_dictionary=False, column_encoding=encodings, data_page_version=version, compression=codec, row_group_size=80, data_page_size=700, write_batch_size=20
        )
        for column in range(3):
            about = pq.ParquetFile(path).metadata.row_group(0).column(column)
            assert (text if column == 0 else integers) in about.encodings, about
        expect(path.name, pq.read_table(path).to_pylist(), table.column_names)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    fields = {"text": 0, "bytes": 0, "large": 0, "messages.content": 0, "list": 0, "lists": 0, "input_ids": 0, "nested": 0, "fixed": 0, "map.value": 0}
    write("views.arrow", pa.ipc.new_stream, views())
    write("views-zstd.arrow", pa.ipc.new_file, views(), compression="zstd")
    for name in ["views.arrow", "views-zstd.arrow"]:
        expect(name, views().to_pylist(maps_as_pydicts=None), fields)
    write("categories.arrow", pa.ipc.new_stream, categories())
    write("categories-lz4.arrow", pa.ipc.new_file, categories(), compression="lz4")
    for name, opened in {"categories.arrow": pa.ipc.open_stream, "categories-lz4.arrow": pa.ipc.open_file}.items():
        expect(name, opened((OUT / name).read_bytes()).read_all().to_pylist(), ["text", "large", "views", "list", "input_ids", "object.name", "lists"])

    for name, deltas in {"growing.arrow": True, "replaced.arrow": False}.items():
        batches = list(growing())
        with pa.OSFile(str(OUT / name), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        read = pa.ipc.open_stream((OUT / name).read_bytes())
        expect(name, [row for batch in read for row in batch.to_pylist()], ["text"])
    parquet()

    kept = ["before", "text", "large", "messages", "nested", "fixed"]
    Dataset(views().select(kept)).save_to_disk(str(OUT / "saved"), num_shards=2)
    expect("saved", list(load_from_disk(str(OUT / "saved"))), ["text", "large", "messages.content", "nested", "fixed"])
    text = ",\n".join(json.dumps(e, separators=(",", ":")) for e in expected)
    Path("variants.json").write_text("[\n" + text + "\n]\n")


main()
