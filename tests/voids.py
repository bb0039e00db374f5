"""
Issued receives that an operator took back (`couponctl void`), for verdict.py: what he asked for and
was told, what PostgreSQL has of it, and since when each may have had an effect.

A void has no answer if its command was killed. Its effect began after it was sent. In PostgreSQL it
was there when the command said `voided`; in Redis, where slot and stock come back, when it said so.
"""

import collections
import json
import subprocess

from load import now

NEVER = float("inf")
DONE = ("voided", "again")

Void = collections.namedtuple("Void", "user slot batch index is_returned")


class Voiding:
    """One command."""

    def __init__(self, receive):
        self.receive = receive
        self.at = self.answered_at = self.reply = None

    def run(self, command, env, kill_after_s=None):
        """The command ends by itself, or is killed."""
        self.at = now()
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            try:
                output, _ = child.communicate(timeout=kill_after_s)
            except subprocess.TimeoutExpired:
                child.kill()
                output, _ = child.communicate()
        if output.endswith("\n"):
            self.answer(json.loads(output))
        return self

    def answer(self, reply):
        self.answered_at, self.reply = now(), reply

    @property
    def result(self):
        return self.reply["result"] if self.reply else None

    def __str__(self):
        told = {"at": self.at, "void": self.receive, "answered_at": self.answered_at}
        return json.dumps({**told, "reply": self.reply})


class Times:
    """The times of the void of one receive: from when on it may have had an effect, and since when
    it surely had one in PostgreSQL, and in Redis."""

    def __init__(self, voidings):
        def first(times):
            return min(times, default=NEVER)

        done = [one for one in voidings if one.result in DONE]
        self.possible = first(one.at for one in voidings if one.result in (None, *DONE))
        self.stored = first(one.answered_at for one in done)
        self.freed = first(one.answered_at for one in done if one.reply["in_redis"])


class Voids:
    """place_of(receive): its key in the tables of the stores."""

    def __init__(self, voidings, stored, place_of):
        self.stored = {(void.batch, void.index): void for void in stored}
        self.asked = collections.defaultdict(list)
        for voiding in voidings:
            self.asked[place_of(voiding.receive)].append(voiding)
        self.times = {place: Times(self.asked.get(place, ())) for place in self.stored}

    def is_returned(self, place):
        return place in self.stored and self.stored[place].is_returned

    def returned(self):
        return [void for void in self.stored.values() if void.is_returned]

    def until(self, place):
        """The time until which the receive surely had its slot, and until which it may have."""
        if not self.is_returned(place):
            return NEVER, NEVER
        return self.times[place].possible, self.times[place].freed

    def outcomes(self, place, sent_at, answered_at):
        """The outcomes of a voided receive that an answer may name, by its times."""
        times, outcomes = self.times[place], set()
        if sent_at <= times.stored:
            outcomes.add("issued")
        if times.possible <= answered_at:
            outcomes.add("rejected")
        return outcomes

    def check(self, rows, tombstones, issued_before, where):
        """P3, P10: what was voided stays voided, and nothing else is. issued_before(receive, at):
        whether a client knew then that it is issued."""
        for place, voidings in self.asked.items():
            for voiding in voidings:
                self._told_check(place, voiding, issued_before, where)
            results = [voiding.result for voiding in voidings]
            assert results.count("voided") <= 1, f"P3: voided twice: {voidings[0]} {where}"
        returned = {place for place in self.stored if self.is_returned(place)}
        tombs = {place for place, one in tombstones.items() if one.reason == "voided"}
        assert tombs == returned, f"P3: voided, and not in both tables: {tombs ^ returned} {where}"
        for place, void in self.stored.items():
            assert any(
                one.result in (None, *DONE) for one in self.asked.get(place, ())
            ), f"P3: nobody voided it: {void} {where}"
            at_place = tombstones.get(place) if void.is_returned else rows.get(place)
            assert at_place and at_place[:4] == void[:4], (
                f"P3, P4: its slot and stock {'came' if void.is_returned else 'do not come'} back:"
                f" {void}, {at_place} {where}"
            )

    def _told_check(self, place, voiding, issued_before, where):
        void = self.stored.get(place)
        if voiding.result in DONE:
            assert void, f"P10: it is not voided any more: {voiding} {where}"
            assert (
                voiding.reply["returned"] == void.is_returned
            ), f"P4: its slot and stock: {voiding}, {void} {where}"
        elif voiding.result in ("unknown", "rejected"):
            assert not issued_before(
                voiding.receive, voiding.at
            ), f"P3: it was issued before: {voiding} {where}"
