"""The drawing of the source tree in docs/hacking.md: complete, in layers, and without circles.

The drawing is the first code block of the section "Source tree". A line at its margin is a layer,
a folder or a part of one; the indented lines below it are its files. `name.c` stands for name.c and
name.h. A folder without indented lines is drawn as a whole. The layers are drawn from top to
bottom.
"""

import re

from stack import ROOT

C_FOLDERS = ("gateway", "worker", "keeper", "rush", "ctl", "client", "compare", "webhook", "codes",
             "lock", "common")  # fmt: skip
DRAWN_BY_FILE = (*C_FOLDERS, "lua", "sql", "scripts")
LINE = re.compile(r"( *)(\S+)  +\S.*")

# Known circles of files that are to be removed. Remove an entry with its circle.
KNOWN_CIRCLES = []


def section():
    page = (ROOT / "docs/hacking.md").read_text(encoding="utf-8")
    return page.partition("\n## Source tree\n")[2].partition("\n## ")[0]


def drawing():
    """[(folder, [file, …]), …] of the layers, from top to bottom; files with their folder."""
    layers = []
    for line in section().split("```")[1].strip().splitlines():
        drawn = LINE.fullmatch(line)
        assert drawn, f"not of the form `name  purpose`: {line}"
        indent, name = drawn.groups()
        if not indent:
            assert name.endswith("/"), f"not a folder: {line}"
            layers.append((name[:-1], []))
        else:
            layers[-1][1].append(f"{layers[-1][0]}/{name}")
    return layers


def tree():
    """The files in the folders of the tree, without build outputs and hidden files."""
    tops = [top for top in ROOT.iterdir() if top.is_dir() and not re.match(r"\.|build", top.name)]
    found = [path for top in tops for path in top.rglob("*") if path.is_file()]
    return [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]


def module(path):
    """A file in C and its header are one."""
    return re.sub(r"\.[ch]$", "", path)


def sources():
    return [path for path in tree() if re.fullmatch(rf"({'|'.join(C_FOLDERS)})/.*\.[ch]", path)]


def includes():
    """(file, included file) for each #include of a file of the tree."""
    files = set(sources())
    for path in sorted(files):
        text = (ROOT / path).read_text(encoding="utf-8")
        for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            if included in files:
                yield path, included


def test_the_drawing_has_every_file_once():
    layers = drawing()
    drawn = [file for _, files in layers for file in files]
    assert sorted(drawn) == sorted(set(drawn)), "drawn twice"
    headers = {path for path in tree() if path.endswith(".h")}
    whole = {folder for folder, files in layers if not files}
    wanted = {
        path
        for path in tree()
        if path.split("/")[0] in DRAWN_BY_FILE
        and path.rsplit("/", 1)[0] not in whole
        and not (path in headers and (ROOT / (module(path) + ".c")).exists())
    }
    assert {"not drawn": wanted - set(drawn), "not in the tree": set(drawn) - wanted} == {
        "not drawn": set(),
        "not in the tree": set(),
    }


def test_the_drawing_has_every_folder():
    drawn = {folder for folder, _ in drawing()}
    folders = {path.rsplit("/", 1)[0] for path in tree()}
    known = {folder for folder in folders if any(f"{folder}/".startswith(f"{d}/") for d in drawn)}
    assert folders - known == set()
    assert [folder for folder in drawn if not (ROOT / folder).is_dir()] == []


def test_a_file_includes_only_its_layer_and_those_below():
    depth = {}
    for number, (_, files) in enumerate(drawing()):
        depth.update({module(file): number for file in files})
    upwards = [
        f"{path} includes {included}"
        for path, included in includes()
        if depth.get(module(included), 0) < depth.get(module(path), 0)
    ]
    assert upwards == []


def test_a_program_includes_only_what_it_may():
    """As the bullets of the section say: "`worker/` includes `common/`, `keeper/keeper.h`."."""
    may = {
        folder: re.findall(r"`([^`]+)`", rest)
        for folder, rest in re.findall(r"^- `(\w+)/` includes (.*(?:\n  .*)*)", section(), re.M)
    }
    assert sorted(may) == sorted(C_FOLDERS)
    wrong = [
        f"{path} includes {included}"
        for path, included in includes()
        if not included.startswith((path.split("/")[0] + "/", *may[path.split("/")[0]]))
    ]
    assert wrong == []


def test_a_library_with_own_settings_is_included_in_one_place():
    """librabbitmq's headers have other names in other versions; uthash needs its keyed hash."""
    places = {"amqp|rabbitmq-c/": "common/rabbit/amqp.h", "uthash": "common/hash.h"}
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
    assert circles(edges) == KNOWN_CIRCLES
