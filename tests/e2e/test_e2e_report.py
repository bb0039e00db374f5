"""couponctl report: what became of campaigns, by day; and what export has of codes and uses."""

import csv
import datetime
import io
import json
import random
import zoneinfo

import pytest

from codes import Claim, user_new
from stack import wait_until

ZONE = "Pacific/Kiritimati"  # 14 hours ahead: mostly another day than in UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.fixture
def claim(stack, tmp_path):
    return Claim(stack, tmp_path)


def days_of(stack, *words):
    lines = stack.ctl("report", *words, "--json").splitlines()
    return [json.loads(line) for line in lines]


def today(zone):
    return datetime.datetime.now(zoneinfo.ZoneInfo(zone)).date()


def counts(day):
    names = ("issued", "claimed", "rejected", "voided", "held", "used", "rolled_back")
    return {name: day[name] for name in (*names, "discount", "discount_back") if day[name]}


def test_what_happened_today(stack, claim):
    terms = {"amount-off": "5.00", "currency": "EUR", "zone": ZONE, "void-returns": "yes"}
    coupon, word = stack.coupon_make(4, **terms), f"W{random.randrange(10**12)}"
    assert days_of(stack, coupon) == []
    (code,) = claim.made(coupon, 1)
    claim.word(coupon, word)
    users = [user_new() for _ in range(6)]
    before = today(ZONE)
    with stack.client() as client:
        asked = [
            client.call("claim", code=code, user=users[0], ack="issued"),
            client.call("claim", code=word, user=users[1], ack="issued"),
            client.issue(coupon, users[2], ack="issued"),
        ]
        assert client.issue(coupon, users[0])["status"] == "limit_reached"
        asked.append(client.issue(coupon, users[3], ack="issued"))
        receives = [one["receive"] for one in asked]
        assert [client.issue(coupon, user)["status"] for user in users[4:]] == ["out_of_stock"] * 2
        euro = {"currency": "EUR"}

        def order(op, receive, **members):
            reply = client.call(op, receive=receive, order="o", **members)
            assert reply["code"] == 0, reply

        order("hold", receives[0])
        order("hold", receives[0])
        order("use", receives[0], amount=9000, **euro)
        order("rollback", receives[0], amount=120, **euro)
        order("use", receives[0], amount=8000, **euro)
        order("use", receives[1], amount=300, **euro)
        order("rollback", receives[1])
        order("use", receives[2], amount=9000, **euro)
    stack.ctl("void", receives[3])
    wait_until(lambda: sum(day["refused"] for day in days_of(stack, coupon)) == 3)
    days = days_of(stack, coupon)
    if before != today(ZONE):
        pytest.skip("midnight")
    (day,) = days
    assert (day["coupon"], day["name"], day["day"]) == (coupon, "test", str(before))
    assert day["refused_by"] == {"out_of_stock": 2, "limit_reached": 1}
    assert day["currency"] == "EUR"
    assert counts(day) == {
        **{"issued": 4, "claimed": 2, "voided": 1, "held": 1, "used": 3, "rolled_back": 1},
        **{"discount": 500 + 120 + 300 + 500, "discount_back": 120 + 300},
    }
    shown = json.loads(stack.ctl("show", coupon, "--json"))
    assert shown["refused"] == day["refused_by"]
    line = stack.ctl("report", coupon).splitlines()[1].split()
    assert line == [
        coupon,
        str(before),
        "4",
        "2",
        "3",
        "0",
        "1",
        "1",
        "3",
        "1",
        "14.20",
        "4.20",
        "EUR",
    ]


@pytest.fixture
def old(stack, pg, claim):
    """A campaign of which things happened on three days of Berlin, also beside midnight."""
    coupon = stack.coupon_make(9, zone="Europe/Berlin", **{"amount-off": "1.00", "currency": "EUR"})
    with stack.client() as client:
        receives = [client.issue(coupon, user_new(), ack="issued")["receive"] for _ in range(3)]
        for one in receives[:2]:
            assert client.call("use", receive=one, order="o")["code"] == 0
        assert client.call("rollback", receive=receives[0], order="o")["code"] == 0
    at = {
        "a": datetime.datetime(2026, 3, 27, 23, 59, 59, tzinfo=BERLIN),
        "b": datetime.datetime(2026, 3, 28, 0, 0, tzinfo=BERLIN),
        "c": datetime.datetime(2026, 3, 29, 23, 30, tzinfo=BERLIN),
    }
    users = [one.split(".")[1] for one in receives]
    for user, received in zip(users, ("a", "b", "c"), strict=True):
        pg.execute(
            "UPDATE user_coupon SET received_at = %s WHERE coupon_id = %s AND user_id = %s",
            (at[received], coupon, user),
        )
    for user, action, when in (
        (users[0], "use", "b"),
        (users[1], "use", "b"),
        (users[0], "rollback", "c"),
    ):
        pg.execute(
            "UPDATE use_operation SET at = %s"
            " WHERE coupon_id = %s AND user_id = %s AND action = %s",
            (at[when], coupon, user, action),
        )
    pg.execute(
        "INSERT INTO coupon_refusal VALUES (%s, '2026-03-26', 'paused', 7),"
        " (%s, '2026-03-28', 'ended', 2)",
        (coupon, coupon),
    )
    yield coupon
    pg.execute("DELETE FROM coupon_refusal WHERE coupon_id = %s", (coupon,))


def test_days_are_of_the_campaigns_zone(stack, old):
    days = {day.pop("day"): day for day in days_of(stack, old)}
    assert list(days) == ["2026-03-26", "2026-03-27", "2026-03-28", "2026-03-29"]
    assert [day["refused"] for day in days.values()] == [7, 0, 2, 0]
    assert [counts(day) for day in days.values()] == [
        {},
        {"issued": 1},
        {"issued": 1, "used": 2, "discount": 200},
        {"issued": 1, "rolled_back": 1, "discount_back": 100},
    ]


@pytest.mark.parametrize(
    "words, wanted",
    [
        (("--from", "2026-03-28"), ["2026-03-28", "2026-03-29"]),
        (("--to", "2026-03-27"), ["2026-03-26", "2026-03-27"]),
        (("--from", "2026-03-28", "--to", "2026-03-28"), ["2026-03-28"]),
        (("--from", "2026-03-30"), []),
    ],
)
def test_days_between(stack, old, words, wanted):
    days = days_of(stack, old, *words)
    assert [day["day"] for day in days] == wanted
    if len(days) == 1:
        assert counts(days[0]) == {"issued": 1, "used": 2, "discount": 200}


def test_all_campaigns(stack, old):
    one = days_of(stack, old)
    every = days_of(stack, "--all", "--from", "2026-03-26", "--to", "2026-03-29")
    assert [day for day in every if day["coupon"] == old] == one
    assert [int(day["coupon"]) for day in every] == sorted(int(day["coupon"]) for day in every)


def test_files(stack, old, tmp_path):
    path = tmp_path / "days.csv"
    stack.ctl("report", old, "--out", path)
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    assert [row["day"] for row in rows] == [day["day"] for day in days_of(stack, old)]
    assert json.loads(rows[0]["refused_by"]) == {"paused": 7}
    assert (rows[2]["discount"], rows[2]["currency"]) == ("200", "EUR")
    lines = stack.ctl("report", old, "--format", "jsonl").splitlines()
    assert json.loads(lines[0])["refused_by"] == {"paused": 7}
    assert json.loads(lines[2])["discount"] == 200


@pytest.mark.parametrize(
    "words, status, told",
    [
        ((), 2, "report takes either a coupon or --all"),
        (("1", "--all"), 2, "report takes either a coupon or --all"),
        (("999999999",), 9, "999999999"),
        (("--all", "--from", "2026-02-30"), 2, 'is "2026-02-30": allowed is a day as 2026-12-24'),
        (("--all", "--to", "2026-12-24T18:00"), 2, "allowed is a day as 2026-12-24"),
        (("--all", "--to", ""), 2, "allowed is a day as 2026-12-24"),
        (("--all", "--from", "2026-12-02", "--to", "2026-12-01"), 2, "no day is in between"),
    ],
)
def test_what_is_wrong(stack, words, status, told):
    result = stack.ctl_run("report", *words)
    assert result.returncode == status and told in result.stderr, result


def test_export_has_the_code_and_the_use(stack, claim):
    terms = {"amount-off": "5.00", "currency": "EUR"}
    coupon, word = stack.coupon_make(9, **terms), f"Word-{random.randrange(10**12)}"
    (code,) = claim.made(coupon, 1)
    text = f"Shop {random.randrange(10**12)}"
    claim.imported(coupon, [text])
    claim.word(coupon, word)
    users = [user_new() for _ in range(4)]
    with stack.client() as client:
        for user, one in zip(users, (code, text, word)):
            assert client.call("claim", code=one, user=user, ack="issued")["code"] == 0
        client.issue(coupon, users[3], ack="issued")
        named = {"coupon": coupon, "order": "o"}
        assert client.call("use", user=users[0], amount=9000, currency="EUR", **named)["code"] == 0
        part = {"amount": 120, "currency": "EUR"}
        assert client.call("rollback", user=users[0], **part, **named)["code"] == 0
        assert client.call("hold", user=users[1], **named)["code"] == 0

    def exported(*options):
        lines = claim.stack.ctl("export", coupon, "--format", "jsonl", *options).splitlines()
        rows = {row["user"]: row for row in map(json.loads, lines)}
        return [rows[user] for user in users]

    rows = exported()
    assert [row["code"] for row in rows] == [code, text, word, None]
    assert [row["use"] for row in rows] == ["used", "held", None, None]
    assert [row["amount_off"] for row in rows] == [380, 500, None, None]
    assert [row["currency"] for row in rows] == ["EUR", "EUR", None, None]
    (used, held) = (
        json.loads(stack.ctl("receive", "show", row["receive"], "--json")) for row in rows[:2]
    )
    assert rows[0]["use_at"] == used["uses"][0]["at"] and rows[1]["use_at"] == held["uses"][0]["at"]
    (row, *_) = exported("--code-keys", "")
    assert row["code"].split(".")[1] == "0", "without keys it is SET.SERIAL"
