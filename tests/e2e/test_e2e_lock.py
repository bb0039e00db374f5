"""The lock library, by owners (tests/lock/agent.c), on real stores."""

import signal
import time
from types import SimpleNamespace

import pytest

from lock_agent import (
    EXCLUSIVE,
    FAIL,
    FAIL_AFTER,
    FAIR,
    LEASE,
    READ,
    SKIP,
    SKIP_AFTER,
    STORES,
    WRITE,
    Agent,
)
from relay import Relay, port_of
from stack import wait_until
from zookeeper_session import session_end, session_of

# Exclusion


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, WRITE])
def test_a_counter_is_right(agent, name, tmp_path, kind):
    file = tmp_path / "count"
    file.write_text("0")
    agents = [agent() for _ in range(6)]
    for one in agents:
        one.send("count", file, 20, name, kind)
    fences = [int(one.answer()) for one in agents]
    assert file.read_text() == "120" and len(set(fences)) == 6


def test_a_counter_without_a_lock_is_wrong(agent, name, tmp_path):
    """The test above can fail."""
    file = tmp_path / "count"
    file.write_text("0")
    agents = [agent() for _ in range(6)]
    for n, one in enumerate(agents):
        one.send("count", file, 20, f"{name}:{n}", EXCLUSIVE)
    for one in agents:
        one.answer()
    assert int(file.read_text()) < 120


@pytest.mark.parametrize("first", [EXCLUSIVE, FAIR, READ, WRITE])
@pytest.mark.parametrize("second", [EXCLUSIVE, FAIR, READ, WRITE])
def test_readers_share_and_writers_are_alone(agent, name, first, second):
    a, b = agent(), agent()
    fence = a.fence(name, kind=first)
    result, rest = b.take(name, kind=second, wait=FAIL)
    if first == second == READ:
        assert result == "taken" and int(rest) > fence
    else:
        assert result == "failed"
    assert a.release(name) == "0"


def test_other_names_do_not_wait(agent, name):
    a, b = agent(), agent()
    assert a.fence(name) and b.fence(name + ":other", wait=FAIL)


def test_the_owner_enters_again(agent, name):
    a, b = agent(), agent()
    fence = a.fence(name)
    assert a.fence(name, wait=FAIL) == fence == a.fence(name, kind=READ, wait=FAIL)
    assert a.do("leave", name) == "0" and a.do("leave", name) == "0"
    assert b.take(name, wait=FAIL)[0] == "failed"
    assert a.release(name) == "0"
    assert b.fence(name, wait=FAIL) > fence


def test_a_reader_does_not_become_a_writer(agent, name):
    a = agent()
    a.fence(name, kind=READ)
    result, why = a.take(name, kind=WRITE, wait=FAIL)
    assert result == "refused" and "cannot become a writer" in why
    assert a.release(name) == "0"


# When it is taken


@pytest.mark.parametrize(
    "wait, wait_ms, result",
    [
        (SKIP, 0, "skipped"),
        (FAIL, 0, "failed"),
        (SKIP_AFTER, 400, "skipped"),
        (FAIL_AFTER, 400, "failed"),
        (FAIL_AFTER, 0, "failed"),
    ],
)
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, READ, WRITE])
def test_what_happens_when_it_is_taken(agent, name, kind, wait, wait_ms, result):
    a, b = agent(), agent()
    b.fence(name + ":first")  # connects
    a.fence(name)
    begun = time.monotonic()
    assert b.take(name, kind=kind, wait=wait, wait_ms=wait_ms) == (result, "")
    assert time.monotonic() - begun >= wait_ms / 1000
    a.release(name)
    assert b.fence(name, kind=kind, wait=wait, wait_ms=wait_ms)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, READ, WRITE])
def test_who_waits_gets_it(agent, name, kind):
    a, b = agent(), agent()
    a.fence(name)
    b.take_send(name, kind=kind)
    assert not b.has_answered()
    a.release(name)
    assert b.answer().startswith("taken ")


def test_fair_is_in_the_order_of_asking(agent, name):
    owners = [agent() for _ in range(5)]
    for n, one in enumerate(owners):
        one.fence(f"{name}:{n}")  # connects
    for one in owners:
        one.take_send(name, kind=FAIR)
        assert one is not owners[0] or one.answer().startswith("taken ")
        assert one is owners[0] or not one.has_answered(0.5)
    for one, after in zip(owners, owners[1:]):
        assert not any(other.has_answered(0.02) for other in owners[1:])
        assert one.release(name) == "0"
        assert after.answer().startswith("taken ")


def test_readers_do_not_starve_a_writer(agent, name):
    a, b, writer = agent(), agent(), agent()
    a.fence(name, kind=READ)
    writer.take_send(name, kind=WRITE)

    def is_refused():
        result, _ = b.take(name, kind=READ, wait=FAIL)
        return result == "failed" or b.release(name) != "0"  # the writer did not wait yet

    wait_until(is_refused)
    assert not writer.has_answered(0)
    a.release(name)
    assert writer.answer().startswith("taken ")


# Leases


def test_a_watched_lease_lasts(agent, name):
    a, b = agent(), agent()
    a.fence(name, lease=4000)
    assert b.take(name, wait=FAIL_AFTER, wait_ms=6000)[0] == "failed"
    assert a.held(name) == "1" and a.release(name) == "0" and a.lost.empty()


def test_a_fixed_lease_ends(agent, name):
    a, b = agent(), agent()
    first = a.fence(name, lease=500, watched=0)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=60000) > first
    assert a.lost.get(timeout=60) == f"lost {name}"
    assert a.held(name) == "0" and a.release(name) == "-1"
    assert b.held(name) == "1" and b.release(name) == "0", "another did not release it"


def test_who_is_told_of_a_loss_may_take_it_again(agent, name):
    """By the thread that tells it."""
    a, b = agent(), agent()
    assert a.do("again", LEASE) == "0"
    first = a.fence(name, lease=500, watched=0)
    a.fence(name + ":other")
    assert a.lost.get(timeout=60) == f"lost {name}"
    assert a.held(name) == "1" == a.held(name + ":other")
    assert b.take(name, wait=FAIL)[0] == "failed"
    assert a.release(name) == "0" and b.fence(name) > first + 1


def test_a_renewal_that_hangs_delays_no_other(stack, name):
    """Four of them take twice the lease, one after the other."""
    with Relay(port_of(stack.env["REDIS_URL"])) as relay:
        a = Agent(SimpleNamespace(env={"REDIS_URL": relay.url(stack.env["REDIS_URL"])}), "redis")
        b = Agent(stack, "redis")
        try:
            a.fence(name, lease=4000)
            hanging = [f"{name}:hanging:{n}" for n in range(4)]
            for one in hanging:
                a.fence(one, lease=4000)
            relay.trap(f"{name}:hanging")
            assert {a.lost.get(timeout=60) for _ in hanging} == {f"lost {one}" for one in hanging}
            assert a.held(name) == "1" and b.take(name, wait=FAIL)[0] == "failed"
            relay.let_go()
            assert a.release(name) == "0" and a.lost.empty()
        finally:
            a.end()
            b.end()


def test_the_owner_is_killed(agent, name):
    a, b = agent(), agent()
    first = a.fence(name, lease=1000)
    a.signal(signal.SIGKILL)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=60000) > first


def test_the_owner_is_stopped_past_its_lease(agent, name):
    """The fence tells them apart: what the lock protects refuses the lower one."""
    a, b = agent(), agent()
    first = a.fence(name, lease=700)
    a.signal(signal.SIGSTOP)
    second = b.fence(name, wait=FAIL_AFTER, wait_ms=60000, lease=LEASE)
    a.signal(signal.SIGCONT)
    assert a.lost.get(timeout=60) == f"lost {name}"
    assert first < second and a.held(name) == "0"
    assert a.release(name) == "-1" and b.held(name) == "1"
    accepted = [0]

    def write(fence):
        if fence < accepted[0]:
            return False
        accepted[0] = fence
        return True

    assert write(second) and not write(first)


def test_who_waits_is_killed(agent, name):
    a, dead, b = agent(), agent(), agent()
    a.fence(name, kind=FAIR)
    dead.take_send(name, kind=FAIR, lease=3000)
    assert not dead.has_answered()
    b.take_send(name, kind=FAIR)
    assert not b.has_answered()
    dead.signal(signal.SIGKILL)
    a.release(name)
    assert b.answer().startswith("taken ")


def test_an_owner_that_ends_releases(agent, name):
    a, b = agent(), agent()
    a.fence(name)
    a.process.stdin.close()
    a.process.wait(timeout=120)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=60000)


# While stores fail


def test_redis_loses_its_data(rough, rough_redis, name):
    a, b = Agent(rough, "redis"), Agent(rough, "redis")
    try:
        first = a.fence(name, lease=3000)
        rough_redis.flushall()
        second = b.fence(name, wait=FAIL)
        assert second > first, "both believe that they have it: only the fence tells"
        assert a.lost.get(timeout=60) == f"lost {name}"
        assert a.release(name) == "-1" and b.held(name) == "1"
    finally:
        a.end()
        b.end()


def test_redis_is_restarted(rough, name):
    a, b = Agent(rough, "redis"), Agent(rough, "redis")
    try:
        a.fence(name, lease=600000)
        b.take_send(name)
        assert not b.has_answered()
        rough.restart("redis")
        wait_until(lambda: a.held(name) == "1")
        assert not b.has_answered(1)
        assert a.release(name) == "0"
        assert b.answer().startswith("taken ")
    finally:
        a.end()
        b.end()


def test_without_the_right_to_listen(stack, redis_client, name):
    rights = ("on", ">deaf", "allkeys", "resetchannels", "+@all")
    redis_client.execute_command("ACL", "SETUSER", "deaf", *rights)
    deaf = {"REDIS_URL": stack.env["REDIS_URL"].replace("://", "://deaf:deaf@")}
    a, b = (Agent(SimpleNamespace(env=deaf), "redis") for _ in range(2))
    try:
        a.fence(name)
        b.take_send(name)
        assert not b.has_answered()
        assert a.release(name) == "0"
        assert b.answer().startswith("taken ")
    finally:
        a.end()
        b.end()
        redis_client.execute_command("ACL", "DELUSER", "deaf")


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_refused_lock_is_not_taken_for_another_name(agent, name, redis_client):
    a, b = agent(), agent()
    other = f"{name}.other"
    redis_client.set(f"couponmq:lock:{{{name}}}", "no hash")
    try:
        assert a.take(name, wait=FAIL)[0] == "refused"
        assert a.take(name, wait=FAIL)[0] == "refused"
        a.fence(other)
        assert b.take(other, wait=FAIL)[0] == "failed"
        redis_client.delete(f"couponmq:lock:{{{name}}}")
        b.fence(name)
        assert a.release(other) == "0"
    finally:
        redis_client.delete(f"couponmq:lock:{{{name}}}")


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_session_that_was_idle_for_its_lease_is_replaced(agent, name, pg):
    def sessions():
        return pg.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'couponmq-lock'"
        ).fetchone()[0]

    a, b = agent(), agent()
    a.fence(name)
    before = sessions()
    assert b.take(name, wait=FAIL, lease=200)[0] == "failed"
    wait_until(lambda: sessions() == before)  # the server has ended b's
    assert a.release(name) == "0"
    b.fence(name, wait=FAIL)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_cuts_the_connection(agent, name, pg):
    a, b = agent(), agent()
    first = a.fence(name, lease=1000)
    b.take_send(name)
    assert not b.has_answered()
    pg.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND objid = (hashtext(%s)::bigint & 4294967295)::oid",
        (name,),
    )
    assert a.lost.get(timeout=60) == f"lost {name}"
    assert int(b.answer().split()[1]) > first
    assert a.release(name) == "-1"


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_ends_the_session_of_one_that_waits(agent, name, pg):
    a, b = agent(), agent()
    first = a.fence(name)
    b.take_send(name)
    ended = wait_until(
        lambda: pg.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            " AND NOT granted AND objid = (hashtext(%s)::bigint & 4294967295)::oid",
            (name,),
        ).fetchall()
    )
    assert ended == [(True,)]
    assert not b.has_answered()
    assert a.release(name) == "0"
    assert int(b.answer().split()[1]) > first


@pytest.mark.skipif("zookeeper" not in STORES, reason="without WITH_ZOOKEEPER=1")
@pytest.mark.parametrize("store", ["zookeeper"], indirect=True)
def test_zookeeper_ends_the_session(agent, name, stack):
    """Long before the lease ends."""
    a, b = agent(), agent()
    first = a.fence(name, lease=60000)
    session = session_of(stack.env["ZOOKEEPER_HOSTS"], name)
    b.take_send(name)
    assert not b.has_answered()
    a.signal(signal.SIGSTOP)  # or it takes the session back
    session_end(stack.env["ZOOKEEPER_HOSTS"], session)
    a.signal(signal.SIGCONT)
    assert int(b.answer().split()[1]) > first
    assert a.lost.get(timeout=60) == f"lost {name}"
    assert a.held(name) == "0" and a.release(name) == "-1"
    assert b.held(name) == "1" and b.release(name) == "0"
    assert a.fence(name, wait=FAIL), "in a new session"


def test_a_store_that_is_down(store, name):
    class Nowhere:
        env = {
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
            "ZOOKEEPER_HOSTS": "127.0.0.1:1",
        }

    one = Agent(Nowhere, store)
    try:
        assert one.take(name, wait=FAIL)[0] == "unreachable"
        begun = time.monotonic()
        result, why = one.take(name, wait=SKIP_AFTER, wait_ms=600)
        assert result == "unreachable" and why and time.monotonic() - begun > 0.59
    finally:
        one.end()


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"name": "x" * 201}, "1 to 200 bytes"),
        ({"name": "}x"}, "must not begin with }"),
        ({"lease": 99}, "100 to 86400000 ms"),
        ({"lease": 86400001}, "100 to 86400000 ms"),
    ],
)
def test_what_is_refused(agent, bad, words):
    options = {"name": "x", **bad}
    result, why = agent().take(options.pop("name"), **options)
    assert result == "refused" and words in why
