"""Commands of an operator, and what other systems get: codes made and imported, a coupon given to a
list of users and exported, and the events of a sale, to a queue and to a webhook."""

import json
import os
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pika
from rig import (
    FULL_LOAD,
    RUN,
    SCALE,
    at_most,
    coupon_make,
    ctl,
    database_open,
    failures,
    figures,
    has,
    rate,
    rows_per_s,
    rush,
    stack,
    users_take,
)

GENERATED, IMPORTED = 1_000_000 // SCALE, 200_000 // SCALE
GIVEN = 200_000 // SCALE
GIVEN_TWICE = 100_000 // SCALE
TWICE_ALLOWED = 2  # times one run alone
EVENTS = 200_000 // SCALE
TIMEOUT_S = 120
WEBHOOKS = {
    "COUPON_WEBHOOK_SCHEMES": "https,http",
    "COUPON_WEBHOOK_NETWORKS": "127.0.0.1",
}
AGE = """UPDATE user_coupon SET received_at = received_at - interval '28 days',
    valid_from = valid_from - interval '28 days', valid_to = valid_to - interval '28 days'
    WHERE coupon_id = %s"""
# Whether a pass has ended, and whether all of its events are published.
TOLD = """SELECT EXISTS (SELECT FROM expiry_notice WHERE coupon_id = %s AND pass_from IS NULL),
    NOT EXISTS (SELECT FROM event_log)"""
WAITING = "SELECT (SELECT count(*) FROM event_log), (SELECT count(*) FROM webhook_delivery)"


def fresh(name):
    path = f"{RUN}/bench-{name}"
    if os.path.exists(path):
        os.unlink(path)
    return path


def per_s(number, *command):
    """So many in a command."""
    began_s = time.monotonic()
    ctl(*command)
    return number / (time.monotonic() - began_s)


def codes_measure():
    coupon, made, others = coupon_make("codes"), fresh("made.csv"), fresh("others.csv")
    figures["codes_made_per_s"] = per_s(
        GENERATED, "codes", "generate", coupon, "--count", GENERATED, "--out", made
    )
    with open(others, "w", encoding="ascii") as file:
        file.write("code\n")
        file.writelines(f"{secrets.token_hex(10).upper()}\n" for _ in range(IMPORTED))
    figures["codes_imported_per_s"] = per_s(IMPORTED, "codes", "import", coupon, others)
    os.unlink(made)
    os.unlink(others)


def given_measure():
    coupon, users, out = coupon_make("given"), fresh("users.txt"), fresh("export.csv")
    first = users_take(GIVEN)
    with open(users, "w", encoding="ascii") as file:
        file.writelines(f"{user}\n" for user in range(first, first + GIVEN))
    figures["given_per_s"] = per_s(GIVEN, "distribute", coupon, "--users", users)
    figures["exported_per_s"] = per_s(GIVEN, "export", coupon, "--out", out)
    with open(out, encoding="ascii") as file:
        if (exported := sum(1 for _ in file) - 1) != GIVEN:
            failures.append(f"distribute: {exported} of {GIVEN} users have the coupon")
    os.unlink(out)
    figures["reported_per_s"] = per_s(GIVEN, "report", coupon, "--out", out)
    os.unlink(out)


def given_twice_measure():
    """Two runs with one list at once, as by two operators, beside one alone."""
    users = fresh("users.txt")
    first = users_take(GIVEN_TWICE)
    with open(users, "w", encoding="ascii") as file:
        file.writelines(f"{user}\n" for user in range(first, first + GIVEN_TWICE))

    def given(coupon, n):
        began_s = time.monotonic()
        commands = [
            ("distribute", coupon, "--users", users, "--refused", fresh(f"refused-{i}.csv"))
            for i in range(n)
        ]
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(lambda words: ctl(*words), commands))
        took_s = time.monotonic() - began_s
        with database_open() as db:
            (rows,) = db.execute(
                "SELECT count(*) FROM user_coupon WHERE coupon_id = %s", (coupon,)
            ).fetchone()
        if rows != GIVEN_TWICE:
            failures.append(f"distribute, {n} at once: {rows} of {GIVEN_TWICE} users have it")
        return took_s

    figures["given_once_s"] = given(coupon_make("given once"), 1)
    figures["given_twice_s"] = given(coupon_make("given twice"), 2)


class Receiver(ThreadingHTTPServer):
    """The endpoint of a webhook: counts the events."""

    daemon_threads = True

    def __init__(self):
        self.events, self.lock = 0, threading.Lock()
        super().__init__(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handler(self):
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with receiver.lock:
                    receiver.events += body.count(b'"specversion"')
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler


@contextmanager
def subscribed():
    """A queue gets all events, as a subscriber's that reads it later."""
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "coupon.event", "event.#")
    yield
    connection.close()


@contextmanager
def webhook():
    """A webhook of the workers, which allow it."""
    os.environ.update(WEBHOOKS)
    stack("stop", "worker-1", "worker-2")
    stack("start", "worker-1", "worker-2")
    receiver = Receiver()
    url = f"http://127.0.0.1:{receiver.server_port}/"
    made = json.loads(ctl("webhook", "create", url, "--json"))
    yield receiver
    ctl("webhook", "remove", made["webhook"])
    receiver.shutdown()


def sale(name, events):
    """Rows a second, and events a second until the last one was published and delivered."""
    coupon = coupon_make(name, events=events)
    began_s = time.monotonic()
    rows = rows_per_s(rush(coupon, EVENTS, *FULL_LOAD, name=name))
    with database_open("DATABASE_ADMIN_URL") as db:
        while any(waiting := db.execute(WAITING).fetchone()):
            if time.monotonic() - began_s > TIMEOUT_S:
                failures.append(f"{name}: {waiting} rows of events and deliveries wait")
                break
            time.sleep(0.02)
    return rows, EVENTS / (time.monotonic() - began_s)


def events_measure():
    without, _ = sale("without events", "off")
    with subscribed():
        rows, figures["events_per_s"] = sale("events", "on")
        figures["events_ratio"] = rows / without
        with webhook() as receiver:
            _, figures["webhook_per_s"] = sale("webhook", "on")
            if receiver.events < EVENTS:
                failures.append(f"webhook: {receiver.events} of {EVENTS} events")


def expiring_measure():
    """The ends of all user coupons of a campaign come near at once."""
    coupon = coupon_make("expiring", events="on")
    rush(coupon, EVENTS, *FULL_LOAD, name="expiring")
    version = json.loads(ctl("show", coupon, "--json"))["postgresql"]["version"]
    with subscribed(), database_open("DATABASE_ADMIN_URL") as db:
        db.execute(AGE, (coupon,))
        began_s = time.monotonic()
        ctl("edit", coupon, "--version", version, "--tell-before", "3d")
        while not all(db.execute(TOLD, (coupon,)).fetchone()):
            if time.monotonic() - began_s > TIMEOUT_S:
                failures.append("expiring: the events are not published")
                break
            time.sleep(0.02)
        figures["expiring_per_s"] = EVENTS / (time.monotonic() - began_s)


MEASURES = (codes_measure, given_measure, given_twice_measure, events_measure, expiring_measure)


def rows():
    yield "commands and events", None, None
    for name, label in (
        ("codes_made_per_s", f"codes generate, {GENERATED:,}"),
        ("codes_imported_per_s", f"codes import, {IMPORTED:,}"),
        ("given_per_s", f"distribute, {GIVEN:,} users"),
        ("exported_per_s", "export of these"),
        ("reported_per_s", "report of these"),
    ):
        if has(name):
            yield f"  {label}", rate(name), ""
    if has("given_twice_s"):
        once_s, twice_s = figures["given_once_s"], figures["given_twice_s"]
        label = f"  distribute, {GIVEN_TWICE:,} users: alone / two runs at once"
        note = f"{twice_s / once_s:.1f} x alone, {at_most(twice_s / once_s, TWICE_ALLOWED)}"
        yield label, f"{once_s:.1f} / {twice_s:.1f} s", note
    if has("webhook_per_s"):
        ratio = f"rows: {figures['events_ratio']:.2f} x without events"
        yield "  a sale, to the last event published", rate("events_per_s"), ratio
        yield "  a sale, to the last event that a webhook has got", rate("webhook_per_s"), ""
    if has("expiring_per_s"):
        yield f"  coupon.expiring, {EVENTS:,} at once, published", rate("expiring_per_s"), ""
