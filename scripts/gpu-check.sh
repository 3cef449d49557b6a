#!/usr/bin/env bash
# Checks Psyche on this machine's GPU, step by step. The output of each step is kept in
# build/gpu/STEP.log. A failed step does not stop the later steps.
#
#   scripts/gpu-check.sh                all steps
#   scripts/gpu-check.sh STEP...        some of them
#   scripts/gpu-check.sh programs       only the programs; for a machine without Go, copy build/gpu/bin
#                                       to the same path there
#
#   shim       builds the shim with LIBTORCH, or with the libtorch of PYTHON's torch
#   doctor     the report of psyche-client doctor
#   kernels    compares the optimizer's kernels on the GPU with the CPU kernels, bit by bit
#   gradient   compares forward and backward with PyTorch, eager and compiled: tokens/s and memory
#   optimizer  a whole training step, and DisTrO's share of it
#   solo       training alone, bf16
#   run        three clients, one of them on the GPU: equal digests
#   audits     four honest clients that audit each other, two of them on the first GPU; no client may be accused
#
#   PYTHON   Python with torch for CUDA, for gradient (python3)
#   DEVICE   cuda, cuda:N, or cpu to try this script without a GPU (cuda)
#   MODELS   names of models: proof/bench/step/model-NAME.json (160m,1b)
#   ROUNDS   rounds of each row of audits (1000)
#   TOKENS   tokens in a sequence (2048)
#   BATCH    sequences in a step, which has BATCH·TOKENS tokens (2)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3} device=${DEVICE:-cuda} models=${MODELS:-160m,1b} tokens=${TOKENS:-2048} batch=${BATCH:-2} rounds=${ROUNDS:-1000}
out=$PWD/build/gpu
bin=$out/bin
# python_torch prints the folder of PYTHON's torch if it was built for CUDA.
python_torch() {
  local found
  found=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null) || return 0
  if [ -e "$found/lib/libtorch_cuda.so" ]; then echo "$found"; fi
}

programs() {
  mkdir -p "$bin"
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin/psyche" ./cmd/psyche
  go build -trimpath -ldflags '-s -w' -o "$bin/psyche-client" ./cmd/psyche-client
  go build -trimpath -ldflags '-s -w' -o "$bin/step" ./proof/bench/step
  go build -trimpath -ldflags '-s -w' -o "$bin/distro" ./proof/bench/distro
  go build -trimpath -ldflags '-s -w' -o "$bin/honest" ./proof/bench/honest
  go test -c -trimpath -ldflags '-s -w' -o "$bin/cuda.test" ./learn/distro/cuda
}

shim() {
  local found=${LIBTORCH:-$(python_torch)}
  LIBTORCH=$found SHIM=$out/libpsyche_torch.so scripts/build-shim.sh
}

doctor() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  "$bin/psyche-client" doctor
}

kernels() {
  (cd learn/distro/cuda && "$bin/cuda.test" -test.v -test.run ADevice -test.timeout 5m) | tee "$out/kernels.txt"
  [ "$device" = cpu ] || ! grep -q -e '--- SKIP' "$out/kernels.txt" # without a device these tests are skipped
}

gradient() {
  for m in ${models//,/ }; do
    "$bin/step" -device "$device" -python "$python" -models "$m" -dtypes bf16 -batches "$batch" -tokens "$tokens" \
      -threads "$(nproc)" -rounds 5 -budget 5s -sides "${SIDES:-ours,installed,sdpa,compile}"
  done
}

optimizer() {
  for m in ${models//,/ }; do
    "$bin/distro" --model "proof/bench/step/model-$m.json" --python= --rounds 1 --threads "$(nproc)" --step-threads "$(nproc)" \
      --device "$device" --compute-dtype bf16 --sequences "$batch" --seq-len "$tokens" --steps 5
  done
}

# text creates training data from this repository's documents.
text() {
  [ -e "$out/data/data.json" ] || "$bin/psyche" data tokenize --tokenizer bytes --include '*.md' --output "$out/data" docs proof/bench
}

solo() {
  text
  local m=${models%%,*}
  [ -e "$out/model-$m/model.safetensors" ] || "$bin/psyche-client" init-model --config "proof/bench/step/model-$m.json" --seed 1 --output "$out/model-$m"
  "$bin/psyche-client" solo --model "$out/model-$m" --data-path "$out/data" --seq-len 256 --total-batch 16 --micro-batch 16 \
    --steps 20 --log-every 5 --device "$device" --compute-dtype bf16
}

run() {
  text
  [ -e "$out/model/model.safetensors" ] || "$bin/psyche-client" init-model --config configs/quickstart/model.json --seed 1 --output "$out/model"
  local here=$out/run
  rm -rf "$here" && mkdir -p "$here"
  sed -e "s#build/quickstart/data#$out/data#" -e "s#build/quickstart/model#$out/model#" -e 's/run_id = "smoke"/run_id = "gpu"/' \
    configs/smoke/state.toml >"$here/state.toml"
  export PSYCHE_KNOWN_SERVERS=$here/known_servers
  "$bin/psyche" server run --state "$here/state.toml" --save-state-dir "$here/saved" --server-addr 127.0.0.1 --server-port 39415 2>"$here/server.log" &
  local server=$! clients=() n where failed=0
  # shellcheck disable=SC2064 # the current processes, not later ones
  trap "kill $server 2>/dev/null || true" EXIT
  for n in 1 2 3; do
    where=cpu
    if [ "$n" = 1 ]; then where=$device; fi
    "$bin/psyche" keys new --output "$here/key$n.json" >"$here/key$n.txt"
    "$bin/psyche-client" train --run-id gpu --server-addr 127.0.0.1:39415 --model-path "$out/model" --data-path "$out/data" \
      --device "$where" --checkpoint-dir "$here/client$n" --identity-secret-key-path "$here/key$n.json" 2>"$here/client$n.log" &
    clients+=($!)
  done
  for n in "${clients[@]}"; do wait "$n" || failed=1; done
  kill "$server"
  wait "$server" || true
  grep -h 'the run is finished' "$here"/client?.log | tee "$here/ends"
  [ "$failed" = 0 ] && [ "$(wc -l <"$here/ends")" = 3 ] && [ "$(grep -o 'digest=.*' "$here/ends" | sort -u | wc -l)" = 1 ]
}

# audits keeps the logs of a row that lost data, or did not end, in build/gpu/honest.
audits() {
  local file=proof/bench/honest/rows-gpu.toml row failed=0
  rm -rf "$out/honest"
  if [ "$device" = cpu ]; then
    sed 's/^gpu = .*/gpu = 0/' "$file" >"$out/rows.toml"
    file=$out/rows.toml
  fi
  for row in '^GPU, tied' '^GPU, untied' '^GPU, experts'; do
    timeout -s INT 180 "$bin/honest" -bin "$bin" -file "$file" -rows "$row" -rounds "$rounds" -control=false -out "$out/honest" || failed=1
  done
  grep -rhE 'accus|convict|eject|WRN' "$out/honest" --include='*.log' | cut -c1-300 | sort -u | head -40 || true
  [ "$failed" = 0 ] && ! compgen -G "$out/honest/run-*" >/dev/null
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(programs shim doctor kernels gradient optimizer solo run audits)
mkdir -p "$out"
export PSYCHE_TORCH_SHIM=$out/libpsyche_torch.so
status=0
for step in "${steps[@]}"; do
  case $step in programs | shim | doctor | kernels | gradient | optimizer | solo | run | audits) ;; *)
    echo "gpu-check: unknown step $step; see the comment at the top of this file" >&2
    exit 2
    ;;
  esac
  echo "== $step"
  begun=$SECONDS
  if (set -euo pipefail; "$step") > >(tee "$out/$step.log") 2>&1; then result=done; else result=FAILED status=1; fi
  echo "== $step: $result in $((SECONDS - begun)) s"
done
exit $status
