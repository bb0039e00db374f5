"""One coupon from few users to many, with random ids, in empty stores: what grows with them."""

import os

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
SLICE = 50_000 // SCALE  # the users after each size, whose rate is measured
SETTINGS = ("shared_buffers", "max_wal_size", "checkpoint_timeout")
OPTIONS = (*FULL_LOAD, "--user-seed", 1, "--settle-timeout-s", 600, "--timeout-s", 60)


def redis_bytes(coupon):
    """Of all keys of the coupon."""
    client = redis_open()
    keys = list(client.scan_iter(match=f"coupon:{{{coupon}}}*", count=1000))
    return sum(client.memory_usage(key, samples=1000) for key in keys)


def index_bytes():
    with database_open() as db:
        query = """SELECT sum(pg_relation_size(i.indexrelid))::bigint
            FROM pg_partition_tree('user_coupon') AS t JOIN pg_index AS i ON i.indrelid = t.relid
            WHERE t.isleaf"""
        return db.execute(query).fetchone()[0]


def grow(coupon, users, more):
    """Adds users to those that there are. Returns how many there are then, and the rows a
    second."""
    result = rush(
        coupon, more, *OPTIONS, "--first-user", users + 1, name=f"growth beyond {users} users"
    )
    return users + more, rows_per_s(result)


def growth_measure():
    stack_fresh()
    with database_open() as db:
        figures["growth_settings"] = ", ".join(
            f"{name} {db.execute(f'SHOW {name}').fetchone()[0]}" for name in SETTINGS
        )
    coupon = coupon_make("growth")
    users = 0
    for size in SIZES:
        users, _ = grow(coupon, users, size - users)
        figures[f"growth_{size}_redis_bytes"] = redis_bytes(coupon) / users
        figures[f"growth_{size}_index_bytes"] = index_bytes() / users
        users, figures[f"growth_{size}_rows_per_s"] = grow(coupon, users, SLICE)


MEASURES = (growth_measure,)


def rows():
    f = figures
    if not has("growth_settings"):
        return
    yield f"growth of one coupon, random users; {f['growth_settings']}", None, None
    first = f[f"growth_{SIZES[0]}_rows_per_s"]
    for size in SIZES:
        per_s = f[f"growth_{size}_rows_per_s"]
        label = f"  {size:,} users, the next {SLICE:,}: committed rows"
        yield label, f"{per_s:,.0f} /s", f"{per_s / first:.2f} x {SIZES[0]:,} users"
        sizes = f"{f[f'growth_{size}_redis_bytes']:.0f} / {f[f'growth_{size}_index_bytes']:.0f}"
        yield "    bytes in Redis a user / of indexes a row", sizes, ""
