"""Every statement of sql/query: the programs may run it, and its text says what it is for."""

import re

import pytest
from sent import QUERIES
from sql_db import MIGRATIONS

OWNER_ONLY = {
    "migration_init",
    "migration_record",
    "function_init",
    "function_state",
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
