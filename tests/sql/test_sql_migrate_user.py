"""Migration 0010 makes user ids text. MIGRATE_ROWS=10000000 runs it with so many user coupons."""

import os
import re

import psycopg
import pytest

from sql_db import MIGRATIONS
from stack import wait_until

ROWS = int(os.environ.get("MIGRATE_ROWS", "10000"))
BEFORE = 9
AFTER = len(MIGRATIONS)
LAST = 2**63 - 1
COLUMNS = "coupon_id, slot, idx, batch, received_at, valid_from, valid_to, key"


@pytest.fixture
def numbers(empty):
    """The version before, with user coupons of two campaigns, rejections and late outcomes."""
    empty.migrate_to(BEFORE)
    empty.execute(
        "INSERT INTO user_coupon SELECT CASE WHEN n = 1 THEN %s ELSE n END, 1001 + n * 2 / %s,"
        " 1 + n %% 3, n %% 256, gen_random_uuid(), now() + n * interval '1 ms', now(),"
        " CASE WHEN n %% 2 = 0 THEN now() + interval '1 day' END,"
        " CASE WHEN n %% 5 = 0 THEN 'key \\' || n END FROM generate_series(1, %s) AS n",
        LAST,
        ROWS + 1,
        ROWS,
    )
    for n in 1, 2, LAST:
        empty.execute(
            "INSERT INTO receive_rejected VALUES (1001, gen_random_uuid(), 0, %s, 1,"
            " 'out_of_stock', now())",
            n,
        )
        empty.execute(
            "INSERT INTO coupon_late VALUES (1001, %s, 1, 7, %s, 1, gen_random_uuid(), 0, '')",
            n,
            n,
        )
    return empty


def content(database):
    """All that the tables say, with users as text, in a form that can be compared."""
    return database.execute(
        f"SELECT count(*), sum(hashtextextended(concat_ws('|', user_id, {COLUMNS}), 0)::numeric)"
        " FROM user_coupon UNION ALL"
        " SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM receive_rejected AS t"
        " UNION ALL"
        " SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM coupon_late AS t"
    )


def version(database):
    return database.execute("SELECT max(version) FROM schema_migration")[0][0]


def migrate(database, *options):
    """(exit status, standard output, standard error)"""
    process = database.start(*options)
    out, err = process.communicate(timeout=60 + ROWS / 10000)
    return process.returncode, out, err


def form(database):
    """The columns, constraints, indexes and privileges of the tables with users."""
    return database.execute(
        "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod),"
        " l.collname::text, a.attnotnull"
        " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0"
        " LEFT JOIN pg_collation AS l ON l.oid = a.attcollation"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT a.attisdropped"
        " UNION ALL SELECT c.relname, n.conname, pg_get_constraintdef(n.oid), NULL, NULL"
        " FROM pg_constraint AS n JOIN pg_class AS c ON c.oid = n.conrelid"
        " WHERE c.relnamespace = 'public'::regnamespace"
        " UNION ALL SELECT tablename, indexname, indexdef, NULL, NULL FROM pg_indexes"
        " WHERE schemaname = 'public' ORDER BY 1, 2, 3"
    )


def test_all_is_copied(numbers):
    before = content(numbers)
    status, out, err = migrate(numbers)
    assert status == 0, err
    assert content(numbers) == before
    assert version(numbers) == AFTER
    assert numbers.execute("SELECT to_regnamespace('couponmq_user_number')") == [(None,)]
    assert numbers.execute(
        "SELECT user_id, pg_typeof(user_id)::text, pg_collation_for(user_id) FROM user_coupon"
        " WHERE user_id = %s",
        str(LAST),
    ) == [(str(LAST), "text", '"C"')]
    parts = numbers.execute("SELECT tableoid, count(*) FROM user_coupon GROUP BY 1")
    assert len(parts) == 8
    assert all(abs(n / (ROWS / 8) - 1) < 0.2 for _, n in parts)


def test_time_and_space_are_announced_before_and_the_progress_is_shown(numbers):
    numbers.execute("ANALYZE user_coupon")
    status, out, err = migrate(numbers)
    assert status == 0, err
    announced = re.search(
        r"0010 copies about ([\d,]+) user coupons and ([\d,]+) rejections: about (\d+) min (\d+) s,"
        r" with ([\d,]+) MB",
        out,
    )
    assert abs(int(announced[1].replace(",", "")) / ROWS - 1) < 0.1
    assert "Nothing has to be stopped" in out
    assert out.index("0010 copies") < out.index("0010 user_text: applied")
    shown = re.findall(r"^couponctl: (rejections|rows|indexes): (\d+) %$", err, re.M)
    assert {("rejections", "100"), ("rows", "100"), ("indexes", "100")} <= set(shown)
    for step in "rejections", "rows", "indexes":
        percents = [int(percent) for name, percent in shown if name == step]
        assert percents == sorted(set(percents)), "it only grows"


def test_rejections_alone_are_announced(numbers):
    numbers.execute("TRUNCATE user_coupon")
    numbers.execute(
        "INSERT INTO receive_rejected SELECT 1001, gen_random_uuid(), 0, n, 1, 'out_of_stock',"
        " now() FROM generate_series(1, %s) AS n",
        ROWS,
    )
    numbers.execute("ANALYZE user_coupon, receive_rejected, coupon_late")
    before = content(numbers)
    status, out, err = migrate(numbers)
    assert status == 0, err
    assert f"0010 copies about 0 user coupons and {ROWS + 6:,} rejections" in out
    assert re.findall(r"^couponctl: rejections: (\d+) %$", err, re.M) == ["50", "100"]
    assert content(numbers) == before


def test_a_dry_run_changes_nothing(numbers):
    before, old_form = content(numbers), form(numbers)
    status, out, err = migrate(numbers, "--dry-run")
    assert status == 0, err
    assert "0010 copies about" in out
    assert "0010 user_text: to be applied" in out
    assert re.search(r"^function settle: version \d+ to be applied$", out, re.M)
    assert "0009" not in out and "applying" not in out
    assert (content(numbers), form(numbers), version(numbers)) == (before, old_form, BEFORE)


def test_a_dry_run_of_an_empty_database(empty):
    status, out, err = migrate(empty, "--dry-run")
    assert status == 0, err
    assert out.count("to be applied") == AFTER
    assert empty.execute("SELECT to_regclass('schema_migration')") == [(None,)]


def test_the_form_is_that_of_0001_but_for_the_user(numbers):
    before = form(numbers)
    with numbers.connection.transaction():
        numbers.execute(MIGRATIONS[BEFORE].read_text())
    differ = set(form(numbers)) ^ set(before)
    assert (
        differ and {name for _, name, *_ in differ if "user_id" not in name} == set()
    ), "nothing else changes its name or its definition"


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_one_that_ends_before_its_last_line_has_changed_nothing(numbers, end):
    before, old_form = content(numbers), form(numbers)
    with psycopg.connect(numbers.url) as holder:
        holder.execute("LOCK TABLE schema_migration IN EXCLUSIVE MODE")  # reads are allowed
        process = numbers.start()
        ((pid,),) = wait_until(
            lambda: numbers.execute(
                "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
                holder.info.backend_pid,
            )
        )
        if end == "kill":
            process.kill()
        else:
            holder.execute("SELECT pg_terminate_backend(%s)", (pid,))
        _, err = process.communicate(timeout=120)
    assert "indexes: 100 %" in err, "all was done"
    wait_until(lambda: not numbers.execute("SELECT pid FROM pg_stat_activity WHERE pid = %s", pid))
    assert (content(numbers), form(numbers), version(numbers)) == (before, old_form, BEFORE)
    assert migrate(numbers)[0] == 0
    assert content(numbers) == before


@pytest.mark.parametrize(
    "added, said",
    [
        ("CREATE INDEX mine ON user_coupon (received_at)", "index mine"),
        ("CREATE INDEX mine ON user_coupon_3 (received_at)", "index mine"),
        (
            "CREATE TRIGGER mine AFTER INSERT ON user_coupon FOR EACH STATEMENT"
            " EXECUTE FUNCTION coupon_insert_wait()",
            "trigger mine",
        ),
        ("CREATE VIEW mine AS SELECT user_id FROM user_coupon", "view mine depends on"),
        ("CREATE PUBLICATION mine FOR TABLE user_coupon", "publication mine"),
        ("CREATE POLICY mine ON user_coupon USING (true)", "policy mine"),
    ],
)
def test_what_an_operator_added_is_named_and_nothing_is_kept(numbers, added, said):
    before, old_form = content(numbers), form(numbers)
    numbers.execute(added)
    status, _, err = migrate(numbers)
    assert status == 1
    assert "migration 0010 user_text failed, and nothing of it was kept: " in err
    assert said in err
    assert "rows" not in err, "before anything is copied"
    assert (content(numbers), version(numbers)) == (before, BEFORE)
    assert set(old_form) <= set(form(numbers))


def test_rights_that_an_operator_granted_are_kept(numbers):
    numbers.execute("GRANT SELECT ON user_coupon TO pg_monitor WITH GRANT OPTION")
    numbers.execute("GRANT REFERENCES ON user_coupon TO pg_checkpoint")
    rights = (
        "SELECT a.grantee::regrole::text, a.privilege_type, a.is_grantable"
        " FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a"
        " WHERE c.oid = 'user_coupon'::regclass AND a.grantee::regrole::text LIKE 'pg_%'"
        " ORDER BY 1, 2"
    )
    before = numbers.execute(rights)
    assert migrate(numbers)[0] == 0
    assert numbers.execute(rights) == before


def test_an_open_transaction_is_named_and_others_do_not_wait_for_it(numbers):
    with psycopg.connect(numbers.url, application_name="a report") as reader, psycopg.connect(
        numbers.url, autocommit=True
    ) as other:
        reader.execute("SELECT count(*) FROM user_coupon")
        process = numbers.start()
        while process.poll() is None:
            other.execute("SELECT FROM user_coupon LIMIT 1")
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1
        assert f"it is used by the processes {reader.info.backend_pid} (a report)" in err
        assert "End their transactions" in err
    assert migrate(numbers)[0] == 0


def test_between_the_migrations_the_version_before_goes_on(numbers):
    """An operator's open transaction stops migration 0011, after 0010, and is named. Programs of
    the version before find their users meanwhile, and nobody queues for long for a coupon."""
    numbers.execute("INSERT INTO coupon (id, name, total_num) VALUES (1001, 'x', 1)")
    look_up = "SELECT count(*) FROM user_coupon WHERE user_id = 2::bigint"
    with psycopg.connect(numbers.url, application_name="an edit") as operator, psycopg.connect(
        numbers.url, autocommit=True
    ) as other:
        operator.execute("UPDATE coupon SET name = name")
        pid = operator.info.backend_pid
        process = numbers.start()
        while process.poll() is None:
            assert other.execute(look_up).fetchone() == (1,)
            other.execute("UPDATE coupon SET updated_at = now() WHERE id = 0")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "0010 user_text: applied" in out and version(numbers) == BEFORE + 1
    assert f"it is used by the processes {pid} (an edit)" in err
    assert migrate(numbers)[0] == 0
    assert version(numbers) == AFTER
