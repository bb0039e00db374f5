"""Pages of what is on offer, with what a user may have of each; and the memory of a gateway that
knows many campaigns."""

import json
import os
import selectors
import socket
import statistics
import threading
import time

from many_coupons import LOAD_TIMEOUT_S
from rig import (
    AMPLE,
    RUN,
    SCALE,
    at_least,
    at_most,
    ctl,
    database_open,
    failures,
    figures,
    has,
    rate,
    users_take,
)

CAMPAIGNS, OPEN = 10_000 // SCALE, 1000 // SCALE  # the others begin within a year
PAGE = 20
CONNECTIONS, PIPELINE = 16, 16
PAGES = 100_000 // SCALE
PACE, PACE_S = 1000, 10 if SCALE == 1 else 2  # for latencies: requests a second
ROUNDS = 3  # the median of them
WORD = "BENCH2026"
GOOD = b'"code":0,'
WANTED_PER_S, WANTED_P99, WANTED_MIB = 10_000, 1.1, 32
CAMPAIGNS_ADD = """INSERT INTO coupon (id, name, total_num, valid_days, begin_at, tags)
    SELECT coupon_id_next(), 'Campaign ' || n, %s, 30,
        CASE WHEN n > %s THEN now() + n * interval '1 minute' + interval '30 days' END,
        ARRAY['bench']
    FROM generate_series(1, %s) AS n RETURNING id"""


CAMPAIGNS_PUBLISH = """UPDATE coupon SET status = 'published', version = version + 1
    WHERE id = ANY (%s)"""


def memory_mib():
    with open(f"{RUN}/gateway.pid", encoding="ascii") as file:
        pid = int(file.read())
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        (kib,) = [line.split()[1] for line in file if line.startswith("VmRSS:")]
    return int(kib) / 1024


def connect():
    host, port = os.environ["COUPON_LISTEN"].rsplit(":", 1)
    return socket.create_connection((host, int(port)), 60)


def ask(client, **members):
    client.sendall(json.dumps(members).encode() + b"\n")
    return json.loads(client.makefile().readline())


def campaigns_make():
    """Returns those that are open, when the gateway offers them."""
    with database_open() as db:
        made = [one for (one,) in db.execute(CAMPAIGNS_ADD, (AMPLE // 1000, OPEN, CAMPAIGNS))]
        db.execute(CAMPAIGNS_PUBLISH, (made,))
    begin_s = time.monotonic()
    with connect() as client:
        while time.monotonic() - begin_s < LOAD_TIMEOUT_S:
            last = ask(client, op="status", coupon=str(made[-1]), user="nobody")
            found = ask(client, op="offers", tag="bench", limit=1)["offers"]
            if last["code"] == 0 and found and found[0]["state"] == "open":
                return made[:OPEN]
            time.sleep(0.1)
    failures.append(f"{CAMPAIGNS} campaigns were not open after {LOAD_TIMEOUT_S} s")
    return made[:OPEN]


def offers_line(_, user):
    return f'{{"op":"offers","user":"{user}","tag":"bench","limit":{PAGE}}}\n'.encode()


def status_line(coupon, user):
    return f'{{"op":"status","coupon":"{coupon}","user":"{user}"}}\n'.encode()


def code_line(_, user):
    return f'{{"op":"code","code":"{WORD}","user":"{user}"}}\n'.encode()


def peak(make, coupons, count):
    """Replies a second, of clients that always wait for some."""
    first = users_take(count)
    selector, sent, done, good = selectors.DefaultSelector(), 0, 0, 0
    for _ in range(CONNECTIONS):
        one = connect()
        selector.register(one, selectors.EVENT_READ, [b""])  # what may be the begin of a code
        one.sendall(
            b"".join(make(coupons[n % OPEN], first + n) for n in range(sent, sent + PIPELINE))
        )
        sent += PIPELINE
    begin_s = time.monotonic()
    while done < count:
        for key, _ in selector.select():
            received = key.data[0] + key.fileobj.recv(1 << 20)
            replies = received.count(b"\n")
            good += received.count(GOOD)
            key.data[0] = received[-len(GOOD) + 1 :].replace(b"\n", b"")
            done += replies
            more = min(replies, count - sent)
            if more > 0:
                lines = (make(coupons[n % OPEN], first + n) for n in range(sent, sent + more))
                key.fileobj.sendall(b"".join(lines))
                sent += more
    rate_per_s = done / (time.monotonic() - begin_s)
    if good != done:
        failures.append(f"offers: {good} of {done} replies have the code 0")
    return rate_per_s


def paced_p99_us(make, coupons):
    """Each request has its time, whatever became of those before: over one connection, whose
    replies come in the order of their requests, or they are told apart by their id."""
    n = PACE * PACE_S
    first, client = users_take(n), connect()
    due = [0.0] * n
    took = [0.0] * n

    def read():
        with client.makefile("rb") as lines:
            for _ in range(n):
                line = lines.readline()
                end = time.monotonic()
                number = int(line[6 : line.index(b",")])  # {"id":17,
                took[number] = end - due[number]

    reader = threading.Thread(target=read)
    reader.start()
    begin_s = time.monotonic()
    for number in range(n):
        due[number] = begin_s + number / PACE
        wait_s = due[number] - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        line = make(coupons[number % OPEN], first + number)
        client.sendall(b'{"id":%d,' % number + line[1:])
    reader.join()
    client.close()
    return statistics.quantiles(took, n=100)[98] * 1e6


def offers_measure():
    before_mib = memory_mib()
    coupons = campaigns_make()
    with connect() as client:
        page = ask(client, op="offers", user="u", tag="bench", limit=PAGE)["offers"]
    if len(page) != PAGE or not all(one["claimable"] for one in page):
        failures.append(f"offers: a page has not {PAGE} that a new user may have: {page}")
    figures["offers_mib"] = memory_mib() - before_mib
    ctl("codes", "generate", coupons[0], "--word", WORD)
    for name, make in (("offers", offers_line), ("status", status_line), ("code", code_line)):
        rates = [peak(make, coupons, PAGES) for _ in range(ROUNDS)]
        figures[f"{name}_pages_per_s"] = statistics.median(rates)
    pairs = [
        (paced_p99_us(offers_line, coupons), paced_p99_us(status_line, coupons))
        for _ in range(ROUNDS)
    ]
    figures["offers_p99_us"] = statistics.median(one for one, _ in pairs)
    figures["offers_p99_ratio"] = statistics.median(one / other for one, other in pairs)


MEASURES = (offers_measure,)


def rows():
    if not has("offers_pages_per_s"):
        return
    yield f"Offers, {CAMPAIGNS:,} campaigns, {OPEN:,} of them open", None, None
    per_s = figures["offers_pages_per_s"]
    yield f"  pages of {PAGE} with a user", rate("offers_pages_per_s"), at_least(
        per_s, WANTED_PER_S
    )
    ratio = figures["offers_p99_ratio"]
    yield (
        f"  p99 at {PACE:,} a second",
        f"{figures['offers_p99_us']:,.0f} us",
        f"{ratio:.2f} x status, {at_most(ratio, WANTED_P99)}",
    )
    code = figures["code_pages_per_s"] / figures["status_pages_per_s"]
    yield "  code, of a word", rate("code_pages_per_s"), f"{code:.2f} x status"
    mib = figures["offers_mib"]
    yield "  memory of a gateway", f"{mib:.1f} MiB", at_most(mib, WANTED_MIB, " MiB")
