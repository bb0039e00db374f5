"""scripts/record.py draws what a command prints to a terminal."""

import re
import subprocess
from xml.etree import ElementTree

from stack import ROOT

PRINTS = r"""
test -t 1 || exit 3
echo 'a <b> & "c"'
echo 'key: cmq_abcdef1234_secret'
printf '1 of 2\r2 of 2\n\033[32mgreen\033[0m\n'
for ((n = 0; n < 50; n++)); do echo "line $n"; done
printf '%0150d' 0
"""


def record(path, script):
    command = [ROOT / "scripts/record.py", path, "bash", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_is_printed_is_drawn(tmp_path):
    done = record(tmp_path / "x.svg", PRINTS)
    assert done.returncode == 0, done.stdout + done.stderr
    drawn = ElementTree.parse(tmp_path / "x.svg")
    lines = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    before = lines.index('a <b> & "c"')
    assert lines[before + 1 : before + 5] == [
        *("key: cmq_abcdef1234_…", "2 of 2", "green", "line 0"),
    ]
    assert lines[-3:] == ["line 49", "0" * 100, "0" * 50]
    style = drawn.find("{http://www.w3.org/2000/svg}style").text
    (up,) = re.findall(r"^g \{ transform: translateY\(-(\d+)px\)", style, re.MULTILINE)
    assert int(up) > 0 and f"{{ transform: translateY(-{up}px); }}" in style.split("@keyframes")[-1]


def test_a_command_that_fails_draws_nothing(tmp_path):
    done = record(tmp_path / "x.svg", "echo why; exit 4")
    assert done.returncode == 1 and "why" in done.stderr and "exit status 4" in done.stderr
    assert not (tmp_path / "x.svg").exists()
