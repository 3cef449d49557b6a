#!/usr/bin/env bash
# Builds twice, from copies of the commit in two folders and without a shared cache, and compares
# the bytes. They may depend only on the commit, the Go version and the platform; those of the client
# and of packages also on the C compiler and libtorch of this machine.
#
#   reproducible.sh                      psyche
#   reproducible.sh --release FLAG...    a release; flags of tools/release build, such as -deb=false
#   SHARED_CACHE=1                       share compiled packages: quicker, but checks only the other steps
set -euo pipefail
cd "$(dirname "$0")/.."

release=no
if [ "${1:-}" = --release ]; then
  release=yes
  shift
fi
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
for copy in first the-second-one; do
  git clone -q . "$work/$copy"
  [ -n "${SHARED_CACHE:-}" ] || export GOCACHE=$work/cache-$copy
  if [ "$release" = yes ]; then
    go -C "$work/$copy/tools" run ./release build -out "$work/release-$copy" "$@"
    cp "$work/release-$copy/SHA256SUMS" "$work/psyche-$copy"
  else
    (cd "$work/$copy" && CGO_ENABLED=0 go build -trimpath -o "$work/psyche-$copy" ./cmd/psyche)
  fi
done
if [ "$release" = yes ]; then cat "$work/psyche-first"; else sha256sum "$work"/psyche-* | sed "s#$work/##"; fi
diff "$work/psyche-first" "$work/psyche-the-second-one"
echo "reproducible: both builds have the same bytes"
