"""Budgets: what operators change of them, which campaigns take from them, and which they pause."""

import psycopg
import pytest

from sql_db import Operation, batch_make
from stack import wait_until

RUN_ID = "r" * 40


def test_changes_are_recorded(db, budget):
    name = budget(1000)
    db.execute("SELECT set_config('couponmq.by', 'ann', false)")
    assert db.query("budget_set", name, 400) == [{"taken": "0", "is_set": "t"}]
    assert db.query("budget_set", name, 400) == [{"taken": "0", "is_set": "t"}]
    told = db.query("budget_history", name)
    assert [(row["amount"], row["by"]) for row in told[1:]] == [("400", "ann")]
    assert told[0]["amount"] == "1000" and db.query("budget_set", "none", 1) == []
    assert db.query("budget_create", name, "EUR", 5) == [], "it is there"


def test_never_less_than_what_is_taken(db, budget, coupon_new):
    name = budget(1000)
    coupon = coupon_new(amount_off=300, currency="EUR", budget=name)
    receives = batch_make(coupon, ["1", "2"])
    db.settle(*receives)
    db.use(Operation("use", "a", receives[:1]), Operation("hold", "a", receives[1:]))
    assert db.query("budget_set", name, 599) == [{"taken": "600", "is_set": "f"}]
    assert db.query("budget_set", name, 600) == [{"taken": "600", "is_set": "t"}]
    (row,) = db.query("budget_list", name, None, None)
    assert [row[one] for one in ("amount", "held", "spent", "left")] == ["600", "300", "300", "0"]
    assert row["campaigns"] == f"{{{coupon}}}"
    assert len(db.query("budget_history", name)) == 2, "uses are no changes by operators"


def test_uses_are_taken_back_meanwhile(db, db_new, budget, background):
    """What there was before decides, or else what there is now."""
    name = budget(1000)
    db.execute("UPDATE budget SET spent = 800 WHERE name = %s", name)
    waiting, other = db_new(), db_new()
    other.execute("SET statement_timeout = '10s'")
    db.execute("BEGIN")
    db.execute("UPDATE budget SET spent = 200 WHERE name = %s", name)
    more = background(waiting.query, "budget_set", name, 900)
    wait_until(lambda: db.is_blocked(waiting.pid))
    assert other.query("budget_set", name, 500) == [{"taken": "800", "is_set": "f"}]
    db.execute("COMMIT")
    assert more.result() == [{"taken": "800", "is_set": "t"}]
    assert other.query("budget_set", name, 500) == [{"taken": "200", "is_set": "t"}]


@pytest.mark.parametrize(
    "terms, error",
    [
        ({"amount_off": 1, "currency": "USD"}, psycopg.errors.ForeignKeyViolation),
        ({"threshold": 1, "currency": "EUR"}, psycopg.errors.CheckViolation),
        ({"percent_off": 1}, psycopg.errors.CheckViolation),
    ],
)
def test_terms_that_do_not_fit(db, budget, coupon_new, terms, error):
    with pytest.raises(error):
        coupon_new(budget=budget(1), **terms)


class Sale:
    """Campaigns that share a budget, and a keeper."""

    def __init__(self, db, coupons, budget):
        self.db, self.coupons, self.budget = db, coupons, budget
        self.fence = db.query("keeper_fence", RUN_ID)[0]["fence"]

    def due(self):
        found = {row["id"] for row in self.db.query("budget_due", 10000)}
        return [str(one) in found for one in self.coupons]

    def pause(self, coupon, fence=None):
        row = self.db.query("budget_pause", coupon, fence or self.fence)[0]
        return row["is_elected"] + row["is_moved"]

    def state(self, coupon):
        return self.db.execute("SELECT status, pause_reason FROM coupon WHERE id = %s", coupon)[0]


@pytest.fixture
def sale(db, budget, coupon_new):
    """Two campaigns of 300 off, one of 10 percent, and 1000 for them; all is rolled back."""
    name = budget(1000)
    terms = ({"amount_off": 300}, {"amount_off": 300}, {"percent_off": 10})
    coupons = [coupon_new(currency="EUR", budget=name, **one) for one in terms]
    db.execute("BEGIN")
    for coupon in coupons:
        db.query("coupon_status_set", coupon, "published")
    yield Sale(db, coupons, name)
    db.execute("ROLLBACK")


def test_a_budget_pauses_what_it_has_no_room_for(db, sale):
    first, other, percent = sale.coupons
    assert sale.due() == [False, False, False] and sale.pause(first) == "tf"
    db.query("budget_set", sale.budget, 299)
    assert sale.due() == [True, True, False]
    assert sale.pause(first, "0") == "ff", "another keeper was elected"
    assert sale.pause(first) == "tt" and sale.pause(first) == "tf"
    assert sale.state(first) == ("paused", "budget") and sale.due() == [False, True, False]
    db.query("coupon_status_set", other, "paused")
    db.query("budget_set", sale.budget, 0)
    assert sale.due() == [False, False, True] and sale.pause(percent) == "tt"
    db.query("budget_set", sale.budget, 300)
    assert sale.due() == [True, False, True], "an operator has paused the second"
    for coupon in sale.coupons:
        sale.pause(coupon)
    assert sale.state(first) == sale.state(percent) == ("published", None)
    assert sale.state(other) == ("paused", None)


def test_what_operators_make_of_a_pause_by_a_budget(db, sale):
    first, other, percent = sale.coupons
    db.query("budget_set", sale.budget, 0)
    for coupon in sale.coupons:
        assert sale.pause(coupon) == "tt"
    assert db.query("coupon_status_set", first, "paused")[0]["status"] == "paused"
    assert sale.state(first) == ("paused", None), "now it is paused by an operator"
    db.query("coupon_status_set", other, "published")
    assert sale.state(other) == ("published", None) and sale.due() == [False, True, False]
    db.query("coupon_edit", percent, '{"budget": null}')
    assert sale.due() == [False, True, True], "without a budget it goes on"
    assert sale.pause(percent) == "tt" and sale.state(percent) == ("published", None)
    sale.pause(other)
    db.query("coupon_status_set", other, "closed")
    assert sale.state(other) == ("closed", None)


def test_the_pause_is_a_change_of_the_campaign(db, sale):
    first = sale.coupons[0]
    db.execute("UPDATE coupon SET events_on = true WHERE id = %s", first)
    db.query("budget_set", sale.budget, 0)
    sale.pause(first)
    db.query("budget_set", sale.budget, 300)
    sale.pause(first)
    paused, resumed = db.query("coupon_history", first, 0, None)[-2:]
    assert (paused["action"], resumed["action"]) == ("pause", "resume")
    assert paused["changes"] == '{"pause_reason": [null, "budget"]}'
    events = db.execute(
        "SELECT detail[1]->>'action', detail[1]->'changes' FROM event_log WHERE coupon = ARRAY[%s]"
        " AND type = 'campaign.changed' ORDER BY id DESC LIMIT 2",
        first,
    )
    assert events == [
        ("resume", {"pause_reason": ["budget", None]}),
        ("pause", {"pause_reason": [None, "budget"]}),
    ]
