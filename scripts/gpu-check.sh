#!/usr/bin/env bash
# Checks Psyche on this machine's GPU in at most 11 minutes. The most valuable parts come first, and each part has a time
# limit. A failed part does not stop the later parts. The output of a part is in build/gpu/PART.log. A line for each part
# is in build/gpu/results.tsv: part, seconds, result (ok, failed, skipped), number or reason.
#
#   scripts/gpu-check.sh            all parts
#   scripts/gpu-check.sh PART...    some of them
#   scripts/gpu-check.sh programs   builds the programs into build/gpu/bin, outside the time limit. Without this command,
#                                   all parts use the programs that are there, and build them if there are none.
#   scripts/gpu-check.sh pack       also packs the programs into build/gpu/programs.tar.xz (51 MB), for a machine without
#                                   Go: copy that file to the same path of a clone there
#
#   part       seconds  check and number
#   shim          60    builds the shim with LIBTORCH, or with the libtorch of PYTHON's torch; the device that doctor finds
#   bits          60    the optimizer's kernels on the GPU against the CPU's kernels, bit by bit, and the kernels of layers
#                       within limits: passed tests
#   sanitizer     60    compute-sanitizer (memcheck, racecheck) of the kernels with small tensors: errors
#   kernels       90    the benchmarks of the kernels, if there are any
#   step         120    forward and backward against PyTorch, eager and compiled: quotients of the speeds
#   rounds       120    whole rounds of 4,096 and 32,768 tokens, and the parts of rounds: seconds
#   run           75    three clients, one of them on the GPU: clients with the same digest
#   audits        45    four honest clients with audits, two of them on the GPU: rounds and accusations
#   memory        30    the peak of the GPU's memory, and the prediction of doctor
#
#   PYTHON   Python with torch for CUDA, for shim and step (python3)
#   DEVICE   cuda, cuda:N, or cpu to try this script without a GPU, with smaller models (cuda)
#   MODELS   names of models: proof/bench/step/model-NAME.json (160m,1b; 20m on a CPU)
#   ROUNDS   rounds of audits (300; 40 on a CPU)
#   TOKENS   tokens in a sequence (2048; 128 on a CPU)
#   TOTAL    time limit of all parts together in seconds (660)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3} device=${DEVICE:-cuda}
case $device in
cpu) models=${MODELS:-20m} tokens=${TOKENS:-128} rounds=${ROUNDS:-40} many=4 compute=f32 ;;
*) models=${MODELS:-160m,1b} tokens=${TOKENS:-2048} rounds=${ROUNDS:-300} many=16 compute=bf16 ;;
esac
out=$PWD/build/gpu
bin=$out/bin
names=(psyche psyche-client step distro honest cuda.test layers.test)
export PSYCHE_TORCH_SHIM=$out/libpsyche_torch.so

limit_of() {
  case $1 in
  shim | bits | sanitizer) echo 60 ;;
  kernels) echo 90 ;;
  step | rounds) echo 120 ;;
  run) echo 75 ;;
  audits) echo 45 ;;
  memory) echo 30 ;;
  *) return 1 ;;
  esac
}
parts=(shim bits sanitizer kernels step rounds run audits memory)

# number records the number of the running part. skip ends the part and records the reason.
number() { printf '%s' "$*" >"$out/$part.number"; }
skip() {
  number "$*"
  exit 77
}

programs() {
  mkdir -p "$bin"
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin/psyche" ./cmd/psyche
  go build -trimpath -ldflags '-s -w' -o "$bin/psyche-client" ./cmd/psyche-client
  go build -trimpath -ldflags '-s -w' -o "$bin/step" ./proof/bench/step
  go build -trimpath -ldflags '-s -w' -o "$bin/distro" ./proof/bench/distro
  go build -trimpath -ldflags '-s -w' -o "$bin/honest" ./proof/bench/honest
  go test -c -trimpath -ldflags '-s -w' -o "$bin/cuda.test" ./learn/distro/cuda
  go test -c -trimpath -ldflags '-s -w' -o "$bin/layers.test" ./learn/torch/torchtest/strict
}

pack() {
  programs
  tar -C "$out" -cf - bin | xz -3 -T0 >"$out/programs.tar.xz"
}

# have_programs unpacks or builds the programs that are missing.
have_programs() {
  local name missing=
  for name in "${names[@]}"; do [ -x "$bin/$name" ] || missing=1; done
  [ -n "$missing" ] || return 0
  if [ -e "$out/programs.tar.xz" ]; then
    tar -C "$out" -xJf "$out/programs.tar.xz"
  else
    programs
  fi
}

# python_torch prints the folder of PYTHON's torch if it was built for CUDA.
python_torch() {
  local found
  found=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null) || return 0
  if [ -e "$found/lib/libtorch_cuda.so" ]; then echo "$found"; fi
}

# find_torch exports the folder of libtorch, and lets NVRTC of Python's packages find its own parts.
find_torch() {
  local folder
  export LIBTORCH=${LIBTORCH:-$(python_torch)}
  for folder in "$LIBTORCH"/../nvidia/cu13/lib "$LIBTORCH"/../nvidia/cuda_nvrtc/lib; do
    if [ -n "$LIBTORCH" ] && [ -d "$folder" ]; then export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
  done
}

part_shim() {
  SHIM=$PSYCHE_TORCH_SHIM scripts/build-shim.sh
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  "$bin/psyche-client" doctor --device "$device" | tee "$out/doctor.txt"
  number "$(awk -v d="${device/%cuda/cuda:0}" '$1 == (d == "cpu" ? "libtorch" : d) { print; exit }' "$out/doctor.txt")"
  [ -s "$out/shim.number" ]
}

part_bits() {
  [ "$device" != cpu ] || skip "needs a GPU"
  {
    (cd learn/distro/cuda && "$bin/cuda.test" -test.v -test.run 'ADevice' -test.timeout 55s)
    (cd learn/torch/torchtest/strict && "$bin/layers.test" -test.v -test.run 'ADevice' -test.timeout 55s)
  } | tee "$out/bits.txt"
  number "$(grep -c -e '^--- PASS' "$out/bits.txt") tests passed, $(grep -c -e '^ *--- PASS' "$out/bits.txt") with their cases"
  ! grep -q -e '--- SKIP' "$out/bits.txt" # without a device these tests are skipped
}

part_sanitizer() {
  local tool errors=0 sanitizer=${SANITIZER:-compute-sanitizer}
  [ "$device" != cpu ] || skip "needs a GPU"
  command -v "$sanitizer" >/dev/null || skip "no compute-sanitizer; SANITIZER sets its path"
  for tool in memcheck racecheck; do
    (cd learn/distro/cuda && timeout 28 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/cuda.test" -test.run TestAnyResultsOnADevice -rapid.checks 10) ||
      errors=$((errors + 1))
  done
  number "$errors of 2 tools report errors"
  [ "$errors" = 0 ]
}

part_kernels() {
  [ "$device" != cpu ] || skip "needs a GPU"
  [ -n "$("$bin/cuda.test" -test.list '^Benchmark')" ] || skip "the package has no benchmarks"
  (cd learn/distro/cuda && "$bin/cuda.test" -test.run '^$' -test.bench . -test.benchtime 5x) | tee "$out/kernels.txt"
  number "$(awk '/^Benchmark/ { printf "%s%s %.2f ms", s, $1, $3 / 1e6; s = ", " }' "$out/kernels.txt")"
}

# column prints a column of the tables in a file, with the models' names.
column() {
  awk -F ' *\\| *' -v name="$2" '
    /^\| model/ { at = 0; for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
    /^\| / && at { printf "%s%s %s", s, $2, $at; s = ", " }' "$1"
}

part_step() {
  local m
  : >"$out/step.txt"
  for m in ${models//,/ }; do
    "$bin/step" -device "$device" -python "$(command -v "$python")" -models "$m" -dtypes "$compute" -batches 2 -tokens "$tokens" \
      -threads "$(nproc)" -rounds 3 -budget 5s -sides "${SIDES:-ours,installed,sdpa,compile}" | tee -a "$out/step.txt"
    number "speed / compile: $(column "$out/step.txt" 'speed / compile'); speed / eager: $(column "$out/step.txt" 'speed / installed')"
  done
  ! grep -q ': skipped, ' "$out/step.txt" || skip "$(sed -n 's/.*: skipped, //p' "$out/step.txt" | head -n 1)"
}

# text creates training data from this repository's documents.
text() {
  [ -e "$out/data/data.json" ] || "$bin/psyche" data tokenize --tokenizer bytes --include '*.md' --output "$out/data" docs proof/bench
}

# alone trains a model of proof/bench/step with DisTrO, alone: NAME, sequences of a step, sequences of a micro-batch,
# steps. It writes the events into build/gpu/events.
alone() {
  text
  [ -e "$out/model-$1/model.safetensors" ] ||
    "$bin/psyche-client" init-model --config "proof/bench/step/model-$1.json" --seed 1 --output "$out/model-$1"
  rm -rf "$out/events"
  "$bin/psyche-client" solo --model "$out/model-$1" --data-path "$out/data" --seq-len "$tokens" --optimizer distro --total-batch "$2" --micro-batch "$3" \
    --steps "$4" --log-every 1 --device "$device" --compute-dtype "$compute" --events-dir "$out/events"
}

# last prints a field of the last trained step in build/gpu/events.
last() { grep -oE "\"$1\":[0-9.e+-]+" "$out/events/events.jsonl" | tail -n 1 | cut -d: -f2; }

part_rounds() {
  local m found="" sequences
  for sequences in 2 "$many"; do
    alone "${models%%,*}" "$sequences" 2 5
    found+="${models%%,*} with $((sequences * tokens)) tokens $(printf '%.3f' "$(last seconds)") s; "
    number "$found"
  done
  for m in ${models//,/ }; do
    "$bin/distro" --model "proof/bench/step/model-$m.json" --python= --rounds 1 --threads "$(nproc)" --step-threads "$(nproc)" \
      --device "$device" --compute-dtype "$compute" --sequences 2 --seq-len "$tokens" --steps 3 | tee "$out/distro-$m.txt"
    found+="$m: $(sed -nE 's/^training step.*: ([0-9.]+ s),.*/step \1/p; s/^  (encode|decode) +([0-9.]+ s)$/, \1 \2/p' "$out/distro-$m.txt" | tr -d '\n'); "
    number "$found"
  done
}

part_run() {
  text
  [ -e "$out/model/model.safetensors" ] || "$bin/psyche-client" init-model --config configs/quickstart/model.json --seed 1 --output "$out/model"
  local here=$out/run
  rm -rf "$here" && mkdir -p "$here"
  sed -e "s#build/quickstart/data#$out/data#" -e "s#build/quickstart/model#$out/model#" -e 's/run_id = "smoke"/run_id = "gpu"/' \
    configs/smoke/state.toml >"$here/state.toml"
  export PSYCHE_KNOWN_SERVERS=$here/known_servers
  "$bin/psyche" server run --state "$here/state.toml" --save-state-dir "$here/saved" --server-addr 127.0.0.1 --server-port 39415 2>"$here/server.log" &
  local server=$! clients=() n where failed=0 equal
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
  equal=$(grep -o 'digest=.*' "$here/ends" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $1 }')
  number "${equal:-0} of 3 clients with the same digest"
  [ "$failed" = 0 ] && [ "$equal" = 3 ]
}

# part_audits keeps the logs of a row that lost data, or did not end, in build/gpu/honest.
part_audits() {
  local file=proof/bench/honest/rows-gpu.toml
  rm -rf "$out/honest"
  if [ "$device" = cpu ]; then
    sed 's/^gpu = .*/gpu = 0/' "$file" >"$out/rows.toml"
    file=$out/rows.toml
  fi
  timeout -s INT 43 "$bin/honest" -bin "$bin" -file "$file" -rows '^GPU, tied' -rounds "$rounds" -control=false -out "$out/honest" | tee "$out/audits.txt" || return 1
  grep -rhE 'accus|convict|eject|WRN' "$out/honest" --include='*.log' | cut -c1-300 | sort -u | head -40 || true
  number "$(awk -F '[| \t]*\\|[ \t]*' '/^\| GPU/ { print $5 " rounds, " $11 " accused, " $14 " audits, " $15 " not passed" }' "$out/audits.txt")"
  grep -q ' 0 accused' "$out/audits.number"
  ! compgen -G "$out/honest/run-*" >/dev/null
}

# used prints the used memory of the GPU in MiB.
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "${device#cuda:}" 2>/dev/null || nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }

part_memory() {
  local m=${models%%,*} predicted peak=0 now before training
  predicted=$("$bin/psyche-client" doctor --model "proof/bench/step/model-$m.json" --device "$device" --compute-dtype "$compute" --micro-batch-size 2 --seq-len "$tokens" --apply-lag 2 |
    awk -v d="${device/%cuda/cuda:0}" -v cpu="$device" '$1 == (cpu == "cpu" ? "memory" : d) && /needs at least/ { print $5, $6 }')
  if [ "$device" = cpu ]; then
    alone "$m" 2 2 3
    number "$m: peak $(($(last memory) >> 20)) MiB with libraries and reading the model, predicted $predicted in a run"
    return
  fi
  before=$(used)
  alone "$m" 2 2 8 &
  training=$!
  while kill -0 "$training" 2>/dev/null; do
    now=$(used)
    if [ "$now" -gt "$peak" ]; then peak=$now; fi
    sleep 0.2
  done
  wait "$training"
  number "$m: peak $((peak - before)) MiB with the CUDA context, predicted $predicted"
}

# one runs a part, in a process group of its own that timeout ends.
if [ "${1:-}" = --one ]; then
  part=$2
  "part_$part"
  exit
fi

chosen=("$@")
for part in "$@"; do
  case $part in programs | pack) ;; *)
    limit_of "$part" >/dev/null || {
      echo "gpu-check: unknown part $part; see the comment at the top of this file" >&2
      exit 2
    }
    ;;
  esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${parts[@]}")
mkdir -p "$out"
case ${chosen[0]} in programs | pack)
  "${chosen[0]}"
  exit
  ;;
esac
have_programs
find_torch

status=0 deadline=$((SECONDS + ${TOTAL:-660}))
: >"$out/results.tsv"
for part in "${chosen[@]}"; do
  limit=$(limit_of "$part") left=$((deadline - SECONDS)) begun=$SECONDS code=0
  rm -f "$out/$part.number"
  if [ "$left" -lt 10 ]; then
    result=skipped
    echo "no time left" >"$out/$part.number"
  else
    echo "== $part, at most $((limit < left ? limit : left)) s"
    timeout -k 5 $((limit < left ? limit : left)) "$0" --one "$part" > >(tee "$out/$part.log") 2>&1 || code=$?
    case $code in
    0) result=ok ;;
    77) result=skipped ;;
    124 | 137) result="failed (time limit)" status=1 ;;
    *) result=failed status=1 ;;
    esac
  fi
  printf '%s\t%d\t%s\t%s\n' "$part" $((SECONDS - begun)) "$result" "$(cat "$out/$part.number" 2>/dev/null || true)" | tee -a "$out/results.tsv"
done
echo "== summary after $SECONDS s"
cat "$out/results.tsv"
exit $status
