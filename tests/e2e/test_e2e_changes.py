"""couponctl history: each change, and the operator who has asked for it."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from stack import wait_until

ROUTES = Path(__file__).resolve().parents[2] / "admin" / "route_table.h"


@pytest.fixture
def changes(stack):
    """changes(name): what that one has asked for, the latest first, as (command, words, status)."""

    def read(name):
        lines = stack.ctl("history", "--json", "--count", 1000).splitlines()
        told = [json.loads(line) for line in lines]
        assert [one["id"] for one in told] == sorted((one["id"] for one in told), reverse=True)
        return [(o["command"], o["words"], o["status"]) for o in told if o["by"] == name]

    return read


def test_each_command_that_changes_something_is_recorded(stack, changes):
    name = f"ann-{time.monotonic_ns()}"
    by = ("--by", name)
    coupon = stack.ctl("create", "--name", "n", "--total", 5, *by)
    stack.ctl("publish", coupon, "--wait-s", 0, *by)
    refused = stack.ctl_run("edit", coupon, "--name", "m", "--version", 7, *by)
    assert refused.returncode == 8
    stack.ctl("codes", "generate", coupon, "--word", f"word{coupon}", *by)
    stack.ctl_run("codes", "revoke", f"WORD{coupon}", *by)
    stack.ctl("rebuild", coupon, *by)
    stack.ctl("dead", "requeue", "--all", *by)
    assert changes(name) == [
        ("dead requeue", " --all", 0),
        ("rebuild", f" {coupon}", 0),
        ("codes revoke", " …", 0),
        ("codes generate", f" {coupon} --word=…", 0),
        ("edit", f" {coupon} --name=m --version=7", 8),
        ("publish", f" {coupon} --wait-s=0", 0),
        ("create", " --name=n --total=5", 0),
    ]


def test_what_changes_nothing_is_not_recorded(stack, changes, make_coupon):
    coupon = make_coupon(1)
    before = stack.ctl("history", "--json", "--count", 1)
    stack.ctl("show", coupon)
    stack.ctl_run("dead", "remove", "--all")
    stack.ctl_run("edit", coupon, "--limit", 0)
    stack.ctl("recover", "--all", "--dry-run")
    assert stack.ctl("history", "--json", "--count", 1) == before


def test_a_command_that_is_killed_has_no_status(stack, changes, make_coupon):
    coupon = make_coupon(1)
    pause = [stack.build_dir / "couponctl", "pause", coupon, "--by", f"ann-{coupon}"]
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as session:
        session.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
        with subprocess.Popen(pause, env={**os.environ, **stack.env_of("operator")}) as asked:
            wait_until(lambda: changes(f"ann-{coupon}"))
            asked.kill()
    assert changes(f"ann-{coupon}") == [("pause", f" {coupon}", None)]


def test_what_an_administrator_may_do_is_recorded(stack):
    """Each command that coupon-admin runs for those who change something, but what only looks."""
    commands = set(re.findall(r'(?:CAMPAIGN|ADMIN),\s+"([^"]+)"', ROUTES.read_text()))
    commands -= {"webhook test", "codes export"}
    assert len(commands) > 20
    for command in commands:
        words = command.replace("--word", "--word W").split()
        assert "--by NAME" in stack.ctl(*words, "--help"), command
