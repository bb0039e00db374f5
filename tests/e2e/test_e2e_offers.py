"""The discount and the metadata of a coupon in `coupon` and `coupons`, over the socket and HTTP."""

import json
import uuid

import pytest
import requests

from openapi import answer_check
from relay import Relay, port_of
from stack import wait_until

PAGE_MAX = 1 << 18  # bytes of a page


@pytest.fixture
def user():
    """One that has no coupons."""
    return str(uuid.uuid4())


@pytest.fixture
def proxy(stack):
    middle = Relay(port_of(stack.env["DATABASE_URL"]))
    yield middle
    middle.close()


def offer_of(reply):
    return {name: reply[name] for name in ("discount", "metadata", "partial") if name in reply}


def offer(client, coupon):
    reply = client.call("coupon", coupon=coupon)
    assert reply["state"] == "open", reply
    return offer_of(reply)


def edit(stack, coupon, *options):
    version = json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["version"]
    stack.ctl("edit", coupon, "--version", version, *options)


DISCOUNT = {"percent_off": "12.5", "cap": "5.00", "threshold": "20.00", "currency": "EUR"}
SHOWN = {
    "discount": {"percent_off": 12.5, "cap": 500, "threshold": 2000, "currency": "EUR"},
    "metadata": {"theme": "noon"},
}


def test_what_is_set_is_shown(stack, gateway, make_coupon, user):
    coupon = make_coupon(5, **DISCOUNT, metadata='{"theme":"noon"}')
    assert offer(gateway, coupon) == SHOWN
    assert gateway.issue(coupon, user, ack="issued")["status"] == "issued"
    (entry,) = gateway.call("coupons", user=user)["coupons"]
    assert offer_of(entry) == SHOWN
    for path, query in (("/v1/coupon", {"coupon": coupon}), ("/v1/coupons", {"user": user})):
        by_query = answer_check(path, "GET", requests.get(stack.http(path), query, timeout=60))
        by_body = requests.post(stack.http(path), json=query, timeout=60)
        assert answer_check(path, "POST", by_body).json() == by_query.json()
        assert "discount" in by_query.text and "metadata" in by_query.text


def test_what_is_not_set_is_absent(gateway, make_coupon, user):
    assert offer(gateway, make_coupon(5)) == {}
    coupon = make_coupon(5, amount_off="90071992547409.91", currency="USD")
    assert offer(gateway, coupon) == {"discount": {"amount_off": 2**53 - 1, "currency": "USD"}}
    coupon = make_coupon(5, percent_off="0.01")
    assert offer(gateway, coupon) == {"discount": {"percent_off": 0.01}}
    coupon = make_coupon(5, metadata="{}")
    assert offer(gateway, coupon) == {"metadata": {}}
    assert gateway.issue(coupon, user, ack="issued")["status"] == "issued"
    (entry,) = gateway.call("coupons", user=user)["coupons"]
    assert offer_of(entry) == {"metadata": {}}


def test_metadata_is_as_it_was_given(gateway, make_coupon):
    """Digits and texts too, on one line."""
    text = '{"n": 12345678901234567890.5000, "t": "a \\"\u2603\\"", "o": {"": [null]}}'
    coupon = make_coupon(5, metadata=text)
    gateway.send_line({"op": "coupon", "coupon": coupon})
    line = gateway.read_line()
    assert '"n": 12345678901234567890.5000' in line
    assert json.loads(line)["metadata"] == json.loads(text)


def test_an_edit_is_shown_at_once(stack, gateway, gateway_make, make_coupon, user):
    """By each gateway that has shown what was before."""
    coupon = make_coupon(5, **DISCOUNT, metadata='{"theme":"noon"}')
    gateway.issue(coupon, user, ack="issued")
    with gateway_make(stack).client() as other:
        for client in (gateway, other):
            assert offer(client, coupon) == SHOWN
        for options, shown in (
            (("--amount-off", "0.05", "--currency", "USD"), {"amount_off": 5, "currency": "USD"}),
            (("--amount-off", "none"), None),
        ):
            edit(stack, coupon, *options)
            wanted = {"discount": shown} if shown else {}
            for client in (gateway, other):
                assert offer(client, coupon) == {**wanted, "metadata": {"theme": "noon"}}
                (entry,) = client.call("coupons", user=user)["coupons"]
                assert offer_of(entry) == {**wanted, "metadata": {"theme": "noon"}}
        edit(stack, coupon, "--metadata", "none")
        assert offer(gateway, coupon) == offer(other, coupon) == {}


@pytest.mark.long
def test_a_change_without_a_version_is_shown_later(gateway, make_coupon, pg_owner):
    """As PostgreSQL that was put back, whose next edit has the same version."""
    coupon = make_coupon(5, metadata='{"a":1}')
    assert offer(gateway, coupon) == {"metadata": {"a": 1}}
    pg_owner.execute("UPDATE coupon SET metadata = '{}' WHERE id = %s", (coupon,))
    wait_until(lambda: offer(gateway, coupon) == {"metadata": {}})


def test_postgresql_is_away(stack, make_coupon, gateway_make, proxy):
    """What is known stays; what is not known delays the first reply only."""
    known, unknown = (make_coupon(5, **DISCOUNT, metadata='{"theme":"noon"}') for _ in range(2))
    gateway = gateway_make(
        stack,
        DATABASE_READ_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=2000,
    )
    with gateway.client() as client:
        assert offer(client, known) == SHOWN
        proxy.mode("hold")
        assert offer(client, unknown) == {"partial": True}
        assert offer(client, unknown) == {"partial": True}
        assert offer(client, known) == SHOWN
        edit(stack, known, "--metadata", "none")
        wait_until(lambda: offer(client, known) == {"partial": True})
        proxy.cut()
        wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 0)
        assert offer(client, unknown) == {"partial": True}
        proxy.heal()
        wait_until(lambda: offer(client, unknown) == SHOWN)
        wait_until(lambda: offer(client, known) == {"discount": SHOWN["discount"]})


def test_too_many_reads_wait(stack, make_coupon, gateway_make, proxy):
    """Beyond COUPON_READS_MAX the reply comes without them."""
    coupons = [make_coupon(5, metadata='{"a":1}') for _ in range(5)]
    gateway = gateway_make(
        stack,
        DATABASE_READ_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_READS_MAX=1,
    )
    wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 2)
    with gateway.client() as client:
        proxy.mode("hold")
        for coupon in coupons:
            client.send_line({"op": "coupon", "coupon": coupon, "id": coupon})
        first = [client.read_reply() for _ in range(2)]
        assert [one["partial"] for one in first] == [True, True]
        proxy.heal()
        others = [client.read_reply() for _ in range(3)]
        assert sorted(one["id"] for one in first + others) == sorted(coupons)
        for coupon in coupons:
            wait_until(lambda coupon=coupon: offer(client, coupon) == {"metadata": {"a": 1}})


def test_pages_of_the_longest_metadata(gateway, make_coupon, user):
    text = '{"a":"' + "x" * 4087 + '"}'
    assert len(text) == 4095
    coupon = make_coupon(100, limit=100, metadata=text)
    issues = [{"op": "issue", "coupon": coupon, "user": user, "ack": "issued"} for _ in range(100)]
    assert {reply["status"] for reply in gateway.pipeline(issues)} == {"issued"}
    slots, more, pages_n = [], {}, 0
    while more is not None:
        gateway.send_line({"op": "coupons", "user": user, "limit": 100, **more})
        line = gateway.read_line()
        assert len(line) < PAGE_MAX
        reply, pages_n = json.loads(line), pages_n + 1
        assert all(len(one["metadata"]["a"]) == 4087 for one in reply["coupons"])
        slots += [one["slot"] for one in reply["coupons"]]
        more = {"cursor": reply["cursor"]} if "cursor" in reply else None
    assert sorted(slots) == list(range(1, 101)) and pages_n > 1
