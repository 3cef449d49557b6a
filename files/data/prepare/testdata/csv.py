"""Writes testdata/csv: files that a reader of CSV can misread, and csv.json with the column "text" of each as
Python's datasets (5.2.0, with pandas 3.1.1) reads it.

csv.json also has the words that pandas reads as missing values. The tests compare with what is committed and
need no Python. To make it again, in this folder:

    pip install datasets
    python csv.py
"""

import importlib
import json
import shutil
import sys
from pathlib import Path

sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]  # csv is a module too
load_dataset = importlib.import_module("datasets").load_dataset
STR_NA_VALUES = importlib.import_module("pandas._libs.parsers").STR_NA_VALUES

OUT = Path("csv")
MISSING = sorted(STR_NA_VALUES - {""})


def rows(values, delimiter=","):
    return f"id{delimiter}text\n" + "".join(f"{i}{delimiter}{v}\n" for i, v in enumerate(values))


WORDS = ["a text", *MISSING, *(f'"{w}"' for w in MISSING), "", '""', " null", "null ", "nul", "NAN", "none", "na", "NA NA", "a null"]
FILES = {
    "missing.csv": rows(WORDS),
    "missing-kept.csv": rows(WORDS),
    "line-breaks.csv": rows(['"a\r\nb"', '"a\nb"', '"a\rb"', '"\r\n"', '"a\r\r\n\r\nb"', '"""\r\n"""', "plain", '"\r\nend\r\n"']),
    "line-breaks-crlf.csv": 'text,id\r\n"a\r\nb",1\r\nplain,2\r\n\r\n"a\nb",3\r\n"""q""\r\n",4\r\nend,5\r\n',
    "quotes.csv": rows(['"a ""b"" c"', '"a, b"', "  blanks  ", '" quoted "', '""""', "it's", '"""quoted"""', "日本語 🙂", '"a\tb"']),
    "blank-lines.csv": "text\n\nhello\n\n\n\"\n\"\nworld\n\n",
    "mark.csv": "\ufefftext,id\nhello,1\nworld,2\n",
    "last-line.csv": "id,text\n1,a\n2,b",
    "numbers.csv": rows(["1", "007", "2.50", "", "1e3", "NA"]),
    "quoted.tsv": rows(['"a\tb"', '"a\r\nb"', '"a ""b"""', "a, b", "null"], "\t"),
}


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    found = {}
    for name, text in FILES.items():
        (OUT / name).write_bytes(text.encode())
        options = {"sep": "\t"} if name.endswith(".tsv") else {}
        if name == "missing-kept.csv":
            options["keep_default_na"] = False
        data = load_dataset("csv", data_files=str(OUT / name), split="train", cache_dir="csv.cache", **options)
        found[name] = data["text"][:]
    shutil.rmtree("csv.cache")
    text = json.dumps({"missing": MISSING, "files": found}, indent=1, ensure_ascii=False)
    Path("csv.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
