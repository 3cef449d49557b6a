#!/usr/bin/env bash
# Installs a libtorch for CUDA into a folder, from the files that packaging/cuda/requirements.txt lists with their
# SHA-256: the package torch of the PyTorch project, and NVIDIA's libraries. The download has 2.5 GB. The script installs
# nothing outside the folder, and does nothing if the folder has these files.
#
#   scripts/libtorch-cuda.sh FOLDER       then: export LIBTORCH=FOLDER/torch
#
#   PYTHON   Python with pip 20.3 or newer; its version does not matter (python3)
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:?usage: scripts/libtorch-cuda.sh FOLDER} python=${PYTHON:-python3} list=packaging/cuda/requirements.txt
fail() { printf 'libtorch-cuda: %s\n' "$@" >&2; exit 1; }

stamp=$(sha256sum <"$list")
if [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
"$python" -m pip --version >/dev/null 2>&1 || fail "no pip ($python)" "  Debian, Ubuntu: sudo apt-get install python3-pip"

# The files are for Python 3.11. Without these flags, pip looks for files of its own Python, which have other hashes.
platforms=()
for name in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_18 manylinux2014 manylinux_2_17 manylinux2010 manylinux_2_12 manylinux1 manylinux_2_5; do
  platforms+=(--platform "${name}_x86_64")
done
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "libtorch-cuda: installing into $folder"
"$python" -m pip install --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --python-version 3.11 --implementation cp "${platforms[@]}" \
  --require-hashes --requirement "$list" --target "$work/site" ||
  fail "pip could not install the files of $list"
echo "$stamp" >"$work/site/.stamp"
rm -rf "$folder"
mv "$work/site" "$folder"
