"""
The load of a torture run, on several coupons at a steady rate well below the limit of the machine,
and its verification. Clients retry requests without an answer, or answered `unknown`, with the same
key at any gateway.
"""

import collections
import secrets
import time

from history import History
from load import Ask, Load
from stack import utc
from user_ids import user_of
from verdict import unanswered

CLIENTS = 4
WINDOW = 10  # requests of a client at once
EVERY_S = 0.066  # a window of each client: 600 requests a second in all
WINDOW_SHORT = 3  # in `make test`, which runs much else beside it
ANSWER_S = 5.0  # longer than all time-outs of the gateway together; the client's own time-out
USERS = 10**9
REGULARS = 60  # users who send many requests, so that limits and keys are met
REPEATS_KEPT = 200
UNKNOWN = 22
MOVES = 0.04  # how often a client changes its gateway, so that all have clients after one has died


class Campaign(History):
    """One coupon of the load, with a tag of its own. valid_s: how long its user coupons are valid
    from now on; None: for days."""

    def __init__(self, stack, total, limit, seed, allowed, valid_s=None):
        begins_at = int(time.time())
        self.tag, self.valid_until = f"torture-{secrets.token_hex(8)}", begins_at + (valid_s or 0)
        terms = {"name": "torture", "tags": self.tag, "events": "on"}
        if valid_s:
            terms |= {"valid_from": utc(begins_at), "valid_to": utc(self.valid_until)}
        super().__init__(
            stack,
            stack.coupon_make(total, limit, **terms),
            total,
            limit,
            seed=seed,
            allowed=allowed,
        )
        self.repeats = collections.deque(maxlen=REPEATS_KEPT)  # requests to be retried

    def user(self, number):
        return user_of(number, self.seed)

    def lines(self):
        return sorted((ask for ask in self.asked if ask.at is not None), key=lambda ask: ask.at)


class TortureLoad(Load):
    """The load on all the campaigns."""

    ACKS, WEIGHTS = (None, "accepted", "queued", "issued"), (5, 1, 1, 2)

    def __init__(self, campaigns, gateways, seed, on_answer, window=WINDOW):
        super().__init__(
            gateways,
            self._window_make,
            seed,
            CLIENTS,
            EVERY_S,
            ANSWER_S,
            MOVES,
            self._window_ended,
            on_answer,
        )
        self.campaigns = campaigns
        self.window = window

    def _window_make(self, chance):
        campaign = chance.choice(self.campaigns)
        return campaign, [self._ask_make(chance, campaign) for _ in range(self.window)]

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
        user = campaign.user(chance.randint(1, REGULARS if chance.random() < 0.15 else USERS))
        if kind < 0.85:
            key = f"key {chance.randint(1, 3)}" if chance.random() < 0.5 else None
            return Ask(
                "issue",
                user,
                key,
                chance.choices(self.ACKS, self.WEIGHTS)[0],
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
        if chance.random() < 0.3:
            return Ask("offers", user, tag=campaign.tag)
        return Ask("status", user)

    def codes(self):
        return sum((campaign.codes() for campaign in self.campaigns), collections.Counter())

    def unanswered(self, disturbances):
        asks = (ask for campaign in self.campaigns for ask in campaign.lines())
        return unanswered(asks, disturbances)

    def history_write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            for campaign in self.campaigns:
                file.writelines(
                    f'{{"coupon": "{campaign.coupon}", {str(ask)[1:]}\n'
                    for ask in [*campaign.lines(), *campaign.voidings]
                )
