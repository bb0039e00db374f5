"""Redis is killed and started: when coupons are opened on it, and which first."""

import re
import signal

import pytest

from coupon_seen import rounds_pass
from relay import Relay, port_of
from script_coupon import run_id_of
from stack import wait_until

MARKS, ASKED = "couponmq:gateways", "couponmq:asked"
ATTEMPTS = 40
UNAVAILABLE = 21
REPORTED, MISSING = "gateways_reported", "gateways_missing"


def marked(cache):
    """The gateways that have reported to the running Redis."""
    run_id = run_id_of(cache)
    return {gateway for gateway, told in cache.hgetall(MARKS).items() if told == run_id}


def known(pg):
    rows = pg.execute("SELECT id FROM gateway WHERE gone_at IS NULL OR gone_at > now()")
    return {str(gateway) for (gateway,) in rows}


@pytest.fixture
def keeper(rough, rough_redis, rough_pg, worker_make):
    """The worker with the keeper, and no gateway of another test that was killed."""
    rough.stop("worker-1")
    if known(rough_pg) != set(rough_redis.hgetall(MARKS)) or len(known(rough_pg)) > 1:
        rough_pg.execute("DELETE FROM gateway")
        wait_until(lambda: known(rough_pg))
        for gateway in set(rough_redis.hgetall(MARKS)) - known(rough_pg):
            rough_redis.hdel(MARKS, gateway)
    if known(rough_pg) != set(rough_redis.hgetall(MARKS)):  # a test before has emptied Redis
        rough.restart("gateway")
        wait_until(lambda: known(rough_pg) == set(rough_redis.hgetall(MARKS)))
    worker = worker_make(rough)
    wait_until(lambda: "keeper_elected" in worker.log())
    return worker


def word_of(keeper, run_id):
    """What the keeper has decided about the gateways: reported, missing or unknown."""
    found = re.search(rf"event=(gateways_\w+) [^\n]*run_id={run_id}", keeper.log())
    return found and found[1]


def restarted(rough, cache, keeper):
    """Kills and starts Redis. Returns what the keeper decides then."""
    rough.kill9("redis")
    rough.start("redis")
    run_id = run_id_of(cache)
    return wait_until(lambda: word_of(keeper, run_id))


def restarted_until(wanted, rough, cache, keeper):
    """On a busy machine the keeper may have read the marks too long ago to know all gateways."""
    for _ in range(ATTEMPTS):
        word = restarted(rough, cache, keeper)
        if word == wanted:
            return
        assert word == "gateways_unknown" or wanted == REPORTED, word
    pytest.fail(f"not {wanted} in {ATTEMPTS} restarts")


def told_before(keeper, run_id):
    """What the keeper has logged between its new connection to Redis and the decision. Of many
    coupons it tells the first ones."""
    before, decision, _ = keeper.log().partition(f"run_id={run_id}\n")
    assert decision
    return before.rpartition("event=keeper_redis_")[2]


def none_verified_before(keeper, run_id):
    return "event=coupon_verified" not in told_before(keeper, run_id)


def test_opened_when_all_gateways_have_reported(
    rough, rough_redis, rough_pg, rough_coupon, keeper, gateway_make
):
    one, other = rough_coupon(), gateway_make(rough)
    restarted_until(REPORTED, rough, rough_redis, keeper)
    run_id = run_id_of(rough_redis)
    wait_until(lambda: one.field("run_id") == run_id)
    assert marked(rough_redis) == known(rough_pg) and len(known(rough_pg)) == 2
    assert none_verified_before(keeper, run_id)
    other.terminate()
    assert len(known(rough_pg)) == len(marked(rough_redis)) == 1


@pytest.mark.parametrize("by", ("its row", "its mark"))
def test_a_known_gateway_that_is_frozen_is_waited_for(
    rough, rough_redis, rough_pg, rough_coupon, keeper, gateway_make, by
):
    """Also if nothing but this worker's memory has its mark: PostgreSQL had no row, and Redis was
    emptied or put back."""
    one, first = rough_coupon(), known(rough_pg)
    other = gateway_make(rough)
    wait_until(lambda: len(marked(rough_redis)) == 2)
    rounds_pass(keeper, 2)
    other.signal(signal.SIGSTOP)
    if by == "its mark":
        rough_pg.execute("DELETE FROM gateway WHERE NOT id::text = ANY (%s)", (list(first),))
        rough_redis.hdel(MARKS, *(marked(rough_redis) - first))
    restarted_until(MISSING, rough, rough_redis, keeper)
    run_id = run_id_of(rough_redis)
    wait_until(lambda: one.field("run_id") == run_id)
    assert none_verified_before(keeper, run_id)
    other.signal(signal.SIGCONT)
    wait_until(lambda: len(marked(rough_redis)) == 2)
    restarted_until(REPORTED, rough, rough_redis, keeper)


def test_a_rebuild_by_hand_waits_for_a_known_gateway_too(
    rough, rough_redis, rough_pg, rough_coupon, keeper, gateway_make
):
    one, other, word = rough_coupon(), gateway_make(rough), None
    wait_until(lambda: len(marked(rough_redis)) == 2)
    rounds_pass(keeper, 2)
    other.signal(signal.SIGSTOP)
    ask = "UPDATE coupon SET rebuild_asked = rebuild_asked + 1 WHERE id = %s"
    done = "SELECT rebuild_done = rebuild_asked FROM coupon WHERE id = %s"
    for _ in range(ATTEMPTS):
        rough.kill9("redis")
        rough_pg.execute(ask, (one.coupon,))
        rough.start("redis")
        run_id = run_id_of(rough_redis)
        word = wait_until(lambda run_id=run_id: word_of(keeper, run_id))
        wait_until(lambda: rough_pg.execute(done, (one.coupon,)).fetchone()[0])
        if word == MISSING:
            break
    assert word == MISSING
    assert "event=coupon_compared" not in told_before(keeper, run_id)
    assert one.field("run_id") == run_id
    other.signal(signal.SIGCONT)


def test_one_that_was_killed_and_started_again_is_not_waited_for(
    rough, rough_redis, rough_pg, keeper
):
    before = known(rough_pg)
    rough.kill9("gateway")
    rough.start("gateway")
    wait_until(lambda: rough_pg.execute("SELECT FROM gateway WHERE gone_at > now()").fetchall())
    rough_pg.execute("UPDATE gateway SET gone_at = now() WHERE gone_at > now()")
    assert len(known(rough_pg)) == 1 and known(rough_pg) != before
    restarted_until(REPORTED, rough, rough_redis, keeper)
    assert set(rough_redis.hgetall(MARKS)) == known(rough_pg)


def part_lost(rough, cache, pg, keeper, one, other, gate):
    """Redis is started without the last receives, which only the other gateway has seen; it cannot
    reach Redis until the keeper could have opened the coupon. Returns what the keeper has decided
    before that."""
    keys = [one.key, one.key + ":users", one.key + ":outbox"]
    with pg.transaction():
        pg.execute("LOCK TABLE user_coupon IN SHARE MODE")  # nothing is settled
        with other.client() as client:
            assert client.issue(one.coupon, 1)["code"] == 0
            before = [cache.dump(key) for key in keys]
            for user in range(2, 8):
                assert client.issue(one.coupon, user)["code"] == 0
        gate.hold()
        for key, value in zip(keys, before):
            cache.restore(key, 0, value, replace=True)
        rough.kill9("redis")
        rough.start("redis")
        run_id = run_id_of(cache)
        wait_until(lambda: len(marked(cache)) == 1)
        rounds_pass(keeper, 3)
        word = word_of(keeper, run_id)
        gate.heal()
        wait_until(lambda: one.field("run_id") == run_id, timeout=120)
        if word is None:  # before anything is settled
            rebuilt = f"event=coupon_rebuilt coupon={one.coupon} why=behind"
            wait_until(lambda: rebuilt in keeper.log())
    return word


def test_what_only_one_gateway_has_seen_is_not_given_out_again(
    rough, rough_redis, rough_pg, rough_coupon, keeper, gateway_make
):
    """The others have reported, and it comes later."""
    url = rough.env_of("gateway")["REDIS_URL"]
    with Relay(port_of(url)) as gate:
        other = gateway_make(rough, REDIS_URL=gate.url(url))
        for _ in range(ATTEMPTS):
            one = rough_coupon(total=20)
            word = part_lost(rough, rough_redis, rough_pg, keeper, one, other, gate)
            assert word != REPORTED
            if word is None:
                break
        else:
            pytest.fail(f"the time for reports was over before it came, {ATTEMPTS} times")
    wait_until(lambda: one.row("issued_num") == (7,) and one.field("reserved") == "0")
    with rough.client() as client:
        codes = [client.issue(one.coupon, user)["code"] for user in range(1, 22)]
    assert codes.count(0) == 13
    wait_until(lambda: rough.ctl_run("audit", one.coupon).returncode == 0)


# Asked for first


def test_a_gateway_tells_what_clients_ask_for_in_vain(rough, rough_redis, rough_coupon):
    one, absent = rough_coupon(), 10**17
    rough.stop("worker-1")
    rough_redis.hset(one.key, "run_id", "f" * 40)
    with rough.client() as client:
        assert client.issue(one.coupon, 1)["code"] == UNAVAILABLE
        client.issue(absent, 1)
        wait_until(lambda: rough_redis.smembers(ASKED) == {str(one.coupon)})


def test_what_is_asked_for_is_opened_first(rough, rough_redis, rough_pg, rough_coupon, keeper):
    # The log has the first ten lines of an event in a second.
    first = rough_coupon()
    last = int(first.coupon) + 250
    rough_pg.execute(
        "INSERT INTO coupon (id, name, total_num, status)"
        " SELECT %s + i, 'many', 1, 'published' FROM generate_series(1, 250) AS i",
        (first.coupon,),
    )
    wait_until(lambda: rough_redis.hget(f"coupon:{{{last}}}", "status") == "open", timeout=120)
    keeper.signal(signal.SIGSTOP)  # it takes what is asked for in each of its rounds
    rough_redis.sadd(ASKED, last, "0", "x", 10**18)  # and what is no coupon
    rough.kill9("redis")
    rough.start("redis")
    keeper.signal(signal.SIGCONT)
    run_id = run_id_of(rough_redis)
    wait_until(lambda: rough_redis.hget(f"coupon:{{{last - 1}}}", "run_id") == run_id)
    verified = map(int, re.findall(r"event=coupon_verified coupon=(\d+) ", keeper.log()))
    # The keeper may have verified others before Redis was restarted, for a test before this one.
    assert next(one for one in verified if one > int(first.coupon)) == last, "before the sweep"
    rough_pg.execute(
        "UPDATE coupon SET status = 'closed', version = version + 1, settled_at = now(),"
        " expires_at = now() WHERE id > %s",
        (first.coupon,),
    )
