#!/usr/bin/env python3
"""make record: runs a command in a terminal, and draws what it prints as an SVG, each line when it
came; a viewer that animates nothing shows all at once. Colours are left out, and of a line that was
overwritten the last state is kept.
    record.py FILE COMMAND ARGUMENTS.."""

import fcntl
import html
import os
import pty
import re
import struct
import sys
import termios
import time

COLUMNS, ROWS = 100, 36
WIDTH, HEIGHT, MARGIN = 7.8, 18, 16  # of a letter, of a line, around all, in pixels of CSS
PAUSE_S = 1.0  # the longest that is shown
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|^.*\r(?=.)")
SECRET = re.compile(r"\b(cmq_[a-z0-9]+_)\w+")
STYLE = """
rect { fill: #1b1f27; }
text { fill: #d8dee9; font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  white-space: pre; animation: hidden steps(1); }
text:first-child { fill: #8fbcbb; }
@keyframes hidden { from, to { visibility: hidden; } }
@media (prefers-reduced-motion: reduce) { g, text { animation: none !important; } }
"""


def recorded(command):
    """The lines that it prints, each with its time in seconds."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    begun, lines, rest = time.monotonic(), [], b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # all that had it open have closed it
            break
        if not read:
            break
        *ended, rest = (rest + read).split(b"\n")
        now = time.monotonic() - begun
        lines += [(now, line.decode().rstrip("\r")) for line in ended]
    if rest:
        lines.append((time.monotonic() - begun, rest.decode()))
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit("\n".join([line for _, line in lines] + [f"record: exit status {status}"]))
    return lines


def paced(lines):
    """With no pause longer than PAUSE_S."""
    before = shown = 0
    for at, line in lines:
        shown += min(at - before, PAUSE_S)
        before = at
        yield shown, line


def wrapped(lines):
    """As a terminal does, and without the secret part of keys."""
    for at, line in lines:
        line = SECRET.sub(r"\1…", CONTROL.sub("", line)).expandtabs()
        for begin in range(0, max(len(line), 1), COLUMNS):
            yield at, line[begin : begin + COLUMNS]


def drawn(lines):
    for number, (at, line) in enumerate(lines):
        if line.strip():
            y = MARGIN + 12 + number * HEIGHT
            text = html.escape(line.rstrip(), quote=False)
            yield f'<text x="{MARGIN}" y="{y}" style="animation-duration:{at:.2f}s">{text}</text>'


def scrolled(lines):
    """The moments at which the terminal scrolls, as percentages of all the time."""
    last = {at: number for number, (at, _) in enumerate(lines) if number >= ROWS}
    yield "from { transform: none; }"
    for at, number in last.items():
        up = (number + 1 - ROWS) * HEIGHT
        yield f"{100 * at / lines[-1][0]:.2f}% {{ transform: translateY(-{up}px); }}"


def main(path, command):
    lines = [(0, f"$ {' '.join(command)}"), *wrapped(paced(recorded(command)))]
    width = round(COLUMNS * WIDTH) + 2 * MARGIN
    height = min(len(lines), ROWS) * HEIGHT + 2 * MARGIN
    up = max(len(lines) - ROWS, 0) * HEIGHT
    with open(path, "w", encoding="utf-8") as file:
        print(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">',
            f"<style>{STYLE}",
            f"g {{ transform: translateY(-{up}px);",
            f"  animation: scroll {lines[-1][0]:.2f}s step-end; }}",
            "@keyframes scroll {",
            *scrolled(lines),
            "}\n</style>",
            '<rect width="100%" height="100%" rx="8"/>',
            f'<svg y="{MARGIN}" height="{height - 2 * MARGIN}" viewBox="0 {MARGIN} {width} '
            f'{height - 2 * MARGIN}">',
            "<g>",
            *drawn(lines),
            "</g>\n</svg>\n</svg>",
            sep="\n",
            file=file,
        )
    print(f"record: {path}: {len(lines)} lines, {lines[-1][0]:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
