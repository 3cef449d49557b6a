#!/usr/bin/env bash
# Builds build/lib/libpsyche_torch.so, the C++ shim between Go and libtorch, if its sources, the
# flags or the libtorch have changed since the last build.
#
#   LIBTORCH            folder with include/ and lib/; default: Debian's libtorch-dev in /usr
#   LIBTORCH_INCLUDE    folder with include/, if it is elsewhere
#   LIBTORCH_LIB        folder with lib/, if it is elsewhere
#   LIBTORCH_CXX11_ABI  0 or 1; default: the library's own setting
#   CXX                 compiler, default g++
#   SHIM                output file, default build/lib/libpsyche_torch.so
#   SHIM_FOLDER         folder of the sources, default learn/torch/shim; tests build another library
#   SHIM_RPATH          folder in which the shim, and all libraries that it loads, search first when
#                       they are loaded, such as $ORIGIN/libtorch; default: the folder of libtorch, for the shim only
set -euo pipefail
cd "$(dirname "$0")/.."

out=${SHIM:-build/lib/libpsyche_torch.so}
folder=${SHIM_FOLDER:-learn/torch/shim}
cxx=${CXX:-g++}
fail() { printf 'build-shim: %s\n' "$@" >&2; exit 1; }

command -v "$cxx" >/dev/null || fail "no C++ compiler ($cxx)" "  Debian, Ubuntu: sudo apt-get install g++"

# tch-rs and other projects use LIBTORCH_INCLUDE for the folder that contains include/. Accept the
# headers' own folder too.
include=${LIBTORCH_INCLUDE:-${LIBTORCH:-/usr}}
[ -e "$include/include/ATen/ATen.h" ] && include=$include/include
[ -e "$include/ATen/ATen.h" ] || fail "no libtorch headers ($include/ATen/ATen.h)" \
  "  Debian, Ubuntu: sudo apt-get install libtorch-dev" \
  "  elsewhere:      export LIBTORCH=/path/to/libtorch   (the folder that contains include/ and lib/)"

candidates=()
if [ -n "${LIBTORCH_LIB:-}" ]; then candidates+=("$LIBTORCH_LIB/lib" "$LIBTORCH_LIB"); fi
if [ -n "${LIBTORCH:-}" ]; then candidates+=("$LIBTORCH/lib"); fi
if [ ${#candidates[@]} -eq 0 ]; then
  candidates+=("/usr/lib/$("$cxx" -print-multiarch 2>/dev/null || true)" /usr/lib64 /usr/lib)
fi
lib=
for dir in "${candidates[@]}"; do
  if [ -e "$dir/libtorch_cpu.so" ]; then lib=$dir; break; fi
done
[ -n "$lib" ] || fail "no libtorch_cpu.so in ${candidates[*]}" \
  "  Debian, Ubuntu: sudo apt-get install libtorch-dev" \
  "  elsewhere:      export LIBTORCH=/path/to/libtorch or LIBTORCH_LIB=/path/to/its/lib"

abi=${LIBTORCH_CXX11_ABI:-}
if [ -z "$abi" ]; then
  abi=0
  grep -q -a 'c105ErrorC1ENS_14SourceLocationENSt7__cxx11' "$lib/libc10.so" && abi=1
fi

# The C++ standard that libtorch's headers require.
std=c++17
grep -q 'C++20 or later' "$include/ATen/ATen.h" && std=c++20

# at::parallel_for is in libtorch's headers, and is a plain loop without OpenMP. The OpenMP library
# is not linked, because the shim must use libtorch's. GCC's OpenMP library cannot run clang's code.
openmp=-fopenmp
case "$("$cxx" --version)" in *clang*) openmp=-fopenmp-simd ;; esac

flags=("-std=$std" -O3 "$openmp" -fno-math-errno -fno-trapping-math -fPIC -fvisibility=hidden -Wall -Ilearn/torch -isystem "$include/torch/csrc/api/include"
  "-D_GLIBCXX_USE_CXX11_ABI=$abi")
# Adding the compiler's default include folder again would change the search order.
[ "$include" -ef /usr/include ] || flags+=(-isystem "$include")
rpath=("-Wl,-rpath,$lib")
# Only the older of the linker's two tags applies to the libraries of libraries.
[ -z "${SHIM_RPATH:-}" ] || rpath=("-Wl,--disable-new-dtags,-rpath,$SHIM_RPATH")
link=(-shared "-L$lib" "${rpath[@]}" -ltorch_cpu -lc10)
# The CUDA library registers itself when it is loaded. No code refers to it by name.
[ -e "$lib/libtorch_cuda.so" ] && link+=(-Wl,--no-as-needed -ltorch_cuda)

sources=("$folder"/*.cc)
stamp=$({
  echo "$cxx ${flags[*]} ${link[*]}"
  "$cxx" --version
  cat "${sources[@]}" "$folder"/*.h learn/torch/abi.h learn/torch/cuda/pieces.h "$include/torch/csrc/api/include/torch/version.h"
  stat -L -c '%n %s %Y' "$lib/libtorch_cpu.so" "$lib/libc10.so"
} | sha256sum | cut -d' ' -f1)
if [ -e "$out" ] && [ "$(cat "$out.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi

mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "build-shim: compiling $out against libtorch in $lib; the first build takes half a minute"
# libtorch's headers take most of the compile time, so all sources that include them are compiled as
# one. kernels.cc does not. Relative names keep the folder of the sources out of the shim.
units=("$work/torch.cc")
for source in "${sources[@]}"; do
  if [ "${source##*/}" = kernels.cc ]; then units+=("$source"); else printf '#include "%s"\n' "$source" >>"$work/torch.cc"; fi
done
printf '%s\n' "${units[@]}" |
  xargs -P "$(nproc)" -I{} sh -c 'cxx=$1; shift; src=$1; shift; work=$1; shift; exec "$cxx" -I. "$@" -c "$src" -o "$work/$(basename "$src").o"' \
    compile "$cxx" {} "$work" "${flags[@]}" ||
  fail "the shim does not compile against $include (its message is above); Psyche is tested with libtorch 1.13, 2.6 and 2.15"
"$cxx" "$work"/*.o "${link[@]}" -o "$work/shim.so"
mv -f "$work/shim.so" "$out"
echo "$stamp" >"$out.stamp"
