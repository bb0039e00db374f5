"""What TLS, API keys and tokens of users cost: a gateway without them and one with them take turns,
on the stores of one stack."""

import base64
import json
import os
import socket
import ssl
import statistics
import subprocess
import time
from pathlib import Path

import requests
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cpu import TICK_US, stat_read
from rig import (
    AMPLE,
    BUILD,
    QUICK,
    RUN,
    at_least,
    at_most,
    ctl,
    failures,
    figures,
    has,
    run,
    rush,
    settled_wait,
    stack,
    users_take,
)

PAIRS = 5 if not QUICK else 1
LINES = ("--connections", 50, "--pipeline", 64)
LINES_USERS = 200_000 if not QUICK else 20_000
CONNECTIONS = 64
DURATION_S = 4 if not QUICK else 1
USES = 20  # of each token
USERS, TOKENS = 60_000, 40_000  # a second: more than any round needs
HANDSHAKES_S = 4 if not QUICK else 1
AT_REST = 2000
WANTED = {"lines, TLS": 0.85, "HTTP, TLS": 0.8, "HTTP, API key": 0.97, "HTTP, tokens": 0.8}
HANDSHAKES_WANTED = 1000  # a second and core
AT_REST_KIB = 40
ISSUER, AUDIENCE = "https://shop.example", "couponmq"
TOKEN_HEAD = {"alg": "ES256", "kid": "bench"}


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def json_b64(value):
    return b64(json.dumps(value).encode())


class Issuer:
    """Signs tokens of users with ES256; with these settings a gateway takes them."""

    def __init__(self):
        path = f"{RUN}/bench-jwks.json"
        self.key = ec.generate_private_key(ec.SECP256R1())
        numbers = self.key.public_key().public_numbers()
        x, y = (b64(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        one = {"kty": "EC", "crv": "P-256", **TOKEN_HEAD, "x": x, "y": y}
        Path(path).write_text(json.dumps({"keys": [one]}), encoding="ascii")
        self.head = json_b64(TOKEN_HEAD)
        self.settings = {
            "COUPON_AUTH": "required",
            "COUPON_TOKEN_KEYS": path,
            "COUPON_TOKEN_ISSUER": ISSUER,
            "COUPON_TOKEN_AUDIENCE": AUDIENCE,
        }

    def token(self, user):
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "exp": int(time.time()) + 3600}
        text = f"{self.head}.{json_b64(claims)}"
        signature = self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = utils.decode_dss_signature(signature)
        return f"{text}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def port_free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Gateway:
    """One with these settings, beside that of the stack."""

    def __init__(self, name, **settings):
        self.tls = settings.get("COUPON_TLS_CERT")
        self.lines, self.http = (f"127.0.0.1:{port_free()}" for _ in range(2))
        listen = {"COUPON_LISTEN": self.lines, "COUPON_HTTP_LISTEN": self.http}
        env = {**os.environ, "COUPON_UNIX_SOCKET": "", **listen, **settings}
        with open(f"{RUN}/bench-gate-{name}.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([f"{BUILD}/coupon-gateway"], env=env, stderr=log)
        self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def url(self, path=""):
        return f"{'https' if self.tls else 'http'}://{self.http}{path}"

    def get(self, path, **options):
        return requests.get(self.url(path), verify=self.tls or True, timeout=60, **options)

    def wait(self):
        for _ in range(500):
            try:
                if self.get("/readyz").status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.02)
        raise SystemExit("bench: a gateway did not become ready")

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"couponmq_{name} "):
                return float(line.split()[1])
        return 0.0

    def cpu_us(self):
        return stat_read(self.process.pid)[0] * TICK_US

    def dial(self, source=""):
        host, port = self.lines.rsplit(":", 1)
        one = socket.create_connection((host, int(port)), source_address=(source, 0))
        context = ssl.create_default_context(cafile=self.tls)
        return context.wrap_socket(one, server_hostname=host)


def certificate_make():
    """The settings of a listener with a certificate of its own making."""
    cert, key = f"{RUN}/bench-cert.pem", f"{RUN}/bench-key.pem"
    run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", 2, "-subj", "/CN=localhost", "-keyout", key, "-out", cert),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
    )
    os.chmod(key, 0o600)
    return {"COUPON_TLS_CERT": cert, "COUPON_TLS_KEY": key}


def coupon_make(name, limit):
    words = ("--total", AMPLE, "--limit", limit, "--valid-days", 30, "--events", "off")
    coupon = ctl("create", "--name", name, *words)
    ctl("publish", coupon)
    return coupon


def in_turns(name, *rounds):
    """The median of each of them, and the ratio of the second to the first."""
    pairs = [[one() for one in rounds] for _ in range(PAIRS)]
    figures[f"gate_{name}"] = [statistics.median(values) for values in zip(*pairs)]


def lines_round(gateway, coupon):
    """Admission: accepted answers a second while the workers are stopped."""
    stack("stop", "worker-1", "worker-2")
    words = ("--listen", gateway.lines, *(("--tls-ca", gateway.tls) if gateway.tls else ()))
    result = rush(coupon, LINES_USERS, *LINES, *words, name="gate", verify=False)
    stack("start", "worker-1", "worker-2")
    settled_wait(coupon)
    return result["answers"]["accepted"] / result["duration_us"] * 1e6


def users_write(times, issuer=None):
    """A file of users, and of their tokens."""
    n = (TOKENS if issuer else USERS) * DURATION_S // times
    first, path = users_take(n), f"{RUN}/bench-users"
    with open(path, "w", encoding="ascii") as file:
        for user in map(str, range(first, first + n)):
            file.write(f"{user} {issuer.token(user)}\n" if issuer else f"{user}\n")
    return path


def http_round(gateway, coupon, times=1, issuer=None, key=None):
    """Requests a second, and the gateway's µs of CPU for one."""
    path = users_write(times, issuer)
    words = ("-t", 1, "-c", CONNECTIONS, "-d", f"{DURATION_S}s", "--timeout", "10s")
    bearer = ("-H", f"Authorization: Bearer {key}") if key else ()
    before_us = gateway.cpu_us()
    out = run(
        "wrk", *words, *bearer, "-s", "bench/gate.lua", gateway.url(), "--", coupon, path, times
    )
    used_us = gateway.cpu_us() - before_us
    result = json.loads(out.splitlines()[-1])
    if result["refused"] or result["broken"]:
        failures.append(f"gate: {result}")
    settled_wait(coupon)
    return result["requests"] / result["duration_us"] * 1e6, used_us / result["requests"]


def key_make(gateway):
    key = ctl("key", "create", "--name", "bench", "--role", "issue")
    for _ in range(200):
        headers = {"Authorization": f"Bearer {key}"}
        if gateway.get("/v1/ping", headers=headers).status_code == 200:
            return key
        time.sleep(0.05)
    raise SystemExit("bench: the gateway does not know its key")


def tls_measure():
    coupon = coupon_make("gate", 1)
    with Gateway("plain") as plain, Gateway("tls", **certificate_make()) as tls:
        in_turns("lines, TLS", lambda: lines_round(plain, coupon), lambda: lines_round(tls, coupon))
        in_turns(
            "HTTP, TLS",
            lambda: http_round(plain, coupon)[0],
            lambda: http_round(tls, coupon)[0],
        )
        handshakes_measure(tls)
    with Gateway("tls", **certificate_make()) as tls:
        at_rest_measure(tls)


def handshakes(gateway):
    """Also those whose client has gone when its own part was sent, as this one does."""
    return sum(gateway.metric(f"tls_handshakes{kind}_total") for kind in ("", "_failed"))


def handshakes_measure(gateway):
    """Full ones, without tickets. The client takes as much of the machine as the gateway does, so
    it is the gateway's CPU time that counts."""
    before, before_us = handshakes(gateway), gateway.cpu_us()
    words = ("-connect", gateway.http, "-new", "-time", HANDSHAKES_S, "-CAfile", gateway.tls)
    run("openssl", "s_time", *words)
    n, used_us = handshakes(gateway) - before, gateway.cpu_us() - before_us
    figures["gate_handshakes_per_core_s"] = n / used_us * 1e6


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        (kib,) = [line.split()[1] for line in file if line.startswith("VmRSS")]
    return int(kib)


def at_rest_measure(gateway):
    before = resident_kib(gateway.process.pid)
    connections = [gateway.dial() for _ in range(AT_REST)]
    for one in connections:
        one.sendall(b'{"op":"ping"}\n')
        one.recv(1000)
    figures["gate_at_rest_kib"] = (resident_kib(gateway.process.pid) - before) / AT_REST
    for one in connections:
        one.close()


def keys_measure():
    coupon, often = coupon_make("keys", 1), coupon_make("tokens", USES)
    issuer = Issuer()
    once, repeated = [], []

    def with_tokens():
        rate, cpu_us = http_round(guarded, often, USES, issuer)
        repeated.append(cpu_us)
        return rate

    with Gateway("plain") as plain, Gateway("guarded", **issuer.settings) as guarded:
        key = key_make(guarded)
        in_turns(
            "HTTP, API key",
            lambda: http_round(plain, coupon)[0],
            lambda: http_round(guarded, coupon, key=key)[0],
        )
        in_turns("HTTP, tokens", lambda: http_round(plain, often, USES)[0], with_tokens)
        once = [http_round(guarded, often, 1, issuer)[1] for _ in range(PAIRS)]
    more_us = statistics.median(once) - statistics.median(repeated)
    figures["gate_first_use_us"] = more_us / (1 - 1 / USES)


MEASURES = (tls_measure, keys_measure)


def rows():
    kinds = [kind for kind in WANTED if has(f"gate_{kind}")]
    if not kinds:
        return
    yield "the gate, in turns: without / with", None, None
    for kind in kinds:
        without, with_it = figures[f"gate_{kind}"]
        ratio = with_it / without
        note = f"{ratio:.2f} x without, {at_least(ratio, WANTED[kind])}"
        yield f"  {kind}", f"{without:,.0f} / {with_it:,.0f} /s", note
    if has("gate_first_use_us"):
        yield "  first use of a token (ES256)", f"{figures['gate_first_use_us']:,.0f} µs", "CPU"
    if has("gate_handshakes_per_core_s"):
        value = figures["gate_handshakes_per_core_s"]
        note = f"a core, {at_least(value, HANDSHAKES_WANTED)}"
        yield "  full handshakes, ECDSA P-256", f"{value:,.0f} /s", note
    if has("gate_at_rest_kib"):
        value = figures["gate_at_rest_kib"]
        yield "  a connection at rest under TLS", f"{value:.0f} KiB", at_most(
            value, AT_REST_KIB, " KiB"
        )
