"""The statements by which `coupon-rush` reads the outcomes of its users."""

import uuid

import pytest

from sql_db import QUERIES, Receive, array_text

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
