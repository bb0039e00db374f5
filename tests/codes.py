"""couponctl codes, for tests."""

import csv
import json
import os
import subprocess

from command import Command


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
