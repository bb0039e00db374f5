"""Every statement of sql/query: the programs may run it, and its text says what it is for; those of
couponctl audit and of coupon-rush."""

import re
import uuid

import pytest

from sent import QUERIES
from sql_db import MIGRATIONS, Receive, array_text, batch_make


# All statements


OWNER_ONLY = {
    "migration_init",
    "migration_record",
    "function_init",
    "function_record",
    "roles_record",
    "installation_new",
}
NOT_TO_PREPARE = {
    "rebuild_begin",
    "rebuild_patience",
    "rebuild_rows",
    "rebuild_fetch",
    "rebuild_revoked",
    "rebuild_fetch_revoked",
    "rebuild_end",
}  # a transaction's


@pytest.mark.parametrize("name", sorted(set(QUERIES) - OWNER_ONLY - NOT_TO_PREPARE))
def test_prepares_in_the_programs_role(db, name):
    db.execute(f"PREPARE {name} AS {QUERIES[name]}")


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_is_one_statement_that_says_what_it_is_for(name):
    assert QUERIES[name].startswith("-- ")
    assert ";" not in re.sub(r"--.*", "", QUERIES[name])


def test_migrations_are_numbered_without_a_gap():
    assert [int(path.name[:4]) for path in MIGRATIONS] == list(range(2, len(MIGRATIONS) + 2))


def test_migration_record(owner):
    owner.execute("BEGIN")
    owner.query("migration_init")
    owner.query("migration_record", 9999, "later", "abc")
    assert owner.query("migration_list")[-1] == {
        "version": "9999",
        "name": "later",
        "checksum": "abc",
    }
    owner.execute("ROLLBACK")


# couponctl audit


def test_audits_find_what_is_wrong(db, owner, coupon_new, coupon_id):
    coupon, nowhere = coupon_new(total=3, limit=2), coupon_id()
    batch = batch_make(coupon, ["1", "2", "3", "4"])
    db.settle(*batch)
    assert db.audit(coupon) == []
    owner.execute("BEGIN")
    add = (
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, %s, %s, %s, now(), now())"
    )
    owner.execute(add, "7", nowhere, 1, 0, uuid.uuid4())
    assert owner.audit(nowhere) == [
        (
            "audit_stock",
            {"coupon_id": str(nowhere), "total_num": None, "issued_num": None, "row_num": "1"},
        )
    ]
    owner.execute(add, "1", coupon, 2, batch[3].idx, batch[3].batch)  # the rejected one
    owner.execute(
        add, "1", coupon, 3, batch[2].idx, batch[2].batch
    )  # another user's, and a third slot
    expected = {
        "audit_stock": [
            {"coupon_id": str(coupon), "total_num": "3", "issued_num": "3", "row_num": "5"}
        ],
        "audit_limit": [
            {
                "coupon_id": str(coupon),
                "user_id": "1",
                "user_limit": "2",
                "row_num": "3",
                "slot_min": "1",
                "slot_max": "3",
            }
        ],
        "audit_twice": [
            {
                "what": what,
                "coupon_id": str(coupon),
                "batch": str(batch[0].batch),
                "idx": idx,
                "user_id": "1",
                "slot": slot,
            }
            for what, idx, slot in (("issued_twice", "2", "1"), ("issued_and_rejected", "3", "2"))
        ],
    }
    for name, rows in expected.items():
        assert owner.query(name, coupon) == rows
        everywhere = owner.query(name, None)
        assert all(row in everywhere for row in rows)
    owner.execute("ROLLBACK")


def test_audit_overtaken(db, coupon_new):
    """The newest by both clocks: a gateway whose clock is ahead does not count."""
    coupon = coupon_new()

    def receive(user, made_ms, at_ms, **fields):
        batch = uuid.UUID(int=made_ms << 80)
        return Receive(coupon, user, batch, 0, seq=made_ms, at_ms=at_ms, **fields)

    db.settle(receive("1", 5000, 5100), receive("2", 6000, 6100), receive("3", 99000, 5500))
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "6000"}]
    assert db.query("audit_overtaken", coupon, 6100) == [{"newest_ms": None}]
    assert db.settle(receive("4", 7000, 7100, slot=9)) == ["slot_invalid"]
    assert db.query("audit_overtaken", coupon, 5000) == [{"newest_ms": "7000"}]


# coupon-rush


USER = "b6461db3-8cfc-42f0-89a0-741b733085ce"
QUOTED = '{"a",\\b}'
ROWS = 30_000


def test_rows_and_rejections_by_user(db, coupon_new):
    below, coupon, other = sorted(coupon_new(limit=2) for _ in range(3))
    batch = uuid.uuid4()
    db.settle(
        Receive(coupon, USER, batch, 0),
        Receive(coupon, USER, batch, 1, slot=2),
        Receive(coupon, QUOTED, batch, 2),
        Receive(coupon, QUOTED, batch, 3),
        Receive(coupon, "unasked", batch, 4),
        Receive(coupon, "unasked", batch, 5),
        Receive(other, USER, batch, 6),
        Receive(other, USER, batch, 7),
        Receive(below, USER, batch, 8),
    )

    def found(rows):
        assert {row["batch"] for row in rows} <= {str(batch)}
        return sorted((int(row["ord"]), int(row["coupon_id"]), int(row["idx"])) for row in rows)

    def rows(last, *users):
        return found(db.query("rush_rows", coupon, last, array_text(users)))

    def rejections(*pairs):
        coupons, users = [one for one, _ in pairs], [user for _, user in pairs]
        return found(db.query("rush_rejections", array_text(map(str, coupons)), array_text(users)))

    asked = ("0" * 64, QUOTED, USER.upper(), USER)
    of_coupon = [(2, coupon, 2), (4, coupon, 0), (4, coupon, 1)]
    assert rows(coupon, *asked) == of_coupon
    assert rows(other, *asked) == [*of_coupon, (4, other, 6)], "of other coupons too"
    assert rejections(*((coupon, user) for user in asked)) == [(2, coupon, 3)]
    assert rejections((other, QUOTED), (other, USER)) == [(2, other, 7)]
    assert rows(other) == rejections() == []


def test_counts_of_coupons(db, coupon_new):
    one, other = sorted(coupon_new() for _ in range(2))
    batch = uuid.uuid4()
    db.settle(Receive(one, "1", batch, 0), Receive(one, "1", batch, 1))
    rows = db.query("rush_settled", f"{{{other},7,{one}}}")
    names = ("id", "total_num", "issued_num", "settled_num")
    assert [tuple(int(row[name]) for name in names) for row in rows] == [
        (one, 100, 1, 2),
        (other, 100, 0, 0),
    ]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("rows", [0, ROWS])
def test_outcomes_are_looked_up_by_index(owner, coupon_new, analyzed, rows):
    """Whatever the statistics say, and with all rows of one coupon. coupon-rush sets
    enable_seqscan too: while most of a table's rows are gone, PostgreSQL reckons with all pages of
    the index."""
    coupon = coupon_new()
    users = array_text(f"{number}" for number in range(5000))
    owner.execute("BEGIN")
    owner.execute("SET LOCAL enable_seqscan = off")
    try:
        owner.execute(
            """INSERT INTO user_coupon
                (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
            SELECT i::text, %s, 1, gen_random_uuid(), 0, now(), now()
            FROM generate_series(1, %s) AS i""",
            coupon,
            rows,
        )
        owner.execute(
            """INSERT INTO receive_rejected
                (coupon_id, batch, idx, user_id, slot, reason, received_at)
            SELECT %s, gen_random_uuid(), 0, i::text, 1, 'slot_taken', now()
            FROM generate_series(1, %s) AS i""",
            coupon,
            rows,
        )
        if analyzed:
            owner.execute("ANALYZE user_coupon, receive_rejected")
        texts = [
            QUERIES["rush_rows"].replace("$1", f"'{first}'").replace("$2", f"'{last}'")
            for first, last in ((coupon, coupon), (1, 2**63 - 1))
        ]
        texts.append(
            QUERIES["rush_rejections"]
            .replace("$1", "'" + array_text([str(coupon)] * 5000) + "'")
            .replace("$2", "$3")
        )
        for query in texts:
            text = query.replace("$3", f"'{users}'")
            plan = "\n".join(line for (line,) in owner.execute(f"EXPLAIN {text}"))
            if rows:
                assert "Seq Scan" not in plan, plan
            assert "Hash" not in plan and "Merge" not in plan, plan
    finally:
        owner.execute("ROLLBACK")
