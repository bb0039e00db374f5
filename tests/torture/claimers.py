"""
Users who claim exchange codes under torture, and the judgement of their answers: a code has one
user coupon at most, an accepted code has one unless its receive was rejected, and the answer
`code_used` is true. With an operator who revokes codes: when `revoke` has returned, nothing more of
them is accepted, and what was accepted before is not rejected for it.
"""

import collections
import json
import os
import random
import subprocess
import threading
import time

from history import History
from part import Violation
from stack import Client

CODES = 120
USERS = 40
TOTAL, LIMIT = 10_000, 6  # of all users, and of each
PAUSE_S = 0.004
TIMEOUT_S = 6.0
KNOWN_S = 3.0  # until each gateway knows a new set
# What a rejection may say, where Redis has lost that a slot or a code is taken.
REASONS = {"slot_taken", "code_used", "key_taken", "out_of_stock"}

# `sent` is the time; status and receive are None of a request without an answer.
Asked = collections.namedtuple("Asked", "user code status receive sent")
Revoked = collections.namedtuple("Revoked", "codes begun done")  # done: None if it did not succeed


class Claimers:
    """Threads that claim until stop(). Each code is tried by several users, again and again."""

    def __init__(self, rig, chance, threads=3, every_s=PAUSE_S):
        self.rig, self.seed, self.every_s = rig, chance.randrange(2**32), every_s
        self.stack = rig.stack
        self.coupon = self.stack.coupon_make(TOTAL, limit=LIMIT, name="claim", events="on")
        path = self.stack.run_dir / f"codes-{self.coupon}.csv"
        path.unlink(missing_ok=True)
        out = self.stack.ctl(
            "codes", "generate", self.coupon, "--count", CODES, "--out", path, "--json"
        )
        self.code_set = json.loads(out)["set"]
        self.codes = [line.split(",")[0] for line in path.read_text().splitlines()[1:]]
        self.users = [f"claimer-{number}" for number in range(USERS)]
        self.asked, self.is_ending, self.probers = [], threading.Event(), 0
        rig.wait(self.all_know, KNOWN_S + 20)
        self.threads = [
            threading.Thread(target=self.run, args=(number,), daemon=True)
            for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def all_know(self):
        """Whether each gateway has read the set. Wrong codes of one user would be held back."""
        for part in self.rig.gateways:
            self.probers += 1
            user = f"prober-{self.probers}"
            with Client(part.listen, TIMEOUT_S) as client:
                reply = client.call("claim", code=self.codes[-1], user=user)
            if reply["status"] not in ("accepted", "code_used"):
                return False
        return True

    def run(self, number):
        chance, client = random.Random(self.seed + number), None
        while not self.is_ending.is_set():
            user, code = chance.choice(self.users), chance.choice(self.codes)
            sent = time.monotonic()
            try:
                client = client or Client(chance.choice(self.rig.gateways).listen, TIMEOUT_S)
                reply = client.call("claim", code=code, user=user)
            except (OSError, AssertionError, ValueError):
                client = client and client.close()
                self.asked.append(Asked(user, code, None, None, sent))
                self.is_ending.wait(0.05)
                continue
            self.asked.append(Asked(user, code, reply["status"], reply.get("receive"), sent))
            self.is_ending.wait(self.every_s)
        if client:
            client.close()

    def stop(self):
        self.is_ending.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S + 5)

    def judge(self):
        """When the load has ended."""
        History(self.stack, self.coupon, TOTAL, LIMIT).settle()
        used = self.used()
        told = collections.Counter(one.status for one in self.asked)
        if told["accepted"] < 10:
            raise Violation(f"hardly a code was claimed: {dict(told)}")
        self.invalid_judge()
        for one in self.asked:
            if one.receive:
                self.receive_judge(one, used)
            elif one.status == "code_used":
                self.used_judge(one, used)
        result = self.stack.ctl_run("audit", self.coupon, "--json")
        if result.returncode:
            raise Violation(f"audit of the claimed coupon: {result.stdout}{result.stderr}")
        return {**told, "codes used": len(used)}

    def invalid_judge(self):
        if any(one.status == "code_invalid" for one in self.asked):
            raise Violation("a code was answered code_invalid")

    def used(self):
        """In PostgreSQL: of each used code (its user, its receive)."""
        out = self.stack.ctl("codes", "export", self.coupon, "--format", "jsonl")
        rows = [json.loads(line) for line in out.splitlines()]
        return {row["code"]: (row["user"], row["receive"]) for row in rows}

    def receive_judge(self, one, used):
        if used.get(one.code) == (one.user, one.receive):
            return
        with Client(self.rig.gateways[0].listen, TIMEOUT_S) as client:
            reply = client.call("status", receive=one.receive)
        if reply["status"] != "rejected" or reply["reason"] not in REASONS:
            raise Violation(f"{one}: accepted, and the code is {used.get(one.code)}: {reply}")

    def used_judge(self, one, used):
        """Somebody else has it now, or was accepted with it, and may have been rejected later. A
        prober had the last code."""
        others = {user for user, _ in [used[one.code]]} if one.code in used else set()
        others |= {other.user for other in self.asked if other.code == one.code and other.receive}
        # A user who sent it and got no answer may have it as well: then it is in PostgreSQL.
        if one.code != self.codes[-1] and not others - {one.user}:
            raise Violation(f"{one}: nobody else has claimed it")


class Revokers(Claimers):
    """Claimers, and a thread that revokes codes, and at last a set, each of them by a command that
    may be killed or fail."""

    KILLED = 0.2
    SINGLE = 20  # codes
    MORE = 100  # requests after the last revocation

    def __init__(self, rig, chance, fault=None):
        self.revoked, self.fault, self.has_revoked = [], fault, threading.Event()
        super().__init__(rig, chance)
        self.threads.append(threading.Thread(target=self.revoke_all, daemon=True))
        self.threads[-1].start()

    def revoke_all(self):
        chance = random.Random(self.seed - 1)
        for code in chance.sample(self.codes[:-1], self.SINGLE):
            fault = self.fault or ("revoke_committed" if chance.random() < self.KILLED else None)
            self.revoke((code,), (code,), fault)
        self.revoke_set()
        while self.revoked[-1].done is None:
            self.is_ending.wait(0.1)
            self.revoke_set()
        self.has_revoked.set()

    def stop(self):
        self.rig.wait(self.has_revoked.is_set, 60)
        aim = len(self.asked) + self.MORE
        self.rig.wait(lambda: len(self.asked) >= aim, 60)
        super().stop()

    def revoke_set(self):
        self.revoke(("--set", self.code_set), tuple(self.codes), None)

    def revoke(self, words, codes, fault):
        """What is used by somebody, or not by now, is no revocation: the status is 1 then."""
        begun = time.monotonic()
        try:
            status = subprocess.run(
                [str(self.stack.build_dir / "couponctl"), "codes", "revoke", *map(str, words)],
                env={
                    **os.environ,
                    **self.stack.env,
                    **({"COUPON_FAULT": f"{fault}:1:kill"} if fault else {}),
                },
                capture_output=True,
                check=False,
                timeout=120,
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
        self.revoked.append(Revoked(codes, begun, time.monotonic() if status == 0 else None))

    def invalid_judge(self):
        """When its revocation had begun, and never before."""
        first, done = {}, {}
        for one in self.revoked:
            for code in one.codes:
                first.setdefault(code, one.begun)
                if one.done is not None:
                    done.setdefault(code, one.done)
        if not done:
            raise Violation("no revocation succeeded")
        known = collections.defaultdict(set)  # code -> receives of requests from before
        unknown = set()  # code and user of those without an answer
        for one in sorted(self.asked, key=lambda asked: asked.sent):
            if one.code not in done or one.sent < done[one.code]:
                known[one.code].add(one.receive)
                if one.status in (None, "unknown"):
                    unknown.add((one.code, one.user))
            elif one.receive and one.receive not in known[one.code]:
                if (one.code, one.user) not in unknown and one.code != self.codes[-1]:
                    raise Violation(f"{one}: accepted after it was revoked at {done[one.code]}")
            if one.status == "code_invalid" and one.code not in first:
                raise Violation(f"{one}: nobody has revoked it")
