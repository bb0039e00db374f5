"""What a mutant is: a program without one of its safeguards, and the tests that must notice."""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests"))


@dataclass(frozen=True)
class Mutant:
    """`old` occurs exactly once in `file`; `new` stands in its place. Of the tests each must fail:
    `tests/…/test_x.py::test_y` of pytest, which may have a `[parameter]`, `unit_test_x::test_y` or
    `sim_x::test_y` of a program of build/tests."""

    promise: str
    safeguard: str  # what the mutant is without
    file: str
    old: str
    new: str
    tests: tuple
    waits: bool = False  # one of them fails only after it has waited for what never comes
    whole: bool = False  # one of them needs what only ALL=1 needs

    @property
    def name(self):
        return self.safeguard.replace(",", "").replace(" ", "_")

    def text(self, root=ROOT):
        """The text of its file with the fault."""
        text = (root / self.file).read_text()
        if self.old == self.new or text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: of the mutant `{self.safeguard}` the text to replace occurs"
                f" {text.count(self.old)} times, not once:\n{self.old}"
            )
        return text.replace(self.old, self.new)


def mutant(promise, safeguard, file, old, new, *tests, **marks):
    assert tests, safeguard
    return Mutant(promise, safeguard, file, old, new, tests, **marks)
