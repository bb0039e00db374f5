"""The source tree: the list of folders in docs/about/hacking.md, the purpose of each file, what
each part includes, and no circles. And what docs/about lists of tests/ and bench/. """

import re
import subprocess

from next_version import PATCH
from stack import FOLDERS, ROOT


def section():
    page = (ROOT / "docs/about/hacking.md").read_text(encoding="utf-8")
    return page.partition("\n## Source tree\n")[2].partition("\n## ")[0]


def tree():
    """The files in the folders of the tree, without build outputs and hidden files."""
    tops = [top for top in ROOT.iterdir() if top.is_dir() and not re.match(r"\.|build", top.name)]
    found = [path for top in tops for path in top.rglob("*") if path.is_file()]
    return [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]


def module(path):
    """A file in C and its header are one."""
    return re.sub(r"\.[ch]$", "", path)


def sources():
    return [path for path in tree() if re.fullmatch(rf"({'|'.join(FOLDERS)})/.*\.[ch]", path)]


def includes():
    """(file, included file) for each #include of a file of the tree."""
    files = set(sources())
    for path in sorted(files):
        text = (ROOT / path).read_text(encoding="utf-8")
        for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            if included in files:
                yield path, included


def test_every_folder_is_listed_once():
    lines = section().split("```")[1].strip().splitlines()
    listed = [line.split()[0].rstrip("/") for line in lines]
    assert len(listed) == len(set(listed))
    folders = {path.rsplit("/", 1)[0] for path in tree()}
    known = {folder for folder in folders if any(f"{folder}/".startswith(f"{f}/") for f in listed)}
    assert folders - known == set()
    assert {path.rsplit("/", 1)[0] for path in sources()} - set(listed) == set()
    assert [folder for folder in listed if not (ROOT / folder).is_dir()] == []


def test_every_file_says_what_it_is_for():
    printed = subprocess.run(
        ["scripts/tree.sh"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    lines = [line.split() for line in printed.splitlines() if line.startswith("  ")]
    assert len(lines) >= len(sources())
    assert [words[0] for words in lines if len(words) == 1] == []


def test_a_program_includes_only_what_it_may():
    """As the bullets of the section say: "`worker/` includes `common/`, `keeper/keeper.h`."."""
    may = {
        folder: re.findall(r"`([^`]+)`", rest)
        for folder, rest in re.findall(r"^- `(\w+)/` includes (.*(?:\n  .*)*)", section(), re.M)
    }
    assert sorted(may) == sorted(FOLDERS)
    wrong = [
        f"{path} includes {included}"
        for path, included in includes()
        if not included.startswith((path.split("/")[0] + "/", *may[path.split("/")[0]]))
    ]
    assert wrong == []


def test_a_library_with_own_settings_is_included_in_one_place():
    """librabbitmq's headers have other names in other versions; uthash needs its keyed hash."""
    places = {"amqp|rabbitmq-c/": "common/rabbit/connection.h", "uthash": "common/hash.h"}
    wrong = [
        path
        for path in tree()
        for header, place in places.items()
        if re.fullmatch(r".*\.[ch]", path)
        and path != place
        and re.search(rf"^#include <({header})", (ROOT / path).read_text("utf-8"), re.M)
    ]
    assert wrong == []


def circles(edges):
    """The sets of modules that reach each other (Tarjan's strongly connected components)."""
    found, index, low, stack = [], {}, {}, []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            circle = stack[stack.index(node) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def test_no_circle_of_files():
    edges = {}
    for path, included in includes():
        if module(path) != module(included):
            edges.setdefault(module(path), set()).add(module(included))
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
    assert circles(edges) == []


def about(page, heading):
    """A section of a page of docs/about."""
    whole = (ROOT / "docs/about" / page).read_text(encoding="utf-8")
    return whole.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_each_kind_of_tests_is_described():
    listed = re.findall(r"^- `tests/(\w+)`", about("testing.md", "Kinds of tests"), re.MULTILINE)
    assert sorted(listed) == sorted({path.split("/")[1] for path in tree() if is_of_a_kind(path)})


def is_of_a_kind(path):
    return path.startswith("tests/") and path.count("/") > 1


def test_each_fuzz_target_is_described():
    rows = re.findall(r"^\| (`.*?) \|", about("testing.md", "Fuzzing"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    sources = (ROOT / "tests/fuzz").glob("fuzz_*.c")
    assert sorted(listed) == sorted(path.stem.removeprefix("fuzz_") for path in sources)


def test_each_measurement_is_described():
    rows = re.findall(r"^\| (`.*?) \|", about("hacking.md", "Benchmark"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+\.py)`", row)]
    bench = (ROOT / "bench").glob("*.py")
    measures = {path.name for path in bench if "\nMEASURES = (" in path.read_text("utf-8")}
    assert measures <= set(listed)


def test_amounts_are_written_alike():
    """By couponctl budget, the console and the clients: the currencies without two digits."""
    in_c, *others = (
        re.findall('"([A-Z]{3}(?: [A-Z]{3})+)"', (ROOT / path).read_text())
        for path in (
            "ctl/money.c",
            "console/dom.js",
            "sdk/python/couponmq/money.py",
            "sdk/node/src/money.js",
            "sdk/go/money.go",
            "sdk/java/src/couponmq/Money.java",
        )
    )
    assert len(in_c) == 3 and others == [in_c] * len(others)


def test_the_patch_of_the_next_version_applies():
    """The upgrade tests build that version: tests/next_version.py."""
    done = subprocess.run(
        ["patch", "-p1", "--fuzz=0", "--dry-run", "-i", str(PATCH)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
