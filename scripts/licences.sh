#!/usr/bin/env bash
# Prints the licences, notices and patent grants of the third-party code in one of this project's
# programs: Go itself, and the modules that are linked into the program. Each text is printed once,
# below the names of the modules that it applies to.
#
#   licences.sh ./cmd/psyche
#   CGO_ENABLED   as in the build of the program
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:?usage: licences.sh PACKAGE}

# folders prints FOLDER MODULE for each folder of a linked package, and for its parent folders up to
# the module's root.
folders() {
  printf '%s\tGo\n' "$(go env GOROOT)"
  go list -deps -f '{{with .Module}}{{if not .Main}}{{.Dir}}{{"\t"}}{{$.Dir}}{{"\t"}}{{.Path}} {{.Version}}{{end}}{{end}}' "$program" |
    awk -F'\t' 'NF { for (dir = $2; index(dir, $1) == 1; sub("/[^/]*$", "", dir)) print dir "\t" $3 }' | LC_ALL=C sort -u
}
# texts prints FILE MODULE for each text in these folders.
texts() {
  local known=$1
  cut -f1 <<<"$known" | tr '\n' '\0' |
    xargs -0 sh -c 'find "$@" -maxdepth 1 -type f -regextype posix-extended -iregex ".*/(un)?(licen[cs]e|copying|notice|patents|ofl)([-._][^/]*)?" ! -name "*.go" -printf "%h\t%p\n"' find |
    awk -F'\t' 'NR == FNR { of[$1] = $2; next } { print $2 "\t" of[$1] }' <(printf '%s\n' "$known") - | LC_ALL=C sort -u
}
list=$(texts "$(folders)" | LC_ALL=C sort -t"$(printf '\t')" -k2,2 -k1,1)
printf 'Third-party code in %s, with its licences\n' "$(basename "$program")"
while IFS=$'\t' read -r file module; do
  printf '%s\t%s\t%s\n' "$(sha256sum <"$file" | cut -d' ' -f1)" "$module" "$file"
done <<<"$list" | awk -F'\t' '
  !($1 in of) { order[++n] = $1; text[$1] = $3 }
  index(of[$1] "\n", "\n" $2 "\n") == 0 { of[$1] = of[$1] "\n" $2 }
  END {
    for (i = 1; i <= n; i++) {
      printf "\n%s%s\n\n", "================================================================", of[order[i]]
      while ((getline line < text[order[i]]) > 0) { sub(/\r$/, "", line); print line }
    }
  }'
