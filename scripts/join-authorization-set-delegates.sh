#!/bin/sh
# Replaces the delegates of an authorized key in every run of a join authority.
# PSYCHE is the path of the program (default: build/bin/psyche). PSYCHE_PROGRAM_ID is the program on
# the chain.
set -eu

if [ $# -lt 3 ]; then
  echo "usage: $0 RPC JOIN_AUTHORITY AUTHORIZED_KEY_FILE [DELEGATE...]" >&2
  echo "  RPC is a URL, devnet, testnet, mainnet-beta or localnet; JOIN_AUTHORITY is a key in base58" >&2
  echo "  DELEGATE, a key file or a key in base58, may join for the authorized key" >&2
  exit 2
fi
scripts=$(dirname "$0")
rpc=$("$scripts/rpc-url.sh" "$1")
authority=$2
key=$3
shift 3
for delegate; do # each delegate becomes --delegates-added DELEGATE
  set -- "$@" --delegates-added "$delegate"
  shift
done
exec "${PSYCHE:-$scripts/../build/bin/psyche}" solana join-authorization-delegate --rpc "$rpc" \
  --join-authority "$authority" --wallet-private-key-path "$key" --delegates-clear "$@"
