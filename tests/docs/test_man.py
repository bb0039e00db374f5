"""Manual pages and the completion of bash, from the tables of the programs."""

import json
import os
import re
import subprocess
import sys

import pytest

from stack import ROOT, Stack

BUILD = Stack("").build_dir
SCRIPT = ROOT / "scripts/man.py"
OTHERS = {"couponctl.1", "coupon-rush.1", "coupon-gateway.8", "coupon-worker.8", "coupon-admin.8",
          "couponmq.7"}  # fmt: skip


def run(*words, **options):
    return subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=300, **options
    ).stdout


def pages_make(folder):
    run(
        sys.executable,
        SCRIPT,
        BUILD,
        "man",
        folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
    )
    return {page.name: page for page in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return pages_make(tmp_path_factory.mktemp("man"))


def commands():
    def walk(some):
        for command in some:
            yield command
            yield from walk(command["commands"])

    groups = json.loads(run(BUILD / "couponctl", "--help", "json"))["groups"]
    return [command for group in groups for command in walk(group["commands"])]


def test_each_command_has_a_page(pages):
    names = {f"couponctl-{command['name'].replace(' ', '-')}.1" for command in commands()}
    assert len(names) > 60
    assert set(pages) == names | OTHERS


def test_pages_are_clean(pages):
    """Neither of the two programs that read them warns, and whatis finds the name of each."""
    linted = subprocess.run(
        ["mandoc", "-T", "lint", *pages.values()], capture_output=True, text=True, check=False
    )
    assert (linted.stdout, linted.stderr) == ("", "")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    for name, page in pages.items():
        warned = subprocess.run(
            ["man", "--warnings", "-l", page],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert warned.stderr == "", name
        found = run("lexgrog", page, env=environment)
        assert f'"{name[:-2]} - ' in found and "parse failed" not in found


def plain(page):
    """As a reader sees it, on one line."""
    shown = run("mandoc", "-T", "utf8", "-O", "width=200", page)
    return re.sub(r"\s+", " ", re.sub(".\b", "", shown))


def test_pages_have_the_tables_and_the_documents(pages):
    for command in commands():
        page = plain(pages[f"couponctl-{command['name'].replace(' ', '-')}.1"])
        for one in [command, *command["modes"]]:
            for option in one["options"]:
                assert f" --{option['name']} " in page, command["name"]
    generate = plain(pages["couponctl-codes-generate.1"])
    assert "number of codes, 1 to 1000000000" in generate  # a table
    assert "makes a set of 1 to 1,000,000,000 codes and writes them" in generate  # docs/
    assert "makes a set of 1 to 1,000,000,000" not in plain(pages["couponctl-codes.1"])
    assert "makes a word one code for all" in generate  # a section below that of the command
    assert "make docs" not in "".join(map(plain, pages.values()))
    assert "nothing is issued or settled" in plain(pages["couponctl-recover.1"])
    assert "The keeper writes a row every second" in plain(pages["couponctl-show.1"])
    gateway = plain(pages["coupon-gateway.8"])
    assert "--drain-s, COUPON_DRAIN_S" in gateway and "from 0 to 600" in gateway
    assert "Longer than the balancer takes to notice" in gateway  # a note of config.md
    assert "couponctl.conf" in plain(pages["couponctl.1"])
    overview = plain(pages["couponmq.7"])
    assert "One Lua script in Redis decides many requests" in overview
    assert "sends each message to RabbitMQ until it is confirmed" in overview
    assert "now.png" not in overview


def test_pages_are_the_same_bytes_each_time(pages, tmp_path):
    again = pages_make(tmp_path / "man")
    assert {name: page.read_bytes() for name, page in pages.items()} == {
        name: page.read_bytes() for name, page in again.items()
    }


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "couponctl"
    path.write_text(run(sys.executable, SCRIPT, BUILD, "completion"), encoding="utf-8")
    return path


def test_completion_is_clean(completion):
    run("shellcheck", "--shell=bash", completion)


# A line up to the cursor, and all that bash offers there.
LINES = [
    ("couponctl pub", "publish"),
    ("couponctl codes ", "generate import list show edit revoke export key"),
    ("couponctl codes generate 7 --for", "--format="),
    ("couponctl codes generate 7 --format=", "csv jsonl"),
    ("couponctl codes generate 7 --format j", "jsonl"),
    ("couponctl codes generate --word", "--word="),
    ("couponctl create --name publish --void-returns ", "yes no"),
    ("couponctl key create --role is", "issue"),
    ("couponctl key create --role issue,us", "issue,use"),
    ("couponctl lock --kind ", "exclusive fair read write"),
    ("couponctl --redis-u", "--redis-url="),
    ("couponctl --redis-url redis://h webh", "webhook"),
    ("couponctl list --redis-u", "--redis-url="),
    (
        "couponctl list --",
        "--after= --count= --skip= --name= --tag= --state= --from= --to= --sort= --descending"
        " --json --help",
    ),
    ("couponctl show 7 --cu", "--curve"),
    ("couponctl --help set", "settings setup"),
    ("couponctl dead requeue --a", "--all --adopt"),
    ("couponctl codes import 7 FOLDER/th", "FOLDER/the file"),
    ("couponctl issue --coupon ", ""),
]
# What readline does before it calls the function that `complete` has named.
HARNESS = r"""
set -u
compopt() { :; }
. "$1"
function=$(complete -p couponctl) && function=${function#*-F } && function=${function%% *}
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$function" couponctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("line, offered", LINES)
def test_completion(completion, tmp_path, line, offered):
    (tmp_path / "the file").touch()
    words = re.findall(r"=|[^ =]+", line)
    if line[-1] in " =":
        words.append("")
    words = [word.replace("FOLDER", str(tmp_path)) for word in words]
    told = run("bash", "-c", HARNESS, "bash", completion, *words).splitlines()
    wanted = offered.replace("FOLDER", str(tmp_path))
    assert told == ([wanted] if "/" in wanted else wanted.split() or [""])
