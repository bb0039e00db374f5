"""The mutants of tests/mutants can still be made, have names of their own and tests that exist, and
each promise has some."""

import re
import sys

import pytest

from stack import ROOT

sys.path.insert(0, str(ROOT / "tests/mutants"))  # before tests/torture, which has a run.py too
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


def test_the_table_has_each():
    """scripts/test.sh counts its bullets."""
    bullets = re.split(r"^- ", table(), flags=re.MULTILINE)[1:]
    assert len(bullets) == len(MUTANTS)
    for mutant, bullet in zip(MUTANTS, bullets):
        told = " ".join(bullet.split())
        assert f"{mutant.promise}: " in told and f"(`{mutant.file}`)" in told
        assert all(f"`{test.rpartition('::')[2]}`" in told for test in mutant.tests)
