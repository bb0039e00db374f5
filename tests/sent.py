"""What the programs send to Redis and PostgreSQL, for traps of relay.py: a program sends a script
or a statement as the text of its file, which the build embeds."""

import pathlib
import re

from script_coupon import script_text

# The statements of sql/query by their names: each is a paragraph.
QUERIES = {
    name: text
    for path in sorted((pathlib.Path(__file__).resolve().parents[1] / "sql/query").glob("*.sql"))
    for text, name in re.findall(r"(?<=\n\n)(-- (\w+): (?:.+\n)+)", path.read_text())
}


def script_sent(name):
    """lua/NAME.lua after the definitions of the prelude that it uses."""
    return script_text(name).strip()


def query_sent(name):
    """A statement of sql/query."""
    return QUERIES[name].strip()
