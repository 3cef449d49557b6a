#!/usr/bin/env bash
# Builds psyche twice, from copies of the commit in two folders and without a shared cache, and
# compares the bytes. They may depend only on the commit, the Go version and the platform.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
for copy in first the-second-one; do
  git clone -q . "$work/$copy"
  (cd "$work/$copy" && CGO_ENABLED=0 GOCACHE=$work/cache-$copy go build -trimpath -o "$work/psyche-$copy" ./cmd/psyche)
done
sha256sum "$work"/psyche-* | sed "s#$work/##"
cmp "$work/psyche-first" "$work/psyche-the-second-one"
echo "reproducible: both builds have the same bytes"
