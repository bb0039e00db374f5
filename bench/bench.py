"""One table of figures from one run on one machine, so that figures can be compared. See `make
bench`.

Starts the stack of scripts/bench.sh, which also sets the environment. Every load is checked: the
receives that were answered as accepted must be in PostgreSQL, or this program ends with status 1. A
run of everything writes the table to docs/about/figures.txt: docs/about/performance.md shows it,
and README.md some of its figures. One with `capacity` writes docs/about/capacity.json and the
tables of docs/about/capacity.md.
"""

import json
import os
import sys

import capacity
import capacity_model
import coming_back
import commands
import flood
import gate
import growth
import idle
import keep_alive
import limits
import many_coupons
import noon
import offers
import one_coupon
import claim
import replicas
import uses
from rig import QUICK, ROOT, RUN, failures, figures, machine, say, stack_fresh

FIGURES = ROOT / "docs/about/figures.txt"

# In the order in which they are measured. The last ones replace the stack.
PARTS = (
    idle,
    limits,
    one_coupon,
    claim,
    uses,
    keep_alive,
    gate,
    commands,
    many_coupons,
    offers,
    replicas,
    flood,
    capacity,
    coming_back,
    growth,
    noon,
)
TABLE = (
    limits,
    one_coupon,
    claim,
    uses,
    many_coupons,
    offers,
    keep_alive,
    gate,
    replicas,
    commands,
    coming_back,
    flood,
    noon,
    growth,
    capacity,
    idle,
)


def name_of(measure):
    return measure.__name__.removesuffix("_measure")


def chosen():
    """The measures that BENCH_ONLY names, or all."""
    measures = {name_of(measure): measure for part in PARTS for measure in part.MEASURES}
    names = os.environ.get("BENCH_ONLY", "").split() or list(measures)
    if unknown := set(names) - set(measures):
        raise SystemExit(
            f"bench: BENCH_ONLY has {' '.join(sorted(unknown))}; there are {' '.join(measures)}"
        )
    return [measure for name, measure in measures.items() if name in names]


def table():
    lines = [*machine()]
    for part in TABLE:
        rows = list(part.rows())
        if all(value is None for _, value, _ in rows):
            continue  # a heading without figures
        for label, value, note in rows:
            lines.append(label if value is None else f"{label:<52} {value:>21}  {note}".rstrip())
    return "\n".join(lines) + "\n"


measures = chosen()
stack_fresh()
try:
    for measure in measures:
        say(f"bench: {name_of(measure).replace('_', ' ')}")
        measure()
finally:  # what was measured before one failed
    with open(f"{RUN}/bench.json", "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)
    print(table(), end="", flush=True)
if not QUICK and not failures:
    if not os.environ.get("BENCH_ONLY"):
        FIGURES.write_text(table(), encoding="utf-8")
    if "capacity" in figures:
        capacity_model.write(figures["capacity"])
for failure in failures:
    print(f"FAILED {failure}")
sys.exit(1 if failures else 0)
