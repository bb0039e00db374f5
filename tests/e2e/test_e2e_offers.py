"""What is on offer: which campaigns, in which order, and what a user may have of each."""

import time
import uuid

import pytest
import requests

from relay import Relay, port_of
from stack import wait_until

OLD_S = 0.6  # a state of Redis is not shown any more


def offers(client, **members):
    """All pages."""
    found, cursor = [], {}
    while True:
        reply = client.call("offers", **members, **cursor)
        assert (reply["code"], reply["status"]) == (0, "ok"), reply
        found += reply["offers"]
        if "cursor" not in reply:
            return found
        cursor = {"cursor": reply["cursor"]}


@pytest.fixture
def tag():
    """That of the campaigns of one test."""
    return "t" + uuid.uuid4().hex[:12]


def ids(found):
    return [one["coupon"] for one in found]


def test_an_offer_says_what_coupon_says(stack, gateway, tag):
    coupon = stack.coupon_make(
        10, name='Noon "rush" é', limit=2, tags=f"{tag},winter", begin="2020-01-01T00:00:00Z",
        end="2098-01-01T00:00:00Z", amount_off="5.00", threshold="20.00", currency="EUR",
        metadata='{"theme":"noon","none":null}',
    )  # fmt: skip
    (one,) = offers(gateway, tag=tag)
    shown = gateway.call("coupon", coupon=coupon)
    assert {name: one[name] for name in shown.keys() - {"code", "status", "id"}} == {
        name: shown[name] for name in shown.keys() - {"code", "status", "id"}
    }
    assert one["name"] == 'Noon "rush" é' and one["tags"] == [tag, "winter"]
    assert one["metadata"] == {"theme": "noon", "none": None}
    assert not one.keys() & {"taken", "left", "claimable", "why"}


def test_what_a_user_may_have(stack, gateway, tag):
    def of_user(user):
        return {one["coupon"]: one for one in offers(gateway, tag=tag, user=user)}

    two = stack.coupon_make(10, limit=2, tags=tag)
    last = stack.coupon_make(1, tags=tag)
    soon = stack.coupon_make(10, tags=tag, begin="2026-12-01T00:00:00Z")
    stack.coupon_edit(soon, "--begin", "2090-01-01T00:00:00Z")
    found = of_user("ann")
    assert soon not in found  # not within seven days
    assert (found[two]["taken"], found[two]["left"], found[two]["claimable"]) == (0, 2, True)
    assert "why" not in found[two]
    for left in (1, 0):
        assert gateway.issue(two, "ann")["code"] == 0
        one = of_user("ann")[two]
        assert (one["taken"], one["left"], one["claimable"]) == (2 - left, left, left > 0)
    assert one["why"] == gateway.issue(two, "ann")["status"] == "limit_reached"
    assert of_user("bob")[two]["taken"] == 0
    assert gateway.issue(last, "ann")["code"] == 0
    wait_until(lambda: of_user("bob")[last]["stock"] == 0)  # within a second
    one = of_user("bob")[last]
    assert (one["claimable"], one["why"]) == (False, gateway.issue(last, "bob")["status"])
    assert (one["taken"], one["left"]) == (0, 1)
    # What is taken back may be taken again.
    stack.ctl("void", "--coupon", two, "--user", "ann")
    wait_until(lambda: of_user("ann")[two]["taken"] == 0)


def test_a_campaign_that_begins_soon(stack, gateway, tag):
    import datetime

    def at(days):
        moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    late, early, beyond = (stack.coupon_make(5, tags=tag, begin=at(days)) for days in (6.5, 3, 8))
    is_open = stack.coupon_make(5, tags=tag)
    assert ids(offers(gateway, tag=tag)) == [is_open, early, late]
    assert ids(offers(gateway, tag=tag, within=9 * 86400)) == [is_open, early, late, beyond]
    assert ids(offers(gateway, tag=tag, within="5d")) == [is_open, early]
    assert ids(offers(gateway, tag=tag, within="120h")) == [is_open, early]
    assert ids(offers(gateway, tag=tag, within=0)) == [is_open]
    one = offers(gateway, tag=tag, user="ann", within="5d")[1]
    assert (one["state"], one["claimable"], one["why"]) == ("not_started", False, "not_started")


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_pages_have_all_of_them_once(limit, stack, gateway, tag):
    begins = ["2020-01-03T00:00:00Z", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z", None, None]
    made = [stack.coupon_make(5, tags=tag, **({"begin": at} if at else {})) for at in begins]
    wanted = [made[3], made[4], made[1], made[2], made[0]]
    for user in ({}, {"user": "ann"}):
        assert ids(offers(gateway, tag=tag, limit=limit, **user)) == wanted


def test_a_change_is_offered_once_the_command_has_answered(stack, gateway, tag):
    """At every gateway: the command has waited for it."""
    coupon = stack.coupon_make(5, tags=tag, publish=False)
    assert offers(gateway, tag=tag) == []
    stack.ctl("publish", coupon)
    for n in range(10):
        stack.coupon_edit(coupon, "--name", f"name {n}")
        assert [one["name"] for one in offers(gateway, tag=tag)] == [f"name {n}"]
    stack.coupon_edit(coupon, "--hidden", "yes")
    assert offers(gateway, tag=tag) == []
    assert gateway.issue(coupon, "ann")["code"] == 0  # who knows it may ask
    stack.coupon_edit(coupon, "--hidden", "no")
    assert ids(offers(gateway, tag=tag)) == [coupon]
    stack.coupon_edit(coupon, "--tags", "none")
    assert offers(gateway, tag=tag) == []
    stack.coupon_edit(coupon, "--tags", tag)
    for step, wanted in (("pause", []), ("resume", [coupon]), ("close", [])):
        stack.ctl(step, coupon)
        assert ids(offers(gateway, tag=tag)) == wanted, step


def test_a_stock_is_as_old_as_its_question(stack, gateway, gateway_make, tag):
    """The answer of Redis comes late, and is not shown again."""
    coupon, url = stack.coupon_make(10, tags=tag), stack.env_of("gateway")["REDIS_URL"]
    with Relay(port_of(url)) as relay:
        late = gateway_make(stack, REDIS_URL=relay.url(url), COUPON_CALL_TIMEOUT_MS=10000)
        with late.client() as client:
            assert [one["stock"] for one in offers(client, tag=tag)] == [10]
            time.sleep(OLD_S)  # then Redis is asked again
            relay.mode("hold", "down")
            client.send_line({"op": "offers", "tag": tag})
            time.sleep(OLD_S)  # so long the answer is on its way
            assert gateway.issue(coupon, "ann")["code"] == 0
            relay.mode("pass", "down")
            assert client.read_reply()["offers"][0]["stock"] in (9, 10)
            assert [one["stock"] for one in offers(client, tag=tag)] == [9]


def test_campaigns_that_are_inserted_past_couponctl(stack, gateway, pg, tag):
    """Each gateway is notified; all are read again after five minutes only."""
    added = pg.execute(
        "INSERT INTO coupon (id, name, total_num, valid_days, status, tags)"
        " SELECT coupon_id_next(), 'inserted', 5, 30, 'published', ARRAY[%s]"
        " FROM generate_series(1, 3) RETURNING id",
        (tag,),
    )
    wanted = sorted(str(coupon) for (coupon,) in added)

    def are_open():
        found = offers(gateway, tag=tag)
        return ids(found) == wanted and all(one["state"] == "open" for one in found)

    wait_until(are_open)


def test_over_http(stack, tag):
    coupon = stack.coupon_make(5, tags=tag)
    reply = requests.get(
        stack.http("/v1/offers"),
        {"tag": tag, "user": "ann", "within": "1d", "limit": 1},
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    assert ids(reply.json()["offers"]) == [coupon] and reply.json()["offers"][0]["claimable"]
    posted = requests.post(stack.http("/v1/offers"), json={"tag": tag}, timeout=60)
    assert ids(posted.json()["offers"]) == [coupon]


@pytest.mark.parametrize(
    "member, value, allowed",
    [
        ("within", -1, "at most 9 digits"),
        ("within", "7w", "at most 9 digits"),
        ("within", "", "at most 9 digits"),
        ("within", "7dd", "at most 9 digits"),
        ("within", "1000000000", "at most 9 digits"),
        ("within", 1000000000, "at most 9 digits"),
        ("within", "9999999999", "at most 9 digits"),
        ("tag", "Noon", "lower-case"),
        ("tag", "", "lower-case"),
        ("tag", "a,b", "lower-case"),
        ("tag", "x" * 33, "1 to 32"),
        ("tag", 7, "lower-case"),
        ("limit", 0, "1 to 100"),
        ("limit", 101, "1 to 100"),
        ("cursor", "00", "cursor of a reply to offers"),
        ("user", "a b", "byte 2"),
        ("coupon", "1001", "no such member"),
    ],
)
def test_bad_input_is_named(member, value, allowed, gateway):
    reply = gateway.call("offers", **{member: value})
    assert reply["code"] == 40 and member in reply["message"], reply
    assert allowed in reply["message"]
    assert gateway.call("ping")["code"] == 0


def test_a_cursor_is_of_its_user(stack, gateway, tag):
    for _ in range(2):
        stack.coupon_make(5, tags=tag)
    cursor = gateway.call("offers", tag=tag, limit=1, user="ann")["cursor"]
    for other in ({}, {"user": "bob"}):
        reply = gateway.call("offers", tag=tag, cursor=cursor, **other)
        assert reply["code"] == 40 and "cursor" in reply["message"], reply


def test_a_key_of_some_campaigns_sees_these(stack, gateway, tag):
    mine, other = (stack.coupon_make(5, tags=tag) for _ in range(2))
    key = stack.ctl("key", "create", "--name", "some", "--role", "issue", "--coupons", mine)
    with stack.client() as client:
        reply = client.call("auth", token=key)
        assert reply["code"] == 0, reply
        assert ids(offers(client, tag=tag)) == [mine]
    assert ids(offers(gateway, tag=tag)) == [mine, other]
