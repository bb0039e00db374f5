"""TLS on the listeners: certificates that change, clients that verify and that do not, handshakes
that never end, and other clients meanwhile."""

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import time

import pytest
import requests

from certificates import CA_USAGE
from process import Gateway, gateway_process, no_descriptors
from stack import TlsSocket, wait_until

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


def test_operators_of_a_worker_have_certificates(stack, worker_make, authority):
    """Others learn whether it lives and is ready."""
    authority.certificate("server")
    authority.certificate("operator")
    worker = worker_make(
        stack,
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
