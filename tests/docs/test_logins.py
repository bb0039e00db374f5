"""The rights of the logins in deploy/ and docs/guides/security.md, compared with each other and
with what the scripts of the programs call."""

import json
import re
import subprocess
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "gateway": ("gateway", "common/changes.c"),
    "worker": ("worker", "keeper", "lock/lock_redis.c", "common"),
    "operator": ("ctl", "admin", "rush", "lock", "common"),
}
PROGRAMS = tuple(FOLDERS)
USERS = {
    words[1].removeprefix("couponmq_"): words
    for words in map(str.split, (ROOT / "deploy/redis-users.conf").read_text().splitlines())
    if words and words[0] == "user"
}
# The words in capitals in scripts that are no commands.
NO_COMMANDS = {"KEEPTTL"}


def sources(program):
    for folder in FOLDERS[program]:
        path = ROOT / folder
        yield from [path] if path.is_file() else path.rglob("*.c")


def scripts_of(program):
    used = set()
    for path in sources(program):
        used.update(re.findall(r"\blua_(\w+)", path.read_text()))
    return sorted(name for name in used if (ROOT / f"lua/{name}.lua").exists())


def commands_of(script):
    """With what it uses of the prelude."""
    text = subprocess.run(
        ["awk", "-f", "scripts/lua.awk", "lua/prelude.lua", f"lua/{script}.lua"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    text = re.sub(r"--.*", "", text)
    return set(re.findall(r"'([A-Z]{2,})'", text)) - NO_COMMANDS


@pytest.mark.parametrize("program", FOLDERS)
def test_a_script_calls_only_what_the_user_of_its_program_may(program):
    """Or it would end in the middle of its writes."""
    scripts = scripts_of(program)
    assert len(scripts) > 3
    for script in scripts:
        commands = commands_of(script)
        assert commands, script
        missing = {c for c in commands if f"+{c.lower()}" not in USERS[program]}
        if missing and program == "gateway":
            # The other sets of rights are for one key each, which only these scripts have.
            key = {
                "ask": "~couponmq:asked",
                "changes": "~couponmq:changes",
                "refused": "~couponmq:refused",
            }[script]
            selectors = [s.split() for s in re.findall(r"\((.*?)\)", " ".join(USERS[program]))]
            (selector,) = [selector for selector in selectors if selector[0] == key]
            missing = {c for c in commands if f"+{c.lower()}" not in selector}
        assert not missing, f"{script}.lua of couponmq_{program}: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("program", FOLDERS)
def test_a_user_of_redis_has_commands_and_keys_by_name(program):
    text = " ".join(USERS[program])
    assert "+@" not in text and "allcommands" not in text and "allkeys" not in text
    assert not re.search(r"~\*|&\*| \+(flush|config$|config |keys|acl|debug|shutdown)", text)


def test_the_permissions_in_rabbitmq_are_those_in_the_docs():
    rights = {
        (one["user"], one["configure"], one["write"], one["read"])
        for one in json.loads((ROOT / "deploy/rabbitmq.json").read_text())["permissions"]
        if one["user"] != "couponmq"
    }
    told = re.findall(
        r"rabbitmqctl set_permissions -p / (couponmq_\w+)\s+(?:\\\s+)?'(.*?)'\s+'(.*?)'\s+'(.*?)'",
        (ROOT / "docs/guides/security.md").read_text(),
    )
    assert len(told) == 3 and set(told) == rights


# ---- the table of rights in docs/guides/security.md


def rows_of(first, words):
    """The rows of a table in Markdown, at most 100 columns wide: the words in as many as needed."""
    cells = [f"`{cell}`" if cell else "" for cell in first]
    for line in textwrap.wrap(
        ", ".join(f"`{word}`" for word in words).replace("|", "\\|"),
        100 - len("| " + " | ".join(cells) + " |  |"),
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield f"| {' | '.join(cells)} | {line} |"
        cells = [""] * len(cells)


def table_of_redis():
    for program, words in USERS.items():
        text = " ".join(words[4:])
        for rights in [re.sub(r"\(.*?\)", "", text), *re.findall(r"\((.*?)\)", text)]:
            keys = [word for word in rights.split() if word[0] in "~&"]
            commands = [word[1:] for word in rights.split() if word[0] == "+"]
            assert sorted(keys + ["+" + one for one in commands]) == sorted(rights.split())
            yield from rows_of((program,), keys)
            yield from rows_of(("",), commands)


def table_of_postgresql():
    text = re.sub(r"--.*", "", (ROOT / "sql/roles.sql").read_text())
    text = re.sub(r"DO \$\$.*?\$\$;", "", text, flags=re.DOTALL)
    rights = defaultdict(lambda: defaultdict(set))
    for what, on, to in re.findall(r"\bGRANT ([^;]*?)\s+ON\s+([^;]*?)\s+TO\s+([^;]*);", text):
        kind, objects = re.fullmatch(r"(FUNCTION|SEQUENCE|SCHEMA|)\s*(.*)", on, re.DOTALL).groups()
        objects = re.sub(r"\([^()]*\)", "()", objects)  # without the types of arguments
        for privilege, columns in re.findall(r"([A-Z]+)\s*(\([^()]*\))?(?:,|$)", what):
            names = re.split(r",\s*", columns.strip("()")) if columns else [""]
            for role in re.split(r",\s*", to):
                granted = rights[role.removeprefix("couponmq_")][f"{privilege} {kind}".strip()]
                for one in re.split(r",\s*", objects):
                    granted.update(f"{one}.{name}" if name else one for name in names)
    for program in PROGRAMS:
        for privilege, granted in sorted(rights[program].items()):
            yield from rows_of((program, privilege), sorted(granted))


def table_of_rabbitmq():
    rights = json.loads((ROOT / "deploy/rabbitmq.json").read_text())["permissions"]
    for program in PROGRAMS:
        (one,) = [right for right in rights if right["user"] == f"couponmq_{program}"]
        for what in ("configure", "write", "read"):
            yield from rows_of((program, what), [one[what]])


@pytest.mark.parametrize("table", [table_of_redis, table_of_postgresql, table_of_rabbitmq])
def test_the_manual_has_the_table_of_rights(table):
    """They are what the local stack gives to its programs, with which all tests run. The output of
    a failure is the table as it should be."""
    wanted = "\n".join(table())
    assert {f"`{program}`" in wanted for program in PROGRAMS} == {True}
    assert len(wanted.splitlines()) > 8
    print(wanted)
    assert f"\n{wanted}\n" in (ROOT / "docs/guides/security.md").read_text()
