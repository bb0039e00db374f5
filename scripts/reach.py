#!/usr/bin/env python3
"""make reach: which functions are reached by tests that are long, or not on the shared stack, for
tests/reach.txt.

Each file that has such tests runs alone, on a build for gcov and a stack of its own, and of its
tests only these. A process writes its counts when it ends, also by SIGTERM; what it has done before
SIGKILL is lost. Two files run at once. A file that fails is named, and keeps what it has reached.

    ONLY=words    only these files; the others keep their lines
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from reach import MAP, Reach, git  # noqa: E402
from shards import seconds_of  # noqa: E402

FOLDERS = ("console", "docs", "e2e", "power", "scripts", "sdk", "sql")
BUILDS = ("build-coverage", "build-coverage-fault")
RUN = ROOT / ".run-reach"
WORKERS, PORTS_FROM, PORTS_EACH = 2, 20400, 3000
LIMIT_S = 3600
PYTHON = ("/usr/bin/python3", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short")


def functions_reached(folder):
    """(file, function) of all whose counts are there. gcov wants the notes of the compiler beside
    them."""
    found = set()
    for build in BUILDS:
        counts = folder / str(ROOT / build).lstrip("/")
        files = sorted(counts.rglob("*.gcda"))
        for file in files:
            notes = file.with_suffix(".gcno")
            if not notes.exists():
                notes.symlink_to(ROOT / build / file.relative_to(counts).with_suffix(".gcno"))
        for start in range(0, len(files), 50):
            told = subprocess.run(
                ["gcov", "--json-format", "--stdout", *files[start : start + 50]],
                cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            ).stdout  # fmt: skip
            for line in told.splitlines():
                for one in json.loads(line)["files"] if line.startswith(b"{") else ():
                    path = one["file"].removeprefix(f"{ROOT}/").removeprefix("./")
                    found |= {
                        (path, function["name"])
                        for function in one["functions"]
                        if function["execution_count"] and not path.startswith(("/", "build"))
                    }
    return found


class Worker(threading.Thread):
    def __init__(self, number, files, told):
        super().__init__(daemon=True)
        self.files, self.told = files, told
        self.folder = f".run-reach-{number}"
        self.env = {
            **os.environ,
            "ALL": "1",
            "REST": "1",
            "SEED": "1",
            "BUILD_DIR": BUILDS[0],
            "RUN_DIR": self.folder,
            "PORT_BASE": str(PORTS_FROM + PORTS_EACH * number),
        }

    def stacks(self, command):
        for folder in sorted(ROOT.glob(f"{self.folder}*")):
            subprocess.run(
                ["scripts/stack.sh", command], cwd=ROOT, check=False, stdout=subprocess.DEVNULL,
                env={**self.env, "RUN_DIR": folder.name},
            )  # fmt: skip

    def run(self):
        while True:
            try:
                file = self.files.get_nowait()
            except queue.Empty:
                return
            self.file_run(file)

    def file_run(self, file):
        counts, began = RUN / file.replace("/", "."), time.monotonic()
        shutil.rmtree(counts, ignore_errors=True)
        counts.mkdir(parents=True)
        xml = counts / "result.xml"
        self.stacks("clean")
        with (counts / "out").open("wb") as out:
            child = subprocess.run(
                [*PYTHON, f"--junitxml={xml}", file], cwd=ROOT, check=False, timeout=LIMIT_S,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**self.env, "GCOV_PREFIX": str(counts)},
            )  # fmt: skip
            self.stacks("stop")
        # A browser is installed for a change of the console alone.
        reached = set() if file.startswith("tests/console/") else functions_reached(counts)
        cases = list(ElementTree.parse(xml).iter("testcase")) if xml.exists() else []
        seconds = sum(float(case.get("time")) for case in cases)
        for folder in counts.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)
        self.stacks("clean")
        self.told(file, child.returncode, reached, seconds, len(cases))
        print(
            f"reach: {file}: {len(cases)} tests, {seconds:.0f} s of {time.monotonic() - began:.0f},"
            f" {len(reached)} functions{'' if child.returncode in (0, 5) else ', FAILED'}",
            flush=True,
        )


def main():
    words = os.environ.get("ONLY", "").replace(",", " ").split()
    files = [
        str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in sorted((ROOT / "tests" / folder).glob("test_*.py"))
    ]
    wanted = [file for file in files if not words or any(word in file for word in words)]
    reach = Reach.read()
    reach.keep(file for file in files if file not in wanted)
    lock, failed = threading.Lock(), []
    commit = (git("rev-parse", "HEAD") or "").strip()

    def told(file, code, reached, seconds, count):
        with lock:
            if code not in (0, 5):  # 5: it has no such test
                failed.append(file)
            if count:
                reach.add(file, reached, seconds)
                reach.write(commit)  # a run that is broken off keeps what it has

    todo = queue.Queue()
    for file in sorted(wanted, key=lambda file: -seconds_of(ROOT / file)):
        todo.put(file)
    workers = [Worker(number + 1, todo, told) for number in range(WORKERS)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    print(f"reach: {len(reach.tests)} files of tests, {len(reach.functions)} functions: {MAP}")
    if failed:
        print(f"reach: FAILED: {' '.join(failed)}; the outputs are in {RUN.name}/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
