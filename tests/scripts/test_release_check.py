"""make release-check: what runs again, and when it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stack import ROOT, process_gone, wait_until

ITEMS = """
ITEMS = (
    Item("tests", "echo run >>{log}/tests; [ ! -e {log}/bad ] && echo 3 passed, 0 failed"),
    Item("figures", "echo run >>{log}/figures", (":/bench",)),
    Item("long", "echo $$ >{log}/pid; echo $SEED >{log}/seed; [ -e {log}/go ] || sleep 600"),
)
"""


@pytest.fixture
def check(tmp_path):
    """check(ONLY=…): runs the program in a repository of its own, with three small items."""
    tree, log = tmp_path / "tree", tmp_path / "log"
    for folder in (tree / "scripts", tree / "bench", tree / "docs", log):
        folder.mkdir(parents=True)
    program = (ROOT / "scripts/release_check.py").read_text("utf-8")
    program = re.sub(
        r"^ITEMS = \(\n.*?^\)\n", lambda _: ITEMS.format(log=log), program, flags=re.S | re.M
    )
    (tree / "scripts/release_check.py").write_text(program, "utf-8")
    (tree / ".gitignore").write_text("/.run*/\n")
    git(tree, "init", "-q", "-b", "main")
    commit(tree, "bench/a", "1")

    def run(**env):
        return subprocess.Popen(
            [sys.executable, "-B", "scripts/release_check.py"], cwd=tree, text=True,
            env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    run.tree, run.log = tree, log
    return run


def git(tree, *words):
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *name, *words], cwd=tree, check=True)


def commit(tree, path, text):
    (tree / path).write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "x")


def ended(child):
    output, _ = child.communicate(timeout=120)
    return child.returncode, output


def times(check, name):
    path = check.log / name
    return path.read_text().count("run") if path.exists() else 0


def states(output):
    return dict(re.findall(r"^(tests|figures|long) +(\w+) ", output, re.M))


def test_what_has_passed_runs_again_only_after_a_change(check):
    (check.log / "go").touch()
    status, output = ended(check(LIST="1"))
    assert status == 1 and states(output) == dict.fromkeys(("tests", "figures", "long"), "missing")
    status, output = ended(check(SEED="7"))
    assert status == 0 and set(states(output).values()) == {"passed"}
    record = json.loads((check.tree / ".run-release/tests.json").read_text())
    assert record["said"] == "3 passed, 0 failed" and record["seed"] == "7"
    assert re.fullmatch("[0-9a-f]{40}", record["commit"]) and " cores of " in record["machine"]
    assert ended(check())[0] == 0 and times(check, "tests") == times(check, "figures") == 1
    commit(check.tree, "docs/a", "documents")
    assert ended(check())[0] == 0 and times(check, "tests") == times(check, "figures") == 1
    commit(check.tree, "bench/a", "2")
    status, output = ended(check(LIST="1"))
    assert status == 1
    assert states(output) == {"tests": "passed", "figures": "old", "long": "passed"}
    assert ended(check())[0] == 0 and (times(check, "tests"), times(check, "figures")) == (1, 2)
    commit(check.tree, "scripts/a", "3")
    assert ended(check(ONLY="tests"))[0] == 0
    status, output = ended(check(LIST="1"))
    assert status == 1
    assert states(output) == {"tests": "passed", "figures": "passed", "long": "old"}


def test_another_history_counts_for_nothing(check):
    (check.log / "go").touch()
    assert ended(check())[0] == 0
    git(check.tree, "checkout", "-q", "--orphan", "other")
    git(check.tree, "commit", "-q", "-m", "another")
    status, output = ended(check(LIST="1"))
    assert status == 1 and set(states(output).values()) == {"old"}


def test_a_failure(check):
    (check.log / "go").touch()
    (check.log / "bad").touch()
    status, output = ended(check())
    assert status == 1 and states(output)["tests"] == "failed"
    assert "not passed: tests\n" in output and states(output)["long"] == "passed"
    (check.log / "bad").unlink()
    status, output = ended(check())
    assert status == 0 and times(check, "tests") == 2 and times(check, "figures") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_where_it_was(check, number):
    child = check()
    pid = int(wait_until(lambda: (path := check.log / "pid").exists() and path.read_text()))
    child.send_signal(number)
    status, _ = ended(child)
    assert status != 0
    wait_until(lambda: process_gone(pid))
    assert {path.name for path in (check.tree / ".run-release").glob("*.json")} == {
        "tests.json",
        "figures.json",
    }
    (check.log / "go").touch()
    assert ended(check())[0] == 0 and times(check, "tests") == 1


def test_what_is_refused(check):
    (check.tree / "docs/new").touch()
    status, output = ended(check())
    assert status == 1 and "commit your changes first" in output and times(check, "tests") == 0
    (check.tree / "docs/new").unlink()
    status, output = ended(check(ONLY="bogus"))
    assert status == 1 and "no item bogus; there are: tests figures long" in output


@pytest.fixture
def items():
    sys.path.append(str(ROOT / "scripts"))
    from release_check import ITEMS as found

    return found


def test_what_each_item_covers(items):
    covers = {item.name: item.covers for item in items}
    for name, path, is_covered in (
        ("all", "docs/about/testing.md", True),
        ("tls", "docs/about/testing.md", False),
        ("tls", "gateway/main.c", True),
        ("tls", "tests/stack.py", True),
        ("tls", "bench/bench.py", False),
        ("bench", "bench/bench.py", True),
        ("bench", "worker/main.c", True),
        ("alerts", "deploy/haproxy.cfg", True),
        ("compose", "deploy/haproxy.cfg", True),
        ("compose", "docker-compose.yml", True),
        ("console", "deploy/haproxy.cfg", False),
        ("kubernetes", "gateway/main.c", False),
        ("torture-1", "lua/issue.lua", True),
    ):
        assert (ROOT / path).exists(), path
        told = subprocess.run(
            ["git", "ls-files", "--cached", "--", *covers[name]], cwd=ROOT, check=True,
            stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
        assert (path in told.splitlines()) == is_covered, (name, path)


def test_each_command_is_a_target(items):
    makefiles = [ROOT / "Makefile", *Path(ROOT / "scripts").glob("*.mk")]
    targets = set(re.findall(r"^([a-z-]+):.*##", "\n".join(map(Path.read_text, makefiles)), re.M))
    for item in items:
        for command in item.command.split(" && "):
            make, target, *words = command.split()
            assert make == "make" and target in targets, item
            for word in words:
                name, _, value = word.partition("=")
                assert name in (
                    "ALL",
                    "TLS",
                    "TESTS",
                    "SAN",
                    "SHARDS",
                    "PART",
                    "PLATFORMS",
                    "FUZZ_S",
                    "WITH_ZOOKEEPER",
                ), item
                assert name != "TESTS" or (ROOT / value).exists(), item


def long_begins(check):
    child = check(ONLY="long")
    wait_until(lambda: (check.log / "pid").exists() and (check.log / "pid").read_text())
    return child


def test_one_at_a_time(check):
    child = long_begins(check)
    status, output = ended(check())
    assert status == 1 and "another one runs" in output and times(check, "tests") == 0
    child.terminate()
    assert ended(child)[0] == 143


def test_a_tree_that_changes_meanwhile(check):
    child = long_begins(check)
    commit(check.tree, "scripts/a", "2")
    pid = int((check.log / "pid").read_text())
    subprocess.run(["pkill", "-P", str(pid)], check=True)
    status, output = ended(child)
    assert status == 1 and "no record of long: the tree has changed while it ran" in output
    assert not (check.tree / ".run-release/long.json").exists()


def test_settings_are_for_this_command_alone(check):
    (check.log / "go").touch()
    program = check.tree / "scripts/release_check.py"
    program.write_text(
        program.read_text().replace("echo 3 passed", "echo ${ALL-} ${CI-} ${TESTS-}3 passed"),
        "utf-8",
    )
    commit(check.tree, "scripts/a", "2")
    assert ended(check(ONLY="tests", ALL="1", CI="true", TESTS="x"))[0] == 0
    assert (check.tree / ".run-release/tests.out").read_text() == "3 passed, 0 failed\n"
