"""couponctl codes, for tests."""

import csv
import json
import os
import subprocess


class Codes:
    """couponctl codes with a file of keys."""

    def __init__(self, stack, keys):
        self.stack, self.keys = stack, keys

    def run(self, *arguments):
        return self.stack.ctl_run("codes", *arguments, "--code-keys", self.keys)

    def __call__(self, *arguments):
        result = self.run(*arguments)
        assert result.returncode == 0, (arguments, result.stdout, result.stderr)
        return result.stdout.strip()

    def refused(self, *arguments, status=1):
        result = self.run(*arguments)
        assert (result.returncode, result.stdout) == (status, ""), result
        return result.stderr.strip()

    def start(self, *arguments):
        words = [self.stack.build_dir / "couponctl", "codes", *arguments, "--code-keys", self.keys]
        return subprocess.Popen(
            [str(word) for word in words],
            env={**os.environ, **self.stack.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def show(self, code):
        return json.loads(self("show", code, "--json"))

    def stats(self, coupon):
        return json.loads(self("stats", coupon, "--json"))

    def generate(self, coupon, count, out, *options):
        return json.loads(
            self("generate", coupon, "--count", count, "--out", out, "--json", *options)
        )


def column(path):
    with open(path, encoding="ascii", newline="") as file:
        return [row["code"] for row in csv.DictReader(file)]
