#!/usr/bin/env bash
# Which lines and branches the tests reach, per folder: every test on a build of its own, with gcov.
#   TESTS=words   of a selection of tests
# A process that a test kills with SIGKILL cannot write its counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD=build-coverage
result=0

scripts/packages.sh coverage
find "$BUILD" "$BUILD-fault" -name '*.gcda' -delete 2>/dev/null || true
SAN=coverage scripts/test.sh || result=$?
echo "coverage: reading the counts"
gcovr -r . -j "$(nproc)" --gcov-ignore-parse-errors -e tests/ -e bench/ -e 'build.*' \
	--json-summary "$BUILD/coverage.json" "$BUILD" "$BUILD-fault" 2>"$BUILD/gcovr.log" ||
	{ tail -n 5 "$BUILD/gcovr.log" && exit 1; }
/usr/bin/python3 -B - "$BUILD/coverage.json" <<'PYTHON'
import collections
import json
import os
import sys

KINDS = ("line", "branch")
sums = collections.defaultdict(collections.Counter)
for file in json.load(open(sys.argv[1], encoding="utf-8"))["files"]:
    for folder in (os.path.dirname(file["filename"]), "all"):
        for kind in KINDS:
            for part in ("covered", "total"):
                sums[folder][kind, part] += file[f"{kind}_{part}"]
print(f"{'folder':<24}{'lines':>24}{'branches':>24}")
for folder in [*sorted(set(sums) - {"all"}), "all"]:
    row = f"{folder:<24}"
    for kind in KINDS:
        covered, total = sums[folder][kind, "covered"], sums[folder][kind, "total"]
        row += f"{covered:>9} of {total:>6}{100 * covered / max(total, 1):>4.0f} %"
    print(row)
PYTHON
[[ $result -eq 0 ]]
