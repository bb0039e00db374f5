#!/usr/bin/env bash
# Fuzzing with libFuzzer, ASan and UBSan.
#   fuzz.sh run     each target for FUZZ_S=60 seconds, from tests/fuzz/corpus and from what earlier
#                   runs found; FUZZ=json chooses one. New inputs stay in build-fuzz/corpus; an
#                   input that fails is copied to tests/fuzz/corpus, where `make test` replays it.
#   fuzz.sh merge   copies to tests/fuzz/corpus the inputs that reach new code
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD=build-fuzz CORPUS=tests/fuzz/corpus INPUT_MAX=65536
readonly SECONDS_EACH=${FUZZ_S:-60} CHOSEN=${FUZZ:-}
readonly ASAN_DEFAULT=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-$ASAN_DEFAULT}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

targets() {
	local source name
	for source in tests/fuzz/fuzz_*.c; do
		name=${source##*/fuzz_} name=${name%.c}
		[[ -n $CHOSEN && $name != "$CHOSEN" ]] || echo "$name"
	done
}

# shellcheck disable=SC2317 # called by its name, as the next one
target_run() {
	local name=$1 found=$BUILD/corpus/$1 log=$BUILD/$1.log code=0 bad
	mkdir -p "$found" "$CORPUS/$name" "$BUILD/bad"
	"$BUILD/tests/fuzz_$name" -max_total_time="$SECONDS_EACH" -max_len="$INPUT_MAX" \
		-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$BUILD/bad/$name-" "$found" "$CORPUS/$name" \
		>"$log" 2>&1 || code=$?
	printf '%-16s %9s inputs tried, %s kept\n' "$name" \
		"$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
		"$(find "$found" -type f | wc -l)"
	[[ $code -ne 0 ]] || return 0
	for bad in "$BUILD/bad/$name"-*; do
		[[ ! -e $bad ]] || cp "$bad" "$CORPUS/$name/"
	done
	tail -40 "$log"
	echo "FAILED: $name; the input is in $CORPUS/$name, the whole report in $log"
	return 1
}

# shellcheck disable=SC2317
target_merge() {
	local name=$1
	mkdir -p "$CORPUS/$name" "$BUILD/corpus/$name"
	"$BUILD/tests/fuzz_$name" -merge=1 -use_counters=0 -max_len="$INPUT_MAX" \
		"$CORPUS/$name" "$BUILD/corpus/$name" >"$BUILD/$name.log" 2>&1 || {
		tail -20 "$BUILD/$name.log"
		return 1
	}
	printf '%-16s %s inputs\n' "$name" "$(find "$CORPUS/$name" -type f | wc -l)"
}

action=${1:-run}
case $action in
run | merge) ;;
*)
	echo "fuzz: $action is neither run nor merge" >&2
	exit 1
	;;
esac
scripts/packages.sh fuzz
make --no-print-directory -j"$(nproc)" CC=clang SAN=fuzz BUILD_DIR="$BUILD" \
	WARN='-Wall -Wextra -Werror' fuzzers
failed=0
for target in $(targets); do
	"target_$action" "$target" || failed=1
done
exit "$failed"
