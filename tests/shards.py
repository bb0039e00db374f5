"""Divides the pytest files into shards: shards.py NUMBER COUNT prints the files of one of COUNT
shards.

Each shard has stacks of its own: the shared one, and `rough`, which tests may break. The longest
files are assigned first, each to the shard with the least work so far.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OTHERS_S = 3
# Approximate, on two cores, while the other shards run.
ROUGH_S = {  # files whose tests use no stack but `rough`
    "test_e2e_failures.py": 100,
    "test_e2e_backpressure.py": 90,
    "test_e2e_queue_move.py": 78,
    "test_e2e_parking.py": 65,
    "test_e2e_rebuild.py": 44,
    "test_e2e_audit_stalled.py": 45,
    "test_e2e_audit_lost.py": 39,
    "test_e2e_locked_coupon.py": 34,
    "test_e2e_keeper_frozen.py": 29,
    "test_e2e_keeper.py": 27,
    "test_e2e_keeper_settled.py": 18,
    "test_e2e_durability.py": 14,
    "test_e2e_interleavings.py": 10,
    "test_e2e_links.py": 8,
    "test_e2e_audit_group.py": 20,
    "test_e2e_delivery_limit.py": 3,
    "test_e2e_names.py": 3,
}
SECONDS = {
    "test_torture.py": 90,
    "test_e2e_audit.py": 100,
    "test_e2e_http_metrics.py": 45,
    "test_sql_concurrent.py": 23,
    "test_e2e_dead.py": 13,
    "test_e2e_answers.py": 13,
    "test_e2e_stores_lost.py": 10,
    "test_e2e_limits.py": 10,
    "test_e2e_release.py": 9,
    "test_e2e_couponctl.py": 8,
    "test_sql_migrate.py": 8,
    "test_sql_settle.py": 7,
}


def seconds_of(file):
    return ROUGH_S.get(file.name) or SECONDS.get(file.name, OTHERS_S)


def shards(count):
    chosen = [[] for _ in range(count)]
    files = sorted(HERE.glob("*/test_*.py"), key=lambda file: (-seconds_of(file), file.name))
    for rough in (False, True):
        # A shard in the first half starts `rough` only.
        allowed = chosen if rough else chosen[count // 2 :]
        for file in files:
            if (file.name in ROUGH_S) == rough:
                min(allowed, key=lambda shard: sum(map(seconds_of, shard))).append(file)
    return chosen


if __name__ == "__main__":
    for one in shards(int(sys.argv[2]))[int(sys.argv[1]) - 1]:
        print(one.relative_to(HERE.parent))
