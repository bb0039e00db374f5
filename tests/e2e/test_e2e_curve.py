"""couponctl show --curve and --recent: how a sale went, in rows of keepers, and who got it."""

import csv
import io
import json

import pytest

from stack import wait_until

NUMBERS = ("total", "stock", "taken", "issued", "rejected")


def rows_of(stack, coupon, *options):
    return [
        json.loads(line)
        for line in stack.ctl("show", "--curve", coupon, "--json", *options).splitlines()
    ]


def last_is(stack, coupon, *numbers):
    rows = rows_of(stack, coupon)
    return rows and tuple(rows[-1][name] for name in NUMBERS) == numbers


def test_a_sale(stack, gateway):
    coupon = stack.coupon_make(5, limit=5)
    assert rows_of(stack, coupon) == [], "nothing has happened"
    receive = gateway.issue(coupon, 1, ack="issued")["receive"]
    wait_until(lambda: last_is(stack, coupon, 5, 4, 1, 1, 0))
    gateway.issue(coupon, 1, ack="issued")
    stack.ctl("void", receive)
    wait_until(lambda: last_is(stack, coupon, 5, 4, 1, 1, 1))
    stack.ctl("stock", coupon, "--total", 9)
    wait_until(lambda: last_is(stack, coupon, 9, 8, 1, 1, 1))
    rows = rows_of(stack, coupon)
    assert [row["num"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["at"] for row in rows] == sorted({row["at"] for row in rows})
    assert rows_of(stack, coupon, "--after", 2) == rows[2:]
    assert rows_of(stack, coupon, "--after", 1, "--count", 1) == rows[1:2]
    table = list(csv.DictReader(io.StringIO(stack.ctl("show", "--curve", coupon, "--csv"))))
    assert table == [{name: str(value) for name, value in row.items()} for row in rows]
    lines = [line.split() for line in stack.ctl("show", "--curve", coupon).splitlines()]
    assert lines[0] == list(rows[0]) and lines[1:] == [list(row.values()) for row in table]


def refused(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))["refused"]


def test_what_was_refused(stack, gateway):
    """Decided by Redis, and from the memory of the gateway."""
    coupon, early = stack.coupon_make(2), stack.coupon_make(2, begin="2035-01-01T00:00:00Z")
    for user in (1, 1, 2, *range(10, 30)):
        gateway.issue(coupon, user)
    gateway.issue(early, 1)
    wait_until(lambda: refused(stack, coupon) == {"out_of_stock": 20, "limit_reached": 1})
    wait_until(lambda: rows_of(stack, coupon) and rows_of(stack, coupon)[-1]["refused"] == 21)
    wait_until(lambda: refused(stack, early) == {"not_started": 1})
    wait_until(lambda: rows_of(stack, early) and rows_of(stack, early)[-1]["refused"] == 1)
    assert '\n  refused      {"out_of_stock": 20, "limit_reached": 1}\n' in stack.ctl(
        "show", coupon
    )
    stack.ctl("close", coupon)
    gateway.issue(coupon, 1, key="another")
    wait_until(lambda: refused(stack, coupon).get("ended") == 1)


def test_the_last_row_has_all_that_was_issued(stack, gateway):
    """Also when the coupon is settled, and keepers do not look at it any more."""
    coupon = stack.coupon_make(3)
    for user in range(3):
        gateway.issue(coupon, user)
    stack.ctl("close", coupon)
    wait_until(lambda: json.loads(stack.ctl("show", coupon, "--json"))["settled_at"])
    assert last_is(stack, coupon, 3, 0, 3, 3, 0)


def test_another_keeper_goes_on(rough, rough_coupon, worker_make):
    coupon = rough_coupon(total=5).coupon
    with rough.client() as client:
        client.issue(coupon, 1, ack="issued")
        wait_until(lambda: last_is(rough, coupon, 5, 4, 1, 1, 0))
        before = rows_of(rough, coupon)
        rough.kill9("worker-1")
        client.issue(coupon, 2)
        worker_make(rough)
        wait_until(lambda: last_is(rough, coupon, 5, 3, 2, 2, 0), timeout=60)
    rows = rows_of(rough, coupon)
    assert rows[: len(before)] == before
    assert [row["num"] for row in rows] == list(range(1, len(rows) + 1))


def test_rows_that_cannot_be_written_stop_nothing(rough, rough_coupon, rough_owner):
    coupon = rough_coupon(total=5)
    rough_owner.execute("REVOKE INSERT ON coupon_curve, coupon_refusal FROM couponmq_worker")
    try:
        with rough.client() as client:
            client.issue(coupon.coupon, 1, ack="issued")
            assert client.issue(coupon.coupon, 1)["status"] == "limit_reached"
            wait_until(lambda: rough.log_has("worker-1", "coupon_refusal"))
            wait_until(lambda: rough.log_has("worker-1", "coupon_curve"))
        rough.ctl("close", coupon.coupon)
        wait_until(coupon.is_settled)
        assert rows_of(rough, coupon.coupon) == []
    finally:
        rough_owner.execute("GRANT INSERT ON coupon_curve, coupon_refusal TO couponmq_worker")


def recent(stack, coupon, *options):
    lines = stack.ctl("show", "--recent", coupon, "--json", *options).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("returns", ["yes", "no"])
def test_who_got_it_last(stack, gateway, returns):
    coupon, other = stack.coupon_make(50, void_returns=returns), stack.coupon_make(50)
    receives = []
    for user in range(30):
        receives.append(gateway.issue(coupon, f"u.{user}", ack="issued")["receive"])
        gateway.issue(other, user, ack="issued")
    stack.ctl("void", receives[-2])
    receives.reverse()
    found = recent(stack, coupon)
    assert [one["receive"] for one in found] == receives[:20]
    assert [one["received_at"] for one in found] == sorted(
        (one["received_at"] for one in found), reverse=True
    )
    assert found[0] | {"received_at": None} == {
        "receive": receives[0], "user": "u.29", "slot": 1, "received_at": None, "state": "issued",
        "reason": None,
    }  # fmt: skip
    assert [(one["state"], one["reason"]) for one in found[1:3]] == [
        ("rejected", "voided"),
        ("issued", None),
    ]
    assert len(recent(stack, coupon, "--count", 1000)) == 30
    assert f"rejected (voided)  {receives[1]}\n" in stack.ctl("show", "--recent", coupon)


def test_who_got_it_last_where_space_was_free(rough, rough_coupon, rough_pg):
    """Far from the end of the tables, and of a sale before many others."""
    coupon, filler = rough_coupon(total=100).coupon, rough_coupon(total=100).coupon
    insert = (
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " SELECT 'filler.' || n, %s, 1, 0, gen_random_uuid(), '2020-01-01', '2020-01-01'"
        " FROM generate_series(1, 150000) AS n"
    )
    remove = "DELETE FROM user_coupon WHERE coupon_id = %s"
    try:
        rough_pg.execute(insert, [filler])
        rough_pg.execute(remove + " AND user_id < 'filler.12'", [filler])
        rough_pg.execute("VACUUM user_coupon")
        with rough.client() as client:
            receives = [
                client.issue(coupon, f"u.{user}", ack="issued")["receive"] for user in range(60)
            ]
        receives.reverse()
        assert [one["receive"] for one in recent(rough, coupon)] == receives[:20]
        assert len(recent(rough, filler, "--count", 1000)) == 1000
        rough_pg.execute(insert.replace("filler.", "later."), [filler])
        assert [one["receive"] for one in recent(rough, coupon)] == receives[:20]
    finally:
        rough_pg.execute(remove, [filler])
        rough_pg.execute("VACUUM user_coupon")


@pytest.mark.parametrize(
    "words, status, sentence",
    [
        ([], 2, "show --curve needs ID"),
        (["x"], 2, 'ID is "x"'),
        ([1, "--after", -1], 2, '--after is "-1": allowed is an integer from 0 to 2147483647'),
        ([1, "--csv", "--json"], 2, "not both"),
        ([987654321], 9, "there is no coupon 987654321"),
    ],
)
def test_wrong_words(stack, words, status, sentence):
    result = stack.ctl_run("show", "--curve", *words)
    assert (result.returncode, result.stdout) == (status, "") and sentence in result.stderr
