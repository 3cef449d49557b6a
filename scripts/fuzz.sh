#!/usr/bin/env bash
# Fuzzes every decoder of the project, one after another.
#
#   scripts/fuzz.sh [TIME] [PACKAGE...]                TIME in the format of go test; default 60s
#   scripts/fuzz.sh --rotate N [TIME] [PACKAGE...]     only N targets, which change with each commit
#
# If an input crashes a target, the script prints the input and exits with status 1. go test also
# writes the input to the package's testdata/fuzz, where it becomes a test. FUZZ_KEEP=N copies, for
# each target, up to N of the smallest inputs that reached new code into testdata/fuzz.
# FUZZ_PARALLEL is the number of processes that fuzz a target. Inputs are minimised only briefly
# (-fuzzminimizetime), because minimising can otherwise take a target's whole time.
#
# With --rotate, turn n fuzzes targets n*N+1 to n*N+N, and continues with the first target after the
# last. The turn is FUZZ_TURN, or the number of commits. In a shallow clone, or without git, it is
# the number of days since 1970. After FUZZ_WITHIN seconds no further target starts; 0 means no
# limit.
set -euo pipefail
cd "$(dirname "$0")/.."

rotate=0
if [ "${1:-}" = --rotate ]; then
	rotate=${2:?"--rotate takes the number of targets"}
	shift 2
fi
time=${1:-60s}
shift || true
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then packages=(./...); fi
parallel=${FUZZ_PARALLEL:-$(nproc)}
cache=$(go env GOCACHE)/fuzz

# keep PACKAGE DIRECTORY TARGET: copies the fuzzer's useful inputs to the seeds.
keep() {
	local found="$cache/$1/$3" seeds="$2/testdata/fuzz/$3"
	[ "${FUZZ_KEEP:-0}" -gt 0 ] && [ -d "$found" ] || return 0
	mkdir -p "$seeds"
	find "$found" -type f -size -16k -printf '%s %f\n' | sort -n | sed -n "1,${FUZZ_KEEP}p" |
		while read -r _ name; do cp -n "$found/$name" "$seeds/$name"; done
}

# targets prints DIRECTORY PACKAGE TARGET for each target, ordered by package and name.
targets() {
	local directory package target
	go list -f '{{.Dir}} {{.ImportPath}}' "${packages[@]}" | while read -r directory package; do
		{ grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$directory"/*_test.go 2>/dev/null || true; } | sed 's/^func //' | sort |
			while read -r target; do printf '%s %s %s\n' "$directory" "$package" "$target"; done
	done
}

# turn prints the turn number for --rotate.
turn() {
	if [ -n "${FUZZ_TURN:-}" ]; then
		echo "$FUZZ_TURN"
	elif [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
		git rev-list --count HEAD
	else
		echo $(($(date +%s) / 86400))
	fi
}

mapfile -t all < <(targets)
chosen=("${all[@]}")
if [ "$rotate" -gt 0 ] && [ "$rotate" -lt ${#all[@]} ]; then
	turn=$(turn)
	first=$((turn * rotate % ${#all[@]}))
	chosen=()
	for ((i = first; i < first + rotate; i++)); do chosen+=("${all[i % ${#all[@]}]}"); done
	printf 'turn %d: targets %d to %d of %d\n' "$turn" $((first + 1)) $(((first + rotate - 1) % ${#all[@]} + 1)) ${#all[@]}
fi

# ended LOG: succeeds if the fuzzer failed only because its time was over. Before Go 1.27, go test
# sometimes reports that as a failure of the target (go.dev/issue/75804). Then the whole message is
# the deadline, and there is no failing input.
ended() {
	! grep -q 'Failing input written' "$1" && grep -A 1 '^--- FAIL' "$1" | tail -n 1 | grep -qE '^ +context deadline exceeded$'
}

failed=0 count=0
for entry in "${chosen[@]}"; do
	if [ "${FUZZ_WITHIN:-0}" -gt 0 ] && [ "$SECONDS" -ge "$FUZZ_WITHIN" ]; then
		printf 'time limit reached (%ss): skipping %d targets\n' "$SECONDS" $((${#chosen[@]} - count))
		break
	fi
	count=$((count + 1))
	read -r directory package target <<<"$entry"
	log=$(mktemp)
	if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel "$parallel" "$package" >"$log" 2>&1 || ended "$log"; then
		printf 'ok    %-55s %s\n' "${package#*/psyche/}.$target" "$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1)"
		keep "$package" "$directory" "$target"
	else
		printf 'FAIL  %s.%s\n' "$package" "$target"
		cat "$log"
		input=$(sed -nE "s|.*Failing input written to (testdata/[^ ]*).*|\1|p" "$log" | tail -n 1)
		if [ -n "$input" ]; then printf '%s:\n' "$input"; head -c 20000 "$directory/$input"; echo; fi
		failed=1
	fi
	rm -f "$log"
done
printf '%d targets, %s each\n' "$count" "$time"
exit "$failed"
