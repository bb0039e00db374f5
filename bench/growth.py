"""One coupon from few users to many, with random ids, in empty stores: what grows with them."""

import os
import time

import cpu
from rig import (
    FULL_LOAD,
    SCALE,
    coupon_make,
    database_open,
    figures,
    has,
    redis_open,
    rows_per_s,
    rush,
    stack_fresh,
)

MOST = int(os.environ.get("BENCH_GROWTH") or 1_000_000) // SCALE
SIZES = [size for size in (10**n // SCALE for n in range(4, 9)) if size <= MOST]
SLICE = 50_000 // SCALE  # at least so many users after each size are measured
SETTINGS = ("shared_buffers", "max_wal_size", "checkpoint_timeout", "wal_compression")
STORED = ("redis", "table", "index")
OPTIONS = (*FULL_LOAD, "--user-seed", 1, "--settle-timeout-s", 600, "--timeout-s", 60)


def redis_bytes(coupon):
    """The bytes of all keys of the coupon."""
    client = redis_open()
    keys = list(client.scan_iter(match=f"coupon:{{{coupon}}}*", count=1000))
    return sum(client.memory_usage(key, samples=1000) for key in keys)


def stored_bytes():
    """The bytes of all partitions: their pages and those of their indexes."""
    with database_open() as db:
        query = """SELECT sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
            FROM pg_partition_tree('user_coupon') WHERE isleaf"""
        return db.execute(query).fetchone()


def grow(coupon, users, more):
    """Adds users to those that there are. Returns what the rush reports."""
    name = f"growth beyond {users} users"
    return rush(coupon, more, *OPTIONS, "--first-user", users + 1, name=name)


def rewrite_wait():
    """Redis rewrites its AOF after this many users at once; a campaign would spread it."""
    with redis_open() as client:
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)


def slice_of(size):
    """A tenth, so that large sizes have their checkpoints in it, with the right weight."""
    return max(SLICE, size // 10)


def slice_measure(coupon, size):
    """The rate and the CPU time of the users that follow."""
    rewrite_wait()
    with cpu.Meter() as meter:
        result = grow(coupon, size, slice_of(size))
        figures[f"growth_{size}_cpu_us"] = meter.rush_costs(result)
    figures[f"growth_{size}_rows_per_s"] = rows_per_s(result)


def growth_measure():
    stack_fresh()
    with database_open() as db:
        figures["growth_settings"] = ", ".join(
            f"{name} {db.execute(f'SHOW {name}').fetchone()[0]}" for name in SETTINGS
        )
    coupon = coupon_make("growth")
    users = 0
    for size in SIZES:
        grow(coupon, users, size - users)
        figures[f"growth_{size}_redis_bytes"] = redis_bytes(coupon) / size
        table, index = stored_bytes()
        figures[f"growth_{size}_table_bytes"] = table / size
        figures[f"growth_{size}_index_bytes"] = index / size
        slice_measure(coupon, size)
        users = size + slice_of(size)


MEASURES = (growth_measure,)


def rows():
    f = figures
    if not has("growth_settings"):
        return
    yield f"growth of one coupon, random users; {f['growth_settings']}", None, None
    first = f[f"growth_{SIZES[0]}_rows_per_s"]
    for size in SIZES:
        per_s = f[f"growth_{size}_rows_per_s"]
        label = f"  {size:,} users, the next {slice_of(size):,}: committed rows"
        yield label, f"{per_s:,.0f} /s", f"{per_s / first:.2f} x {SIZES[0]:,} users"
        sizes = " / ".join(f"{f[f'growth_{size}_{what}_bytes']:.0f}" for what in STORED)
        yield "    bytes in Redis a user / of table and indexes a row", sizes, ""
        yield cpu.row(f[f"growth_{size}_cpu_us"], "receive")
