#!/usr/bin/env bash
# The promises under faults: builds with fault points, then runs tests/torture/run.py. See
# docs/hacking.md.
#   SEED=n ONLY=name,name ROUNDS=k SAN=address RUN_DIR=.run-torture PORT_BASE=16400
#   LIST=1 only names the scenarios
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SAN=${SAN:-}
export BUILD_DIR=build${SAN:+-$SAN}-fault
export RUN_DIR=${RUN_DIR:-.run-torture}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

make --no-print-directory -j"$(nproc)" FAULTS=1 SAN="$SAN" BUILD_DIR="$BUILD_DIR" build
exec /usr/bin/python3 -B tests/torture/run.py ${LIST:+--list}
