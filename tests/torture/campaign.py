"""
The load of a torture run, on several coupons at a steady rate well below the limit of the machine,
and its verification. Clients retry requests without an answer, or answered `unknown`, with the same
key at any gateway.
"""

import collections

from history import UNKNOWN, History
from load import UNANSWERED, Ask, Load
from ulid import ulid_uuid

CLIENTS = 4
WINDOW = 10  # requests of a client at once
EVERY_S = 0.066  # a window of each client: 600 requests a second in all
ANSWER_S = 5.0  # longer than all time-outs of the gateway together; the client's own time-out
USERS = 10**9
REGULARS = 60  # users who send many requests, so that limits and keys are met
REPEATS_KEPT = 200
MOVES = 0.04  # how often a client changes its gateway, so that all have clients after one has died


class Campaign(History):
    """One coupon of the load: its requests, and their verification."""

    def __init__(self, stack, total, limit, seed):
        super().__init__(
            stack, stack.coupon_make(total, limit, name="torture"), total, limit, seed=seed
        )
        self.queries = []  # read operations: status and coupon
        self.repeats = collections.deque(maxlen=REPEATS_KEPT)  # requests to be retried

    def note(self, ask):
        (self.asked if ask.op == "issue" else self.queries).append(ask)

    def lines(self):
        return sorted(
            (ask for ask in [*self.asked, *self.queries] if ask.at is not None),
            key=lambda ask: ask.at,
        )

    def judge(self):
        issued = super().judge()
        rows, tombstones, _ = self._database()
        places = {(row[2], row[3]) for row in rows}
        rejected = {(row[2], row[3]) for row in tombstones}
        self._check_losses(rows, tombstones)
        self._check_queries(places, rejected)
        return issued

    def _check_losses(self, rows, tombstones):
        """A user that was refused at his limit must have that many; a rejection may have freed a
        slot since."""
        if tombstones:
            return
        have = collections.Counter(row[0] for row in rows)
        for ask in self.asked:
            assert (
                ask.code != 4 or have[ask.user] == self.limit
            ), f"has {have[ask.user]} of {self.limit}: {ask}"
            assert (
                ask.code != 2 or len(rows) == self.total
            ), f"{len(rows)} of {self.total} are issued: {ask}"

    def _check_queries(self, places, rejected):
        accepted = collections.defaultdict(list)  # user: (time of the answer, receive)
        for ask in self.asked:
            if ask.receive and ask.answered_at:
                accepted[ask.user].append((ask.answered_at, ask.receive))
        for ask in self.queries:
            if ask.op != "status" or not ask.reply:
                continue
            if ask.reply["status"] in ("accepted", "issued", "rejected"):
                self._check_state(ask, ask.reply["receive"], ask.reply["status"], places, rejected)
            for told in ask.reply.get("receives", []):
                self._check_state(ask, told["receive"], told["state"], places, rejected)
            if ask.reply.get("final"):
                known = [receive for at, receive in accepted[ask.user] if at < ask.at]
                lost = [receive for receive in known if place_of(receive) not in rejected]
                assert not lost or (
                    ask.receive_asked and ask.receive_asked not in lost
                ), f"there was {lost[0]} before: {ask}"

    @staticmethod
    def _check_state(ask, receive, state, places, rejected):
        place = place_of(receive)
        assert (place in places) != (
            place in rejected
        ), f"P3: neither issued nor rejected in the end, or both: {ask}"
        assert state != "issued" or place in places, f"P3: was issued: {ask}"
        assert state != "rejected" or place in rejected, f"P3: was rejected: {ask}"


def place_of(receive):
    _, _, batch, index = receive.split(".")
    return ulid_uuid(batch), int(index)


class TortureLoad(Load):
    """The load on all the campaigns."""

    def __init__(self, campaigns, gateways, seed):
        super().__init__(
            gateways,
            self._window_make,
            seed,
            CLIENTS,
            EVERY_S,
            ANSWER_S,
            MOVES,
            self._window_ended,
        )
        self.campaigns = campaigns

    def _window_make(self, chance):
        campaign = chance.choice(self.campaigns)
        return campaign, [self._ask_make(chance, campaign) for _ in range(WINDOW)]

    @staticmethod
    def _window_ended(chance, campaign, window):
        for ask in window:
            if ask.key and ask.code in (None, UNKNOWN) and chance.random() < 0.8:
                campaign.repeats.append(ask)

    def _ask_make(self, chance, campaign):
        kind = chance.random()
        if campaign.repeats and kind < 0.3:
            again = campaign.repeats.popleft()
            return Ask("issue", again.user, again.key, again.ack)
        user = chance.randint(1, REGULARS if chance.random() < 0.15 else USERS)
        if kind < 0.85:
            key = f"key {chance.randint(1, 3)}" if chance.random() < 0.5 else None
            return Ask(
                "issue",
                user,
                key,
                chance.choices((None, "accepted", "queued", "issued"), (5, 1, 1, 2))[0],
            )
        return self._query_make(chance, campaign, user)

    def _query_make(self, chance, campaign, user):
        """Usually of a user who was just answered."""
        if chance.random() < 0.15:
            return Ask("coupon", user)
        if campaign.asked and chance.random() < 0.8:
            recent = campaign.asked[-chance.randint(1, min(len(campaign.asked), 500))]
            if recent.receive and chance.random() < 0.5:
                return Ask("status", recent.user, receive=recent.receive)
            user = recent.user
        return Ask("status", user)

    def codes(self):
        return sum((campaign.codes() for campaign in self.campaigns), collections.Counter())

    def unanswered(self, gateways):
        """Requests without an answer of one of these gateways, for which a client waited."""
        asks = (ask for campaign in self.campaigns for ask in campaign.lines())
        return [
            ask for ask in asks if ask.reply is UNANSWERED and ask.ended and ask.gateway in gateways
        ]

    def history_write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for campaign in self.campaigns:
                file.writelines(
                    f'{{"coupon": "{campaign.coupon}", {str(ask)[1:]}\n' for ask in campaign.lines()
                )
