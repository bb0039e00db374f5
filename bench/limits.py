"""The limits of this machine: its disk, and PostgreSQL alone. Those of Redis are measured in pairs
with admission, in one_coupon.py."""

import os
import re

from rig import BUILD, PG_BIN, QUICK, RUN, SCALE, database_open, figures, has, rate, run

PGBENCH_S = 6 if not QUICK else 1


def fsync_measure():
    p50, p99 = run(f"{BUILD}/bench_fsync", f"{RUN}/bench.fsync", 1000 // SCALE).split()
    figures["fsync_p50_us"], figures["fsync_p99_us"] = int(p50), int(p99)


def database_baselines_measure():
    with database_open("DATABASE_ADMIN_URL") as db:
        db.execute("DROP TABLE IF EXISTS bench_user_coupon, bench_coupon")
        db.execute("CREATE TABLE bench_user_coupon (LIKE user_coupon INCLUDING ALL)")
        db.execute(
            "CREATE TABLE bench_coupon (id bigint PRIMARY KEY, issued_num bigint NOT NULL)"
            " WITH (fillfactor = 50)"
        )
        db.execute("INSERT INTO bench_coupon VALUES (1, 0)")
    for name, script, clients, rows_n in (
        ("rows_single_per_s", "one_row", 8, 1),
        ("inserts_single_per_s", "one_insert", 8, 1),
        ("rows_many_per_s", "many_rows", 2, 500),
    ):
        words = ("-n", "-M", "prepared", "-c", clients, "-j", 2, "-T", PGBENCH_S)
        script = f"bench/{script}.sql"
        out = run(f"{PG_BIN}/pgbench", *words, "-f", script, os.environ["DATABASE_ADMIN_URL"])
        figures[name] = float(re.search(r"tps = ([\d.]+) \(without", out).group(1)) * rows_n
    with database_open("DATABASE_ADMIN_URL") as db:
        db.execute("DROP TABLE bench_user_coupon, bench_coupon")


MEASURES = (fsync_measure, database_baselines_measure)


def rows():
    yield "limits of this machine", None, None
    if has("script_calls_per_s"):
        yield "  redis-benchmark -P 16, one request a script call", rate("script_calls_per_s"), ""
    if has("rows_many_per_s"):
        yield "  pgbench, count and one row a transaction, 8 clients", rate("rows_single_per_s"), ""
        yield "  pgbench, one row alone a transaction, 8 clients", rate("inserts_single_per_s"), ""
        yield "  pgbench, 500 rows a transaction, 2 clients", rate("rows_many_per_s"), ""
    if has("fsync_p99_us"):
        p50, p99 = (figures[f"fsync_{part}_us"] / 1000 for part in ("p50", "p99"))
        yield "  fsync of 4 KiB, p50 / p99", f"{p50:.2f} / {p99:.2f} ms", ""
