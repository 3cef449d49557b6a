#!/usr/bin/env bash
# Prepares the training data and model of the quickstart run: the Go source tree as tokens, and a
# small Llama. Usage: quickstart-data.sh BIN_DIR OUTPUT_DIR
set -euo pipefail

bin=$1
output=$2

if [ ! -e "$output/data/data.json" ]; then
  "$bin/psyche" data tokenize --tokenizer bytes --include '*.go' --held-out-fraction 0.01 \
    --output "$output/data" "$(go env GOROOT)/src"
fi
if [ ! -e "$output/model/model.safetensors" ] || [ configs/quickstart/model.json -nt "$output/model/config.json" ]; then
  rm -rf "$output/model"
  "$bin/psyche-client" init-model --config configs/quickstart/model.json --seed 1 --output "$output/model"
fi
