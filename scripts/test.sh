#!/usr/bin/env bash
# Every test on a stack of its own, which ends with it: programs of build/tests/ first, then pytest.
#   SAN=address|undefined|thread   in a build of its own
#   TESTS=tests/e2e/test_x.py      only that file; other words choose programs by name and go to pytest -k
#   TEST_RUN_DIR=.run-test TEST_PORT_BASE=17400 TEST_LIMIT_S=300 (for one program)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SAN=${SAN:-}
TESTS=${TESTS:-}
export BUILD_DIR=build${SAN:+-$SAN}
export RUN_DIR=${TEST_RUN_DIR:-.run-test}
export PORT_BASE=${TEST_PORT_BASE:-17400}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}
readonly LIMIT_S=${TEST_LIMIT_S:-300}
# What `make test` was called with is for this script, not for the builds it starts.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

passed=0 failed=0

case $SAN in
'' | address | undefined | thread) ;;
*)
	echo "test: SAN is $SAN; allowed is address, undefined or thread" >&2
	exit 1
	;;
esac

stacks_each() {
	local dir
	for dir in "$RUN_DIR" "$RUN_DIR"-*; do
		RUN_DIR=$dir scripts/stack.sh "$1"
	done
}

stacks_stop() {
	stacks_each stop >/dev/null || echo "test: could not stop everything in $RUN_DIR*" >&2
}

# The last word on a stack: a sanitizer's report in any log is a failure, whoever's test it was.
logs_check() {
	local file
	for file in "$RUN_DIR"/*.log "$RUN_DIR"-*/*.log; do
		[[ -e $file ]] || continue
		grep -qE '(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:' "$file" || continue
		echo "FAILED: a sanitizer's report in $file"
		failed=$((failed + 1))
	done
}

count_in() {
	sed -n "s/^\[  $1  \] \([0-9][0-9]*\) test.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

# cmocka's own counts; a program that prints none counts as one.
program_run() {
	local program=$1 output=$BUILD_DIR/tests/${1##*/}.out code=0 ok bad
	timeout -k 5 "$LIMIT_S" "$program" >"$output" 2>&1 || code=$?
	ok=$(count_in PASSED "$output") bad=$(count_in FAILED "$output")
	[[ $code -ne 0 || $((ok + bad)) -ne 0 ]] || ok=1
	[[ $code -eq 0 || $bad -ne 0 ]] || bad=1
	passed=$((passed + ok)) failed=$((failed + bad))
	if [[ $bad -eq 0 ]]; then
		printf '%-48s %s passed\n' "$program" "$ok"
		return
	fi
	cat "$output"
	[[ $code -ne 124 && $code -ne 137 ]] || echo "${program##*/} did not end within $LIMIT_S s"
	printf '%-48s %s passed, %s FAILED (exit code %s)\n' "$program" "$ok" "$bad" "$code"
}

programs_run() {
	local program
	for program in "$BUILD_DIR"/tests/{unit,sim,fuzz}_*; do
		[[ -f $program && -x $program ]] || continue
		[[ -z $TESTS || ${program##*/} == *"$TESTS"* ]] || continue
		program_run "$program"
	done
}

junit_sum() {
	grep -oE "<testsuite [^>]*" "$BUILD_DIR/pytest.xml" | grep -oE " $1=\"[0-9]+\"" | grep -oE '[0-9]+' |
		awk '{ n += $1 } END { print n + 0 }'
}

# Exit code 5 says that nothing was chosen, which TESTS= may mean.
pytest_run() {
	local code=0 bad
	rm -f "$BUILD_DIR/pytest.xml"
	/usr/bin/python3 -B -m pytest -q -p no:cacheprovider --junitxml="$BUILD_DIR/pytest.xml" "$@" || code=$?
	if [[ ! -e $BUILD_DIR/pytest.xml ]]; then
		echo "pytest ended with code $code and no result"
		failed=$((failed + 1))
		return
	fi
	bad=$(($(junit_sum failures) + $(junit_sum errors)))
	passed=$((passed + $(junit_sum tests) - bad - $(junit_sum skipped)))
	[[ $code -eq 0 || $code -eq 5 || $bad -ne 0 ]] || bad=1
	failed=$((failed + bad))
}

# A short selection under sanitizers: whole runs are make test SAN=address and SAN=thread.
sanitized_run() {
	local san=$1 pattern program
	shift
	make --no-print-directory -j"$(nproc)" SAN="$san" BUILD_DIR="build-$san" build tests
	for pattern in "$@"; do
		for program in "build-$san"/tests/$pattern; do
			[[ ! -x $program ]] || BUILD_DIR="build-$san" program_run "$program"
		done
	done
}

scripts/packages.sh
make --no-print-directory -j"$(nproc)" SAN="$SAN" BUILD_DIR="$BUILD_DIR" build tests
# For tests/torture, which has no other way to hit a certain moment.
make --no-print-directory -j"$(nproc)" SAN="$SAN" FAULTS=1 BUILD_DIR="$BUILD_DIR-fault" build
stacks_each clean >/dev/null
trap stacks_stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ -n $TESTS && -e ${TESTS%%::*} ]]; then
	selection=("$TESTS")
else
	selection=(tests ${TESTS:+-k "$TESTS"})
	programs_run
	if [[ -z $SAN$TESTS ]]; then
		sanitized_run address 'unit_*' 'sim_*' 'fuzz_*'
		sanitized_run thread unit_test_publisher unit_test_confirm unit_test_admission unit_test_waiters
	fi
fi
scripts/stack.sh services
scripts/stack.sh start gateway worker-1 worker-2
pytest_run "${selection[@]}"
stacks_stop
logs_check

if [[ $((passed + failed)) -eq 0 ]]; then
	echo "test: nothing matches TESTS=$TESTS" >&2
	exit 1
fi
[[ $failed -eq 0 ]] || echo "the logs are in $RUN_DIR/"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
