"""The tables of a comparison, as Markdown: figures, what went wrong and why, the lead of couponmq,
and the machine."""

import os
import platform
import textwrap
from dataclasses import dataclass

import pika
import psycopg
import redis

ONE_ROW_LEAD = 20  # couponmq against correct ways that commit one row a transaction
OTHER_LEAD = 8  # against those whose sales are not in a table
PRODUCT = "10"
COMMITTED = "10b"  # of it: its clients wait for COMMIT, as those of the other ways do

# name, width, cell
SPEED = (
    ("way", 27, lambda row: f"{row['id']} {row['name']}"),
    ("committed/s", 11, lambda row: f"{row['rate']:,.0f}" + ("" if row["is_durable"] else "¹")),
    ("lowest–highest", 15, lambda row: f"{row['rate_low']:,.0f}–{row['rate_high']:,.0f}"),
    ("p50 ms", 7, lambda row: f"{row['latency_p50_us'] / 1000:,.1f}"),
    ("p99 ms", 8, lambda row: f"{row['latency_p99_us'] / 1000:,.1f}"),
    ("failed", 7, lambda row: f"{row['attempts_failed']:,}"),
)
RESULT = (
    ("way", 27, lambda row: f"{row['id']} {row['name']}"),
    ("sold", 6, lambda row: f"{row['sold']:,}"),
    ("left", 6, lambda row: f"{row['stock']:,}"),
    ("oversold", 10, lambda row: mark(row["oversold"])),
    ("miscounted", 10, lambda row: mark(row["miscounted"])),
    ("over limit", 10, lambda row: mark(row["over_limit"])),
    ("unsold", 9, lambda row: mark(row["unsold"])),
)
EXPLAINED = """\
committed/s: pieces sold, by the time to the last COMMIT; the median of five runs in the first
table, and the lowest and the highest of them. p50, p99: until the answer of a request that was sold
a piece; 1,000 clients wait at once, or as many as the title says. failed: attempts, where another
client was faster, or where a fence refused. left: of the stock. oversold: sold beyond the stock.
miscounted: sales that the stock does not show. over limit: users with more than one. unsold: pieces
that are left although users who asked got none. ¹ never reaches PostgreSQL."""


def mark(number):
    return f"**{number:,}**" if number else "0"


def line_of(cells, columns):
    """The first cell to the left, the others to the right."""
    widths = [width for _, width, _ in columns]
    padded = [cell.rjust(width) for cell, width in zip(cells, widths)]
    padded[0] = cells[0].ljust(widths[0])
    return f"| {' | '.join(padded)} |"


def table_lines(columns, rows):
    yield line_of([name for name, _, _ in columns], columns)
    yield line_of(["---"] + ["---:"] * (len(columns) - 1), columns)
    for row in rows:
        yield line_of([cell(row) for _, _, cell in columns], columns)


def connections_lines(rows):
    """With how many connections each way was fastest."""
    by_number = {}
    for row in rows:
        by_number.setdefault(row["connections"], []).append(row["id"])
    for number, ids in sorted(by_number.items()):
        noun = "connection" if number == 1 else "connections"
        yield f"{number} {noun}: {', '.join(ids)}."
    yield ""


def flaws(row):
    return {name for name in ("oversold", "miscounted", "over_limit", "unsold") if row[name]}


def is_correct(row):
    return not flaws(row)


def unexpected(row):
    """Flaws that the way is not known for."""
    return flaws(row) - set(row["may"].split())


@dataclass
class Table:
    title: str
    rows: list

    def leads(self):
        """(row, how many times as fast couponmq is, how many are wanted or 0), of ways without a
        known flaw."""
        product = next((row for row in self.rows if row["id"] == COMMITTED), None)
        for row in self.rows:
            is_product = row["id"].startswith(PRODUCT)
            if product and not row["may"] and is_correct(row) and not is_product:
                one_row = ONE_ROW_LEAD if row["is_durable"] else OTHER_LEAD
                wanted = 0 if row["is_batch"] else one_row
                yield row, product["rate"] / row["rate"], wanted

    def lines(self):
        yield f"## {self.title[0].upper()}{self.title[1:]}"
        yield ""
        for columns in (SPEED, RESULT):
            yield from table_lines(columns, self.rows)
            yield ""
        yield from connections_lines(self.rows)

    def reasons(self):
        wrong = [row for row in self.rows if not is_correct(row)]
        for row in wrong:
            why = row["wrong"]
            if unexpected(row):
                why = f"a defect: {', '.join(sorted(unexpected(row)))} for no known reason"
            yield from textwrap.wrap(
                f"- {row['id']} {row['name']}: {why}.", 100, subsequent_indent="  "
            )
        if wrong:
            yield ""


def stores():
    """Names and versions, as the servers state them."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        postgres = database.execute("SHOW server_version").fetchone()[0].split()[0]
    with redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True) as client:
        redis_version = client.info("server")["redis_version"]
    broker = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    rabbit = broker._impl.server_properties["version"]
    broker.close()
    return f"PostgreSQL {postgres}, Redis {redis_version}, RabbitMQ {rabbit}"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) // 2**20
    text = (
        f"One run on one machine that everything shares: {len(models)} cores of "
        f"{models[0] if models else platform.machine()}, {memory} GB of memory, "
        f"Linux {platform.release().split('-')[0]}. {stores()}."
    )
    return textwrap.fill(text, 100)


class Report:
    def __init__(self):
        self.tables = []

    def add(self, title, rows):
        self.tables.append(Table(title, rows))

    def lead_lines(self):
        """The best opponent first."""
        for row, lead, wanted in sorted(self.tables[0].leads(), key=lambda one: one[1]):
            yield f"- {lead:.1f} times {row['id']} {row['name']}" + (
                f" (wanted: {wanted})" if lead < wanted else ""
            )

    def lines(self):
        yield "# The ways of selling: one run"
        yield ""
        yield "Made by `make compare`; [ways.md](ways.md) explains the ways."
        yield ""
        yield machine()
        yield ""
        leads = list(self.lead_lines())
        if leads:
            yield "couponmq's committed coupons a second, where clients wait for COMMIT (10b),"
            yield "against each way without a known flaw, the best first:"
            yield ""
            yield from leads
            yield ""
        for table in self.tables:
            yield from table.lines()
            yield from table.reasons()
        yield EXPLAINED

    def text(self):
        return "\n".join(self.lines())

    def write(self, path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text() + "\n")

    def is_as_promised(self):
        """A way has only the flaws that it is known for."""
        return not any(unexpected(row) for table in self.tables for row in table.rows)
