"""API keys in PostgreSQL: each change has the next number, a record is the same JSON everywhere,
and what Redis has is taken back."""

import json
import random

import psycopg
import pytest

from sql_db import array_text

HASHES = ["ab" * 32, "cd" * 32, "ef" * 32]
FOREVER_MS = 4102444800123
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


class Keys:
    def __init__(self, db):
        self.db = db
        self.db.execute("SELECT set_config('couponmq.by', 'tester', false)")

    def create(self, key=None, name="shop", roles=("issue",), coupons=None, expires_ms=None,
               rate=None, sha256=HASHES[0], budgets=None):  # fmt: skip
        key = key or "".join(random.choices(DIGITS, k=10))
        coupons, budgets = (None if one is None else array_text(one) for one in (coupons, budgets))
        values = (key, name, array_text(roles), coupons, budgets, expires_ms, rate, sha256)
        [row] = self.db.query("key_create", *values)
        return key, row["version"] and int(row["version"])

    def version(self):
        return int(self.db.query("key_version")[0]["version"])

    def records(self, after=0, most=100000):
        rows = self.db.query("key_records", after, most)
        parsed = [json.loads(row["record"]) for row in rows]
        assert [int(row["version"]) for row in rows] == [one["version"] for one in parsed]
        return parsed

    def record(self, key):
        [found] = [one for one in self.records() if one["id"] == key]
        return found

    def shown(self, key):
        [row] = self.db.query("key_list", key, None, None)
        return row

    def rotate(self, key, sha256, overlap_s):
        [row] = self.db.query("key_rotate", key, sha256, overlap_s)
        return row["version"] and int(row["version"])

    def revoke(self, key):
        [row] = self.db.query("key_revoke", key)
        return row["is_there"] == "t"

    def restore(self, *records, version=0):
        texts = [one if isinstance(one, str) else json.dumps(one) for one in records]
        rows = self.db.query("key_restore", array_text(texts), version)
        return {int(row["ord"]): row["what"] for row in rows}


@pytest.fixture
def keys(db):
    yield Keys(db)
    db.execute("DELETE FROM api_key")


def now_ms(db):
    return int(db.query("clock")[0]["now_ms"])


def test_a_record(keys):
    key, version = keys.create()
    assert keys.record(key) == {
        "id": key,
        "name": "shop",
        "version": version,
        "roles": ["issue"],
        "coupons": None,
        "budgets": None,
        "expires_ms": None,
        "rate": None,
        "sha256": HASHES[0],
        "previous": None,
        "revoked": False,
    }
    other, _ = keys.create(
        roles=("read", "issue", "read"), coupons=(7, 2**63 - 1, 7), rate=500,
        expires_ms=FOREVER_MS, budgets=("b", "a", "b"),
    )  # fmt: skip
    made = keys.record(other)
    assert (made["roles"], made["budgets"]) == (["issue", "read"], ["a", "b"])
    assert made["coupons"] == ["7", str(2**63 - 1)]
    assert (made["expires_ms"], made["rate"]) == (FOREVER_MS, 500)


def test_each_change_has_the_next_number(keys):
    before = keys.version()
    key, version = keys.create()
    assert version == before + 1
    assert keys.rotate(key, HASHES[1], 60) == before + 2
    assert keys.revoke(key)
    assert keys.version() == before + 3
    assert [one["version"] for one in keys.records(before)] == [before + 3]


def test_records_come_in_the_order_of_their_changes(keys):
    before = keys.version()
    made = [keys.create()[0] for _ in range(5)]
    keys.rotate(made[1], HASHES[1], 0)
    order = [made[0], *made[2:], made[1]]
    assert [one["id"] for one in keys.records(before)] == order
    pages, at = [], before
    while page := keys.records(at, 2):
        pages, at = pages + [one["id"] for one in page], page[-1]["version"]
    assert pages == order


def test_changes_are_committed_in_the_order_of_their_numbers(keys, db_new, background):
    other = Keys(db_new())
    before = keys.version()
    keys.db.execute("BEGIN")
    key, _ = keys.create()
    second = background(other.create)
    keys.db.execute("COMMIT")
    assert second.result()[1] == before + 2
    assert keys.record(key)["version"] == before + 1


def test_a_rotation(keys):
    key, _ = keys.create()
    keys.rotate(key, HASHES[1], 3600)
    made = keys.record(key)
    assert made["sha256"] == HASHES[1]
    assert made["previous"]["sha256"] == HASHES[0]
    assert abs(made["previous"]["until_ms"] - now_ms(keys.db) - 3600000) < 60000
    assert keys.shown(key)["previous_until"]
    # A second one ends the first overlap.
    keys.rotate(key, HASHES[2], 60)
    assert keys.record(key)["previous"]["sha256"] == HASHES[1]
    keys.rotate(key, HASHES[0], 0)
    assert keys.record(key)["previous"] is None
    assert keys.record(key)["sha256"] == HASHES[0]


def test_what_cannot_be_rotated(keys):
    key, _ = keys.create()
    keys.revoke(key)
    expired, _ = keys.create(expires_ms=now_ms(keys.db) - 1)
    before = [keys.record(key), keys.record(expired)]
    for one in (key, expired, "0000000000"):
        assert keys.rotate(one, HASHES[1], 60) is None
    assert [keys.record(key), keys.record(expired)] == before


def test_revoked_is_for_ever(keys, owner):
    key, _ = keys.create()
    assert keys.revoke(key)
    version = keys.record(key)["version"]
    assert keys.shown(key)["state"] == "revoked"
    assert keys.revoke(key)
    assert keys.record(key)["version"] == version
    assert keys.record(key)["revoked"] is True
    assert not keys.revoke("0000000000")


def test_states(keys):
    active, _ = keys.create(expires_ms=FOREVER_MS)
    expired, _ = keys.create(expires_ms=now_ms(keys.db) - 1)
    assert keys.shown(active)["state"] == "active"
    assert keys.shown(active)["expires_at"] == "2100-01-01T00:00:00.123Z"
    assert keys.shown(expired)["state"] == "expired"
    assert keys.shown(active)["by"] == "tester"
    assert [row["key"] for row in keys.db.query("key_list", None, None, None)] == [expired, active]


def test_an_id_is_never_used_again(keys):
    key, _ = keys.create()
    keys.revoke(key)
    with pytest.raises(psycopg.errors.UniqueViolation):
        keys.create(key)
    assert keys.record(key)["revoked"] is True


def test_at_most_ten_thousand(keys, owner):
    owner.execute(
        "INSERT INTO api_key (id, name, roles, sha256, version, created_by, by, revoked_at)"
        " SELECT lpad(n::text, 10, '0'), 'x', '{read}', decode(%s, 'hex'), -n, 'x', 'x',"
        " CASE WHEN n > 9999 THEN now() END FROM generate_series(1, 10100) AS n",
        HASHES[0],
    )
    key, version = keys.create()
    assert version
    assert keys.create()[1] is None
    assert keys.revoke(key)
    assert keys.create()[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "0a1b2c3d4"}, {"key": "0a1b2c3d4u"}, {"key": "0A1B2C3D4E"}, {"name": ""},
        {"name": "a b"}, {"name": "é"}, {"name": "x" * 65}, {"roles": ()}, {"roles": ("root",)},
        {"coupons": ()}, {"coupons": (0,)}, {"coupons": range(1, 258)}, {"rate": 0},
        {"rate": 1000001}, {"sha256": "ab"},
    ],
)  # fmt: skip
def test_what_the_table_refuses(keys, wrong):
    with pytest.raises(psycopg.errors.CheckViolation):
        keys.create(**wrong)


def test_notified_at_commit(keys, db_new):
    listener = db_new()
    listener.execute("LISTEN couponmq_keys")
    heard = []
    listener.connection.add_notify_handler(lambda one: heard.append(one.channel))

    def notified():
        listener.execute("SELECT 1")  # they come with its answer
        told = list(heard)
        heard.clear()
        return told

    key, _ = keys.create()
    assert notified() == ["couponmq_keys"]
    keys.db.execute("BEGIN")
    keys.revoke(key)
    assert notified() == []
    keys.db.execute("COMMIT")
    assert notified() == ["couponmq_keys"]


# PostgreSQL was put back


def test_what_redis_has_is_taken_back(keys):
    """Created, rotated and revoked after the backup."""
    first, second, third = (keys.create(rate=n + 1)[0] for n in range(3))
    backup = keys.records()
    number = keys.version()
    created, _ = keys.create(coupons=(1, 2), expires_ms=FOREVER_MS, roles=("read",))
    keys.rotate(first, HASHES[1], 3600)
    keys.revoke(second)
    keys.revoke(created)
    other, _ = keys.create(coupons=(1, 2), expires_ms=FOREVER_MS, rate=9, budgets=("b",))
    lost = {one["id"]: one for one in keys.records()}
    lost_number = keys.version()
    keys.db.execute("DELETE FROM api_key")
    keys.db.execute("UPDATE api_key_version SET num = 0")
    assert set(keys.restore(*backup, version=number).values()) == {"created"}
    for one in backup:
        keys.db.execute("UPDATE api_key SET version = %s WHERE id = %s", one["version"], one["id"])
    keys.db.execute("UPDATE api_key_version SET num = %s", number)

    told = keys.restore(*lost.values(), version=lost_number)
    assert sorted(told.values()) == ["changed", "created", "created", "revoked"]
    there = {one["id"]: one for one in keys.records()}
    assert there.keys() == lost.keys() == {first, second, third, created, other}
    changed = {key for key in there if there[key]["version"] > lost_number}
    assert changed == {first, second, created, other}
    for key, one in there.items():
        assert {**one, "version": 0} == {**lost[key], "version": 0}
    assert keys.version() == lost_number + 4
    # Repeated, it changes nothing.
    assert keys.restore(*lost.values(), version=lost_number) == {}
    assert keys.version() == lost_number + 4


def test_postgresql_put_back_revives_no_revoked_key(keys):
    """Nor does Redis, which was: whoever has revoked it wins."""
    key, version = keys.create()
    record = keys.record(key)
    assert keys.restore({**record, "revoked": True, "version": 1}) == {1: "revoked"}
    assert keys.record(key)["revoked"] is True
    assert keys.record(key)["version"] > version
    assert keys.restore({**record, "version": keys.version() + 100}) == {}
    assert keys.record(key)["revoked"] is True
    assert keys.restore({**record, "version": 3}, version=keys.version()) == {1: "told"}
    assert keys.record(key)["revoked"] is True


def test_an_older_state_is_not_taken(keys):
    key, _ = keys.create()
    old = keys.record(key)
    keys.rotate(key, HASHES[1], 0)
    assert keys.restore(old, {**old, "version": keys.record(key)["version"]}) == {}
    assert keys.record(key)["sha256"] == HASHES[1]


def test_what_redis_only_seems_to_have_is_told_again(keys):
    """Put back, PostgreSQL has taken numbers anew while Redis was away."""
    revoked, rotated, same = (keys.create()[0] for _ in range(3))
    old = [keys.record(revoked), keys.record(rotated), keys.record(same)]
    keys.revoke(revoked)
    keys.rotate(rotated, HASHES[1], 0)
    # These are copied anyway.
    assert keys.restore(*old, version=old[2]["version"]) == {}
    before = [keys.record(one["id"]) for one in old]
    number = keys.version() + 5
    assert keys.restore(*old, version=number) == {1: "told", 2: "told"}
    assert {one["id"] for one in keys.records(number)} == {revoked, rotated}
    for one in before:
        assert {**keys.record(one["id"]), "version": 0} == {**one, "version": 0}
    assert keys.record(same) == before[2]
    assert keys.restore(*old, version=number) == {}


def test_the_number_continues_above_that_of_redis(keys):
    before = keys.version()
    assert keys.restore(version=before + 10) == {}
    assert keys.version() == before + 10
    assert keys.restore(version=before) == {}
    assert keys.create()[1] == before + 11
    # Redis may have a record of which it has not counted the number yet.
    key, _ = keys.create()
    record = {**keys.record(key), "version": before + 20}
    assert keys.restore(record, version=before) == {1: "changed"}
    assert keys.record(key)["version"] == before + 21


@pytest.mark.parametrize(
    "change",
    [
        {"id": None}, {"id": "x"}, {"name": None}, {"name": "a b"}, {"version": None},
        {"version": "x"}, {"version": 2**63}, {"version": 2**53 - 1}, {"roles": None},
        {"roles": ["root"]}, {"roles": "issue"}, {"coupons": []}, {"coupons": ["x"]},
        {"coupons": [None]}, {"expires_ms": "x"}, {"expires_ms": 2**62}, {"rate": 0},
        {"sha256": None}, {"sha256": "xy"}, {"sha256": "ab"}, {"previous": {"sha256": "ab"}},
        {"previous": {"until_ms": 1}}, {"revoked": None}, {"revoked": "perhaps"},
    ],
)  # fmt: skip
def test_an_unreadable_record_keeps_no_others_back(keys, change):
    key, _ = keys.create()
    record = {**keys.record(key), "version": keys.version() + 1}
    before, after = {**record, "id": "0000000001"}, {**record, "id": "0000000002"}
    told = keys.restore(before, {**record, "id": "0000000003", **change}, after)
    assert told == {1: "created", 2: "unreadable", 3: "created"}
    assert {one["id"] for one in keys.records()} == {key, "0000000001", "0000000002"}


@pytest.mark.parametrize("text", ["", "x", "[]", "17", "null", "{}", '{"id":"\\u0000"}'])
def test_what_is_no_record(keys, text):
    assert keys.restore(text) == {1: "unreadable"}
