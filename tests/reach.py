"""Which files of tests a change touches.

tests/reach.txt has the functions in C that each file reaches with its tests that are long, or not
on the shared stack; `make reach` writes it. Other files have no such tests and are not in it. A
change is looked up function by function, since most files reach most of the gateway and the worker:

    in a function in C          the function
    elsewhere in C, a header    functions of the files that include it, if they have a word of the
                                line
    a script in Lua, a query    the functions that name it
    a function in SQL           those that name a query which calls it, also by other functions
    a file of tests             the file
    a module of tests           the files that import it
    a function that no test of  the other functions of its file
    the map reaches
    anything else               the files in the folder of tests that is for its folder, if any

The fewer files reach a function, the likelier each notices what changed in it: a function counts
for them as 1 divided by their number, and the files come in the order of the sum."""

import bisect
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from stack import FOLDERS as OF_C
from stack import ROOT

MAP = "tests/reach.txt"
HEAD = """\
# Which files of tests reach which functions, with tests that are long or not on the shared
# stack: see tests/reach.py. Written by `make reach`. test NUMBER SECONDS FILE; of NUMBERS FILE
# FUNCTION...
"""
# The folder of tests that is for the files of a folder.
FOLDERS = {
    "console/": "tests/console",
    "scripts/": "tests/scripts",
    "debian/": "tests/scripts",
    "deploy/": "tests/scripts",
    "sdk/": "tests/sdk",
    "examples/": "tests/sdk",
    "docs/": "tests/docs",
    "lua/": "tests/e2e",
    "sql/": "tests/e2e",
}
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
COMMON = set(
    "int char void size_t static const struct enum return else for while switch case break"
    " continue default NULL sizeof int64_t uint64_t int32_t uint32_t include define ifdef ifndef"
    " endif extern typedef unsigned long short inline common gateway worker keeper the and".split()
)


def numbers_text(numbers):
    """{0, 1, 2, 5} as 0-2,5."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in parts)


def numbers_read(text):
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


class Reach:
    """tests: {file: seconds}; functions: {(file, function): files of tests}."""

    def __init__(self):
        self.tests, self.functions = {}, {}

    @classmethod
    def read(cls):
        """What tests/reach.txt has; nothing if it is not there."""
        self, numbers = cls(), {}
        path = ROOT / MAP
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            first, *rest = line.split()
            if first == "test":
                numbers[int(rest[0])] = rest[2]
                self.tests[rest[2]] = int(rest[1])
            elif first == "of":
                files = {numbers[one] for one in numbers_read(rest[0])}
                self.functions |= {(rest[1], name): files for name in rest[2:]}
        return self

    def write(self, commit):
        numbers = {file: number for number, file in enumerate(sorted(self.tests))}
        lines = [HEAD + f"commit {commit}"]
        lines += [f"test {number} {self.tests[file]} {file}" for file, number in numbers.items()]
        alike = {}
        for (file, function), files in sorted(self.functions.items()):
            key = file, numbers_text({numbers[one] for one in files})
            alike.setdefault(key, []).append(function)
        lines += [f"of {text} {file} {' '.join(names)}" for (file, text), names in alike.items()]
        (ROOT / MAP).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def keep(self, files):
        """Forgets all files of tests but these."""
        kept = set(files) & set(self.tests)
        self.tests = {file: self.tests[file] for file in kept}
        self.functions = {
            function: reached & kept
            for function, reached in self.functions.items()
            if reached & kept
        }

    def add(self, file, functions, seconds):
        self.tests[file] = round(seconds)
        for function in functions:
            self.functions.setdefault(function, set()).add(file)


# ---- a change


def git(*words):
    """Its output; None if it fails."""
    try:
        told = subprocess.run(
            ["git", *words], cwd=ROOT, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        return None
    return told.stdout if told.returncode == 0 else None


def base_find(given=""):
    """The commit that a run compares with: the given one, the merge base with origin/main, or, if
    that is HEAD, the last commit that is at least a day older than HEAD. None: there is no history,
    or not enough of it."""
    if given:
        found = git("rev-parse", "--verify", f"{given}^{{commit}}")
        return found.strip() if found else sys.exit(f'BASE is "{given}": allowed is a commit')
    head = (git("rev-parse", "HEAD") or "").strip()
    merge_base = (git("merge-base", "origin/main", "HEAD") or "").strip()
    if merge_base and merge_base != head:
        return merge_base
    made_at = (git("log", "-1", "--format=%ct") or "").strip()
    if not made_at:
        return None
    until = int(made_at) - 24 * 3600
    return (git("log", "-1", "--format=%H", f"--until=@{until}") or "").strip() or None


def lines_changed(base):
    """{file: [lines of the file as it is]}, with changes that are not committed. A line that was
    only removed counts as the one before."""
    changed, file = {}, None
    for line in (git("diff", "-U0", "--no-renames", "--no-color", base) or "").splitlines():
        if line.startswith("--- a/"):
            file = line[6:]
        elif line.startswith("+++ "):
            file = line[6:] if line.startswith("+++ b/") else file
            changed.setdefault(file, [])
        elif line.startswith("@@"):
            first, _, count = line.split()[2].lstrip("+").partition(",")
            count = int(count or 1)
            changed[file] += range(int(first), int(first) + max(count, 1))
    for name in (git("ls-files", "--others", "--exclude-standard") or "").splitlines():
        changed[name] = list(range(1, 100000))
    return changed


class Source:
    """A file in C: where its functions are. A body begins and ends with a brace in the first
    column."""

    def __init__(self, path):
        self.lines = (ROOT / path).read_text("utf-8", "replace").splitlines()
        self.begins, self.functions = [], []  # [line, …], [(last line, name), …]
        self.cached = self.cached_outside = None
        begun, name = None, None
        for number, line in enumerate(self.lines, 1):
            if line == "{" and begun:
                name = begun[1]
            elif line == "}" and name:
                self.begins.append(begun[0])
                self.functions.append((number, name))
                begun = name = None
            elif name is None:
                found = re.match(r"[A-Za-z_].*?(\w+)\(", line)
                if found and not line.endswith(";"):
                    begun = (number, found[1])
                elif line.endswith(";") or line.startswith("}"):
                    begun = None

    def at(self, line):
        """The name of the function there; None: it is outside."""
        place = bisect.bisect_right(self.begins, line) - 1
        if place >= 0 and line <= self.functions[place][0]:
            return self.functions[place][1]
        return None

    def words(self):
        """(function, the words of its text), of each."""
        if self.cached is None:
            self.cached = [
                (name, set(WORD.findall("\n".join(self.lines[begin - 1 : end]))))
                for begin, (end, name) in zip(self.begins, self.functions)
            ]
        return self.cached

    def outside(self):
        """(number, the words of the line), of each line outside of functions that has some."""
        if self.cached_outside is None:
            self.cached_outside = [
                (number, words)
                for number, line in enumerate(self.lines, 1)
                if self.at(number) is None and (words := set(WORD.findall(line)))
            ]
        return self.cached_outside


class Tree:
    """The files in C as they are."""

    def __init__(self):
        paths = [path for folder in OF_C for path in (ROOT / folder).rglob("*.[ch]")]
        self.sources = {str(path.relative_to(ROOT)): Source(path) for path in sorted(paths)}
        self.including = {}
        for path, source in self.sources.items():
            for line in source.lines:
                if found := re.match(r'#include "([^"]+)"', line):
                    self.including.setdefault(found[1], set()).add(path)

    def includes(self, header):
        """The files that include the header, also by another one."""
        found, todo = set(), [header]
        while todo:
            for path in self.including.get(todo.pop(), ()):
                if path not in found:
                    found.add(path)
                    todo.append(path)
        return found

    def naming(self, words, paths=None):
        """The functions whose text has one of these words, in these files."""
        return {
            (path, name)
            for path in (self.sources if paths is None else paths & set(self.sources))
            for name, there in self.sources[path].words()
            if there & words
        }

    def using(self, words):
        """The functions whose text has one of these names, or what stands beside it in a table;
        where none has, all functions of the file of the table."""
        found = self.naming(words)
        for path, source in self.sources.items():
            for number, there in source.outside():
                if words & there:
                    concerned = of_c(self, path, [number])
                    found |= concerned or {(path, name) for _, name in source.functions}
        return found


def words_of(lines):
    return {word for line in lines for word in WORD.findall(line)} - COMMON


def of_c(tree, path, lines):
    """The functions that a change of these lines may change."""
    source, found, outside = tree.sources[path], set(), []
    for line in lines:
        name = source.at(line)
        if name:
            found.add((path, name))
        elif 0 < line <= len(source.lines):
            outside.append(source.lines[line - 1])
    words = words_of(outside)
    if words:
        found |= tree.naming(words, tree.includes(path) | {path})
    return found


def queries_of(path, lines):
    """The names of the queries in a file that these lines are of."""
    names, name, before, wanted = set(), None, "", set(lines)
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        found = re.match(r"-- ([a-z0-9_]+): ", line)
        if found and not before:
            name = found[1]
        before = line
        if number in wanted and name:
            names.add(name)
    return names


def calling(functions):
    """The queries, and the other functions in SQL, that call these, directly or by others."""
    texts = {}
    for path in (ROOT / "sql/query").glob("*.sql"):
        for part in path.read_text("utf-8").split("\n\n")[1:]:
            texts["query", re.match(r"-- ([a-z0-9_]+): ", part)[1]] = part
    for path in (ROOT / "sql/function").glob("*.sql"):
        texts["function", path.stem] = path.read_text("utf-8")
    found, todo = set(), set(functions)
    while todo:
        pattern = re.compile(r"\b(?:" + "|".join(sorted(todo)) + r")\s*\(")
        todo = set()
        for key, text in texts.items():
            if key not in found and pattern.search(text):
                found.add(key)
                if key[0] == "function":
                    todo.add(key[1])
    return {name for kind, name in found if kind == "query"}


def importing(path):
    """The files of tests that import this module, also by another one; a conftest.py is for all in
    its folder."""
    if Path(path).name == "conftest.py":
        return {str(one.relative_to(ROOT)) for one in (ROOT / path).parent.rglob("test_*.py")}
    found, todo = set(), [Path(path).stem]
    while todo:
        for file in importers().get(todo.pop(), ()):
            if file not in found:
                found.add(file)
                todo.append(Path(file).stem)
    return {file for file in found if Path(file).name.startswith("test_")}


@lru_cache(1)
def importers():
    """{module of tests: files that import it}."""
    found = {}
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text("utf-8")
        for name in re.findall(r"^\s*(?:from|import) (\w+)", text, re.M):
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


class Change:
    """What differs from a commit. base=None: nothing is known of it.

    lines: {file: lines}; of_file: {file: functions in C}, as (file, function)."""

    def __init__(self, base):
        self.tree = Tree()
        self.lines = lines_changed(base) if base else {}
        self.of_file = {path: self._functions(path, lines) for path, lines in self.lines.items()}

    def _functions(self, path, lines):
        if not (ROOT / path).exists():
            return set()
        if path in self.tree.sources:
            return of_c(self.tree, path, lines)
        if path.startswith("lua/"):
            name = Path(path).stem
            all_names = {f"lua_{one.stem}" for one in (ROOT / "lua").glob("*.lua")}
            return self.tree.using(all_names if name == "prelude" else {f"lua_{name}"})
        names = ()
        if path.startswith("sql/query/"):
            names = queries_of(path, lines)
        elif path.startswith("sql/function/"):
            names = calling({Path(path).stem})
        return self.tree.using({f"sql_query_{name}" for name in names}) if names else set()

    def is_of(self, path, text):
        """Whether the change is of the function in C that this text is in, or of its file, if that
        is no file in C."""
        source = self.tree.sources.get(path)
        if path not in self.lines or not source:
            return path in self.lines
        line = (ROOT / path).read_text("utf-8").partition(text)[0].count("\n") + 1
        return (path, source.at(line)) in self.of_file[path]


def touched(change, reach):
    """The files of tests, in the order of what they reach of the change."""
    weights, added = {}, set()

    def count(files):
        for file in files:
            weights[file] = weights.get(file, 0) + 1 / len(files)

    known, functions = set(reach.functions), set()
    for path in change.lines:
        is_of_tests = path.startswith("tests/") and path.endswith(".py")
        if is_of_tests and (ROOT / path).exists() and Path(path).name.startswith("test_"):
            count({path})
            added.add(path)  # a new one is not in the map yet
        elif is_of_tests:
            count(importing(path))
        elif change.of_file[path] & known:
            functions |= change.of_file[path] & known
        elif path in change.tree.sources:
            functions |= {one for one in known if one[0] == path}
        else:
            for folder, tests in FOLDERS.items():
                if path.startswith(folder):
                    names = (ROOT / tests).glob("test_*.py")
                    count({str(one.relative_to(ROOT)) for one in names})
                    break
    for function in sorted(functions):
        count(reach.functions[function])
    there = set(weights) & (set(reach.tests) | added)
    return sorted(there, key=lambda file: (-weights[file], file))
