#!/usr/bin/env bash
# Starts a chain on this machine and creates a run on it. Ctrl-C stops the chain. Arguments are
# flags of create-run.
#
#   RUN_ID       id of the run (test)
#   CONFIG_FILE  its configuration (configs/quickstart/state.toml)
#   KEY_FILE     key file of its main authority (build/solana/main.json, created if it does not exist)
#   LISTEN       address of the chain (127.0.0.1:8899)
#   SLOT_MS      milliseconds of its slots (400)
#   BIN, DIR     folders of the programs and of keys and logs (build/bin, build/solana)
set -euo pipefail

bin=${BIN:-build/bin}
dir=${DIR:-build/solana}
run_id=${RUN_ID:-test}
config=${CONFIG_FILE:-configs/quickstart/state.toml}
key=${KEY_FILE:-$dir/main.json}

mkdir -p "$dir"
[ -e "$key" ] || "$bin/psyche" keys new --output "$key"

: >"$dir/chain.log"
"$bin/psyche" chain start --listen "${LISTEN:-127.0.0.1:8899}" --slot-ms "${SLOT_MS:-400}" >"$dir/chain.log" &
chain=$!
trap 'kill "$chain" 2>/dev/null || true; wait' EXIT
rpc=
until [ -n "$rpc" ]; do
  kill -0 "$chain" 2>/dev/null || exit 1
  sleep 0.1
  rpc=$(sed -n 's/.*\(http:\/\/[^ ]*\).*/\1/p;q' "$dir/chain.log")
done
export RPC=$rpc

solana() {
  local command=$1
  shift
  "$bin/psyche" solana "$command" --run-id "$run_id" --wallet-private-key-path "$key" "$@"
}
"$bin/psyche" chain airdrop 10 "$key"
solana create-run --yes "$@"
solana update-config --yes --config-path "$config"
solana set-paused --resume
echo "run $run_id is on the chain at $rpc; clients join with: just start-training-localnet-client $run_id"
wait "$chain"
