#!/usr/bin/env bash
# Fuzzes every decoder of the project, one after another.
#
#   scripts/fuzz.sh [TIME] [PACKAGE...]     TIME as go test takes it, 60s unless given
#
# A crash ends with exit status 1; go test leaves the input in the package's
# testdata/fuzz, where it is a test from then on. FUZZ_KEEP=N copies, for each target,
# up to N of the smallest inputs that reached new code into testdata/fuzz.
# FUZZ_PARALLEL is the number of processes a target fuzzes with. Inputs are made smaller
# only a little (-fuzzminimizetime): else that alone can take a target's whole time.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-60s}
shift || true
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then packages=(./...); fi
parallel=${FUZZ_PARALLEL:-$(nproc)}
cache=$(go env GOCACHE)/fuzz

# keep PACKAGE DIRECTORY TARGET: what the fuzzer found worth keeping becomes seeds.
keep() {
	local found="$cache/$1/$3" seeds="$2/testdata/fuzz/$3"
	[ "${FUZZ_KEEP:-0}" -gt 0 ] && [ -d "$found" ] || return 0
	mkdir -p "$seeds"
	find "$found" -type f -size -16k -printf '%s %f\n' | sort -n | sed -n "1,${FUZZ_KEEP}p" |
		while read -r _ name; do cp -n "$found/$name" "$seeds/$name"; done
}

failed=0 count=0
while read -r directory package; do
	targets=$(cd "$directory" && grep -hoE '^func Fuzz[A-Za-z0-9_]*' ./*_test.go 2>/dev/null | sed 's/^func //' || true)
	for target in $targets; do
		count=$((count + 1))
		log=$(mktemp)
		if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel "$parallel" "$package" >"$log" 2>&1; then
			printf 'ok    %-55s %s\n' "${package#*/psyche/}.$target" "$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1)"
			keep "$package" "$directory" "$target"
		else
			printf 'FAIL  %s.%s\n' "$package" "$target"
			cat "$log"
			failed=1
		fi
		rm -f "$log"
	done
done < <(go list -f '{{.Dir}} {{.ImportPath}}' "${packages[@]}")
printf '%d targets, %s each\n' "$count" "$time"
exit "$failed"
