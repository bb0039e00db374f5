#!/usr/bin/env bash
# One table of figures (bench/bench.py) on a stack of its own, which is stopped at the end.
#   BENCH_QUICK=1                  a tenth of the load
#   BENCH_ONLY="rows http"         only these measurements
#   BENCH_GROWTH=10000000          users of the growing coupon, instead of a million
#   BENCH_RUN_DIR=.run-bench BENCH_PORT_BASE=18400
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUN_DIR=${BENCH_RUN_DIR:-.run-bench}
export PORT_BASE=${BENCH_PORT_BASE:-18400}
# shellcheck source=scripts/installed.sh
. scripts/installed.sh
PG_BIN=${PG_BIN:-$(postgres_bin_find '*')}
export PG_BIN

trap 'RUN_DIR=$RUN_DIR scripts/stack.sh stop >/dev/null' EXIT
/usr/bin/python3 -B bench/bench.py
