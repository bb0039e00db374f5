"""Words that the contract no longer has: another word says the same, or they mean something else in
the field; and words with which no comment begins."""

import re
import subprocess
from fnmatch import fnmatch

import pytest

from stack import ROOT

# Pattern, the paths where it is not, and what is said instead.
GONE = [
    (r"(?i)redeem", "*", "claim"),
    (r"(?i)unhold|unheld", "*", "release, released"),
    (r"(?i)unuse(?!d)", "*", "rollback"),
    (r"coupon\.unused", "*", "coupon.rolled_back"),
    (r"\bis_held\b|\bis_used\b", "sql/*", "held_by_other, already_used"),
    (r'"code": ?1[01],\s*"status": ?"(held|used)"', "*", "held_by_other, already_used"),
    (r"release[-_]lost", "*", "give-up-lost"),
    (r"released_at|slots_released|unreleased", "*", "freed_at, slots_freed, unfreed"),
    (r"(?i)\bunclaimed\b|changes_claim|installation_claimed", "*", "adopt"),
    (r"webhook_claim", "*", "webhook_lease"),
    (r"couponctl (arm|curve|recent|events)\b", "*", "check, show --curve, --recent"),
    (r'\bcodes (word|stats)\b|"codes", "stats"', "*", "codes generate --word, codes list"),
    (r"\bwebhook (add|enable|disable|resend|deliveries)\b", "*", "webhook create, edit, show"),
    (r'"webhook", "(add|enable|disable|resend|deliveries)"', "*", "webhook create, edit, show"),
    (
        r'\bbudget set\b|"budget", "set"|\bdead drop\b|"dead", "drop"',
        "*",
        "budget edit, dead remove",
    ),
    (
        r'/(arm|changes|enable|disable|drop)"|/amount"',
        "admin/route_table.h",
        "check, history, PATCH",
    ),
    (r"#/changes|changes\.js|Check \(arm\)", "console/*", "history, Check"),
]


def files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and name != "tests/docs/test_gone_words.py":
            yield name, path.read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize("pattern,places,instead", GONE, ids=[one[0] for one in GONE])
def test_the_word_is_gone(pattern, places, instead):
    """Also in the archives of inputs for fuzzing, which are not compressed."""
    found = [
        f"{name}:{content.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: say {instead}"
        for name, content in files()
        if fnmatch(name, places)
        for match in re.finditer(pattern, content)
    ]
    assert not found, "\n".join(found)


# A comment that begins so cannot be understood without what stands before it.
BEGINS = re.compile(
    r"(?:/\*[*\s]*|\"\"\"|(?:\A|^(?![ \t]*(?://|--|#)).*\n)[ \t]*(?://|--|#)[ \t]+)"
    r"((?:Of|Those|That|The same|Whose|Whoever|Who|Such)\b.*)",
    re.MULTILINE,
)
COMMENTED = r"\.(c|h|lua|sql|js|css|sh|py|mk|conf|yml)$|(^|/)(Makefile|Dockerfile)$"
BEGIN_SO_MOST = 10


@pytest.mark.parametrize(
    "text,begin_so",
    [
        ("/* Of one row. */", True),
        ("/*\n * Those that wait. */", True),
        ("int n;\n\t// Who asks.\n", True),
        ("-- The same again.\n", True),
        ('def f():\n    """Whose it is."""\n', True),
        ("# The rows of\n# Those are counted.\n", False),
        ("/* Rows that wait. Of these */", False),
        ("/* Offers. */", False),
    ],
)
def test_what_begins_so(text, begin_so):
    assert bool(BEGINS.search(text)) == begin_so


def test_comments_begin_with_their_subject():
    found = [
        f"{name}:{content.count(chr(10), 0, match.start(1)) + 1}: {match[1]}"
        for name, content in files()
        if re.search(COMMENTED, name)
        for match in BEGINS.finditer(content)
    ]
    assert len(found) <= BEGIN_SO_MOST, "\n".join(found)
