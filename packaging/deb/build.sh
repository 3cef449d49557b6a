#!/usr/bin/env bash
# Builds psyche_VERSION_ARCH.deb (static: server, tools, dashboard) and
# psyche-client_VERSION_ARCH.deb (trains, with the libtorch of this system) from the output of `make
# build manual`.
#
#   build.sh FOLDER      output folder
#   VERSION              default: the next version with the commit's date and hash, which sorts before that version
#   DEBFULLNAME, DEBEMAIL   maintainer of the packages
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:?usage: build.sh FOLDER}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=${VERSION:-$(sed 's/-/~/' cmd/internal/buildinfo/VERSION)~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d)+$(git rev-parse --short=10 HEAD)}
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-Psyche} <${DEBEMAIL:-psyche-go@users.noreply.github.com}>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$out" "$work/all"
make -s install DESTDIR="$work/all" prefix=/usr unitdir=/lib/systemd/system >/dev/null

# take PACKAGE PATH...: moves installed files into a package.
take() {
  local package=$1 path
  shift
  for path in "$@"; do
    mkdir -p "$work/$package/$(dirname "$path")"
    mv "$work/all/$path" "$work/$package/$path"
  done
}
for program in psyche psyche-client; do
  take "$program" "usr/bin/$program" "usr/share/man/man1/$program.1" "usr/share/bash-completion/completions/$program" \
    "usr/share/zsh/vendor-completions/_$program" "usr/share/fish/vendor_completions.d/$program.fish" \
    "usr/share/doc/$program/licences.txt" "usr/share/doc/$program/NOTICE"
  rm "$work/all/usr/share/doc/$program/LICENSE" # Debian provides it
done
take psyche usr/lib/psyche/verifier.wasm.gz usr/lib/psyche/wasm_exec.js usr/bin/psyche-centralized-server usr/bin/psyche-centralized-local-testnet usr/bin/psyche-solana-client \
  lib/systemd/system/psyche-server.service lib/systemd/system/psyche-data-server.service etc/psyche/server.env etc/psyche/data-server.env
take psyche-client usr/bin/psyche-centralized-client usr/lib/psyche lib/systemd/system/psyche-client.service etc/psyche/client.env
left=$(find "$work/all" -type f -o -type l)
[ -z "$left" ] || { printf 'build.sh: these files are in no package:\n%s\n' "$left" >&2; exit 1; }

# Finds the libraries of the client's program and the shim. dpkg-shlibdeps requires a
# debian/control.
mkdir -p "$work/shlibs/debian"
printf 'Source: psyche\n\nPackage: psyche-client\nArchitecture: any\n' >"$work/shlibs/debian/control"
libraries=$(cd "$work/shlibs" && dpkg-shlibdeps -O --ignore-missing-info ../psyche-client/usr/bin/psyche-client ../psyche-client/usr/lib/psyche/libpsyche_torch.so 2>/dev/null | sed 's/^shlibs:Depends=//')

# control PACKAGE DEPENDS SUMMARY LONG
control() {
  local root=$work/$1 program=$1
  mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
  chmod 640 "$root"/etc/psyche/*.env
  find "$root/usr/bin" "$root/usr/lib" -type f \( -perm -u+x -o -name '*.so' \) -exec strip --strip-unneeded --remove-section=.comment --remove-section=.note {} + 2>/dev/null || true
  sed -e "s/@PACKAGE@/$1/" packaging/deb/copyright >"$root/usr/share/doc/$1/copyright"
  gzip -9n "$root/usr/share/doc/$1/NOTICE" "$root/usr/share/doc/$1/licences.txt"
  printf '%s (%s) unstable; urgency=medium\n\n  * Built from commit %s.\n\n -- %s  %s\n' \
    psyche "$version" "$(git rev-parse HEAD)" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$root/usr/share/doc/$1/changelog.gz"
  gzip -9n "$root/usr/share/man/man1/$program.1"
  (cd "$root/usr/bin" && find . -type l -printf '%f\n') | while read -r name; do ln -s "$program.1.gz" "$root/usr/share/man/man1/$name.1.gz"; done
  install -D -m 644 "packaging/deb/$1.lintian-overrides" "$root/usr/share/lintian/overrides/$1"
  (cd "$root" && find etc -type f | sed 's#^#/#') >"$root/DEBIAN/conffiles"
  for script in postinst prerm postrm; do
    sed "s/@UNITS@/$(cd "$root/lib/systemd/system" && echo *.service)/" "packaging/deb/$script" >"$root/DEBIAN/$script"
    chmod 755 "$root/DEBIAN/$script"
  done
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$1" "$version" "$arch" "$maintainer"
    printf 'Installed-Size: %s\n' "$(du -k -s --exclude=DEBIAN "$root" | cut -f1)"
    printf 'Section: science\nPriority: optional\n%sDescription: %s\n%s\n' "${2:+Depends: $2$'\n'}" "$3" "$4"
  } >"$root/DEBIAN/control"
  (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$out" >/dev/null
}
control psyche "" "host of decentralised training runs" \
" Coordinates runs that train a language model together over the internet:
 server, data server, administration, audit, local test networks and a page
 that shows runs in a browser. A static program without dependencies."
control psyche-client "$libraries, libopenblas0-openmp | libopenblas0 | libblas3" "member of decentralised training runs" \
" Joins a run and trains its language model together with others over the
 internet; also trains alone, measures models and generates text. It computes
 with the libtorch of the system."
ls -l "$out"/*_"$version"_*.deb
