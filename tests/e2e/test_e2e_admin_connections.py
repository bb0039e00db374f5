"""The connections of coupon-admin: floods, shares, hosts, descriptors, and its settings."""

import contextlib
import os
import re
import select
import socket
import signal
import subprocess

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from admin_client import API, Admin, key_id, known, ok, problem
from stack import dial, wait_until


def flood(admin, n, source="127.0.0.1"):
    """So many connections with half a head each, which nobody ends."""
    host, port = admin.address.split(":")
    sockets = []
    for _ in range(n):
        one = socket.create_connection((host, int(port)), source_address=(source, 0))
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        sockets.append(one)
    return sockets


def have_ended(sockets):
    """How many of them the program has closed."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return len(poll.poll(0))


@pytest.mark.plain
def test_strangers_do_not_block_it(stack, key_make):
    """1,200 connections that send half a head, from an address that has no bound."""
    admin = Admin(stack)
    operator = known(admin, key_make("monitor"))
    sockets = flood(admin, 1200)
    try:
        # None of these waits until the others have had their time.
        for _ in range(20):
            assert admin.call("GET", "/healthz").status_code == 200
            ok(operator("GET", "/jobs"))
        assert 0 < have_ended(sockets) < 1200
        wait_until(lambda: have_ended(sockets) == 1200)
    finally:
        for one in sockets:
            one.close()
        admin.end()


@pytest.mark.plain
def test_a_request_must_arrive_in_time(admin):
    """Also if it goes on arriving, byte by byte, so that the connection is never idle."""
    (slow,) = flood(admin, 1)

    def is_closed():
        with contextlib.suppress(ConnectionError):
            slow.send(b"x")
        return have_ended([slow])

    wait_until(is_closed)
    slow.close()


@pytest.mark.plain
def test_an_address_has_a_bound(stack):
    admin = Admin(stack, COUPON_CONNECTIONS_NETWORKS="127.0.0.1")
    strangers = flood(admin, 70, "127.0.0.2")
    own = flood(admin, 70)
    try:
        wait_until(lambda: have_ended(strangers) >= 6)
        # Each has had its 5 seconds at most, which the others had, too.
        assert have_ended(own) == 0 or have_ended(strangers) == 70
        told = stack.log("admin-test").count("event=connections_of_address address=127.0.0.2")
        assert told == 1
        assert admin.call("GET", "/healthz").status_code == 200
    finally:
        for one in strangers + own:
            one.close()
        admin.end()


def test_places_are_kept_for_health(stack, key_make):
    """Each place has a client that is being answered: only what is monitored has an answer."""
    admin = Admin(stack, descriptors_max=256)  # 85 places
    callers = [known(admin, key_make("monitor")) for _ in range(6)]
    streams = []
    try:
        for caller in callers * 15:
            one = admin.stream(f"{API}/live", caller.key)
            if one.status_code == 200:
                streams.append(one)
        assert len(streams) == 85
        detail = problem(admin.call("GET", f"{API}/jobs", key=callers[0].key), 503)
        assert detail == "too many connections: nothing was done"
        for path in ("/healthz", "/readyz"):
            assert admin.call("GET", path).status_code == 200
    finally:
        for one in streams:
            one.close()
        admin.end()


@pytest.mark.parametrize(
    "name", ["rebound.example", "localhost.evil.example", "[::1", "127.0.0.1:x"]
)
def test_a_host_that_is_not_of_the_program(admin, name):
    told = admin.call("GET", f"{API}/campaigns", Host=name)
    detail = f'Host is "{name}": allowed are addresses, localhost and the names of'
    assert problem(told, 421).startswith(detail)
    assert admin.call("GET", "/", Host=name).status_code == 421
    assert admin.call("GET", "/healthz", Host=name).status_code == 200


def test_what_watches_the_program(stack, key_make):
    """Strangers are told whether it is ready, and nothing else; what is refused is logged."""
    admin = Admin(stack)
    monitor, issue = known(admin, key_make("monitor")), known(admin, key_make("issue"))
    assert admin.call("GET", "/readyz").json() == {"ready": True}
    assert admin.call("GET", "/readyz", key=issue.key).json() == {"ready": True}
    told = admin.call("GET", "/readyz", key=monitor.key).json()
    assert (told["keys"], told["couponctl"], told["warnings"]) == ("ok", "ok", [])
    problem(admin.call("GET", "/metrics"), 401)
    problem(admin.call("GET", "/metrics", key=issue.key), 403)

    def metrics():
        page = admin.call("GET", "/metrics", key=monitor.key).text
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    before = metrics()
    problem(admin.call("POST", "/admin/session", {"key": "cmq_0000000000_x"}), 401)
    ok(monitor("GET", "/campaigns?count=1"))
    problem(monitor("GET", "/campaigns/9999"), 404)
    problem(monitor("POST", "/campaigns/9999/pause"), 403)
    after = metrics()
    for name, more in (
        (("couponmq_admin_keys_refused_total",), 1),
        (("couponmq_admin_commands_total", "done"), 1),
        (("couponmq_admin_commands_total", "refused"), 1),
        (("couponmq_admin_commands_total", "failed"), 0),
    ):
        assert after[name] - before[name] == more, name
    (line,) = [line for line in admin.log().splitlines() if f"key={key_id(monitor)}" in line]
    assert "event=admin_refused" in line and "path=/admin/v1/campaigns/9999/pause" in line
    assert "http=403" in line and 'error="this key does not allow that"' in line

    def stranger_is_logged():
        admin.call("POST", "/admin/session", {"key": "x"})
        line = "event=admin_unauthorized path=/admin/session address=127.0.0.1 http=401"
        return line in admin.log()

    wait_until(stranger_is_logged)
    admin.end()


@pytest.mark.plain
def test_many_connections(admin, api):
    """They wait until there is room, and nobody else is kept from his answer."""
    idle = [dial(admin.address) for _ in range(300)]
    assert ok(api("GET", "/campaigns?count=1"))
    for one in idle:
        one.close()


@pytest.mark.plain
def test_connections_that_take_all_descriptors(stack, key_make):
    """Commands have theirs."""
    one = Admin(stack, descriptors_max=128)
    api = known(one, key_make("admin"))
    assert "event=kernel_limit" in one.log()
    with requests.Session() as kept:
        headers = {"Authorization": f"Bearer {api.key}"}
        path = f"{one.url}{API}/campaigns?count=1"
        assert kept.get(path, headers=headers, timeout=60).status_code == 200
        one.signal(signal.SIGSTOP)  # else it may close the first before the last have come
        idle = [dial(one.address) for _ in range(200)]
        one.signal(signal.SIGCONT)
        wait_until(lambda: "event=accept_pause" in one.log())
        assert kept.get(path, headers=headers, timeout=60).status_code == 200
    for connection in idle:
        connection.close()
    one.end()


@pytest.mark.skipif(
    re.search("address|thread", os.environ.get("BUILD_DIR", "")) is not None,
    reason="sanitizers have their own malloc",
)
def test_connections_leave_nothing_behind(admin):
    def some():
        for _ in range(150):
            assert admin.call("GET", "/healthz").status_code == 200

    some()
    before = admin.memory()
    some()
    assert admin.memory() - before < 1 << 20, "a session of TLS is some 14 KiB"


def test_a_terminal_that_ends(stack):
    """SIGHUP does not end it."""
    one = Admin(stack)
    for _ in range(3):
        one.signal(signal.SIGHUP)
        assert one.is_ready()
    assert one.terminate() == 0 and "event=stopping signal=15" in one.log()


def test_settings_that_are_refused(stack):
    def start(**settings):
        plain = dict.fromkeys(("COUPON_TLS_CERT", "COUPON_TLS_KEY", "COUPON_TLS_CA"), "")
        env = {**stack.env_of("admin"), **plain, **settings}
        return subprocess.run(
            [stack.build_dir / "coupon-admin", "-n"], env=env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    assert start().returncode == 0
    for settings, message in (
        ({"COUPON_ADMIN_LISTEN": "off"}, 'COUPON_ADMIN_LISTEN is "off": allowed is host:port'),
        ({"COUPON_ADMIN_LISTEN": "0.0.0.0:7490"}, "needs COUPON_TLS_CERT and COUPON_TLS_KEY, or"),
        (
            {"COUPON_GATEWAY_KEY": "x", "COUPON_ADMIN_METRICS": "127.0.0.1:1,[::2]:7480"},
            'COUPON_ADMIN_METRICS has "[::2]:7480", which is another machine: set',
        ),
        ({"COUPON_ADMIN_TIMEOUT_MS": "1"}, "allowed is an integer from 100 to 600000"),
    ):
        told = start(**settings)
        assert told.returncode == 1 and message in told.stderr, told
    assert start(COUPON_ADMIN_LISTEN="0.0.0.0:7490", COUPON_INSECURE="yes").returncode == 0
    elsewhere = {"COUPON_GATEWAY_KEY": "x", "COUPON_ADMIN_METRICS": "gateway.example:7480"}
    assert start(**elsewhere, COUPON_INSECURE="yes").returncode == 0
    for scheme, code in (("http://", 0), ("https://", 0), ("ftp://", 1), ("", 1)):
        elsewhere["COUPON_ADMIN_METRICS"] = f"{scheme}gateway.example:7480"
        assert start(**elsewhere).returncode == code, scheme
