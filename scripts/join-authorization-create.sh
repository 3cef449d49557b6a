#!/bin/sh
# Authorizes a key to join every run of a join authority, also later ones. PSYCHE is the path of the
# program (default: build/bin/psyche). PSYCHE_PROGRAM_ID is the program on the chain.
set -eu

if [ $# -ne 3 ]; then
  echo "usage: $0 RPC JOIN_AUTHORITY_KEY_FILE KEY" >&2
  echo "  RPC is a URL, devnet, testnet, mainnet-beta or localnet; KEY, in base58 or as a key file, may join" >&2
  exit 2
fi
scripts=$(dirname "$0")
rpc=$("$scripts/rpc-url.sh" "$1")
exec "${PSYCHE:-$scripts/../build/bin/psyche}" solana join-authorization-create --rpc "$rpc" \
  --wallet-private-key-path "$2" --authorizer "$3"
