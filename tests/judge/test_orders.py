"""The judge of what orders did with receives: it accepts true histories, and catches each planted
falsehood."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from orders import Budget, Operation, Orders, Row  # noqa: E402
from voids import Times, Voiding  # noqa: E402

OFF = 500
DONE = {"hold": "held", "use": "used", "release": "released", "rollback": "rolled_back"}
CODES = {
    "held_by_other": 10,
    "already_used": 11,
    "bad_request": 40,
    "voided": 14,
    "budget_spent": 15,
    "not_found": 1,
    "expired": 12,
}
OTHERS = {"unknown": 22, "unavailable": 21}


class Told:
    """A history. The time goes on by one second with each request, which takes half of it."""

    def __init__(self, amount=10 * OFF):
        self.operations, self.rows, self.amount, self.clock = [], {}, amount, 0.0
        self.voidings = {}

    def ask(
        self, action, order, receives="r", answer=None, ttl_s=1000, again=None, part=None, **members
    ):
        """answer: None: done; "": none; else its status. again: a copy of this operation. part: of
        the discount, which a rollback gives back."""
        receives = [receives] if isinstance(receives, str) else receives
        asked = {} if part is None else {"amount": part, "currency": "EUR"}
        key = f"{order}-{len(self.operations)}"
        one = again or Operation(action, order, key, receives, members=asked)
        if not again:
            self.operations.append(one)
        if answer == "":
            one.sent(self.clock)
        elif answer in OTHERS:
            reply = {"code": OTHERS[answer], "status": answer}
            one.sent(self.clock, self.clock + 0.5, reply)
        elif answer:
            reply = {"code": CODES[answer], "status": answer, "receive": receives[0], **members}
            one.sent(self.clock, self.clock + 0.5, reply)
        else:
            told = {"until": str(self.clock + 0.2 + ttl_s)} if action == "hold" else {}
            told |= {"amount_off": OFF} if action in ("hold", "use") else {}
            told |= members
            told = [{"receive": receive, **told} for receive in receives]
            told = told[0] if len(told) == 1 else {"receives": told}
            one.sent(self.clock, self.clock + 0.5, {"code": 0, "status": DONE[action], **told})
        self.clock += 1
        return one

    def void(self, receive):
        one = Voiding(receive)
        one.at, one.answered_at = self.clock, self.clock + 0.5
        one.reply = {"result": "voided", "in_redis": True}
        self.voidings[receive] = Times([one])
        self.clock += 1

    def row(self, receive, state, order, amount_off=OFF):
        self.rows[receive] = Row(state, order, amount_off)

    def judge(self, spent=None, held=None, moment=float, loses=False):
        states = [row.state for row in self.rows.values()]
        spent = states.count("used") * OFF if spent is None else spent
        held = states.count("held") * OFF if held is None else held
        budget = Budget(self.amount, spent, held)
        Orders(
            self.operations, self.rows, self.clock, budget, moment, self.voidings, loses
        ).check()  # fmt: skip

    def caught(self, words, **options):
        with pytest.raises(AssertionError, match=words):
            self.judge(**options)


@pytest.fixture
def told():
    return Told()


# True histories


def test_the_life_of_a_receive(told):
    told.ask("hold", "a")
    told.ask("use", "b", answer="held_by_other")
    told.ask("rollback", "a", answer="bad_request")
    told.ask("use", "a")
    told.ask("use", "b", answer="already_used")
    told.ask("release", "a", answer="already_used")
    told.ask("rollback", "a")
    told.ask("rollback", "a")
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.judge()


def test_a_part_that_is_given_back_is_for_others(told):
    told.amount = OFF + 300
    told.ask("use", "a")
    told.ask("rollback", "a", part=300, amount_off=200)
    told.ask("use", "b", answer="already_used")
    told.ask("use", "b", receives="s", amount_off=500)
    told.ask("rollback", "a", part=100, amount_off=100, answer="unknown")
    told.row("r", "used", "a", 200)
    told.row("s", "used", "b")
    told.judge(spent=700)


def test_a_part_of_the_discount_is_no_part_of_the_use(told):
    told.ask("use", "a")
    told.ask("rollback", "a", part=300, amount_off=200)
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.caught("P12: r was used by")


def test_a_part_does_not_free_more_than_itself(told):
    told.amount = OFF + 200
    told.ask("use", "a")
    told.ask("rollback", "a", part=299, amount_off=201)
    told.ask("use", "b", receives="s")
    told.row("r", "used", "a", 201)
    told.row("s", "used", "b")
    told.caught("P14: ", spent=701)


def test_what_is_unknown_may_be_or_not(told):
    told.ask("use", "a", answer="unknown")
    told.ask("use", "b", answer="already_used")
    told.judge()
    told.row("r", "used", "a")
    told.judge()


def test_what_was_unknown_and_is_known_then(told):
    one = told.ask("use", "a", answer="unknown")
    told.ask("rollback", "b")
    told.ask("use", "a", again=one)
    told.row("r", "used", "a")
    told.judge()


def test_a_rollback_that_is_unknown(told):
    told.ask("use", "a")
    told.ask("rollback", "a", answer="")
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.judge()


def test_the_end_of_a_hold(told):
    told.ask("hold", "a", ttl_s=2)
    told.ask("use", "b", answer="held_by_other")
    told.clock += 1
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.judge()


def test_all_of_several(told):
    told.ask("use", "a", ["r", "s"])
    told.ask("use", "b", ["t", "s"], answer="already_used", receive="s")
    told.ask("use", "c", "t")
    for receive, order in (("r", "a"), ("s", "a"), ("t", "c")):
        told.row(receive, "used", order)
    told.judge()


def test_a_copy_after_the_use_was_taken_back(told):
    one = told.ask("use", "a")
    told.ask("rollback", "a")
    told.ask("use", "b")
    told.ask("use", "a", again=one)
    told.row("r", "used", "b")
    told.judge()


def test_a_copy_tells_what_the_receive_is_now(told):
    one = told.ask("use", "a")
    told.ask("rollback", "a")
    told.ask("use", "a", again=one, replayed=True, now={"state": "free"})
    several = told.ask("use", "a", ["r", "s"])
    for receive in "rs":
        told.row(receive, "used", "a")
    told.ask("use", "a", ["r", "s"], again=several, now={"state": "used", "order": "a"})
    told.judge()


def test_used_twice_by_one_order(told):
    told.ask("use", "a")
    told.ask("use", "a")
    told.row("r", "used", "a")
    told.judge()


def test_a_hold_of_another_clock(told):
    """And receives that are not valid by it."""
    told.ask("hold", "a")
    told.ask("use", "b")
    told.ask("use", "c", "s", answer="expired")
    told.row("r", "used", "b")
    told.judge(moment=None)


def test_a_refusal_that_was_forgotten(told):
    told.ask("use", "a")
    one = told.ask("use", "b", answer="already_used")
    told.ask("rollback", "a")
    told.ask("use", "b", again=one)
    told.judge(loses=True)
    told.caught("P12: a copy is answered otherwise")


def test_a_void(told):
    told.ask("use", "a")
    told.void("r")
    told.ask("use", "b", answer="already_used")
    told.ask("rollback", "a")
    told.ask("use", "b", answer="voided")
    told.judge()


# Planted falsehoods


def test_used_by_two_orders(told):
    told.ask("use", "a")
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.caught("P12: r was used by")


def test_used_by_two_orders_that_asked_at_once(told):
    one, other = told.ask("use", "a"), told.ask("use", "b")
    other.sendings = one.sendings
    told.row("r", "used", "b")
    told.caught("P12: r, at once")


def test_used_by_another_before_it_is_taken_back(told):
    told.ask("use", "a")
    told.ask("use", "b", ["s", "r"])
    told.ask("rollback", "a")
    told.row("r", "used", "b")
    told.row("s", "used", "b")
    told.caught("P12: r was used by")


def test_a_late_copy_that_uses_again(told):
    one = told.ask("use", "a")
    told.ask("rollback", "a")
    told.ask("use", "a", again=one)
    told.row("r", "used", "a")
    told.caught("P12: r is Row")


def test_a_copy_that_is_refused(told):
    one = told.ask("use", "a")
    told.ask("use", "a", again=one, answer="already_used")
    told.row("r", "used", "a")
    told.caught("P12: a copy is answered otherwise", loses=True)


def test_a_use_that_is_lost(told):
    told.ask("use", "a")
    told.caught("P12: r is Row")


def test_a_use_that_is_of_another_in_the_end(told):
    told.ask("use", "a")
    told.ask("use", "b", answer="unknown")
    told.row("r", "used", "b")
    told.caught("P12: r is Row")


def test_a_use_that_was_not_done(told):
    told.ask("use", "a", answer="unavailable")
    told.row("r", "used", "a")
    told.caught("P12: r is Row")


def test_a_use_that_was_refused(told):
    told.ask("use", "b")
    told.ask("use", "a", answer="already_used")
    told.ask("rollback", "b")
    told.row("r", "used", "a")
    told.caught("P12: r is Row")


def test_a_receive_that_nobody_uses_is_refused(told):
    told.ask("use", "a")
    told.ask("rollback", "a")
    told.ask("use", "b", answer="already_used")
    told.caught("P12: r is used by nobody")


def test_a_receive_of_another_user(told):
    one = told.ask("use", "a", answer="not_found")
    one.is_forged = True
    told.judge()
    other = told.ask("use", "b")
    told.row("r", "used", "b")
    told.judge()
    other.is_forged = True
    told.caught("P12: of another user")


def test_a_hold_is_taken(told):
    told.ask("hold", "a")
    told.ask("use", "b")
    told.row("r", "used", "b")
    told.caught("P13: r was held by")


def test_a_hold_is_taken_by_a_hold(told):
    told.ask("hold", "a")
    told.ask("hold", "b")
    told.row("r", "held", "b")
    told.caught("P13: r was held by")


def test_a_hold_that_is_lost(told):
    told.ask("hold", "a")
    told.caught("P13: r is Row")


def test_a_hold_that_does_not_end(told):
    told.ask("hold", "a", ttl_s=2)
    told.clock += 3
    told.ask("use", "b", answer="held_by_other")
    told.row("r", "held", "a")
    told.caught("P13: r is held by nobody")


def test_a_hold_that_was_given_up_is_refused(told):
    told.ask("hold", "a")
    told.ask("release", "a")
    told.ask("use", "b", answer="held_by_other")
    told.caught("P13: r is held by nobody")


def test_voided_before_it_is(told):
    told.ask("use", "a", answer="voided")
    told.caught("P12: nobody has voided r")
    told.void("r")
    told.caught("P12: nobody has voided r")


def test_used_after_it_was_voided(told):
    told.void("r")
    told.ask("use", "a")
    told.row("r", "used", "a")
    told.caught("P12: r is voided")


def test_an_answer_that_cannot_be(told):
    told.ask("use", "a", answer="expired")
    told.caught("is not answered here")


def test_more_than_the_budget(told):
    told.amount = 2 * OFF
    for receive in "rst":
        told.ask("use", "a", receive)
        told.row(receive, "used", "a")
    told.caught("P14: Budget")


def test_more_than_the_budget_at_a_moment(told):
    told.amount = OFF
    told.ask("hold", "a", "r")
    told.ask("use", "b", "s")
    told.ask("release", "a", "r")
    told.row("s", "used", "b")
    told.caught("P14: 1000 were taken at")


@pytest.mark.parametrize("counts", [{"spent": 0}, {"spent": 2 * OFF}, {"held": OFF}])
def test_a_budget_that_is_miscounted(told, counts):
    told.ask("use", "a")
    told.row("r", "used", "a")
    told.caught("P14: .* by the rows", **counts)
