"""The judge of histories itself: it accepts a true history, and catches each planted falsehood."""

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from load import Ask  # noqa: E402
from orders import Operation  # noqa: E402
from ulid import ulid_make, ulid_uuid  # noqa: E402
from verdict import Allowed, Row, Stored, Terms, Tombstone, Verdict, unanswered  # noqa: E402
from voids import Void, Voiding  # noqa: E402
from witness import Witness  # noqa: E402

COUPON = "1001"
MEMBERS = {"accepted": 0, "queued": 0, "issued": 0, "ok": 0, "not_found": 1, "out_of_stock": 2}
MEMBERS |= {"ended": 3, "limit_reached": 4, "rejected": 9, "unavailable": 21, "unknown": 22}


class Told:
    """A history and its stores. The time goes on by one second with each request."""

    def __init__(self, total=1000, limit=1):
        self.terms = Terms(COUPON, total, limit)
        self.asks, self.rows, self.tombstones = [], [], []
        self.voids, self.voidings = [], []
        self.clock, self.number = 0.0, 0
        self.batch = ulid_make()

    def ask(self, user, status, op="issue", key=None, **members):
        one = Ask(op, user, key)
        one.client, one.gateway, one.connected_at = 1, "gateway-1", 0.0
        one.at, one.answered_at = self.clock, self.clock + 0.5
        self.clock += 1
        if status:
            one.reply = {"code": MEMBERS[status], "status": status, **members}
        else:
            one.answered_at, one.ended_at = None, one.answered_at
        self.asks.append(one)
        return one

    def receive(self, user):
        self.number += 1
        return f"{COUPON}.{user}.{self.batch}.{self.number}"

    def _place(self, receive):
        return ulid_uuid(self.batch), int(receive.split(".")[3])

    def issued(self, user, slot=1, key=None, status="accepted"):
        """Accepted and issued."""
        receive = self.receive(user)
        self.rows.append(Row(str(user), slot, *self._place(receive), key or ""))
        return self.ask(user, status, key=key, receive=receive, slot=slot)

    def rejected(self, user, why, slot=1, status="accepted", **members):
        """Accepted and rejected."""
        receive = self.receive(user)
        self.tombstones.append(Tombstone(str(user), slot, *self._place(receive), why))
        return self.ask(user, status, receive=receive, slot=slot, **members)

    def voided(self, ask, returned=True, result="voided", in_redis=True):
        """The receive of the answer was issued, and is voided now. No result: it was killed."""
        place = self._place(ask.receive)
        voiding = Voiding(ask.receive)
        voiding.at = self.clock
        if result:
            voiding.answered_at = self.clock + 0.5
            voiding.reply = {"result": result, "returned": returned, "in_redis": in_redis}
        self.clock += 1
        self.voidings.append(voiding)
        (row,) = [row for row in self.rows if row[2:4] == place]
        self.voids.append(Void(*row[:4], returned))
        if returned:
            self.rows.remove(row)
            self.tombstones.append(Tombstone(*row[:4], "voided"))
        return voiding

    def status(self, ask, status, **members):
        """A query of its receive."""
        one = self.ask(ask.user, status, "status", receive=ask.receive, slot=1, **members)
        one.receive_asked = ask.receive
        return one

    def coupon(self, **wrong):
        told = {"coupon": COUPON, "state": "open", "total": self.terms.total}
        told |= {"limit": self.terms.limit, "stock": self.terms.total - len(self.rows)}
        return self.ask(0, "ok", "coupon", **(told | wrong))

    def offers(self, user, taken=0, stock=None, **wrong):
        """What the campaign's offer says to a user who has so many."""
        stock = self.terms.total - len(self.rows) if stock is None else stock
        left = self.terms.limit - taken
        why = "out_of_stock" if not stock else None if left else "limit_reached"
        told = {"coupon": COUPON, "state": "open", "total": self.terms.total, "stock": stock}
        told |= {"limit": self.terms.limit, "taken": taken, "left": left}
        told |= {"claimable": not why} | ({"why": why} if why else {}) | wrong
        return self.ask(user, "ok", "offers", offers=[told])

    def judge(self, stock_more=0, slots_more=(), **allowed):
        """More: than Redis should have."""
        stock = self.terms.total - len(self.rows) + stock_more
        counts = {"total": self.terms.total, "stock": stock, "reserved": 0, "lost": 0}
        slots = [*self.rows, *slots_more]
        stored = Stored(self.rows, self.tombstones, len(self.rows), slots, counts, self.voids)
        Verdict(self.terms, self.asks, stored, Allowed(**allowed), "", self.voidings).check()

    def caught(self, words, **allowed):
        with pytest.raises(AssertionError, match=words):
            self.judge(**allowed)


def sold_out():
    told = Told(total=3)
    for user in (1, 2, 3):
        told.issued(user)
    return told


# True histories


def test_accepts_a_true_history():
    told = sold_out()
    told.ask(1, "out_of_stock")
    told.ask(4, "out_of_stock")
    told.ask(5, "unknown")
    told.ask(6, None)
    told.coupon()
    told.ask(2, "ok", "status", receives=[{"receive": told.asks[1].receive, "state": "issued"}])
    told.judge()


def test_accepts_limits_and_keys():
    told = Told(limit=2)
    first = told.issued(1, key="a")
    told.ask(1, "accepted", key="a", receive=first.receive, slot=1)
    told.ask(1, "unknown", key="b")
    told.rows.append(Row("1", 2, ulid_uuid(told.batch), 77, "b"))
    told.ask(1, "limit_reached")
    told.coupon()
    told.judge()


def test_accepts_the_rejection_of_a_lost_slot():
    """Redis had lost user 1, who got the slot again; the stock of three was used up by then."""
    told = sold_out()
    told.rejected(1, "slot_taken", status="rejected", reason="slot_taken")
    told.ask(1, "limit_reached")
    told.ask(9, "out_of_stock")
    told.judge(reasons=("slot_taken",))


def test_accepts_answers_that_overlap():
    """Two requests at the same time: the refused one may be answered first."""
    told = Told(total=1)
    refused = told.ask(2, "out_of_stock")
    told.issued(1).at = refused.at
    told.judge()


# Answers that are not given here


@pytest.mark.parametrize("status", ["ended", "not_found"])
def test_catches_false_answers_about_an_open_coupon(status):
    told = Told()
    told.issued(1)
    for user in range(2, 500):
        told.ask(user, status)
    told.caught("is not answered here", unknown=1.0, answers=("unavailable",))


def test_catches_unavailable_where_nothing_fails():
    told = Told()
    told.ask(1, "unavailable")
    told.caught("is not answered here")
    told.judge(answers=("unavailable",))


def test_catches_too_many_unknown():
    told = Told()
    for user in range(1, 500):
        told.ask(user, "unknown" if user % 2 else None)
    told.caught("requests are unknown")
    told.caught("requests are unknown", unknown=0.9)
    told.judge(unknown=1.0)
    told.judge(unknown=1.0, moment=(10, 488))
    told.caught("requests are unknown", unknown=1.0, moment=(11, 488))
    told.caught("requests are unknown", unknown=1.0, moment=(10, 487))


# Rejections


@pytest.mark.parametrize("reason", ["slot_taken", "key_taken", "out_of_stock", "lost"])
def test_catches_accepted_receives_that_are_all_rejected(reason):
    told = Told()
    told.issued(1)
    for user in range(2, 501):
        told.rejected(user, reason)
    told.caught("P3: rejected")
    if reason != "lost":  # that one is an operator's decision
        told.caught("P3", reasons=(reason,))


def test_catches_rejected_for_a_key_that_is_free():
    told = Told(limit=2)
    told.issued(1, key="a")
    told.rejected(1, "key_taken", slot=2).key = "b"
    told.caught("the key is free", reasons=("key_taken",))


def test_catches_rejected_whose_row_is_issued():
    told = Told()
    told.issued(1, status="rejected")
    told.caught("P3: was rejected", reasons=("slot_taken",))


def test_catches_another_reason():
    told = Told()
    told.issued(1)
    told.rejected(1, "slot_taken", status="rejected", reason="lost")
    told.caught("rejected as slot_taken", reasons=("slot_taken",))


def test_catches_issued_that_is_rejected():
    told = Told()
    told.issued(1)
    told.rejected(1, "slot_taken", status="issued")
    told.caught("P3: was issued", reasons=("slot_taken",))


# Stock and limits


def with_tombstone(limit=1):
    told = Told(limit=limit)
    told.issued(1)
    told.rejected(1, "slot_taken")
    return told


def test_catches_out_of_stock_beside_a_tombstone():
    told = with_tombstone()
    told.ask(2, "out_of_stock")
    told.caught("2 of 1000 were accepted", reasons=("slot_taken",))


def test_catches_limit_reached_beside_a_tombstone():
    told = with_tombstone(limit=2)
    told.issued(2)
    told.ask(2, "limit_reached")
    told.caught("had 1 of 2", reasons=("slot_taken",))


def test_catches_limit_reached_before_the_first_receive():
    told = Told()
    told.ask(1, "limit_reached")
    told.issued(1)
    told.caught("had 0 of 1")


def test_catches_out_of_stock_before_the_last_receive():
    told = Told(total=1)
    told.ask(1, "out_of_stock")
    told.issued(2)
    told.caught("0 of 1 were accepted")


def test_catches_out_of_stock_before_an_unknown_receive():
    told = Told(total=1)
    told.ask(1, "out_of_stock")
    told.ask(2, "unknown")
    told.rows.append(Row("2", 1, ulid_uuid(told.batch), 77, ""))
    told.caught("0 of 1 were accepted")


# Replies to `coupon`


@pytest.mark.parametrize(
    "wrong",
    [
        {"coupon": "1002"}, {"state": "ended"}, {"total": 999}, {"limit": 2}, {"stock": 999},
        {"stock": 997}, {"stock": -1}, {"stock": 1000},
    ],
)  # fmt: skip
def test_catches_a_false_coupon(wrong):
    told = Told()
    told.issued(1)
    told.issued(2)
    told.coupon(**wrong)
    told.issued(3)
    told.caught("terms" if "stock" not in wrong else "the stock was between 998 and 998")


def test_accepts_true_offers():
    told = Told(total=3, limit=2)
    told.offers(1)
    told.issued(1)
    told.offers(1, 1)
    told.issued(1, slot=2)
    told.offers(1, 2)
    told.offers(2)
    told.issued(2)
    told.offers(2, 1, stock=1)  # which it was in the last second
    told.offers(2, 1)
    told.judge()


@pytest.mark.parametrize("first", [True, False])
def test_accepts_either_in_the_moment_of_an_acceptance(first):
    """The offer is asked for while the request is on its way."""
    told = Told(total=3)
    if first:
        told.clock += 0.2
    offers = [told.offers(1, taken) for taken in (0, 1)]
    told.clock = 0.0 if first else 0.2
    told.issued(1)
    for ask in offers:
        ask.at, ask.answered_at = 0.2 * first, 0.6
        ask.reply["offers"][0]["stock"] = 3
    told.judge()


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"taken": 0}, "P2: the user had between 1 and 1"),
        ({"taken": 2, "left": 0}, "P2: the user had between 1 and 1"),
        ({"left": 2}, "1 are left"),
        ({"left": 0}, "1 are left"),
        ({"claimable": False}, "is claimable, or is not"),
        ({"why": "limit_reached"}, "why not"),
        ({"stock": 9}, "P4: the stock was between 8 and 8"),
        ({"stock": 7}, "P4: the stock was between 8 and 8"),
        ({"coupon": "1002"}, "is not what is offered"),
        ({"state": "not_started"}, "terms"),
        ({"total": 9}, "terms"),
        ({"limit": 3}, "terms"),
        ({"claimable": False, "why": "unavailable"}, "is available"),
    ],
)
def test_catches_false_offers(wrong, words):
    told = Told(total=10, limit=2)
    told.issued(1)
    told.issued(2)
    told.clock += 2
    told.offers(1, 1)
    told.judge()
    told.asks[-1].reply["offers"][0].update(wrong)
    told.caught(words)


def test_catches_false_offers_of_what_is_sold_out_or_at_the_limit():
    told = sold_out()
    told.offers(9, claimable=True)
    told.caught("is claimable, or is not")
    told = Told()
    told.issued(1)
    told.offers(1, 1, claimable=True)
    told.caught("is claimable, or is not")
    told.asks.pop()
    told.offers(1, 1, why="out_of_stock")
    told.caught("why not")


def test_catches_that_nothing_is_offered():
    told = Told()
    told.ask(1, "ok", "offers", offers=[])
    told.caught("is not what is offered")
    told.asks.pop()
    told.ask(1, "unavailable", "offers")
    told.caught("is not answered here")
    told.judge(answers=["unavailable"])


def test_a_redis_that_lost_slots_does_not_know_them():
    told = Told()
    told.issued(1)
    told.offers(1, 0)
    told.caught("P2: the user had between 1 and 1")
    told.judge(reasons=["slot_taken"])


def test_catches_coupon_that_is_not_found():
    told = Told()
    told.ask(0, "not_found", "coupon")
    told.caught("is not answered here")


# Replies to `status`


def listed(told, user, *states, **members):
    """A list of these states, of the receives that were told in this order."""
    receives = [
        {"receive": ask.receive, "slot": slot, "state": state}
        for slot, (ask, state) in enumerate(states, 1)
    ]
    return told.ask(user, "ok", "status", receives=receives, **members)


def two_receives():
    told = Told(limit=3)
    told.first = told.issued(1)
    told.second = told.issued(1, slot=2, status="issued")
    return told


def test_accepts_lists_that_are_whole():
    told = two_receives()
    listed(told, 1, (told.first, "accepted"), (told.second, "issued"))
    late = listed(told, 1, (told.first, "accepted"), (told.second, "issued"))
    third = told.issued(1, slot=3)
    listed(told, 1, (told.first, "issued"), (told.second, "issued"), (third, "accepted"))
    listed(told, 2, final=True)
    third.at = third.answered_at = late.at  # before or after it: both are possible
    told.judge()


def test_accepts_a_list_without_the_receive_that_redis_lost():
    """It has no outcome yet, and PostgreSQL does not have it."""
    told = two_receives()
    listed(told, 1, (told.second, "issued")).reply["receives"][0]["slot"] = 2
    told.ask(1, "not_found", "status", final=False).receive_asked = told.first.receive
    told.judge(reasons=("slot_taken",))
    told.caught("was accepted before")
    told.caught("was accepted before", reasons=("lost",))


@pytest.mark.parametrize("status", ["accepted", "queued", "unknown"])
def test_catches_a_list_without_an_earlier_receive(status):
    told = Told()
    told.issued(1, status=status)
    listed(told, 1, final=False)
    told.caught("was accepted before")


def test_catches_a_list_without_the_last_of_several():
    told = two_receives()
    third = told.issued(1, slot=3)
    listed(told, 1, (told.first, "issued"), (told.second, "issued"))
    told.caught(f"{third.receive} was accepted before")


def test_catches_a_list_without_what_another_list_had():
    told = Told()
    told.ask(1, "unknown")
    told.rows.append(Row("1", 1, ulid_uuid(told.batch), 77, ""))
    receive = f"{COUPON}.1.{told.batch}.77"
    told.ask(1, "ok", "status", receives=[{"receive": receive, "state": "accepted"}])
    listed(told, 1, final=False)
    told.caught(f"{receive} was accepted before")


@pytest.mark.parametrize("reasons", [(), ("slot_taken",)])
def test_catches_a_list_without_an_issued_receive(reasons):
    """Also where Redis may lose receives: PostgreSQL has it."""
    told = two_receives()
    listed(told, 1, (told.first, "issued"))
    told.caught(f"{told.second.receive} was issued before", reasons=reasons)


def test_catches_issued_that_is_accepted_again():
    told = two_receives()
    listed(told, 1, (told.first, "accepted"), (told.second, "accepted"))
    told.caught(f"{told.second.receive} was issued before")


def test_catches_a_single_issued_receive_that_is_accepted_again():
    told = two_receives()
    again = told.ask(1, "accepted", "status", receive=told.second.receive, slot=2)
    again.receive_asked = told.second.receive
    told.caught(f"{told.second.receive} was issued before")


def test_catches_not_found_of_an_accepted_receive():
    told = two_receives()
    told.ask(1, "not_found", "status", final=False).receive_asked = told.first.receive
    told.caught(f"{told.first.receive} was accepted before")


def test_catches_a_final_list_without_a_receive_that_redis_lost():
    told = Told()
    told.issued(1)
    listed(told, 1, final=True)
    told.caught("was accepted before", reasons=("slot_taken",))


def rejected_beside_another():
    told = Told()
    told.first = told.issued(1)
    told.second = told.rejected(1, "slot_taken", status="rejected", reason="slot_taken")
    return told


def test_catches_a_list_without_a_rejection():
    told = rejected_beside_another()
    listed(told, 1, (told.first, "issued"))
    told.caught(f"{told.second.receive} was rejected before", reasons=("slot_taken",))


def test_accepts_a_list_with_the_newest_rejections_only():
    told = Told()
    told.first = told.issued(1)
    all_ = [told.rejected(1, "slot_taken", status="rejected") for _ in range(101)]
    rejections = [{"receive": one.receive, "state": "rejected"} for one in all_]
    first = {"receive": told.first.receive, "state": "issued"}
    told.ask(1, "ok", "status", receives=[first, *rejections[1:]])
    told.judge(reasons=("slot_taken",))
    told.ask(1, "ok", "status", receives=[first, *rejections[2:]])
    told.caught("was rejected before", reasons=("slot_taken",))


def test_catches_a_receive_that_is_listed_twice():
    told = two_receives()
    listed(told, 1, (told.first, "issued"), (told.second, "issued"))
    told.asks[-1].reply["receives"].append(told.asks[-1].reply["receives"][0])
    told.caught("is listed twice")


def test_catches_a_receive_of_another_user():
    told = Told()
    other = told.issued(11)
    listed(told, 1, (other, "issued"))
    told.caught("another receive")


def test_catches_another_slot():
    told = two_receives()
    listed(told, 1, (told.second, "issued"), (told.first, "issued"))
    told.caught("its slot is 2")


# Voids


def test_accepts_voids_that_give_back():
    told = Told(total=2, limit=1)
    first, other = told.issued(1, key="a", status="issued"), told.issued(2)
    told.ask(3, "out_of_stock")
    told.coupon()
    told.voided(first)
    told.coupon()
    told.status(first, "rejected", reason="voided")
    listed(told, 1, (first, "rejected"))
    told.status(other, "issued")
    again = told.issued(1, key="a")
    told.ask(1, "accepted", key="a", receive=again.receive, slot=1)
    told.ask(3, "out_of_stock")
    told.ask(1, "limit_reached")
    told.voided(again)
    told.issued(3)
    told.ask(4, "out_of_stock")
    told.judge()


def test_accepts_voids_that_keep():
    told = Told(total=2, limit=1)
    first, _ = told.issued(1, key="a", status="issued"), told.issued(2)
    told.voided(first, returned=False)
    told.coupon()
    told.ask(1, "limit_reached")
    told.ask(3, "out_of_stock")
    told.ask(1, "accepted", key="a", receive=first.receive, slot=1)
    told.ask(1, "rejected", key="a", receive=first.receive, slot=1, reason="voided")
    told.status(first, "rejected", reason="voided")
    told.judge()


@pytest.mark.parametrize("result, in_redis", [(None, False), ("voided", False)])
def test_accepts_voids_whose_end_nobody_knows(result, in_redis):
    """Both results of a killed void may be seen; its slot comes back by the keeper, at any time."""
    told = Told(total=1)
    first = told.issued(1)
    told.voided(first, result=result, in_redis=in_redis)
    told.ask(1, "limit_reached")
    told.ask(2, "out_of_stock")
    told.status(first, "rejected", reason="voided")
    if not result:
        unvoided = told.voidings[0]
        told.voidings.append(Voiding(unvoided.receive))
        told.voidings[-1].at = told.clock
    told.issued(1)
    told.judge()


def test_accepts_a_killed_void_without_effect():
    told = Told()
    first = told.issued(1, status="issued")
    voiding = Voiding(first.receive)
    voiding.at = told.clock
    told.voidings.append(voiding)
    told.ask(1, "limit_reached")
    told.status(first, "issued")
    told.judge()


def test_accepts_answers_during_a_void():
    """Both outcomes are possible, and the stock with and without it."""
    told = Told(total=1)
    first = told.issued(1, status="issued")
    both = [told.status(first, "issued"), told.status(first, "rejected", reason="voided")]
    stocks = [told.coupon(stock=stock) for stock in (0, 1)]
    refused = told.ask(2, "out_of_stock")
    voiding = told.voided(first)
    for ask in (*both, *stocks, refused):
        ask.at, ask.answered_at = voiding.at + 0.1, voiding.at + 0.4
    told.judge()


def test_catches_a_void_that_is_brought_back():
    told = Told()
    first = told.issued(1)
    row = told.rows[0]
    told.voided(first)
    told.rows, told.tombstones, told.voids = [row], [], []
    told.caught("P10: it is not voided any more")


def test_catches_a_kept_void_that_is_forgotten():
    told = Told()
    told.voided(told.issued(1), returned=False)
    told.voids = []
    told.caught("P10: it is not voided any more")


def test_catches_a_void_without_its_tombstone():
    """A late copy of the message would issue it again."""
    told = Told()
    told.voided(told.issued(1))
    told.tombstones = []
    told.caught("P3: voided, and not in both tables")


def test_catches_a_tombstone_without_a_void():
    told = Told()
    told.voided(told.issued(1))
    told.voids = told.voidings = []
    told.caught("P3: voided, and not in both tables")


def test_catches_a_void_that_nobody_asked_for():
    told = Told()
    told.voided(told.issued(1))
    told.voidings[0].answer({"result": "unknown", "returned": False, "in_redis": False})
    told.caught("P3: nobody voided it")


def test_catches_a_slot_that_comes_back_against_the_terms():
    told = Told()
    told.voided(told.issued(1), returned=False)
    told.rows = []
    told.caught("P4: its slot and stock do not come back")


def test_catches_terms_that_change_afterwards():
    told = Told()
    told.voided(told.issued(1)).reply["returned"] = False
    told.caught("P4: its slot and stock")


def test_catches_a_voided_receive_that_is_issued_too():
    told = Told()
    first = told.issued(1)
    row = told.rows[0]
    told.voided(first)
    told.rows = [row]
    told.caught("P3: issued and rejected")


@pytest.mark.parametrize("more", [1, -1])
def test_catches_stock_that_comes_back_twice_or_never(more):
    told = Told()
    told.voided(told.issued(1))
    told.caught("P4", stock_more=more)


def test_catches_a_slot_that_does_not_come_back():
    told = Told()
    first = told.issued(1)
    row = told.rows[0]
    told.voided(first)
    told.caught("P4: Redis and PostgreSQL differ", stock_more=-1, slots_more=[row])


def test_catches_a_receive_that_is_voided_twice():
    told = Told()
    told.voided(told.issued(1))
    told.voidings *= 2
    told.caught("P3: voided twice")


@pytest.mark.parametrize("result", ["unknown", "rejected"])
def test_catches_a_void_that_does_not_know_what_is_issued(result):
    told = Told()
    first = told.issued(1, status="issued")
    row = told.rows[0]
    told.voided(first, result=result)
    told.rows, told.tombstones, told.voids = [row], [], []
    told.caught("P3: it was issued before")


@pytest.mark.parametrize("returned", [True, False])
def test_catches_issued_after_a_void(returned):
    told = Told()
    first = told.issued(1)
    told.voided(first, returned)
    told.status(first, "issued")
    told.caught("P3: was issued, and can be")


@pytest.mark.parametrize("returned", [True, False])
def test_catches_issued_again_of_what_was_told_as_voided(returned):
    """By a void that was killed: without an answer it is not known since when it is."""
    told = Told()
    first = told.issued(1)
    told.voided(first, returned, result=None)
    told.status(first, "rejected", reason="voided")
    told.status(first, "issued")
    told.caught("was rejected before")


@pytest.mark.parametrize("returned", [True, False])
def test_catches_voided_before_the_void(returned):
    told = Told()
    first = told.issued(1)
    told.status(first, "rejected", reason="voided")
    told.voided(first, returned)
    told.caught("P3: was rejected, and can be")


@pytest.mark.parametrize("returned", [True, False])
def test_catches_another_reason_of_a_void(returned):
    told = Told()
    first = told.issued(1)
    told.voided(first, returned)
    told.status(first, "rejected", reason="lost")
    told.caught("rejected as voided")


@pytest.mark.parametrize("returned", [True, False])
def test_catches_a_list_without_the_voided_receive(returned):
    told = Told(limit=2)
    first, second = told.issued(1, status="issued"), told.issued(1, slot=2)
    told.voided(first, returned)
    listed(told, 1, (first, "rejected"), (second, "issued"))
    told.judge()
    one = listed(told, 1, (second, "issued")).reply["receives"][0]
    one["slot"] = 2
    told.caught(f"{first.receive} was rejected before")


def test_catches_a_key_that_gives_the_voided_receive_again():
    told = Told()
    first = told.issued(1, key="a")
    told.voided(first)
    told.ask(1, "accepted", key="a", receive=first.receive, slot=1)
    told.caught("P3: it was voided before")


def test_catches_limit_reached_after_the_slot_came_back():
    told = Told()
    told.voided(told.issued(1))
    told.ask(1, "limit_reached")
    told.caught("had 0 of 1")


@pytest.mark.parametrize("key", [None, "k"])
def test_catches_out_of_stock_after_the_stock_came_back(key):
    """A gateway may repeat it for 100 ms, but not to a request with a key."""
    told = Told(total=1)
    told.voided(told.issued(1))
    refused = told.ask(2, "out_of_stock", key=key)
    told.caught("0 of 1 were accepted")
    refused.at = told.voidings[0].answered_at + 0.05
    if key:
        told.caught("0 of 1 were accepted")
    else:
        told.judge()


def test_catches_a_second_receive_in_the_slot_before_the_void():
    told = Told()
    first = told.issued(1)
    told.issued(1)
    told.rows, second = told.rows[:1], told.rows[1:]
    told.voided(first)
    told.rows = second
    told.caught("P2: two in slot")


def test_catches_more_than_the_limit_before_the_void():
    told = Told()
    first = told.issued(1)
    told.issued(1, slot=2)
    told.voided(first)
    told.caught("P2: user 1 had 2")


def test_accepts_a_second_receive_that_redis_gave_after_a_loss():
    """It was settled after the void: PostgreSQL never had both."""
    told = Told()
    first = told.issued(1, status="issued")
    row = told.rows[0]
    second = told.issued(1)
    told.rows = [row]
    told.voided(first)
    told.rows = [Row("1", 1, *told._place(second.receive), "")]
    told.judge(reasons=("slot_taken",))
    told.caught("P2: two in slot")
    second.reply["status"] = "issued"
    told.caught("P2: two in slot", reasons=("slot_taken",))


def test_catches_more_than_the_total_before_the_void():
    told = Told(total=1)
    first = told.issued(1)
    told.issued(2)
    told.voided(first)
    told.caught("P1: 2 at")


@pytest.mark.parametrize("returned, stock", [(True, 9), (False, 10)])
def test_catches_a_stock_without_the_void(returned, stock):
    told = Told(total=10)
    told.voided(told.issued(1), returned)
    told.coupon(stock=stock)
    told.caught("P4: the stock was between")


# Requests without an answer


def waiting(at, ended_at, timed_out, connected_at=0.0):
    one = Ask("issue", 1)
    one.gateway, one.connected_at, one.at = "gateway-1", connected_at, at
    one.ended_at, one.ended, one.timed_out = ended_at, "an error", timed_out
    return one


def test_catches_no_answer_outside_of_the_restart():
    """The gateway was away from 10 to 12."""

    def found(ask):
        return unanswered([ask], {"gateway-1": [[10.0, 12.0]]}.get)

    assert found(waiting(20.0, 25.0, True)), "it was back"
    assert found(waiting(3.0, 8.0, True)), "it was not away yet"
    assert found(waiting(3.0, 3.1, False)), "the connection ended before"
    assert found(waiting(13.0, 13.1, False, connected_at=12.5)), "a new connection"
    assert not found(waiting(9.9, 10.1, False)), "killed meanwhile"
    assert not found(waiting(11.0, 16.0, True)), "sent while it was frozen"
    assert not found(waiting(12.2, 12.3, False)), "an old connection, used afterwards"


# `issued` at the moment of the answer


class Rows(Witness):
    """A witness with a table of its own."""

    def __init__(self):
        super().__init__("")
        self.rows, self.seen = set(), threading.Semaphore(0)

    def _look(self, *ask):
        self.pg = self
        super()._look(*ask)
        self.seen.release()

    def close(self):
        pass

    def _row_exists(self, receive, slot):
        return receive in self.rows

    def _use_exists(self, operation, receive):
        return receive in self.rows


def test_catches_issued_before_the_row():
    witness, told = Rows(), Told()
    witness.start()
    true, early = told.issued(1, status="issued"), told.issued(2, status="issued")
    witness.rows.add(true.receive)
    for ask in (true, early):
        witness.on_answer(ask)
        assert witness.seen.acquire(timeout=60)  # pylint: disable=consider-using-with
    witness.rows.add(early.receive)  # a moment too late
    witness.stop()
    assert witness.false == [early] and (witness.looked, witness.told) == (2, 2)


def test_catches_used_before_the_row():
    witness = Rows()
    witness.start()
    true, early = (Operation("use", "a", "k", receives) for receives in (["r"], ["r", "s"]))
    witness.rows.add("r")
    for operation in (true, early):
        witness.on_use(operation, 0.0)
        assert witness.seen.acquire(timeout=60)  # pylint: disable=consider-using-with
    witness.stop()
    assert witness.false == [early]
