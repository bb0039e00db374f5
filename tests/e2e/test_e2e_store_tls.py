"""TLS to the stores: over it all works, what is not verified is refused and told, and a store on
another machine without it is warned about."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid

import pytest
import requests

from process import metrics_read
from stack import ROOT, port_answers, port_free, wait_until
from tls_stores import TlsSentinels, TlsStores, elsewhere

STORES = ("rabbitmq", "postgresql", "redis")
STUNNELS = ("stunnel", "stunnel4")
ENDS_S = 60  # of what has time-outs of some seconds, on a machine that is busy

# What is wrong with a certificate, and the words by which RabbitMQ's and Redis', and PostgreSQL's
# is refused.
WRONG = {
    "another authority": (
        lambda stores: stores.stranger.issue("DNS:localhost", "IP:127.0.0.1"),
        "unable to get local issuer certificate",
        "certificate verify failed",
    ),
    "another name": (
        lambda stores: stores.authority.issue("DNS:store.example", "IP:127.0.0.1"),
        "hostname mismatch",
        'does not match host name "localhost"',
    ),
    "expired": (
        lambda stores: stores.authority.issue("DNS:localhost", "IP:127.0.0.1", days=-1),
        "certificate has expired",
        "certificate verify failed",
    ),
}


@pytest.fixture(scope="session")
def tls_stack(stack_make):
    one = stack_make()
    one.services()
    return one


@pytest.fixture(scope="session")
def tls_stores(tls_stack, tmp_path_factory):
    return TlsStores(tls_stack, tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def has_rediss(tls_stack):
    """Whether hiredis has TLS in this build."""
    return run(tls_stack, "coupon-gateway", "-n", REDIS_URL="rediss://localhost").returncode == 0


def run(stack, program, *arguments, **settings):
    return subprocess.run(
        [str(stack.build_dir / program), *arguments],
        env={**os.environ, **stack.env_of("operator"), **{k: str(v) for k, v in settings.items()}},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_S,
    )


def settings_of(stores, program, has_rediss, host="localhost"):
    """All stores that can be reached over TLS."""
    return {
        **stores.amqp(program, host),
        **stores.postgresql(program, host),
        **(stores.redis(program, host) if has_rediss else {}),
    }


def issues(stack, gateway):
    coupon = stack.coupon_make(10)
    with gateway.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        assert client.issue(coupon, 1, ack="issued")["status"] == "issued"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_everything_works_over_it(
    tls_stack, tls_stores, has_rediss, gateway_make, worker_make, host
):
    gateway = gateway_make(tls_stack, **settings_of(tls_stores, "gateway", has_rediss, host))
    worker = worker_make(tls_stack, **settings_of(tls_stores, "worker", has_rediss, host))
    issues(tls_stack, gateway)
    for process in (gateway, worker):
        assert requests.get(process.http("/readyz"), timeout=60).json()["warnings"] == []
        assert "weak_setting" not in process.log()
    told = tls_stack.rabbitmq_eval(
        "lists:usort([{proplists:get_value(user, C), proplists:get_value(ssl, C)}"
        " || C <- rabbit_networking:connection_info_all([user, ssl])])"
    )
    assert "couponmq_gateway" in told and "couponmq_worker" in told and "false" not in told
    with tls_stores.superuser() as connection:
        rows = connection.execute(
            "SELECT DISTINCT usename, ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE usename LIKE 'couponmq_%'"
        ).fetchall()
    assert set(rows) == {("couponmq_gateway", True), ("couponmq_worker", True)}


class Capture:
    """What goes over loopback meanwhile, but for these ports."""

    def __init__(self, *ports):
        self.ports = set(ports)
        self.frames, self.ended = [], False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.settimeout(0.1)
        self.socket.bind(("lo", 0))
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended:
            try:
                self.frames.append(self.socket.recv(1 << 17))
            except TimeoutError:
                pass

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()
        self.socket.close()

    def dropped(self):
        told = self.socket.getsockopt(263, 6, 8)  # SOL_PACKET, PACKET_STATISTICS
        return int.from_bytes(told[4:8], sys.byteorder)

    def has(self, text):
        return any(text.encode() in frame for frame in self.frames if not self.is_left_out(frame))

    def is_left_out(self, frame):
        """Whether the frame has one of the ports; all here is TCP over IPv4."""
        at = 14 + 4 * (frame[14] & 15)
        ports = {int.from_bytes(frame[i : i + 2], "big") for i in (at, at + 2)}
        return bool(ports & self.ports)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may capture")
def test_nobody_on_the_way_reads_who_gets_a_coupon(
    tls_stack, tls_stores, has_rediss, gateway_make, worker_make
):
    """From the client to each store. Where hiredis has no TLS, the way to Redis is stunnel's."""
    certificate, key = tls_stores.good
    os.chmod(key, 0o600)
    gateway = gateway_make(
        tls_stack,
        ready=None,
        **settings_of(tls_stores, "gateway", has_rediss),
        COUPON_TLS_CERT=certificate,
        COUPON_TLS_KEY=key,
    )
    worker_make(tls_stack, **settings_of(tls_stores, "worker", has_rediss))
    wait_until(lambda: "event=gateway_known" in gateway.log())
    coupon = tls_stack.coupon_make(10)
    redis_port = int(re.search(r":(\d+)", tls_stack.env["REDIS_URL"].rpartition("@")[2])[1])
    context = ssl.create_default_context(cafile=tls_stores.authority.path)
    hidden, shown = (f"captured-{uuid.uuid4()}" for _ in range(2))

    def issue_secured(user):
        host, port = gateway.settings["COUPON_LISTEN"].split(":")
        line = '{"op":"issue","coupon":"%s","user":"%s","ack":"issued"}\n' % (coupon, user)
        with socket.create_connection((host, int(port)), ENDS_S) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as one:
                one.sendall(line.encode())
                return one.makefile().readline()

    def http_secured(user):
        url = f"https://{gateway.settings['COUPON_HTTP_LISTEN']}/v1/users/{user}/coupons"
        return requests.get(url, verify=str(tls_stores.authority.path), timeout=60).text

    with Capture(*([] if has_rediss else [redis_port])) as capture:
        wait_until(lambda: '"issued"' in issue_secured(hidden) or '"limit' in issue_secured(hidden))
        assert hidden in http_secured(hidden) and coupon in http_secured(hidden)
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).sendall(shown.encode())
            server.accept()[0].recv(100)
        wait_until(lambda: capture.has(shown))  # it comes last
        assert capture.dropped() == 0
    assert not capture.has(hidden)


def test_a_command_works_over_it(tls_stack, tls_stores, has_rediss, worker_make):
    worker_make(tls_stack, **settings_of(tls_stores, "worker", has_rediss))  # declares the queues
    settings = settings_of(tls_stores, "operator", has_rediss)
    listed = run(tls_stack, "couponctl", "dead", "list", "--json", **settings)
    assert (listed.returncode, listed.stderr) == (0, "")
    tls_stores.rabbitmq_show(WRONG["another name"][0](tls_stores))
    try:
        refused = run(tls_stack, "couponctl", "dead", "list", **settings)
        assert refused.returncode == 10 and "hostname mismatch" in refused.stderr
    finally:
        tls_stores.rabbitmq_show(tls_stores.good)


@pytest.mark.long
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("store", STORES)
def test_a_wrong_certificate_is_refused_until_it_is_mended(
    tls_stack, tls_stores, has_rediss, gateway_make, worker_make, store, wrong
):
    if store == "redis" and not has_rediss:
        pytest.skip("hiredis has no TLS here")
    pair, words, words_postgresql = WRONG[wrong]
    words = words_postgresql if store == "postgresql" else words
    tls_stores.show(store, pair(tls_stores))
    try:
        settings = settings_of(tls_stores, "gateway", has_rediss)
        gateway = gateway_make(tls_stack, ready=False, **settings)
        worker = worker_make(
            tls_stack, ready=False, **settings_of(tls_stores, "worker", has_rediss)
        )
        wait_until(lambda: words in gateway.trouble(store))
        for process in (gateway, worker):
            wait_until(lambda process=process: words in process.log().replace('\\"', '"'))
    finally:
        tls_stores.show(store, tls_stores.good)
    wait_until(gateway.ready)
    wait_until(worker.ready)
    issues(tls_stack, gateway)


def test_the_days_of_what_the_stores_present(tls_stack, tls_stores, has_rediss):
    """couponctl doctor: 5 are few, and one that has expired is named although nobody connects."""
    names = ("DNS:localhost", "IP:127.0.0.1")
    expired = tls_stores.authority.issue(*names, days=-1)
    few = tls_stores.authority.issue(*names, days=5)
    settings = settings_of(tls_stores, "operator", has_rediss)

    def state_of(store):
        told = run(tls_stack, "couponctl", "doctor", "--json", **settings).stdout
        found = (json.loads(line) for line in told.splitlines())
        return {one["state"] for one in found if one["name"] == f"{store}.certificate"}

    for store in STORES if has_rediss else STORES[:2]:
        assert state_of(store) == {"ok"}, store
        try:
            tls_stores.show(store, few)
            wait_until(lambda store=store: state_of(store) == {"warning"})
            if store != "postgresql":  # without a session its certificate is not seen
                tls_stores.show(store, expired)
                wait_until(lambda store=store: state_of(store) == {"wrong"})
        finally:
            tls_stores.show(store, tls_stores.good)


def test_a_certificate_that_is_replaced_counts_from_the_next_connection(
    tls_stack, tls_stores, gateway_make, worker_make
):
    """The file of the authorities is read anew as well."""
    trusted = tls_stores.folder / "trusted.pem"
    shutil.copy(tls_stores.authority.path, trusted)
    changed = {**tls_stores.amqp("gateway"), "COUPON_AMQP_CA": trusted}
    gateway = gateway_make(tls_stack, **changed)
    worker_make(tls_stack)
    tls_stores.rabbitmq_show(tls_stores.stranger.issue("DNS:localhost"))
    try:
        issues(tls_stack, gateway)
        tls_stack.rabbitmq_eval('rabbit_networking:close_all_connections("test")')
        wait_until(lambda: "unable to get local issuer" in gateway.trouble("rabbitmq"))
        with open(trusted, "a", encoding="ascii") as file:
            file.write(tls_stores.stranger.path.read_text())
        wait_until(gateway.ready)
        issues(tls_stack, gateway)
    finally:
        tls_stores.rabbitmq_show(tls_stores.good)


@pytest.fixture
def silent():
    """The port of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", port_free())) as server:
        yield server.getsockname()[1]


def test_a_silent_broker_delays_nothing_for_long(tls_stack, gateway_make, worker_make, silent):
    for make, program in ((gateway_make, "gateway"), (worker_make, "worker")):
        url = elsewhere(tls_stack.env_of(program)["AMQP_URL"], "127.0.0.1", silent, "amqps")
        process = make(tls_stack, ready=False, AMQP_URL=url)
        begun = time.monotonic()
        wait_until(lambda process=process: "timed out" in process.log(), ENDS_S)
        if program == "gateway":
            with process.client() as client:
                assert client.call("ping")["code"] == 0
        assert process.terminate() == 0
        assert time.monotonic() - begun < ENDS_S
    refused = run(tls_stack, "couponctl", "dead", "list", AMQP_URL=url)
    assert refused.returncode == 10 and "timed out" in refused.stderr


def test_a_build_without_tls_for_redis_says_so(tls_stack, has_rediss):
    if has_rediss:
        pytest.skip("hiredis has TLS here")
    url = "rediss://user:secret@redis.example"
    for program, arguments in (
        ("coupon-gateway", ("-n",)),
        ("coupon-worker", ("-n",)),
        ("couponctl", ("show", "1")),
    ):
        done = run(tls_stack, program, *arguments, REDIS_URL=url)
        assert done.returncode == 1
        assert "hiredis 0.14" in done.stderr and "stunnel" in done.stderr
        assert "secret" not in done.stderr


@pytest.mark.parametrize(
    "setting, url", [("COUPON_AMQP_CA", "AMQP_URL"), ("COUPON_REDIS_CA", "REDIS_URL")]
)
def test_certificates_that_cannot_be_read_end_it(tls_stack, has_rediss, tmp_path, setting, url):
    if url == "REDIS_URL" and not has_rediss:
        pytest.skip("hiredis has no TLS here")
    scheme = {"AMQP_URL": "amqps", "REDIS_URL": "rediss"}[url]
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path in (tmp_path / "none.pem", empty):
        done = run(
            tls_stack, "coupon-gateway", "-n", **{url: f"{scheme}://u:p@localhost", setting: path}
        )
        assert done.returncode == 1
        assert setting in done.stderr and str(path) in done.stderr


# A store on another machine without TLS


def named(url, name):
    """By a name that is not known to be of this machine."""
    return elsewhere(url, f"{name}.slow.test")


@pytest.mark.usefixtures("tls_stores")  # PostgreSQL has TLS
def test_a_store_elsewhere_without_tls_is_warned_about(
    tls_stack, gateway_make, worker_make, slow_names
):
    settings, silent_file = slow_names
    silent_file.unlink()
    expected = {
        "REDIS_URL": "redis: REDIS_URL is redis://, wanted rediss://: ",
        "AMQP_URL": "rabbitmq: AMQP_URL is amqp://, wanted amqps://: ",
        "DATABASE_URL": "postgresql: DATABASE_URL is sslmode=require, wanted sslmode=verify-full: ",
    }
    for make, program in ((gateway_make, "gateway"), (worker_make, "worker")):
        env = tls_stack.env_of(program)
        urls = {name: named(env[name], "store") for name in expected}
        urls["DATABASE_URL"] += "?sslmode=require"
        process = make(tls_stack, **settings, **urls)
        warnings = requests.get(process.http("/readyz"), timeout=60).json()["warnings"]
        for begin in expected.values():
            assert len([one for one in warnings if one.startswith(begin)]) == 1
        lines = [line for line in process.log().splitlines() if "event=weak_setting" in line]
        assert len(lines) == 3 and all("level=warn" in line for line in lines)
        if program == "gateway":
            wait_until(
                lambda: metrics_read(process.http("/metrics"))["couponmq_weak_settings"] == 3
            )
        for secret in re.findall(r"//\w+:(\w+)@", " ".join(urls.values())):
            assert secret not in process.log() and secret not in " ".join(warnings)


# stunnel, as docs/guides/security.md has it


@pytest.fixture
def stunnel(tls_stores, tmp_path):
    """The port of a stunnel to Redis, with the configuration of the document."""
    program = next(filter(None, map(shutil.which, STUNNELS)), None)
    if not program:
        pytest.skip("stunnel4 is not installed: scripts/packages.sh test installs it")
    page = (ROOT / "docs/guides/security.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```\n(\[redis\]\n.*?)```", page, re.DOTALL)
    port = port_free()
    for old, new in (
        ("accept = 127.0.0.1:6380", f"accept = 127.0.0.1:{port}"),
        ("connect = redis.example:6379", f"connect = 127.0.0.1:{tls_stores.rediss_port}"),
        ("CAfile = /etc/couponmq/redis-ca.pem", f"CAfile = {tls_stores.authority.path}"),
        ("checkHost = redis.example", "checkHost = localhost"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    configuration = tmp_path / "stunnel.conf"
    configuration.write_text(f"foreground = yes\npid =\n{text}", encoding="ascii")
    child = subprocess.Popen(
        [program, str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: port_answers(port))
        yield port
    finally:
        child.terminate()
        child.wait()


def redis_answers(port):
    """Anything at all."""
    with socket.create_connection(("127.0.0.1", port), ENDS_S) as connection:
        try:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) != b""
        except ConnectionError:
            return False


def test_redis_by_stunnel(tls_stack, tls_stores, gateway_make, worker_make, stunnel):
    urls = {
        program: elsewhere(tls_stack.env_of(program)["REDIS_URL"], "127.0.0.1", stunnel)
        for program in ("gateway", "worker")
    }
    gateway = gateway_make(tls_stack, REDIS_URL=urls["gateway"])
    worker_make(tls_stack, REDIS_URL=urls["worker"])
    issues(tls_stack, gateway)
    assert redis_answers(stunnel)
    assert requests.get(gateway.http("/readyz"), timeout=60).json()["warnings"] == []
    for pair, _, _ in WRONG.values():
        tls_stores.redis_show(pair(tls_stores))
        try:
            wait_until(lambda: gateway.trouble("redis") != "ok")
            assert not redis_answers(stunnel)
        finally:
            tls_stores.redis_show(tls_stores.good)
        wait_until(gateway.ready)
        issues(tls_stack, gateway)


@pytest.mark.long
def test_sentinels(tls_stack, tls_stores, has_rediss, gateway_make, worker_make):
    """They and both servers are verified; of another authority none is asked."""
    if not has_rediss:
        pytest.skip("hiredis has no TLS")
    with TlsSentinels(tls_stores) as group:
        gateway = gateway_make(tls_stack, ready=False, **group.settings("gateway"))
        worker_make(tls_stack, **group.settings("worker"))
        coupon = tls_stack.coupon_make(10)
        with gateway.client() as client:
            issued = {"ack": "issued", "key": "k"}
            wait_until(lambda: client.issue(coupon, 1, **issued)["status"] == "issued")
            group.failover()
            wait_until(lambda: group.masters() == {group.second})
            wait_until(lambda: client.issue(coupon, 2, **issued)["status"] == "issued")
        settings = {**group.settings("gateway"), "COUPON_REDIS_CA": tls_stores.stranger.path}
        stranger = gateway_make(tls_stack, ready=False, **settings)
        wait_until(lambda: re.search("certificate .* refused: ", stranger.trouble("redis")))


def test_files_of_libpq_that_would_block(tls_stack, tls_stores, tmp_path):
    """Named pipes are refused, and nobody is asked for the pass phrase of a key."""
    url = tls_stores.postgresql("operator")["DATABASE_URL"]
    certificate, key = tls_stores.authority.issue("DNS:client")
    pipe, encrypted = tmp_path / "pipe", tmp_path / "encrypted"
    os.mkfifo(pipe)
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", encrypted],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    for option, why in (
        (f"sslrootcert={pipe}", "not a regular file"),
        (f"sslcrl={pipe}", "not a regular file"),
        (f"sslcert={pipe}&sslkey={key}", "not a regular file"),
        (f"sslcert={certificate}&sslkey={encrypted}", str(encrypted)),
        (f"sslcert={certificate}&sslkey={encrypted}&sslpassword=secret", None),
        ("service=x", "PGSERVICEFILE"),
    ):
        with subprocess.Popen(
            [str(tls_stack.build_dir / "couponctl"), "list"],
            env={
                **os.environ,
                **tls_stack.env_of("operator"),
                "DATABASE_URL": f"{url}&{option}",
                "PGSERVICEFILE": str(pipe),
            },
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as child:
            status = {None: 0, "PGSERVICEFILE": 1}.get(why, 10)  # 1: before it connects
            try:
                assert child.wait(ENDS_S) == status, option
                assert not why or why in child.stderr.read(), option
            finally:
                child.kill()
