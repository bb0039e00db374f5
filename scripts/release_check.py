#!/usr/bin/env python3
"""make release-check: everything that has to pass before a release, and a record of each item.

An item is one command. Its record, .run-release/NAME.json, has the commit, the seed, the result,
the seconds and the machine; its output is NAME.out beside it. An item that has passed is not run
again until a commit changes what it covers, so the check can be broken off and goes on where it
was. At the end a table is printed. The exit status is 0 only if each item has passed and no record
is older than the last change of what the item covers.

    LIST=1                  prints the table and runs nothing
    ONLY=torture,console    only the items whose names contain one of these words
    SEED=n                  the seed of each item, instead of one by chance
    RELEASE_DIR=.run-release   where the records are"""

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
# What the documents alone change does not concern the programs.
PROGRAMS = (":/", ":(exclude)docs", ":(exclude)*.md", ":(exclude)deploy", ":(exclude)bench")


@dataclass(frozen=True)
class Item:
    name: str
    minutes: int  # about, on two cores
    command: str
    covers: tuple = PROGRAMS


ITEMS = (
    Item("all", 75, "make test ALL=1", (":/",)),
    Item("tls", 75, "make test ALL=1 TLS=yes"),
    *(
        Item(f"torture-{part}", 20, f"make torture SHARDS=3 PART={part}/{PARTS}")
        for part in range(1, PARTS + 1)
    ),
    *(
        Item(f"mutants-{part}", 30, f"make mutants SHARDS=2 PART={part}/{PARTS}")
        for part in range(1, PARTS + 1)
    ),
    Item("address", 150, "make test ALL=1 SAN=address"),
    Item("thread", 150, "make test ALL=1 SAN=thread"),
    Item("debian12", 20, "make test-platforms PLATFORMS=debian12"),
    Item("debian13", 80, "make test-platforms PLATFORMS=debian13 ALL=1"),
    Item("valkey", 80, "make test-platforms PLATFORMS=debian13-valkey ALL=1"),
    Item("compose", 20, "make test-compose", (*PROGRAMS, ":/deploy", ":/docker-compose*")),
    Item(
        "kubernetes", 5, "make test-kubernetes", (":/deploy", ":/tests/docs", ":/tests/kubernetes")
    ),
    Item("console", 25, "make test-console"),
    Item("alerts", 12, "make test-alerts", (*PROGRAMS, ":/deploy")),
    Item("outside", 10, "make test-outside"),
    Item("generators", 10, "make test-generators"),
    Item("zookeeper", 10, "make test WITH_ZOOKEEPER=1 TESTS=tests/e2e/test_e2e_lock.py"),
    Item("torture-ha", 40, "make torture-ha"),
    Item("power", 10, "make test ALL=1 TESTS=tests/power"),
    Item("packages", 15, "make test ALL=1 TESTS=tests/scripts/test_install.py"),
    Item("clients", 10, "make test ALL=1 TESTS=tests/sdk"),
    Item("fuzz", 70, f"make fuzz FUZZ_S={FUZZ_TARGET_S}"),
    Item("bench", 60, "make bench", (*PROGRAMS, ":/bench")),
    Item("site", 5, "make site && make test TESTS=tests/docs/test_site.py", (":/",)),
)


def git(*words):
    told = subprocess.run(["git", *words], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    return told.stdout.strip() if told.returncode == 0 else None


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
    print(f"release-check: {item.name}, about {item.minutes} min: {item.command}", flush=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    for name in ("ONLY", "LIST", "MFLAGS"):
        env.pop(name, None)
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
        if git("status", "--porcelain"):
            sys.exit("release-check: there are changes: commit first, since a record has a commit")
        commit = git("rev-parse", "HEAD")
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
