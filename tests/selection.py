"""What a run of `make test` selects of the tests of services: those of tests/e2e and tests/sql, and
all that take long. The same commit, with the same changes beside it, always selects the same.

    make test             those marked `always`; the files that the change touches (reach.py), the
                          likeliest first, up to a number of seconds; and some of the others in
                          turn, by the number of commits
    CI=true make test     the same with more of each
    make test ALL=1       all

Of the torture and of the mutants there are always some: those of what has changed, and others in
turn, up to a number. BASE=COMMIT: what the change is compared with.

selection.py FILE writes the selection to a file, for all parts of a run, and prints it."""

import json
import os
import sys
import zlib
from pathlib import Path

from reach import Change, Reach, base_find, git, touched
from stack import ROOT

TOUCHED_S = {"test": 60, "ci": 120}  # of the files that a change touches
CONSOLE_S = {"test": 100, "ci": 600}  # of those of the console: on the shared stack, beside them
# Each of so many runs has another part of the tests on the shared stack, and of the rest.
TURNS = {"test": {"shared": 8, "rest": 24}, "ci": {"shared": 6, "rest": 12}}
SCENARIO_TURNS = 12
MUTANTS_N = {"test": 2, "ci": 3, "all": 40}
SCENARIOS = ("rabbitmq_killed", "gateway_killed")  # of the torture, in every run


def selection_read():
    """The selection of the run that this process is a part of; without one, that of no change."""
    path = os.environ.get("SELECTION")
    if path:
        return json.loads(Path(path).read_text("utf-8"))
    return {"level": "test", "turn": 0, "files": [], "changed": []}


SELECTION = selection_read()


def is_in_turn(text, turn, turns):
    """Whether it is the turn of what has this name, of so many turns."""
    return zlib.crc32(text.encode()) % turns == turn % turns


def of_turn(things, count, turn=None):
    """So many of a list, those in turn; all of them with ALL=1."""
    if os.environ.get("ALL"):
        return list(things)
    first = (SELECTION["turn"] if turn is None else turn) * count % len(things)
    return (things[first:] + things)[:count]


def one_in_turn(things):
    """What takes long: one of a list in a run of all tests, each where a file runs by itself."""
    things = list(things)
    return [things[SELECTION["turn"] % len(things)]] if "SELECTION" in os.environ else things


def is_selected(file, nodeid, is_shared):
    """Whether this run has a test of services that is not marked `always`."""
    if SELECTION["level"] == "all" or file in SELECTION["files"]:
        return True
    turns = TURNS[SELECTION["level"]]["shared" if is_shared else "rest"]
    return is_in_turn(nodeid, SELECTION["turn"], turns)


def scenarios_selected(kinds):
    """The names of scenarios. kinds: {module: names of its scenarios}."""
    level, turn, names = SELECTION["level"], SELECTION["turn"], list(SCENARIOS)
    for kind, there in sorted(kinds.items()):
        has_changed = f"tests/torture/{kind}.py" in SELECTION["changed"]
        in_turn = level == "ci" and is_in_turn(kind, turn, SCENARIO_TURNS)
        if level == "all" or has_changed or in_turn:
            names.append(there[turn // SCENARIO_TURNS % len(there)])
    return names


def mutants_selected(level, turn, change):
    """The names of mutants, and of those that would be too many."""
    sys.path.insert(0, str(ROOT / "tests/mutants"))
    from run import MUTANTS

    able = [one for one in MUTANTS if level == "all" or not (one.waits or one.whole)]
    of_change = [
        one.name
        for one in able
        if (one.file in change.lines if level == "all" else change.is_of(one.file, one.old))
    ]
    others = [one.name for one in able if one.name not in of_change]
    wanted = of_change[: MUTANTS_N[level]]
    if level != "all" and len(wanted) < MUTANTS_N[level]:
        wanted += of_turn(others, MUTANTS_N[level] - len(wanted), turn)
    return wanted, [name for name in of_change if name not in wanted]


def packages_of(told):
    """The groups of scripts/packages.sh that the selected files need for what is marked `whole`,
    separated by spaces."""
    needed = {"sdk"} if told["level"] == "all" else set()
    needed |= {
        Path(file).parent.name
        for file in told["files"]
        if "mark.whole" in (ROOT / file).read_text("utf-8")
    }
    return " ".join(sorted(needed & {"console", "sdk"}))


def select():
    """The selection, as JSON has it."""
    level = "all" if os.environ.get("ALL") else "ci" if os.environ.get("CI") == "true" else "test"
    turn = int((git("rev-list", "--count", "HEAD") or "0").strip() or 0)
    base, reach = base_find(os.environ.get("BASE", "")), Reach.read()
    change = Change(base)
    files = touched(change, reach) if base else sorted(reach.tests)
    told = {"level": level, "turn": turn, "base": base, "changed": sorted(change.lines)}
    told |= {"files": [], "left": []}
    left_s = {
        is_console: seconds.get(level, float("inf"))
        for is_console, seconds in ((False, TOUCHED_S), (True, CONSOLE_S))
    }
    for file in files:
        is_console, seconds = file.startswith("tests/console/"), reach.tests.get(file, 0)
        is_in = seconds <= left_s[is_console]
        left_s[is_console] -= seconds if is_in else 0
        told["files" if is_in else "left"].append(file)
    told["packages"] = packages_of(told)
    told["mutants"], told["mutants_left"] = mutants_selected(level, turn, change)
    return told


def print_selection(told):
    since = f"since {told['base'][:10]}" if told["base"] else "of an unknown history"
    print(
        f"test: the changes {since} are in {len(told['changed'])} files, and touch"
        f" {len(told['files']) + len(told['left'])} files of tests"
    )
    if told["level"] == "all":
        print("test: all tests")
    else:
        turns = TURNS[told["level"]]
        print(
            f"test: of the others, one of {turns['shared']} parts on the shared stack,"
            f" and one of {turns['rest']} of the rest"
        )
    if told["left"]:
        print(f"test: left to a longer run: {' '.join(told['left'])}")
    if told["mutants_left"]:
        print(f"test: left to make mutants: {len(told['mutants_left'])} of what has changed")


if __name__ == "__main__":
    selection = select()
    Path(sys.argv[1]).write_text(json.dumps(selection, indent=1) + "\n", encoding="utf-8")
    print_selection(selection)
