"""
The load of a torture: several clients that ask the gateways for several coupons at a steady rate well below what the machine can do, and
write down every request, answer, time-out and time. They retry what has no answer or `unknown`, with the same key, at any gateway.
"""

import collections
import json
import random
import threading
import time

from history import UNANSWERED, UNKNOWN, Asked, History, ulid_uuid
from stack import Client

CLIENTS = 4
WINDOW = 10  # requests of a client at once
EVERY_S = 0.066  # a window of each client: 600 requests a second in all
ANSWER_S = 5.0  # longer than all time-outs of the gateway together: then the client gives up
USERS = 10**9
REGULARS = 60  # users who ask again and again, so that limits and keys are met
SURE = frozenset((0, 1, 2, 3, 4, 5, 6, 9))  # answers that tell what is
REPEATS_KEPT = 200
MOVES = (
    0.04  # how often a client goes to another gateway, so that all have clients again after a death
)


class Ask(Asked):
    """One request of the history: when it was sent to which gateway, and when what came back."""

    __slots__ = ("client", "gateway", "op", "ack", "receive_asked", "at", "answered_at", "ended")

    def __init__(self, op, user, key=None, ack=None, receive=None):
        super().__init__(user, key)
        self.op, self.ack, self.receive_asked = op, ack, receive
        self.client = self.gateway = self.at = self.answered_at = None
        self.ended = None  # why no answer came: "time-out", or how the connection ended

    def line(self, number, coupon):
        request = {"id": number, "op": self.op}
        if self.receive_asked:
            request["receive"] = self.receive_asked
        else:
            request["coupon"] = coupon
            if self.op != "coupon":
                request["user"] = str(self.user)
        if self.key:
            request["key"] = self.key
        if self.ack:
            request["ack"] = self.ack
        return json.dumps(request) + "\n"

    def __str__(self):
        asked = {"at": self.at, "client": self.client, "gateway": self.gateway, "op": self.op, "user": self.user, "key": self.key,
                 "ack": self.ack, "receive_asked": self.receive_asked, "answered_at": self.answered_at, "ended": self.ended,
                 "reply": self.reply}  # fmt: skip
        return json.dumps(
            {name: value for name, value in asked.items() if value is not None or name == "reply"}
        )


class Campaign(History):
    """One coupon of the load: what was asked of it, and the judgement."""

    def __init__(self, stack, total, limit, seed):
        super().__init__(
            stack, stack.coupon_make(total, limit, name="torture"), total, limit, seed=seed
        )
        self.queries = []  # what changes nothing: status and coupon
        self.repeats = collections.deque(maxlen=REPEATS_KEPT)  # requests to be asked again

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
        """Who was told that there is nothing left for him was told the truth; a rejection may have freed it again since."""
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
        accepted = collections.defaultdict(list)  # user: (when he was told, receive)
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


class LoadClient:
    def __init__(self, load, number):
        self.load, self.number = load, number
        self.chance = random.Random(f"{load.seed} client {number}")
        self.connection = self.gateway = None
        self.sure = self.accepted = 0

    def run(self):
        due = time.monotonic()
        while not self.load.stopping.is_set():
            try:
                self._turn()
            except (OSError, EOFError):
                self._hang_up()
            except Exception as error:  # the thread's own: told by Load.stop()
                self.load.errors.append(f"client {self.number}: {error!r}")
                return
            due = max(
                due + EVERY_S, time.monotonic() - EVERY_S
            )  # what was missed is not made up for
            self.load.stopping.wait(max(0.0, due - time.monotonic()))
        self._hang_up()

    def _hang_up(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def _turn(self):
        if self.chance.random() < MOVES:
            self._hang_up()
        if not self.connection:
            self.gateway, listen = self.chance.choice(self.load.gateways())
            self.connection = Client(listen, timeout=ANSWER_S)
        campaign = self.chance.choice(self.load.campaigns)
        window = [self._ask_make(campaign) for _ in range(WINDOW)]
        at = self.load.now()
        for ask in window:
            ask.client, ask.gateway, ask.at = self.number, self.gateway, at
            campaign.note(ask)
        try:
            self.connection.send_bytes(
                "".join(ask.line(i, campaign.coupon) for i, ask in enumerate(window)).encode()
            )
            self._answers_read(window)
        except (OSError, EOFError) as error:
            for ask in window:
                if ask.reply is UNANSWERED:
                    ask.ended = f"{self.load.now()}: {'time-out' if isinstance(error, TimeoutError) else repr(error)}"
            raise
        finally:
            for ask in window:
                if ask.key and ask.code in (None, UNKNOWN) and self.chance.random() < 0.8:
                    campaign.repeats.append(ask)

    def _answers_read(self, window):
        for _ in window:
            line = self.connection.reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError  # half a line is no answer
            reply = json.loads(line)
            ask = window[reply["id"]]
            assert ask.reply is UNANSWERED, f"answered twice: {line}"
            ask.answered_at = self.load.now()
            ask.reply = reply
            self.sure += reply["code"] in SURE
            self.accepted += ask.op == "issue" and reply["code"] == 0

    def _ask_make(self, campaign):
        chance = self.chance.random()
        if campaign.repeats and chance < 0.3:
            again = campaign.repeats.popleft()
            return Ask("issue", again.user, again.key, again.ack)
        user = self.chance.randint(1, REGULARS if self.chance.random() < 0.15 else USERS)
        if chance < 0.85:
            key = f"key {self.chance.randint(1, 3)}" if self.chance.random() < 0.5 else None
            return Ask(
                "issue",
                user,
                key,
                self.chance.choices((None, "accepted", "queued", "issued"), (5, 1, 1, 2))[0],
            )
        return self._query_make(campaign, user)

    def _query_make(self, campaign, user):
        """Mostly after somebody who was just answered."""
        if self.chance.random() < 0.15:
            return Ask("coupon", user)
        if campaign.asked and self.chance.random() < 0.8:
            recent = campaign.asked[-self.chance.randint(1, min(len(campaign.asked), 500))]
            if recent.receive and self.chance.random() < 0.5:
                return Ask("status", recent.user, receive=recent.receive)
            user = recent.user
        return Ask("status", user)


class Load:
    def __init__(self, campaigns, gateways, seed):
        """gateways(): (name, address) of those that clients may connect to."""
        self.campaigns, self.gateways, self.seed = campaigns, gateways, seed
        self.began = time.monotonic()
        self.stopping = threading.Event()
        self.errors = []
        self.clients = [LoadClient(self, number) for number in range(1, CLIENTS + 1)]
        self.threads = [threading.Thread(target=client.run, daemon=True) for client in self.clients]

    def now(self):
        return round(time.monotonic() - self.began, 4)

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self.threads), "a client hangs"
        assert not self.errors, self.errors

    @property
    def sure(self):
        """Requests that were answered for certain so far, refusals for want of a service not among them."""
        return sum(client.sure for client in self.clients)

    @property
    def accepted(self):
        return sum(client.accepted for client in self.clients)

    def codes(self):
        return sum((campaign.codes() for campaign in self.campaigns), collections.Counter())

    def unanswered(self, gateways):
        """Those that one of these gateways owes an answer: their client waited for it."""
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
