"""lock.lua: a lock is taken, renewed and released."""

import re
import uuid

import pytest
import redis as redis_module

from stack import wait_until

KINDS = "xfrw"
LEASE, WAITER = 5000, 3000
DAY, TEN_MINUTES = 86400000, 600000


class Lock:
    def __init__(self, coupon):
        self.coupon, self.redis = coupon, coupon.redis
        base = f"couponmq:lock:{{{uuid.uuid4().hex}}}"
        self.keys = [base, base + ":queue", base + ":seen"]
        coupon.keys.extend(self.keys)

    def run(self, script, *args, keys=None):
        return self.coupon.run(script, *args, keys=keys or self.keys)

    def take(self, kind, token, lease=LEASE, waiter=0):
        """The fence, or None."""
        answer = self.run("lock", "take", kind, token + ".1", lease, waiter)
        self.left = None if answer[0] else answer[1]
        return answer[2] if answer[0] else None

    def wait(self, kind, token):
        return self.take(kind, token, waiter=WAITER)

    def renew(self, kind, token, lease=LEASE):
        return self.run("lock", "renew", kind, token + ".1", lease)

    def release(self, kind, token):
        return self.run("lock", "release", kind, token + ".1")

    def now_ms(self):
        seconds, micros = self.redis.time()
        return seconds * 1000 + micros // 1000

    def listen(self, *tokens):
        listener = self.redis.pubsub()
        listener.subscribe(*(f"couponmq:lock:wake:{token}" for token in tokens))
        for _ in tokens:
            listener.get_message(timeout=60)
        return listener

    def woken(self, listener):
        """Whom the messages until now are for."""
        found = []
        while message := listener.get_message(timeout=0.1):
            found.append(message["data"])
        return found


@pytest.fixture
def lock(coupon):
    return Lock(coupon)


@pytest.mark.parametrize("holder", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_only_readers_share(lock, holder, other):
    first = lock.take(holder, "a")
    second = lock.take(other, "b")
    assert first and bool(second) == (holder == other == "r")
    assert not second or second > first
    assert lock.release(holder, "a") == 1
    assert lock.release(other, "b") == bool(second)
    assert lock.take(other, "c") > first


def test_a_repeated_take_gets_the_same_grant(lock):
    fence = lock.take("x", "a", lease=1000)
    assert lock.take("x", "a", lease=60000) == fence
    until, same, lease = lock.redis.hget(lock.keys[0], "x:a.1").split()
    assert (int(same), lease) == (fence, "60000") and int(until) > lock.now_ms() + 50000


def test_a_lease_ends(lock):
    first = lock.take("w", "a", lease=1500)
    assert lock.take("r", "b") is None and 0 < lock.left <= 1500
    second = wait_until(lambda: lock.take("r", "b"))
    assert lock.renew("w", "a") == 0
    assert second > first
    assert lock.release("w", "a") == 0 and lock.take("x", "c") is None


def test_renew(lock):
    lock.take("x", "a", lease=1000)
    until = lock.renew("x", "a", lease=60000)
    assert 55000 < until - lock.now_ms() <= 60000
    for kind, token in (("x", "b"), ("w", "a")):
        assert lock.renew(kind, token) == 0
    assert lock.take("x", "b") is None


def test_nobody_releases_anothers(lock):
    lock.take("x", "a")
    assert lock.release("x", "b") == 0 and lock.release("f", "a") == 0
    assert lock.take("x", "b") is None
    assert lock.release("x", "a") == 1 and lock.release("x", "a") == 0


def test_the_fence_grows_when_the_data_are_lost(lock):
    fences = [lock.take("x", "a")]
    for n in range(5):
        lock.redis.delete(*lock.keys)
        fences.append(lock.take("x", f"b{n}"))
    assert fences == sorted(set(fences))
    seconds, _ = lock.redis.time()
    assert abs(fences[-1] / 1e6 - seconds) < 5


def test_the_fence_grows_when_the_clock_goes_back(lock):
    ahead = (lock.now_ms() + 3600000) * 1000
    lock.redis.hset(lock.keys[0], "fence", ahead)
    assert lock.take("x", "a") == ahead + 1
    lock.release("x", "a")
    assert lock.take("x", "b") == ahead + 2


def test_times_further_ahead_than_possible_are_over(lock):
    """Redis' clock was set back."""
    far = lock.now_ms() + LEASE + TEN_MINUTES
    lock.redis.hset(lock.keys[0], "x:a.1", f"{far - 5000} 7 {LEASE}")
    assert lock.take("f", "c") is None
    lock.redis.hset(lock.keys[0], "x:a.1", f"{far + 60000} 7 {LEASE}")
    lock.redis.zadd(lock.keys[1], {"f:b.1": 1})
    lock.redis.zadd(lock.keys[2], {"f:b.1": far})
    assert lock.take("f", "c")


# The queue


def test_fair_is_in_the_order_of_asking(lock):
    lock.take("f", "a")
    for token in "bcd":
        assert lock.wait("f", token) is None
    listener = lock.listen(*"bcd")
    for token, after in zip("abc", "bcd"):
        assert lock.release("f", token) == 1
        assert lock.woken(listener) == [f"f:{after}.1"]
        assert all(lock.wait("f", other) is None for other in "bcd" if other > after)
        assert lock.wait("f", after)


def test_a_try_does_not_overtake_those_who_wait(lock):
    lock.take("f", "a")
    lock.wait("f", "b")
    lock.release("f", "a")
    assert lock.take("f", "c") is None and lock.take("w", "c") is None
    assert lock.take("r", "c") is None
    assert lock.take("x", "d"), "an exclusive one may"


def test_readers_do_not_overtake_a_writer_that_waits(lock):
    lock.take("r", "a")
    assert lock.wait("w", "b") is None
    assert lock.take("r", "c") is None and lock.wait("r", "c") is None
    lock.release("r", "a")
    assert lock.wait("r", "c") is None
    assert lock.wait("w", "b")
    listener = lock.listen("b", "c")
    lock.release("w", "b")
    assert lock.woken(listener) == ["r:c.1"]
    assert lock.wait("r", "c")


def test_readers_that_wait_together_get_it_together(lock):
    lock.take("w", "a")
    tokens = [f"r{n:02}" for n in range(20)]
    for token in tokens:
        lock.wait("r", token)
    lock.wait("w", "last")
    listener = lock.listen(*tokens, "last")
    lock.release("w", "a")
    woken = lock.woken(listener)
    assert woken == [f"r:{token}.1" for token in tokens[:16]]
    for token in tokens:
        assert lock.wait("r", token)
    assert set(lock.woken(listener)) == {f"r:{token}.1" for token in tokens[1:]}
    for token in tokens[:-1]:
        lock.release("r", token)
    assert lock.woken(listener) == []
    lock.release("r", tokens[-1])
    assert lock.woken(listener) == ["w:last.1"]


def test_who_has_died_in_the_queue_is_given_up(lock):
    lock.take("f", "a")
    lock.take("f", "dead", waiter=1000)
    lock.wait("f", "b")
    lock.release("f", "a")
    assert lock.wait("f", "b") is None
    wait_until(lambda: lock.wait("f", "b"))


def test_who_gives_up_wakes_the_next(lock):
    lock.take("r", "a")
    lock.wait("w", "b")
    lock.wait("r", "c")
    listener = lock.listen("c")
    assert lock.release("w", "b") == 0
    assert lock.woken(listener) == ["r:c.1"]
    assert lock.wait("r", "c")


def test_a_ticket_that_is_no_number(lock):
    lock.take("f", "a")
    lock.redis.hset(lock.keys[0], "ticket", "x")
    assert lock.wait("f", "b") is None
    assert lock.redis.hget(lock.keys[0], "ticket") == "1"
    lock.release("f", "a")
    assert lock.take("f", "b")


def test_a_waiter_without_a_session(lock):
    """Written by hand: the lock is given up nevertheless."""
    lock.take("f", "a")
    lock.redis.zadd(lock.keys[1], {"f:x": 1})
    assert lock.release("f", "a") == 1
    assert lock.take("x", "b")


def test_nothing_stays_behind(lock):
    lock.take("w", "a")
    lock.wait("r", "b")
    for key in lock.keys:
        assert 0 < lock.redis.pttl(key) <= 2 * DAY
    lock.release("w", "a")
    lock.wait("r", "b")
    lock.release("r", "b")
    assert lock.redis.exists(*lock.keys[1:]) == 0
    assert set(lock.redis.hgetall(lock.keys[0])) == {"fence", "ticket"}


# What is refused


@pytest.mark.parametrize(
    "what, args, words",
    [
        ("take", ("y", "a.1", 1000, 0), "kind"),
        ("take", ("x", "a", 1000, 0), "token"),
        ("take", ("x", ".1", 1000, 0), "token"),
        ("take", ("x", "a b.1", 1000, 0), "token"),
        ("take", ("x", "a" * 127 + ".1", 1000, 0), "token"),
        ("take", ("x", "a.1", 99, 0), "lease_ms"),
        ("take", ("x", "a.1", DAY + 1, 0), "lease_ms"),
        ("take", ("x", "a.1", 1000, 60001), "waiter_ms"),
        ("take", ("x", "a.1", 1000), "ARGV"),
        ("renew", ("x", "a.1", "x"), "lease_ms"),
        ("renew", ("x", "a.1"), "ARGV"),
        ("release", ("x", "a.1", 1), "ARGV"),
        ("release", ("xx", "a.1"), "kind"),
        ("keep", ("x", "a.1"), "what"),
    ],
)
def test_wrong_arguments(lock, what, args, words):
    with pytest.raises(redis_module.ResponseError, match=f"couponmq: {words}"):
        lock.run("lock", what, *args)
    assert lock.redis.exists(*lock.keys) == 0


def test_wrong_keys(lock):
    base = lock.keys[0]
    for keys in (
        [base],
        [base, base + ":seen", base + ":queue"],
        ["couponmq:lock:a", "couponmq:lock:a:queue", "couponmq:lock:a:seen"],
        ["couponmq:lock:{}", "couponmq:lock:{}:queue", "couponmq:lock:{}:seen"],
    ):
        with pytest.raises(redis_module.ResponseError, match="couponmq: KEYS"):
            lock.run("lock", "take", "x", "a.1", 1000, 0, keys=keys)
    lock.redis.set(base, "x")
    with pytest.raises(redis_module.ResponseError, match=re.escape(base) + ": not a hash"):
        lock.take("x", "a")


def test_any_printable_name(lock):
    name = "".join(map(chr, range(ord("!"), ord("~") + 1)))
    base = f"couponmq:lock:{{{name}}}"
    keys = [base, base + ":queue", base + ":seen"]
    lock.coupon.keys.extend(keys)
    assert lock.run("lock", "take", "x", "a.1", 1000, 0, keys=keys)[0] == 1
    assert lock.run("lock", "release", "x", "a.1", keys=keys) == 1
