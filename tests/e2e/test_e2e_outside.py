"""Tools of others against a gateway under TLS: testssl.sh finds nothing wrong with it, while
slowhttptest attacks it, an honest client is refused nothing, and h2load and ab count the replies
that the database has. `make test-outside` installs them; without them the tests are skipped. And
mutated requests against gateway and admin: MUTATED_S=600 is for how long."""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import tarfile
import time

import pytest
import requests

from certificates import Authority
from openapi import body_schema, operations, resolve
from process import gateway_process
from replies import LINE_LIMIT, still_talks
from seed import SEED
from stack import ROOT, dial, wait_until

TOOL_S = 900
CONNECTIONS, ATTACK_S = 1000, 20
MUTATED_S = float(os.environ.get("MUTATED_S") or 3)
# What testssl.sh says of every certificate that no public authority has signed, and of what serves
# no pages.
EXPECTED = {
    "cert_chain_of_trust",
    "cert_revocation",
    "cert_extlifeSpan",
    "DNS_CAArecord",
    "HSTS",
    "overall_grade",
    "security_headers",
}


def needs(tool):
    return pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}: make test-outside")


class Secured:
    def __init__(self, gateway, authority):
        self.gateway, self.authority = gateway, authority

    def address(self, http):
        return self.gateway.settings["COUPON_HTTP_LISTEN" if http else "COUPON_LISTEN"]

    def issue(self, session, coupon, user):
        url = f"https://{self.address(True)}/v1/issue"
        return session.post(url, json={"coupon": coupon, "user": user}, timeout=60)


@pytest.fixture(scope="module")
def secured(stack, tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("outside"), "authority")
    certificate, key = authority.issue("DNS:localhost", "IP:127.0.0.1", days=365)
    key.chmod(0o600)
    gateway = gateway_process(
        stack,
        "gateway-outside",
        ready=None,
        COUPON_TLS_CERT=str(certificate),
        COUPON_TLS_KEY=str(key),
        COUPON_CONNECTIONS_MAX=str(2 * CONNECTIONS),
    )
    wait_until(lambda: "event=gateway_known" in gateway.log())
    yield Secured(gateway, authority)
    gateway.end()


@pytest.mark.long
@needs("testssl")
@pytest.mark.parametrize("http", [False, True], ids=["lines", "http"])
def test_testssl_finds_nothing(secured, http, tmp_path):
    """By what it does to each listener, which also survives that."""
    found = tmp_path / "found.json"
    done = subprocess.run(
        ["testssl", "--quiet", "--color", "0", "--warnings", "batch", "--jsonfile", str(found)]
        + ["--add-ca", str(secured.authority.path), "--nodns", "min", secured.address(http)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TOOL_S,
    )
    findings = json.loads(found.read_text())
    protocols = {one["id"]: one["finding"] for one in findings}
    assert protocols["TLS1_2"].startswith("offered") and protocols["TLS1_3"].startswith("offered")
    assert protocols["TLS1"] == protocols["TLS1_1"] == "not offered", done.stdout
    wrong = [
        one
        for one in findings
        if one["severity"] in ("MEDIUM", "HIGH", "CRITICAL", "FATAL")
        and one["id"].partition(" ")[0] not in EXPECTED
    ]
    assert not wrong, json.dumps(wrong, indent=1)
    context = ssl.create_default_context(cafile=secured.authority.path)
    host, port = secured.address(http).split(":")
    with socket.create_connection((host, int(port)), 60) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as again:
            assert again.version() == "TLSv1.3"


@pytest.mark.long
@needs("slowhttptest")
@pytest.mark.parametrize(
    "attack",
    [
        ["-H", "-t", "POST", "-i", "1"],
        ["-B", "-t", "POST", "-i", "1", "-s", "4096", "-f", "application/json"],
        ["-X", "-w", "1", "-y", "8", "-n", "1", "-z", "1", "-k", "3"],
    ],
    ids=["slow heads", "slow bodies", "slow reading"],
)
def test_slowhttptest_stops_nobody(secured, stack, attack, tmp_path):
    coupon = stack.coupon_make(10**6)
    url = f"https://{secured.address(True)}/v1/issue"
    words = ["slowhttptest", "-c", CONNECTIONS, "-r", 400, "-l", ATTACK_S, "-u", url, "-p", 10]
    codes = []
    with contextlib.ExitStack() as ends:
        log = ends.enter_context((tmp_path / "attack.log").open("w"))
        tool = subprocess.Popen([*map(str, words), *attack], stdout=log, stderr=log)
        ends.callback(tool.wait)
        ends.callback(tool.kill)
        session = ends.enter_context(requests.Session())
        session.verify = str(secured.authority.path)
        session.trust_env = False  # it goes before `verify`
        wait_until(lambda: secured.issue(session, coupon, "first").status_code in (200, 409))
        while tool.poll() is None:
            codes.append(secured.issue(session, coupon, f"u{len(codes)}").status_code)
    assert set(codes) == {200}, f"of {len(codes)}"
    told = re.sub(r"\x1b\[[0-9;]*\w", "", (tmp_path / "attack.log").read_text())
    assert set(re.findall(r"service available:\s+(\w+)", told)) == {"YES"}, told
    assert max(map(int, re.findall(r"connected:\s+(\d+)", told))) > CONNECTIONS / 10, told


@needs("h2load")
@needs("ab")
@pytest.mark.parametrize(
    "words, done",
    [
        (["h2load", "--h1", "-H", "Content-Type: application/json", "-d"], "(50) 2xx, 0 3xx, 150"),
        (["ab", "-k", "-l", "-T", "application/json", "-p"], "Non-2xx responses: +(150)"),
        (["ab", "-l", "-T", "application/json", "-p"], "Non-2xx responses: +(150)"),
    ],
    ids=["h2load", "ab", "ab without keep-alive"],
)
def test_other_clients_count_what_the_database_has(secured, stack, make_coupon, words, done, pg):
    """200 requests of one user for 50 coupons, of ten connections."""
    coupon, body = make_coupon(50, limit=100), stack.run_dir / "body.json"
    body.write_text(json.dumps({"coupon": coupon, "user": "one"}))
    url = f"https://{secured.address(True)}/v1/issue"
    words = [*words, str(body), "-n", "200", "-c", "10", url]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=TOOL_S).stdout
    assert re.search(done, told), told
    assert re.search("200 done|Complete requests: +200", told), told
    rows = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    wait_until(lambda: pg.execute(rows, (coupon,)).fetchone()[0] == 50)
    stack.ctl("audit", coupon)


# Mutated requests

HTTP_LINE = re.compile(rb"(get|head|post|put|patch|delete|options|trace|connect|pri) |host:", re.I)
NUMBERS = [0, -1, 255, 256, 2**31, 2**53, 2**63 - 1, 2**63, 10**30]


def corpus(name):
    with tarfile.open(ROOT / f"tests/fuzz/corpus/{name}.tar") as archive:
        return [archive.extractfile(one).read() for one in archive.getmembers()]


def mutated(rng, inputs):
    """One input after one to four changes."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.randint(1, 4)):
        at, n = rng.randint(0, len(data)), rng.choice((1, 1, 2, 8, 64))
        kind, numbers = rng.randrange(7), list(re.finditer(rb"\d+", data))
        if kind == 0:
            data[at : at + n] = b""
        elif kind == 1:
            data[at:at] = rng.randbytes(n)
        elif kind == 2 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 3:
            data[at:at] = data[at : at + n] * rng.choice((1, 2, 64))
        elif kind == 4:
            other = rng.choice(inputs)
            data[at:] = other[rng.randint(0, len(other)) :]
        elif kind == 5 and numbers:
            one = rng.choice(numbers)
            data[one.start() : one.end()] = b"%d" % rng.choice(NUMBERS)
        else:
            data[at:at] = rng.choice((b'"', b"{", b"[", b"\\", b"\0", b"\r\n", b"\xff", b"%", b":"))
    return bytes(data[:LINE_LIMIT])


def sent(address, data):
    """What comes back until the server, which knows that no more will be sent, has closed."""
    with dial(address) as connection, contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.sendall(data)
        with contextlib.suppress(OSError):  # it is closed already, and there is a reply
            connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as reader:
            return reader.read()
    return b""  # it was closed, or reset, while this was sent


def lines_check(address, inputs):
    """Each line gets one reply, which is an answer, but for those after one that begins as HTTP."""
    data = b"\n".join(inputs) + b"\n"
    lines = [line for line in data.split(b"\n") if line not in (b"", b"\r")]
    owed = len(list(itertools.takewhile(lambda line: not HTTP_LINE.match(line), lines)))
    replies = sent(address, data).decode().splitlines()
    assert all(json.loads(reply)["code"] not in (21, 22) for reply in replies), replies
    assert len(replies) == owed or (owed < len(lines) and len(replies) < owed), data


def http_check(address, inputs):
    for data in inputs:
        reply = sent(address, data)
        # libevent repeats the version of the request, as it has read it
        statuses = re.findall(rb"^HTTP/\S+ (\d+) ", reply, re.M)
        assert reply.startswith(b"HTTP/") or not reply, (data, reply)
        assert b"500" not in statuses, (data, reply)


def http_of(method, path, headers, body=None):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}"
    text = "" if body is None else json.dumps(body)
    length = f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n" if text else ""
    return f"{head}{length}\r\n{text}".encode()


@pytest.mark.parametrize("kind", ["lines", "http", "admin"])
def test_mutated_requests_hurt_nobody(stack, make_coupon, kind):
    """The process lives, its answers are answers, and what it has counted is right."""
    coupon, name = make_coupon(10**6, limit=100), "admin" if kind == "admin" else "gateway"
    stack.start("admin")
    pid, rng, until = stack.pid(name), random.Random(SEED), time.monotonic() + MUTATED_S
    examples = [
        (path, json.loads(json.dumps(example).replace("1001", coupon)))
        for path, method, operation in operations()
        if method == "POST"
        for example in resolve(body_schema(operation))["examples"]
    ]
    if kind == "lines":
        whole = [json.dumps({"op": path[4:], **body}).encode() for path, body in examples]
        inputs, check, listen = corpus("server") + corpus("request"), lines_check, "COUPON_LISTEN"
    elif kind == "http":
        whole = [http_of("POST", path, "", body) for path, body in examples]
        inputs, check, listen = corpus("http"), http_check, "COUPON_HTTP_LISTEN"
    else:
        key = stack.ctl("key", "create", "--name", "mutated", "--role", "admin")
        headers = f"Authorization: Bearer {key}\r\n"
        campaign = f"/admin/v1/campaigns/{coupon}"
        whole = [
            http_of("POST", "/admin/v1/campaigns", headers, {"name": "x", "total": 5, "limit": 1}),
            http_of("PATCH", campaign, headers + 'If-Match: "2"\r\n', {"percent_off": 12.5}),
            *(http_of("GET", path, headers) for path in (campaign, "/admin/v1/history?count=2")),
            http_of("GET", f"{campaign}/users/u", headers),
        ]
        inputs, check, listen = corpus("http"), http_check, "COUPON_ADMIN_LISTEN"
    inputs = [one.replace(b"1001", coupon.encode()) for one in inputs] + whole * 20
    n = 0
    while time.monotonic() < until or n == 0:
        check(stack.env[listen], [mutated(rng, inputs) for _ in range(50)])
        n += 50
    print(f"{n} mutated requests")
    assert stack.pid(name) == pid and stack.runs(name)
    with stack.client() as client:
        assert still_talks(client) and client.issue(coupon, "honest")["code"] == 0
    wait_until(lambda: stack.ctl_run("audit", coupon).returncode == 0)
