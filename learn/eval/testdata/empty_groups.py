#!/usr/bin/env python3
"""Write four questions in the layout of ARC, with and without row groups that have no rows, by pyarrow (26.0).

    python3 learn/eval/testdata/empty_groups.py   # writes empty-groups/{whole,between,first}
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent / "empty-groups"
ROWS = pa.Table.from_pylist([
    {"id": "1", "question": "Which is red? é🙂", "choices": {"text": ["apple", "sky", "grass", "sea"], "label": ["1", "2", "3", "4"]}, "answerKey": "1"},
    {"id": "2", "question": "Pick", "choices": {"text": ["a", "b", "c"], "label": ["A", "B", "C"]}, "answerKey": "C"},
    {"id": "3", "question": "Pick", "choices": {"text": ["a", "b", "c", "d", "e"], "label": ["A", "B", "C", "D", "E"]}, "answerKey": "E"},
    {"id": "4", "question": "Empty choice", "choices": {"text": ["a", " ", "", "d"], "label": ["A", "B", "C", "D"]}, "answerKey": "A"},
])
NONE = ROWS.slice(0, 0)

for name, groups in {"whole": [ROWS.slice(0, 2), ROWS.slice(2)], "between": [ROWS.slice(0, 2), NONE, ROWS.slice(2)], "first": [NONE, ROWS]}.items():
    path = OUT / name / "allenai/ai2_arc/ARC-Easy/test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, ROWS.schema) as writer:
        for group in groups:
            writer.write_table(group)
    assert pq.read_table(path).num_rows == 4
