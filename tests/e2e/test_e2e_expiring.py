"""coupon.expiring: asked for by a campaign, published before the end of its coupons, each once
whatever dies."""

import json

import psycopg
import pytest

from events import in_order
from stack import wait_until

MANY = 50_000  # user coupons: three steps of a pass


def show(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))


def age(pg, coupon, days, *users):
    """As if their coupons had been received so many days earlier."""
    shifted = pg.execute(
        "UPDATE user_coupon SET received_at = received_at - %s * interval '1 day',"
        " valid_from = valid_from - %s * interval '1 day', valid_to = valid_to - %s * interval"
        " '1 day' WHERE coupon_id = %s AND user_id = ANY (%s)",
        (days, days, days, coupon, list(users)),
    )
    assert shifted.rowcount == len(users)


def test_before_the_end(stack, gateway, pg, subscriber):
    coupon = stack.coupon_make(10, events="on", valid_days=30)
    events = subscriber(stack, f"event.{coupon}.#")
    users = ["near", "used", "far"]
    receives = {
        user: gateway.issue(coupon, user, key="k", ack="issued")["receive"] for user in users
    }
    gateway.call("use", receive=receives["used"], order="o")
    age(pg, coupon, 28, "near", "used")
    stack.coupon_edit(coupon, "--tell-before", "3d")
    wait_until(lambda: events.of("coupon.expiring"))
    (event,) = events.of("coupon.expiring")
    data = event["data"]
    assert event["id"] == f"{'.'.join(receives['near'].rsplit('.', 2)[1:])}/expiring"
    assert (data["user"], data["receive"], data["key"]) == ("near", receives["near"], "k")
    assert data["valid_from"] == data["received_at"] < data["valid_to"] and data["slot"] == 1
    # It ends later than that, and within four days.
    age(pg, coupon, 26.5, "far")
    stack.coupon_edit(coupon, "--tell-before", "4d")
    wait_until(lambda: len(events.of("coupon.expiring")) == 2)
    assert events.of("coupon.expiring")[1]["data"]["user"] == "far"
    assert in_order(events.read()) and len(set(events.ids())) == len(events.ids())


def test_a_locked_campaign_holds_up_no_other(stack, gateway, pg, subscriber):
    """By an operator's transaction that is left open."""
    coupons = [stack.coupon_make(10, events="on") for _ in range(3)]
    events = [subscriber(stack, f"event.{coupon}.coupon.expiring") for coupon in coupons]
    for coupon in coupons:
        assert gateway.issue(coupon, "u", ack="issued")["status"] == "issued"
        age(pg, coupon, 28, "u")
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as session:
        ask = "UPDATE coupon SET tell_before = 259200 WHERE id = ANY (%s)"
        pg.execute(ask, ([int(one) for one in coupons],))
        session.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupons[0],))
        for other in events[1:]:
            wait_until(other.read)
    wait_until(events[0].read)


def test_the_terms(stack):
    coupon = stack.coupon_make(5, events="on", tell_before="36h")
    assert show(stack, coupon)["tell_before"] == 36 * 3600
    assert "events       on, also 36h before the end" in stack.ctl("show", coupon)
    stack.coupon_edit(coupon, "--tell-before", "2d")
    assert "also 2d before the end" in stack.ctl("show", coupon)
    last = json.loads(stack.ctl("history", coupon, "--json").splitlines()[-1])
    assert last["changes"] == {"tell_before": [36 * 3600, 2 * 86400]}
    stack.coupon_edit(coupon, "--tell-before", "none", "--events", "off")
    assert show(stack, coupon)["tell_before"] is None
    assert "events " not in stack.ctl("show", coupon)


@pytest.mark.parametrize(
    "value", ["", "3", "d", "3 d", "-1d", "59s", "0d", "366d", "1.5d", "3D", "9" * 20 + "d"]
)
def test_a_time_that_is_none(value, stack):
    words = ("--name", "n", "--total", 1, "--valid-days", 30, "--events", "on")
    told = stack.ctl_run("create", *words, "--tell-before", value)
    assert told.returncode == 2 and f'--tell-before is "{value}": allowed is' in told.stderr, told


@pytest.mark.parametrize(
    "words, why",
    [
        (("--valid-days", 30), "--tell-before needs --events on"),
        (("--events", "on"), "--tell-before needs an end of the validity"),
        (("--events", "on", "--valid-days", 3), "--tell-before must be shorter than --valid-days"),
    ],
)
def test_terms_that_it_does_not_fit(words, why, stack):
    told = stack.ctl_run("create", "--name", "n", "--total", 1, *words, "--tell-before", "3d")
    assert told.returncode == 1 and why in told.stderr and "nothing was changed" in told.stderr
    coupon = stack.coupon_make(5, events="on", tell_before="3d")
    before = show(stack, coupon)
    version = before["postgresql"]["version"]
    edits = {
        "--events on": ("--events", "off"),
        "an end of the validity": ("--valid-days", "none"),
        "shorter than": ("--valid-days", 2),
    }
    (edit,) = [edit for part, edit in edits.items() if part in why]
    told = stack.ctl_run("edit", coupon, "--version", version, *edit)
    assert told.returncode == 1 and why in told.stderr, told
    assert show(stack, coupon)["postgresql"] == before["postgresql"]


def test_each_once_while_workers_are_killed(rough, rough_owner, subscriber):
    """A pass of several steps; what a worker has not finished the next one does anew."""
    coupon = rough.coupon_make(MANY, events="on", tell_before="3d", publish=False)
    events = subscriber(
        rough, f"event.{coupon}.coupon.expiring", events_of=lambda key, _, body: json.loads(body)
    )
    rough_owner.execute(
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from,"
        " valid_to) SELECT 'user-' || n, %s, 1, 0, gen_random_uuid(), now() - interval '28 days',"
        " now() - interval '28 days', now() + n * interval '1 s' + interval '1 hour'"
        " FROM generate_series(1, %s) AS n",
        (coupon, MANY),
    )
    rough_owner.execute("UPDATE coupon SET issued_num = %s WHERE id = %s", (MANY, coupon))
    rough.ctl("publish", coupon)

    def told():
        return {event["data"]["user"] for event in events.read()}

    for _ in range(3):
        rough.kill9("worker-1")
        rough.start("worker-1")
        before = len(told())
        wait_until(lambda known=before: len(told()) > known or len(told()) == MANY)
    wait_until(lambda: len(told()) == MANY, timeout=300)
    assert {event["type"] for event in events.events} == {"coupon.expiring"}
    assert len({event["id"] for event in events.events}) == MANY
    events.firsts()
    wait_until(
        lambda: rough_owner.execute(
            "SELECT pass_from FROM expiry_notice WHERE coupon_id = %s", (coupon,)
        ).fetchone()
        == (None,)
    )
