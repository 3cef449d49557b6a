"""Measure the Rust implementation, through the Python package tokenizers, on one thread.
Usage: bench.py TOKENIZER TEXT ROUNDS"""
import hashlib, os, struct, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer

t = Tokenizer.from_file(sys.argv[1])
raw = open(sys.argv[2], "rb").read()
documents, start = [], 0
while start < len(raw):
    end = min(start + 16384, len(raw))
    while end < len(raw) and raw[end - 1] != 10:
        end += 1
    documents.append(raw[start:end].decode())
    start = end
best = None
for _ in range(int(sys.argv[3])):
    ids = []
    began = time.process_time()
    for d in documents:
        ids += t.encode(d, add_special_tokens=False).ids
    took = time.process_time() - began
    best = took if best is None else min(best, took)
print(f"rust {len(raw)/1e6/best:.2f} MB/s {len(ids)} ids {hashlib.sha256(struct.pack(f'<{len(ids)}i', *ids)).hexdigest()[:16]}")
