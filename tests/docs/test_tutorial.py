"""docs/start/tutorial.md: its commands as they stand there, in their order, in one shell, on a
stack of its own as `make run` leaves it; each must print what the page shows.

In a block, `$ ` begins a command and `> ` continues it; the other lines are its output. There `…`
is any text, and alone on a line any number of lines. Times, ids and addresses are examples: any
other time, id or address is as good."""

import os
import re
import signal
import subprocess
import threading
from contextlib import suppress

import pytest

from stack import ROOT, wait_until

PAGE = (ROOT / "docs/start/tutorial.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ANY_LINES = "(?:.*\n)*"
EXAMPLES = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z": "times",
    r"\b01[0-9A-HJKMNP-TV-Z]{24}\.\d+\b": "batch and index of a receive",
    r"127\.0\.0\.1:\d+": "addresses",
    r"\b1\d{9}\b": "sets of codes",
    r"\b(?:[2-9A-HJ-NP-Z]{4,5}-){2}[2-9A-HJ-NP-Z]{4}\b": "exchange codes",
}
# Commands that change nothing: what they print may come a moment later.
READS = re.compile(
    r"couponctl (list|show|status|trace|history|check|audit|installation show|"
    r"(receive|budget|codes|webhook) (list|show))\b|curl (?!.*--json)"
)
COMMAND_S = 120
MARK = "=== done ==="


def steps():
    """[command, what the page shows of its output] of each command."""
    found = []
    for line in "".join(block for _, block in FENCES).splitlines():
        if line.startswith("$ "):
            found.append([line[2:], ""])
        elif re.match("> |>$", line) and not found[-1][1]:
            found[-1][0] += "\n" + line[2:]
        else:
            found[-1][1] += line.rstrip() + "\n"
    return found


def pattern(shown):
    """A regular expression for an output as the page shows it."""
    parts = re.split(f"(…|{'|'.join(EXAMPLES)})", shown)
    text = ""
    for part in parts:
        example = next((one for one in EXAMPLES if re.fullmatch(one, part)), None)
        text += ".*" if part == "…" else example or re.escape(part)
    return re.sub(r"^\.\*\\\n", lambda _: ANY_LINES, text, flags=re.MULTILINE)


class Shell:
    """A bash that is typed into, in a folder that has what the project's folder has after
    `make run`."""

    def __init__(self, stack, folder):
        for name, target in ((".run", stack.run_dir), ("build", stack.build_dir)):
            (folder / name).symlink_to(target)
        (folder / "sdk").symlink_to(ROOT / "sdk")
        self.bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def out(self, command):
        """What it prints, without spaces at the ends of lines."""
        guard = threading.Timer(COMMAND_S, self.end)
        guard.start()
        self.bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s\\n' '{MARK}'\n")
        self.bash.stdin.flush()
        told = ""
        for line in self.bash.stdout:
            if line == f"{MARK}\n":
                guard.cancel()
                break
            told += line.rstrip() + "\n"
        else:
            raise AssertionError(f"the shell has ended, or was ended after {COMMAND_S} s: {told}")
        return told.rstrip("\n") + "\n" if told.strip() else ""

    def end(self):
        with suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGKILL)


@pytest.fixture
def shell(stack_make, tmp_path):
    stack = stack_make()
    stack.script("run", TLS="no")
    one = Shell(stack, tmp_path)
    yield one
    one.end()
    one.bash.wait()
    stack.down()


def test_the_page_has_no_other_blocks():
    assert {language for language, _ in FENCES} == {"console"}
    chapters = re.split("^## ", PAGE, flags=re.MULTILINE)[1:-1]  # the last one leads on
    assert [one.splitlines()[0] for one in chapters if "**You have now**" not in one] == []


def test_each_command_prints_what_the_page_shows(shell):
    for command, shown in steps():
        wanted = re.compile(pattern(shown))

        def is_printed(command=command, wanted=wanted):
            told = shell.out(command)
            print(f"$ {command}\n{told}", end="")
            return wanted.fullmatch(told)

        is_right = wait_until(is_printed) if READS.match(command) else is_printed()
        assert is_right, f"the page shows:\n{shown}"
