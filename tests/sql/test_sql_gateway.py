"""gateway_alive(), gateway_gone(): which gateway processes the keeper waits for."""

from uuid import uuid4

import pytest


def alive(db, gateway, place="here", is_new=False):
    db.query("gateway_alive", gateway, place, "true" if is_new else "false")


def gone(db, gateway):
    db.query("gateway_gone", gateway)


def known(db):
    rows = db.query("gateway_rows", 100)
    return {row["id"]: row["coalesce"] == "t" for row in rows}


def later(db, interval):
    """Time passes: everything was that much earlier."""
    db.execute(
        "UPDATE gateway SET seen_at = seen_at - %s::interval, gone_at = gone_at - %s::interval",
        interval,
        interval,
    )


@pytest.fixture
def two(db):
    db.execute("DELETE FROM gateway")
    return str(uuid4()), str(uuid4())


def test_alive_until_it_ends(db, two):
    one, other = two
    alive(db, one, is_new=True)
    alive(db, other, "there", is_new=True)
    assert known(db) == {one: False, other: False}
    gone(db, one)
    gone(db, uuid4())
    assert known(db) == {one: True, other: False}


def test_the_next_one_at_its_place_takes_over_unless_it_calls_again(db, two):
    one, other = two
    alive(db, one, is_new=True)
    alive(db, other, is_new=True)
    assert known(db) == {one: False, other: False}, "two gateways may be given one place"
    later(db, "5 s")
    alive(db, one)
    later(db, "5 s")
    assert known(db) == {one: False, other: False}
    alive(db, str(uuid4()), is_new=True)
    alive(db, other)
    later(db, "8 s")
    assert known(db)[one] and not known(db)[other]


def test_it_returns_after_it_was_taken_for_gone(db, two):
    one, _ = two
    alive(db, one)
    gone(db, one)
    alive(db, one)
    assert known(db) == {one: False}


def test_after_a_day_of_silence_it_is_gone_and_a_day_later_removed(db, two):
    one, other = two
    alive(db, one)
    later(db, "23 hours")
    alive(db, other, "there")
    assert known(db) == {one: False, other: False}
    later(db, "2 hours")
    alive(db, other, "there")
    assert known(db) == {one: True, other: False}
    later(db, "25 hours")
    alive(db, other, "there")
    assert known(db) == {other: False}
