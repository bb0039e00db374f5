"""How soon coupons issue again after Redis was killed and started, from its first answer on, and
after it has lost its data."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import redis
from many_coupons import coupons_make
from rig import (
    BUILD,
    RUN,
    SCALE,
    at_least,
    at_most,
    coupon_make,
    database_open,
    failures,
    figures,
    has,
    redis_open,
    redis_process,
    stack,
    stack_fresh,
    users_take,
)

COUNTS = [1] + [count // SCALE for count in (3000, 10_000)]
REPEATS = 3  # the median of them
TIMEOUT_S = 60
EVERY_S = 0.01
KNOWN_S = 5  # the keeper has read the mark of a new gateway
WANTED_MS, WANTED_FROZEN_MS, WANTED_LAST_MS = 1000, 3000, 10_000
LOST, LOST_HOLDERS = 3000 // SCALE, 3  # small coupons, users of each
HOLDERS = 700_000 // SCALE  # of a big coupon
REBUILD_TIMEOUT_S = 300
WANTED_LOST_S, WANTED_HOLDER_US = 1000, 4
HOLDERS_ADD = """INSERT INTO user_coupon
    (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
    SELECT 'holder' || n, coupon, 1, gen_random_uuid(), 0, now(), now()
    FROM unnest(%s::bigint[]) AS coupon, generate_series(1, %s) AS n"""
COUNTED = "UPDATE coupon SET issued_num = %s, settled_num = %s WHERE id = ANY (%s)"


class Client:
    def __init__(self):
        host, port = os.environ["COUPON_LISTEN"].rsplit(":", 1)
        self.lines = socket.create_connection((host, int(port)), 60).makefile("rw")

    def issued(self, coupon):
        self.lines.write(
            json.dumps({"op": "issue", "coupon": str(coupon), "user": str(users_take(1))}) + "\n"
        )
        self.lines.flush()
        return json.loads(self.lines.readline())["code"] == 0


def port_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def pid_of(name):
    with open(f"{RUN}/{name}.pid", encoding="utf-8") as file:
        return int(file.read())


def is_alive(pid):
    """A zombie is not, because nobody may have waited for it yet, unless other threads of it are
    left: they hold its ports."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            state = file.read().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def redis_restart():
    """Kills it and starts it again. Returns the time at which it answers."""
    pid = pid_of("redis")
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid):  # until its memory is given back: else it is not started again
        time.sleep(0.002)
    started = subprocess.Popen(["scripts/stack.sh", "start", "redis"], stdout=subprocess.DEVNULL)
    client = redis_open()
    while True:
        try:
            if client.ping():
                break
        except redis.RedisError:
            if started.poll():
                raise SystemExit("bench: Redis was not started again") from None
            time.sleep(0.002)
    answers_s = time.monotonic()
    return answers_s, started


def unverified_of(coupons, client, run_id):
    pipeline = client.pipeline(transaction=False)
    for coupon in coupons:
        pipeline.hget(f"coupon:{{{coupon}}}", "run_id")
    return [one for one, found in zip(coupons, pipeline.execute()) if found != run_id]


def back_ms(coupons):
    """Until the last of them issues that the keeper's sweep would come to, which a client asks for
    all the time; and until all do."""
    client = Client()
    begin_s, started = redis_restart()
    while not client.issued(coupons[-1]):
        if time.monotonic() - begin_s > TIMEOUT_S:
            failures.append(f"{coupons[-1]} of {len(coupons)} not issued after {TIMEOUT_S} s")
            break
        time.sleep(EVERY_S)
    asked_ms = (time.monotonic() - begin_s) * 1000
    cache = redis_open()
    run_id, waiting = redis_process(cache).encode(), coupons
    while (waiting := unverified_of(waiting, cache, run_id)) and (
        time.monotonic() - begin_s < TIMEOUT_S
    ):
        time.sleep(EVERY_S)
    last_ms = (time.monotonic() - begin_s) * 1000
    started.wait()
    if waiting:
        failures.append(f"{len(waiting)} of {len(coupons)} not open after {TIMEOUT_S} s")
    return asked_ms, last_ms


def median_of(pairs):
    return [sorted(values)[len(values) // 2] for values in zip(*pairs)]


@contextmanager
def gateway_frozen():
    """One more gateway, which the keeper knows."""
    ports = [f"127.0.0.1:{port_free()}" for _ in range(2)]
    own = {"COUPON_LISTEN": ports[0], "COUPON_HTTP_LISTEN": ports[1], "COUPON_UNIX_SOCKET": ""}
    with open(f"{RUN}/gateway-frozen.log", "wb") as log:
        gateway = subprocess.Popen(
            [f"{BUILD}/coupon-gateway"], env={**os.environ, **own}, stdout=log, stderr=log
        )
    time.sleep(KNOWN_S)
    gateway.send_signal(signal.SIGSTOP)
    yield
    gateway.send_signal(signal.SIGCONT)
    gateway.terminate()
    gateway.wait()


def coming_back_measure():
    stack_fresh()  # what other measurements left in Redis would be loaded first
    stack("stop", "worker-2")
    for count in COUNTS:
        coupons, _ = coupons_make(count)
        asked_ms, last_ms = median_of([back_ms(coupons) for _ in range(REPEATS)])
        figures[f"back_{count}_asked_ms"], figures[f"back_{count}_last_ms"] = asked_ms, last_ms
    with gateway_frozen():
        figures["back_frozen_ms"], _ = median_of([back_ms(coupons) for _ in range(REPEATS)])
    stack("start", "worker-2")


def holders_add(coupons, count):
    coupons = [int(coupon) for coupon in coupons]
    with database_open("DATABASE_ADMIN_URL") as db, db.transaction():
        db.execute(HOLDERS_ADD, (coupons, count))
        db.execute(COUNTED, (count, count, coupons))


def small_lost_s(coupons):
    """Redis is emptied. Until the first of them is open again, and until all are."""
    cache = redis_open()
    run_id, waiting, first_s = redis_process(cache).encode(), coupons, None
    cache.flushall()
    begin_s = time.monotonic()
    while (waiting := unverified_of(waiting, cache, run_id)) and (
        time.monotonic() - begin_s < REBUILD_TIMEOUT_S
    ):
        if first_s is None and len(waiting) < len(coupons):
            first_s = time.monotonic() - begin_s
        time.sleep(EVERY_S)
    for coupon in coupons:
        if cache.hlen(f"coupon:{{{coupon}}}:users") != LOST_HOLDERS:
            failures.append(f"coupon {coupon} has not come back whole")
            break
    return first_s or 0, time.monotonic() - begin_s


def generation_wait(cache, coupon, after):
    """Until it is open under a later generation."""
    end_s = time.monotonic() + REBUILD_TIMEOUT_S
    run_id = redis_process(cache).encode()
    while time.monotonic() < end_s:
        found, generation = cache.hmget(f"coupon:{{{coupon}}}", "run_id", "generation")
        if found == run_id and int(generation) > after:
            return
        time.sleep(EVERY_S)
    failures.append(f"coupon {coupon} not rebuilt after {REBUILD_TIMEOUT_S} s")


def rebuild_begin(cache, coupon):
    """Returns its generation before, when it is held."""
    key = f"coupon:{{{coupon}}}"
    generation = int(cache.hget(key, "generation") or 0)
    cache.hset(key, "rebuild", 1)
    while (
        cache.hget(key, "run_id") != b"0" * 40 and int(cache.hget(key, "generation")) == generation
    ):
        time.sleep(0.001)
    return generation


def big_rebuilt_us(cache, coupon):
    """For each holder."""
    generation = rebuild_begin(cache, coupon)
    begin_s = time.monotonic()
    generation_wait(cache, coupon, generation)
    if cache.hlen(f"coupon:{{{coupon}}}:users") != HOLDERS:
        failures.append(f"coupon {coupon} does not have all holders")
    return (time.monotonic() - begin_s) / HOLDERS * 1e6


def beside_big_ms(cache, big, small):
    """How long Redis lacks a small coupon that it loses while a big one is rebuilt."""
    rebuild_begin(cache, big)
    begin_s = time.monotonic()
    generation = int(cache.hget(f"coupon:{{{small}}}", "generation"))
    cache.unlink(f"coupon:{{{small}}}", f"coupon:{{{small}}}:users")
    generation_wait(cache, small, generation)
    return (time.monotonic() - begin_s) * 1000


def lost_measure():
    stack_fresh()
    stack("stop", "worker-2")
    coupons, _ = coupons_make(LOST)
    holders_add(coupons, LOST_HOLDERS)
    figures["lost_first_s"], figures["lost_all_s"] = small_lost_s(coupons)
    big, cache = coupon_make("big"), redis_open()
    generation_wait(cache, big, 0)
    holders_add([big], HOLDERS)
    us = sorted(big_rebuilt_us(cache, big) for _ in range(REPEATS))
    figures["lost_holder_us"] = us[REPEATS // 2]
    ms = sorted(beside_big_ms(cache, big, coupons[0]) for _ in range(REPEATS))
    figures["lost_beside_big_ms"] = ms[REPEATS // 2]
    stack("start", "worker-2")


MEASURES = (coming_back_measure, lost_measure)


def lost_rows():
    f = figures
    if not has("lost_beside_big_ms"):
        return
    yield "Redis has lost its data: until coupons issue", None, None
    opening_s = max(f["lost_all_s"] - f["lost_first_s"], EVERY_S)
    label = f"  {LOST:,} coupons with {LOST_HOLDERS} holders: the first / all"
    value = f"{f['lost_first_s']:.1f} / {f['lost_all_s']:.1f} s"
    per_s = LOST / opening_s
    yield label, value, f"{per_s:,.0f} a second, {at_least(per_s, WANTED_LOST_S)}"
    label = f"  one coupon of {HOLDERS:,} holders"
    us = f["lost_holder_us"]
    yield label, f"{us:.1f} µs a holder", at_most(us, WANTED_HOLDER_US, " µs")
    label = "  a small coupon that is lost meanwhile"
    yield label, f"{f['lost_beside_big_ms']:,.0f} ms", "1,000 of them for the reports of gateways"


def restart_rows():
    f = figures
    if not has("back_frozen_ms"):
        return
    yield "Redis is killed and started, from its first answer until coupons issue", None, None
    for count in COUNTS:
        label = f"  {count:,} coupon{'s' if count > 1 else ''}: the one that is asked for / all"
        value = f"{f[f'back_{count}_asked_ms']:,.0f} / {f[f'back_{count}_last_ms']:,.0f} ms"
        asked = at_most(f[f"back_{count}_asked_ms"], WANTED_MS)
        yield label, value, f"{asked} / {at_most(f[f'back_{count}_last_ms'], WANTED_LAST_MS)}"
    label = f"  {COUNTS[-1]:,} coupons, a gateway is frozen: the one asked for"
    ms = f["back_frozen_ms"]
    yield label, f"{ms:,.0f} ms", at_most(ms, WANTED_FROZEN_MS)


def rows():
    yield from restart_rows()
    yield from lost_rows()
