"""Divides the pytest files into shards: shards.py NUMBER COUNT prints the arguments of pytest for
one of COUNT shards.

A shard starts one stack: the first third of them that which tests may break, `rough`, for tests of
tests/e2e that use it or stacks of their own; the others the shared one, for all other tests. The
longest files are assigned first, each to the shard with the least work so far. tests/torture is not
among them.
"""

import sys
from pathlib import Path

from reach import Reach
from selection import SELECTION, TURNS

REACH = Reach.read()
HERE = Path(__file__).resolve().parent
OTHERS_S = 2
# The seconds of all of a file's tests on `rough`, and of its other tests: approximate, on two
# cores, while the other shards run.
SECONDS = {
    "test_e2e_open_loop.py": (0, 100),
    "test_e2e_rebuild.py": (95, 0),
    "test_e2e_webhook_failures.py": (86, 0),
    "test_e2e_recover.py": (75, 0),
    "test_e2e_codes.py": (73, 0),
    "test_e2e_claim.py": (18, 49),
    "test_e2e_lock.py": (3, 63),
    "test_e2e_outbox.py": (66, 0),
    "test_e2e_keys.py": (60, 0),
    "test_e2e_webhook.py": (63, 0),
    "test_e2e_failures.py": (48, 0),
    "test_e2e_installation.py": (46, 0),
    "test_e2e_broker_lost.py": (46, 0),
    "test_e2e_standby.py": (45, 0),
    "test_e2e_broker_cluster.py": (45, 0),
    "test_e2e_locked_coupon.py": (46, 0),
    "test_e2e_memory.py": (60, 0),
    "test_e2e_systemd.py": (0, 100),
    "test_e2e_sentinel.py": (0, 30),
    "test_e2e_admin.py": (15, 25),
    "test_e2e_admin_access.py": (0, 20),
    "test_e2e_admin_connections.py": (0, 15),
    "test_e2e_admin_command.py": (0, 10),
    "test_e2e_balancer.py": (12, 14),
    "test_e2e_drain.py": (2, 15),
    "test_power.py": (0, 45),
    "test_e2e_openapi.py": (14, 30),
    "test_e2e_audit.py": (0, 25),
    "test_e2e_audit_at_rest.py": (0, 20),
    "test_e2e_distribute.py": (0, 42),
    "test_e2e_events.py": (27, 11),
    "test_e2e_audit_lost.py": (36, 0),
    "test_e2e_coming_back.py": (33, 0),
    "test_e2e_audit_stalled.py": (32, 0),
    "test_e2e_keeper_frozen.py": (29, 0),
    "test_e2e_keeper.py": (29, 0),
    "test_e2e_parking.py": (29, 0),
    "test_e2e_keeper_settled.py": (27, 0),
    "test_e2e_campaign.py": (0, 26),
    "test_e2e_keeper_users.py": (25, 0),
    "test_e2e_trace.py": (20, 5),
    "test_e2e_curve.py": (5, 5),
    "test_e2e_budget.py": (0, 8),
    "test_e2e_codes_import.py": (25, 0),
    "test_e2e_http_metrics.py": (14, 10),
    "test_e2e_limits.py": (10, 14),
    "test_e2e_auth.py": (8, 15),
    "test_e2e_answers.py": (9, 14),
    "test_e2e_dead.py": (22, 0),
    "test_e2e_export.py": (0, 22),
    "test_e2e_backpressure.py": (22, 0),
    "test_sql_query.py": (0, 22),
    "test_e2e_couponctl.py": (10, 11),
    "test_e2e_coupons.py": (8, 13),
    "test_e2e_packed.py": (21, 0),
    "test_e2e_user_ids.py": (15, 5),
    "test_e2e_interleavings.py": (20, 0),
    "test_e2e_lookup.py": (0, 19),
    "test_e2e_durability.py": (19, 0),
    "test_e2e_store_tls.py": (19, 0),
    "test_e2e_rush.py": (0, 19),
    "test_e2e_queue_move.py": (18, 0),
    "test_e2e_check.py": (17, 1),
    "test_sql_codes.py": (0, 18),
    "test_e2e_stores_lost.py": (18, 0),
    "test_sql_migrate.py": (0, 17),
    "test_e2e_status.py": (16, 0),
    "test_e2e_tls.py": (0, 16),
    "test_rebuild_model.py": (0, 16),
    "test_e2e_slot_free.py": (12, 3),
    "test_sql_concurrent.py": (0, 15),
    "test_e2e_compare.py": (0, 14),
    "test_e2e_delivery_limit.py": (14, 0),
    "test_e2e_numbers.py": (12, 0),
    "test_e2e_distribute_failures.py": (13, 0),
    "test_run.py": (0, 12),
    "test_setup.py": (0, 150),
    "test_tutorial.py": (0, 40),
    "test_sql_recover.py": (0, 11),
    "test_e2e_void.py": (1, 9),
    "test_e2e_lock_command.py": (0, 10),
    "test_sql_settle.py": (0, 9),
    "test_e2e_http_limits.py": (5, 4),
    "test_e2e_monitor.py": (8, 1),
    "test_sql_query_coupon.py": (0, 8),
    "test_script_slot_free.py": (0, 8),
    "test_sql_model.py": (0, 8),
    "test_sql_query_keeper.py": (0, 8),
    "test_sql_roles.py": (0, 7),
    "test_e2e_keeper_lock.py": (7, 0),
    "test_e2e_offers.py": (0, 7),
    "test_sql_webhook.py": (0, 6),
    "test_e2e_fairness.py": (0, 6),
    "test_e2e_logins.py": (0, 5),
    "test_e2e_names.py": (5, 0),
    "test_sql_event.py": (0, 5),
    "test_e2e_links.py": (4, 0),
    "test_e2e_live.py": (0, 6),
    "test_console.py": (0, 15),
    "test_generators.py": (0, 60),
    "test_conformance.py": (0, 150),
    "test_python.py": (0, 30),
}


# Seconds of the tests on `rough` that are marked `always`, where a file has some.
ALWAYS_S = {
    "test_e2e_broker_cluster.py": 37,
    "test_e2e_sentinel.py": 32,
    "test_e2e_standby.py": 6,
}


def seconds_of(file):
    """The seconds of the tests of the file that not every run has: by the map, else about."""
    known = REACH.tests.get(str(file.relative_to(HERE.parent)))
    return SECONDS.get(file.name, (0, 0))[0] if known is None else known


def assign(shards, files, seconds):
    """Adds the files to the shards, which are pairs: [seconds, files]."""
    for file in sorted(files, key=lambda file: (-seconds(file), file.name)):
        least = min(shards, key=lambda shard: shard[0])
        least[0] += seconds(file)
        least[1].append(file)


def shards(count):
    """[(stack, files), …]"""
    rest_s = {file: seconds_of(file) for file in HERE.glob("*/test_*.py")}
    turns = TURNS.get(SELECTION["level"], {"shared": 1, "rest": 1})

    def on_rough(file):
        """Seconds of what the run has selected; a part in turn takes about its share of them."""
        is_whole = str(file.relative_to(HERE.parent)) in SELECTION["files"]
        share = 1 if is_whole else 1 / turns["rest"]
        return max(rest_s[file] * share, ALWAYS_S.get(file.name, 0))

    def on_shared(file):
        rest = 0 if file.parent.name == "e2e" else on_rough(file)
        share = 1 / turns["shared"] if file.parent.name in ("e2e", "sql") else 1
        return rest + SECONDS.get(file.name, (0, OTHERS_S))[1] * share

    files = [file for file in rest_s if file.parent.name != "torture"]
    if count == 1:
        return [("both", files)]
    works = [[0, []] for _ in range(count)]
    rough, shared = works[: count // 3 or 1], works[count // 3 or 1 :]
    assign(rough, [file for file in files if file.parent.name == "e2e"], on_rough)
    assign(shared, files, on_shared)
    return [("rough" if work in rough else "shared", work[1]) for work in works]


if __name__ == "__main__":
    stack, chosen = shards(int(sys.argv[2]))[int(sys.argv[1]) - 1]
    print(f"--stack={stack}")
    for one in chosen:
        print(one.relative_to(HERE.parent))
