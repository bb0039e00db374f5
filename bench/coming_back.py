"""How soon coupons issue again after Redis was killed and started: from its first answer on."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import redis
from many_coupons import coupons_make
from rig import BUILD, RUN, SCALE, failures, figures, has, redis_open, stack, users_take

COUNTS = [1] + [count // SCALE for count in (3000, 10_000)]
REPEATS = 3  # the median of them
TIMEOUT_S = 60
EVERY_S = 0.01
KNOWN_S = 5  # the keeper has read the mark of a new gateway
WANTED_MS, WANTED_FROZEN_MS, WANTED_LAST_MS = 1000, 3000, 10_000


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


def redis_restart():
    """Kills it and starts it again. Returns the time at which it answers."""
    os.kill(pid_of("redis"), signal.SIGKILL)
    started = subprocess.Popen(["scripts/stack.sh", "start", "redis"], stdout=subprocess.DEVNULL)
    client = redis_open()
    while True:
        try:
            if client.ping():
                break
        except redis.RedisError:
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
    run_id, waiting = cache.info("server")["run_id"].encode(), coupons
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
    stack("stop", "worker-2")
    for count in COUNTS:
        coupons, _ = coupons_make(count)
        asked_ms, last_ms = median_of([back_ms(coupons) for _ in range(REPEATS)])
        figures[f"back_{count}_asked_ms"], figures[f"back_{count}_last_ms"] = asked_ms, last_ms
    with gateway_frozen():
        figures["back_frozen_ms"], _ = median_of([back_ms(coupons) for _ in range(REPEATS)])
    stack("start", "worker-2")


MEASURES = (coming_back_measure,)


def rows():
    f = figures
    if not has("back_frozen_ms"):
        return
    yield "Redis is killed and started, from its first answer until coupons issue", None, None
    for count in COUNTS:
        label = f"  {count:,} coupon{'s' if count > 1 else ''}: the one that is asked for / all"
        value = f"{f[f'back_{count}_asked_ms']:,.0f} / {f[f'back_{count}_last_ms']:,.0f} ms"
        yield label, value, f"wanted {WANTED_MS:,} / {WANTED_LAST_MS:,}"
    label = f"  {COUNTS[-1]:,} coupons, a gateway is frozen: the one asked for"
    yield label, f"{f['back_frozen_ms']:,.0f} ms", f"wanted {WANTED_FROZEN_MS:,}"
