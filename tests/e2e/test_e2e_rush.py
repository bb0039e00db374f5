"""`coupon-rush`: its users and coupons, and what it checks of their outcomes."""

import json
import os
import random
import re
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from stack import wait_until

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
SEED = ("--user-seed", 7)
TERMINATED = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE application_name = 'coupon-rush'"
)


def rush(stack, coupon, *options, passed=True):
    """coupon: an id, or the path of a file of ids."""
    option = "--coupons-from" if isinstance(coupon, Path) else "--coupon"
    result = stack.rush_run(option, coupon, "--json", *options)
    assert result.returncode == (0 if passed else 1), result.stdout + result.stderr
    told = json.loads(result.stdout)
    assert told["passed"] == passed
    return told


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


def test_uses_of_receives(stack, make_coupon, gateway, pg, tmp_path):
    coupon = make_coupon(5)
    receives = [gateway.issue(coupon, str(user), ack="issued")["receive"] for user in range(5)]
    file = tmp_path / "receives"
    file.write_text("".join(f"{receive}\n" for receive in receives[1:]), encoding="ascii")
    told = rush(stack, coupon, "--users", 4, "--receives", file)
    assert (told["answers"], told["ack"]) == ({"used": 4}, "used")
    used = "SELECT user_id, order_id FROM receive_use WHERE coupon_id = %s ORDER BY 1"
    assert pg.execute(used, (coupon,)).fetchall() == [(user, f"rush-{user}") for user in "1234"]


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


@pytest.mark.parametrize("cut", [False, True])
def test_a_signal_ends_the_sending_and_what_was_sent_is_checked(stack, make_coupon, pg, cut):
    """cut: its connection to PostgreSQL is closed while it asks."""
    coupon = make_coupon(100_000)
    options = ("--coupon", coupon, "--users", "100000", "--rate", "300", "--json")
    process = subprocess.Popen(
        [stack.build_dir / "coupon-rush", *map(str, options)],
        env={**os.environ, **stack.env},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(users_of(pg, coupon)) > 30)
    if cut:
        with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as admin:
            assert admin.execute(TERMINATED).fetchall() == [(True,)]
    process.terminate()
    told = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0 and told["passed"] and told["stopped"]
    assert 30 < told["verify"]["rows"] == told["answers"]["accepted"] < 100_000
    assert told["answers"]["not_sent"] == 100_000 - told["answers"]["accepted"]


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


# Many coupons

SNOWFLAKE = 1_790_000_000_000_000_000


@pytest.fixture
def coupons_make(pg, redis_client, tmp_path):
    """Publishes coupons with ids far apart; returns them and a file that names them."""

    def make(n, total=1000, limit=1):
        made = pg.execute(
            """INSERT INTO coupon (id, name, total_num, user_limit, valid_days, status)
            SELECT %s + i * 4194301, 'many', %s, %s, 30, 'published'
            FROM generate_series(1, %s) AS i
            RETURNING id""",
            (SNOWFLAKE + random.randrange(10**15), total, limit, n),
        )
        coupons = [coupon for (coupon,) in made]
        for coupon in coupons:
            key = f"coupon:{{{coupon}}}"
            wait_until(lambda key=key: redis_client.hget(key, "status") == "open")
        file = tmp_path / "coupons"
        file.write_text("".join(f"{coupon}\n" for coupon in reversed(coupons)))
        return coupons, file

    return make


def rows_of(pg, coupons):
    query = "SELECT coupon_id, user_id FROM user_coupon WHERE coupon_id = ANY(%s)"
    return set(pg.execute(query, (coupons,)))


def test_many_coupons(stack, coupons_make, pg):
    """The seed decides again who requests what, in whatever order the coupons are given."""
    coupons, file = coupons_make(30)
    told = rush(stack, file, "--users", 600, "--requests-per-user", 2, *SEED)
    verify = told["verify"]
    assert (told["coupon"], told["coupons"]) == (None, 30)
    assert told["answers"] == {"accepted": 600, "limit_reached": 600}
    assert (verify["accepted"], verify["rows"], verify["issued"]) == (600, 600, 600)
    assert verify["total"] == 30 * 1000
    rows = rows_of(pg, coupons)
    counts = [sum(row[0] == coupon for row in rows) for coupon in coupons]
    assert len(rows) == 600 and min(counts) > 0 and max(counts) < 60, counts
    ids = ",".join(map(str, coupons))
    again = rush(stack, ids, "--users", 700, "--keys", *SEED)
    assert again["answers"] == {"accepted": 100, "limit_reached": 600}
    assert (again["verify"]["rows"], again["verify"]["issued"]) == (100, 700)
    assert rows < rows_of(pg, coupons)


def test_many_coupons_sell_out(stack, coupons_make):
    _, file = coupons_make(10, total=20)
    verify = rush(stack, file, "--users", 1000)["verify"]
    assert (verify["accepted"], verify["rows"], verify["issued"]) == (200, 200, 200)
    assert (verify["total"], verify["oversold"]) == (200, 0)


def test_rejections_of_many_coupons(stack, coupons_make, pg):
    """PostgreSQL has a row of one of the users that Redis does not have, for each coupon."""
    coupons, file = coupons_make(10)
    with pg.transaction():
        pg.execute(
            """INSERT INTO user_coupon
                (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
            SELECT '7', coupon, 1, gen_random_uuid(), 0, now(), now()
            FROM unnest(%s::bigint[]) AS coupon""",
            (coupons,),
        )
        pg.execute("UPDATE coupon SET issued_num = 1 WHERE id = ANY(%s)", (coupons,))
    told = rush(stack, file, "--users", 50)
    verify = told["verify"]
    assert (verify["accepted"], verify["rows"], verify["rejected"]) == (50, 49, 1)
    assert verify["issued"] == 49 + 10


MOVE = "UPDATE user_coupon SET coupon_id = %(other)s WHERE coupon_id = %(coupon)s AND user_id = '1'"
REMOVE = "DELETE FROM user_coupon WHERE coupon_id = %(coupon)s AND user_id = '1'"
REJECT = """INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason, received_at)
    SELECT coupon_id, batch, idx, user_id, slot, 'slot_taken', now() FROM user_coupon
    WHERE coupon_id = %(coupon)s AND user_id = '1'"""
AGAIN = """INSERT INTO user_coupon
        (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
    SELECT user_id, coupon_id, 2, gen_random_uuid(), 0, now(), now() FROM user_coupon
    WHERE coupon_id = %(coupon)s AND user_id = '1'"""
COUNT = "UPDATE coupon SET issued_num = issued_num + %(more)s WHERE id = %(coupon)s"


def planted(stack, pg, pg_owner, plant, coupons, file):
    """The result of a rush of which user 1 gets its coupon first. Meanwhile plant(coupon, other) is
    executed: the coupon of user 1, and another of the rush's."""

    def row_find():
        query = "SELECT coupon_id FROM user_coupon WHERE coupon_id = ANY(%s) AND user_id = '1'"
        return pg.execute(query, (coupons,)).fetchone()

    options = ("--users", 60, "--rate", 60, "--settle-timeout-s", 1)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(rush, stack, file, *options, passed=False)
        (coupon,) = wait_until(row_find)
        other = next(one for one in coupons if one != coupon)
        with pg_owner.transaction():
            for statement, more in plant:
                pg_owner.execute(statement, {"coupon": coupon, "other": other, "more": more})
        verify = ended.result()["verify"]
    return coupon, other, verify


@pytest.mark.long
@pytest.mark.parametrize("coupons_n", [2, 30])
@pytest.mark.parametrize(
    "plant, promises, counts, wrong",
    [
        # Missing, with and without its count.
        ([(REMOVE, 0)], "p1 p3", {"lost": 1}, "coupon {coupon}: "),
        ([(REMOVE, 0), (COUNT, -1)], "p3", {"lost": 1, "rows": 59}, "neither issued nor rejected"),
        # Moved to another coupon of the rush; only its place is wrong when the counts agree.
        ([(MOVE, 0)], "p1 p3", {"lost": 1, "never_told": 1}, "coupon {other}: "),
        (
            [(MOVE, 0), (COUNT, -1), (COUNT.replace("%(coupon)s", "%(other)s"), 1)],
            "p3",
            {"lost": 1, "never_told": 1},
            "{other}.1.",
        ),
        ([(REJECT, 0)], "p3", {"both": 1}, "issued and rejected"),
        ([(AGAIN, 0), (COUNT, 1)], "p2 p3", {"over_limit": 1, "never_told": 1}, ", user 1: 2 user"),
    ],
)
def test_finds_what_is_wrong_of_one_of_many(
    stack, coupons_make, pg, pg_owner, plant, promises, counts, wrong, coupons_n
):
    coupons, file = coupons_make(coupons_n)
    coupon, other, verify = planted(stack, pg, pg_owner, plant, coupons, file)
    assert [name for name in ("p1", "p2", "p3") if not verify[name]] == promises.split()
    assert {name: verify[name] for name in counts} == counts
    assert verify["accepted"] == 60
    text = "\n".join(verify["wrong"])
    assert wrong.format(coupon=coupon, other=other) in text, text


def test_coupons_from_standard_input(stack, coupons_make):
    coupons, _ = coupons_make(3)
    command = [str(stack.build_dir / "coupon-rush"), "--coupons-from", "-", "--users", "30"]
    result = subprocess.run(
        command,
        input="\n".join(map(str, coupons)),
        env={**os.environ, **stack.env},
        capture_output=True,
        text=True,
        check=True,
    )
    first = result.stdout.splitlines()[0]
    assert first.startswith(f"rush on 3 coupons from {coupons[0]} to {coupons[-1]}: 30 requests")
    assert "P1 ok   30 issued of 3,000" in result.stdout


@pytest.mark.parametrize("options", [(), ("--no-verify",), ("--json", "--no-verify")])
def test_a_rush_that_nobody_answers(stack, make_coupon, options):
    """It has shown nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        result = subprocess.run(
            [stack.build_dir / "coupon-rush", "--coupon", make_coupon(10), "--users", "3"]
            + ["--timeout-s", "1", "--settle-timeout-s", "1", *options],
            env={
                **os.environ,
                **stack.env_of("operator"),
                "COUPON_LISTEN": f"127.0.0.1:{listener.getsockname()[1]}",
                "COUPON_TLS_CA": "",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert result.returncode == 1, result
    if "--json" in options:
        assert json.loads(result.stdout)["passed"] is False
    else:
        assert "FAIL: " in result.stdout and "not one request was answered" in result.stdout


def test_wrong_coupons(stack, make_coupon, tmp_path):
    coupon = make_coupon(1)
    file = tmp_path / "coupons"
    file.write_text(f"{coupon}\n987654321\n")
    for status, error, options in (
        (1, "there is no coupon 987654321", ("--coupon", f"{coupon},987654321")),
        (1, "there is no coupon 987654321", ("--coupons-from", file)),
        (2, "are both given", ("--coupons-from", file, "--coupon", coupon)),
        (2, f"coupon {coupon} is given twice", ("--coupon", f"{coupon},{coupon}")),
        (2, f"{tmp_path}/none cannot be read: No such", ("--coupons-from", tmp_path / "none")),
        (2, "rush needs --coupon", ()),
    ):
        result = stack.rush_run("--users", 1, *options)
        assert result.returncode == status and error in result.stderr, result.stderr


@pytest.mark.parametrize(
    "options, error",
    [
        (("--user-ids", "ulid"), '--user-ids is "ulid": allowed are int and uuid'),
        (("--user-seed", "x"), '--user-seed is "x": allowed is an integer from 0 to 9007199254740'),
        (("--first-user", 2**63 - 1), "with --users that goes beyond 9223372036854775807"),
        (("--first-user", 2**62 - 1, "--user-seed", 1), "goes beyond 4611686018427387903, the"),
        (("--first-user", 2**62 - 1, "--user-ids", "uuid"), "goes beyond 4611686018427387903"),
        (
            ("--receives", "f", "--ack", "issued"),
            "--ack is given: it has no effect with --receives",
        ),
    ],
)
def test_wrong_options(stack, options, error):
    result = stack.rush_run("--coupon", 1, "--users", 2, *options)
    assert result.returncode == 2 and error in result.stderr, result.stderr
