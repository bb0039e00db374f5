"""Divides the pytest files into shards: shards.py NUMBER COUNT prints the arguments of pytest for
one of COUNT shards.

A shard starts one stack, and runs the tests of tests/e2e that use it: the last ones the shared
stack, the others the one that tests may break, `rough`, or stacks of their own. The longest files
are assigned first, each to the shard with the least work so far. tests/torture is not among them.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OTHERS_S = 2
# The seconds of a file's tests on `rough`, and of its other tests: approximate, on two cores, while
# the other shards run.
SECONDS = {
    "test_e2e_failures.py": (100, 0),
    "test_e2e_queue_move.py": (80, 0),
    "test_e2e_broker_lost.py": (100, 0),
    "test_e2e_backpressure.py": (75, 0),
    "test_e2e_parking.py": (140, 0),
    "test_e2e_audit_stalled.py": (70, 0),
    "test_e2e_rebuild.py": (39, 0),
    "test_e2e_outbox.py": (36, 0),
    "test_e2e_audit_lost.py": (35, 0),
    "test_e2e_audit.py": (50, 90),
    "test_e2e_locked_coupon.py": (33, 0),
    "test_e2e_keeper.py": (31, 0),
    "test_e2e_keeper_frozen.py": (28, 0),
    "test_e2e_audit_group.py": (28, 0),
    "test_e2e_keeper_settled.py": (18, 0),
    "test_e2e_http_metrics.py": (15, 16),
    "test_e2e_interleavings.py": (11, 0),
    "test_e2e_limits.py": (9, 6),
    "test_e2e_links.py": (9, 0),
    "test_e2e_status.py": (9, 0),
    "test_e2e_delivery_limit.py": (9, 0),
    "test_e2e_release.py": (8, 3),
    "test_e2e_answers.py": (7, 6),
    "test_e2e_dead.py": (7, 0),
    "test_e2e_durability.py": (7, 0),
    "test_e2e_couponctl.py": (5, 7),
    "test_e2e_http_limits.py": (4, 4),
    "test_sql_concurrent.py": (0, 40),
    "test_e2e_log.py": (0, 30),
    "test_e2e_stores_lost.py": (50, 0),
    "test_e2e_recover.py": (35, 0),
    "test_sql_migrate.py": (0, 10),
    "test_sql_migrate_user.py": (0, 24),
    "test_script_users.py": (0, 15),
    "test_sql_locale.py": (0, 6),
    "test_e2e_user_ids.py": (2, 13),
    "test_e2e_keeper_users.py": (7, 0),
    "test_e2e_lookup.py": (0, 15),
    "test_sql_settle.py": (0, 6),
    "test_script_issue_errors.py": (0, 6),
}


def assign(shards, files, seconds):
    """Adds the files to the shards, which are pairs: [seconds, files]."""
    for file in sorted(files, key=lambda file: (-seconds(file), file.name)):
        least = min(shards, key=lambda shard: shard[0])
        least[0] += seconds(file)
        least[1].append(file)


def shards(count):
    """[(stack, files), …]; stack is None where one shard does all."""

    def on_rough(file):
        return SECONDS.get(file.name, (0, 0))[0]

    def elsewhere(file):
        return SECONDS.get(file.name, (0, OTHERS_S))[1]

    files = [file for file in HERE.glob("*/test_*.py") if file.parent.name != "torture"]
    if count == 1:
        return [(None, files)]
    works = [[0, []] for _ in range(count)]
    shared = works[count - max(count // 4, 1) :]
    rough = works[: count - len(shared)]
    assign(rough, [file for file in files if file.parent.name == "e2e"], on_rough)
    assign(shared, [file for file in files if file.parent.name in ("e2e", "sql")], elsewhere)
    assign(works, [file for file in files if file.parent.name not in ("e2e", "sql")], elsewhere)
    return [("rough" if work in rough else "shared", work[1]) for work in works]


if __name__ == "__main__":
    stack, chosen = shards(int(sys.argv[2]))[int(sys.argv[1]) - 1]
    if stack:
        print(f"--stack={stack}")
    for one in chosen:
        print(one.relative_to(HERE.parent))
