"""What the programs send to Redis and PostgreSQL, for traps of relay.py: a program sends a script
or a query as the text of its file, which the build embeds."""

import pathlib

from script_coupon import script_text

QUERIES = pathlib.Path(__file__).resolve().parents[1] / "sql/query"


def script_sent(name):
    """lua/NAME.lua after the definitions of the prelude that it uses."""
    return script_text(name).strip()


def query_sent(name):
    """sql/query/NAME.sql."""
    return (QUERIES / f"{name}.sql").read_text().strip()
