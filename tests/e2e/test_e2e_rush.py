"""`couponctl rush`: its users' ids, and what it checks of their outcomes."""

import json
import re

import pytest

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
SEED = ("--user-seed", 7)


def rush(stack, coupon, *options):
    result = stack.ctl_run("rush", "--coupon", coupon, "--json", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def users_of(pg, coupon):
    query = "SELECT user_id FROM user_coupon WHERE coupon_id = %s"
    return {user for (user,) in pg.execute(query, (coupon,))}


@pytest.mark.parametrize(
    "options, form",
    [
        ((), r"1\d\d"),
        (("--user-ids", "int", *SEED), r"[1-9]\d{15,18}"),
        (("--user-ids", "uuid"), r"00000000-0000-4000-8000-0000000000[6-9ab][0-9a-f]"),
        (("--user-ids", "uuid", *SEED), UUID),
    ],
)
def test_forms_of_ids(stack, make_coupon, pg, options, form):
    coupon = make_coupon(60)
    options = ("--first-user", 100, "--users", 80, *options)
    result = rush(stack, coupon, "--requests-per-user", 3, "--keys", *options)
    verify = result["verify"]
    assert (verify["accepted"], verify["rows"], verify["issued"]) == (60, 60, 60)
    assert result["user_ids"] == ("uuid" if "uuid" in options else "int")
    assert result["user_seed"] == (7 if "--user-seed" in options else None)
    users = users_of(pg, coupon)
    assert len(users) == 60
    for user in users:
        assert re.fullmatch(form, user), user


def test_a_seed_names_the_same_users_again(stack, make_coupon):
    coupon = make_coupon(1000)
    seeded = ("--user-ids", "uuid", *SEED)
    first = rush(stack, coupon, "--users", 50, "--ack", "issued", *seeded)
    assert first["answers"] == {"issued": 50}
    again = rush(stack, coupon, "--users", 60, "--ack", "issued", *seeded)
    assert again["answers"] == {"issued": 10, "limit_reached": 50}
    assert again["verify"]["rows"] == 10
    # Others of the same seed, of another seed, and the same numbers as integers.
    for options in (
        ("--first-user", 61, *seeded),
        ("--user-ids", "uuid", "--user-seed", 8),
        SEED,
    ):
        other = rush(stack, coupon, "--users", 50, "--ack", "issued", *options)
        assert other["answers"] == {"issued": 50}, options


def test_a_rejection_of_a_uuid(stack, make_coupon, pg):
    """PostgreSQL has a row of one of the users that Redis does not have."""
    coupon = make_coupon(100)
    user = "00000000-0000-4000-8000-00000000000b"
    with pg.transaction():
        pg.execute(
            """INSERT INTO user_coupon
                (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
            VALUES (%s, %s, 1, gen_random_uuid(), 0, now(), now())""",
            (user, coupon),
        )
        pg.execute("UPDATE coupon SET issued_num = 1 WHERE id = %s", (coupon,))
    verify = rush(stack, coupon, "--users", 20, "--user-ids", "uuid")["verify"]
    assert (verify["accepted"], verify["rows"], verify["rejected"]) == (20, 19, 1)


@pytest.mark.parametrize(
    "options, error",
    [
        (("--user-ids", "ulid"), '--user-ids is "ulid": allowed are int and uuid'),
        (("--user-seed", "x"), '--user-seed is "x": allowed is an integer from 0 to 9007199254740'),
        (("--first-user", 2**63 - 1), "with --users that goes beyond 9223372036854775807"),
        (("--first-user", 2**62 - 1, "--user-seed", 1), "goes beyond 4611686018427387903, the"),
        (("--first-user", 2**62 - 1, "--user-ids", "uuid"), "goes beyond 4611686018427387903"),
    ],
)
def test_wrong_options(stack, options, error):
    result = stack.ctl_run("rush", "--coupon", 1, "--users", 2, *options)
    assert result.returncode == 2 and error in result.stderr, result.stderr
