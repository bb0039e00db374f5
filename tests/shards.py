"""Divides the pytest files into shards: shards.py NUMBER COUNT prints the arguments of pytest for
one of COUNT shards.

A shard starts one stack: the first of them that which tests may break, `rough`, for tests of
tests/e2e that use it or stacks of their own, as many shards as they need; the others the shared
one, for all other tests. The longest files are assigned first, each to the shard with the least
work so far. tests/torture is not among them.
"""

import sys
from pathlib import Path

from reach import Reach
from selection import SELECTION, TURNS

REACH = Reach.read()
HERE = Path(__file__).resolve().parent
OTHERS_S = 2
# The seconds of a file's tests on the shared stack, or on none: approximate, on two cores, while
# the other shards run. Those of the other tests are in tests/reach.txt.
SECONDS = {
    "test_setup.py": 150,
    "test_conformance.py": 150,
    "test_e2e_open_loop.py": 100,
    "test_e2e_systemd.py": 100,
    "test_e2e_lock.py": 63,
    "test_generators.py": 60,
    "test_e2e_claim.py": 49,
    "test_power.py": 45,
    "test_e2e_distribute.py": 42,
    "test_tutorial.py": 40,
    "test_e2e_sentinel.py": 30,
    "test_e2e_openapi.py": 30,
    "test_python.py": 30,
    "test_e2e_campaign.py": 26,
    "test_e2e_admin.py": 25,
    "test_e2e_audit.py": 25,
    "test_e2e_export.py": 22,
    "test_sql_query.py": 22,
    "test_e2e_admin_access.py": 20,
    "test_e2e_audit_at_rest.py": 20,
    "test_e2e_lookup.py": 19,
    "test_e2e_rush.py": 19,
    "test_sql_codes.py": 18,
    "test_sql_migrate.py": 17,
    "test_e2e_tls.py": 16,
    "test_rebuild_model.py": 16,
    "test_e2e_admin_connections.py": 15,
    "test_e2e_drain.py": 15,
    "test_e2e_auth.py": 15,
    "test_sql_concurrent.py": 15,
    "test_console.py": 15,
    "test_e2e_balancer.py": 14,
    "test_e2e_limits.py": 14,
    "test_e2e_answers.py": 14,
    "test_e2e_compare.py": 14,
    "test_e2e_coupons.py": 13,
    "test_run.py": 12,
    "test_e2e_events.py": 11,
    "test_e2e_couponctl.py": 11,
    "test_sql_recover.py": 11,
    "test_e2e_admin_command.py": 10,
    "test_e2e_http_metrics.py": 10,
    "test_e2e_lock_command.py": 10,
    "test_e2e_void.py": 9,
    "test_sql_settle.py": 9,
    "test_e2e_budget.py": 8,
    "test_sql_query_coupon.py": 8,
    "test_script_slot_free.py": 8,
    "test_sql_model.py": 8,
    "test_sql_query_keeper.py": 8,
    "test_sql_roles.py": 7,
    "test_e2e_offers.py": 7,
    "test_sql_webhook.py": 6,
    "test_e2e_fairness.py": 6,
    "test_e2e_live.py": 6,
    "test_e2e_trace.py": 5,
    "test_e2e_curve.py": 5,
    "test_e2e_user_ids.py": 5,
    "test_e2e_logins.py": 5,
    "test_sql_event.py": 5,
    "test_e2e_http_limits.py": 4,
    "test_e2e_slot_free.py": 3,
}
# Seconds of the tests on `rough` that are marked `always`, where a file has some.
ALWAYS_S = {
    "test_e2e_broker_cluster.py": 37,
    "test_e2e_sentinel.py": 32,
    "test_e2e_standby.py": 6,
}


def seconds_of(file):
    """The seconds of the tests of the file that not every run has."""
    return REACH.tests.get(str(file.relative_to(HERE.parent)), 0)


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
        return rest + SECONDS.get(file.name, OTHERS_S) * share

    files = [file for file in rest_s if file.parent.name != "torture"]
    if count == 1:
        return [("both", files)]
    of_rough = [file for file in files if file.parent.name == "e2e"]
    rough_s, shared_s = sum(map(on_rough, of_rough)), sum(map(on_shared, files))
    rough_n = min(max(1, round(count * rough_s / (rough_s + shared_s))), count - 1)
    works = [[0, []] for _ in range(count)]
    rough, shared = works[:rough_n], works[rough_n:]
    assign(rough, of_rough, on_rough)
    assign(shared, files, on_shared)
    return [("rough" if work in rough else "shared", work[1]) for work in works]


if __name__ == "__main__":
    stack, chosen = shards(int(sys.argv[2]))[int(sys.argv[1]) - 1]
    print(f"--stack={stack}")
    for one in chosen:
        print(one.relative_to(HERE.parent))
