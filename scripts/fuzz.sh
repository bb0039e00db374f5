#!/usr/bin/env bash
# Fuzzing with libFuzzer, ASan and UBSan.
#   fuzz.sh run     each target for FUZZ_S=60 seconds, from its archive tests/fuzz/corpus/NAME.tar
#                   and from what earlier runs found; FUZZ=json chooses one. New inputs stay in
#                   build-fuzz/found; one that fails is added to the archive, which `make test`
#                   replays.
#   fuzz.sh merge   adds to the archives the inputs that reach new code
#   fuzz.sh add NAME FILE…   adds these inputs to an archive
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

# corpus_unpack NAME FOLDER
corpus_unpack() {
	rm -rf "$2"
	mkdir -p "$2"
	[[ ! -e $CORPUS/$1.tar ]] || tar -xf "$CORPUS/$1.tar" -C "$2"
}

# corpus_pack NAME FOLDER: the same inputs make the same archive.
corpus_pack() {
	(
		archive=$PWD/$CORPUS/$1.tar
		cd "$2"
		tar --format=ustar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
			--mode=644 -cf "$archive" -- *
	)
}

# corpus_add NAME FILE…
corpus_add() {
	local name=$1 folder
	shift
	folder=$(mktemp -d)
	corpus_unpack "$name" "$folder"
	cp "$@" "$folder"
	corpus_pack "$name" "$folder"
	rm -r "$folder"
}

# shellcheck disable=SC2317 # called by its name, as the next one
target_run() {
	local name=$1 found=$BUILD/found/$1 log=$BUILD/$1.log code=0
	mkdir -p "$found" "$BUILD/bad"
	corpus_unpack "$name" "$BUILD/corpus/$name"
	"$BUILD/tests/fuzz_$name" -max_total_time="$SECONDS_EACH" -max_len="$INPUT_MAX" \
		-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$BUILD/bad/$name-" "$found" "$BUILD/corpus/$name" \
		>"$log" 2>&1 || code=$?
	printf '%-18s %9s inputs tried, %s kept\n' "$name" \
		"$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
		"$(find "$found" -type f | wc -l)"
	[[ $code -ne 0 ]] || return 0
	if compgen -G "$BUILD/bad/$name-*" >/dev/null; then
		corpus_add "$name" "$BUILD/bad/$name-"*
	fi
	tail -40 "$log"
	echo "FAILED: $name; the input is in $CORPUS/$name.tar, the whole report in $log"
	return 1
}

# shellcheck disable=SC2317
target_merge() {
	local name=$1 folder=$BUILD/corpus/$1
	mkdir -p "$BUILD/found/$name"
	corpus_unpack "$name" "$folder"
	"$BUILD/tests/fuzz_$name" -merge=1 -use_counters=0 -max_len="$INPUT_MAX" \
		"$folder" "$BUILD/found/$name" >"$BUILD/$name.log" 2>&1 || {
		tail -20 "$BUILD/$name.log"
		return 1
	}
	corpus_pack "$name" "$folder"
	printf '%-18s %s inputs\n' "$name" "$(find "$folder" -type f | wc -l)"
}

action=${1:-run}
case $action in
run | merge) ;;
add)
	shift
	if [[ $# -lt 2 || ! -e tests/fuzz/fuzz_$1.c ]]; then
		echo "fuzz: add takes NAME, of tests/fuzz/fuzz_NAME.c, and files" >&2
		exit 1
	fi
	corpus_add "$@"
	exit
	;;
*)
	echo "fuzz: $action is none of run, merge and add" >&2
	exit 1
	;;
esac
scripts/packages.sh fuzz
make --no-print-directory -j"$(nproc)" CC=clang SAN=fuzz BUILD_DIR="$BUILD" \
	WARN='-Wall -Wextra' fuzzers
failed=0
for target in $(targets); do
	"target_$action" "$target" || failed=1
done
exit "$failed"
