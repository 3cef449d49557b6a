#!/usr/bin/env bash
# Checks what building needs, installs what is missing when it may (Debian, root), and
# otherwise says exactly what to install. Does nothing, offline, when all is there.
set -euo pipefail

# As build-shim.sh takes it: the folder that holds include/, or the headers' own folder.
include=${LIBTORCH_INCLUDE:-${LIBTORCH:-/usr}}
[ -e "$include/include/ATen/ATen.h" ] && include=$include/include
missing=()

command -v g++ >/dev/null || missing+=("g++")
command -v gcc >/dev/null || missing+=("gcc")
if [ ! -e "$include/ATen/ATen.h" ]; then
  if [ -n "${LIBTORCH:-}${LIBTORCH_INCLUDE:-}" ]; then
    echo "setup: no libtorch headers in $include, which LIBTORCH or LIBTORCH_INCLUDE names: correct it, or unset it to use Debian's" >&2
    exit 1
  fi
  missing+=("libtorch-dev")
fi
# With a libtorch of one's own, that distribution brings a BLAS of its own.
if [ -z "${LIBTORCH:-}${LIBTORCH_LIB:-}" ] && ! compgen -G '/usr/lib/*/openblas-openmp/libopenblas.so.0' >/dev/null; then
  missing+=("libopenblas0-openmp")
fi

if ! command -v go >/dev/null; then
  echo "setup: Go is not on the PATH; install Go 1.26 or newer (https://go.dev/doc/install) and run make again" >&2
  exit 1
fi
version=$(go env GOVERSION | sed 's/^go//')
if [ "$(printf '%s\n' 1.26 "$version" | sort -V | head -n 1)" != 1.26 ]; then
  echo "setup: Go $version is too old; Psyche needs 1.26 or newer (https://go.dev/doc/install)" >&2
  exit 1
fi

[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing ${missing[*]}"
  if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
  fi
  echo "setup: apt-get could not install ${missing[*]}; see its message above" >&2
  exit 1
fi

cat >&2 <<TXT
setup: missing: ${missing[*]}
  On Debian or Ubuntu:    sudo apt-get install --no-install-recommends ${missing[*]}
  With your own libtorch: export LIBTORCH=/path/to/libtorch   (the folder that holds include/ and lib/)
TXT
exit 1
