"""One chart of a comparison's first table, drawn by gnuplot: a bar for each way, on a logarithmic
scale, in a colour that tells whether its result is right."""

import shutil
import subprocess
import sys

from report import is_correct

# What the colours mean, in the order of the legend.
KINDS = (
    ("correct", "#2b7a4b", lambda row: is_correct(row) and not row["may"]),
    ("a known flaw did not show", "#d9a441", lambda row: is_correct(row) and row["may"]),
    ("wrong", "#c0504d", lambda row: not is_correct(row)),
)
SCRIPT = """\
set terminal svg size 900,{height} font "sans,13" background "#ffffff"
set output "{path}"
set title "{title}: committed a second"
set logscale x
set xrange [10:{most}]
set yrange [{last}.8:-0.8]
set grid xtics
set ytics ({labels})
set key top right
set style fill solid noborder
plot {bars}, $rates using 2:1:3 with labels left offset 0.5,0 notitle
"""
BAR = (
    "${name} using (10):1:(10):2:($1-0.38):($1+0.38) with boxxyerror "
    'lc rgb "{colour}" title "{kind}"'
)


def data(name, lines):
    """A data block of gnuplot; an empty one would be an error."""
    return "\n".join([f"${name} << end", *(lines or ["-9 10 10"]), "end", ""])


def chart_write(table, path):
    if not shutil.which("gnuplot"):
        print("compare: no chart: gnuplot is not installed", file=sys.stderr)
        return
    rows = table.rows
    script = data(
        "rates", [f'{i} {row["rate"]} "{row["rate"]:,.0f}"' for i, row in enumerate(rows)]
    )
    for number, (_, _, is_of_kind) in enumerate(KINDS):
        lines = [f"{i} {row['rate']}" for i, row in enumerate(rows) if is_of_kind(row)]
        script += data(f"kind{number}", lines)
    script += SCRIPT.format(
        height=140 + 26 * len(rows),
        path=path,
        title=table.title[0].upper() + table.title[1:],
        last=len(rows) - 1,
        most=max(3 * row["rate"] for row in rows) + 100,
        labels=", ".join(f'"{row["id"]} {row["name"]}" {i}' for i, row in enumerate(rows)),
        bars=", ".join(
            BAR.format(name=f"kind{number}", colour=colour, kind=kind)
            for number, (kind, colour, _) in enumerate(KINDS)
        ),
    )
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
