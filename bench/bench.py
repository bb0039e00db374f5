"""One table of figures from one run on one machine, so that figures can be compared. See `make
bench`.

Starts the stack of scripts/bench.sh, which also sets the environment. Every load is checked: the
receives that were answered as accepted must be in PostgreSQL, or this program ends with status 1.
"""

import json
import os
import sys

import coming_back
import flood
import growth
import idle
import keep_alive
import limits
import many_coupons
import one_coupon
import redeem
from rig import RUN, failures, figures, say, stack_fresh

# In the order in which they are measured. The last two replace the stack.
PARTS = (
    idle,
    limits,
    one_coupon,
    redeem,
    keep_alive,
    many_coupons,
    flood,
    coming_back,
    growth,
)
TABLE = (
    limits,
    one_coupon,
    redeem,
    many_coupons,
    keep_alive,
    coming_back,
    flood,
    growth,
    idle,
)


def name_of(measure):
    return measure.__name__.removesuffix("_measure")


def chosen():
    """Those that BENCH_ONLY names, or all."""
    measures = {name_of(measure): measure for part in PARTS for measure in part.MEASURES}
    names = os.environ.get("BENCH_ONLY", "").split() or list(measures)
    if unknown := set(names) - set(measures):
        raise SystemExit(
            f"bench: BENCH_ONLY has {' '.join(sorted(unknown))}; there are {' '.join(measures)}"
        )
    return [measure for name, measure in measures.items() if name in names]


def table_print():
    for part in TABLE:
        rows = list(part.rows())
        if all(value is None for _, value, _ in rows):
            continue  # a heading without figures
        for label, value, note in rows:
            print(label if value is None else f"{label:<54} {value:>23}  {note}".rstrip())


measures = chosen()
stack_fresh()
for measure in measures:
    say(f"bench: {name_of(measure).replace('_', ' ')}")
    measure()
with open(f"{RUN}/bench.json", "w", encoding="utf-8") as file:
    json.dump(figures, file, indent=1)
table_print()
for failure in failures:
    print(f"FAILED {failure}")
sys.exit(1 if failures else 0)
