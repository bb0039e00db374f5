"""The tables of a comparison, as Markdown: figures, what went wrong and why, the lead of couponmq,
and the machine."""

import os
import platform
import subprocess
from dataclasses import dataclass

ONE_ROW_LEAD = 20  # couponmq against correct ways that commit one row a transaction
OTHER_LEAD = 8  # against the other correct ways
PRODUCT = "10"

COLUMNS = (
    ("way", lambda row: f"{row['id']} {row['name']}"),
    ("committed/s", lambda row: f"{row['rate']:,.0f}" + ("" if row["is_durable"] else " ¹")),
    ("p50 ms", lambda row: f"{row['latency_p50_us'] / 1000:,.1f}"),
    ("p99 ms", lambda row: f"{row['latency_p99_us'] / 1000:,.1f}"),
    ("time s", lambda row: f"{row['committed_us'] / 1e6:.2f}"),
    ("sold", lambda row: f"{row['sold']:,}"),
    ("stock left", lambda row: f"{row['stock']:,}"),
    ("oversold", lambda row: mark(row["oversold"])),
    ("miscounted", lambda row: mark(row["miscounted"])),
    ("users over limit", lambda row: mark(row["over_limit"])),
    ("unsold", lambda row: mark(row["unsold"])),
    ("attempts failed / all", lambda row: f"{row['attempts_failed']:,} / {row['attempts']:,}"),
    ("connections", lambda row: str(row["connections"])),
)
EXPLAINED = """\
committed/s: pieces sold, by the time to the last COMMIT. p50, p99: until the answer of a request \
that was sold a piece; 1,000 clients wait at once. oversold: sold beyond the stock. miscounted: \
sales that the stock does not show. unsold: pieces left although users who asked got none.
¹ never reaches PostgreSQL."""


def mark(number):
    return f"**{number:,}**" if number else "0"


def is_correct(row):
    return not any(row[name] for name in ("oversold", "miscounted", "over_limit", "unsold"))


@dataclass
class Table:
    title: str
    rows: list

    def product(self):
        rows = [row for row in self.rows if row["id"].startswith(PRODUCT)]
        return max(rows, key=lambda row: row["rate"]) if rows else None

    def leads(self):
        """(row, how many times as fast couponmq is, how many are wanted) of correct ways."""
        product = self.product()
        for row in self.rows:
            if product and is_correct(row) and not row["id"].startswith(PRODUCT):
                wanted = ONE_ROW_LEAD if row["is_durable"] else OTHER_LEAD
                yield row, product["rate"] / row["rate"], wanted

    def lines(self):
        yield f"### {self.title[0].upper()}{self.title[1:]}"
        yield ""
        yield "| " + " | ".join(name for name, _ in COLUMNS) + " |"
        yield "| --- |" + " ---: |" * (len(COLUMNS) - 1)
        for row in self.rows:
            yield "| " + " | ".join(cell(row) for _, cell in COLUMNS) + " |"
        yield ""

    def reasons(self):
        wrong = [row for row in self.rows if not is_correct(row)]
        for row in wrong:
            yield f"- {row['id']} {row['name']}: {row['wrong'] or 'no reason is known: a defect'}."
        if wrong:
            yield ""


def version(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) // 2**20
    return (
        f"One run on one machine that everything shares: {len(models)} cores of "
        f"{models[0] if models else platform.machine()}, {memory} GB of memory, "
        f"Linux {platform.release()}."
    )


class Report:
    def __init__(self):
        self.tables = []

    def add(self, title, rows):
        self.tables.append(Table(title, rows))

    def lead_lines(self):
        for row, lead, wanted in self.tables[0].leads():
            yield f"- {lead:.1f} times {row['id']} {row['name']}" + (
                f" (wanted: {wanted})" if lead < wanted else ""
            )

    def lines(self):
        yield machine()
        yield ""
        for table in self.tables:
            yield from table.lines()
            yield from table.reasons()
        yield EXPLAINED
        leads = list(self.lead_lines())
        if leads:
            yield ""
            yield "couponmq's committed coupons a second against each correct way:"
            yield ""
            yield from leads

    def text(self):
        return "\n".join(self.lines())

    def write(self, path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text() + "\n")

    def is_as_promised(self):
        """Only a way that tells why it is wrong may be wrong."""
        return all(
            is_correct(row) or row["wrong"] for table in self.tables for row in table.rows
        )
