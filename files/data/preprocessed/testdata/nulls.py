#!/usr/bin/env python3
"""Write samples with null columns, null lists, empty lists and empty row groups, by pyarrow (26.0).

    python3 files/data/preprocessed/testdata/nulls.py   # writes nulls/*.parquet
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent / "nulls"
IDS, NULLS = pa.list_(pa.int32()), pa.list_(pa.null())
INPUTS = pa.array([[1, 2, 3], [4, 5]], IDS)


def write(name, *parts):
    tables = [pa.table(part) for part in parts]
    with pq.ParquetWriter(OUT / (name + ".parquet"), tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)


def main():
    null = pa.array([None, None], pa.null())
    write("null-columns", {"inputs": INPUTS, "labels": null, "position_ids": null, "sequence_lengths": null})
    write("null-lists", {"inputs": INPUTS, **{name: pa.array([None, None], IDS) for name in ("labels", "position_ids", "sequence_lengths")}})
    write("lists-of-null", {"inputs": INPUTS, "labels": pa.array([None, None], NULLS)})
    write("some-labels", {"inputs": INPUTS, "labels": pa.array([None, [-100, 5]], IDS), "position_ids": pa.array([[0, 1, 2], None], pa.list_(pa.int64()))})
    some, none = {"inputs": INPUTS}, {"inputs": INPUTS.slice(0, 0)}
    write("empty-groups", none, some, none, {"inputs": pa.array([[7, 8]], IDS)}, none)
    write("null-inputs", {"inputs": null})
    write("null-sample", {"inputs": pa.array([[1, 2], None], IDS)})
    write("empty-sample", {"inputs": pa.array([[1, 2], []], IDS)})
    write("null-token", {"inputs": pa.array([[1, None, 3]], IDS)})
    write("null-label", {"inputs": pa.array([[1, 2]], IDS), "labels": pa.array([[1, None]], IDS)})
    write("labels-of-null", {"inputs": pa.array([[1, 2]], IDS), "labels": pa.array([[None, None]], NULLS)})
    write("empty-labels", {"inputs": pa.array([[1, 2]], IDS), "labels": pa.array([[]], IDS)})
    write("empty-lengths", {"inputs": pa.array([[1, 2]], IDS), "sequence_lengths": pa.array([[]], IDS)})
    write("no-rows", none)


if __name__ == "__main__":
    main()
