"""Amounts of money: people write 7.00 EUR, all programs have 700; each member that is an amount, by
each way in, becomes the same in PostgreSQL, and is shown as it was written."""

import itertools
import json
import re
import uuid

import pytest
from admin_client import ok, problem

from stack import wait_until

# What people write, and what is stored; tests/unit/test_ctl_money.c has more.
AMOUNTS = [("EUR", "7.00", 700), ("JPY", "700", 700), ("KWD", "0.700", 700)]
WRONG = [("EUR", "7.5"), ("EUR", "7.000"), ("EUR", "7,00"), ("JPY", "7.00"), ("KWD", "0.70")]
TERMS = {
    "amount_off": {},
    "cap": {"percent_off": "10"},
    "threshold": {"percent_off": "10"},
}
ONE = {"JPY": 1, "EUR": 100, "KWD": 1000}
ORDERS = ("hold", "use", "quote")
# Every option that is an amount, by its command.
OPTIONS = {
    *itertools.product(("create", "edit"), TERMS),
    ("budget create", "amount"),
    ("budget edit", "amount"),
    *((f"receive {action}", "amount") for action in (*ORDERS, "rollback")),
}


def options_of(terms):
    return [f"--{name.replace('_', '-')}={value}" for name, value in terms.items()]


class Way:
    """How an amount gets in. Each method returns the id or name of what it has changed."""

    def __init__(self, stack, api, gateway, form):
        self.stack, self.api, self.gateway, self.form = stack, api, gateway, form

    def value(self, text, units):
        return {"command": text, "minor": f"minor:{units}", "number": units}.get(
            self.form, str(units)
        )

    @property
    def is_command(self):
        return self.form in ("command", "minor")

    def create(self, **terms):
        if self.is_command:
            return self.stack.ctl("create", "--name", "n", "--total", 9, *options_of(terms))
        return ok(self.api("POST", "/campaigns", {"name": "n", "total": 9, **terms}), 201)["coupon"]

    def edit(self, coupon, **terms):
        if self.is_command:
            self.stack.coupon_edit(coupon, *options_of(terms))
        else:
            shown = ok(self.api("GET", f"/campaigns/{coupon}"))
            etag = f'"{shown["postgresql"]["version"]}"'
            ok(self.api("PATCH", f"/campaigns/{coupon}", terms, If_Match=etag))
        return coupon

    def budget_create(self, **terms):
        name = f"b.{uuid.uuid4().hex}"
        if self.is_command:
            self.stack.ctl("budget", "create", name, *options_of(terms))
        else:
            ok(self.api("POST", "/budgets", {"name": name, **terms}), 201)
        return name

    def budget_set(self, name, amount):
        if self.is_command:
            self.stack.ctl("budget", "edit", name, f"--amount={amount}")
        else:
            ok(self.api("PATCH", f"/budgets/{name}", {"amount": amount}))
        return name

    def order(self, action, receive, **terms):
        """What it answers."""
        if self.is_command:
            words = [] if action == "quote" else ["--order", "a"]
            words = ["receive", action, receive, *words, *options_of(terms), "--json"]
            return json.loads(self.stack.ctl(*words))
        path = "/receives/" + receive
        if action == "quote":
            query = f"?amount={terms['amount']}&currency={terms['currency']}"
            return ok(self.api("GET", f"{path}/quote{query}"))
        return ok(self.api("POST", f"{path}/{action}", {"order": "a", **terms}))


@pytest.fixture(params=["command", "minor", "number", "text"])
def way(request, stack, api, gateway):
    return Way(stack, api, gateway, request.param)


def test_the_table_has_every_option(stack):
    """By what --help says of each command."""
    found = set()
    commands = re.findall(r"^  ([a-z]+) +[a-z]", stack.ctl("--help"), re.M)
    assert len(commands) > 20
    for command in commands:
        page = stack.ctl(command, "--help")
        parts = re.findall(rf"^  ({command} [a-z]+)", page, re.M) if "Commands:" in page else []
        for name in parts or [command]:
            page = stack.ctl(*name.split(), "--help")
            options = re.findall(r"^  --([a-z-]+) AMOUNT$", page, re.M)
            found |= {(name, option.replace("-", "_")) for option in options}
    assert found == OPTIONS


@pytest.mark.parametrize("currency, text, units", AMOUNTS)
@pytest.mark.parametrize("members", [("amount_off",), ("cap", "threshold")])
def test_terms(stack, way, pg, members, currency, text, units):
    terms = {member: way.value(text, units) for member in members}
    terms |= {**TERMS[members[0]], "currency": currency}
    created = way.create(**terms)
    edited = way.edit(way.create(), **terms)
    for coupon in (created, edited):
        row = f"SELECT currency, {', '.join(members)} FROM coupon WHERE id = %s"
        assert pg.execute(row, (coupon,)).fetchone() == (currency, *[units] * len(members))
        discount = json.loads(stack.ctl("show", coupon, "--json"))["discount"]
        assert ok(way.api("GET", f"/campaigns/{coupon}"))["discount"] == discount
        assert [discount[member] for member in members] == [units] * len(members)
        assert stack.ctl("show", coupon).count(f"{text} {currency}") == len(members)
    history = ok(way.api("GET", f"/campaigns/{edited}/history"))["history"]
    assert history[-1]["currency"] == currency
    printed = stack.ctl("history", edited) + "\n"
    for member in members:
        assert history[-1]["changes"][member] == [None, units]
        assert f"{member}: null -> {text} {currency}\n" in printed


@pytest.mark.parametrize("currency, text, units", AMOUNTS)
def test_budgets(stack, way, pg, currency, text, units):
    created = way.budget_create(amount=way.value(text, units), currency=currency)
    one = way.budget_create(amount=way.value("1", ONE[currency]), currency=currency)
    for name in (created, way.budget_set(one, way.value(text, units))):
        row = pg.execute("SELECT amount FROM budget WHERE name = %s", (name,)).fetchone()
        assert row == (units,)
        assert ok(way.api("GET", f"/budgets/{name}"))["left"] == units
        assert f" {text} {currency}\n" in stack.ctl("budget", "show", name)


@pytest.mark.parametrize("currency, text, units", AMOUNTS)
def test_amounts_of_orders(stack, way, pg, gateway, currency, text, units):
    coupon = stack.coupon_make(9, limit=2, percent_off=100, currency=currency)
    amounts = {"amount": way.value(text, units), "currency": currency}
    receives = [gateway.issue(coupon, "u", ack="issued")["receive"] for _ in range(2)]
    quote = way.order("quote", receives[0], **amounts)
    assert (quote["amount"], quote["amount_off"]) == (units, units)
    for action, receive in zip(("hold", "use"), receives):
        assert way.order(action, receive, **amounts)["amount_off"] == units
        by_lines = gateway.call(action, receive=receive, order="a", amount=units, currency=currency)
        assert by_lines["amount_off"] == units
        row = pg.execute(
            "SELECT DISTINCT amount, amount_off FROM use_operation WHERE coupon_id = %s"
            " AND action = %s",
            (coupon, action),
        )
        assert row.fetchall() == [(units, units)]
        for words in (("receive", "show", receive), ("trace", receive)):
            assert f", {text} {currency} off" in stack.ctl(*words)
    said = stack.ctl("receive", "quote", receives[0], "--amount", text, "--currency", currency)
    assert re.findall(r"^amount(?:_off)? +(.*)$", said, re.M) == [text, text]


@pytest.mark.parametrize("currency, text", WRONG)
def test_what_is_no_amount_is_refused(stack, api, gateway, currency, text):
    """By commands with the field, the value and what is allowed; by the API, which has integers."""
    coupon = stack.coupon_make(9)
    receive = gateway.issue(coupon, "u", ack="issued")["receive"]
    seen = json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["version"]
    budget = f"b.{uuid.uuid4().hex}"
    stack.ctl("budget", "create", budget, "--amount", "1", "--currency", currency)
    words = {
        "create": ("--name", "n", "--total", 1, "--currency", currency),
        "edit": (coupon, "--version", seen, "--currency", currency),
        "budget create": ("other", "--currency", currency),
        "budget edit": (budget,),
        **{
            f"receive {action}": (receive, "--currency", currency)
            for action in (*ORDERS, "rollback")
        },
    }
    for command, member in OPTIONS:
        extra = options_of(TERMS.get(member, {}))
        option = member.replace("_", "-")
        told = stack.ctl_run(*command.split(), *words[command], *extra, f"--{option}={text}")
        assert (told.returncode, told.stdout) == (2, ""), told
        assert f'--{option} is "{text}": allowed is 0' in told.stderr.replace("is 1 to", "is 0 to")
        assert f" {currency}, with" in told.stderr, told
    allowed = "allowed is an integer from 0 to 9007199254740991, in the smallest unit"
    for value in (text, 7.5, -7, True, [700], {"EUR": 700}):
        body = {"name": "n", "total": 1, "amount_off": value, "currency": currency}
        told = problem(api("POST", "/campaigns", body), 400)
        assert told.startswith(
            f"amount_off is {json.dumps(value, separators=(',', ':'))}: {allowed}"
        ), told
        told = problem(api("PATCH", f"/budgets/{budget}", {"amount": value}), 400)
        assert told.startswith(
            f"amount is {json.dumps(value, separators=(',', ':'))}: {allowed}"
        ), told
    told = api("GET", f"/receives/{receive}/quote", {"amount": 1})
    assert told.status_code == 400


def test_what_the_api_is_told_is_in_its_unit(api):
    """It is not told what people are told."""
    terms = {"name": "n", "total": 1, "currency": "EUR"}
    told = problem(api("POST", "/campaigns", {**terms, "amount_off": 0}), 400)
    assert told == (
        'amount_off is "0": allowed is an integer from 1 to 9007199254740991, in the smallest unit'
        " of the currency"
    )
    assert "2^53" in problem(api("POST", "/campaigns", {**terms, "amount_off": 2**53}), 400)
    made = ok(api("POST", "/campaigns", {**terms, "amount_off": 500}), 201)["coupon"]
    ok(api("PATCH", f"/campaigns/{made}", {"amount_off": None}, If_Match='"1"'))
    assert ok(api("GET", f"/campaigns/{made}"))["discount"]["amount_off"] is None


def test_a_budget_of_the_api_is_not_below_what_is_taken(stack, api, gateway, use):
    name = f"b.{uuid.uuid4().hex}"
    ok(api("POST", "/budgets", {"name": name, "amount": 1000, "currency": "EUR"}), 201)
    coupon = stack.coupon_make(9, amount_off="6.00", currency="EUR", budget=name)
    assert use("hold", gateway.issue(coupon, "u", ack="issued")["receive"]) == "held"
    told = problem(api("PATCH", f"/budgets/{name}", {"amount": 599}), 409)
    assert told == 'amount is "599": allowed is at least the 600 that are spent or held'
    text = stack.ctl("show", coupon)
    assert f"{name}: 4.00 of 10.00 EUR are left" in text and "discount     6.00 EUR" in text


def test_an_amount_needs_its_currency(stack):
    told = stack.ctl_run("receive", "quote", "1001.u.01JD8Z6Q4TMC4VJ0FQ7YXN5Z3K.0", "--amount", "7")
    assert told.returncode == 2 and '--amount is "7": an amount needs --currency' in told.stderr


def test_history_has_the_currency_of_each_side(stack):
    coupon = stack.coupon_make(9, publish=False, amount_off="7.00", currency="EUR")
    stack.coupon_edit(coupon, "--amount-off", "700", "--currency", "JPY")
    stack.coupon_edit(coupon, "--amount-off", "none")
    text = stack.ctl("history", coupon) + "\n"
    assert "amount_off: 700 JPY -> null\n" in text
    assert (
        "amount_off"
        in json.loads(stack.ctl("history", coupon, "--json").splitlines()[-1])["changes"]
    )
    stack.coupon_edit(coupon, "--amount-off", "7.00", "--currency", "EUR")
    stack.coupon_edit(coupon, "--amount-off", "0.750", "--currency", "KWD")
    assert "amount_off: 7.00 EUR -> 0.750 KWD" in stack.ctl("history", coupon)


def test_the_audit_names_amounts_as_people_do(stack, gateway, use, pg_owner):
    name = f"b.{uuid.uuid4().hex}"
    stack.ctl("budget", "create", name, "--amount", "10.00", "--currency", "EUR")
    coupon = stack.coupon_make(9, amount_off="6.00", currency="EUR", budget=name)
    assert use("use", gateway.issue(coupon, "u", ack="issued")["receive"]) == "used"
    wait_until(lambda: "PASS" in stack.ctl_run("audit", coupon).stdout)
    pg_owner.execute("UPDATE budget SET spent = 601 WHERE name = %s", (name,))
    told = stack.ctl_run("audit", coupon).stdout
    pg_owner.execute("UPDATE budget SET spent = 600 WHERE name = %s", (name,))
    assert f"its budget {name} of 10.00 EUR has 0.00 held and 6.01 spent" in told
