"""couponctl codes, for tests."""

import csv
import json
import os
import random
import subprocess

import psycopg

from command import Command
from stack import wait_until


class Codes(Command):
    """couponctl codes with a file of keys."""

    def __init__(self, stack, keys):
        super().__init__(stack, "codes", "--code-keys", keys)

    def start(self, *arguments):
        words = [self.stack.build_dir / "couponctl", "codes", *arguments, *self.options]
        return subprocess.Popen(
            [str(word) for word in words],
            env={**os.environ, **self.stack.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def show(self, code):
        return json.loads(self("show", code, "--json"))

    def stats(self, coupon):
        return json.loads(self("list", coupon, "--json"))

    def generate(self, coupon, count, out, *options):
        return json.loads(
            self("generate", coupon, "--count", count, "--out", out, "--json", *options)
        )


def column(path):
    with open(path, encoding="ascii", newline="") as file:
        return [row["code"] for row in csv.DictReader(file)]


def user_new():
    return f"u{random.randrange(10**15)}"


class Claim(Codes):
    """Codes on the shared stack, whose gateway has their keys."""

    def __init__(self, stack, folder):
        super().__init__(stack, stack.env["COUPON_CODE_KEYS"])
        self.folder = folder

    def made(self, coupon, count, *options):
        """Codes that the gateway knows."""
        path = self.folder / f"{coupon}-{random.randrange(10**12)}.csv"
        made = self.generate(coupon, count, path, *options)
        self.known(made["set"])
        return column(path)

    def known(self, code_set):
        """Waits until the gateway has read the sets up to this one."""
        with psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"], autocommit=True) as db:
            ((sets,),) = db.execute("SELECT count(*) FROM code_set")
        wait_until(lambda: self.stats_of("code_sets") >= sets)

    def stats_of(self, name):
        with self.stack.client() as client:
            return client.call("stats")["stats"].get(name, 0)

    def word(self, coupon, word, *options):
        made = json.loads(self("generate", coupon, "--word", word, "--json", *options))
        self.known(made["set"])
        return made["set"]

    def imported(self, coupon, codes):
        path = self.folder / f"import-{random.randrange(10**12)}.csv"
        path.write_text("code,shop\n" + "".join(f"{code},a\n" for code in codes))
        made = json.loads(self("import", coupon, path, "--json", "--metadata", "shop"))
        self.known(made["set"])
        return made["set"]
