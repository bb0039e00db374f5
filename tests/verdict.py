""" The verdict on the requests for one coupon and their answers, when everything is settled:
compares them with what PostgreSQL and Redis have then.

A request without an answer, or answered `unknown`, may have taken effect or not. Every other answer
must have been true when it was given: docs/reference/protocol.md defines what each answer promises,
and P1 to P6 are checked as promises of the whole.

The times are those of the client: a decision was made after the request was sent and before its
answer arrived. A check uses the earliest or the latest moment that is possible, so that it never
refuses a true history. """

import bisect
import collections

from load import UNANSWERED
from ulid import ulid_uuid
from user_ids import receive_parts
from voids import NEVER, Voids

ALWAYS = frozenset(("accepted", "queued", "issued", "out_of_stock", "limit_reached"))
TAKEN = frozenset(("accepted", "queued", "issued"))
UNKNOWN = "unknown"
UNKNOWN_SHARE = 0.01  # where nothing is declared: a busy machine may exceed a time-out
UNKNOWN_CALM = 0.05  # outside the moment of the fault
UNKNOWN_FEW = 20  # allowed whatever their share is
REASONS = ("slot_taken", "key_taken", "out_of_stock", "lost")  # that can be declared
REDIS_LOST = frozenset(("slot_taken", "key_taken", "out_of_stock"))  # only if Redis lost slots
OUTCOMES = ("issued", "rejected")  # final
REJECTED_LISTED = 100  # a list of `status` has the newest ones
OFFER_S = 1.0  # so old a stock on offer may be
REPEATED_S = 0.11  # a gateway may repeat `out_of_stock` for 100 ms

Row = collections.namedtuple("Row", "user slot batch index key")
Tombstone = collections.namedtuple("Tombstone", "user slot batch index reason")
Terms = collections.namedtuple("Terms", "coupon total limit")


class Stored:
    """What the stores have of the coupon: rows, rejections and voids of PostgreSQL, slots of Redis
    as rows, and its counts."""

    def __init__(self, rows, tombstones, issued_num, slots, counts, voids=()):
        self.rows, self.tombstones, self.issued_num = rows, tombstones, issued_num
        self.slots, self.counts, self.voids = slots, counts, voids
        self.issued = {(row.batch, row.index): row for row in rows}
        self.rejected = {(one.batch, one.index): one for one in tombstones}


class Span:
    """The times at which a receive had its slot: it may have had it since .. until, and surely had
    it sure_since .. sure_until, in PostgreSQL from issued_since on."""

    def __init__(self, user, slot, since, until, issued_since):
        self.user, self.slot, self.issued_since = user, slot, issued_since
        (self.since, self.sure_since), (self.sure_until, self.until) = since, until

    def is_possible(self, since, until):
        return self.since <= until and self.until >= since

    def is_sure(self, since, until):
        """All the time."""
        return self.sure_since < since and self.sure_until > until


class Allowed:
    """What may happen to this history besides requests being accepted, or refused for lack of
    stock or at the user's limit. answers: other statuses, "status unavailable" for that operation
    only, "stock too low": it may be, or seem sold out, for a while. reasons: of rejections.
    unknown: the largest share of requests that may have no answer, or `unknown`. moment: of the
    fault, (from, until), if it is known: of the requests before and after it at most UNKNOWN_CALM
    may be unknown."""

    def __init__(self, answers=(), reasons=(), unknown=UNKNOWN_SHARE, moment=None):
        self.answers, self.reasons, self.unknown = set(answers), set(reasons), unknown
        self.moment = moment
        assert self.reasons <= set(REASONS), f"cannot be declared: {self.reasons - set(REASONS)}"

    def add(self, answers=(), reasons=(), unknown=0.0):
        self.answers |= set(answers)
        self.reasons |= set(reasons)
        self.unknown = max(self.unknown, unknown)


def place_of(receive):
    """The place of a receive in the tables: its batch and index."""
    _, _, batch, index = receive_parts(receive)
    return ulid_uuid(batch), int(index)


def status_of(ask):
    return ask.reply["status"] if ask.reply else None


def told_by(ask):
    """The receives that the answer names, each with its `state`."""
    reply = ask.reply or {}
    if "receives" in reply:
        return reply["receives"]
    if "receive" not in reply:
        return []
    state = reply["status"] if reply["status"] in OUTCOMES else "accepted"
    return [{**reply, "state": state}]


class Verdict:
    """check() raises an AssertionError that names the promise, the place and the request."""

    def __init__(self, terms, asks, stored, allowed, where="", voidings=()):
        self.terms, self.stored, self.allowed, self.where = terms, stored, allowed, where
        self.issues = [ask for ask in asks if ask.op == "issue"]
        self.queries = [ask for ask in asks if ask.op != "issue"]
        self.by_user = collections.defaultdict(list)
        for ask in self.issues:
            self.by_user[ask.user].append(ask)
        self.told = collections.defaultdict(list)  # place: the requests answered with it
        for ask in self.issues:
            if ask.receive:
                self.told[place_of(ask.receive)].append(ask)
        self.known = self._known()
        self.voids = Voids(voidings, stored.voids, place_of)
        self.spans = self._spans()
        self.spans_by_user = collections.defaultdict(list)
        for span in self.spans:
            self.spans_by_user[span.user].append(span)

    def _known(self):
        """What clients knew: by user, then by receive, the earliest times at which an answer named
        it (None), and called it issued or rejected."""
        known = collections.defaultdict(dict)
        for ask in [*self.issues, *self.queries]:
            if ask.answered_at is None:
                continue
            for one in told_by(ask):
                receive, state = one["receive"], one["state"]
                times = known[ask.user].setdefault(receive, {})
                for what in {None, state if state in OUTCOMES else None}:
                    times[what] = min(times.get(what, ask.answered_at), ask.answered_at)
        return known

    def check(self):
        self._stores()
        self.voids.check(self.stored.issued, self.stored.rejected, self._issued_before, self.where)
        self._never_more()
        self._answers_allowed()
        self._unknown_share()
        self._rejections()
        self._receives()
        self._requested()
        self._keys()
        self._refusals()
        self._queries()

    def _of(self, user):
        return " ".join(str(ask) for ask in self.by_user[user])

    # The stores

    def _stores(self):
        """P1, P2, P4."""
        stored, terms, where = self.stored, self.terms, self.where
        assert (
            stored.issued_num == len(stored.rows) <= terms.total
        ), f"P1: {stored.issued_num} counted, {len(stored.rows)} rows of {terms.total} {where}"
        for user, count in collections.Counter(row.user for row in stored.rows).items():
            assert count <= terms.limit, f"P2: user {user} has {count} {where}: {self._of(user)}"
        assert len(stored.issued) == len(stored.rows), f"P3: a receive has two rows {where}"
        assert not stored.issued.keys() & stored.rejected.keys(), f"P3: issued and rejected {where}"
        counts = stored.counts
        in_all = counts["stock"] + counts["reserved"] + counts["lost"] + len(stored.slots)
        assert in_all == counts["total"] == terms.total, f"P4: {counts} {where}"
        taken = {row[:4] for row in stored.slots}
        assert taken == {row[:4] for row in stored.rows}, f"P4: Redis and PostgreSQL differ {where}"

    # The answers as such

    def _answers_allowed(self):
        allowed = ALWAYS | {UNKNOWN} | self.allowed.answers
        if self.allowed.reasons or self.voids.stored:
            allowed |= {"rejected"}
        for ask in self.issues:
            assert (
                not ask.reply or status_of(ask) in allowed
            ), f"is not answered here: {ask} {self.where}"
        for ask in self.queries:
            assert (
                not ask.reply
                or ask.reply["code"] == 0
                or {status_of(ask), f"{ask.op} {status_of(ask)}"} & self.allowed.answers
                or ask.op == "status"
                and status_of(ask) in ("not_found", "rejected")
            ), f"is not answered here: {ask} {self.where}"

    def _unknown_share(self):
        asks = [*self.issues, *self.queries]
        self._unknown_at_most(asks, self.allowed.unknown)
        if self.allowed.moment:
            since, until = self.allowed.moment
            calm = [ask for ask in asks if not since <= ask.at <= until]
            self._unknown_at_most(calm, UNKNOWN_CALM)

    @staticmethod
    def _unknown_at_most(asks, share):
        unknown = [
            ask
            for ask in asks
            if status_of(ask) == UNKNOWN or not ask.reply and ask.ended_at is not None
        ]  # not those for which no client waited
        bound = max(UNKNOWN_FEW, share * len(asks))
        assert (
            len(unknown) <= bound
        ), f"{len(unknown)} of {len(asks)} requests are unknown, at most {bound:.0f}: {unknown[0]}"

    def _rejections(self):
        """P3, P10: a receive is rejected only for a reason that is declared, and that is true."""
        issued = [*self.stored.rows, *self.voids.returned()]  # at some time
        held = {(one.user, one.slot) for one in issued}
        keys = {(row.user, row.key) for row in self.stored.rows if row.key}
        keys |= {
            (ask.user, ask.key)
            for void in self.voids.returned()
            for ask in self.told[(void.batch, void.index)]
        }
        for one in self.stored.tombstones:
            if one.reason == "voided":
                continue
            assert one.reason in self.allowed.reasons, f"P3: rejected: {one} {self.where}"
            if one.reason == "slot_taken":
                assert (one.user, one.slot) in held, f"P3: the slot is free: {one} {self.where}"
            if one.reason == "key_taken":
                told = self.told[(one.batch, one.index)]
                assert all(
                    (ask.user, ask.key) in keys for ask in told
                ), f"P3: the key is free: {one} {self.where}"
            if one.reason == "out_of_stock":
                assert (
                    len(issued) >= self.terms.total
                ), f"P3: {len(issued)} are issued: {one} {self.where}"

    # Receives

    def _receives(self):
        """P3: an accepted receive is exactly one row or exactly one rejection, and each answer
        names the one that it is."""
        for place, asks in self.told.items():
            for ask in asks:
                self._receive(ask, place)

    def _receive(self, ask, place):
        row, tombstone = self.stored.issued.get(place), self.stored.rejected.get(place)
        assert receive_parts(ask.receive)[:2] == (
            self.terms.coupon, ask.user
        ), f"{ask} {self.where}"  # fmt: skip
        assert (row is None) != (tombstone is None), f"P3: {ask} {self.where}"
        if status_of(ask) in OUTCOMES:
            self._outcome(ask, ask.reply, status_of(ask), place)
        if status_of(ask) in TAKEN:
            _, freed = self.voids.until(place)
            assert ask.at <= freed, f"P3: it was voided before: {ask} {self.where}"
        if status_of(ask) in TAKEN and row:
            assert row[:2] == (ask.user, ask.reply["slot"]), f"P3: {ask}, {row} {self.where}"
            assert row.key == (ask.key or ""), f"P6: {ask}, {row} {self.where}"

    def _outcome(self, ask, told, outcome, place):
        """A final outcome that an answer names."""
        tombstone = self.stored.rejected.get(place)
        outcomes = self._outcomes(place, ask)
        assert (
            outcome in outcomes
        ), f"P3: was {outcome}, and can be {outcomes}: {ask}, {tombstone} {self.where}"
        if outcome == "rejected":
            reason = tombstone.reason if tombstone else "voided"
            assert (
                told.get("reason", reason) == reason
            ), f"P3: rejected as {reason}: {ask} {self.where}"

    def _outcomes(self, place, ask):
        """The outcomes that the answer to the request may name."""
        if place in self.voids.stored:
            return self.voids.outcomes(place, ask.at, ask.answered_at)
        return {"issued"} if place in self.stored.issued else {"rejected"}

    def _issued_before(self, receive, at):
        times = self.known[receive_parts(receive)[1]].get(receive, {})
        return times.get("issued", NEVER) < at

    def _requested(self):
        """P5, P7: no user has more than he requested and was not refused."""
        keys, keyless = collections.defaultdict(set), collections.Counter()
        for ask in self.issues:
            if not may_have_taken(ask):
                continue
            if ask.key:
                keys[ask.user].add(ask.key)
            else:
                keyless[ask.user] += 1
        with_key = collections.Counter((row.user, row.key) for row in self.stored.rows if row.key)
        assert (
            max(with_key.values(), default=0) <= 1
        ), f"P6: a key was issued twice: {with_key.most_common(1)} {self.where}"
        for user, key in with_key:
            assert key in keys[user], f"P5: key {key!r} {self.where}: {self._of(user)}"
        without = collections.Counter(row.user for row in self.stored.rows if not row.key)
        for user, count in without.items():
            assert (
                count <= keyless[user]
            ), f"P5: user {user} has more than he requested {self.where}: {self._of(user)}"

    def _keys(self):
        receives = {}
        for ask in self.issues:
            if not ask.key or not ask.receive or place_of(ask.receive) in self.stored.rejected:
                continue  # the slot of a rejected receive was freed, and its key with it
            first = receives.setdefault((ask.user, ask.key), ask.receive)
            assert first == ask.receive, f"P6: {ask} {self.where}: {self._of(ask.user)}"
        keyless = [ask.receive for ask in self.issues if ask.receive and not ask.key]
        assert len(keyless) == len(set(keyless)), f"one receive for two requests {self.where}"

    # Refusals, in the order of the times

    def _accepted_from(self, user, place, key):
        """The earliest time at which this receive may have been accepted."""
        told = self.told.get(place, ())
        if key is None:  # a rejection has no key in PostgreSQL
            key = next((ask.key for ask in told if ask.key), "")
        asks = [ask for ask in self.by_user[user] if may_have_taken(ask)]
        if key:
            asks = [ask for ask in asks if ask.key == key]
        elif told:
            asks = told
        return min((ask.at for ask in asks if ask.at is not None), default=0.0)

    def _accepted_surely(self, place):
        """The time at which it surely was; never, if it was rejected and not voided."""
        asks = self.told.get(place, ())
        if place in self.stored.rejected and place not in self.voids.stored:
            return NEVER
        times = [ask.answered_at for ask in asks]
        return min(times) if times and None not in times else NEVER

    def _spans(self):
        """The spans of every receive."""
        receives = [(one, one.key) for one in self.stored.rows]
        receives += [(one, None) for one in self.stored.tombstones]
        issued = {
            place_of(receive): times.get("issued", NEVER)
            for known in self.known.values()
            for receive, times in known.items()
        }
        spans = []
        for one, key in receives:
            place = (one.batch, one.index)
            since = (self._accepted_from(one.user, place, key), self._accepted_surely(place))
            until, issued_since = self.voids.until(place), issued.get(place, NEVER)
            spans.append(Span(one.user, one.slot, since, until, issued_since))
        return spans

    def _never_more(self):
        """P1, P2: at no time there were more than the total, or more of one user than the limit, or
        two in one slot. Without voids that is so if it is so at the end. Where Redis may lose slots
        it may accept one too many, which PostgreSQL rejects unless one is voided until then."""
        if not self.voids.stored:
            return
        events = []
        for span in self.spans:
            since = span.issued_since if self.allowed.reasons & REDIS_LOST else span.sure_since
            if since < span.sure_until:
                events.append((since, 1, span))
                events.append((span.sure_until, 0, span))
        held, of_user, all_n = set(), collections.Counter(), 0
        for at, begins, span in sorted(events, key=lambda event: event[:2]):
            slot, change = (span.user, span.slot), 1 if begins else -1
            assert not (begins and slot in held), f"P2: two in slot {slot} at {at} {self.where}"
            (held.add if begins else held.discard)(slot)
            all_n += change
            of_user[span.user] += change
            assert all_n <= self.terms.total, f"P1: {all_n} at {at} {self.where}"
            assert (
                of_user[span.user] <= self.terms.limit
            ), f"P2: user {span.user} had {of_user[span.user]} at {at} {self.where}"

    def _refusals(self):
        """A user who was refused at his limit had that many receives then, and stock that was sold
        out was taken then."""
        taken = Taken(self.spans)
        for ask in self.issues:
            if ask.answered_at is None:
                continue
            if status_of(ask) == "limit_reached":
                number = sum(
                    span.is_possible(ask.at, ask.answered_at)
                    for span in self.spans_by_user[ask.user]
                )
                assert (
                    number >= self.terms.limit
                ), f"had {number} of {self.terms.limit}: {ask} {self.where}: {self._of(ask.user)}"
            if status_of(ask) == "out_of_stock" and "stock too low" not in self.allowed.answers:
                number = taken.most(ask.at - (0 if ask.key else REPEATED_S), ask.answered_at)
                assert (
                    number >= self.terms.total
                ), f"{number} of {self.terms.total} were accepted: {ask} {self.where}"
        self._refusals_final()

    def _refusals_final(self):
        """Without rejections nothing becomes free again, so they are true at the end as well."""
        have = collections.Counter(row.user for row in self.stored.rows)
        rejected = {one.user for one in self.stored.tombstones}
        for ask in self.issues:
            if status_of(ask) == "limit_reached" and ask.user not in rejected:
                assert have[ask.user] == self.terms.limit, f"has {have[ask.user]}: {ask}"
            if status_of(ask) == "out_of_stock" and not rejected:
                number = len(self.stored.rows)
                assert number == self.terms.total, f"{number} are issued: {ask} {self.where}"

    # Queries

    def _queries(self):
        taken = Taken(self.spans)
        for ask in self.queries:
            if not ask.reply:
                continue
            if ask.op == "status":
                self._status(ask)
            elif ask.reply["code"] == 0 and ask.op == "coupon":
                self._coupon(ask, taken)
            elif ask.reply["code"] == 0:
                self._offers(ask, taken)

    def _status(self, ask):
        for one in told_by(ask):
            self._state(ask, one)
        self._whole(ask)
        self._earlier(ask)

    def _whole(self, ask):
        """The reply is about what was queried, and names no receive twice."""
        of_user = (self.terms.coupon, ask.user)
        receives = [one["receive"] for one in told_by(ask)]
        assert len(receives) == len(set(receives)), f"a receive is listed twice: {ask} {self.where}"
        for receive in receives:
            assert receive_parts(receive)[:2] == of_user and (
                not ask.receive_asked or receive == ask.receive_asked
            ), f"another receive: {ask} {self.where}"

    def _earlier(self, ask):
        """What an answer had named before the query was sent is there, and an outcome stays. Redis
        may lose a receive that has no outcome only where that is declared."""
        if ask.reply["code"] and status_of(ask) not in ("not_found", "rejected"):
            return  # no statement about receives
        told = {one["receive"]: one["state"] for one in told_by(ask)}
        cut = sum(state == "rejected" for state in told.values()) >= REJECTED_LISTED
        for receive, times in self.known[ask.user].items():
            if ask.receive_asked not in (None, receive):
                continue
            before = {what for what, at in times.items() if at < ask.at}
            outcomes = before & set(OUTCOMES)
            if place_of(receive) in self.voids.stored and "rejected" not in before and outcomes:
                outcomes = self._outcomes(place_of(receive), ask)
            if outcomes == {"issued", "rejected"} and "rejected" in before:
                outcomes = {"rejected"}  # voided
            if outcomes and not (cut and "rejected" in outcomes):
                assert (
                    told.get(receive) in outcomes
                ), f"P3: {receive} was {' or '.join(outcomes)} before: {ask} {self.where}"
            elif before and not (cut and place_of(receive) in self.stored.rejected):
                assert receive in told or self._may_be_absent(
                    ask, receive
                ), f"P3: {receive} was accepted before: {ask} {self.where}"

    def _may_be_absent(self, ask, receive):
        """Redis has lost the receive, which still has no outcome. Where the reply is final, the
        slot was given to another."""
        return self.allowed.reasons & REDIS_LOST and (
            not ask.reply.get("final") or place_of(receive) in self.stored.rejected
        )

    def _state(self, ask, told):
        place, state = place_of(told["receive"]), told["state"]
        row, tombstone = self.stored.issued.get(place), self.stored.rejected.get(place)
        assert (row is None) != (
            tombstone is None
        ), f"P3: neither issued nor rejected in the end, or both: {ask} {self.where}"
        slot = (row or tombstone).slot
        assert told.get("slot", slot) == slot, f"P3: its slot is {slot}: {ask} {self.where}"
        if state in OUTCOMES:
            self._outcome(ask, told, state, place)

    def _coupon(self, ask, taken):
        self._terms(ask, ask.reply)
        self._stock(ask, ask.reply["stock"], taken, ask.at)

    def _terms(self, ask, told):
        of_coupon = (told["coupon"], told["state"], told["total"], told["limit"])
        assert of_coupon == (
            self.terms.coupon, "open", self.terms.total, self.terms.limit
        ), f"is open with other terms: {ask} {self.where}"  # fmt: skip

    def _stock(self, ask, stock, taken, since):
        """It was between what was certainly taken then and what may have been taken when the
        request was answered."""
        least = self.terms.total - taken.most(since, ask.answered_at)
        most = self.terms.total - taken.least(since, ask.answered_at)
        if "stock too low" in self.allowed.answers:
            least = 0
        assert (
            max(0, least) <= stock <= most
        ), f"P4: the stock was between {least} and {most}: {ask} {self.where}"

    def _offers(self, ask, taken):
        """It is offered, as `coupon` says, and the user could claim what was left to him. A Redis
        that has lost slots does not know them."""
        offers = {one["coupon"]: one for one in ask.reply["offers"]}
        assert list(offers) == [self.terms.coupon], f"is not what is offered: {ask} {self.where}"
        one = offers[self.terms.coupon]
        if one.get("why") == "unavailable":
            assert "unavailable" in self.allowed.answers, f"is available: {ask} {self.where}"
            assert not one["claimable"], f"is claimable: {ask} {self.where}"
            return
        self._terms(ask, one)
        self._stock(ask, one["stock"], taken, ask.at - OFFER_S)
        spans = self.spans_by_user[ask.user]
        most = sum(span.is_possible(ask.at, ask.answered_at) for span in spans)
        least = sum(span.is_sure(ask.at, ask.answered_at) for span in spans)
        if self.allowed.reasons & REDIS_LOST:
            least = 0
        assert (
            least <= one["taken"] <= most
        ), f"P2: the user had between {least} and {most}: {ask} {self.where}: {self._of(ask.user)}"
        left = max(0, self.terms.limit - one["taken"])
        why = "out_of_stock" if one["stock"] <= 0 else None if left else "limit_reached"
        assert one["left"] == left, f"{left} are left: {ask} {self.where}"
        assert one["claimable"] == (not why), f"is claimable, or is not: {ask} {self.where}"
        assert one.get("why") == why, f"why not: {ask} {self.where}"


class Taken:
    """How many receives had their slots at some time between two."""

    def __init__(self, spans):
        self.since = sorted(span.since for span in spans)
        self.until = sorted(span.until for span in spans)
        self.sure_since = sorted(span.sure_since for span in spans)
        self.ended = [span for span in spans if span.sure_until < NEVER]

    def most(self, since, until):
        return bisect.bisect_right(self.since, until) - bisect.bisect_left(self.until, since)

    def least(self, since, until):
        ended_n = sum(span.sure_since < since and span.sure_until <= until for span in self.ended)
        return bisect.bisect_left(self.sure_since, since) - ended_n


def may_have_taken(ask):
    """Whether this request may have been accepted."""
    return not ask.reply or bool(ask.receive) or status_of(ask) == UNKNOWN


def unanswered(asks, disturbances):
    """The requests without an answer for which a client waited, of gateways that nothing had
    happened to. disturbances(gateway): (from, until) of the times at which it may have left clients
    without an answer. A connection that ended was open at such a time; a request that timed out was
    waiting."""
    found = []
    for ask in asks:
        if ask.reply is not UNANSWERED or ask.ended_at is None:
            continue
        began = ask.at if ask.timed_out else ask.connected_at
        if not any(
            start <= ask.ended_at and until >= began for start, until in disturbances(ask.gateway)
        ):
            found.append(ask)
    return found
