"""
API keys of guests under torture: they are created, rotated and revoked by commands that are
sometimes killed, and presented to the gateways. And the judgement at the end, when all services are
up: a key that is revoked in either store, or of which a command has said so, is refused by every
gateway; a secret whose rotation had no overlap is refused; what is printed and was not revoked is
accepted; and both stores agree.

Where PostgreSQL is put back, a change that Redis did not have yet is lost with it: there only
commands that have succeeded count.
"""

import json
import os
import random
import re
import secrets
import subprocess
import threading

from part import Violation

from stack import Client, wait_until

KEYS = "couponmq:keys"
EVERY_S = (1.0, 3.0)  # between two commands
KILLED = 0.25
KILL_S = 0.05
AT_MOST_S = 5.0  # then a command that waits for a service is killed
TIMEOUT_S = 6.0
SETTLED_S = 30  # until all know what was changed last
OVERLAPS = ("0s", "0s", "1h", "7d")
IN_REDIS, NOT_IN_REDIS = 0, 3  # exit statuses of commands whose change is in PostgreSQL
GOOD, UNAVAILABLE, RATE_LIMITED, WRONG = 0, 21, 23, 41
TEXT = re.compile(r"cmq_([0-9a-hjkmnp-tv-z]{10})_[A-Za-z0-9_-]{43}\n")


def keys_of(rig):
    """(records by id, version) of PostgreSQL, and of Redis."""
    with rig.pg() as pg, rig.redis() as cache:
        rows = pg.execute("SELECT record FROM api_key_records(0, 1000000)").fetchall()
        (number,) = pg.execute("SELECT num FROM api_key_version").fetchone()
        there = cache.hgetall(KEYS)
    copied = int(there.pop("version", 0))
    own = {(one := json.loads(text))["id"]: one for (text,) in rows}
    return (own, number), ({key: json.loads(text) for key, text in there.items()}, copied)


def keys_agree(rig):
    own, copied = keys_of(rig)
    return own == copied


class Guest:
    """A key. `is_good` of each text: True, False, or None where nobody knows."""

    def __init__(self, key, text, is_sure):
        self.key, self.current = key, text
        self.is_good = {text: True if is_sure else None}
        self.is_revoked = self.may_be_revoked = False

    def rotated(self, text, overlap):
        """Only the last secret before has an overlap."""
        before = self.is_good[self.current]
        self.is_good = dict.fromkeys(self.is_good, False)
        if overlap != "0s":
            self.is_good[self.current] = before
        self.is_good[text], self.current = True, text

    def doubt(self):
        """Perhaps it was rotated, and perhaps not. What has ended does not come back."""
        self.is_good = {
            text: None if is_good else is_good for text, is_good in self.is_good.items()
        }


class Guests:
    """A thread that runs one command after the other until stop()."""

    def __init__(self, rig, chance, fault=None, every_s=EVERY_S):
        self.rig, self.fault, self.every_s = rig, fault, every_s
        self.name = f"guest-{secrets.token_hex(4)}"  # keys of others are not touched
        self.chance = random.Random(chance.randrange(2**32))
        self.guests, self.errors, self.killed, self.made = [], [], 0, 0
        self.is_ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    @property
    def may_lose(self):
        """Whether PostgreSQL is put back to an earlier moment in this scenario."""
        return self.rig.postgresql_goes_back

    def run(self):
        while not self.is_ending.wait(self.chance.uniform(*self.every_s)):
            try:
                self.command()
                if self.guests:
                    self.present()
            except Exception as error:  # of the thread, raised by judge()
                self.errors.append(error)
                return

    def stop(self):
        self.is_ending.set()
        self.thread.join(2 * (AT_MOST_S + TIMEOUT_S))

    def ctl(self, *words):
        """Returns (exit status, the text and its key that it has printed). Negative: killed."""
        env = {**os.environ, **self.rig.stack.env_of("operator")}
        is_killed = not self.fault and self.chance.random() < KILLED
        if self.fault:
            env["COUPON_FAULT"] = f"{self.fault}:1:kill"
        with subprocess.Popen(
            [str(self.rig.stack.build_dir / "couponctl"), "key", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as command:
            try:
                after_s = self.chance.uniform(0, KILL_S) if is_killed else AT_MOST_S
                out, _ = command.communicate(timeout=after_s)
            except subprocess.TimeoutExpired:
                command.kill()
                out, _ = command.communicate()
        self.killed += command.returncode < 0
        text = TEXT.fullmatch(out)
        return command.returncode, text and (text[0][:-1], text[1])

    def is_sure(self, status):
        return status == IN_REDIS or not self.may_lose

    def command(self):
        alive = [guest for guest in self.guests if not guest.may_be_revoked]
        dice = self.chance.random()
        if dice < 0.4 or not alive:
            self.create()
        elif dice < 0.75:
            self.rotate(self.chance.choice(alive))
        else:
            self.revoke(self.chance.choice(alive))

    def create(self):
        status, made = self.ctl("create", "--name", self.name, "--role", "read")
        if made:
            self.guests.append(Guest(made[1], made[0], self.is_sure(status)))
        elif self.fault:  # one that was not printed is rotated and revoked as any other
            self.find()

    def find(self):
        known = {guest.key for guest in self.guests}
        out = self.rig.stack.ctl_run("key", "list", "--json").stdout.splitlines()
        for one in map(json.loads, out):
            if one["name"] == self.name and one["state"] == "active" and one["key"] not in known:
                self.guests.append(Guest(one["key"], f"cmq_{one['key']}_" + "A" * 43, False))

    def rotate(self, guest):
        overlap = self.chance.choice(OVERLAPS)
        status, made = self.ctl("rotate", guest.key, "--overlap", overlap)
        if made and self.is_sure(status):
            guest.rotated(made[0], overlap)
        else:
            guest.doubt()
            if made:
                guest.is_good[made[0]] = None

    def revoke(self, guest):
        guest.may_be_revoked = True
        status, _ = self.ctl("revoke", guest.key)
        guest.is_revoked = status in (IN_REDIS, NOT_IN_REDIS) and self.is_sure(status)

    def answer(self, part, text):
        """The code, or None where there was no answer."""
        try:
            with Client(part.listen, TIMEOUT_S) as client:
                return client.call("auth", token=text)["code"]
        except (OSError, AssertionError, ValueError):
            return None

    def present(self):
        text = self.chance.choice(list(self.chance.choice(self.guests).is_good))
        code = self.answer(self.chance.choice(self.rig.gateways), text)
        if code not in (None, GOOD, UNAVAILABLE, RATE_LIMITED, WRONG):
            raise Violation(f"a key is answered {code}")

    def answer_sure(self, part, text):
        codes = []

        def is_sure():
            codes.append(self.answer(part, text))
            return codes[-1] in (GOOD, WRONG)

        wait_until(is_sure, SETTLED_S)
        return codes[-1]

    def judge(self):
        if self.errors:
            raise self.errors[0]
        stores = keys_of(self.rig)
        revoked = {
            key for records, _ in stores for key, one in records.items() if one["revoked"]
        } | {guest.key for guest in self.guests if guest.is_revoked}
        try:
            wait_until(lambda: keys_agree(self.rig), SETTLED_S)
        except AssertionError:
            raise Violation("PostgreSQL and Redis differ in their API keys") from None
        for guest in self.guests:
            for text, is_good in guest.is_good.items():
                if guest.key in revoked:
                    is_good = False
                elif guest.may_be_revoked:
                    is_good = is_good and None
                if is_good is not None:
                    self.text_judge(guest, text, is_good)

    def text_judge(self, guest, text, is_good):
        """The judgement of a text; the message names only its key."""
        for part in self.rig.gateways:
            wanted = GOOD if is_good else WRONG
            # The last change may be on its way.
            try:
                wait_until(lambda: self.answer_sure(part, text) == wanted, SETTLED_S)  # noqa: B023
            except AssertionError:
                raise Violation(
                    f"{part.name}: key {guest.key} (revoked: {guest.is_revoked}) is answered"
                    f" otherwise than {wanted}"
                ) from None
            if not is_good and self.answer_sure(part, text) != WRONG:
                raise Violation(f"{part.name}: key {guest.key} is good again")
