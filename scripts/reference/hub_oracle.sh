#!/usr/bin/env bash
# Checks package hub against the Hub's own libraries. Each library uploads a folder to the server of
# files/hub/hubtest, each other library downloads it, and they read each other's caches offline.
#
# Needs PYTHON with huggingface_hub (2.4.0) and NODE_PATH with @huggingface/hub (2.17.5). If one is
# missing, the script reports this and skips it.
#   PYTHON=venv/bin/python NODE_PATH=dir/node_modules scripts/reference/hub_oracle.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT

PYTHON=${PYTHON:-python3}
export NODE_PATH=${NODE_PATH:-$PWD/node_modules}
clients=(go)
if "$PYTHON" -c 'import huggingface_hub' 2>/dev/null; then clients+=(python); else echo "skipped: $PYTHON has no huggingface_hub"; fi
if [ -d "$NODE_PATH/@huggingface/hub" ] && command -v node >/dev/null; then clients+=(node); else echo "skipped: no @huggingface/hub in NODE_PATH"; fi

go build -o "$work/hubtest" ./files/hub/hubtest/cmd
go build -o "$work/transfer" ./files/hub/hubtest/transfer
"$work/hubtest" >"$work/address" & server=$!
for _ in $(seq 100); do [ -s "$work/address" ] && break; sleep 0.05; done
HF_ENDPOINT=$(cat "$work/address")
export HF_ENDPOINT HF_TOKEN=hf_write HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1

model=$work/model
mkdir -p "$model/original"
head -c 250000 /dev/urandom >"$model/model-00001-of-00002.safetensors" # uploaded in parts
head -c 70000 /dev/urandom >"$model/model-00002-of-00002.safetensors"  # uploaded in one piece
head -c 90000 /dev/urandom | base64 >"$model/tokenizer.json"           # large because of its size
echo '{"architectures":["LlamaForCausalLM"]}' >"$model/config.json"
echo '{}' >"$model/original/params.json"

run() { # client action repository [folder]
	case $1 in
	go) "$work/transfer" "${@:2}" ;;
	python) "$PYTHON" scripts/reference/hub_oracle.py "${@:2}" ;;
	node) node scripts/reference/hub_oracle.mjs "${@:2}" ;;
	esac
}
same() { diff -r --exclude=.gitattributes "$model" "$1"; }

for writer in "${clients[@]}"; do
	HF_HOME=$work/none run "$writer" upload "org/$writer" "$model" >/dev/null
	for reader in "${clients[@]}"; do
		export HF_HOME=$work/cache-$writer-$reader
		same "$(run "$reader" download "org/$writer" | tail -n 1)"
		echo "ok: $writer uploads, $reader downloads"
	done
done
for writer in "${clients[@]}"; do
	export HF_HOME=$work/cache-go-$writer
	same "$(HF_HUB_OFFLINE=1 run go download org/go)"
	echo "ok: go reads the cache of $writer offline"
	if [[ " ${clients[*]} " == *" python "* ]]; then
		same "$(HF_HUB_OFFLINE=1 run python offline org/go)"
		echo "ok: python reads the cache of $writer offline"
	fi
	if [[ " ${clients[*]} " == *" node "* ]]; then
		same "$(run node download org/go | tail -n 1)"
		echo "ok: node goes on with the cache of $writer"
	fi
done
