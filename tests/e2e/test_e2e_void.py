"""couponctl void: issued receives are taken back, and what comes back, comes back once."""

import json
import os
import subprocess
import threading

import pytest

from stack import wait_until, with_faults


def issue(client, coupon, user, **members):
    reply = client.issue(coupon, user, ack="issued", **members)
    assert reply["status"] == "issued", reply
    return reply["receive"]


def voided(stack, *words):
    return [json.loads(line) for line in stack.ctl("void", *words, "--json").splitlines()]


def counts(stack, coupon):
    shown = json.loads(stack.ctl("show", coupon, "--json"))
    return shown["postgresql"]["issued"], shown["redis"]["stock"], shown["redis"]["taken"]


def audit(stack, coupon):
    wait_until(lambda: stack.ctl_run("audit", coupon).returncode == 0)


def test_stock_and_slot_come_back(stack, gateway, pg):
    coupon = stack.coupon_make(2)
    receive, other = issue(gateway, coupon, 1, key="k"), issue(gateway, coupon, 2)
    assert gateway.issue(coupon, 3)["status"] == "out_of_stock"
    assert voided(stack, receive, "--why", "fraud", "--by", "ann") == [
        {
            "receive": receive,
            "result": "voided",
            "voided": True,
            "returned": True,
            "in_redis": True,
        }
    ]
    assert counts(stack, coupon) == (1, 1, 1)
    status = gateway.call("status", receive=receive)
    assert (status["status"], status["reason"]) == ("rejected", "voided")
    assert gateway.call("status", receive=other)["status"] == "issued"
    record = "SELECT user_id, is_returned, why, voided_by FROM coupon_void WHERE coupon_id = %s"
    assert pg.execute(record, (coupon,)).fetchall() == [("1", True, "fraud", "ann")]
    wait_until(lambda: gateway.issue(coupon, 1, key="k")["status"] == "accepted")
    audit(stack, coupon)
    assert counts(stack, coupon) == (2, 0, 2)


def test_stock_and_slot_stay_taken(stack, gateway):
    coupon = stack.coupon_make(2, void_returns="no")
    receive = issue(gateway, coupon, 1)
    assert voided(stack, receive)[0]["returned"] is False
    assert counts(stack, coupon) == (1, 1, 1)
    status = gateway.call("status", receive=receive)
    assert (status["status"], status["reason"]) == ("rejected", "voided")
    assert gateway.issue(coupon, 1)["status"] == "limit_reached"
    listed = [
        one for one in gateway.call("coupons", user=1)["coupons"] if one["receive"] == receive
    ]
    assert [one["voided"] for one in listed] == [True]
    assert len(stack.ctl("export", coupon).splitlines()) == 1, "its heading alone"
    audit(stack, coupon)


@pytest.mark.parametrize("returns", ["yes", "no"])
def test_voiding_again_changes_nothing(stack, gateway, redis_client, returns):
    coupon = stack.coupon_make(5, limit=2, void_returns=returns)
    receive = issue(gateway, coupon, 1)
    stack.ctl("void", receive)
    after = counts(stack, coupon)
    assert voided(stack, receive)[0]["result"] == "again"
    assert counts(stack, coupon) == after
    # Also when the slot has another owner by now.
    issue(gateway, coupon, 1)
    stack.ctl("edit", coupon, "--version", 2, "--void-returns", "no" if returns == "yes" else "yes")
    owned = counts(stack, coupon)
    assert voided(stack, receive)[0]["returned"] is (returns == "yes")
    assert counts(stack, coupon) == owned
    audit(stack, coupon)


def test_of_voids_at_once_one_gives_back(stack, gateway):
    coupon = stack.coupon_make(5)
    receive = issue(gateway, coupon, 1)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(voided(stack, receive)[0]["result"]))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["again"] * 4 + ["voided"]
    assert counts(stack, coupon) == (0, 5, 0)
    audit(stack, coupon)


def test_all_of_a_user(stack, gateway):
    coupon = stack.coupon_make(9, limit=3)
    receives = {issue(gateway, coupon, 1) for _ in range(3)} | {issue(gateway, coupon, 2)}
    stack.ctl("void", sorted(receives)[0])
    assert len(voided(stack, "--coupon", coupon, "--user", 1)) == 3
    assert counts(stack, coupon)[0] == 1
    outcomes = gateway.call("status", coupon=coupon, user=2)
    assert outcomes["receives"][0]["state"] == "issued"
    states = gateway.call("status", coupon=coupon, user=1)["receives"]
    assert {(one["state"], one["reason"]) for one in states} == {("rejected", "voided")}
    audit(stack, coupon)


def test_a_late_copy_of_its_message_does_not_issue_it_again(stack, gateway, redis_client, pg):
    """The outbox has the message still: the keeper sends it once more."""
    coupon = stack.coupon_make(5)
    receive = issue(gateway, coupon, 1)
    batch = receive.split(".")[-2]
    body = json.dumps(
        {
            "v": 1,
            "batch": batch,
            "coupon": str(coupon),
            "generation": 1,
            "seq": 1,
            "at": 1700000000123,
            "receives": [["1", 1, ""]],
        }
    )
    stack.ctl("void", receive)
    redis_client.hset(f"coupon:{{{coupon}}}:outbox", batch, body)
    wait_until(lambda: not redis_client.hlen(f"coupon:{{{coupon}}}:outbox"))
    rows = pg.execute("SELECT count(*) FROM user_coupon WHERE coupon_id = %s", (coupon,))
    assert rows.fetchone() == (0,)
    assert gateway.call("status", receive=receive)["reason"] == "voided"
    audit(stack, coupon)


def test_without_redis_the_keeper_gives_back(rough, rough_coupon, rough_pg):
    """The operator's tool died between the stores."""
    coupon = rough_coupon(total=3)
    with rough.client() as client:
        receive = issue(client, coupon.coupon, 1)
    rough_pg.execute(
        "SELECT coupon_void(%s, batch, idx, user_id, NULL) FROM user_coupon WHERE coupon_id = %s",
        (coupon.coupon, coupon.coupon),
    )
    wait_until(lambda: coupon.field("stock") == "3")
    assert voided(rough, receive)[0]["result"] == "again"
    audit(rough, coupon.coupon)


def test_malformed_records_of_the_user_are_not_taken_for_freed(stack, gateway, redis_client, pg):
    coupon = stack.coupon_make(3)
    receive, users = issue(gateway, coupon, 1), f"coupon:{{{coupon}}}:users"
    record = redis_client.hget(users, "1")
    redis_client.hset(users, "1", "nonsense")
    result = stack.ctl_run("void", receive)
    assert result.returncode == 3 and "Redis could not be updated" in result.stderr
    pending = "SELECT freed_at FROM receive_rejected WHERE coupon_id = %s"
    assert pg.execute(pending, (coupon,)).fetchone() == (None,)
    redis_client.hset(users, "1", record)
    wait_until(lambda: counts(stack, coupon) == (0, 3, 0))
    audit(stack, coupon)


@pytest.mark.parametrize("returns", ["yes", "no"])
@pytest.mark.parametrize("point", ["void_before_redis", "void_before_mark"])
def test_killed_between_the_stores(stack, gateway, point, returns):
    coupon = stack.coupon_make(3, void_returns=returns)
    receive = issue(gateway, coupon, 1)
    program = with_faults(stack, "couponctl")
    killed = subprocess.run(
        [str(program), "void", receive],
        env={**os.environ, **stack.env_of("operator"), "COUPON_FAULT": f"{point}:1:kill"},
        check=False,
        timeout=60,
    )
    assert killed.returncode == -9
    assert gateway.call("status", receive=receive)["reason"] == "voided"
    left = (0, 3, 0) if returns == "yes" else (1, 2, 1)
    wait_until(lambda: counts(stack, coupon) == left)
    assert voided(stack, receive)[0]["result"] == "again"
    assert counts(stack, coupon) == left
    audit(stack, coupon)


@pytest.mark.parametrize(
    "words, message",
    [
        (("nonsense",), 'RECEIVE is "nonsense": allowed is <coupon>.<user>.<batch>.<index>'),
        (("--user", "1"), "void needs --coupon"),
        (("--coupon", "1"), "void needs --user"),
        (("--coupon", "1", "--user", "a b"), '--user is "a b"'),
        (("1.1.01M83A4GVP3B7N8MEPC43SSEJ7.0", "--user", "1"), "not both"),
        (("1.1.01M83A4GVP3B7N8MEPC43SSEJ7.0", "--why", ""), '--why is ""'),
    ],
)
def test_bad_words(stack, words, message):
    result = stack.ctl_run("void", *words)
    assert result.returncode == 2 and message in result.stderr, result


def test_what_is_not_issued_is_not_voided(stack, gateway):
    coupon = stack.coupon_make(1)
    unknown = f"{coupon}.1.01M83A4GVP3B7N8MEPC43SSEJ7.0"
    result = stack.ctl_run("void", unknown)
    assert (result.returncode, result.stdout) == (
        6,
        f"{unknown} is not issued: nothing was changed\n",
    )
    result = stack.ctl_run("void", "--coupon", coupon, "--user", 1)
    assert result.returncode == 9 and "user 1 has no issued receive" in result.stderr
