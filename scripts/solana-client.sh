#!/usr/bin/env bash
# Trains in a run on a chain. If the chain has a faucet, requests SOL from it. Arguments are flags
# of train.
#
#   RUN_ID       id of the run (test)
#   RPC, WS_RPC  addresses of the chain (http://127.0.0.1:8899, and the same address for WebSockets)
#   WALLET_FILE  key file that pays; without it the client gets a new key
#   DP, TP, BATCH_SIZE  data parallelism, tensor parallelism and micro-batch size (1, 1, 1)
#   BIN, DIR     folders of the programs and of new keys (build/bin, build/solana)
set -euo pipefail

bin=${BIN:-build/bin}
dir=${DIR:-build/solana}
export RPC=${RPC:-http://127.0.0.1:8899}

wallet=${WALLET_FILE:-}
if [ -z "$wallet" ]; then
  mkdir -p "$dir"
  wallet=$dir/client-$$.json
  rm -f "$wallet"
  "$bin/psyche" keys new --output "$wallet"
fi
"$bin/psyche" chain airdrop 1 "$wallet" || echo "airdrop failed; send SOL to the key in $wallet" >&2
exec "$bin/psyche-client" train --run-id "${RUN_ID:-test}" --wallet-private-key-path "$wallet" \
  --data-parallelism "${DP:-1}" --tensor-parallelism "${TP:-1}" --micro-batch-size "${BATCH_SIZE:-1}" --logs console "$@"
