#!/usr/bin/env python3
"""make release-check: everything that has to pass before a release, and a record of each item.

An item is one command. Its record, .run-release/NAME.json, has the commit, the seed, the result,
the seconds and the machine; its output is NAME.out beside it. An item that has passed is not run
again until a commit changes what it covers, so the check can be broken off and goes on where it
was. No record is written if the tree has changed while the item ran. At the end a table is printed.
The exit status is 0 only if each item has passed and no record is older than the last change of
what the item covers.

    LIST=1                  prints the table and runs nothing
    ONLY=torture,console    only the items whose names contain one of these words
    SEED=n                  the seed of each item, instead of one by chance
    RELEASE_DIR=.run-release   where the records are"""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / (os.environ.get("RELEASE_DIR") or ".run-release")
PARTS = 4  # of the longest items, each with a record of its own
FUZZ_TARGET_S = 170  # of 22 targets: an hour
# Settings of this command and of the items, which are not for those that it runs.
SETTINGS = (
    *("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "LIST", "ONLY", "PART", "SHARDS"),
    *("ALL", "BASE", "CI", "PLATFORMS", "SAN", "SELECTION", "TESTS", "TLS", "WITH_ZOOKEEPER"),
)
NO_PROGRAMS = ("docs", "*.md", "deploy", "bench")  # what changes no program, and no test of one


def programs_and(*others):
    """Patterns of git for the programs and their tests, and for these of NO_PROGRAMS."""
    return (":/", *(f":(exclude){one}" for one in NO_PROGRAMS if one not in others))


@dataclass(frozen=True)
class Item:
    name: str
    command: str
    covers: tuple = programs_and()


ITEMS = (
    # Also power cuts, packages, and the clients in each language.
    Item("all", "make test ALL=1", (":/",)),
    Item("clients", "make test ALL=1 TESTS=tests/sdk/test_conformance.py"),
    Item("setup", "make test ALL=1 TESTS=tests/scripts/test_setup.py"),
    Item("tls", "make test ALL=1 TLS=yes"),
    *(
        Item(f"torture-{part}", f"make torture SHARDS=3 PART={part}/{PARTS}")
        for part in range(1, PARTS + 1)
    ),
    *(
        Item(f"mutants-{part}", f"make mutants SHARDS=2 PART={part}/{PARTS}")
        for part in range(1, PARTS + 1)
    ),
    Item("address", "make test ALL=1 SAN=address"),
    Item("thread", "make test ALL=1 SAN=thread"),
    Item("debian12", "make test-platforms PLATFORMS=debian12"),
    Item("debian13", "make test-platforms PLATFORMS=debian13 ALL=1"),
    Item("valkey", "make test-platforms PLATFORMS=debian13-valkey ALL=1"),
    Item("compose", "make test-compose", programs_and("deploy")),
    Item("kubernetes", "make test-kubernetes", (":/deploy", ":/tests/docs", ":/tests/kubernetes")),
    Item("console", "make test-console"),
    Item("alerts", "make test-alerts", programs_and("deploy")),
    Item("outside", "make test-outside"),
    Item("generators", "make test-generators"),
    Item("zookeeper", "make test WITH_ZOOKEEPER=1 TESTS=tests/e2e/test_e2e_lock.py"),
    Item("torture-ha", "make torture-ha"),
    Item("fuzz", f"make fuzz FUZZ_S={FUZZ_TARGET_S}"),
    Item("bench", "make bench", programs_and("bench")),
    Item("site", "make site && make test TESTS=tests/docs/test_site.py", (":/",)),
)


def git(*words):
    told = subprocess.run(["git", *words], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    return told.stdout.strip() if told.returncode == 0 else None


def tree():
    """The commit that the tree is; None: it has changes, or is no repository."""
    return None if git("status", "--porcelain") != "" else git("rev-parse", "HEAD")


def machine():
    """Cores, memory, kind of processor and release."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    release = Path("/etc/debian_version")
    debian = release.read_text("ascii").strip() if release.exists() else "not Debian"
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {cpu[0] if cpu else '?'}, {memory:.0f} GiB, {debian}"


def record_read(item):
    """None: there is none."""
    try:
        return json.loads((RECORDS / f"{item.name}.json").read_text("utf-8"))
    except FileNotFoundError:
        return None


def record_write(item, record):
    """Whole or not at all."""
    part = RECORDS / f"{item.name}.part"
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(RECORDS / f"{item.name}.json")


def state(item, record):
    """passed, failed, missing, or old: what it covers has changed since."""
    if not record:
        return "missing"
    if (
        record["command"] != item.command
        or git("merge-base", "--is-ancestor", record["commit"], "HEAD") is None
    ):
        return "old"
    if git("log", "--format=%h", "-1", f"{record['commit']}..HEAD", "--", *item.covers):
        return "old"
    return record["result"]


def said(output):
    """The line that counts, of those at the end of an output."""
    lines = output.read_text("utf-8", "replace").splitlines()[-200:]
    counts = [line for line in lines if " passed" in line or " caught" in line]
    return (counts or lines or [""])[-1].strip()


def run(item, commit):
    """Runs the item and writes its record. One that is broken off leaves none."""
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(1, 10**6))
    output, began = RECORDS / f"{item.name}.out", time.monotonic()
    (RECORDS / f"{item.name}.json").unlink(missing_ok=True)
    print(f"release-check: {item.name}: {item.command}", flush=True)
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    with output.open("wb") as file:
        child = subprocess.Popen(
            ["bash", "-c", item.command], cwd=ROOT, env={**env, "SEED": seed}, stdout=file,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise
    if tree() != commit:
        sys.exit(f"release-check: no record of {item.name}: the tree has changed while it ran")
    record = {
        "item": item.name,
        "command": item.command,
        "commit": commit,
        "seed": seed,
        "result": "failed" if code else "passed",
        "seconds": round(time.monotonic() - began),
        "said": said(output),
        "at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
    }
    record_write(item, record)
    print(f"release-check: {item.name}: {record['result']}, {record['said']}", flush=True)


def table(items):
    """Prints a line for each item. Returns the names of those that are not passed."""
    wanting = []
    print(f"\n{'item':<12} {'result':<8} {'s':>6}  {'commit':<10} {'seed':>7}  said")
    for item in items:
        record = record_read(item)
        now = state(item, record)
        if now != "passed":
            wanting.append(item.name)
        known = record or {"seconds": "", "commit": "", "seed": "", "said": item.command}
        print(
            f"{item.name:<12} {now:<8} {known['seconds']:>6}  {known['commit'][:10]:<10}"
            f" {known['seed']:>7}  {known['said'][:60]}"
        )
    return wanting


def main():
    words = os.environ.get("ONLY", "").replace(",", " ").split()
    items = [one for one in ITEMS if not words or any(word in one.name for word in words)]
    if not items:
        sys.exit(f"release-check: no item {words[0]}; there are: {' '.join(i.name for i in ITEMS)}")
    RECORDS.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))  # also where a shell has it ignored
    if not os.environ.get("LIST"):
        lock = (RECORDS / "lock").open("w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"release-check: another one runs with the records in {RECORDS}")
        commit = tree()
        if not commit:
            sys.exit("release-check: a record has a commit: commit your changes first")
        for item in items:
            if state(item, record_read(item)) != "passed":
                run(item, commit)
    wanting = table(items)
    if wanting:
        print(f"\nrelease-check: not passed: {', '.join(wanting)}")
        return 1
    print("\nrelease-check: all of this has passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
