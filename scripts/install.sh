#!/bin/sh
# Installs Psyche, or removes it. It needs no root, Go or libtorch:
#
#   curl -fsSL URL/install.sh | sh                      psyche, and psyche-client if it exists for this machine
#   curl -fsSL URL/install.sh | sh -s -- --help         the options
#
# The checksums, and with minisign or OpenSSL 3 their signature, are verified before an archive is unpacked.
# PSYCHE_RELEASES overrides the address of the releases: a folder with one folder vVERSION for each release.

# A shell reads the whole block before it runs the first command, so an incomplete download does nothing.
{
set -u
umask 022

# A release sets these values.
version=''
releases=''
public_key=''
client_glibc=''

say() { printf '%s\n' "$*"; }
fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

usage() {
  cat <<TEXT
Installs Psyche ${version:-(no version set)} for your user. Options:
  --prefix FOLDER       install into FOLDER/bin, FOLDER/lib and FOLDER/share (default: ~/.local)
  --version X           install version X
  --only PROGRAM        install only psyche or only psyche-client
  --require-signature   fail if no installed tool can verify the signature
  --uninstall           remove the installed files; keys, runs and models remain
  --help                print this text
TEXT
}

parse() {
  prefix=${HOME:-}/.local only='' strict=no uninstall=no
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix | --version | --only)
        [ $# -ge 2 ] && [ -n "$2" ] || fail "$1 needs a value; see --help"
        case $1 in --prefix) prefix=$2 ;; --version) version=${2#v} ;; --only) only=$2 ;; esac
        shift
        ;;
      --require-signature) strict=yes ;;
      --uninstall) uninstall=yes ;;
      --help | -h) usage; exit 0 ;;
      *) fail "unknown option $1; see --help" ;;
    esac
    shift
  done
  case $only in '' | psyche | psyche-client) ;; *) fail "--only $only: want psyche or psyche-client" ;; esac
  case $prefix in
    /.local) fail "HOME is not set; pass --prefix FOLDER" ;;
    /*) ;;
    *) prefix=$PWD/$prefix ;;
  esac
}

# platform sets the name of this machine's archives.
platform() {
  system=$(uname -s) machine=$(uname -m)
  case $system in
    Linux) system=linux ;;
    Darwin) system=darwin ;;
    *) fail "there is no installer for $system; on Windows, unpack the .zip of the release, elsewhere build from source (docs/install.md)" ;;
  esac
  case $machine in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "there are no archives for $system on $machine; build from source (docs/install.md)" ;;
  esac
}

# no_client prints why psyche-client cannot run here, or nothing.
no_client() {
  [ "$system-$machine" = linux-amd64 ] || {
    say "there is no archive of psyche-client for $system on $machine; build it from source (docs/install.md)"
    return
  }
  [ -n "$client_glibc" ] || return 0
  found=$({ getconf GNU_LIBC_VERSION || ldd --version; } 2>/dev/null | sed -n '1s/.* 2\.\([0-9][0-9]*\).*/\1/p')
  [ -n "$found" ] || {
    say "psyche-client needs glibc $client_glibc, and this system has another C library; build it from source (docs/install.md)"
    return
  }
  [ "$found" -ge "${client_glibc#2.}" ] ||
    say "psyche-client needs glibc $client_glibc, and this system has 2.$found; upgrade the system, or build it from source (docs/install.md)"
}

check_tools() {
  for tool in tar gzip sed grep tail dd mktemp; do
    have "$tool" || fail "$tool is missing; install it and run this line again"
  done
  have curl || have wget || fail "curl and wget are missing; install one of them and run this line again"
  have sha256sum || have shasum || have openssl || fail "no tool computes SHA-256; install sha256sum, shasum or openssl and run this line again"
}

# fetch FILE [FLAG]: downloads a file of the release into the temporary folder. The flag of curl sets the display.
fetch() {
  url=$releases/v$version/$1
  if have curl; then
    curl -fL "${2:--sS}" --retry 3 --connect-timeout 30 -o "$temp/$1" "$url" || broken "$url" $?
  else
    wget -q -T 30 -O "$temp/$1" "$url" || broken "$url" $?
  fi
}

broken() { fail "cannot download $1 (exit code $2); check the version, the address and the connection, and run this line again. Nothing was installed"; }

sha256() {
  if have sha256sum; then
    sha256sum <"$1" | cut -c 1-64
  elif have shasum; then
    shasum -a 256 <"$1" | cut -c 1-64
  else
    openssl dgst -sha256 -r <"$1" | cut -c 1-64
  fi
}

# verify_signature checks the signature of SHA256SUMS with the first suitable tool.
verify_signature() {
  [ -n "$public_key" ] || {
    [ "$strict" = no ] || fail "this installer contains no public key, so it cannot verify a signature; get install.sh from a signed release"
    say "This release is not signed. Only the checksums are verified."
    return
  }
  fetch SHA256SUMS.minisig
  if have minisign; then
    minisign -V -q -P "$public_key" -m "$temp/SHA256SUMS" -x "$temp/SHA256SUMS.minisig" || forged
  elif openssl version 2>/dev/null | grep -q '^OpenSSL [3-9]\.'; then
    with_openssl || forged
  else
    [ "$strict" = no ] || fail "no tool can verify the signature; install minisign or OpenSSL 3 and run this line again"
    say "Warning: the signature is not verified, because minisign and OpenSSL 3 are missing. Only the checksums are verified."
    return
  fi
  say "The signature of SHA256SUMS is valid."
}

forged() { fail "the signature of SHA256SUMS is wrong: the files are not from the owner of the key $public_key. Nothing was installed; report this to the maintainers"; }

# with_openssl verifies minisign's current format: an Ed25519 signature of the file's BLAKE2b-512 hash. It does not read
# the comment, which has a second signature: the files' names contain the version.
with_openssl() {
  sed -n 2p "$temp/SHA256SUMS.minisig" | openssl base64 -d -A >"$temp/signature" || return 1
  say "$public_key" | openssl base64 -d -A >"$temp/key" || return 1
  [ "$(wc -c <"$temp/signature")" -eq 74 ] && [ "$(wc -c <"$temp/key")" -eq 42 ] || return 1
  [ "$(dd if="$temp/signature" bs=1 count=2 2>/dev/null)" = ED ] || return 1
  # The bytes before the key say that it is an Ed25519 key.
  { printf '\060\052\060\005\006\003\053\145\160\003\041\000' && tail -c 32 "$temp/key"; } >"$temp/key.der"
  tail -c 64 "$temp/signature" >"$temp/signature.raw"
  openssl dgst -blake2b512 -binary <"$temp/SHA256SUMS" >"$temp/hash" &&
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$temp/key.der" -rawin -in "$temp/hash" -sigfile "$temp/signature.raw" >/dev/null 2>&1
}

# unpack PROGRAM: downloads, verifies and unpacks a program's archive.
unpack() {
  folder=$1-$version-$system-$machine
  archive=$folder.tar.gz
  want=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$temp/SHA256SUMS")
  [ ${#want} -eq 64 ] || fail "SHA256SUMS of version $version does not list $archive; choose another --version, or build from source (docs/install.md)"
  say "Downloading $archive"
  if [ -t 2 ]; then fetch "$archive" -#; else fetch "$archive"; fi
  found=$(sha256 "$temp/$archive")
  [ "$found" = "$want" ] ||
    fail "$archive is damaged or was changed: its SHA-256 is $found, want $want. Nothing was installed; run this line again, and report it to the maintainers if it fails again"
  tar -tzf "$temp/$archive" >"$temp/$1.names" || fail "$archive: tar cannot read the archive"
  if grep -v "^$folder/" "$temp/$1.names" || grep -E '(^|/)\.\.(/|$)' "$temp/$1.names"; then
    fail "$archive contains these files outside its folder. Nothing was installed; report this to the maintainers"
  fi
  tar -xzf "$temp/$archive" -C "$temp" || fail "$archive: cannot unpack into $temp; check the free space"
  sed "s#^$folder/##" "$temp/$1.names" | grep -v -E '(^|/)$' >"$temp/$1.list"
}

# place PROGRAM: moves a program's files into the prefix, the executable last, and removes files of its previous version.
place() {
  from=$temp/$1-$version-$system-$machine
  list=$prefix/lib/psyche/$1.files
  mkdir -p "$prefix/lib/psyche" || fail "cannot create $prefix/lib/psyche; choose another --prefix"
  { grep -v '^bin/' "$temp/$1.list"; grep '^bin/' "$temp/$1.list"; } >"$temp/$1.ordered"
  while IFS= read -r name; do
    mkdir -p "$prefix/$(dirname "$name")" && mv -f "$from/$name" "$prefix/$name" || fail "cannot write $prefix/$name; check its permissions, and run this line again"
  done <"$temp/$1.ordered"
  if [ -e "$list" ]; then
    grep -v -x -F -f "$temp/$1.list" "$list" >"$temp/$1.old"
    remove "$temp/$1.old"
  fi
  mv -f "$temp/$1.list" "$list" || fail "cannot write $list; check its permissions, and run this line again"
}

# remove LIST: removes listed files, and folders that are then empty.
remove() {
  while IFS= read -r name; do
    case /$name/ in */../*) continue ;; esac
    rm -f "$prefix/$name" || fail "cannot remove $prefix/$name; check its permissions, and run this line again"
    folder=$(dirname "$name")
    while [ "$folder" != . ] && [ "$folder" != bin ] && rmdir "$prefix/$folder" 2>/dev/null; do folder=$(dirname "$folder"); done
  done <"$1"
}

remove_all() {
  removed=no
  for program in psyche psyche-client; do
    list=$prefix/lib/psyche/$program.files
    [ -z "$only" ] || [ "$only" = "$program" ] || continue
    [ -e "$list" ] || continue
    remove "$list"
    rm -f "$list" && removed=yes
    say "Removed $program from $prefix"
  done
  rmdir "$prefix/lib/psyche" "$prefix/lib" 2>/dev/null
  [ "$removed" = yes ] || fail "$prefix contains no installation by this script; pass its --prefix"
}

# clean removes temporary folders of installers that were killed: folders older than a day, and folders of this machine
# whose process is gone. Other machines and other users may share the prefix: kill does not find the processes of other
# users, whose folders are not writable.
clean() {
  for old in "$prefix/.psyche-install."*; do
    [ -d "$old" ] && [ -w "$old" ] || continue
    process=${old%.*} # the name is .psyche-install.MACHINE.PROCESS.RANDOM
    if [ "${process%.*}" = "$prefix/.psyche-install.$(uname -n)" ] && ! kill -0 "${process##*.}" 2>/dev/null; then
      rm -rf "$old"
    elif [ -n "$(find "$old" -prune -mtime +0 2>/dev/null)" ]; then
      rm -rf "$old"
    fi
  done
}

report() {
  say "Installed version $version of$programs in $prefix/bin"
  case :$PATH: in
    *:"$prefix/bin":*) ;;
    *)
      say ""
      say "Your shell does not search that folder yet. Run this line, and add it to ~/.profile or your shell's settings:"
      say "  export PATH=\"$prefix/bin:\$PATH\""
      ;;
  esac
  say ""
  say "Next:"
  case $programs in
    *psyche-client*)
      say "  psyche-client doctor               check this machine"
      say "  psyche-client join 'psyche://...'   join a run, with the link from its host"
      ;;
  esac
  case "$programs " in *' psyche '*) say "  psyche host FOLDER                 train a model on your text, and invite friends" ;; esac
}

main() {
  parse "$@"
  if [ "$uninstall" = yes ]; then
    remove_all
    return
  fi
  releases=${PSYCHE_RELEASES:-$releases}
  releases=${releases%/}
  [ -n "$releases" ] || fail "no address to download from; set PSYCHE_RELEASES to the address of the releases"
  case $version in
    '') fail "no version; pass --version X, or get install.sh from a release" ;;
    *[!0-9A-Za-z.+-]*) fail "--version $version: want a version such as 0.1.0" ;;
  esac
  check_tools
  platform
  programs=" ${only:-psyche psyche-client}"
  case $programs in
    *psyche-client)
      reason=$(no_client)
      [ -z "$reason" ] || [ -z "$only" ] || fail "$reason"
      [ -z "$reason" ] || { say "Only psyche is installed: $reason" && programs=' psyche'; }
      ;;
  esac
  mkdir -p "$prefix" || fail "cannot create $prefix; choose another --prefix"
  clean
  # Within the prefix, so that each file's move into place is atomic.
  temp=$(mktemp -d "$prefix/.psyche-install.$(uname -n).$$.XXXXXX") || fail "cannot write to $prefix; choose another --prefix"
  trap 'rm -rf "$temp"' EXIT
  trap 'exit 1' HUP INT TERM
  fetch SHA256SUMS
  verify_signature
  for program in $programs; do unpack "$program"; done
  for program in $programs; do place "$program"; done
  report
}

main "$@"
exit 0
}
