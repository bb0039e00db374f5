"""make mutants: removes one safeguard after the other from a copy of the source, and runs the tests
that must notice. Fails if one of them passes.

Each of SHARDS=2 copies runs its share: first all tests of its mutants without any fault, which must
pass (not with --faults-only, beside the tests themselves), then each mutant. ONLY=words chooses
mutants by their names, promises and files; PART=2/4 is the second quarter of them. --selection FILE
are those of a run of `make test` (tests/selection.py). --table prints them and runs nothing."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from mutant import ROOT  # first: it finds the others
from of_clients import MUTANTS as OF_CLIENTS
from of_ctl import MUTANTS as OF_CTL
from of_end import MUTANTS as OF_END
from of_gate import MUTANTS as OF_GATE
from of_gateway import MUTANTS as OF_GATEWAY
from of_lua import MUTANTS as OF_LUA
from of_sql import MUTANTS as OF_SQL
from of_stores import MUTANTS as OF_STORES
from of_tokens import MUTANTS as OF_TOKENS
from of_worker import MUTANTS as OF_WORKER
from share import share_of

MUTANTS = sorted(
    [
        *OF_LUA,
        *OF_SQL,
        *OF_GATEWAY,
        *OF_WORKER,
        *OF_STORES,
        *OF_TOKENS,
        *OF_GATE,
        *OF_END,
        *OF_CTL,
        *OF_CLIENTS,
    ],
    key=lambda one: int(re.match(r"P(\d+)|", one.promise)[1] or 99),
)
BASE = ROOT / "build-mutants"
OURS = ("ONLY", "PART", "SEED", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # not for what it starts
LEFT_OUT = shutil.ignore_patterns("build-*", ".run*", ".git", "__pycache__")
LIMIT_S = 900  # for the tests of one mutant; one that hangs is noticed as well
PROGRAM_LIMIT_S = 120  # the same for a program of build/tests, which takes seconds
WAIT_S = 40  # what a test waits for, at most: with a fault it may never come
PYTHON = ["/usr/bin/python3", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def arguments_read():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""))
    parser.add_argument("--selection", help="a file of selection.py, which names mutants")
    parser.add_argument("--shards", type=int, default=int(os.environ.get("SHARDS") or 2))
    parser.add_argument("--faults-only", action="store_true")
    return parser.parse_args()


def table():
    """A bullet for each: the promise, what is taken away and where, and the tests that notice."""
    rows = []
    for one in MUTANTS:
        tests = ", ".join(f"`{test.rpartition('::')[2]}`" for test in one.tests)
        text = f"{one.promise}: {one.safeguard} (`{one.file}`): {tests}"
        rows += textwrap.wrap(
            text,
            100,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(rows)


def chosen(only, selection=None):
    if selection:
        names = json.loads(Path(selection).read_text("utf-8"))["mutants"]
        return [one for one in MUTANTS if one.name in names]
    words = only.replace(",", " ").split()
    found = [
        one
        for one in MUTANTS
        if not words
        or any(word in one.name or word in one.file or word == one.promise for word in words)
    ]
    if not found:
        sys.exit(f"mutants: none matches {only}; there are: {' '.join(m.name for m in MUTANTS)}")
    return share_of(found)


def left_out(folder, names):
    """Not the results of a `make test` that is running."""
    return {"test"} if Path(folder) == ROOT / "build" else LEFT_OUT(folder, names)


class Copy:
    """A copy of the source, with a build and a stack of its own."""

    def __init__(self, number):
        self.root = BASE / str(number)
        self.number = number
        self.process = None
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in OURS},
            "ALL": "1",
            "BUILD_DIR": "build",
            "RUN_DIR": ".run-test",
            "PORT_BASE": str(int(os.environ.get("PORT_BASE") or 18400) + 1000 * number),
            "TEST_WAIT_S": os.environ.get("TEST_WAIT_S") or str(WAIT_S),
        }

    def make(self):
        self.stacks_clean()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(ROOT, self.root, ignore=left_out, symlinks=True)

    def run(self, command, limit_s=LIMIT_S):
        """(exit code or None if it hangs, what it printed). The command and all it started end."""
        self.process = subprocess.Popen(
            command, cwd=self.root, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = self.process.communicate(timeout=limit_s)
            return self.process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return None, self.process.communicate()[0]

    def stacks_clean(self):
        for folder in sorted(self.root.glob(".run*")):
            subprocess.run(
                ["scripts/stack.sh", "clean"], cwd=self.root, check=False,
                env={**self.env, "RUN_DIR": folder.name}, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def build(self, tests):
        """What these tests need. '' or what the compiler said."""
        programs = sorted(
            {f"build/tests/{test.split('::')[0]}" for test in tests if is_program(test)}
        )
        wanted = programs + ([] if all(map(is_program, tests)) else ["build", "agents"])
        if all(
            test.startswith(("tests/lua/", "tests/sql/")) and "migrate" not in test
            for test in tests
        ):
            return ""  # these read the files themselves; couponctl migrate has them within
        code, output = self.run(["make", "--no-print-directory", "-j2", "WARN=-w", *wanted])
        return "" if code == 0 else output

    def tests_run(self, tests):
        """{test: 'passed', 'failed' or what happened instead}, and what was printed."""
        results, printed = {}, ""
        for program in sorted({test.split("::")[0] for test in tests if is_program(test)}):
            code, output = self.run([f"build/tests/{program}"], PROGRAM_LIMIT_S)
            printed += output
            for test in tests:
                if test.split("::")[0] == program:
                    results[test] = program_result(output, code, test.split("::")[1])
        pytests = [test for test in tests if not is_program(test)]
        if pytests:
            xml = self.root / "mutant.xml"
            xml.unlink(missing_ok=True)
            code, output = self.run([*PYTHON, f"--junitxml={xml}", *pytests])
            printed += output
            results |= {test: pytest_result(xml, code, test) for test in pytests}
        self.stacks_clean()
        return results, printed


def is_program(test):
    return not test.startswith("tests/")


def program_result(output, code, name):
    """The result of a test of cmocka. A program that dies does so in the test that it began
    last."""
    if f"[       OK ] {name}\n" in output:
        return "passed"
    if re.search(rf"\[  (FAILED |ERROR  ) \] {name}\b", output):
        return "failed"
    begun = re.findall(r"\[ RUN      \] (\w+)", output)
    if begun and begun[-1] == name and code != 0:
        return "failed"
    return f"did not run (exit code {code})"


def pytest_result(xml, code, test):
    """The result of a test with parameters: failed if it failed with one of them. A fixture that
    fails does not count: the fault has broken something else."""
    if code is None:
        return "failed"  # it hangs
    if not xml.exists():
        return f"did not run (exit code {code})"
    file, name = test.split("::")
    classname = file.removesuffix(".py").replace("/", ".")
    found = [
        case
        for case in ElementTree.parse(xml).iter("testcase")
        if case.get("classname") == classname
        and (case.get("name") == name or case.get("name").split("[")[0] == name)
    ]
    if any(case.find("failure") is not None for case in found):
        return "failed"
    if any(case.find("error") is not None for case in found):
        return "a fixture failed"
    if not found or all(case.find("skipped") is not None for case in found):
        return "did not run"
    return "passed"


class Shard(threading.Thread):
    def __init__(self, number, mutants, faults_only, told):
        super().__init__(daemon=True)
        self.copy = Copy(number)
        self.mutants = mutants
        self.faults_only = faults_only
        self.told = told  # told(text)
        self.bad = []

    def run(self):
        self.copy.make()
        if self.faults_only or self.all_pass():
            for one in self.mutants:
                self.mutant_run(one)

    def all_pass(self):
        """Whether the tests do without a fault."""
        tests = sorted({test for one in self.mutants for test in one.tests})
        trouble = self.copy.build(tests)
        results, printed = ({}, trouble) if trouble else self.copy.tests_run(tests)
        without = {test: result for test, result in results.items() if result != "passed"}
        if trouble or without:
            self.bad.append("without a fault")
            self.told(f"{printed}\nWITHOUT A FAULT: {without or 'it does not build'}")
        return not (trouble or without)

    def mutant_run(self, one):
        began = time.monotonic()
        path = self.copy.root / one.file
        sound = path.read_text()
        path.write_text(one.text(self.copy.root))
        trouble = self.copy.build(one.tests)
        results, printed = ({}, trouble) if trouble else self.copy.tests_run(one.tests)
        path.write_text(sound)
        noticed = [test for test, result in results.items() if result == "failed"]
        missed = {test: result for test, result in results.items() if result != "failed"}
        took = f"{time.monotonic() - began:5.1f} s"
        if trouble or missed:
            self.bad.append(one.name)
            self.told(f"{printed}\nSURVIVED  {one.name}: {missed or 'it does not build'}")
        else:
            self.told(f"caught  {took}  {one.promise:<4} {one.name}: {' '.join(noticed)}")


def main():
    arguments = arguments_read()
    if arguments.table:
        print(table())
        return 0
    for one in MUTANTS:
        one.text()
    mutants = chosen(arguments.only, arguments.selection)
    count = max(1, min(arguments.shards, len(mutants)))
    lock = threading.Lock()

    def told(text):
        with lock:
            print(text, flush=True)

    print(f"mutants: {len(mutants)} of {len(MUTANTS)}", flush=True)
    shards = [
        Shard(place + 1, mutants[place::count], arguments.faults_only, told)
        for place in range(count)
    ]

    def end(*_):
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    try:
        for one in shards:
            one.start()
        for one in shards:
            while one.is_alive():
                one.join(1)
    finally:
        for one in shards:
            if one.copy.process and one.copy.process.poll() is None:
                os.killpg(one.copy.process.pid, signal.SIGTERM)
                one.copy.process.wait(60)
            one.copy.stacks_clean()
    bad = [name for one in shards for name in one.bad]
    print(f"mutants: {len(mutants) - len(bad)} caught, {len(bad)} not: {' '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
