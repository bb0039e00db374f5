"""The mutants of tests/mutants can still be made, name tests that there are, and stand in
docs/about/hacking.md."""

import re
import sys

import pytest

from stack import ROOT

sys.path.append(str(ROOT / "tests/mutants"))
from run import MUTANTS, is_program, table  # noqa: E402


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_it_can_be_made(mutant):
    assert mutant.text() != (ROOT / mutant.file).read_text()
    for test in mutant.tests:
        file, name = test.partition("[")[0].split("::")
        if is_program(test):
            kind, _, rest = file.partition("_")
            file = f"tests/{kind}/{rest}.c"
        text = (ROOT / file).read_text()
        assert re.search(rf"\b{name}\(", text), f"{file} has no {name}"


def test_their_names_are_different():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))


def test_each_promise_has_some():
    promises = {mutant.promise for mutant in MUTANTS}
    assert {f"P{number}" for number in range(1, 15)} <= promises


def test_docs_have_the_table():
    """tests/mutants/run.py --table prints it."""
    assert table() in (ROOT / "docs/about/hacking.md").read_text(encoding="utf-8")
