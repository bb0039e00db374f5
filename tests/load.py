"""
Load on gateways: clients in threads, which send requests in windows, record each request with its
answer and times, and reconnect whenever their connection breaks. Needs only Python's standard
library.

The caller chooses the requests: window_make(chance) returns (book, [Ask]). Before the window is
sent, book.note(ask) is called for each of its requests; book.coupon is their coupon.
"""

import json
import random
import threading
import time

from stack import Client

BEGAN = time.monotonic()
UNANSWERED = None
SURE = frozenset((0, 1, 2, 3, 4, 5, 6, 9))  # answers that are certain


def now():
    """The time of requests and answers, in seconds: the same clock in the whole program."""
    return round(time.monotonic() - BEGAN, 4)


class Ask:
    """One request: the gateway and time it was sent to, its answer and the time of that."""

    __slots__ = (
        "op", "user", "key", "ack", "receive_asked", "tag", "client", "gateway", "connected_at",
        "at", "reply", "answered_at", "ended", "ended_at", "timed_out",
    )  # fmt: skip

    def __init__(self, op, user, key=None, ack=None, receive=None, tag=None):
        self.op, self.user, self.key, self.ack = op, str(user), key, ack
        self.receive_asked, self.tag = receive, tag
        self.client = self.gateway = self.connected_at = self.at = self.answered_at = None
        self.reply = UNANSWERED
        self.ended = self.ended_at = None  # why there is no answer, and since when
        self.timed_out = False  # otherwise the connection ended

    def answer(self, reply):
        self.answered_at = now()
        self.reply = reply
        return reply

    def end(self, error):
        """It gets no answer."""
        self.ended_at, self.ended = now(), repr(error)
        self.timed_out = isinstance(error, TimeoutError)

    @property
    def code(self):
        return None if self.reply is UNANSWERED else self.reply["code"]

    @property
    def receive(self):
        return self.reply.get("receive") if self.reply else None

    def line(self, number, coupon):
        request = {"id": number, "op": self.op}
        if self.receive_asked:
            request["receive"] = self.receive_asked
        elif self.tag:
            request |= {"user": self.user, "tag": self.tag}
        else:
            request["coupon"] = coupon
            if self.op != "coupon":
                request["user"] = self.user
        if self.key:
            request["key"] = self.key
        if self.ack:
            request["ack"] = self.ack
        return json.dumps(request) + "\n"

    def __str__(self):
        names = (
            "at", "client", "gateway", "connected_at", "op", "user", "key", "ack", "receive_asked",
            "tag", "answered_at", "ended_at", "ended", "reply",
        )  # fmt: skip
        asked = {name: getattr(self, name) for name in names}
        return json.dumps(
            {name: value for name, value in asked.items() if value is not None or name == "reply"}
        )


class LoadClient:
    def __init__(self, load, number):
        self.load, self.number = load, number
        self.chance = random.Random(f"{load.seed} client {number}")
        self.connection = self.gateway = self.connected_at = None
        self.sure = self.accepted = self.lost = 0

    def run(self):
        due = time.monotonic()
        while not self.load.stopping.is_set():
            try:
                self._turn()
            except (OSError, EOFError):
                self._hang_up()
                self.lost += 1
            except Exception as error:  # an error of the thread, raised by Load.stop()
                self.load.errors.append(f"client {self.number}: {error!r}")
                return
            every_s = self.load.every_s
            due = max(due + every_s, time.monotonic() - every_s)  # missed turns are not made up for
            self.load.stopping.wait(max(0.0, due - time.monotonic()))
        self._hang_up()

    def _hang_up(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def _turn(self):
        if self.load.moves and self.chance.random() < self.load.moves:
            self._hang_up()
        if not self.connection:
            self.gateway, listen = self.chance.choice(self.load.gateways())
            self.connected_at = now()
            self.connection = Client(listen, timeout=self.load.answer_s)
        book, window = self.load.window_make(self.chance)
        at = now()
        for ask in window:
            ask.client, ask.gateway, ask.at = self.number, self.gateway, at
            ask.connected_at = self.connected_at
            book.note(ask)
        try:
            lines = "".join(ask.line(i, book.coupon) for i, ask in enumerate(window))
            self.connection.send_bytes(lines.encode())
            self._answers_read(window)
        except (OSError, EOFError) as error:
            for ask in window:
                if ask.reply is UNANSWERED:
                    ask.end(error)
            raise
        finally:
            self.load.window_ended(self.chance, book, window)

    def _answers_read(self, window):
        for _ in window:
            line = self.connection.reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError  # an incomplete line is no answer
            reply = json.loads(line)
            ask = window[reply["id"]]
            assert ask.reply is UNANSWERED, f"answered twice: {line}"
            ask.answer(reply)
            self.load.on_answer(ask)
            self.sure += reply["code"] in SURE
            self.accepted += ask.op == "issue" and reply["code"] == 0


class Load:
    def __init__(
        self,
        gateways,
        window_make,
        seed,
        clients,
        every_s,
        answer_s,
        moves=0.0,
        window_ended=lambda chance, book, window: None,
        on_answer=lambda ask: None,
    ):
        """
        gateways(): (name, address) of the gateways that clients may connect to. Each client sends a
        window every every_s, waits answer_s for each answer, and changes its gateway with this
        probability. on_answer(ask): called in the client's thread, as soon as it is read.
        """
        self.gateways, self.window_make, self.window_ended = gateways, window_make, window_ended
        self.on_answer = on_answer
        self.seed, self.every_s, self.answer_s, self.moves = seed, every_s, answer_s, moves
        self.stopping = threading.Event()
        self.errors = []
        self.clients = [LoadClient(self, number) for number in range(1, clients + 1)]
        self.threads = [threading.Thread(target=client.run, daemon=True) for client in self.clients]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(self.answer_s + 25)
        assert not any(thread.is_alive() for thread in self.threads), "a client hangs"
        assert not self.errors, self.errors

    @property
    def sure(self):
        """Requests with a certain answer so far, without those refused because a service was
        unavailable."""
        return sum(client.sure for client in self.clients)

    @property
    def accepted(self):
        return sum(client.accepted for client in self.clients)

    @property
    def lost(self):
        """Connections that ended before the load did."""
        return sum(client.lost for client in self.clients)
