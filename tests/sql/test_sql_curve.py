"""The curve of a coupon: which rows are added, and which are removed."""

import json

import pytest

from sql_db import array_text, batch_make


@pytest.fixture
def fence(owner):
    """The fence of a keeper that was just elected; all changes of the test are rolled back."""
    owner.execute("BEGIN")
    yield int(owner.query("keeper_fence", "f" * 40)[0]["fence"])
    owner.execute("ROLLBACK")


class Sale:
    def __init__(self, db, coupon, fence):
        self.db, self.coupon, self.fence = db, coupon, fence

    def add(self, stock, taken, fence=None):
        """(is_told, wait_ms), or None."""
        lists = [array_text([value]) for value in (self.coupon, stock + taken, stock, taken)]
        rows = self.db.query("curve_add", *lists, self.fence if fence is None else fence)
        return (rows[0]["is_told"] == "t", int(rows[0]["wait_ms"])) if rows else None

    def refuse(self, fence=None, **answers):
        self.db.query(
            "refusal_add",
            array_text([self.coupon] * len(answers)),
            array_text(answers),
            array_text(answers.values()),
            self.fence if fence is None else fence,
        )

    def refused(self):
        return json.loads(self.db.query("coupon_show", self.coupon)[0]["refused"] or "null")

    def rows(self, after=0, names=("num", "total", "stock", "taken", "issued", "rejected")):
        found = self.db.query("curve_rows", self.coupon, after, None)
        return [tuple(int(row[name]) for name in names) for row in found]

    def later(self, seconds, num=None):
        """Some time passes, or the last row gets another number."""
        self.db.execute(
            "UPDATE coupon_curve SET at = at - %s * interval '1 s', num = coalesce(%s, num)"
            " WHERE coupon_id = %s",
            seconds,
            num,
            self.coupon,
        )


@pytest.fixture
def sale(owner, coupon_new, fence):
    coupon = coupon_new(total_num=10)
    owner.query("coupon_status_set", coupon, "published")
    return Sale(owner, coupon, fence)


def test_a_row_where_something_has_changed(sale):
    assert sale.add(10, 0) == (True, 0) and sale.rows() == [], "nothing has happened yet"
    assert sale.add(9, 1)[0] and sale.rows() == [(1, 10, 9, 1, 0, 0)]
    sale.later(1)
    assert sale.add(9, 1) == (True, 0) and len(sale.rows()) == 1, "it is as before"
    sale.db.settle(*batch_make(sale.coupon, ["1"]))
    assert sale.add(9, 1)[0]
    assert sale.rows(after=1) == [(2, 10, 9, 1, 1, 0)], "PostgreSQL's numbers count as well"
    sale.later(1)
    assert sale.add(10, 0)[0] and sale.rows()[2:] == [(3, 10, 10, 0, 1, 0)], "back to nothing"


def test_what_is_rejected_and_voided(sale):
    """The curve counts every generation, as couponctl show does."""
    batch = batch_make(sale.coupon, ["1", "2", "3"])
    sale.db.settle(*batch, batch[0].but(idx=7))
    sale.db.query("coupon_generation_open", sale.coupon, 0, 0, sale.fence)
    sale.db.settle(*batch_make(sale.coupon, ["4"], generation=1))
    sale.db.query("coupon_void", sale.coupon, batch[1].batch, 1, "2", None)
    assert sale.add(7, 3)[0]
    assert sale.rows() == [(1, 10, 7, 3, 3, 2)]
    shown = sale.db.query("coupon_show", sale.coupon)[0]
    assert (shown["postgresql.issued"], shown["postgresql.rejected"]) == ("3", "2")


@pytest.mark.parametrize("num, gap_s", [(1, 0.9), (599, 0.9), (600, 60), (9999, 60), (10000, 3600)])
def test_the_time_between_two_rows(sale, num, gap_s):
    sale.add(9, 1)
    sale.later(0, num)
    assert sale.add(8, 2) == (False, gap_s * 1000)
    sale.later(gap_s - 0.1)
    assert sale.add(8, 2) == (False, 100) and len(sale.rows()) == 1
    sale.later(0.1)
    assert sale.add(8, 2) == (True, 0) and sale.rows(after=num) == [(num + 1, 10, 8, 2, 0, 0)]


def test_the_last_row_of_a_closed_coupon_comes_in_time(sale):
    sale.add(9, 1)
    sale.later(0, 600)
    sale.db.query("coupon_status_set", sale.coupon, "closed")
    assert sale.add(8, 2)[0] and sale.add(7, 3)[0] and len(sale.rows()) == 3
    assert sale.add(7, 3)[0] and len(sale.rows()) == 3


def test_what_is_refused(sale):
    sale.refuse(ended=2, out_of_stock=5)
    sale.refuse(ended=3)
    assert sale.refused() == {"ended": 5, "out_of_stock": 5}
    assert sale.add(10, 0)[0] and sale.rows(names=("num", "refused")) == [(1, 10)]
    assert sale.add(10, 0)[0]
    sale.refuse(ended=1)
    assert sale.add(10, 0) == (False, 900), "it is another"
    sale.db.query("coupon_status_set", sale.coupon, "closed")
    assert sale.add(10, 0) == (False, 900), "those alone do not make it the last one"
    sale.later(1)
    assert sale.add(10, 0)[0] and sale.rows(names=("num", "refused")) == [(1, 10), (2, 11)]


def test_what_is_refused_of_no_coupon_or_by_another_keeper(sale):
    sale.refuse(fence=sale.fence - 1, ended=1)
    sale.coupon, own = 987654321, sale.coupon
    sale.refuse(ended=1)
    assert sale.db.execute("SELECT FROM coupon_refusal WHERE coupon_id = 987654321") == []
    sale.coupon = own
    assert sale.refused() is None


def test_another_keeper_adds_nothing(sale):
    assert sale.add(9, 1, fence=sale.fence - 1) is None and sale.rows() == []


def test_nobody_waits_for_the_disk(sale):
    shown = "SHOW synchronous_commit"
    assert sale.db.execute(shown) == [("on",)]
    sale.add(9, 1)
    assert sale.db.execute(shown) == [("off",)], "until the transaction ends"


def test_old_rows_are_removed(sale):
    for number in range(3):
        assert sale.add(9 - number, 1 + number)[0]
        sale.later(399 * 86400 if number == 1 else 2 * 86400)
    sale.db.query("curve_expire")
    assert [row[0] for row in sale.rows()] == [3]
