"""Presses the button for one new user after another until SIGTERM, then waits for what is still unanswered.

issue_load.py HOST PORT COUPON FILE [RATE]: FILE gets a line for each accepted receive (user, batch as a uuid, index,
slot), for psql to COPY; the last line of the output is what was answered, as JSON. One user in four asks twice
with a key, and must get one receive; one in four asks twice without, and must be refused once.
"""

import asyncio
import collections
import json
import signal
import sys
import uuid

CONNECTIONS = 8
TICK_S = 0.01
DRAIN_S = 30
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def batch_uuid(ulid):
    number = 0
    for letter in ulid:
        number = number * 32 + CROCKFORD.index(letter)
    return uuid.UUID(int=number)


class Load:
    def __init__(self, coupon, rate):
        self.coupon = coupon
        self.rate = rate
        self.user = 0
        self.asked = 0
        self.answers = collections.Counter()
        self.receives = {}  # user: {receive: slot}
        self.ending = asyncio.Event()

    def requests(self):
        """The lines of the next user."""
        self.user += 1
        request = {"id": self.user, "op": "issue", "coupon": self.coupon, "user": str(self.user)}
        if self.user % 4 == 0:
            request["key"] = f"press {self.user}"
        return [json.dumps(request).encode() + b"\n"] * (2 if self.user % 4 < 2 else 1)

    def take(self, line):
        reply = json.loads(line)
        self.answers[reply["status"]] += 1
        if reply["status"] == "accepted":
            self.receives.setdefault(reply["id"], {})[reply["receive"]] = reply["slot"]

    async def send(self, writer):
        due = 0.0
        while not self.ending.is_set():
            due += self.rate * TICK_S / CONNECTIONS
            while due >= 1:
                lines = self.requests()
                writer.writelines(lines)
                self.asked += len(lines)
                due -= len(lines)
            await writer.drain()
            await asyncio.sleep(TICK_S)
        writer.write_eof()

    async def connection(self, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        sending = asyncio.create_task(self.send(writer))
        # A client that shuts down its sending side still gets every answer, and then the end.
        while line := await reader.readline():
            self.take(line)
        if not self.ending.is_set():
            self.answers["connection lost"] += 1
        sending.cancel()
        writer.close()

    async def run(self, host, port):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.ending.set)
        tasks = [asyncio.create_task(self.connection(host, port)) for _ in range(CONNECTIONS)]
        await asyncio.wait(
            [asyncio.create_task(self.ending.wait()), *tasks], return_when=asyncio.FIRST_COMPLETED
        )
        self.ending.set()
        done, late = await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in late:
            task.cancel()
        for task in done:
            if task.exception():
                self.answers[repr(task.exception())] += 1

    def write(self, path):
        with open(path, "w", encoding="ascii") as file:
            for user, receives in self.receives.items():
                for receive, slot in receives.items():
                    _, owner, batch, index = receive.split(".")
                    if owner != str(user):
                        self.answers["somebody else's receive"] += 1
                    file.write(f"{user}\t{batch_uuid(batch)}\t{index}\t{slot}\n")

    def summary(self):
        return {
            "asked": self.asked,
            "answered": sum(self.answers.values()),
            "users": self.user,
            "receives": sum(len(receives) for receives in self.receives.values()),
            "twice": sum(len(receives) > 1 for receives in self.receives.values()),
            "answers": dict(self.answers),
        }


def main():
    host, port, coupon, path = sys.argv[1:5]
    load = Load(coupon, float(sys.argv[5]) if len(sys.argv) > 5 else 4000.0)
    asyncio.run(load.run(host, int(port)))
    load.write(path)
    print(json.dumps(load.summary()))


if __name__ == "__main__":
    main()
