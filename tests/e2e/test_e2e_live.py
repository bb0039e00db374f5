"""coupon-admin tells what goes on: /admin/v1/now, and /admin/v1/live once a second."""

import json
import re
from itertools import islice

import psycopg
import pytest
import requests

from stack import Client, wait_until
from admin_client import API, Admin, known, key_id, ok, problem


@pytest.fixture(scope="module")
def monitor(stack, admin):
    return known(admin, stack.ctl("key", "create", "--name", "test", "--role", "monitor"))


def looking(admin, caller, path="/live"):
    """The events of a stream, as pairs: the name, and what it has."""
    headers = {"Authorization": f"Bearer {caller.key}"}
    answer = requests.get(admin.url + API + path, headers=headers, stream=True, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Cache-Control"] == "no-store"
    name = None
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def campaign_of(sample, coupon):
    (campaign,) = [one for one in sample["campaigns"] if one["coupon"] == coupon]
    return campaign


def sessions(stack):
    """The number of sessions of PostgreSQL for the live state."""
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as owner:
        rows = owner.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'coupon-admin live'"
        )
        return rows.fetchone()[0]


def test_what_is_told(stack, monitor, make_coupon):
    coupon = make_coupon(3)
    with Client(stack.env["COUPON_LISTEN"]) as client:
        for user in range(4):
            client.issue(coupon, user, ack="issued")
    told = ok(monitor("GET", f"/now?coupons={coupon}"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["at"])
    assert set(told["stores"]) == {"postgresql", "redis"}
    assert all(one["error"] is None and one["us"] >= 0 for one in told["stores"].values())
    campaign = campaign_of(told, coupon)
    assert (campaign["state"], campaign["total"], campaign["issued"]) == ("issuing", 3, 3)
    assert (campaign["redis"]["stock"], campaign["redis"]["taken"]) == (0, 3)
    assert campaign["in_flight"] == 0
    assert told["states"]["sold_out"] >= 1
    gateway, *workers = told["processes"]
    assert gateway["kind"] == "gateway" and gateway["readyz"]["ready"] is True
    assert gateway["metrics"]["answers_total"]["out_of_stock"] >= 1
    assert gateway["metrics"]["issue_seconds_bucket"]["+Inf"] >= 4
    runs = [one for one in workers if not one["error"]]
    assert {one["kind"] for one in runs} == {"worker"}
    assert sum(one["metrics"]["keeper_elected"] for one in runs) == 1


def test_a_stream_and_its_end(stack, admin, make_coupon):
    """A draft is among the campaigns when it was asked for; the stream ends with the key."""
    caller = known(admin, stack.ctl("key", "create", "--name", "test", "--role", "monitor"))
    coupon = make_coupon(5)
    events = looking(admin, caller, f"/live?coupons={coupon}")
    name, first = next(events)
    assert name == "sample" and campaign_of(first, coupon)["redis"]["stock"] == 5
    with Client(stack.env["COUPON_LISTEN"]) as client:
        client.issue(coupon, "u", ack="issued")
    later = next(sample for _, sample in events if campaign_of(sample, coupon)["issued"] == 1)
    assert later["at"] > first["at"] and campaign_of(later, coupon)["redis"]["stock"] == 4
    stack.ctl("key", "revoke", key_id(caller))
    assert [name for name, _ in islice(events, 20)][-1] == "end"


def test_nobody_looks(stack, admin, monitor):
    """Then there is no connection for it."""
    wait_until(lambda: sessions(stack) == 0)
    events = looking(admin, monitor)
    next(events)
    assert sessions(stack) == 1
    events.close()
    wait_until(lambda: sessions(stack) == 0)
    ok(monitor("GET", "/now"))


def test_ten_who_look_are_one(stack, admin, monitor):
    """What they see was asked for once."""
    lookers = [looking(admin, monitor) for _ in range(10)]
    last = max(next(events)[1]["at"] for events in lookers)
    later = [next(one["at"] for _, one in events if one["at"] > last) for events in lookers]
    assert len(set(later)) == 1 and sessions(stack) == 1
    for events in lookers:
        events.close()


def test_what_is_refused(admin, monitor):
    for query in ("coupons=x", "coupons=0", "coupons=1,,2", "coupons=1%002", "a=1"):
        problem(monitor("GET", f"/now?{query}"), 400)
    many = ",".join(str(one) for one in range(1, 102))
    assert "100" in problem(monitor("GET", f"/live?coupons={many}"), 400)
    assert monitor("POST", "/live").headers["Allow"] == "GET, HEAD"
    problem(admin.call("GET", API + "/live"), 401)


def test_more_campaigns_than_it_tells_of(stack, admin):
    """One key may look at 200 campaigns, all together at 500."""
    create = ("key", "create", "--name", "test", "--role", "monitor")
    callers = [known(admin, stack.ctl(*create)) for _ in range(3)]
    streams = []
    for n in range(5):
        ids = ",".join(str(9000000 + 100 * n + i) for i in range(100))
        streams.append(looking(admin, callers[n // 2], f"/live?coupons={ids}"))
        assert next(streams[-1])[0] == "sample"
    assert "200 campaigns" in problem(callers[0]("GET", "/now?coupons=9999999"), 503)
    assert "500 campaigns" in problem(callers[2]("GET", "/now?coupons=9999999"), 503)
    ok(callers[2]("GET", f"/now?coupons={ids}"))
    ok(callers[2]("GET", "/now"))
    for one in streams:
        one.close()
    for caller in callers:
        wait_until(lambda: caller("GET", "/now?coupons=9999999").status_code == 200)


def test_what_cannot_be_reached(stack, monitor):
    """It is told in its place, and the rest as usual."""
    one = Admin(stack, COUPON_ADMIN_METRICS="127.0.0.1:9,[::1]:9")
    told = ok(known(one, monitor.key)("GET", "/now"))
    assert [(each["kind"], each["metrics"]) for each in told["processes"]] == [(None, None)] * 2
    assert all(each["error"] for each in told["processes"])
    assert told["campaigns"] is not None
    one.end()
