"""Tools of others against a gateway under TLS: testssl.sh finds nothing wrong with it, and while
slowhttptest attacks it, an honest client is refused nothing. `make test-outside` installs them;
without them the tests are skipped."""

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess

import pytest
import requests

from certificates import Authority
from process import gateway_process
from stack import wait_until

TOOL_S = 900
CONNECTIONS, ATTACK_S = 1000, 20
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
