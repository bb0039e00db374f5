"""A comparison as Markdown: the lead of couponmq, the machine, and the tables: figures, what went
wrong and why, and how many connections suit each way."""

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

FLAWS = ("oversold", "miscounted", "over_limit", "unsold")

# name, width, cell
SPEED = (
    ("way", 27, lambda row: f"{row['id']} {row['name']}"),
    ("committed/s", 11, lambda row: f"{row['rate']:,.0f}" + ("" if row["is_durable"] else "¹")),
    ("least–most", 14, lambda row: spread(row["rates"])),
    ("p50 ms", 6, lambda row: milliseconds(row["latency_p50_us"])),
    ("p99 ms", 6, lambda row: milliseconds(row["latency_p99_us"])),
    ("over", 4, lambda row: f"{row['connections']}"),
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
committed/s: pieces sold, by the time to the last COMMIT, the median of {runs} runs, and the least
and the most of them. p50, p99: in the median run, from when a client asks, so with its wait for the
connection, until a request that was sold a piece is answered; 1,000 clients ask at once, or as many
as there are requests. over: connections. failed: attempts, where another client was faster or a
fence refused. left: of the stock. oversold: sold beyond the stock. miscounted: sales that the stock
does not show. over limit: users with more than one. unsold: pieces that are left although users who
asked got none; of these four the most in any run. ¹ never reaches PostgreSQL."""
SWEPT = """\
Thousands committed a second over so many connections, with as many pieces as users: the median of
{runs} runs, the least and the most. A way stands in the other tables with its fastest number; one
with a known flaw not with 1, where nobody is in another's way."""


def rate_of(result):
    """Sold pieces a second, to the last COMMIT."""
    return result["sold"] / result["committed_us"] * 1e6 if result["committed_us"] else 0


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2]


def row_of(way, options, runs):
    """The run with the median rate, the rates of all, and the worst flaws of any."""
    ordered = sorted(runs, key=rate_of)
    row = {**way, **ordered[len(ordered) // 2], "connections": options["connections"]}
    row.update({flaw: max(run[flaw] for run in runs) for flaw in FLAWS})
    rates = [rate_of(run) for run in ordered]
    return {**row, "rates": rates, "rate": middle(rates), "pieces": options["stock"]}


def spread(rates):
    return f"{min(rates):,.0f}–{max(rates):,.0f}"


def times(lead):
    return f"{lead:.1f}" if lead >= 2 else f"{lead:.2f}"


def milliseconds(us):
    return f"{us / 1000:.1f}" if us < 100000 else f"{us / 1000:,.0f}"


def thousands(rate):
    return f"{rate / 1000:.{2 if rate < 9995 else 1 if rate < 99950 else 0}f}"


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


def sweep_lines(sweep, runs):
    numbers = sorted({number for _, number in sweep.rates})

    def cell(number):
        return lambda way: (
            f"{thousands(sweep.rate(way, number))} "
            + "–".join(thousands(pick(sweep.rates[way["id"], number])) for pick in (min, max))
        )

    columns = [("way", 27, lambda way: f"{way['id']} {way['name']}")]
    columns += [(str(number), 14, cell(number)) for number in numbers]
    yield "## Connections"
    yield ""
    yield from table_lines(columns, sweep.ways)
    yield ""
    yield SWEPT.format(runs=runs)
    yield ""


def pieces_lines(rows):
    """How many pieces each way sold, where they differ."""
    by_number = {}
    for row in rows:
        by_number.setdefault(int(row["pieces"]), []).append(row["id"])
    for number, ids in sorted(by_number.items()):
        if len(by_number) > 1:
            yield from textwrap.wrap(f"{number:,} pieces: {', '.join(ids)}.", 100)
    if len(by_number) > 1:
        yield ""


def flaws(row):
    return {name for name in FLAWS if row[name]}


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
        yield from pieces_lines(self.rows)

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
    def __init__(self, runs):
        self.runs = runs
        self.tables = []
        self.sweep = None

    def add(self, title, rows):
        self.tables.append(Table(title, rows))

    def lead_lines(self):
        """The best opponent first: whose sales reach PostgreSQL, as couponmq's do."""
        leads = sorted(self.tables[0].leads(), key=lambda one: (not one[0]["is_durable"], one[1]))
        if not leads:
            return
        product = next(row for row in self.tables[0].rows if row["id"] == COMMITTED)
        yield (
            f"**couponmq commits {times(leads[0][1])} times as many as the best opponent**, where "
            f"its clients wait for COMMIT ({COMMITTED}): {product['rate']:,.0f} a second "
            f"({spread(product['rates'])}). Against each way without a known flaw, the best first:"
        )
        yield ""
        for row, lead, wanted in leads:
            yield (
                f"- {times(lead)} times {row['id']} {row['name']}: {row['rate']:,.0f}"
                f"{'' if row['is_durable'] else '¹'} ({spread(row['rates'])})"
            ) + (f"; wanted: {wanted}" if lead < wanted else "")
        yield ""

    def lines(self):
        yield "# The ways of selling: one run"
        yield ""
        for line in self.lead_lines():
            yield textwrap.fill(line, 100, subsequent_indent="  " if line[:1] == "-" else "")
        yield "For whoever checks [ways.md](ways.md): the tables of one run of `make compare`."
        yield ""
        yield machine()
        yield ""
        for table in self.tables:
            yield from table.lines()
            yield from table.reasons()
        yield textwrap.fill(EXPLAINED.format(runs=self.runs), 100)
        yield ""
        yield from sweep_lines(self.sweep, self.runs)

    def text(self):
        return "\n".join(self.lines()).rstrip("\n")

    def write(self, path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text() + "\n")

    def is_as_promised(self):
        """A way has only the flaws that it is known for."""
        return not any(unexpected(row) for table in self.tables for row in table.rows)
