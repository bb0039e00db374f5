"""
Users who redeem exchange codes under torture, and the judgement of their answers: a code has one
user coupon at most, an accepted code has one unless its receive was rejected, and the answer
`code_used` is true.
"""

import collections
import json
import random
import threading

from part import Violation
from stack import Client

CODES = 120
USERS = 40
LIMIT = 6  # coupons of a user
PAUSE_S = 0.004
TIMEOUT_S = 6.0
KNOWN_S = 3.0  # until each gateway knows a new set
# What a rejection may say, where Redis has lost that a slot or a code is taken.
REASONS = {"slot_taken", "code_used", "key_taken", "out_of_stock"}

Asked = collections.namedtuple("Asked", "user code status receive")


class Redeemers:
    """Threads that redeem until stop(). Each code is tried by several users, again and again."""

    def __init__(self, rig, chance, threads=3):
        self.rig, self.seed = rig, chance.randrange(2**32)
        self.stack = rig.stack
        self.coupon = self.stack.coupon_make(10_000, limit=LIMIT, name="redeem")
        path = self.stack.run_dir / f"codes-{self.coupon}.csv"
        path.unlink(missing_ok=True)
        self.stack.ctl("codes", "generate", self.coupon, "--count", CODES, "--out", path)
        self.codes = [line.split(",")[0] for line in path.read_text().splitlines()[1:]]
        self.users = [f"redeemer-{number}" for number in range(USERS)]
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
                reply = client.call("redeem", code=self.codes[-1], user=user)
            if reply["status"] not in ("accepted", "code_used"):
                return False
        return True

    def run(self, number):
        chance, client = random.Random(self.seed + number), None
        while not self.is_ending.is_set():
            user, code = chance.choice(self.users), chance.choice(self.codes)
            try:
                client = client or Client(chance.choice(self.rig.gateways).listen, TIMEOUT_S)
                reply = client.call("redeem", code=code, user=user)
            except (OSError, AssertionError, ValueError):
                client = client and client.close()
                self.is_ending.wait(0.05)
                continue
            self.asked.append(Asked(user, code, reply["status"], reply.get("receive")))
            self.is_ending.wait(PAUSE_S)
        if client:
            client.close()

    def stop(self):
        self.is_ending.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S + 5)

    def judge(self):
        """When all is settled."""
        used = self.used()
        told = collections.Counter(one.status for one in self.asked)
        if told["accepted"] < 10:
            raise Violation(f"hardly a code was redeemed: {dict(told)}")
        if told["code_invalid"]:
            raise Violation(f"a code was answered code_invalid: {dict(told)}")
        for one in self.asked:
            if one.receive:
                self.receive_judge(one, used)
            elif one.status == "code_used":
                self.used_judge(one, used)
        result = self.stack.ctl_run("audit", self.coupon, "--json")
        if result.returncode:
            raise Violation(f"audit of the redeemed coupon: {result.stdout}{result.stderr}")
        return {**told, "codes used": len(used)}

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
        # Who sent it and got no answer may have it as well: then it is in PostgreSQL.
        if one.code != self.codes[-1] and not others - {one.user}:
            raise Violation(f"{one}: nobody else has redeemed it")
