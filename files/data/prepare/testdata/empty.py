"""Writes testdata/empty: Parquet and Arrow files with row groups without rows, and columns of only nulls.

Every file has the column text. The tests know how many rows each has. To make the files again, in this
folder:

    pip install pyarrow
    python empty.py

empty-page.parquet is made of whole.parquet by the test TestEmptyPages.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path("empty")
OUT.mkdir(exist_ok=True)

texts = pa.table({"text": ["a", "b", "c", "d"], "tags": [["w", "x"], [], None, ["y"]]})
first, last, none = texts.slice(0, 2), texts.slice(2), texts.slice(0, 0)


def groups(name, *parts):
    with pq.ParquetWriter(OUT / f"{name}.parquet", texts.schema, compression="none", use_dictionary=False) as writer:
        for part in parts:
            writer.write_table(part)


groups("whole", texts)
groups("begins", none, none, texts)
groups("between", first, none, last)
groups("ends", texts, none)
groups("alternates", none, first, none, none, last, none)
groups("nothing", none, none)

nulls = {
    "nulls": pa.table({"text": pa.nulls(3)}),
    "lists": pa.table({"text": pa.array([[None, None], None, []], pa.list_(pa.null()))}),
    "objects": pa.table({"text": pa.array([{"of": None}, None, {"of": None}], pa.struct({"of": pa.null()}))}),
    "some": pa.table({"text": pa.array([None, "a", None])}),
    "doubles": pa.table({"id": [1, 2, 3], "text": pa.nulls(3, pa.float64()), "after": ["x", "y", "z"]}),
    "integers": pa.table({"text": pa.nulls(3, pa.int32())}),
    "times": pa.table({"text": pa.nulls(3, pa.timestamp("us"))}),
    "decimals": pa.table({"text": pa.nulls(3, pa.decimal128(9, 2))}),
    "lists-of-doubles": pa.table({"text": pa.nulls(3, pa.list_(pa.float64()))}),
    "categories": pa.table({"text": pa.array([None, "a", None]).dictionary_encode()}),
    "a-double": pa.table({"text": pa.array([None, 1.5, None])}),
    "an-integer": pa.table({"text": pa.array([None, 7, None])}),
}
for name, table in nulls.items():
    pq.write_table(table, OUT / f"{name}.parquet")
    with pa.ipc.new_file(OUT / f"{name}.arrow", table.schema) as writer:
        writer.write_table(table)

assert all(pq.read_table(OUT / f"{name}.parquet").num_rows == 4 for name in ("whole", "begins", "between", "ends", "alternates"))
