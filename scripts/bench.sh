#!/usr/bin/env bash
# One table of figures (bench/bench.py) on a stack of its own, which is stopped at the end.
#   BENCH_QUICK=1                  a tenth of the load
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
# Fresh stores: data of an earlier run would be measured too.
scripts/stack.sh clean >/dev/null
scripts/stack.sh services >/dev/null
scripts/stack.sh start gateway worker-1 worker-2 >/dev/null
# shellcheck disable=SC1091
. "$RUN_DIR/env"
/usr/bin/python3 bench/bench.py
