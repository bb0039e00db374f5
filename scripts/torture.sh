#!/usr/bin/env bash
# The promises under faults: builds with fault points, then runs tests/torture/run.py. See
# docs/about/testing.md.
#   SEED=n ONLY=name,name ROUNDS=k SHARDS=k SAN=address RUN_DIR=.run-torture PORT_BASE=16400
#   LIST=1 only names the scenarios
#   NIGHT=1 first, from a fresh seed: thousands of random histories of the simulation, the books of
#   the worker, the scripts, SQL and rebuilds, and what is killed at any moment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SAN=${SAN:-}
export BUILD_DIR=build${SAN:+-$SAN}-fault
export RUN_DIR=${RUN_DIR:-.run-torture}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

# night: each part whatever the one before found. Returns how many failed.
night() {
	local failed=0 pytest=(/usr/bin/python3 -B -m pytest -q -p no:cacheprovider)
	export SEED=${SEED:-$((RANDOM * 32768 + RANDOM))} BUILD_DIR=build${SAN:+-$SAN}
	echo "torture: SEED=$SEED for all of the night"
	make --no-print-directory -j"$(nproc)" SAN="$SAN" BUILD_DIR="$BUILD_DIR" build tests agents
	RUNS=20000 "$BUILD_DIR/tests/sim_promises" || failed=$((failed + 1))
	RUNS=20000 "$BUILD_DIR/tests/unit_test_settlement_history" || failed=$((failed + 1))
	RUNS=300 "${pytest[@]}" tests/lua -k 'sequence or random' || failed=$((failed + 1))
	RUNS=300 "${pytest[@]}" tests/sql -k 'history or messages or one_call or whatever' ||
		failed=$((failed + 1))
	"${pytest[@]}" tests/e2e -k killed || failed=$((failed + 1))
	RUN_DIR=$RUN_DIR scripts/stack.sh stop >/dev/null
	return "$failed"
}

night_failed=0
[[ -z ${NIGHT:-} ]] || (night) || night_failed=$?
make --no-print-directory -j"$(nproc)" FAULTS=1 SAN="$SAN" BUILD_DIR="$BUILD_DIR" build
/usr/bin/python3 -B tests/torture/run.py ${LIST:+--list}
if [[ $night_failed -gt 0 ]]; then
	echo "torture: $night_failed parts of the night failed, see above"
	exit 1
fi
