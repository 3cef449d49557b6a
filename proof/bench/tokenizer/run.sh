#!/usr/bin/env bash
# Compares the speed of this repository's tokenizer with the Rust implementation (Python
# package tokenizers) and the npm package @huggingface/tokenizers: the same text and
# tokenizer.json, one thread each, in one run, by processor time.
# Usage: run.sh TOKENIZER_JSON TEXT [ROUNDS]
# PYTHON names an interpreter with the package tokenizers; NODE_DIR a folder in which
# @huggingface/tokenizers is installed. What is not there is left out.
set -euo pipefail

file=$(realpath "$1") text=$(realpath "$2") rounds=${3:-3}
here=$(cd "$(dirname "$0")" && pwd)
go=$(cd "$here" && go run . -tokenizer "$file" -text "$text" -rounds "$rounds")
echo "$go"
speed() { echo "$1" | cut -d' ' -f2; }
compare() {
  echo "$1"
  awk -v go="$(speed "$go")" -v other="$(speed "$1")" -v name="${1%% *}" 'BEGIN { printf "go is %.2f times as fast as %s\n", go / other, name }'
  [ "${1##* }" = "${go##* }" ] || echo "the ids differ"
}
if "${PYTHON:-python3}" -c 'import tokenizers' 2>/dev/null; then
  compare "$("${PYTHON:-python3}" "$here/bench.py" "$file" "$text" "$rounds")"
fi
if [ -n "${NODE_DIR:-}" ]; then
  compare "$(cd "$NODE_DIR" && node "$here/bench.mjs" "$file" "$text" "$rounds")"
fi
