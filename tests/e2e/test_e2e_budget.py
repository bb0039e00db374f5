"""couponctl budget, and what the keeper makes of a budget that is used up."""

import json
import uuid

import pytest

from coupon_seen import rounds_pass
from stack import wait_until


def shown(stack, name):
    return json.loads(stack.ctl("budget", "show", name, "--json"))


def name_new():
    return f"b.{uuid.uuid4().hex}"


@pytest.fixture
def budget(stack):
    """budget(AMOUNT): the name of a new budget."""

    def make(amount, *options):
        name = name_new()
        stack.ctl("budget", "create", name, "--amount", amount, "--currency", "EUR", *options)
        return name

    return make


def test_create_show_list_set(stack, budget):
    name = budget("50000.00", "--by", "ann")
    one = shown(stack, name)
    assert [one[key] for key in ("amount", "held", "spent", "left")] == [5000000, 0, 0, 5000000]
    told = stack.ctl("budget", "edit", name, "--amount", "60000", "--by", "bob")
    assert told == f"budget {name} has 60000.00 EUR, of which 60000.00 are left"
    assert [(row["amount"], row["by"]) for row in shown(stack, name)["history"]] == [
        (5000000, "ann"),
        (6000000, "bob"),
    ]
    text = stack.ctl("budget", "show", name)
    assert "amount                 60000.00 EUR\n" in text and "50000.00 by ann;" in text
    assert "\n  campaigns  none\n" in text
    rows = [json.loads(line) for line in stack.ctl("budget", "list", "--json").splitlines()]
    assert [row["amount"] for row in rows if row["name"] == name] == [6000000]
    assert any(
        line.split()[:3] == [name, "EUR", "60000.00"]
        for line in stack.ctl("budget", "list").splitlines()
    )
    again = stack.ctl_run("budget", "create", name, "--amount", "1", "--currency", "EUR")
    assert (again.returncode, shown(stack, name)["amount"]) == (1, 6000000)


@pytest.mark.parametrize(
    "currency, text, amount",
    [
        ("EUR", "0.05", 5),
        ("JPY", "5000", 5000),
        ("KWD", "1.005", 1005),
        ("EUR", "90071992547409.91", 2**53 - 1),
        ("EUR", "90071992547409.92", None),
        ("EUR", "0.5", None),
        ("EUR", "1.", None),
        ("EUR", ".50", None),
        ("EUR", "-1.00", None),
        ("EUR", "1.000", None),
        ("EUR", "1e3", None),
        ("EUR", "1,00", None),
        ("EUR", "1.000.00", None),
        ("EUR", " 1.00", None),
        ("EUR", "+1.00", None),
        ("CLF", "1.0005", 10005),
        ("EUR", "7", 700),
        ("EUR", "", None),
        ("EUR", "1" * 40, None),
        ("JPY", "5.00", None),
    ],
)
def test_amounts(stack, currency, text, amount):
    options = ("--amount", text, "--currency", currency, "--json")
    told = stack.ctl_run("budget", "create", name_new(), *options)
    if amount is None:
        allowed = {
            "EUR": "0.00 to 90071992547409.91 EUR, with 2 digits after the point, or without",
            "JPY": "0 to 9007199254740991 JPY, without a point",
        }[currency]
        assert told.returncode == 2 and f'--amount is "{text}": allowed is {allowed}' in told.stderr
    else:
        assert json.loads(told.stdout)["amount"] == amount


@pytest.mark.parametrize(
    "words, status, sentence",
    [
        (("show", "no-such"), 9, "there is no budget no-such"),
        (("edit", "no-such", "--amount", "1"), 9, "there is no budget no-such"),
        (("create", "a b", "--amount", "1", "--currency", "EUR"), 2, 'NAME is "a b": allowed are'),
        (("create", "a", "--amount", "1", "--currency", "eur"), 2, '--currency is "eur": allowed'),
        (("create", "a", "--amount", "1"), 2, "needs --currency"),
        (("edit", "a"), 2, "needs --amount"),
    ],
)
def test_bad_input(stack, words, status, sentence):
    told = stack.ctl_run("budget", *words)
    assert told.returncode == status and sentence in told.stderr


def test_campaigns_of_a_budget(stack, budget):
    name = budget("10.00")
    needs = f"budget {name} is in EUR: a coupon that takes from it needs --amount-off"
    for terms in ("", "--amount-off 1 --currency USD", "--threshold 1 --currency EUR"):
        told = stack.ctl_run(
            "create", "--name", "n", "--total", "1", "--budget", name, *terms.split()
        )
        assert told.returncode == 1 and needs in told.stderr
    coupon = stack.coupon_make(1, publish=False, currency="EUR", amount_off="3.00", budget=name)
    assert shown(stack, name)["campaigns"] == [coupon]
    assert f"\n  campaigns  {coupon}\n" in stack.ctl("budget", "show", name)
    assert json.loads(stack.ctl("show", coupon, "--json"))["budget"] == {
        "name": name,
        "amount": 1000,
        "left": 1000,
    }
    assert f"{name}: 10.00 of 10.00 EUR are left" in stack.ctl("show", coupon)
    version = json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["version"]
    told = stack.ctl_run("edit", coupon, "--version", str(version), "--amount-off", "none")
    assert told.returncode == 1 and needs in told.stderr
    told = stack.ctl_run("edit", coupon, "--version", str(version), "--budget", "no-such")
    assert told.returncode == 9 and "there is no budget no-such" in told.stderr
    stack.coupon_edit(coupon, "--amount-off", "none", "--budget", "none")
    assert shown(stack, name)["campaigns"] == []


def test_a_spent_budget_pauses_its_campaigns(stack, gateway, use, budget):
    """Once each, and they go on when there is money again; a pause by an operator stays."""
    name = budget("10.00")
    terms = {"currency": "EUR", "amount_off": "6.00", "budget": name}
    one, two, by_hand = (stack.coupon_make(10, **terms) for _ in range(3))
    stack.ctl("pause", by_hand)
    receive = gateway.issue(one, "u", ack="issued")["receive"]
    assert use("use", receive) == "used"

    def states():
        return [
            json.loads(stack.ctl("show", coupon, "--json"))["state"]
            for coupon in (one, two, by_hand)
        ]

    wait_until(lambda: states() == ["paused"] * 3)
    wait_until(lambda: gateway.issue(two, "v")["status"] == "paused")
    told = stack.ctl_run("budget", "edit", name, "--amount", "5.99")
    assert told.returncode == 1
    assert '--amount is "5.99": allowed is at least the 6.00 that are spent or held' in told.stderr
    assert use("rollback", receive) == "rolled_back"
    wait_until(lambda: states() == ["issuing", "issuing", "paused"])
    wait_until(lambda: gateway.issue(two, "v")["status"] == "accepted")
    for coupon in (one, two):
        entries = [json.loads(line) for line in stack.ctl("history", coupon, "--json").splitlines()]
        assert [entry["action"] for entry in entries[-2:]] == ["pause", "resume"]
        assert [entry["action"] for entry in entries].count("pause") == 1
        assert entries[-1]["by"] == "coupon-keeper"
        assert "PASS" in stack.ctl("audit", coupon)


def test_the_keeper_frees_ended_holds(stack, gateway, use, pg_owner, budget):
    name = budget("10.00")
    coupon = stack.coupon_make(10, currency="EUR", amount_off="10.00", budget=name)
    receive = gateway.issue(coupon, "u", ack="issued")["receive"]
    assert use("hold", receive) == "held"
    wait_until(lambda: json.loads(stack.ctl("show", coupon, "--json"))["state"] == "paused")
    pg_owner.execute("UPDATE receive_use SET until = now() WHERE coupon_id = %s", (coupon,))
    rounds_pass(stack, 2)
    assert shown(stack, name)["held"] == 0
    wait_until(lambda: json.loads(stack.ctl("show", coupon, "--json"))["state"] == "issuing")
    assert "PASS" in stack.ctl("audit", coupon)
