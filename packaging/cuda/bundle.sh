#!/usr/bin/env bash
# Makes an archive of the client for CUDA: the program, the shim, a libtorch for CUDA, and all licences. It runs on Linux
# on x86-64 with the C library of the build system or newer, and NVIDIA's driver. The archive depends only on the files
# and on the time in SOURCE_DATE_EPOCH.
#
#   packaging/cuda/bundle.sh SITE CLIENT SHIM LICENCES OUTPUT.tar.gz
#
#   SITE      folder made by scripts/libtorch-cuda.sh
#   CLIENT    psyche-client
#   SHIM      shim for SITE/torch, built with SHIM_RPATH='$ORIGIN/libtorch'
#   LICENCES  list of the licences of the client's code
set -euo pipefail

site=${1:?} client=${2:?} shim=${3:?} licences=${4:?} output=${5:?}
root=$(cd "$(dirname "$0")/../.." && pwd)
name=$(basename "$output" .tar.gz)
fail() { printf 'bundle: %s\n' "$@" >&2; exit 1; }

mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")
work=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$work"' EXIT
top=$work/$name libraries=$work/$name/lib/psyche/libtorch doc=$work/$name/share/doc/psyche-client
mkdir -p "$top/bin" "$libraries" "$doc/libraries"
install -m 755 "$client" "$top/bin/psyche-client"
install -m 644 "$shim" "$top/lib/psyche/libpsyche_torch.so"
install -m 644 "$root/LICENSE" "$root/NOTICE" "$doc"
install -m 644 "$licences" "$doc/licences.txt"

# All libraries are in one folder, in which each of them searches first. The libraries for Python are left out.
while IFS= read -r file; do
  case $(basename "$file") in
  libtorch_python.so* | libtorch_global_deps.so* | libshm.so* | *.alt.so*) continue ;;
  esac
  [ ! -e "$libraries/$(basename "$file")" ] || fail "two libraries have the name $(basename "$file")"
  install -m 644 "$file" "$libraries"
done < <(find "$site/torch/lib" "$site/nvidia" -name '*.so*' -type f | sort)
while IFS= read -r file; do
  package=$(basename "${file%%.dist-info/*}")
  mkdir -p "$doc/libraries/$package"
  install -m 644 "$file" "$doc/libraries/$package"
done < <(find "$site" -path '*.dist-info/*' \( -iname 'licen[cs]e*' -o -iname 'notice*' -o -iname 'copying*' -o -iname 'eula*' \) -type f | sort)
for package in "$site"/*.dist-info; do
  [ -n "$(ls -A "$doc/libraries/$(basename "${package%.dist-info}")" 2>/dev/null)" ] || fail "$package contains no licence"
done

# Each needed library must be in the archive, or belong to the C library, the compiler or the driver.
missing=$(for file in "$top/lib/psyche/libpsyche_torch.so" "$libraries"/*; do
  readelf -d "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'
done | sort -u | while IFS= read -r needed; do
  case $needed in
  ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libutil.so* | libresolv.so* | libstdc++.so* | libgcc_s.so* | libcuda.so.1 | libnvidia-ml.so.1) ;;
  # Transports of NVSHMEM and NCCL between machines, which Psyche does not use.
  libibverbs.so* | libmlx5.so* | libmpi.so* | liboshmem.so* | libucp.so* | libucs.so* | libfabric.so* | libpmix.so* | librdmacm.so* | libnl-*) ;;
  *) [ -e "$libraries/$needed" ] || echo "$needed" ;;
  esac
done)
[ -z "$missing" ] || fail "these libraries are needed, but are not in $site:" "$missing"

(cd "$top" && find . -type f -print0 | sort -z | xargs -0 sha256sum >"$work/sums" && mv "$work/sums" share/doc/psyche-client/SHA256SUMS)
tar -C "$work" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w -cf - "$name" | gzip -n >"$work/archive"
mv "$work/archive" "$output"
echo "bundle: $output, $(du -h "$output" | cut -f 1), $(du -sh "$top" | cut -f 1) unpacked"
