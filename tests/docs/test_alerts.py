"""The alerts of deploy/prometheus: each fires when its expression has held for its time and not
before, none fires while all is well, and each has a part of docs/guides/runbook.md. tests/alerts
causes each of them on a real stack."""

import json
import re
import subprocess

import pytest

from stack import ROOT
from test_docs import anchors, text

FOLDER = ROOT / "deploy/prometheus"
RULES = FOLDER / "couponmq.rules.yml"
RUNBOOK = ROOT / "docs/guides/runbook.md"
STEP_S, STEPS = 30, 40
RATE_S = 360  # until a rate over five minutes is what it stays
UNITS = {"s": 1, "m": 60, "h": 3600}
GATEWAY, WORKER = '{job="couponmq-gateway",instance="g"}', '{job="couponmq-worker",instance="w"}'
ADMIN = '{job="couponmq-admin",instance="a"}'


def of_gateway(name, labels="", begin=0, step=0):
    return _series(name, GATEWAY, labels, begin, step)


def of_worker(name, labels="", begin=0, step=0):
    return _series(name, WORKER, labels, begin, step)


def of_admin(name, labels="", begin=0, step=0):
    return _series(name, ADMIN, labels, begin, step)


def _series(name, program, labels, begin, step):
    of = program.replace("}", f",{labels}}}") if labels else program
    return {f"{name}{of}": f"{begin}+{step}x{STEPS}"}


def answers(**rates):
    """So many answers in a step, by status."""
    told = {}
    for status, rate in {"ok": 1000, **rates}.items():
        told |= of_gateway("couponmq_answers_total", f'status="{status}"', step=rate)
    return told


def queue(name, length):
    return of_worker("couponmq_keeper_queue_messages", f'queue="{name}"', length)


WELL = {
    **of_gateway("up", begin=1),
    **of_worker("up", begin=1),
    **answers(unknown=1, busy=1, unavailable=1),
    **{
        series: values
        for bound, rate in (("0.004", 900), ("0.5", 999), ("1", 1000), ("+Inf", 1000))
        for series, values in of_gateway(
            "couponmq_issue_seconds_bucket", f'le="{bound}"', step=rate
        ).items()
    },
    **{
        series: values
        for name, value in (
            ("processes", 2), ("processes_ready", 2), ("redis_up", 2), ("amqp_up", 2),
            ("database_up", 2), ("redis_replicas", 2), ("redis_replicas_wanted", 2),
            ("amqp_blocked", 0), ("queues_differing", 0), ("weak_settings", 0),
            ("code_keys_missing", 0), ("tls_certificate_expires_seconds", 0), ("tls_trouble", 0),
            ("messages_failed_total", 0), ("auth_keys_refused_total", 0),
            ("auth_tokens_refused_total", 0), ("auth_held_back_total", 0),
        )
        for series, values in of_gateway(f"couponmq_{name}", begin=value).items()
    },
    **{
        series: values
        for name, value in (
            ("keeper_elected", 1), ("keeper_redis_up", 1), ("keeper_database_up", 1),
            ("keeper_postgresql_behind", 0), ("keeper_keys_ahead", 0),
            ("keeper_installation_differs", 0), ("keeper_outbox_age_milliseconds", 0),
            ("keeper_receives_in_flight", 5), ("keeper_outbox_messages", 5),
            ("keeper_coupons_unequal", 0), ("keeper_stock_lost", 0), ("keeper_resent_total", 7),
            ("worker_consumer_up", 1), ("worker_database_up", 1), ("worker_postgresql_old", 0),
            ("worker_queues_differing", 0), ("worker_queue_members_wanted", 3),
            ("worker_queue_members_online", 3), ("worker_relay_active", 1),
            ("worker_events_oldest_ms", 0), ("worker_webhook_oldest_milliseconds", 0),
            ("worker_webhook_disabled", 0), ("worker_webhook_dropped_events", 3),
            ("worker_rescued_total", 0), ("worker_outbox_forgotten_total", 0),
            ("worker_tls_certificate_expires_seconds", 2000000), ("worker_tls_trouble", 0),
        )
        for series, values in of_worker(f"couponmq_{name}", begin=value).items()
    },
    **of_worker("couponmq_worker_receives_total", step=900),
    **of_worker("couponmq_worker_issued_total", step=900),
    **of_worker("couponmq_worker_rejections_total", 'reason="slot_taken"', 3),
    **of_worker("couponmq_keeper_coupons", 'state="open"', 9),
    **of_worker("couponmq_keeper_coupons", 'state="unavailable"', 0),
    **of_admin("couponmq_admin_keys_refused_total", step=1),
    **of_admin("couponmq_admin_tls_certificate_expires_seconds", begin=2000000),
    **of_admin("couponmq_admin_tls_trouble"),
    **queue("coupon.receive.queue", 2),
    **queue("coupon.receive.dead", 0),
}  # fmt: skip
STOPPED = of_worker("couponmq_worker_receives_total", begin=7)
NOTHING = of_worker("couponmq_keeper_outbox_messages")
# What makes each alert fire, and no other one.
CAUSES = {
    "GatewayDown": [of_gateway("up")],
    "GatewayNotReady": [of_gateway("couponmq_processes_ready", begin=1)],
    "WorkerDown": [of_worker("up")],
    "NoKeeper": [of_worker("couponmq_keeper_elected")],
    "CertificateEnds": [
        of_gateway("couponmq_tls_certificate_expires_seconds", begin=1200000),
        of_gateway("couponmq_tls_certificate_expires_seconds", begin=-5),
        of_worker("couponmq_worker_tls_certificate_expires_seconds", begin=1200000),
        of_gateway("couponmq_tls_trouble", begin=1),
        of_worker("couponmq_worker_tls_trouble", begin=1),
        of_admin("couponmq_admin_tls_certificate_expires_seconds", begin=1200000),
        of_admin("couponmq_admin_tls_trouble", begin=1),
    ],
    "RedisUnreachable": [
        of_gateway("couponmq_redis_up", begin=1),
        of_worker("couponmq_keeper_redis_up"),
    ],
    "ReplicasMissing": [of_gateway("couponmq_redis_replicas", begin=1)],
    "RabbitMQUnreachable": [
        of_gateway("couponmq_amqp_up", begin=1),
        of_worker("couponmq_worker_consumer_up"),
    ],
    "RabbitMQBlocked": [of_gateway("couponmq_amqp_blocked", begin=1)],
    "QueueMembersMissing": [of_worker("couponmq_worker_queue_members_online", begin=2)],
    "QueueDiffers": [
        of_gateway("couponmq_queues_differing", begin=1),
        of_worker("couponmq_worker_queues_differing", begin=1),
    ],
    "PostgreSQLUnreachable": [
        of_gateway("couponmq_database_up", begin=1),
        of_worker("couponmq_worker_database_up"),
        of_worker("couponmq_keeper_database_up"),
    ],
    "PostgreSQLPutBack": [
        of_worker("couponmq_keeper_postgresql_behind", begin=1),
        of_worker("couponmq_keeper_keys_ahead", begin=1),
    ],
    "PostgreSQLOld": [of_worker("couponmq_worker_postgresql_old", begin=1)],
    "InstallationDiffers": [of_worker("couponmq_keeper_installation_differs", begin=1)],
    "WeakSettings": [of_gateway("couponmq_weak_settings", begin=1)],
    "ReceivesOverdue": [
        of_worker("couponmq_keeper_outbox_age_milliseconds", begin=31000),
        STOPPED,
    ],
    "ReceivesLost": [NOTHING],
    "QueueGrows": [of_worker("couponmq_keeper_outbox_messages", begin=1001, step=1)],
    "DeadLetters": [
        queue("coupon.receive.dead", 1),
        {**queue("coupon.receive.dead", 1), **STOPPED, **NOTHING},
    ],
    "ReceivesRejected": [
        of_worker("couponmq_worker_rejections_total", 'reason="slot_taken"', step=1)
    ],
    "MessagesRepeated": [
        of_gateway("couponmq_messages_failed_total", step=1),
        of_worker("couponmq_keeper_resent_total", step=1),
        of_worker("couponmq_worker_rescued_total", step=1),
        of_worker("couponmq_worker_outbox_forgotten_total", step=1),
    ],
    "CouponUnavailable": [of_worker("couponmq_keeper_coupons", 'state="unavailable"', 1)],
    "NumbersDiffer": [
        of_worker("couponmq_keeper_coupons_unequal", begin=1),
        of_worker("couponmq_keeper_stock_lost", begin=1),
    ],
    "CodeKeysMissing": [of_gateway("couponmq_code_keys_missing", begin=1)],
    "AnswersUnavailable": [answers(unavailable=12)],
    "AnswersUnknown": [answers(unknown=12)],
    "AnswersBusy": [answers(busy=12)],
    "AnswersSlow": [of_gateway("couponmq_issue_seconds_bucket", 'le="0.5"', step=980)],
    "KeysRefused": [
        of_gateway(f"couponmq_auth_{name}_total", step=40)
        for name in ("keys_refused", "tokens_refused", "held_back")
    ],
    "AdminKeysRefused": [of_admin("couponmq_admin_keys_refused_total", step=4)],
    "EventsLate": [
        of_worker("couponmq_worker_relay_active"),
        of_worker("couponmq_worker_events_oldest_ms", begin=31000),
    ],
    "WebhooksLate": [of_worker("couponmq_worker_webhook_oldest_milliseconds", begin=61000)],
    "WebhookDisabled": [
        of_worker("couponmq_worker_webhook_disabled", begin=1),
        of_worker("couponmq_worker_webhook_dropped_events", step=1),
    ],
}


def alerts():
    """{name: (its time in seconds, severity, the page and the anchor of its runbook)}."""
    found = {}
    for part in re.split(r"^      - ", text(RULES), flags=re.M)[1:]:
        name = re.match(r"alert: Couponmq(\w+)\n", part)
        if name:
            time = re.search(r"^ +for: (\d+)([smh])$", part, re.M)
            found[name[1]] = (
                int(time[1]) * UNITS[time[2]] if time else 0,
                re.search(r"labels: {severity: (\w+)}", part)[1],
                *re.search(r"^ +runbook_url: (\S+)#(\S+)$", part, re.M).groups(),
            )
    return found


def case(cause, *moments):
    """A test of promtool; moments: (seconds, which alerts fire then, no other one)."""
    return {
        "interval": f"{STEP_S}s",
        "input_series": [
            {"series": series, "values": values} for series, values in {**WELL, **cause}.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{moment_s}s",
                "exp_samples": [
                    {"labels": f'{{alertname="Couponmq{name}"}}', "value": 1} for name in names
                ],
            }
            for moment_s, names in moments
        ],
    }


def test_the_rules_and_the_settings_are_valid():
    for words in (("check", "config", FOLDER / "prometheus.yml"), ("check", "rules", RULES)):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_after_its_time(tmp_path):
    known = alerts()
    assert set(CAUSES) == set(known)
    tests = [case({}, (STEP_S * STEPS, []))]
    for name, causes in CAUSES.items():
        for_s = known[name][0]
        for cause in causes:
            assert cause.items() - WELL.items(), f"{name}: nothing differs"
            before = [(for_s - STEP_S, [])] if for_s else []
            tests.append(case(cause, *before, (for_s + RATE_S, [name])))
    path = tmp_path / "test.yml"
    path.write_text(
        json.dumps(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": f"{STEP_S}s",
                "tests": tests,
            }
        )
    )
    done = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CAUSES)
def test_each_alert_has_its_part_of_the_runbook(name):
    _, severity, page, anchor = alerts()[name]
    assert severity in ("critical", "warning")
    assert page == str(RUNBOOK.relative_to(ROOT)) and anchor in anchors(RUNBOOK)
    parts = re.split(r"^## ", text(RUNBOOK), flags=re.M)[1:]
    (part,) = [part for part in parts if f"`Couponmq{name}`" in part.partition("\n\n")[2][:200]]
    heading = part.partition("\n")[0].lower().replace(" ", "-")
    assert heading == anchor


def test_each_part_of_the_runbook_is_of_an_alert():
    named = set(re.findall(r"`Couponmq(\w+)`", text(RUNBOOK)))
    assert named == set(alerts())
