#!/usr/bin/env bash
# Checks the build dependencies. It installs missing ones if it can (Debian, root), and otherwise
# prints exactly what to install. If nothing is missing, it does nothing and needs no network.
set -euo pipefail

# Like build-shim.sh, accepts the folder that contains include/, or the headers' own folder.
include=${LIBTORCH_INCLUDE:-${LIBTORCH:-/usr}}
[ -e "$include/include/ATen/ATen.h" ] && include=$include/include
missing=()

command -v g++ >/dev/null || missing+=("g++")
command -v gcc >/dev/null || missing+=("gcc")
if [ ! -e "$include/ATen/ATen.h" ]; then
  if [ -n "${LIBTORCH:-}${LIBTORCH_INCLUDE:-}" ]; then
    echo "setup: no libtorch headers in $include, set by LIBTORCH or LIBTORCH_INCLUDE; correct the variable, or unset it to use Debian's libtorch" >&2
    exit 1
  fi
  missing+=("libtorch-dev")
fi
# A custom libtorch brings its own BLAS.
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
  With your own libtorch: export LIBTORCH=/path/to/libtorch   (the folder that contains include/ and lib/)
TXT
exit 1
