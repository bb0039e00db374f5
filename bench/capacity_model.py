"""The tables of docs/about/capacity.md, from the figures in docs/about/capacity.json, and one from
those in docs/about/figures.txt. `make bench` writes them; `python3 bench/capacity_model.py` makes
them anew."""

import json
import math
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs/about"
FIGURES, PAGE = DOCS / "capacity.json", DOCS / "capacity.md"
BENCH = DOCS / "figures.txt"  # of the whole benchmark
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.S)

PROGRAMS = ("gateway", "redis", "rabbitmq", "workers", "postgres")
STORES = ("redis", "rabbitmq", "postgres")
TITLES = ("gateway", "Redis", "RabbitMQ", "workers", "PostgreSQL")
PAIRS = (
    *("client_gateway", "gateway_redis", "gateway_rabbitmq"),
    *("workers_rabbitmq", "workers_postgres"),
)
ACCEPTED = {
    "1_s": "lines, 1 a second",
    "1000_s": "lines, 1,000 a second",
    "10000_s": "lines, 10,000 a second",
    "lines": "lines, as many as go",
    "queued": "the same, `ack=queued`",
    "issued": "the same, `ack=issued`",
    "http": "HTTP, 64 connections",
    "many": "lines, 10,000 coupons",
}
REFUSED = {"sold_out": "refused, lines", "http_sold_out": "refused, HTTP"}
LOADS = {**ACCEPTED, **REFUSED}
RATES = (10_000, 100_000, 1_000_000)
USER_RATES = (10_000, 100_000)
STOCKS = (10_000, 100_000, 1_000_000, 10_000_000)
HOLDERS = (100_000, 1_000_000, 10_000_000)
SHARE = 0.6  # of a core is planned with
CORES = 16  # of a machine
CALL_REQUESTS = 240  # of a full call
SIMULATED = {
    "lines": [
        {"rate": 10_000, "gateways": 4},
        {"rate": 100_000, "gateways": 4},
        {"rate": 100_000, "gateways": 32},
        {"rate": 300_000, "gateways": 32},
        {"rate": 1_000_000, "gateways": 32},
        {"rate": 1_000_000, "gateways": 32, "stock": 10_000},
    ],
    "many": [
        {"rate": 10_000, "gateways": 4, "coupons": 10_000},
        {"rate": 20_000, "gateways": 4, "coupons": 10_000},
        {"rate": 20_000, "gateways": 32, "coupons": 10_000},
        {"rate": 100_000, "gateways": 32, "coupons": 10_000},
    ],
}


def number(value):
    """Three digits that count."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def table(heads, rows):
    aligned = ["---"] + ["---:"] * (len(heads) - 1)
    cells = [heads, aligned, *rows]
    return "\n".join("| " + " | ".join(cell or "" for cell in row) + " |" for row in cells)


def costs_of(found, name):
    """µs of an accepted receive, or of a refusal, by program."""
    if name == "http_lines":  # the way in of HTTP; what follows forms batches as with lines
        return {**costs_of(found, "lines"), "gateway": found["http"]["cpu_gateway"]}
    if name == "http_many":
        extra = found["http"]["cpu_gateway"] - found["lines"]["cpu_gateway"]
        costs = costs_of(found, "many")
        return {**costs, "gateway": costs["gateway"] + extra}
    idle = name in REFUSED  # what others use then is the noise of a machine
    return {
        program: found[name][f"cpu_{program}"] if not idle or program == "gateway" else 0
        for program in PROGRAMS
    }


def redis_costs(found, name):
    """The costs of the script for a command, a coupon in it and a request; what settling costs
    Redis later is added to the request."""
    costs, load = found["script_us"], found[name]
    calls = load["script_calls_total"]
    parts = calls if name == "lines" else 1
    issue = costs["call"] * calls + costs["part"] * parts + costs["request"]
    settle = max(load["cpu_redis"] - issue, 0)
    return {
        "call_us": costs["call"],
        "part_us": costs["part"],
        "request_us": costs["request"] + settle,
    }


# Tables about one receive


def receive_table(found):
    rows = []
    for name, label in LOADS.items():
        if name != "1_s":  # too few for a clock of 10 ms
            costs = costs_of(found, name)
            rows.append([label, *(f"{one:.1f}" for one in (*costs.values(), sum(costs.values())))])
    return table(["µs of CPU for one", *TITLES, "all"], rows)


def together_table(found):
    heads = ["receives for one", "call", "message", "transaction"]
    heads += ["sync: Redis", "RabbitMQ", "PostgreSQL"]
    kinds = ["script_calls_total", "messages_published_total", "worker_transactions_total"]
    kinds += [f"syncs_{store}" for store in STORES]
    rows = []
    for name, label in ACCEPTED.items():
        each = [found[name].get(kind) for kind in kinds]
        rows.append([label, *(number(1 / one) if one else "" for one in each)])
    return table(heads, rows)


def bytes_table(found):
    heads = ["bytes", "client", "Redis", "RabbitMQ", "worker", "PostgreSQL"]
    heads += ["disk: Redis", "RabbitMQ", "PostgreSQL"]
    kinds = [f"bytes_{pair}" for pair in PAIRS] + [f"written_{store}" for store in STORES]
    rows = [
        [label, *(number(found[name][kind]) for kind in kinds)]
        for name, label in ACCEPTED.items()
        if name != "1_s"  # too few beside what is done at rest
    ]
    for name, label in REFUSED.items():
        rows.append([label, number(found[name][kinds[0]]), *[""] * (len(kinds) - 1)])
    return table(heads, rows)


# Where one of something ends


def full_call_us(found):
    costs = redis_costs(found, "lines")
    return costs["request_us"] + (costs["call_us"] + costs["part_us"]) / CALL_REQUESTS


def limits(found):
    """Name: (a second, label)."""
    script = found["script_us"]
    alone = script["request"] + (script["call"] + script["part"]) / CALL_REQUESTS
    return {
        "gateway": (1e6 / found["sold_out"]["cpu_gateway"], "a core of a gateway, refused, lines"),
        "gateway_http": (1e6 / found["http_sold_out"]["cpu_gateway"], "the same, HTTP"),
        "script": (1e6 / alone, "Redis, the script alone, full calls"),
        "pinned": (found["pinned"]["accepted_per_s"], "Redis on a core of its own, measured"),
        "redis": (1e6 / full_call_us(found), "Redis, with what settling costs it"),
        "redis_many": (1e6 / found["many"]["cpu_redis"], "the same, 10,000 coupons"),
        "session": (found["transaction_lines"]["rows_per_s"], "PostgreSQL, one session"),
        "row": (found["transaction_lines"]["locked_rows_per_s"], "PostgreSQL, one row"),
        "session_many": (
            found["transaction_many"]["rows_per_s"],
            "PostgreSQL, one session, 10,000 coupons",
        ),
        "row_many": (
            found["transaction_many"]["locked_rows_per_s"],
            "PostgreSQL, the rows of 10,000 coupons",
        ),
    }


def limits_table(found):
    return table(
        ["one of", "a second"],
        [[label, f"{per_s:,.0f}"] for per_s, label in limits(found).values()],
    )


def workers_table(found):
    counts = ("workers_1", "workers_2", "workers_4")
    labels = {"lines": "one coupon", "many": "10,000 coupons"}
    return table(
        ["rows a second, of a backlog", "1 worker", "2", "4"],
        [
            [label, *(f"{found[f'backlog_{name}'][count]:,.0f}" for count in counts)]
            for name, label in labels.items()
        ],
    )


def processes_table(found):
    counts = (1, 2, 4)
    labels = {"sold_out_per_s": "refused", "rows_per_s": "accepted, committed"}
    return table(
        ["a second, two cores, lines", "`COUPON_PROCESSES=1`", "2", "4"],
        [
            [label, *(f"{found[f'processes_{n}'][kind]:,.0f}" for n in counts)]
            for kind, label in labels.items()
        ],
    )


def simulated_table(found):
    rows = []
    for one in (*found["simulated_lines"], *found["simulated_many"]):
        coupons = "10,000" if "coupons" in one else "one"
        stock = f", stock {one['stock']:,}" if "stock" in one else ""
        rows.append(
            [
                f"{coupons}{stock}",
                f"{one['rate']:,}",
                f"{one['gateways']}",
                f"{one['answers_per_s']:,.0f}",
                f"{one['calls_per_s']:,.0f}",
                number(one["requests_per_call"]),
                f"{one['redis_share'] * 100:.0f} %",
                f"{one['p50_ms']:,.1f}",
                f"{one['p99_ms']:,.1f}",
            ]
        )
    heads = ["coupons", "asked a second", "processes", "answered", "calls", "requests in one"]
    return table([*heads, "Redis", "p50 ms", "p99"], rows)


def redis_table(found):
    rows = []
    for name in ("1000_s", "10000_s", "lines", "http", "many"):
        thread, scripts = found[name]["cpu_redis"], found[name]["redis_scripts_us"]
        rows.append([ACCEPTED[name], f"{thread:.1f}", f"{scripts:.1f}"])
    return table(["µs of Redis for a receive", "all", "scripts, by its clock"], rows)


def script_table(found):
    costs = found["script_us"]
    cells = [f"{costs[name]:.1f}" for name in ("call", "part", "request")]
    return table(["µs of `lua/issue.lua`", "a call", "a coupon in it", "a request"], [["", *cells]])


def peaks_table(found):
    """The peaks in docs/about/figures.txt: users with a connection each, where the stack has all
    cores but one."""
    del found
    text = BENCH.read_text(encoding="utf-8")
    cores = int(re.search(r"^(\d+) cores", text, re.M)[1]) - 1
    rows = []
    for kind, peak in re.findall(r"^  (\S.*): peak in time +([\d,]+) /s", text, re.M):
        us = cores * 1e6 / int(peak.replace(",", ""))
        rows.append(
            [kind, f"{us:,.0f}", *(f"{rate * us / 1e6 / SHARE:,.1f}" for rate in USER_RATES)]
        )
    heads = [f"at {rate:,} users a second" for rate in USER_RATES]
    return table(["a connection each", "µs of all programs", *heads], rows)


def stored_table(found):
    kept = {
        "Redis, a holder, until `COUPON_KEEP_CLOSED_S` after the end": "redis_bytes_a_holder",
        "PostgreSQL, a row with its primary key, for ever": "postgres_bytes_a_row",
    }
    rows = []
    for label, name in kept.items():
        sizes = [f"{found[name] * holders / 1e6:,.0f} MB" for holders in HOLDERS]
        rows.append([label, f"{found[name]:,.0f}", *sizes])
    return table(["", "bytes", *(f"{holders:,} holders" for holders in HOLDERS)], rows)


def gone_table(found):
    per_s = limits(found)["redis"][0]
    seconds = [f"{stock / per_s:,.2f} s" for stock in STOCKS]
    return table(
        ["stock", *(f"{stock:,}" for stock in STOCKS)], [["is gone after, at least", *seconds]]
    )


def machine_text(found):
    when, what = found["machine"]
    return f"Measured {when}:\n{what}. Load before it began: {found['load']:.1f}."


# Cores and machines


CASES = {  # and the names of the limits of one installation
    "sold_out": ("refused, lines", ()),
    "http_sold_out": ("refused, HTTP", ()),
    "lines": ("one coupon, lines", ("redis", "row")),
    "http_lines": ("one coupon, HTTP", ("redis", "row")),
    "many": ("10,000 coupons, lines", ("redis_many", "row_many")),
    "http_many": ("10,000 coupons, HTTP", ("redis_many", "row_many")),
}


def end_of_one(found, case):
    """Accepted receives a second that one installation is planned for."""
    ends = limits(found)
    return min((SHARE * ends[name][0] for name in CASES[case][1]), default=math.inf)


def cores_table(found):
    rows = []
    for case, (label, _) in CASES.items():
        for rate in RATES:
            is_low = case in ("lines", "http_lines") and rate == 10_000
            costs = costs_of(found, "10000_s" if is_low else case)
            if is_low and case == "http_lines":
                costs["gateway"] = found["http"]["cpu_gateway"]
            cores = [rate * cost / 1e6 / SHARE for cost in costs.values()]
            cells = [f"{one:,.1f}" if one else "" for one in (*cores, sum(cores))]
            many = max(math.ceil(rate / end_of_one(found, case)), 1)
            machines = math.ceil(sum(cores) / CORES)
            rows.append([label, f"{rate:,}", *cells, f"{many}", f"{machines}"])
            label = ""
    heads = ["cores", "a second", *TITLES, "all", "split", "machines"]
    return table(heads, rows)


# Machines of gateways, of workers, of stores; 0: they are together; installations, and processes of
# gateways, as docs/about/capacity.md sets them.
STEPS = {
    "one machine": (0, 0, 1, 1, 4),
    "three": (0, 0, 3, 1, 6),
    "thirty": (8, 4, 18, 6, 112),
}


def step_per_s(found, step, case, is_spread):
    """What it is planned for. Of three machines with stores each has a copy of all of them, which
    costs as much as the leader."""
    gateways, workers, stores, many, processes = STEPS[step]
    if not is_spread:
        stores, many = stores // many, 1
    costs = costs_of(found, case)
    core_us, gateway_us = CORES * SHARE * 1e6, processes * SHARE * 1e6
    stored = sum(costs[store] for store in STORES) * min(stores, 3)
    if gateways:
        ends = [(gateways, costs["gateway"]), (workers, costs["workers"]), (stores, stored)]
    else:
        ends = [(stores, costs["gateway"] + costs["workers"] + stored)]
    most = min(machines * core_us / us for machines, us in ends if us)
    return min(most, gateway_us / costs["gateway"], many * end_of_one(found, case))


def steps_table(found):
    cases = [(case, label, "one coupon" not in label) for case, (label, _) in CASES.items()]
    cases.insert(4, ("lines", "six coupons, lines", True))
    rows = [
        [label, *(number(step_per_s(found, step, case, is_spread)) for step in STEPS)]
        for case, label, is_spread in cases
    ]
    return table(["a second", *STEPS], rows)


TABLES = {
    "receive": receive_table,
    "together": together_table,
    "bytes": bytes_table,
    "limits": limits_table,
    "workers": workers_table,
    "processes": processes_table,
    "simulated": simulated_table,
    "redis": redis_table,
    "script": script_table,
    "peaks": peaks_table,
    "stored": stored_table,
    "gone": gone_table,
    "machine": machine_text,
    "cores": cores_table,
    "steps": steps_table,
}


def page_with_tables(page, found):
    return TABLE.sub(
        lambda one: f"<!-- table: {one[1]} -->\n{TABLES[one[1]](found)}\n<!-- end -->", page
    )


def found_read():
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def write(found):
    FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


def rows(found):
    """The rows of the table that `make bench` prints."""
    yield "capacity: docs/about/capacity.md has all of it", None, None
    for per_s, label in limits(found).values():
        yield f"  {label}", f"{per_s:,.0f} /s", ""


if __name__ == "__main__":
    write(found_read())
