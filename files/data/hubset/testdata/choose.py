"""Writes choose.json: which files Python's datasets takes for each split of a repository.

    pip install datasets
    python choose.py
"""

import json
import os
import tempfile
from pathlib import Path

from datasets.data_files import DataFilesDict, get_data_patterns

REPOSITORIES = [
    ["README.md", "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/test-00000-of-00001.parquet"],
    ["train.jsonl", "dev.jsonl", "test.jsonl"],
    ["train/a.csv", "train/b.csv", "validation/a.csv"],
    ["a.jsonl.gz", "b.jsonl.gz"],
    ["data/a.parquet", "data/b.parquet"],
    ["training.csv", "evaluation.csv"],
    ["my_train_file.csv", "my_test_file.csv"],
    ["my-train-1.csv", "my-train-2.csv", "my-valid.csv"],
    ["data/valid/x.jsonl", "data/train/x.jsonl"],
    ["trainer.csv", "latest.csv"],
]


def splits(files):
    with tempfile.TemporaryDirectory() as folder:
        for name in files:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        patterns = get_data_patterns(folder)
        found = DataFilesDict.from_patterns({str(k): v for k, v in patterns.items()}, base_path=folder)
        root = os.path.realpath(folder)
        return {
            str(split): sorted(os.path.relpath(os.path.realpath(p), root) for p in paths if not p.endswith(".md"))
            for split, paths in found.items()
        }


cases = [{"files": files, "splits": splits(files)} for files in REPOSITORIES]
Path("choose.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
