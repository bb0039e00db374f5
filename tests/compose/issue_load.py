"""Sends one issue request for each new user until SIGTERM.

issue_load.py HOST PORT COUPON FILE [RATE]: FILE gets a line for each accepted receive (user, batch
as a uuid, index, slot), for psql to COPY; the last line of the output is a summary of the answers,
as JSON. One user in four sends two requests with a key, and must get one receive; one in four sends
two without a key, and must be refused once.
"""

import collections
import itertools
import json
import random
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from load import UNANSWERED, Ask, Load  # noqa: E402
from ulid import ulid_uuid  # noqa: E402

CLIENTS = 8
WINDOW = 10
ANSWER_S = 30


class Users:
    """The requests of a user are sent in one window."""

    def __init__(self, coupon):
        self.coupon = coupon
        self.numbers = itertools.count(1)
        self.asked = []

    def window_make(self, _chance):
        window = []
        while len(window) < WINDOW:
            number = next(self.numbers)
            key = None if number % 4 else f"press {number}"
            asks_num = 2 if number % 4 < 2 else 1
            window += [Ask("issue", str(number), key) for _ in range(asks_num)]
        return self, window

    def note(self, ask):
        self.asked.append(ask)

    def receives(self):
        """{user: {receive: slot}}"""
        found = collections.defaultdict(dict)
        for ask in self.asked:
            if ask.reply and ask.reply["status"] == "accepted":
                found[ask.user][ask.receive] = ask.reply["slot"]
        return found


def summary(book, receives, lost):
    answers = collections.Counter(ask.reply["status"] for ask in book.asked if ask.reply)
    if lost:
        answers["connection lost"] = lost
    for user, owned in receives.items():
        strange = sum(receive.split(".")[1] != user for receive in owned)
        if strange:
            answers["receive of another user"] += strange
    return {
        "asked": len(book.asked),
        "answered": sum(ask.reply is not UNANSWERED for ask in book.asked),
        "users": len({ask.user for ask in book.asked}),
        "receives": sum(map(len, receives.values())),
        "twice": sum(len(owned) > 1 for owned in receives.values()),
        "answers": dict(answers),
    }


def file_write(path, receives):
    with open(path, "w", encoding="ascii") as file:
        for user, owned in receives.items():
            for receive, slot in owned.items():
                _, _, batch, index = receive.split(".")
                file.write(f"{user}\t{ulid_uuid(batch)}\t{index}\t{slot}\n")


def main():
    host, port, coupon, path = sys.argv[1:5]
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else 4000.0
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    book = Users(coupon)
    load = Load(
        lambda: [("gateway", f"{host}:{port}")],
        book.window_make,
        random.randrange(10**6),
        CLIENTS,
        WINDOW * CLIENTS / rate,
        ANSWER_S,
    ).start()
    ending.wait()
    load.stop()
    receives = book.receives()
    file_write(path, receives)
    print(json.dumps(summary(book, receives, load.lost)))


if __name__ == "__main__":
    main()
