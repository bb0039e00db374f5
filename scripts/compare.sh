#!/usr/bin/env bash
# Every way of selling (compare/) under the same load, on a stack of its own, which is stopped at
# the end.
#   ONLY="5 10b"                   only these ways, by their numbers or ids
#   USERS=20000 ITEMS=1 STOCK=10000 CLIENTS=1000   one workload of this size, instead of all four
#   RUNS=5                         of each figure: the median counts, the spread is shown
#   OUT=                           where compare.md and compare.svg are written: BUILD_DIR
#   COMPARE_RUN_DIR=.run-compare COMPARE_PORT_BASE=19400
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUN_DIR=${COMPARE_RUN_DIR:-.run-compare}
export PORT_BASE=${COMPARE_PORT_BASE:-19400}

trap 'scripts/stack.sh stop >/dev/null' EXIT
scripts/stack.sh clean >/dev/null
scripts/stack.sh services >/dev/null
scripts/stack.sh start gateway worker-1 worker-2 >/dev/null
eval "$(scripts/stack.sh env)"
/usr/bin/python3 -B compare/compare.py
