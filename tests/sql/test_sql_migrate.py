"""couponctl migrate: the tables in order, then the functions that differ from what was applied."""

import re
import subprocess
import uuid

import psycopg
import pytest
from fresh import Fresh, database_empty, superuser_connect
from next_version import next_version_build
from psycopg.conninfo import make_conninfo
from sql_db import FUNCTIONS, ROOT
from stack import wait_until

HEADER = re.compile(r"-- version: ([1-9]\d*)\n-- function: (([a-z_]+)\([^ \n]*\))\n--\n")
OTHER_BODY = (
    "CREATE OR REPLACE FUNCTION coupon_id_next() RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint'"
)

RIGHTS = """
    SELECT c.oid::regclass::text, c.relacl::text,
        (SELECT array_agg(a.attacl::text ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL)
    FROM pg_class AS c WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT p.oid::regprocedure::text, p.proacl::text, NULL
    FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace
    UNION ALL SELECT nspname, nspacl::text, NULL FROM pg_namespace WHERE nspname = 'public'
    ORDER BY 1"""


@pytest.fixture
def migrated(empty):
    empty.functions_printed()
    return empty


def headers():
    return {path.stem: HEADER.match(path.read_text()) for path in FUNCTIONS}


@pytest.mark.parametrize("path", FUNCTIONS, ids=lambda path: path.stem)
def test_a_file_begins_with_its_version_and_signature(path):
    header = HEADER.match(path.read_text())
    assert header, "-- version: N, -- function: NAME(TYPES), --"
    assert header[3] == re.sub(r"_v\d+$", "", path.stem)
    assert f"\nCREATE OR REPLACE FUNCTION {header[3]}(" in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "CREATE FUNCTION f()",
        "-- version: 0\n-- function: f()\n",
        "-- version: 1\n\n-- function: f()\n",
        "-- version: 1\n-- function: f(int, int)\n",
        "-- version: 1x\n-- function: f()\n",
    ],
)
def test_a_file_without_them_is_not_built(tmp_path, text):
    (tmp_path / "sql/function").mkdir(parents=True)
    (tmp_path / "sql/function/f.sql").write_text(text)
    made = subprocess.run(
        [ROOT / "scripts/embed.sh", "out.h", "out.c", "sql/function/f.sql"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 1
    assert "sql/function/f.sql: line " in made.stderr
    assert not (tmp_path / "out.c").exists()


def test_a_new_database(empty):
    assert empty.functions_printed() == [
        f"function {path.stem}: applying version {headers()[path.stem][1]}" for path in FUNCTIONS
    ]
    assert empty.recorded() == {name: int(header[1]) for name, header in headers().items()}
    assert empty.functions_printed() == [], "nothing differs any more"
    live = {
        row[0].replace(" ", "")
        for row in empty.execute(
            "SELECT oid::regprocedure::text FROM pg_proc"
            " WHERE pronamespace = 'public'::regnamespace"
        )
    }
    named = {
        empty.execute("SELECT to_regprocedure(%s)::text", header[2])[0][0].replace(" ", "")
        for header in headers().values()
    }
    assert live == named, "every function of the database has a file"


def test_a_dry_run_of_an_empty_database(empty):
    out = empty.told("--dry-run")
    assert out.count("to be applied") == 1 + len(FUNCTIONS) + 1
    assert "0001 schema: to be applied" in out and "rights of the roles: to be applied" in out
    assert empty.execute("SELECT to_regclass('schema_migration')") == [(None,)]


def test_roles_get_their_passwords(stack, empty):
    """Which no statement has, since a log may have the statement. Roles belong to the cluster."""
    name, secret = "couponmq_worker", uuid.uuid4().hex
    kept = "SELECT rolcanlogin, rolpassword FROM pg_authid WHERE rolname = %s"
    with superuser_connect(stack) as superuser:
        before = superuser.execute(kept, (name,)).fetchone()
        try:
            empty.env = {**empty.env, "COUPON_WORKER_PASSWORD": secret}
            assert f"login of {name}: to be applied" in empty.told("--dry-run")
            assert superuser.execute(kept, (name,)).fetchone() == before
            assert f"login of {name}: applying" in empty.told()
            may, password = superuser.execute(kept, (name,)).fetchone()
            assert may and password.startswith("SCRAM-SHA-256$")
            url = make_conninfo(empty.url, user=name, password=secret)
            psycopg.connect(url).close()
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(make_conninfo(url, password=f"{secret}x"))
        finally:
            # The first to migrate in this cluster has no role before it.
            may, password = before or (False, None)
            login = "LOGIN" if may else "NOLOGIN"
            literal = f"'{password}'" if password else "NULL"
            superuser.execute(f"ALTER ROLE {name} {login} PASSWORD {literal}")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_is_not_utf8_is_refused(stack, encoding):
    options = f"TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    with database_empty(stack, options) as name:
        database = Fresh(stack, make_conninfo(stack.env["DATABASE_ADMIN_URL"], dbname=name))
        status, _, err = database.run()
        tables = database.execute("SELECT relname FROM pg_class WHERE relnamespace >= 16384")
        functions = database.execute("SELECT proname FROM pg_proc WHERE oid >= 16384")
        database.connection.close()
    assert status == 1
    assert f"the encoding of the database {name} is {encoding}, and nothing was changed" in err
    assert "it must be UTF8" in err
    assert tables == functions == []


def test_a_database_without_the_schema_of_the_tables_is_refused(empty):
    empty.execute("DROP SCHEMA public")
    status, _, err = empty.run()
    assert status == 1
    assert "has no schema public" in err and "CREATE SCHEMA public" in err


@pytest.mark.parametrize("setting", ["its default", "the database", "the URL"])
def test_the_tables_are_in_public_whatever_other_schema_comes_first(empty, setting):
    """ "$user" is the first in the search_path of a new database."""
    ((owner, name),) = empty.execute("SELECT current_user::text, current_database()::text")
    empty.execute(f"CREATE SCHEMA {owner}")
    if setting == "the database":
        empty.execute(f"ALTER DATABASE {name} SET search_path = {owner}")
    if setting == "the URL":
        empty.url = make_conninfo(empty.url, options=f"-csearch_path={owner}")
    assert empty.functions_printed()
    assert empty.execute(
        "SELECT DISTINCT relnamespace::regnamespace::text FROM pg_class"
        " WHERE relname IN ('coupon', 'command_history', 'schema_migration', 'schema_function')"
        " UNION SELECT DISTINCT pronamespace::regnamespace::text FROM pg_proc"
        " WHERE proname IN ('settle', 'command_begin')"
    ) == [("public",)]
    assert empty.functions_printed() == [], "the second finds what the first has made"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schema_migration SET checksum = 'x'",
        "ALTER TABLE schema_migration DROP COLUMN checksum",
    ],
)
def test_a_database_of_before_is_refused(migrated, change):
    migrated.execute(change)
    status, lines, err = migrated.run()
    assert (status, lines) == (1, [])
    assert 'the database has another migration 0001, "schema", than this program' in err
    assert "create a new database" in err


def test_a_newer_database_is_refused(migrated):
    migrated.execute(
        "INSERT INTO schema_migration (version, name, checksum) VALUES (99, 'later', 'x')"
    )
    status, lines, err = migrated.run()
    assert (status, lines) == (1, [])
    assert "the database is at version 99, newer than this program's" in err


@pytest.mark.parametrize(
    "change",
    [
        "REVOKE ALL ON FUNCTION coupon_id_next() FROM couponmq_operator",
        "GRANT EXECUTE ON FUNCTION coupon_id_next() TO PUBLIC",
        "GRANT DELETE ON campaign_history TO couponmq_operator",
        "REVOKE SELECT ON coupon FROM couponmq_gateway",
        "GRANT UPDATE (user_id) ON user_coupon TO couponmq_worker",
        "GRANT SELECT ON user_coupon_0 TO couponmq_app",
        "GRANT USAGE ON SEQUENCE lock_fence_seq TO couponmq_gateway",
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "UPDATE schema_function SET checksum = 'x' WHERE name = 'roles'",
    ],
)
def test_rights_that_were_changed_are_put_back(migrated, change):
    rights = migrated.execute(RIGHTS)
    migrated.execute(change)
    assert "rights of the roles: to be applied" in migrated.told("--dry-run")
    assert "rights of the roles: applying" in migrated.told()
    assert migrated.execute(RIGHTS) == rights
    assert "rights" not in migrated.told()


def test_a_newer_function_stays(migrated):
    migrated.execute(
        "UPDATE schema_function SET version = 99, checksum = 'x' WHERE name = 'coupon_id_next'"
    )
    migrated.execute(OTHER_BODY)
    version = headers()["coupon_id_next"][1]
    assert migrated.functions_printed() == [
        f"function coupon_id_next: version 99 is newer than this program's {version} and stays"
    ]
    assert migrated.body("coupon_id_next") == "SELECT 7::bigint"
    assert migrated.recorded()["coupon_id_next"] == 99


def test_an_older_function_is_replaced(migrated):
    migrated.execute("ALTER TABLE schema_function DROP CONSTRAINT schema_function_version_check")
    migrated.execute("UPDATE schema_function SET version = 0, checksum = 'x'")
    assert len(migrated.functions_printed()) == len(FUNCTIONS)
    assert min(migrated.recorded().values()) > 0


def test_another_text_of_the_same_version_is_replaced(migrated):
    migrated.execute(OTHER_BODY)
    migrated.execute("UPDATE schema_function SET checksum = 'x' WHERE name = 'coupon_id_next'")
    version = headers()["coupon_id_next"][1]
    assert migrated.functions_printed() == [
        f"function coupon_id_next: applying version {version}"
        " in place of another text of this version"
    ]
    assert migrated.body("coupon_id_next") in (ROOT / "sql/function/coupon_id_next.sql").read_text()


@pytest.mark.parametrize(
    "change",
    [
        OTHER_BODY,
        "ALTER FUNCTION coupon_id_next() RESET search_path",
        "DROP FUNCTION coupon_id_next()",
    ],
)
def test_a_function_that_was_changed_in_the_database_is_put_back(migrated, change):
    migrated.execute(change)
    version = headers()["coupon_id_next"][1]
    assert migrated.functions_printed() == [
        f"function coupon_id_next: applying version {version} again, since the database has another"
    ]
    assert migrated.body("coupon_id_next") in (ROOT / "sql/function/coupon_id_next.sql").read_text()
    assert migrated.may_execute("couponmq_operator", "coupon_id_next()")
    assert not migrated.may_execute("public", "coupon_id_next()")
    assert migrated.functions_printed() == []


def test_another_signature_lives_beside(migrated):
    migrated.execute(
        "CREATE FUNCTION coupon_id_next(at_least bigint) RETURNS bigint"
        " LANGUAGE sql AS 'SELECT at_least'"
    )
    migrated.execute("UPDATE schema_function SET checksum = 'x'")
    migrated.functions_printed()
    assert migrated.execute("SELECT coupon_id_next(7), coupon_id_next()") == [(7, 1001)]


def test_all_functions_or_none(migrated):
    """A function that cannot be replaced: its result has another type."""
    signature = headers()["receive_lost"][2]
    migrated.execute(
        f"DROP FUNCTION {signature};"
        f"CREATE FUNCTION {signature} RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )
    migrated.execute(OTHER_BODY)
    status, _, err = migrated.run()
    assert status == 1
    assert "function receive_lost failed, and nothing was changed" in err
    assert migrated.body("coupon_id_next") == "SELECT 7::bigint"


def test_two_at_once(empty):
    both = [empty.start(), empty.start()]
    out = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], out
    assert sum(stdout.count("function settle: applying") for stdout, _ in out) == 1
    assert sum(stdout.count("is at version 1 already") for stdout, _ in out) == 1


def test_under_calls(migrated):
    """Replaced while it runs: the call ends with the text with which it started."""
    name = f"held_{uuid.uuid4().hex}"
    migrated.execute(
        "CREATE OR REPLACE FUNCTION coupon_id_next() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_advisory_lock(hashtext('migrate test'), 1); RETURN 7; END $$"
    )
    with psycopg.connect(migrated.url, autocommit=True) as holder, psycopg.connect(
        migrated.url, autocommit=True, application_name=name
    ) as caller:
        holder.execute("SELECT pg_advisory_lock(hashtext('migrate test'), 1)")
        caller.pgconn.send_query(b"SELECT coupon_id_next()")
        wait_until(
            lambda: holder.execute(
                "SELECT true FROM pg_stat_activity"
                " WHERE application_name = %s AND wait_event_type = 'Lock'",
                (name,),
            ).fetchone()
        )
        assert len(migrated.functions_printed()) == 1
        holder.execute("SELECT pg_advisory_unlock(hashtext('migrate test'), 1)")
        assert caller.pgconn.get_result().get_value(0, 0) == b"7"
        assert caller.pgconn.get_result() is None
        assert caller.execute("SELECT coupon_id_next()").fetchone() == (1001,)


# To the next version


@pytest.fixture(scope="session")
def next_build(tmp_path_factory):
    return next_version_build(tmp_path_factory.mktemp("migrate"), "build/couponctl")


@pytest.fixture
def before(migrated, next_build):
    """The database of this version, and the next one's couponctl."""
    migrated.execute("INSERT INTO coupon (id, name, total_num) VALUES (1001, 'x', 9)")
    migrated.build_dir = next_build
    return migrated


def form(database):
    """The columns and functions, and what was applied."""
    return database.execute(
        "SELECT attrelid::regclass::text, attname::text FROM pg_attribute JOIN pg_class AS c"
        " ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace UNION ALL"
        " SELECT proname, md5(prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " UNION ALL SELECT name, version::text FROM schema_migration ORDER BY 1, 2"
    )


@pytest.mark.long
def test_the_next_version(before, stack):
    old_form = form(before)
    planned = before.told("--dry-run")
    assert "0001" not in planned and "0002 next: to be applied" in planned
    assert "function settle: version 99 to be applied" in planned
    assert form(before) == old_form
    process = before.start()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.index("function settle: applying version 99") < out.index("0002 next: applying")
    shown = re.findall(r"^couponctl: copies: (\d+) %$", err, re.M)
    assert shown[-1] == "100" and shown == sorted(set(shown), key=int), "it only grows"
    assert before.execute("SELECT id, next_num FROM coupon") == [(1001, 0)]
    assert "is at version 2 already" in before.told()
    before.build_dir = stack.build_dir
    assert "at version 2, newer than this program's 1" in before.run()[2]


@pytest.mark.long
@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_one_that_ends_before_its_last_line_has_changed_nothing(before, end):
    old_form = form(before)
    with psycopg.connect(before.url) as holder:
        holder.execute("LOCK TABLE schema_migration IN EXCLUSIVE MODE")  # reads are allowed
        process = before.start()
        ((pid,),) = wait_until(
            lambda: before.execute(
                "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
                holder.info.backend_pid,
            )
        )
        if end == "kill":
            process.kill()
        else:
            holder.execute("SELECT pg_terminate_backend(%s)", (pid,))
        _, err = process.communicate(timeout=120)
    assert "copies: 100 %" in err, "all was done"
    wait_until(lambda: not before.execute("SELECT pid FROM pg_stat_activity WHERE pid = %s", pid))
    assert form(before) == old_form
    assert "0002 next: applying" in before.told()
