"""Webhooks while something fails: workers that die, endpoints that do harm, URLs that lead
inside."""

import os
import signal
import subprocess
import threading

import psycopg
import pytest

from certificates import Authority
from endpoint import certificate_make
from stack import wait_until
from webhooks import ALLOWED, SOON


@pytest.fixture
def held():
    """answer(request) of an endpoint that holds each request until `held.go_on` is set."""

    class Held:
        def __init__(self):
            self.go_on = threading.Event()

        def __call__(self, _):
            self.go_on.wait(30)
            return 200

    one = Held()
    yield one
    one.go_on.set()


def error_of(webhooks, webhook):
    """The error of the first attempt that failed."""

    def failed():
        return [one for one in webhooks.deliveries(webhook) if one["attempts"] > 0]

    wait_until(failed)
    return failed()[0]["last_error"]


@pytest.mark.long
def test_a_worker_that_dies_in_mid_delivery(webhooks, worker_make, endpoint_make, held):
    """Its lease of six seconds ends, then another sends it again, as the same message."""
    endpoint = endpoint_make(held)
    webhook, secret = webhooks.add(endpoint.url(), "--batch", 1)
    first = worker_make(webhooks.stack, **SOON, COUPON_WEBHOOK_TIMEOUT_MS=1000)
    sent = webhooks.enqueue(1001, 2)
    wait_until(lambda: endpoint.requests)
    first.kill9()
    worker_make(webhooks.stack, **SOON, COUPON_WEBHOOK_TIMEOUT_MS=1000)
    held.go_on.set()
    webhooks.wait_empty(webhook)
    assert endpoint.event_ids == [sent[0], *sent]
    assert endpoint.requests[0].id == endpoint.requests[1].id != endpoint.requests[2].id
    assert endpoint.requests[1].at - endpoint.requests[0].at > 3, "the lease was not waited for"
    assert all(request.is_signed(secret) for request in endpoint.requests)


def test_a_worker_that_ends_gives_back_what_it_sends(webhooks, worker_make, endpoint_make, held):
    endpoint = endpoint_make(held)
    webhook, _ = webhooks.add(endpoint.url())
    first = worker_make(webhooks.stack, **SOON)
    webhooks.enqueue(1001)
    wait_until(lambda: endpoint.requests)
    assert first.terminate() == 0
    [delivery] = webhooks.deliveries(webhook)
    assert (delivery["state"], delivery["attempts"]) == ("waiting", 0)
    held.go_on.set()
    worker_make(webhooks.stack, **SOON)
    webhooks.wait_empty(webhook)
    assert [request.id for request in endpoint.requests] == [delivery["message"]] * 2


@pytest.mark.long
def test_a_worker_that_was_frozen_changes_nothing(webhooks, worker_make, endpoint_make):
    """Another has sent its delivery meanwhile; what it finds out counts no more."""
    answers = iter([500])
    asked = threading.Event()

    def answer(_):
        asked.set()
        return next(answers, 200)

    settings = {**SOON, "COUPON_WEBHOOK_TIMEOUT_MS": 1000}
    endpoint = endpoint_make(answer)
    webhook, _ = webhooks.add(endpoint.url())
    frozen = worker_make(webhooks.stack, **settings)
    endpoint.answer = lambda request: (frozen.signal(signal.SIGSTOP), answer(request))[1]
    sent = webhooks.enqueue(1001, 2)
    wait_until(asked.is_set)
    endpoint.answer = lambda request: 200
    worker_make(webhooks.stack, **settings)
    webhooks.wait_empty(webhook)
    frozen.signal(signal.SIGCONT)
    more = webhooks.enqueue(1001, 2)
    webhooks.wait_empty(webhook)
    wait_until(lambda: endpoint.event_ids[-2:] == more)
    assert endpoint.event_ids == [*sent, *sent, *more]
    shown = webhooks.show(webhook)
    assert (shown["delivered_events"], shown["failures"]) == (4, 0)


def test_the_connection_to_postgresql_breaks(webhooks, worker_make, endpoint_make, held):
    endpoint = endpoint_make(held)
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    worker = worker_make(webhooks.stack, **SOON)
    sent = webhooks.enqueue(1001, 3)
    wait_until(lambda: endpoint.requests)
    webhooks.db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'coupon-webhooks'"
    )
    wait_until(lambda: "event=webhook_database_lost" in worker.log())
    held.go_on.set()
    webhooks.wait_empty(webhook)
    assert endpoint.event_ids == sent, "none twice: the outcome was kept"


def test_a_webhook_that_is_locked_holds_up_nobody(webhooks, worker_make, endpoint_make, held):
    """Its outcome is recorded when the lock is gone."""
    slow, quick = endpoint_make(held), endpoint_make()
    webhook, _ = webhooks.add(slow.url())
    worker = worker_make(webhooks.stack, **SOON)
    webhooks.enqueue(1001)
    wait_until(lambda: slow.requests)
    with psycopg.connect(webhooks.stack.env["DATABASE_ADMIN_URL"]) as other:
        other.execute("SELECT FROM webhook WHERE id = %s FOR NO KEY UPDATE", (webhook,))
        held.go_on.set()
        wait_until(lambda: "event=webhook_database_refused" in worker.log())
        webhooks.add(quick.url(), "--batch", 1)
        webhooks.enqueue(1002, 50)
        wait_until(lambda: len(quick.requests) == 50)
        assert len(slow.requests) == 1
    webhooks.wait_empty(webhook)
    assert len(slow.requests) == 2, "the first was recorded, and not sent again"


def test_an_address_of_this_machine_is_refused(webhooks, worker_make, endpoint_make):
    """By default, whatever the URL looks like: names are checked by the address they have when
    they are connected to."""
    endpoint = endpoint_make()
    settings = {**SOON, "COUPON_WEBHOOK_NETWORKS": "", "COUPON_WEBHOOK_RETRY_MS": 60000}
    hooks = [
        webhooks.add(endpoint.url(host=host))[0]
        for host in ("127.0.0.1", "localhost", "LOCALHOST", "%6cocalhost")
    ]
    worker_make(webhooks.stack, **settings)
    webhooks.enqueue(1001)
    for webhook in hooks:
        error = error_of(webhooks, webhook)
        assert "COUPON_WEBHOOK_NETWORKS" in error and "is loopback" in error, error
    assert endpoint.connections == 0


@pytest.mark.long
def test_a_name_that_is_not_resolved_and_then_leads_inside(
    webhooks, worker_make, endpoint_make, slow_names
):
    """It holds up no other endpoint. When it has an address, that is what is checked."""
    settings, silent = slow_names
    named, other = endpoint_make(), endpoint_make()
    webhook, _ = webhooks.add(named.url(host="hook.slow.test"))
    webhooks.add(other.url(), "--batch", 1)
    worker = worker_make(webhooks.stack, **ALLOWED, **settings, COUPON_WEBHOOK_TIMEOUT_MS=2000)
    webhooks.enqueue(1001, 20)
    wait_until(lambda: len(other.requests) == 20)
    assert "timed out" in error_of(webhooks, webhook)
    assert worker.terminate() == 0, "it does not wait for the look-up"
    silent.unlink()
    webhooks("edit", webhook, "--state", "disabled")
    webhooks("edit", webhook, "--state", "enabled")
    inside = worker_make(
        webhooks.stack, **settings, COUPON_WEBHOOK_SCHEMES="https,http", COUPON_WEBHOOK_RETRY_MS=20
    )
    wait_until(lambda: "the address 127.0.0.1 is loopback" in inside.log())
    assert named.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure(webhooks, worker_make, endpoint_make, status):
    elsewhere = endpoint_make()
    redirecting = endpoint_make(lambda request: (status, {"Location": elsewhere.url()}, b""))
    webhook, _ = webhooks.add(redirecting.url())
    worker_make(webhooks.stack, **SOON, COUPON_WEBHOOK_ATTEMPTS=2)
    webhooks.enqueue(1001)
    wait_until(lambda: webhooks.show(webhook)["given_up"] == 1)
    assert [one["last_status"] for one in webhooks.deliveries(webhook)] == [status]
    assert len(redirecting.requests) == 2 and elsewhere.connections == 0


def test_proxies_of_the_environment_are_not_used(webhooks, worker_make, endpoint_make):
    proxy, endpoint = endpoint_make(), endpoint_make()
    names = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    webhook, _ = webhooks.add(endpoint.url())
    worker_make(webhooks.stack, **SOON, **{name: proxy.url("") for name in names}, NO_PROXY="")
    webhooks.enqueue(1001)
    webhooks.wait_empty(webhook)
    assert (len(endpoint.requests), proxy.connections) == (1, 0)


def test_certificates_are_verified(webhooks, worker_make, endpoint_make, tmp_path):
    good = certificate_make(tmp_path, "IP:127.0.0.1")
    other = certificate_make(tmp_path, "DNS:other.example")
    right, wrong_name, plain = (
        endpoint_make(certificate=good),
        endpoint_make(certificate=other),
        endpoint_make(),
    )
    (tmp_path / "ca").write_text(good.read_text("ascii") + other.read_text("ascii"), "ascii")
    hooks = [
        webhooks.add(url)[0]
        for url in (
            right.url(),
            wrong_name.url(),
            plain.url().replace("http:", "https:"),
            plain.url(),
        )
    ]
    settings = {**SOON, "COUPON_WEBHOOK_SCHEMES": "https", "COUPON_WEBHOOK_RETRY_MS": 100}
    unknowing = worker_make(webhooks.stack, **settings)
    webhooks.enqueue(1001)
    errors = [error_of(webhooks, webhook) for webhook in hooks]
    assert "certificate" in errors[0] and "certificate" in errors[1]
    assert "SSL" in errors[2]
    assert 'the scheme is "http": allowed is https' in errors[3]
    assert right.requests == wrong_name.requests == plain.requests == []
    unknowing.terminate()
    worker_make(webhooks.stack, **settings, COUPON_WEBHOOK_CA=tmp_path / "ca")
    webhooks.wait_empty(hooks[0])
    assert len(right.requests) == 1
    wait_until(
        lambda: "hostname mismatch" in error_of(webhooks, hooks[1])
        or "IP address mismatch" in error_of(webhooks, hooks[1])
    )
    assert wrong_name.requests == plain.requests == []


def test_a_file_of_authorities_that_changes(webhooks, worker_make, endpoint_make, tmp_path):
    """It counts from the next connection on; one that would block is refused, and names its file.
    A common name does not stand for the host."""
    good = certificate_make(tmp_path, "IP:127.0.0.1")
    endpoint = endpoint_make(lambda _: (204, {"Connection": "close"}, b""), certificate=good)
    webhook, _ = webhooks.add(endpoint.url())
    authorities = tmp_path / "ca"
    authorities.write_text(
        certificate_make(tmp_path, "DNS:other.example").read_text("ascii"), "ascii"
    )
    settings = {**SOON, "COUPON_WEBHOOK_SCHEMES": "https", "COUPON_WEBHOOK_RETRY_MS": 100}
    worker_make(webhooks.stack, **settings, COUPON_WEBHOOK_CA=authorities)
    webhooks.enqueue(1001)
    wait_until(lambda: "self-signed" in (error_of(webhooks, webhook) or ""))
    authorities.unlink()
    os.mkfifo(authorities)
    wait_until(lambda: "COUPON_WEBHOOK_CA" in error_of(webhooks, webhook))
    assert "named pipe" in error_of(webhooks, webhook)
    authorities.unlink()
    authorities.write_bytes(good.read_bytes())
    webhooks.wait_empty(webhook)
    nameless = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-keyout", "-", "-out", "-"],
        check=True, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
    (tmp_path / "nameless").write_bytes(nameless)
    authorities.write_bytes(nameless)
    endpoint.context.load_cert_chain(tmp_path / "nameless")
    webhooks.enqueue(1001)
    wait_until(lambda: "mismatch" in (error_of(webhooks, webhook) or ""))
    assert len(endpoint.event_ids) == 1


def test_a_certificate_that_expires(webhooks, worker_make, endpoint_make, tmp_path):
    """Nothing is sent until there is another; then nothing is missing."""
    authority = Authority(tmp_path, "ca")

    def certificate(days):
        both = tmp_path / f"days{days}"
        both.write_text(
            "".join(path.read_text() for path in authority.issue("IP:127.0.0.1", days=days))
        )
        return both

    endpoint = endpoint_make(
        lambda _: (204, {"Connection": "close"}, b""), certificate=certificate(1)
    )
    webhook, _ = webhooks.add(endpoint.url())
    settings = {**SOON, "COUPON_WEBHOOK_SCHEMES": "https", "COUPON_WEBHOOK_RETRY_MS": 100}
    worker_make(webhooks.stack, **settings, COUPON_WEBHOOK_CA=authority.path)
    sent = webhooks.enqueue(1001)
    webhooks.wait_empty(webhook)
    endpoint.context.load_cert_chain(certificate(-1))
    sent += webhooks.enqueue(1001, 3)
    assert "expired" in error_of(webhooks, webhook)
    assert len(endpoint.event_ids) == 1
    endpoint.context.load_cert_chain(certificate(2))
    webhooks.wait_empty(webhook)
    assert endpoint.event_ids == sent


def test_a_secret_that_is_replaced_in_mid_delivery(webhooks, worker_make, endpoint_make):
    """The attempt under way has the old signature, the next one of the same message the new."""
    seen, go_on = threading.Event(), threading.Event()

    def answer(_):
        if seen.is_set():
            return 204
        seen.set()
        go_on.wait(60)
        return 503

    endpoint = endpoint_make(answer)
    webhook, first = webhooks.add(endpoint.url())
    worker_make(webhooks.stack, **SOON)
    webhooks.enqueue(1001)
    wait_until(seen.is_set)
    second = webhooks.json("rotate", webhook, "--overlap", "0s")["secret"]
    go_on.set()
    webhooks.wait_empty(webhook)
    attempts = endpoint.requests
    assert [(one.is_signed(first), one.is_signed(second)) for one in attempts] == [
        (True, False),
        (False, True),
    ]
    assert attempts[0].id == attempts[1].id


def test_an_answer_without_end_is_cut(webhooks, worker_make, endpoint_make):
    huge = b"x" * 50_000_000
    endless_head = {f"X-{number}": "y" * 1000 for number in range(90)}
    answers = iter([(500, {}, huge), (200, endless_head, b""), (200, {}, huge)])
    endpoint = endpoint_make(lambda request: next(answers, 204))
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    worker = worker_make(webhooks.stack, **SOON)
    before = worker.memory()
    webhooks.enqueue(1001)
    webhooks.enqueue(1002)
    webhooks.wait_empty(webhook)
    assert "the answer has more than 65536 bytes" in worker.log()
    assert worker.memory() - before < 30_000_000
    assert webhooks.show(webhook)["delivered_events"] == 2


def test_an_endpoint_that_does_not_answer(webhooks, worker_make, endpoint_make, held):
    endpoint = endpoint_make(held)
    webhook, _ = webhooks.add(endpoint.url())
    once = {**ALLOWED, "COUPON_WEBHOOK_RETRY_MS": 60000}
    worker_make(webhooks.stack, **once, COUPON_WEBHOOK_TIMEOUT_MS=300)
    webhooks.enqueue(1001)
    assert "timed out" in error_of(webhooks, webhook)
    [delivery] = webhooks.deliveries(webhook)
    assert (delivery["last_status"], delivery["attempts"]) == (None, 1)


def test_no_listener_and_no_name(webhooks, worker_make, endpoint_make):
    gone = endpoint_make()
    gone.close()
    refused, _ = webhooks.add(gone.url())
    unknown, _ = webhooks.add("https://nobody.invalid/hook")
    worker_make(webhooks.stack, **ALLOWED)
    webhooks.enqueue(1001)
    assert "onnect" in error_of(webhooks, refused)
    assert "resolve" in error_of(webhooks, unknown)


def test_a_worker_that_sends_none_removes_what_has_expired(webhooks, worker_make, endpoint_make):
    endpoint = endpoint_make()
    webhook, _ = webhooks.add(endpoint.url())
    old, _ = webhooks.add(endpoint.url())
    webhooks.enqueue(1001)
    webhooks.db.execute(
        "UPDATE webhook_delivery SET state = 'failed', last_at = now() - interval '1 day'"
        " WHERE webhook_id = %s",
        (old,),
    )
    worker = worker_make(
        webhooks.stack, **SOON, COUPON_WEBHOOK_CONNECTIONS=0, COUPON_WEBHOOK_KEEP_S=3600
    )
    wait_until(lambda: not webhooks.deliveries(old))
    wait_until(lambda: worker.metrics()["couponmq_worker_webhook_waiting"] == 1)
    assert worker.terminate() == 0
    assert webhooks.show(webhook)["waiting"] == 1 and not endpoint.requests


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("SCHEMES", "http", "allowed are https and https,http"),
        ("SCHEMES", "ftp", 'COUPON_WEBHOOK_SCHEMES is "ftp"'),
        ("NETWORKS", "10.0.0.1/8", '"10.0.0.1/8" is not a network: allowed are'),
        ("NETWORKS", "localhost", '"localhost" is not a network'),
        ("CONNECTIONS", "1001", "allowed is an integer from 0 to 1000"),
        ("TIMEOUT_MS", "99", "allowed is an integer from 100 to 60000"),
        ("ATTEMPTS", "0", "allowed is an integer from 1 to 100"),
        ("RETRY_MS", "9", "allowed is an integer from 10 to 60000"),
        ("DISABLE_S", "0", "allowed is an integer from 1 to 31536000"),
        ("KEEP_S", "x", "allowed is an integer from 1 to 31536000"),
    ],
)
def test_wrong_settings(webhooks, name, value, told):
    result = subprocess.run(
        [webhooks.stack.build_dir / "coupon-worker", "-n"],
        env={**os.environ, f"COUPON_WEBHOOK_{name}": value},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 1
    assert f'COUPON_WEBHOOK_{name} is "{value}"' in result.stderr and told in result.stderr


def test_authorities_that_cannot_be_read(webhooks):
    result = subprocess.run(
        [webhooks.stack.build_dir / "coupon-worker", "-n"],
        env={**os.environ, "COUPON_WEBHOOK_CA": "/nowhere/ca.pem"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 1
    told = "COUPON_WEBHOOK_CA: no certificates can be read from /nowhere/ca.pem: No such file"
    assert told in result.stderr


COMMANDS = {
    "show": (),
    "rotate": (),
    "edit": ("--state", "enabled"),
    "remove": (),
    "test": (),
    "show --deliveries": (),
    "show --resend": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_ids(webhooks, command):
    words = (*command.split(), *COMMANDS[command])
    for wrong in ("0", "-1", "x", "01", "9223372036854775808"):
        told = webhooks.refused(*words, wrong, status=2)
        assert f'ID is "{wrong}": allowed is an integer from 1' in told
    assert f"webhook {command} needs ID" in webhooks.refused(*words, status=2)
    assert f"there is no webhook {2**62}" in webhooks.refused(*words, 2**62, status=9)
    assert "takes only one argument" in webhooks.refused(*words, "1", "2", status=2)
    assert "has no option --x" in webhooks.refused(*words, "1", "--x", status=2)


@pytest.mark.parametrize(
    "arguments, status, told",
    [
        (("create",), 2, "webhook create needs URL"),
        (("create", "example.com"), 2, 'URL is "example.com": allowed is a URL as https://'),
        (("create", "ftp://example.com/"), 2, 'the scheme is "ftp": allowed is https or http'),
        (("create", "https://u:p@example.com/"), 2, "a user or a password: neither is allowed"),
        (("create", "https://example.com:22/"), 2, "the port is 22: allowed are 443, 80 and 1024"),
        (("create", "https://10.0.0.1/"), 2, "the address 10.0.0.1 is private: allowed are"),
        (("create", "https://[::1]/"), 2, "the address ::1 is loopback"),
        (("create", "https://e.com/" + "a" * 2050), 2, "it has 2064 bytes: allowed are 2048"),
        (("create", "https://e.com/\x1b"), 2, "\\x1b"),
        (("create", "https://e.com/", "--coupon", "x"), 2, '--coupon is "x": allowed is'),
        (("create", "https://e.com/", "--coupon", 2**62), 9, f"there is no coupon {2**62}"),
        (("create", "https://e.com/", "--types", "issued"), 2, '--types is "issued": allowed are'),
        (("create", "https://e.com/", "--types", ""), 2, "allowed are coupon.issued, coupon.rej"),
        (("create", "https://e.com/", "--types", "coupon.issued,"), 2, "--types is"),
        (("create", "https://e.com/", "--types", "coupon.issued,coupon.issued"), 2, "each once"),
        (("create", "https://e.com/", "--batch", "0"), 2, "an integer from 1 to 1000"),
        (("create", "https://e.com/", "--queue", "1000001"), 2, "an integer from 1 to 1000000"),
        (("create", "https://e.com/", "--secret-file", "/nowhere"), 2, "the file cannot be read"),
        (("create", "https://e.com/", "--secret-file", "/dev/null"), 2, "is no secret; allowed is"),
        (("rotate", "1", "--overlap", "24"), 2, '--overlap is "24": allowed is a duration in s'),
        (("rotate", "1", "--overlap", "31d"), 2, "from 0s to 30d"),
        (("rotate", "1", "--overlap", "-1h"), 2, '--overlap is "-1h"'),
        (("rotate", "1", "--overlap", "1w"), 2, '--overlap is "1w"'),
        (("rotate", "1", "--overlap", "9999999999999999999d"), 2, "--overlap is"),
        (
            ("edit", "1", "--state", "disabled", "--why", ""),
            2,
            '--why is "": allowed are 1 to 500 bytes',
        ),
        (("edit", "1", "--state", "disabled", "--why", "x" * 501), 2, "allowed are 1 to 500 bytes"),
        (("show", "--deliveries", "1", "--count", "0"), 2, "an integer from 1 to 100000"),
        (("show", "--deliveries", "1", "--after", "x"), 2, '--after is "x"'),
        (("show", "--deliveries", "1", "--waiting", "--failed"), 2, "allowed is one of them"),
        (("show", "--resend", "1", "--delivery", "x"), 2, '--delivery is "x"'),
        (("list", "1"), 2, "webhook list takes no argument"),
        (("frobnicate",), 2, 'webhook has no command "frobnicate"'),
        ((), 2, "webhook needs a command"),
    ],
)
def test_wrong_arguments(webhooks, arguments, status, told):
    assert told in webhooks.refused(*arguments, status=status)


def test_an_unencrypted_url_needs_the_setting(webhooks):
    result = webhooks.stack.ctl_run("webhook", "create", "http://example.com/")
    assert (result.returncode, result.stdout) == (2, "")
    assert 'the scheme is "http": allowed is https; http with COUPON_WEBHOOK_SCHEMES' in (
        result.stderr
    )


def test_a_test_event(webhooks, endpoint_make):
    """From couponctl, without a worker; also of a webhook that is disabled."""
    endpoint = endpoint_make()
    webhook, secret = webhooks.add(endpoint.url())
    webhooks("edit", webhook, "--state", "disabled")
    told = webhooks.json("test", webhook)
    assert (told["delivered"], told["status"], told["error"]) == (True, 204, None)
    [request] = endpoint.requests
    assert request.is_signed(secret) and request.id == told["message"]
    [event] = request.events
    assert (event["type"], event["data"]) == ("webhook.test", {"webhook": webhook})
    assert f"{endpoint.url()} answered 204 after" in webhooks("test", webhook)
    endpoint.answer = lambda request: 500
    result = webhooks.run("test", webhook)
    assert result.returncode == 1 and "answered 500" in result.stdout
    endpoint.close()
    result = webhooks.run("test", webhook, "--json")
    assert result.returncode == 1 and '"status":null' in result.stdout
    # By its own settings: here it is not allowed to reach this machine.
    result = webhooks.stack.ctl_run("webhook", "test", webhook, "--webhook-schemes", "https,http")
    assert result.returncode == 1 and "the address 127.0.0.1 is loopback" in result.stdout


def test_nothing_changes_while_redis_cannot_be_read(webhooks):
    webhook, _ = webhooks.add("https://example.com/")
    for arguments in (("create", "https://e.com/"), ("rotate", webhook), ("remove", webhook)):
        told = webhooks.refused(*arguments, "--redis-url", "redis://127.0.0.1:1/0", status=10)
        assert "Redis, which REDIS_URL names, cannot be reached" in told


def test_a_list_has_every_webhook(webhooks):
    made = [webhooks.add(f"https://example.com/{number}")[0] for number in range(3)]
    lines = webhooks("list").splitlines()
    assert lines[0].split()[:3] == ["webhook", "state", "coupon"]
    rows = [line.split() for line in lines[1:]]
    assert [(row[0], row[-1]) for row in rows if row[0] in made] == [
        (webhook, f"https://example.com/{number}") for number, webhook in enumerate(made)
    ]
