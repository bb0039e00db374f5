"""Redis killed, full, frozen, refusing, losing data, restored to an older state, and with a wrong
clock."""

import contextlib
import shutil
import threading
import time

import redis
from services import say

from scenario import REDIS_AWAY, REDIS_LOSES, scenario
from stack import utc
from wall_clock import WallClock

UNAVAILABLE, UNKNOWN = 21, 22
LOADING_S = 3.0
FILLER = 8192  # commands: Redis replies LOADING once in 1024 of them
HOUR_S = 3600


def codes_wait(rig, *codes, more=5):
    """Waits until clients got one of these codes a few more times."""

    def told():
        return sum(rig.load.codes()[code] for code in codes)

    aim = told() + more
    rig.wait(lambda: told() >= aim, 20)


@scenario(**REDIS_AWAY)
def redis_killed(rig, chance):
    """Redis killed with kill -9 under load, and restarted; twice."""
    for _ in range(2):
        rig.wait_answers(chance.randint(1, 300))
        say("kill -9 of Redis")
        rig.stack.kill9("redis")
        rig.pause(chance, 0.0, 1.5)
        rig.stack.start("redis")
        rig.wait_answers(200)


@scenario(**REDIS_AWAY)
def redis_frozen(rig, chance):
    """Redis hangs for longer than a call may take, twice."""
    for _ in range(2):
        rig.wait_answers(chance.randint(50, 300))
        say("SIGSTOP of Redis")
        rig.stack.sigstop("redis")
        codes_wait(rig, UNKNOWN, UNAVAILABLE)
        rig.pause(chance, 0.0, 1.0)
        rig.stack.sigcont("redis")
        rig.wait_answers(200)


@scenario()
def redis_scripts_flushed(rig, chance):
    """SCRIPT FLUSH repeatedly: clients are not affected."""
    before = rig.load.codes()
    for _ in range(20):
        rig.wait_answers(chance.randint(1, 60))
        with rig.redis() as cache:
            cache.script_flush()
    say("SCRIPT FLUSH, 20 times")
    rig.wait_answers(200)
    told = rig.load.codes() - before
    assert not told[UNAVAILABLE] and not told[UNKNOWN], told


@scenario(**REDIS_AWAY)
def redis_out_of_memory(rig, chance):
    """maxmemory below the used memory, under noeviction: each script call is refused; then
    restored, and once more."""
    rig.expect_trim()
    with rig.redis() as cache:
        rig.on_heal(lambda: cache.config_set("maxmemory", 0))
        for _ in range(2):
            rig.wait_answers(chance.randint(50, 300))
            say("maxmemory 1mb")
            cache.config_set("maxmemory", "1mb")
            codes_wait(rig, UNAVAILABLE)
            rig.pause(chance, 0.5, 1.5)
            cache.config_set("maxmemory", 0)
            rig.wait_answers(200)


@scenario(**REDIS_AWAY)
def redis_loading(rig, chance):
    """Redis killed, and loading its log for three seconds: it replies LOADING to every client."""
    rig.wait_answers(chance.randint(50, 300))
    with rig.redis() as cache, cache.pipeline(transaction=False) as pipeline:
        log_rewrite(
            rig, cache
        )  # otherwise it holds the writes of all earlier scenarios, and loads for minutes
        for number in range(FILLER):
            pipeline.set("torture:filler", number)
        pipeline.execute()
        cache.delete("torture:filler")
    rig.stack.kill9("redis")
    delay_us = int(LOADING_S * 1e6 / FILLER)
    say(f"kill -9 of Redis, and a start that waits {delay_us} us after each command it loads")
    starter = threading.Thread(
        target=rig.stack.start,
        args=("redis",),
        kwargs={"REDIS_FLAGS": f"--key-load-delay {delay_us}"},
    )
    starter.start()
    loading_seen(rig)
    starter.join(30)
    assert not starter.is_alive()
    with rig.redis() as cache:
        cache.config_set("key-load-delay", 0)
    rig.wait_answers(200)


def log_rewrite(rig, cache):
    cache.bgrewriteaof()

    def done():
        told = cache.info("persistence")
        return not told["aof_rewrite_in_progress"] and not told["aof_rewrite_scheduled"]

    rig.wait(done)


def loading_seen(rig):
    def refused():
        try:
            with rig.redis() as cache:
                return not cache.ping()
        except redis.exceptions.BusyLoadingError:
            return True
        except redis.exceptions.ConnectionError:
            return False

    rig.wait(refused, 20)


@scenario(**REDIS_AWAY)
def redis_made_a_replica(rig, chance):
    """REPLICAOF an unreachable master: read-only; and back."""
    with rig.redis() as cache:
        rig.on_heal(lambda: cache.replicaof("NO", "ONE"))
        for _ in range(2):
            rig.wait_answers(chance.randint(50, 300))
            say("REPLICAOF 127.0.0.1 1")
            cache.replicaof("127.0.0.1", 1)
            codes_wait(rig, UNAVAILABLE)
            rig.pause(chance, 0.5, 1.5)
            cache.replicaof("NO", "ONE")
            rig.wait_answers(200)


@scenario(**REDIS_AWAY)
def redis_clients_paused(rig, chance):
    """CLIENT PAUSE, of all commands or of writes only, for longer than a call may take."""
    for mode in ("ALL", "WRITE"):
        rig.wait_answers(chance.randint(50, 300))
        pause_ms = chance.randint(300, 2500)
        say(f"CLIENT PAUSE {pause_ms} {mode}")
        with rig.redis() as cache:
            cache.execute_command("CLIENT", "PAUSE", pause_ms, mode)
        rig.pause(chance, pause_ms / 1000, pause_ms / 1000 + 0.2)
        rig.wait_answers(200)


@scenario(**REDIS_AWAY)
def redis_busy(rig, chance):
    """A script of another program does not end: Redis replies BUSY to every client until it is
    killed."""
    rig.wait_answers(chance.randint(50, 300))
    with rig.redis() as cache, redis.Redis.from_url(
        rig.stack.env["REDIS_URL"], socket_timeout=30
    ) as other:
        (before,) = cache.config_get("busy-reply-threshold").values()
        cache.config_set("busy-reply-threshold", 100)
        say("a script that does not end")
        endless = threading.Thread(target=script_endless, args=(other,))
        endless.start()
        with contextlib.ExitStack() as after:
            after.callback(endless.join, 10)
            after.callback(script_kill, rig, cache)
            codes_wait(rig, UNAVAILABLE)
            rig.pause(chance, 0.5, 2.0)
        cache.config_set("busy-reply-threshold", before)
    rig.wait_answers(200)


def script_endless(client):
    try:
        client.eval("while true do end", 0)
    except redis.exceptions.ResponseError:
        pass  # killed


def script_kill(rig, cache):
    def killed():
        try:
            return cache.script_kill()
        except redis.exceptions.ResponseError as error:
            return "NOTBUSY" in str(error)

    rig.wait(killed)


@scenario(**REDIS_LOSES)
def redis_flushed(rig, chance):
    """FLUSHALL in the middle of the load."""
    for _ in range(2):
        rig.wait_answers(chance.randint(50, 300))
        say("FLUSHALL")
        with rig.redis() as cache:
            cache.flushall()
        rig.wait_answers(
            200
        )  # the rebuild may be faster than a request that would be answered unavailable


@scenario(**REDIS_LOSES)
def redis_older_state(rig, chance):
    """Redis killed, and started with an earlier copy of its files."""
    folder = rig.stack.run_dir / "redis"
    older = rig.stack.run_dir / "redis.older"
    shutil.rmtree(older, ignore_errors=True)
    rig.wait_answers(chance.randint(50, 300))
    shutil.copytree(folder / "appendonlydir", older)
    rig.wait_answers(chance.randint(50, 600))
    say("kill -9 of Redis, and an older appendonlydir put in place")
    rig.stack.kill9("redis")
    shutil.rmtree(folder / "appendonlydir")
    older.rename(folder / "appendonlydir")
    rig.stack.start("redis")
    rig.wait_answers(200)


# The clock


def clock_prepare(rig, _chance):
    rig.clock = WallClock(rig.stack.run_dir)
    rig.stack.restart("redis", **rig.clock.environment)
    rig.on_end(lambda: rig.stack.restart("redis"))


@scenario(prepare=clock_prepare, **REDIS_AWAY)
def redis_clock_wrong(rig, chance):
    """Redis' clock jumps an hour ahead, back, and an hour behind: only the windows shift."""
    rig.on_heal(lambda: rig.clock.set(0))
    user = iter(range(1, 1000))

    def window_make():
        now = time.time()
        return rig.stack.coupon_make(10, begin=utc(now - HOUR_S / 2), end=utc(now + HOUR_S / 2))

    def told(window, status):
        with rig.gateways[0].process.client() as client:
            rig.wait(lambda: client.issue(window, next(user))["status"] == status)

    for shift_s, status in (
        (HOUR_S, "ended"),
        (0, "accepted"),
        (-HOUR_S, "not_started"),
        (0, "accepted"),
    ):
        window = window_make() if shift_s else None
        if window:
            told(window, "accepted")
        say(f"Redis' clock {shift_s:+} s, and the keeper killed")
        keeper = rig.keeper()
        rig.clock.set(shift_s)
        keeper.kill9()  # its lock expires by the new clock
        rig.wait(lambda: rig.keeper() is not keeper)  # noqa: B023
        keeper.start()
        told(window or window_make(), status)  # the keeper may have closed a campaign that had
        # ended
        rig.wait_answers(chance.randint(100, 200))
        if shift_s:
            orphan_leave(rig, chance)
    rig.wait_answers(chance.randint(100, 300))


def orphan_leave(rig, chance):
    """A gateway dies after the script, before the publish: what it leaves in the outbox has the
    time of the wrong clock."""
    doomed = chance.choice(rig.gateways)
    doomed.restart(fault=f"gateway_after_reply:{chance.randint(1, 20)}:kill")
    doomed.wait_fault()
    doomed.start()
