"""couponctl check: whether a campaign is ready to open, and why not."""

import json
import os
import subprocess

import pytest
import redis

from stack import wait_until
from wall_clock import WallClock

CHECKS = ["campaign", "redis", "audit", "queue", "durability", "clocks"]
LATER = "2099-01-01T00:00:00Z"


def checked(stack, coupon, warned=False, **settings):
    """The reasons of the checks that have failed, or have passed with a warning, by their names."""
    result = stack.ctl_run("check", coupon, "--json", settings=settings)
    verdict = json.loads(result.stdout)
    warnings = {one["check"]: one["reason"] for one in verdict["checks"] if one["passed"]}
    if warned:
        return {check: reason for check, reason in warnings.items() if reason}
    assert [check["check"] for check in verdict["checks"]] == CHECKS
    failed = {check["check"]: check["reason"] for check in verdict["checks"] if not check["passed"]}
    assert (result.returncode, verdict["ready"]) == ((1, False) if failed else (0, True))
    assert verdict["coupon"] == str(coupon)
    return failed


def test_ready(stack, gateway):
    coupon = stack.coupon_make(10, begin=LATER)
    assert checked(stack, coupon) == {}
    last = stack.ctl("check", coupon).splitlines()[-1]
    assert last == f"READY: coupon {coupon} may open from 2099-01-01T00:00:00+00:00"
    issuing = stack.coupon_make(10)
    gateway.issue(issuing, 1, ack="issued")
    assert checked(stack, issuing) == {}
    last = stack.ctl("check", issuing).splitlines()[-1]
    assert last == f"READY: coupon {issuing} may open"


def test_times_are_those_of_the_campaigns_zone(stack):
    coupon = stack.coupon_make(10, begin="2098-12-24T18:00", end="2098-12-24", zone="Europe/Berlin")
    last = stack.ctl("check", coupon).splitlines()[-1]
    assert last.endswith(" from 2098-12-24T18:00:00+01:00 until 2098-12-25T00:00:00+01:00")
    told = json.loads(stack.ctl("check", coupon, "--json"))
    assert (told["begin"], told["end"]) == ("2098-12-24T17:00:00.000Z", "2098-12-24T23:00:00.000Z")


def test_the_campaign_is_in_no_state_to_open(stack):
    draft = stack.coupon_make(10, publish=False)
    failed = checked(stack, draft)
    assert failed["campaign"] == "it is draft: allowed is scheduled or issuing"
    assert "Redis does not have it" in failed["redis"]
    paused = stack.coupon_make(10)
    stack.ctl("pause", paused)
    assert checked(stack, paused) == {"campaign": "it is paused: allowed is scheduled or issuing"}
    assert "NOT READY" in stack.ctl_run("check", paused).stdout
    empty = stack.coupon_make(1)
    stack.ctl("stock", empty, "--total", 0)
    assert checked(stack, empty) == {"campaign": "its total is 0", "redis": "its stock is 0"}


def test_of_an_unknown_coupon(stack):
    result = stack.ctl_run("check", 5)
    assert (result.returncode, result.stderr) == (9, "couponctl: there is no coupon 5\n")


def test_redis_has_other_terms(stack, redis_client):
    coupon = stack.coupon_make(10, begin=LATER)
    redis_client.hset(f"coupon:{{{coupon}}}", mapping={"limit": 2, "stock": 9})
    failed = checked(stack, coupon)
    assert failed["redis"] == "its limit is 2 in Redis but 1 in PostgreSQL"
    assert failed["audit"] == f"FAIL: see couponctl audit {coupon}"
    redis_client.hset(f"coupon:{{{coupon}}}", mapping={"limit": 1, "stock": 10})


def test_nobody_works(rough, rough_coupon):
    coupon = rough_coupon()
    rough.stop("worker-1")
    wait_until(lambda: "queue" in checked(rough, coupon.coupon))
    assert checked(rough, coupon.coupon) == {
        "queue": "no coupon-worker consumes coupon.receive.queue"
    }
    rough.stop("rabbitmq")
    assert "RabbitMQ cannot be queried" in checked(rough, coupon.coupon)["queue"]


def test_redis_may_lose_what_it_confirmed(rough, rough_coupon, rough_redis):
    coupon = rough_coupon()
    rough_redis.config_set("appendfsync", "everysec")
    failed = checked(rough, coupon.coupon)
    rough_redis.config_set("appendfsync", "always")
    assert list(failed) == ["durability"] and "appendfsync" in failed["durability"]


@pytest.mark.parametrize("how", ["renamed", "forbidden"])
def test_redis_does_not_show_its_settings(rough, rough_coupon, how):
    """As those of many providers: it is a warning, until an operator acknowledges it. What is shown
    is judged all the same."""
    coupon = rough_coupon().coupon
    if how == "renamed":
        rough.restart("redis", REDIS_FLAGS="--rename-command CONFIG hidden")
    acknowledged = {"COUPON_REDIS_DURABILITY": "acknowledged"}
    with redis.Redis.from_url(rough.env["REDIS_URL"]) as cache:
        try:
            if how == "forbidden":
                cache.execute_command("ACL", "SETUSER", "couponmq_operator", "-config|get")
            wait_until(lambda: checked(rough, coupon) == {}, timeout=60)
            warning = checked(rough, coupon, warned=True)
            assert list(warning) == ["durability"]
            assert "COUPON_REDIS_DURABILITY=acknowledged" in warning["durability"]
            assert f"warn  durability  {warning['durability']}\n" in rough.ctl("check", coupon)
            assert checked(rough, coupon, warned=True, **acknowledged) == {}
            assert checked(rough, coupon, **acknowledged) == {}
            if how == "forbidden":
                cache.execute_command("ACL", "SETUSER", "couponmq_operator", "+config|get")
            else:
                rough.restart("redis")
                wait_until(lambda: "redis" not in checked(rough, coupon), timeout=60)
            cache.config_set("appendfsync", "everysec")
            assert list(checked(rough, coupon, **acknowledged)) == ["durability"]
        finally:
            if how == "renamed":
                rough.restart("redis")
            else:
                cache.execute_command("ACL", "SETUSER", "couponmq_operator", "+config|get")
                cache.config_set("appendfsync", "always")


def test_an_acknowledgement_that_is_none(stack):
    told = stack.ctl_run("check", 1, "--redis-durability", "yes")
    assert told.returncode != 0
    assert 'COUPON_REDIS_DURABILITY is "yes": allowed are read and acknowledged' in told.stderr


def test_redis_was_restarted_and_not_verified(rough, rough_coupon):
    coupon = rough_coupon()
    rough.stop("worker-1")
    rough.restart("redis")
    assert "no keeper has verified it" in checked(rough, coupon.coupon)["redis"]


def test_clocks_differ(stack, tmp_path):
    coupon = stack.coupon_make(10, begin=LATER)
    clock = WallClock(tmp_path)
    clock.set(3)
    result = subprocess.run(
        [str(stack.build_dir / "couponctl"), "check", str(coupon)],
        env={**os.environ, **stack.env, **clock.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "FAIL  clocks      the clock of Redis differs from this machine's by -" in result.stdout
