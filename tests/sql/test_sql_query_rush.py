"""The statements by which `couponctl rush` reads the outcomes of its users."""

import uuid

import pytest

from sql_db import QUERIES, Receive, array_text

USER = "b6461db3-8cfc-42f0-89a0-741b733085ce"
QUOTED = '{"a",\\b}'
ROWS = 30_000


def test_rows_and_rejections_by_user(db, coupon_new):
    coupon, other = coupon_new(limit=2), coupon_new()
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
    )

    def found(query, *users):
        rows = db.query(query, coupon, array_text(users))
        assert {row["batch"] for row in rows} <= {str(batch)}
        return sorted((int(row["ord"]), int(row["idx"])) for row in rows)

    asked = ("0" * 64, QUOTED, USER.upper(), USER)
    assert found("rush_rows", *asked) == [(2, 2), (4, 0), (4, 1)]
    assert found("rush_rejections", *asked) == [(2, 3)]
    assert found("rush_rows") == found("rush_rejections") == []


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("rows", [0, ROWS])
def test_outcomes_are_looked_up_by_index(owner, coupon_new, analyzed, rows):
    """Whatever the statistics say, and with all rows of one coupon."""
    coupon = coupon_new()
    users = array_text(f"{number}" for number in range(5000))
    owner.execute("BEGIN")
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
        for query in ("rush_rows", "rush_rejections"):
            text = QUERIES[query].replace("$1", str(coupon)).replace("$2", f"'{users}'")
            plan = "\n".join(line for (line,) in owner.execute(f"EXPLAIN {text}"))
            if rows:
                assert "Seq Scan" not in plan, plan
            assert "Hash" not in plan and "Merge" not in plan, plan
    finally:
        owner.execute("ROLLBACK")
