"""Which tests a run selects: what a change touches, function by function, and what is in turn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import reach
import selection
from reach import Change, Reach, Source, Tree, calling, importing, numbers_read, numbers_text
from stack import ROOT


@pytest.fixture(scope="module")
def tree():
    return Tree()


def test_each_function_is_found(tree):
    """A body begins with a brace in the first column, by the formatter."""
    for path, source in tree.sources.items():
        bodies = sum(line == "{" for line in source.lines)
        assert len(source.functions) == bodies, path
        assert len(set(source.functions)) == bodies, path
    assert sum(len(source.functions) for source in tree.sources.values()) > 3000


def test_where_a_line_is(tmp_path, monkeypatch):
    monkeypatch.setattr(reach, "ROOT", tmp_path)
    (tmp_path / "a.c").write_text(
        "static int\tn;\n\nint one(int a,\n\tint b)\n{\n\treturn a;\n}\n\n"
        "static const struct x table = {\n\t.run = one,\n};\n\nvoid two(void)\n{\n}\n"
    )
    source = Source("a.c")
    assert [source.at(line) for line in range(1, 16)] == [
        *(None, None, "one", "one", "one", "one", "one", None),
        *(None, None, None, None, "two", "two", "two"),
    ]


def test_what_a_line_concerns(tree):
    """A declaration in a header: the functions that name it."""
    path = "common/clock.h"
    lines = tree.sources[path].lines
    declared = next(n for n, line in enumerate(lines, 1) if "clock_rfc3339(" in line)
    concerned = reach.of_c(tree, path, [declared])
    assert concerned >= tree.naming({"clock_rfc3339"}) and len(concerned) < 400


SCRIPTS = {path.stem for path in (ROOT / "lua").glob("*.lua")} - {"prelude"}  # of all others


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_each_script_is_named_by_a_function(tree, script):
    assert tree.using({f"lua_{script}"})


def test_each_query_is_named_by_a_function(tree):
    names = {
        name
        for path in (ROOT / "sql/query").glob("*.sql")
        for name in reach.queries_of(str(path.relative_to(ROOT)), range(1, 100000))
    }
    unknown = {name for name in names if not tree.using({f"sql_query_{name}"})}
    assert len(names) > 100 and not unknown


def test_a_function_in_sql_is_called_by_others():
    assert calling({"settle"}) and calling({"use"})
    assert not calling({"no_such_function"})


def test_who_imports_a_module():
    assert "tests/e2e/test_e2e_admin_access.py" in importing("tests/e2e/admin_client.py")
    assert "tests/e2e/test_e2e_keys.py" in importing("tests/e2e/conftest.py")
    assert len(importing("tests/stack.py")) > 100


@pytest.mark.parametrize("numbers, text", [({3}, "3"), ({0, 1, 2, 5, 7, 8}, "0-2,5,7-8")])
def test_numbers(numbers, text):
    assert numbers_text(numbers) == text and numbers_read(text) == numbers


class Repository:
    """With a map of three files of tests, and commits that are days apart."""

    def __init__(self, folder):
        self.folder, self.days = folder, 0
        for name in ("gateway", "tests/e2e", "sdk", "tests/sdk"):
            (folder / name).mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        for name in ("one", "two", "all"):
            (folder / f"tests/e2e/test_{name}.py").touch()
        (folder / "tests/sdk/test_client.py").touch()
        self.write(
            "gateway/a.c", "int one(void)\n{\n\treturn 1;\n}\n\nint two(void)\n{\n\treturn 1;\n}\n"
        )
        made = Reach()
        for name, functions in (
            ("one", ["one"]),
            ("two", ["two"]),
            ("all", ["one", "two", "more"]),
        ):
            made.add(f"tests/e2e/test_{name}.py", {("gateway/a.c", one) for one in functions}, 9.6)
        made.add("tests/sdk/test_client.py", set(), 3)
        made.write("0" * 40)
        assert Reach.read().functions == made.functions and Reach.read().tests == made.tests
        self.first = self.commit()

    def git(self, *words):
        at = f"2026-01-{self.days + 1:02} 12:00:00 +0000"
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
            cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at},
        ).stdout.strip()  # fmt: skip

    def write(self, path, text):
        (self.folder / path).write_text(text)

    def commit(self, days=0):
        self.days += days
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", f"day {self.days}")
        return self.git("rev-parse", "HEAD")

    def touched(self, base):
        return [Path(file).stem for file in reach.touched(Change(base), Reach.read())]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(reach, "ROOT", tmp_path)
    monkeypatch.setattr(reach, "OF_C", ["gateway"])
    reach.importers.cache_clear()
    yield Repository(tmp_path)
    reach.importers.cache_clear()


def test_what_a_change_touches(repository):
    assert repository.touched(repository.first) == []
    text = (repository.folder / "gateway/a.c").read_text()
    repository.write("gateway/a.c", text[::-1].replace("1", "2", 1)[::-1])  # the last one: in two()
    assert repository.touched(repository.first) == ["test_all", "test_two"]
    repository.write("gateway/a.c", text.replace("1", "2"))
    assert repository.touched(repository.first) == ["test_all", "test_one", "test_two"]
    repository.write("gateway/a.c", text + "\nint three(void)\n{\n}\n")
    assert repository.touched(repository.first) == ["test_all", "test_one", "test_two"]
    repository.write("gateway/a.c", text)
    repository.write("sdk/client.go", "package x\n")
    assert repository.touched(repository.first) == ["test_client"]
    repository.write("tests/e2e/test_new.py", "\n")
    assert repository.touched(repository.first) == ["test_new", "test_client"]
    repository.commit()
    assert repository.touched(repository.first) == ["test_new", "test_client"]
    assert repository.touched("HEAD") == []


def test_what_a_run_compares_with(repository):
    assert reach.base_find() is None, "there is no commit that is a day older"
    second = repository.commit(days=1)
    assert reach.base_find() == repository.first
    last = repository.commit(days=1)
    assert reach.base_find() == second
    assert reach.base_find(repository.first) == repository.first
    with pytest.raises(SystemExit, match='BASE is "no-such": allowed is a commit'):
        reach.base_find("no-such")
    repository.git("update-ref", "refs/remotes/origin/main", repository.first)
    assert reach.base_find() == repository.first
    repository.git("update-ref", "refs/remotes/origin/main", last)
    assert reach.base_find() == second, "origin/main is what is tested"


def test_a_map_keeps_what_is_not_measured_again(repository):
    known = Reach.read()
    known.keep(["tests/e2e/test_all.py"])
    known.add("tests/e2e/test_two.py", {("gateway/a.c", "two")}, 1)
    known.write("1" * 40)
    again = Reach.read()
    assert set(again.tests) == {"tests/e2e/test_all.py", "tests/e2e/test_two.py"}
    assert again.functions["gateway/a.c", "one"] == {"tests/e2e/test_all.py"}
    assert again.functions["gateway/a.c", "two"] == set(again.tests)


def selected(path, **env):
    kept = {name: value for name, value in os.environ.items() if name not in ("ALL", "CI", "BASE")}
    told = subprocess.run(
        [sys.executable, "-B", "tests/selection.py", path], cwd=ROOT, check=True,
        env={**kept, **env}, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    return json.loads(path.read_text()), told


def test_the_same_tree_selects_the_same(tmp_path):
    first, _ = selected(tmp_path / "a")
    assert selected(tmp_path / "b")[0] == first
    assert first["level"] == "test" and len(first["mutants"]) == selection.MUTANTS_N["test"]
    whole, told = selected(tmp_path / "c", CI="true")
    assert whole["level"] == "ci" and "of the others, one of 6 parts" in told
    assert selected(tmp_path / "d", ALL="1")[0]["level"] == "all"


@pytest.mark.parametrize(
    "level, files, packages",
    [
        ("test", ["tests/e2e/test_e2e_keys.py", "tests/sdk/test_python.py"], ""),
        ("test", ["tests/e2e/test_e2e_keys.py", "tests/console/test_console.py"], "console"),
        ("ci", ["tests/sdk/test_go.py", "tests/console/test_console.py"], "console sdk"),
        ("all", [], "sdk"),
    ],
)
def test_what_the_selected_files_need(level, files, packages):
    assert selection.packages_of({"level": level, "files": files}) == packages


def test_a_change_of_the_console_selects_its_tests(monkeypatch):
    monkeypatch.setattr(reach, "lines_changed", lambda _: {"console/csv.js": [19]})
    files = reach.touched(Change("HEAD"), Reach.read())
    assert "tests/console/test_console_lists.py" in files
    assert all(file.startswith("tests/console/") for file in files)


def test_each_test_has_its_turn():
    names = [f"tests/e2e/test_x.py::test_{number}" for number in range(300)]
    shares = [
        {name for name in names if selection.is_in_turn(name, turn, 3)} for turn in range(7, 10)
    ]
    assert set().union(*shares) == set(names) and sum(map(len, shares)) == len(names)
    assert min(map(len, shares)) > 60


def test_each_of_a_list_has_its_turn(monkeypatch):
    monkeypatch.delenv("ALL", raising=False)
    seen = [one for turn in range(4) for one in selection.of_turn(list("abcdefgh"), 2, turn)]
    assert seen == list("abcdefgh") and selection.of_turn(list("abcdefgh"), 2, 4) == ["a", "b"]
    assert selection.of_turn(list("abc"), 2, 1) == ["c", "a"]
    monkeypatch.setenv("ALL", "1")
    assert selection.of_turn(list("abc"), 2, 1) == list("abc")


def test_each_scenario_has_its_turn(monkeypatch):
    kinds = {f"scenario_{kind}": [f"{kind}_{n}" for n in range(kind + 1)] for kind in range(5)}
    seen = set()
    for turn in range(60 * selection.SCENARIO_TURNS):
        monkeypatch.setattr(selection, "SELECTION", {"level": "ci", "turn": turn, "changed": []})
        seen |= set(selection.scenarios_selected(kinds))
    assert seen >= {name for names in kinds.values() for name in names}
    changed = {"level": "test", "turn": 1, "changed": ["tests/torture/scenario_0.py"]}
    monkeypatch.setattr(selection, "SELECTION", changed)
    assert selection.scenarios_selected(kinds) == [*selection.SCENARIOS, "0_0"]
    monkeypatch.setattr(selection, "SELECTION", {"level": "all", "turn": 1, "changed": []})
    assert len(selection.scenarios_selected(kinds)) == len(selection.SCENARIOS) + len(kinds)


def test_the_map_is_not_too_old(tree):
    """Else `make reach` writes it anew: most of its functions exist, and most files of tests of
    services are in it."""
    known = Reach.read()
    there = {(path, name) for path, source in tree.sources.items() for _, name in source.functions}
    gone = set(known.functions) - there
    assert len(gone) <= len(known.functions) / 10, f"make reach: gone are {sorted(gone)[:20]}"
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests/e2e").glob("test_*.py")}
    missing = sorted(files - set(known.tests))
    assert len(missing) <= 40, f"make reach: {len(missing)} files are not in it: {missing[:20]}"
