"""Numbers that pass 2^31 and 2^32 while coupons are issued: ids of coupons, receives of a coupon,
its stock, and events."""

import json

import pytest

from stack import wait_until

BEFORE, USERS = 5, 20


@pytest.mark.parametrize("edge", [1 << 31, 1 << 32])
def test_numbers_that_grow_beyond(rough, rough_redis, rough_pg, edge):
    coupon = edge - 1
    rough.ctl(
        "create", "--id", coupon, "--name", "many", "--total", edge + USERS, "--limit", 2,
        "--valid-days", 1, "--events", "on",
    )  # fmt: skip
    rough.ctl("publish", coupon)
    key, row = f"coupon:{{{coupon}}}", f"FROM coupon WHERE id = {coupon}"
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, "first", ack="issued")["code"] == 0)
        wait_until(lambda: rough_pg.execute(f"SELECT settled_num {row}").fetchone() == (1,))
        # as after so many
        rough_pg.execute(
            f"UPDATE coupon SET seq_seen = {edge - BEFORE}, settled_num = {edge - BEFORE}"
            f" WHERE id = {coupon}"
        )
        rough_redis.hset(key, "seq", edge - BEFORE)
        rough_pg.execute(
            "SELECT setval('event_log_id_seq', greatest(last_value, %s)) FROM event_log_id_seq",
            (edge - BEFORE,),
        )
        receives = [
            client.issue(coupon, user, key=f"k{user}", ack="issued")["receive"]
            for user in range(USERS)
        ]
        assert len(set(receives)) == USERS
        assert [
            client.issue(coupon, user, key=f"k{user}")["receive"] for user in range(USERS)
        ] == receives
    beyond = f"SELECT seq_seen, settled_num {row}"
    assert rough_pg.execute(beyond).fetchone() == (edge - BEFORE + USERS,) * 2
    assert int(rough_redis.hget(key, "seq")) == edge - BEFORE + USERS
    wait_until(lambda: rough_pg.execute("SELECT count(*) FROM event_log").fetchone() == (0,))
    assert rough_pg.execute("SELECT last_value FROM event_log_id_seq").fetchone()[0] > edge
    another = edge + 1
    rough.ctl(
        "create", "--id", another, "--name", "another", "--total", 10, "--valid-days", 1
    )  # fmt: skip
    rough.ctl("publish", another)
    with rough.client() as client:
        wait_until(lambda: client.issue(another, "first", ack="issued")["code"] == 0)
    rough.ctl("rebuild", coupon)
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, "after", ack="issued")["code"] == 0)
        again = client.issue(coupon, 1, key="k1")
    assert again["receive"] == receives[1]
    shown = json.loads(rough.ctl("show", coupon, "--json"))
    assert shown["postgresql"]["issued"] == USERS + 2, shown
