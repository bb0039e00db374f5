"""The role of each program may do what its program does, and nothing else of what would harm."""

import re
import uuid

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sent import QUERIES
from sql_db import ROLES, ROOT
from test_sql_query import OWNER_ONLY

# The folders of a program's sources.
FOLDERS = {
    "gateway": ("gateway", "common"),
    "worker": ("worker", "keeper", "events", "common"),
    "operator": ("ctl", "admin", "rush", "lock", "common"),
}
CURSOR = re.compile(r"DECLARE \w+ (?:NO SCROLL )?CURSOR FOR\s+(.*)", re.DOTALL)
STATEMENT = re.compile(r"\s*(?:--.*\n)*\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")


def queries_of(program):
    used = set()
    for folder in FOLDERS[program]:
        for path in (ROOT / folder).rglob("*.c"):
            used.update(re.findall(r"\bsql_query_(\w+)", path.read_text()))
    assert used
    return sorted(used - OWNER_ONLY)


@pytest.fixture
def role(stack, database):
    """role(PROGRAM): a connection with its rights."""
    opened = []

    def make(program):
        url = make_conninfo(
            database[1], user="postgres", password=stack.kept()["STACK_PG_PASSWORD"]
        )
        opened.append(psycopg.connect(url, autocommit=True))
        opened[-1].execute(f"SET ROLE couponmq_{program}")
        opened[-1].execute("SET plan_cache_mode = force_generic_plan")
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.parametrize("program", FOLDERS)
def test_it_may_run_the_statements_of_its_program(role, program):
    """EXPLAIN checks the rights on tables, columns and functions, and runs nothing."""
    db, tried = role(program), 0
    for name in queries_of(program):
        text = QUERIES[name]
        cursor = CURSOR.search(text)
        text = cursor[1] if cursor else text
        if not STATEMENT.match(text):
            continue  # BEGIN, FETCH, SET
        parameters = max([int(n) for n in re.findall(r"\$(\d+)", text)], default=0)
        db.execute(f"PREPARE {name} AS {text}")
        try:
            db.execute(
                f"EXPLAIN EXECUTE {name}"
                + f"({', '.join(['NULL'] * parameters)})"[: None if parameters else 0]
            )
        except psycopg.errors.InsufficientPrivilege as error:
            pytest.fail(f"couponmq_{program} may not run {name}: {error}")
        tried += 1
    assert tried > 5


WRITES = [
    "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
    " VALUES ('1', 1, 1, 0, gen_random_uuid(), now(), now())",
    "DELETE FROM user_coupon",
    "UPDATE user_coupon SET slot = 2",
    "DELETE FROM user_coupon_0",
    "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason, received_at)"
    " VALUES (1, gen_random_uuid(), 0, '1', 1, 'voided', now())",
    "DELETE FROM receive_rejected",
    "UPDATE receive_rejected SET reason = 'slot_taken'",
    "UPDATE coupon SET id = id",
    "UPDATE coupon SET issued_num = 0",
    "UPDATE coupon SET generation = generation + 1",
    "DELETE FROM coupon",
    "UPDATE campaign_history SET made_by = 'me'",
    "DELETE FROM campaign_history",
    "INSERT INTO campaign_history (coupon_id, made_by, action, version, terms)"
    " VALUES (1, 'me', 'edit', 1, '{}')",
    "UPDATE campaign_transition SET action = 'x'",
    "INSERT INTO coupon_void (coupon_id, batch, idx, user_id, slot, is_returned, voided_by)"
    " VALUES (1, gen_random_uuid(), 0, '1', 1, true, 'me')",
    "DELETE FROM coupon_void",
    "UPDATE code SET state = 'unused'",
    "INSERT INTO event_log (type, num, coupon) VALUES ('coupon.issued', 1, '{1}')",
    "DELETE FROM event_log",
    "UPDATE webhook SET url = 'http://x'",
    "UPDATE webhook_delivery SET body = '[]'",
    "INSERT INTO api_key (id, name, roles, sha256, version, created_by, by)"
    " VALUES ('0000000000', 'x', '{admin}', decode(repeat('00', 32), 'hex'), 1, 'me', 'me')",
    "UPDATE api_key SET revoked_at = NULL",
    "DELETE FROM api_key",
    "UPDATE api_key_version SET num = 0",
    "SELECT api_key_next()",
    "DELETE FROM keeper",
    "TRUNCATE event_log",
    "DELETE FROM schema_function",
    "INSERT INTO schema_migration (version, name) VALUES (99, 'mine')",
    "CREATE TABLE mine (n int)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION coupon_id_next() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
    "ALTER TABLE coupon ADD COLUMN mine int",
    "DROP TABLE user_coupon_0",
]
OWN = {
    "gateway": [
        "UPDATE coupon SET name = 'x'",
        "INSERT INTO coupon (id, name, total_num) VALUES (1, 'x', 1)",
        "UPDATE keeper SET fence = fence",
        "UPDATE code_set SET completed_at = now()",
        "SELECT FROM campaign_history",
        "SELECT FROM event_log",
        "SELECT secret FROM webhook_secret",
        "SELECT FROM webhook_delivery",
        "SELECT change_note(false)",
        "SELECT coupon_id_next()",
        "SELECT api_key_revoke('0000000000')",
        "SELECT nextval('coupon_id_seq')",
        "SELECT * FROM settle('{}', '{}', '{}', '{}', '{}', '{}'::text[], '{}', '{}', '{}', '{}',"
        " '{}')",
        "SELECT * FROM coupon_void(1, gen_random_uuid(), 0::smallint, '1', 'x')",
    ],
    "worker": [
        "UPDATE coupon SET total_num = 1",
        "INSERT INTO coupon (id, name, total_num) VALUES (1, 'x', 1)",
        "SELECT FROM campaign_history",
        "INSERT INTO webhook_secret (webhook_id, secret, created_by) VALUES (1, 'x', 'me')",
        "INSERT INTO code (set_id, serial, coupon_id, state) VALUES (1, 1, 1, 'unused')",
        "SELECT * FROM coupon_void(1, gen_random_uuid(), 0::smallint, '1', 'x')",
        "SELECT coupon_recover_begin(1, 1)",
        "UPDATE change_count SET num = 0",
        "SELECT api_key_create('0000000000', 'x', '{admin}', NULL, NULL, NULL, NULL, '')",
        "SELECT api_key_revoke('0000000000')",
    ],
    "operator": [
        "DELETE FROM code",
        "UPDATE change_count SET num = 0",
        "DELETE FROM code_set",
        "SELECT event_log_remove('{}', '{}', '{}', '{}')",
        "SELECT coupon_generation_open(1, 1, 1, 1)",
        "SELECT code_free('{}', '{}', '{}', '{}')",
    ],
}


@pytest.mark.parametrize("program", FOLDERS)
def test_it_may_not(role, program):
    db = role(program)
    for statement in WRITES + OWN[program]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute(statement)
            pytest.fail(f"couponmq_{program}: {statement}")


def test_an_operators_change_is_in_the_history(role, coupon_id, owner):
    """Which the operator cannot write."""
    db, coupon = role("operator"), coupon_id()
    db.execute("INSERT INTO coupon (id, name, total_num) VALUES (%s, 'x', 1)", (coupon,))
    db.execute("UPDATE coupon SET name = 'y' WHERE id = %s", (coupon,))
    db.execute("UPDATE coupon SET status = 'published' WHERE id = %s", (coupon,))
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("UPDATE coupon SET status = 'draft' WHERE id = %s", (coupon,))
    history = owner.execute(
        "SELECT action FROM campaign_history WHERE coupon_id = %s ORDER BY id", coupon
    )
    assert history == [("create",), ("edit",), ("publish",)]


@pytest.mark.parametrize("program", ["worker", "operator"])
def test_what_it_asks_for_is_recorded(role, owner, program):
    """The keeper of a worker runs couponctl recover --tail."""
    db, by = role(program), f"keeper@{uuid.uuid4()}"
    (begun,) = db.execute("SELECT command_begin(%s, 'recover', ' --tail=9')", (by,)).fetchone()
    for status in (11, 0):
        db.execute("SELECT command_end(%s, %s::smallint, NULL)", (begun, status))
    history = owner.execute(
        "SELECT id, command, words, status FROM command_history WHERE made_by = %s", by
    )
    assert history == [(begun, "recover", " --tail=9", 11)]


def test_a_worker_brings_back_no_void(role, coupon_id):
    """Its keeper calls that function with COUPON_RECOVER=auto."""
    db, coupon, batch = role("worker"), coupon_id(), uuid.uuid4()

    def restore(reason):
        return db.execute(
            "SELECT * FROM coupon_recover_rejected(%s, ARRAY[%s::uuid], '{0}', '{u}', '{1}',"
            " ARRAY[%s], '{7}', '{0}')",
            (coupon, batch, reason),
        ).fetchall()

    db.execute("RESET ROLE; SET SESSION AUTHORIZATION couponmq_worker")
    for reason in ("voided", "void_kept"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="a void of coupon"):
            restore(reason)
    assert restore("slot_taken") == [(1,)]
    db.execute("RESET SESSION AUTHORIZATION")
    assert restore("voided") == [(1,)]
    db.execute("SET SESSION AUTHORIZATION couponmq_worker")
    assert restore("voided") == [], "it is there"


def test_a_worker_ends_no_recovery_of_what_operators_changed(role):
    db = role("worker")
    db.execute("RESET ROLE; SET SESSION AUTHORIZATION couponmq_worker")

    def done(stripe, how):
        num = "SELECT num + 1 FROM change_count WHERE stripe = %s"
        db.execute(
            f"SELECT coupon_recover_done(ARRAY[%s::smallint], ARRAY[({num})], %s, 1, '', '')",
            (stripe, stripe, how),
        )

    for stripe, how in ((63, "tail"), (64, "all")):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"this recovery is {how}"):
            done(stripe, how)
    done(64, "tail")


def test_the_role_of_people_has_the_rights_of_all_programs_and_none_of_its_own(owner):
    own = owner.execute(
        "SELECT a.grantee::regrole::text FROM pg_class AS c, aclexplode(c.relacl) AS a"
        " WHERE c.relnamespace = 'public'::regnamespace"
        " AND a.grantee IN (0, 'couponmq_app'::regrole)"
        " UNION ALL SELECT a.grantee::regrole::text FROM pg_proc AS p, aclexplode(p.proacl) AS a"
        " WHERE p.pronamespace = 'public'::regnamespace"
        " AND a.grantee IN (0, 'couponmq_app'::regrole)"
    )
    assert own == []
    for program in FOLDERS:
        assert owner.execute(
            "SELECT pg_has_role('couponmq_app', %s, 'usage')", f"couponmq_{program}"
        ) == [(True,)]


def test_there_is_a_decision_about_everything(owner):
    """A new table, sequence or function is named in sql/roles.sql: for whom it is, or for none."""
    text = ROLES.read_text()
    relations = owner.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        " AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition"
    )
    functions = owner.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    )
    assert len(relations) > 20 and len(functions) >= 30
    missing = [name for (name,) in relations if not re.search(rf"\b{name}\b", text)]
    missing += [f"{name}()" for (name,) in functions if not re.search(rf"\b{name}\(", text)]
    assert not missing, f"sql/roles.sql says nothing of {', '.join(missing)}"


def test_a_function_with_the_owners_rights_has_a_fixed_search_path(owner):
    functions = owner.execute(
        "SELECT oid::regprocedure::text, coalesce(proconfig, '{}') FROM pg_proc"
        " WHERE pronamespace = 'public'::regnamespace AND prosecdef"
    )
    assert len(functions) > 15
    for name, settings in functions:
        assert "search_path=public, pg_temp" in str(settings), name
