"""What the receives of a user take off an amount, the best first."""

import itertools
import json
import uuid

import pytest

EUR = {"amount": 10_000, "currency": "EUR"}


@pytest.fixture
def user():
    return f"quoted-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def issued(stack, gateway, user):
    """issued(name, **terms): a receive of the user of a new campaign."""

    def make(name, **terms):
        coupon = stack.coupon_make(9, name=name, **terms)
        reply = gateway.issue(coupon, user, ack="issued")
        assert reply["status"] == "issued", reply
        return reply["receive"]

    return make


def quoted(gateway, user, **more):
    reply = gateway.call("quote", user=user, **{**EUR, **more})
    assert (reply["code"], reply["status"]) == (0, "ok"), reply
    return reply


def names(gateway, user, **more):
    return [one["name"] for one in quoted(gateway, user, **more)["receives"]]


def test_the_best_comes_first(gateway, user, issued):
    receive = issued("fixed", amount_off="7.00", currency="EUR")
    issued("percent", percent_off="12.5", currency="EUR")
    issued("capped", percent_off="50", cap="3.00", currency="EUR")
    issued("gift")  # of which only the shop knows what it is
    reply = quoted(gateway, user)
    assert {name: reply[name] for name in ("user", "amount", "currency")} == {"user": user, **EUR}
    assert [(one["name"], one["amount_off"]) for one in reply["receives"]] == [
        ("percent", 1250), ("fixed", 700), ("capped", 300), ("gift", 0),
    ]  # fmt: skip
    fixed = reply["receives"][1]
    assert (fixed["receive"], fixed["slot"]) == (receive, 1)
    assert fixed["coupon"] == receive.split(".")[0] and "valid_to" in fixed
    # Of a smaller amount another one takes more off, and none more than the amount.
    assert names(gateway, user, amount=1000) == ["fixed", "capped", "percent", "gift"]
    assert quoted(gateway, user, amount=400)["receives"][0]["amount_off"] == 400
    assert names(gateway, user, limit=2) == ["percent", "fixed"]


def test_by_couponctl(stack, user, issued):
    receive = issued("fixed", amount_off="7.00", currency="EUR")
    words = ("--amount", "100.00", "--currency", "EUR")
    told = json.loads(stack.ctl("receive", "quote", "--user", user, *words, "--json"))
    assert [one["receive"] for one in told["receives"]] == [receive]
    text = stack.ctl("receive", "quote", "--user", user, *words)
    assert f"receive    {receive}" in text and "amount_off 7.00" in text
    for both in ((), (receive, "--user", user)):
        told = stack.ctl_run("receive", "quote", *both, *words)
        assert told.returncode == 2 and "either a receive or --user" in told.stderr, told
    told = stack.ctl_run("receive", "quote", "--user", "a b", *words)
    assert told.returncode == 2 and "user" in told.stderr, told


def test_of_equal_ones_the_earlier_end_comes_first(gateway, user, issued):
    terms = {"amount_off": "7.00", "currency": "EUR"}
    issued("endless", valid_from="2020-01-01T00:00:00Z", valid_to="2098-01-01T00:00:00Z", **terms)
    issued("late", valid_days=30, **terms)
    issued("soon", valid_days=3, **terms)
    assert names(gateway, user) == ["soon", "late", "endless"]


def test_what_an_order_could_not_use_is_left_out(stack, gateway, user, issued, pg):
    terms = {"amount_off": "7.00", "currency": "EUR"}
    issued("threshold", threshold="200.00", **terms)
    issued("dollars", amount_off="7.00", currency="USD")
    issued("later", valid_from="2090-01-01T00:00:00Z", valid_to="2098-01-01T00:00:00Z", **terms)
    held, used = issued("held", **terms), issued("used", **terms)
    voided = issued("voided", **terms)
    kept = issued("kept", void_returns="no", **terms)
    budget = f"b-{uuid.uuid4().hex[:12]}"
    stack.ctl("budget", "create", budget, "--amount", "10.00", "--currency", "EUR")
    issued("poor", budget=budget, **terms)
    stack.ctl("budget", "edit", budget, "--amount", "6.00")
    issued("good", **terms)
    assert gateway.call("hold", receive=held, order="o", **EUR)["status"] == "held"
    assert gateway.call("use", receive=used, order="o", **EUR)["status"] == "used"
    for one in (voided, kept):
        stack.ctl("void", one)
    assert names(gateway, user) == ["good"]
    assert gateway.call("release", receive=held, order="o")["status"] == "released"
    assert sorted(names(gateway, user)) == ["good", "held"]
    stack.ctl("budget", "edit", budget, "--amount", "7.00")
    assert sorted(names(gateway, user)) == ["good", "held", "poor"]
    assert names(gateway, user, amount=20_000)[:1] and len(names(gateway, user, amount=20_000)) == 4
    assert names(gateway, user, currency="USD") == ["dollars"]


def test_the_first_one_can_be_used(gateway, user, issued):
    """Until none is left."""
    for percent in ("10", "20", "30"):
        issued(percent, percent_off=percent, currency="EUR")
    taken = []
    for n in itertools.count():
        receives = quoted(gateway, user)["receives"]
        if not receives:
            break
        best = receives[0]
        reply = gateway.call("use", receive=best["receive"], order=f"o{n}", **EUR)
        assert (reply["status"], reply["amount_off"]) == ("used", best["amount_off"])
        taken.append(best["amount_off"])
    assert taken == [3000, 2000, 1000]


@pytest.mark.parametrize(
    "members, told",
    [
        ({"user": "u", "amount": 1}, "currency"),
        ({"user": "u", "currency": "EUR"}, "amount"),
        ({"amount": 1, "currency": "EUR"}, "either coupon, or user"),
        ({"user": "u", "coupon": 1, "amount": 1, "currency": "EUR"}, "either coupon, or user"),
        ({"coupon": 1, "amount": 1, "currency": "EUR", "limit": 1}, "limit"),
        ({"user": "u", "amount": 1, "currency": "EUR", "limit": 101}, "limit"),
        ({"user": "u", "amount": 1, "currency": "EUR", "cursor": "00"}, "cursor"),
        ({"user": "u", "amount": 1, "currency": "eur"}, "currency"),
        ({"user": "u", "amount": -1, "currency": "EUR"}, "amount"),
    ],
)
def test_bad_input_is_named(gateway, members, told):
    reply = gateway.call("quote", **members)
    assert reply["code"] == 40 and told in reply["message"], reply


def test_a_user_without_coupons(gateway, user):
    assert quoted(gateway, user)["receives"] == []


def test_a_key_of_some_campaigns_sees_these(stack, user, issued):
    terms = {"amount_off": "7.00", "currency": "EUR"}
    mine, _ = issued("mine", **terms), issued("other", **terms)
    create = ("key", "create", "--name", "some", "--coupons", mine.split(".")[0], "--role")
    with stack.client() as client:
        assert client.call("auth", token=stack.ctl(*create, "use"))["code"] == 0
        assert names(client, user) == ["mine"]
    with stack.client() as client:
        assert client.call("auth", token=stack.ctl(*create, "issue"))["code"] == 0
        assert client.call("quote", user=user, **EUR)["status"] == "forbidden"
        assert client.call("quote", coupon=mine.split(".")[0], **EUR)["code"] == 0
