"""
The verdict on what orders did with receives (hold, use, release, rollback), from their requests,
the answers, and what PostgreSQL has in the end: P12 to P14.

An operation is one key, however often it was sent. It takes effect at one moment: after it was sent
first, and before the first answer that is certain; what is never answered so may take effect at any
time, or never. From that follow two kinds of spans in which an order has a receive: those in which
it surely has it, which exclude each other, and those in which it may have it, without which a
refusal is false. So a true history is never refused.
"""

import collections
import json

from user_ids import receive_parts

NEVER = float("inf")
NOT_DONE = ("busy", "unavailable")  # nothing was done
OPEN = (*NOT_DONE, "unknown")  # the next copy may be answered otherwise
HAS = {"hold": "held", "use": "used"}  # what the order has then
GIVES = {
    "hold": ("release", "use", "hold"),
    "use": ("rollback", "use"),
}  # what ends that, or renews it
PROMISES = {"held": "P13", "used": "P12"}
# Refusals by what the receive is then, and those by what the order has itself.
REFUSED = {"held_by_other": "held", "already_used": "used", "bad_request": "held"}
OWN = {("hold", "already_used"), ("release", "already_used"), ("rollback", "bad_request")}
FREE_WITHIN_S = 1.0  # after the end of a hold
ROUNDED_S = 0.01  # the end of a hold is told in milliseconds, of another clock

Sending = collections.namedtuple("Sending", "at answered_at reply")  # no answer: NEVER, None
Span = collections.namedtuple("Span", "since until state order operation")
# A receive in PostgreSQL; of those that are free only the state is there.
Row = collections.namedtuple("Row", "state order amount_off")
Budget = collections.namedtuple("Budget", "amount spent held")


def first_reply(reply):
    """Without what a copy tells beside the first answer."""
    beside = ("replayed", "now")
    told = {name: value for name, value in reply.items() if name not in beside}
    if "receives" in told:
        told["receives"] = [
            {name: value for name, value in one.items() if name not in beside}
            for one in told["receives"]
        ]
    return told


class Operation:
    """What an order asked for, with all its copies."""

    def __init__(self, action, order, key, receives, is_forged=False, is_any=False, members=()):
        """is_forged: in the name of a user who does not have them. is_any: it asks for any receive
        of the user, who has this one. members: more of its request."""
        self.action, self.order, self.key, self.receives = action, order, key, tuple(receives)
        self.is_forged, self.is_any, self.members = is_forged, is_any, dict(members)
        self.sendings = []

    def request(self):
        which = {"receives": self.receives}
        if self.is_any:
            coupon, user = receive_parts(self.receives[0])[:2]
            which = {"coupon": coupon, "user": user}
        elif len(self.receives) == 1:
            which = {"receive": self.receives[0]}
        named = {"op": self.action, "order": self.order, "key": self.key}
        return {**named, **which, **self.members}

    def sent(self, at, answered_at=NEVER, reply=None):
        self.sendings.append(Sending(at, answered_at, reply))

    def certain(self):
        """The sendings with a certain answer, in the order of the answers."""
        told = [one for one in self.sendings if one.reply and one.reply["status"] not in OPEN]
        return sorted(told, key=lambda one: one.answered_at)

    @property
    def reply(self):
        return next((one.reply for one in self.certain()), None)

    @property
    def since(self):
        """Before, it has no effect."""
        return min(
            (
                one.at
                for one in self.sendings
                if not one.reply or one.reply["status"] not in NOT_DONE
            ),
            default=NEVER,
        )

    @property
    def until(self):
        """Afterwards neither."""
        return next((one.answered_at for one in self.certain()), NEVER)

    @property
    def is_part(self):
        """It gives back a part of the discount, and the order keeps the receive."""
        return self.action == "rollback" and "amount" in self.members

    @property
    def is_done(self):
        return bool(self.reply) and self.reply["code"] == 0

    @property
    def may_be_done(self):
        return self.since < NEVER and (not self.reply or self.is_done)

    def told(self, receive, name):
        """What the answer says of one of its receives."""
        ones = (self.reply or {}).get("receives", [self.reply or {}])
        return next((one.get(name) for one in ones if one.get("receive") == receive), None)

    def __str__(self):
        names = ("action", "order", "key", "receives", "sendings")
        return json.dumps({name: getattr(self, name) for name in names})


class Orders:
    """check() raises an AssertionError that names the promise and the operations."""

    def __init__(self, operations, rows, read_at, budget, moment, voids=(), loses=False):
        """rows: of the receives that PostgreSQL has, since `read_at`. budget: all discounts are
        taken from it. moment(text): a time that PostgreSQL has told, by the clock of the requests;
        None: its clock was set. voids: voids.Times by receive. loses: refusals may be forgotten,
        because PostgreSQL was put back."""
        self.operations, self.rows, self.read_at, self.budget = operations, rows, read_at, budget
        self.moment, self.voids, self.loses = moment, dict(voids), loses
        self.of = collections.defaultdict(list)
        for one in operations:
            for receive in one.receives:
                self.of[receive].append(one)

    def check(self):
        for one in self.operations:
            self._copies(one)
        sure = {receive: self._sure(receive) for receive in self.of}
        for receive, spans in sure.items():
            self._exclusive(receive, spans)
            self._end(receive, spans)
        for receive in self.of:
            self._refusals(receive)
        self._budget([(receive, span) for receive, spans in sure.items() for span in spans])

    def _copies(self, operation):
        """Each copy is answered as the first one was, but for what the receives are now."""
        told = [first_reply(one.reply) for one in operation.certain()]
        for reply in told[1:]:
            assert reply == told[0] or (
                self.loses and not operation.is_done
            ), f"P12: a copy is answered otherwise: {operation}"

    # When an order has a receive

    def _given(self, receive, operation):
        """What may end what this operation has begun."""
        return [
            one
            for one in self.of[receive]
            if one is not operation
            and one.order == operation.order
            and one.action in GIVES[operation.action]
            and one.may_be_done
            and not one.is_part
        ]

    def _hold_end(self, operation, receive):
        """By its answer; None: not known."""
        until = operation.told(receive, "until")
        return self.moment(until) if self.moment and until else None

    def _sure(self, receive):
        spans = []
        for one in self.of[receive]:
            if one.action not in HAS or not one.is_done:
                continue
            ends = [
                max(one.until, given.since)
                for given in self._given(receive, one)
                if given.until > one.since
            ]
            if one.action == "hold":
                end = self._hold_end(one, receive)
                ends.append(one.until if end is None else end - ROUNDED_S)
            until = min(ends, default=NEVER)
            if until > one.until:
                spans.append(Span(one.until, until, HAS[one.action], one.order, one))
        return spans

    def _may(self, receive):
        spans = []
        for one in self.of[receive]:
            if one.action not in HAS or not one.may_be_done:
                continue
            ends = [
                given.until
                for given in self._given(receive, one)
                if given.since >= one.until and given.is_done
            ]
            end = self._hold_end(one, receive) if one.action == "hold" else None
            if end is not None:
                ends.append(end + FREE_WITHIN_S)
            until = min(ends, default=NEVER)
            spans.append(Span(one.since, until, HAS[one.action], one.order, one))
        return spans

    # The promises

    def _exclusive(self, receive, spans):
        """P12, P13: while an order surely has it, no other gets it; nor after it was voided."""
        takes = [one for one in self.of[receive] if one.action in HAS and one.is_done]
        if receive in self.voids:
            for one in takes:  # what Redis has not, a PostgreSQL that is put back has issued again
                assert one.since <= self.voids[receive].freed, f"P12: {receive} is voided: {one}"
        for span in spans:
            promise = PROMISES[span.state]
            for one in takes:
                assert (
                    one.order == span.order or one.since < span.since or one.until > span.until
                ), f"{promise}: {receive} was {span.state} by {span.operation}, and taken by {one}"
            for other in spans:
                assert (
                    other.order == span.order
                    or other.since >= span.until
                    or span.since >= other.until
                ), f"{promise}: {receive}, at once: {span.operation}, {other.operation}"

    def _end(self, receive, spans):
        """P12: what was answered is there, and nothing else."""
        row = self.rows.get(receive, Row("free", None, None))
        for span in spans:
            if span.until > self.read_at:
                assert (span.state, span.order) == (
                    row.state, row.order
                ), f"{PROMISES[span.state]}: {receive} is {row}: {span.operation}"  # fmt: skip
        if row.state == "used":
            assert any(
                (one.state, one.order) == ("used", row.order) and one.until == NEVER
                for one in self._may(receive)
            ), f"P12: {receive} is {row}, which its order did not ask for, or has taken back"

    def _refusals(self, receive):
        may = self._may(receive)
        for one in self.of[receive]:
            if not one.reply or one.is_done or one.reply.get("receive", receive) != receive:
                continue
            status = one.reply["status"]
            if one.is_forged:
                assert status == "not_found", f"P12: of another user: {one}"
            elif status in REFUSED:
                state, may_own = REFUSED[status], (one.action, status) in OWN
                assert any(
                    span.state == state
                    and span.since <= one.until
                    and span.until >= one.since
                    and (may_own if span.order == one.order else status != "bad_request")
                    for span in may
                ), f"{PROMISES[state]}: {receive} is {state} by nobody: {one}"
            elif status == "voided":
                voids = self.voids.get(receive)
                assert (
                    voids and voids.possible <= one.until
                ), f"P12: nobody has voided {receive}: {one}"
            else:
                assert status == "budget_spent" or not self.moment and status in (
                    "expired", "not_valid_yet"
                ), f"is not answered here: {one}"  # fmt: skip
        for one in self.of[receive]:
            assert not (one.is_forged and one.is_done), f"P12: of another user: {one}"

    def _budget(self, spans):
        """P14: by the rows, and by the answers at any moment."""
        budget = self.budget
        assert (
            budget.spent >= 0 <= budget.held and budget.spent + budget.held <= budget.amount
        ), f"P14: {budget}"
        for state, told in (("used", budget.spent), ("held", budget.held)):
            by_rows = sum(row.amount_off for row in self.rows.values() if row.state == state)
            assert by_rows == told, f"P14: {by_rows} {state} by the rows: {budget}"
        turns = []
        for receive, span in spans:
            amount_off = span.operation.told(receive, "amount_off") or 0
            turns += [(span.since, amount_off)]
            for one in self.of[receive]:  # from when on others may have it
                if one.is_part and one.order == span.order and one.may_be_done:
                    if span.since <= one.since < span.until:
                        turns += [(one.since, -one.members["amount"])]
                        amount_off -= one.members["amount"]
            turns += [(span.until, -amount_off)]
        total = 0
        for at, amount_off in sorted(turns):
            total += amount_off
            assert total <= budget.amount, f"P14: {total} were taken at {at}: {budget}"
