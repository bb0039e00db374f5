"""This tree against another commit: nine interleaved pairs of `make bench` with a tenth of the
load, and the medians of their ratios.

    REF=main~20 PAIRS=9 make bench-compare
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
RUN = Path(os.environ.get("BENCH_RUN_DIR", HERE / ".run-bench")).resolve()
BASE = int(os.environ.get("BENCH_PORT_BASE", 18400))
REF = os.environ.get("REF") or sys.exit(
    "bench-compare: REF=COMMIT is missing: the commit to compare with"
)
PAIRS = int(os.environ.get("PAIRS", 9))
ALLOWED = 0.10
ALLOWED_TAIL = 0.25  # of a p99, which differs more between equal runs
# In the order in which they run. Older commits know no choice, and measure these.
MEASURES = "fsync database_baselines steady rush rows sold_out admission memory rows_uuid"
UUID_ALLOWED = 0.75  # of integers in the same run of this tree, at least
# The other figures are limits of the machine, or too rare to be more than noise at this load.
RATES = ("admission_per_s", "sold_out_per_s", "end_to_end_per_s", "end_to_end_uuid_per_s")
LATENCIES = ("steady_accepted_p50_us", "steady_queued_p50_us", "steady_issued_p50_us")
TAILS = ("steady_accepted_p99_us", "steady_queued_p99_us", "steady_issued_p99_us")


def tree_make(folder):
    """A checkout of REF beside the run folder, built."""
    subprocess.run(
        ["git", "-C", HERE, "worktree", "add", "--force", "--detach", folder, REF],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(
        ["make", "-s", "-C", folder, "build", "build/bench_fsync"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def bench_run(tree, number):
    run = RUN.with_name(f"{RUN.name}-{number}")
    settings = {
        "BENCH_QUICK": "1",
        "BENCH_ONLY": MEASURES,
        "BENCH_RUN_DIR": str(run),
        "BENCH_PORT_BASE": str(BASE + 100 * number),
    }
    subprocess.run(
        [tree / "scripts/bench.sh"],
        cwd=tree,
        env={**os.environ, **settings},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads((run / "bench.json").read_text(encoding="utf-8"))


def ratios_of(pairs, name):
    return [mine[name] / theirs[name] for theirs, mine in pairs]


def uuid_print(pairs):
    """1 when the median of this tree's runs is worse than allowed, else 0."""
    ratios = sorted(mine["end_to_end_uuid_ratio"] for _, mine in pairs)
    median = statistics.median(ratios)
    bad = median < UUID_ALLOWED
    print(
        f"end to end of this tree, UUIDs to integers   median of ratios {median:.3f}"
        f"  ({ratios[0]:.2f} to {ratios[-1]:.2f}){'  WORSE' if bad else ''}"
    )
    return int(bad)


def common(pairs, names):
    """The names that both commits measure."""
    return [name for name in names if all(name in side for pair in pairs for side in pair)]


def table_print(pairs):
    """1 when a median is worse than allowed, else 0."""
    worse = 0
    for name in common(pairs, RATES + LATENCIES + TAILS):
        ratios = sorted(ratios_of(pairs, name))
        median = statistics.median(ratios)
        allowed = ALLOWED_TAIL if name in TAILS else ALLOWED
        bad = median < 1 - allowed if name in RATES else median > 1 + allowed
        worse |= bad
        theirs, mine = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        print(
            f"{name:<28}{theirs:>12,.0f}{mine:>12,.0f}"
            f"   median of ratios {median:.3f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f"{'  WORSE' if bad else ''}"
        )
    return int(worse)


other = RUN.with_name(f"{RUN.name}-tree")
tree_make(other)
try:
    pairs = []
    for number in range(PAIRS):
        order = ((other, 1), (HERE, 2)) if number % 2 == 0 else ((HERE, 2), (other, 1))
        results = {tree: bench_run(tree, place) for tree, place in order}
        pairs.append((results[other], results[HERE]))
        print(f"bench-compare: pair {number + 1} of {PAIRS}", file=sys.stderr, flush=True)
finally:
    subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", other], check=False)
print(f"{'':<28}{REF[:12]:>12}{'this tree':>12}")
sys.exit(table_print(pairs) | uuid_print(pairs))
