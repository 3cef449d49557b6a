#!/bin/sh
# Prints the RPC address of a Solana chain. Usage: rpc-url.sh URL|devnet|testnet|mainnet-beta|localnet
set -eu

case ${1:?"usage: rpc-url.sh URL|devnet|testnet|mainnet-beta|localnet"} in
  devnet | testnet | mainnet-beta) echo "https://api.$1.solana.com" ;;
  mainnet) echo "https://api.mainnet-beta.solana.com" ;;
  localnet | localhost) echo "http://127.0.0.1:8899" ;;
  http://* | https://*) echo "$1" ;;
  *)
    echo "$1: want a URL, devnet, testnet, mainnet-beta or localnet" >&2
    exit 2
    ;;
esac
