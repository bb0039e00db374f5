"""`couponctl distribute` for tests: runs it, and reads what it leaves."""

import csv
import json
import os
import subprocess

DONE, FAILED, WRONG, REFUSED, STOPPED, AWAY = 0, 1, 2, 6, 7, 10
KEY = "distribute/1/1"


class Giving:
    """A distribution of a coupon to the users of a list."""

    def __init__(self, stack, coupon, path, *options, listen=None):
        self.stack, self.coupon, self.path = stack, coupon, path
        self.options = options
        self.env = {"COUPON_LISTEN": listen} if listen else {}

    def file(self, suffix, name=1):
        return self.path.with_name(f"{self.path.name}.{self.coupon}.{name}.{suffix}")

    def start(self, *options):
        """Whatever signals this test run ignores, as under nohup(1), the command does not."""
        words = ("distribute", self.coupon, "--users", self.path, *self.options, *options)
        return subprocess.Popen(
            ["env", "--default-signal", self.stack.build_dir / "couponctl", *map(str, words)],
            env={**os.environ, **self.stack.env, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options, status=DONE, timeout=120):
        """What it prints with --json."""
        out, err, code = ended(self.start("--json", *options), timeout)
        assert code == status, out + err
        return json.loads(out) if out else err

    def issued(self):
        """How many user coupons there are."""
        return json.loads(self.stack.ctl("show", self.coupon, "--json"))["postgresql"]["issued"]

    def refused(self, name=1):
        """[user, line, status, message] of each user without a coupon."""
        with open(self.file("refused.csv", name), newline="", encoding="utf-8") as file:
            heading, *rows = csv.reader(file)
        assert heading == ["user", "line", "status", "message"]
        return rows


def ended(process, timeout=120):
    """(standard output, standard error, exit status)"""
    out, err = process.communicate(timeout=timeout)
    return out, err, process.returncode


def list_write(path, users, end="\n"):
    path.write_bytes("".join(f"{user}{end}" for user in users).encode("latin-1"))
    return path


def given(pg, coupon):
    """{user: [key, …]} of the user coupons."""
    found = {}
    for user, key in pg.execute(
        "SELECT user_id, key FROM user_coupon WHERE coupon_id = %s ORDER BY user_id, slot",
        (coupon,),
    ):
        found.setdefault(user, []).append(key)
    return found
