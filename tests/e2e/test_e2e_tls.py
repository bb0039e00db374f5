"""TLS on the listeners: certificates that change, clients that verify and that do not, handshakes
that never end, and other clients meanwhile."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time

import pytest
import requests

from certificates import CA_USAGE
from process import Gateway, Process, gateway_process, no_descriptors
from stack import TlsSocket, port_free, wait_until
from admin_client import Admin, known
from wall_clock import WallClock

HANDSHAKE_S = 10  # gateway/listen/arrival.c


class Authority:
    """A CA of its own, and what it signs."""

    def __init__(self, folder):
        self.folder = folder
        self.serial = 0
        self._make("ca", ["-x509", "-days", "30", "-subj", "/CN=test CA", "-addext", CA_USAGE])
        self.path = folder / "ca.pem"

    def _openssl(self, *arguments):
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60
        )

    def _make(self, name, options):
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        pem, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        self._openssl("req", *curve, *options, "-keyout", key, "-out", pem)
        key.chmod(0o600)

    def certificate(self, name="server", days=30, names="DNS:localhost,IP:127.0.0.1"):
        """Puts a new certificate and its key into NAME.pem and NAME.key."""
        self._make("request", ["-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"])
        signer = ["-CA", self.path, "-CAkey", self.folder / "ca.key", "-copy_extensions", "copy"]
        self._openssl(
            "x509", "-req", "-in", self.folder / "request.pem", "-days", days, *signer,
            "-out", self.folder / "new.pem",
        )  # fmt: skip
        (self.folder / "new.pem").replace(self.folder / f"{name}.pem")
        (self.folder / "request.key").replace(self.folder / f"{name}.key")

    def context(self, client=None):
        context = ssl.create_default_context(cafile=self.path)
        context.sslsocket_class = TlsSocket
        if client:
            context.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}.key")
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)
    return Authority(folder)


@pytest.fixture
def tls_gateway(stack, authority):
    """A gateway with a certificate of its own, whatever the stack has."""
    with contextlib.ExitStack() as gateways:

        def make(name, **settings):
            authority.certificate()
            one = gateway_process(
                stack,
                name,
                ready=None,
                COUPON_TLS_CERT=str(authority.folder / "server.pem"),
                COUPON_TLS_KEY=str(authority.folder / "server.key"),
                **{setting: str(value) for setting, value in settings.items()},
            )
            gateways.callback(one.end)
            wait_until(lambda: "event=ready" in one.log())
            return one

        yield make


def raw(gateway, http=False):
    host, port = gateway.settings["COUPON_HTTP_LISTEN" if http else "COUPON_LISTEN"].split(":")
    return socket.create_connection((host, int(port)), 60)


def secured(gateway, context, http=False, session=None):
    return context.wrap_socket(raw(gateway, http), server_hostname="localhost", session=session)


def ping(connection):
    connection.sendall(b'{"op":"ping"}\n')
    return json.loads(connection.makefile("rb").readline())["code"]


def get(gateway: Gateway, authority, path):
    url = f"https://{gateway.settings['COUPON_HTTP_LISTEN']}{path}"
    return requests.get(url, verify=str(authority.path), timeout=60)


def metric(gateway, authority, name):
    line = next(
        line
        for line in get(gateway, authority, "/metrics").text.splitlines()
        if line.startswith(f"couponmq_{name} ")
    )
    return float(line.split()[1])


def name_of(gateway, context):
    with secured(gateway, context) as connection:
        return dict(pair[0] for pair in connection.getpeercert()["subject"])["commonName"]


def test_lines_and_http(tls_gateway, authority):
    gateway = tls_gateway("gateway-tls")
    with secured(gateway, authority.context()) as connection:
        assert connection.version() == "TLSv1.3" and ping(connection) == 0
    assert get(gateway, authority, "/healthz").json() == {"status": "ok"}
    old = authority.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with secured(gateway, old) as connection:
        assert connection.version() == "TLSv1.2" and ping(connection) == 0


def test_plain_clients_get_nothing(tls_gateway, authority):
    gateway = tls_gateway("gateway-tls")
    for http, request in ((False, b'{"op":"ping"}\n'), (True, b"GET /healthz HTTP/1.1\r\n\r\n")):
        with raw(gateway, http) as connection:
            connection.sendall(request)
            reply = connection.makefile("rb").read()
            assert reply[:1] in (b"", b"\x15"), "nothing but an alert"
    assert metric(gateway, authority, "tls_handshakes_failed_total") == 2


@pytest.mark.parametrize("http", [False, True])
def test_records_that_arrive_in_parts(tls_gateway, authority, http):
    """A long line, or body, of several records, cut anywhere: nothing waits for bytes that are
    there."""
    gateway = tls_gateway("gateway-tls")
    text = json.dumps({"x": "y" * 60000, **({} if http else {"op": "ping"})}).encode() + b"\n"
    if http:
        head = b"POST /v1/ping HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        text = head + b"Content-Length: %d\r\n\r\n" % len(text) + text
    for piece in (4000, 9000, 16384, 16390, 16500, 33000):
        received, written = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = authority.context().wrap_bio(received, written, server_hostname="localhost")
        with raw(gateway, http) as connection:

            def until(step, connection=connection, received=received, written=written):
                while True:
                    with contextlib.suppress(ssl.SSLWantReadError):
                        done = step()
                        connection.sendall(written.read())
                        return done
                    connection.sendall(written.read())
                    received.write(connection.recv(65536))

            until(client.do_handshake)
            assert client.write(text) == len(text)
            sealed = written.read()
            for at in range(0, len(sealed), piece):
                connection.sendall(sealed[at : at + piece])
                time.sleep(0.01)  # so that the gateway reads it alone
            assert b"x: no such member" in until(lambda client=client: client.read(4096))


def test_protocols(tls_gateway, authority):
    """A browser cannot be led to the other listener: it offers HTTP."""
    gateway = tls_gateway("gateway-tls")
    for http, good, bad in ((False, "couponmq", "http/1.1"), (True, "http/1.1", "h2")):
        context = authority.context()
        context.set_alpn_protocols([bad, good])
        with secured(gateway, context, http) as connection:
            assert connection.selected_alpn_protocol() == good
        context.set_alpn_protocols([bad])
        with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
            secured(gateway, context, http)


def test_a_new_certificate(tls_gateway, authority):
    """Connections that are open go on with the one they have."""
    gateway = tls_gateway("gateway-tls")
    context = authority.context()
    with secured(gateway, context) as connection:
        for number in (1, 2):
            authority.certificate("other", days=100 * number)
            for end in ("pem", "key"):
                (authority.folder / f"other.{end}").replace(authority.folder / f"server.{end}")
            if number == 2:
                gateway.signal(signal.SIGHUP)
            wait_until(
                lambda days=100 * number: metric(
                    gateway, authority, "tls_certificate_expires_seconds"
                )
                > (days - 1) * 86400
            )
        assert name_of(gateway, context) == "other"
        assert ping(connection) == 0


def test_a_bad_certificate_leaves_the_old_one(tls_gateway, authority):
    gateway = tls_gateway("gateway-tls")
    path = authority.folder / "server.pem"
    good = path.read_text()
    path.write_text("nothing")
    wait_until(lambda: metric(gateway, authority, "tls_trouble") == 1)
    (warning,) = [
        text
        for text in get(gateway, authority, "/readyz").json()["warnings"]
        if "COUPON_TLS_CERT" in text
    ]
    assert "no certificate that can be used" in warning
    assert "event=tls_not_loaded" in gateway.log()
    assert name_of(gateway, authority.context()) == "server"
    path.write_text(good)
    wait_until(lambda: metric(gateway, authority, "tls_trouble") == 0)


LISTENERS = {
    "gateway": "COUPON_HTTP_LISTEN",
    "worker": "COUPON_WORKER_HTTP_LISTEN",
    "admin": "COUPON_ADMIN_LISTEN",
}


@pytest.mark.parametrize("program", LISTENERS)
def test_files_that_would_block(stack, authority, tmp_path, program):
    """A key with a pass phrase, which OpenSSL asks for, and named pipes: at the start they end the
    program, and later they leave the old certificate in use."""
    authority.certificate()
    for name in ("server.pem", "server.key", "ca.pem"):
        (tmp_path / name).write_bytes((authority.folder / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    encrypted = subprocess.run(
        ["openssl", "pkey", "-in", tmp_path / "server.key", "-aes128", "-passout", "pass:secret"],
        check=True, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
    settings = {
        "COUPON_TLS_CERT": str(tmp_path / "server.pem"),
        "COUPON_TLS_KEY": str(tmp_path / "server.key"),
        "COUPON_TLS_CLIENT_CA": str(tmp_path / "ca.pem"),
        **({"COUPON_LISTEN": "off", "COUPON_UNIX_SOCKET": ""} if program == "gateway" else {}),
    }
    address = f"127.0.0.1:{port_free()}"
    one = Process(
        stack, f"coupon-{program}", f"{program}-blocked", {LISTENERS[program]: address, **settings}
    )

    def answers():
        with contextlib.suppress(requests.ConnectionError):
            url = f"https://{address}/healthz"
            return requests.get(url, verify=str(authority.path), timeout=60).status_code == 200
        return False

    try:
        wait_until(answers)
        for name, why in (
            ("server.key", "the key has a pass phrase"),
            ("server.key", "named pipe"),
            ("server.pem", "named pipe"),
            ("ca.pem", "named pipe"),
        ):
            good = tmp_path / name
            good.rename(tmp_path / "good")
            if why == "named pipe":
                os.mkfifo(good)
            else:
                good.write_bytes(encrypted)
                good.chmod(0o600)
            wait_until(lambda why=why: why in one.log().split("event=tls_loaded")[-1])
            assert answers()
            start = subprocess.Popen(
                [str(stack.build_dir / f"coupon-{program}"), "-n"],
                env={**os.environ, **stack.env_of(program), **settings},
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            assert start.wait(60) == 1 and why.encode() in start.stderr.read()
            loaded = one.log().count("event=tls_loaded")
            (tmp_path / "good").rename(good)
            wait_until(lambda n=loaded: one.log().count("event=tls_loaded") > n)
            assert answers()
        assert one.terminate() == 0
    finally:
        one.end()


def test_a_new_certificate_while_descriptors_are_out(tls_gateway, authority):
    """It is loaded when there are some again, and until then the old one is used."""
    gateway = tls_gateway("gateway-tls", COUPON_PROCESSES=1)
    with no_descriptors(gateway.child.pid):
        authority.certificate("other", days=200)
        for end in ("pem", "key"):
            (authority.folder / f"other.{end}").replace(authority.folder / f"server.{end}")
        wait_until(lambda: "event=tls_not_loaded" in gateway.log())
    wait_until(lambda: metric(gateway, authority, "tls_certificate_expires_seconds") > 199 * 86400)
    assert metric(gateway, authority, "tls_trouble") == 0
    assert name_of(gateway, authority.context()) == "other"


def test_sessions_are_resumed_by_any_process(tls_gateway, authority):
    gateway = tls_gateway("gateway-tls", COUPON_PROCESSES=4)
    context = authority.context()
    with secured(gateway, context) as first:
        assert ping(first) == 0  # the ticket has come with it
        session = first.session
    for _ in range(12):
        with secured(gateway, context, session=session) as connection:
            assert connection.session_reused and ping(connection) == 0
            session = connection.session
    assert metric(gateway, authority, "tls_handshakes_resumed_total") >= 12


def test_a_certificate_stands_for_a_key(stack, tls_gateway, authority):
    key = stack.ctl("key", "create", "--name", "test", "--role", "monitor").split("_")[1]
    authority.certificate(key, names="DNS:shop")
    gateway = tls_gateway(
        "gateway-tls", COUPON_TLS_CLIENT_CA=authority.path, COUPON_AUTH="required"
    )

    def code(client, op):
        with secured(gateway, authority.context(client)) as connection:
            connection.sendall(json.dumps({"op": op}).encode() + b"\n")
            return json.loads(connection.makefile("rb").readline())["code"]

    wait_until(lambda: code(key, "stats") == 0)
    assert code(None, "stats") == 41
    with secured(gateway, authority.context(key)) as connection:
        stack.ctl("key", "revoke", key)
        wait_until(lambda: not connection.recv(1))
    wait_until(lambda: code(key, "stats") == 41)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_expires_in_use(stack, tls_gateway, authority, tmp_path, version):
    """One of a client is refused at each connection, also with a ticket from before, and counts no
    more on one that is open; that of the gateway is told."""
    clock = WallClock(tmp_path)
    key = stack.ctl("key", "create", "--name", "test", "--role", "monitor").split("_")[1]
    authority.certificate(key, days=10, names="DNS:shop")
    gateway = tls_gateway(
        "gateway-tls",
        COUPON_TLS_CLIENT_CA=authority.path,
        COUPON_AUTH="required",
        COUPON_PROCESSES=1,
        **clock.environment,
    )
    context = authority.context(key)
    context.minimum_version = context.maximum_version = version

    def code(connection):
        connection.sendall(b'{"op":"stats"}\n')
        return json.loads(connection.makefile("rb").readline())["code"]

    def fresh():
        with secured(gateway, context) as connection:
            return code(connection)

    wait_until(lambda: fresh() == 0)
    with secured(gateway, context) as connection:
        assert code(connection) == 0
        session = connection.session
        with secured(gateway, context, session=session) as again:
            assert code(again) == 0 and not again.session_reused
        clock.set(11 * 86400)
        assert code(connection) == 41
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with secured(gateway, context, session=session) as again:
                code(again)
    assert "event=tls_certificate" not in gateway.log()
    clock.set(31 * 86400)
    wait_until(lambda: "event=tls_certificate" in gateway.log())
    assert "the certificate has expired" in gateway.log()


def test_operators_of_a_worker_have_certificates(stack, worker_make, authority, tmp_path):
    """Others learn whether it lives and is ready."""
    authority.certificate("server")
    authority.certificate("operator", days=10)
    clock = WallClock(tmp_path)
    worker = worker_make(
        stack,
        **clock.environment,
        COUPON_TLS_CERT=authority.folder / "server.pem",
        COUPON_TLS_KEY=authority.folder / "server.key",
        COUPON_TLS_CLIENT_CA=authority.path,
    )
    url = f"https://{worker.settings['COUPON_WORKER_HTTP_LISTEN']}"
    operator = tuple(str(authority.folder / f"operator.{kind}") for kind in ("pem", "key"))

    def get(path, cert=None):
        return requests.get(url + path, verify=str(authority.path), cert=cert, timeout=60)

    wait_until(lambda: get("/readyz").status_code == 200)
    assert get("/readyz").json() == {"ready": True} and get("/healthz").json()["status"] == "ok"
    assert get("/metrics").status_code == 403 and "certificate" in get("/metrics").text
    assert get("/readyz", operator).json()["rabbitmq"] == "ok"
    assert "couponmq_worker_messages_total" in get("/metrics", operator).text
    with requests.Session() as kept:
        shown = {"verify": str(authority.path), "cert": operator, "timeout": 60}
        assert kept.get(url + "/metrics", **shown).status_code == 200
        clock.set(11 * 86400)
        assert kept.get(url + "/metrics", **shown).status_code == 403
    with pytest.raises(requests.ConnectionError):
        get("/metrics", operator)


def test_client_certificates(tls_gateway, authority, tmp_path):
    """Nobody needs one; one of another CA is refused."""
    authority.certificate("shop", names="DNS:shop")
    gateway = tls_gateway("gateway-tls", COUPON_TLS_CLIENT_CA=authority.path)
    for client in (None, "shop"):
        with secured(gateway, authority.context(client)) as connection:
            assert ping(connection) == 0
    stranger = Authority(tmp_path)
    stranger.certificate("shop")
    context = authority.context()
    context.load_cert_chain(tmp_path / "shop.pem", tmp_path / "shop.key")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with secured(gateway, context) as connection:
            ping(connection)


def test_admin_watches_programs_with_tls_and_without(stack, tls_gateway, worker_make, authority):
    gateway = tls_gateway("gateway-tls")
    worker = worker_make(stack, COUPON_TLS_CERT="", COUPON_TLS_KEY="")
    addresses = [
        gateway.settings["COUPON_HTTP_LISTEN"],
        f"http://{worker.settings['COUPON_WORKER_HTTP_LISTEN']}",
        f"https://{worker.settings['COUPON_WORKER_HTTP_LISTEN']}",
    ]
    admin = Admin(
        stack, COUPON_ADMIN_METRICS=",".join(addresses), COUPON_TLS_CA=str(authority.path)
    )
    key = stack.ctl("key", "create", "--name", "test", "--role", "monitor")
    told = known(admin, key)("GET", "/now").json()["processes"]
    assert [one["kind"] for one in told] == ["gateway", "worker", None]
    assert "TLS" in told[2]["error"] or "SSL" in told[2]["error"]
    admin.end()


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"COUPON_TLS_KEY": ""}, "allowed are both or none"),
        ({"COUPON_TLS_CERT": "/nowhere"}, "No such file"),
        ({"COUPON_TLS_MIN": "1.1"}, 'COUPON_TLS_MIN is "1.1": allowed are 1.2 and 1.3'),
        ({"COUPON_TLS_CLIENT_CA": "/nowhere"}, "No such file"),
    ],
)
def test_settings_that_stop_the_start(stack, authority, settings, why):
    authority.certificate()
    result = subprocess.run(
        [str(stack.build_dir / "coupon-gateway"), "-n"],
        env={
            "COUPON_TLS_CERT": str(authority.folder / "server.pem"),
            "COUPON_TLS_KEY": str(authority.folder / "server.key"),
            **settings,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 1 and why in result.stderr, result.stderr


def test_a_key_that_others_may_read(stack, authority, tmp_path):
    authority.certificate()
    key = tmp_path / "key.pem"
    key.write_bytes((authority.folder / "server.key").read_bytes())
    key.chmod(0o644)
    result = subprocess.run(
        [str(stack.build_dir / "coupon-gateway"), "-n"],
        env={"COUPON_TLS_CERT": str(authority.folder / "server.pem"), "COUPON_TLS_KEY": str(key)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 1 and "chmod 600" in result.stderr


def test_handshakes_that_never_end(tls_gateway, authority):
    """An address has a part of them; they are closed, and others connect meanwhile."""
    gateway = tls_gateway(
        "gateway-tls", COUPON_CONNECTIONS_NETWORKS="127.0.0.1", COUPON_IDLE_TIMEOUT_MS=60000
    )
    host, port = gateway.settings["COUPON_LISTEN"].split(":")
    begun = time.monotonic()
    with contextlib.ExitStack() as connections:
        stuck = [
            connections.enter_context(
                socket.create_connection((host, int(port)), 60, source_address=("127.0.0.2", 0))
            )
            for _ in range(300)
        ]
        for one in stuck:
            with contextlib.suppress(ConnectionError):
                one.sendall(b"\x16\x03\x01")
        wait_until(
            lambda: metric(gateway, authority, "tls_handshakes_refused_total") == 44
            and metric(gateway, authority, "tls_handshakes") >= 256
        )
        with secured(gateway, authority.context()) as connection:
            assert ping(connection) == 0
        wait_until(lambda: metric(gateway, authority, "tls_handshakes_failed_total") >= 256)
        assert time.monotonic() - begun > HANDSHAKE_S - 1
