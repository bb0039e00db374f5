"""One chart of a comparison's first table, drawn by gnuplot: a bar for each way, on a logarithmic
scale, in another colour where the result is wrong."""

import shutil
import subprocess
import sys

from report import is_correct

CORRECT, WRONG = "#2b7a4b", "#c0504d"
SCRIPT = """\
set terminal svg size 900,{height} font "sans,13" background "#ffffff"
set output "{path}"
set title "{title}: committed a second"
set logscale x
set xrange [10:*]
set yrange [-0.8:{last}.8] reverse
set format x "%'.0f"
set grid xtics
set ytics ({labels})
set key bottom right
set style fill solid noborder
plot "-" using (10):1:(10):2:($1-0.38):($1+0.38) with boxxyerror lc rgb "{correct}" \\
title "correct", "-" using (10):1:(10):2:($1-0.38):($1+0.38) with boxxyerror lc rgb "{wrong}" \\
title "wrong: docs/ways.md", \\
"-" using 2:1:3 with labels left offset 0.5,0 notitle
{bars}
"""


def bars(rows):
    """The data of the three parts of the plot, by the number of the line."""
    parts = (
        [f"{i} {row['rate']}" for i, row in enumerate(rows) if is_correct(row)],
        [f"{i} {row['rate']}" for i, row in enumerate(rows) if not is_correct(row)],
        [f'{i} {row["rate"]} "{row["rate"]:,.0f}"' for i, row in enumerate(rows)],
    )
    return "\n".join("\n".join(part or ["-9 10"]) + "\ne" for part in parts)


def chart_write(table, path):
    if not shutil.which("gnuplot"):
        print("compare: no chart: gnuplot is not installed", file=sys.stderr)
        return
    rows = table.rows
    labels = ", ".join(f'"{row["id"]} {row["name"]}" {i}' for i, row in enumerate(rows))
    script = SCRIPT.format(
        height=120 + 26 * len(rows),
        path=path,
        title=table.title[0].upper() + table.title[1:],
        last=len(rows) - 1,
        labels=labels,
        correct=CORRECT,
        wrong=WRONG,
        bars=bars(rows),
    )
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
