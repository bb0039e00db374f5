"""Secrets are told to nobody: neither the logs of any program nor the list of processes has one,
whatever was done with it. That there are no core dumps, tests/e2e/test_e2e_start.py shows."""

import contextlib
import re
import threading
import time
from pathlib import Path

import pytest
import requests

from process import gateway_process
from stack import wait_until
from webhooks import Webhooks

WORST = {"COUPON_LOG_LEVEL": "debug", "COUPON_TRACE": "all", "COUPON_LOG_ACCESS": "1"}


class ProcessList:
    """The command lines of all processes that were there meanwhile."""

    def __init__(self):
        self.lines, self.ended = set(), False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    self.lines.add(path.read_bytes().replace(b"\0", b" "))
            time.sleep(0.001)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()


def passwords(stack):
    """The passwords of every login to a store."""
    urls = [
        url
        for program in ("gateway", "worker", "operator")
        for name, url in stack.env_of(program).items()
        if re.match(r"^[a-z]+://[^@/]*:[^@/]*@", str(url))
    ]
    return {url.split("@")[0].rpartition(":")[2] for url in urls}


@pytest.fixture
def asked_for_keys(rough):
    gateway = gateway_process(rough, "gateway-secrets", COUPON_AUTH="required", **WORST)
    yield gateway
    gateway.end()


def auth_code(gateway, key):
    with gateway.client() as client:
        return client.call("auth", token=key)["code"]


def good_and_bad(rough, gateway, key):
    """Everything that a key may meet: over lines, over HTTP, good, misspelt, in the wrong place."""
    coupon = rough.coupon_make(10)
    with gateway.client() as client:
        wait_until(lambda: client.call("auth", token=key)["code"] == 0)
        assert client.issue(coupon, "1", ack="issued")["status"] == "issued"
        assert client.call("auth", token=key[:-1] + "!")["code"] == 41
        assert client.call("ping", token=key)["code"] == 40
        client.send_line('{"op":"auth","token":"%s"' % key)
        assert client.read_reply()["code"] == 40
        client.send_line(key)
        assert client.read_reply()["code"] == 40
    bearer, body = {"Authorization": f"Bearer {key}"}, {"coupon": coupon, "user": "2"}
    url = gateway.http("/v1/issue")
    for headers, status in (
        (bearer, 200),
        ({"Authorization": f"Bearer {key}x"}, 401),
        ({"Authorization": f"Basic {key}"}, 400),
        ({**bearer, "X-Request-Id": "r", "traceparent": "x"}, 409),
    ):
        assert requests.post(url, json=body, headers=headers, timeout=60).status_code == status
    assert requests.get(f"{url}/{key}", headers=bearer, timeout=60).status_code == 404


def test_no_log_and_no_command_line_has_a_secret(rough, asked_for_keys, worker_make, monkeypatch):
    worker_make(rough, **WORST)
    with ProcessList() as processes:
        keys = [rough.ctl("key", "create", "--name", "s", "--role", "issue") for _ in range(2)]
        secrets = {key.split("_", 2)[2] for key in keys}
        for key in keys:
            good_and_bad(rough, asked_for_keys, key)
        for key, code in ((keys[0], 0), (keys[0] + "x", 1)):
            monkeypatch.setenv("COUPON_GATEWAY_KEY", key)
            issue = ("issue", "--coupon", rough.coupon_make(1), "--user", "3")
            listen = ("--listen", asked_for_keys.settings["COUPON_LISTEN"])
            assert rough.ctl_run(*issue, *listen).returncode == code
        with contextlib.closing(Webhooks(rough)) as webhooks:
            secrets.add(webhooks.add("http://127.0.0.1:1024/")[1].removeprefix("whsec_"))
        rough.ctl("key", "rotate", keys[1].split("_")[1])
        rough.ctl("key", "revoke", keys[0].split("_")[1])
        wait_until(lambda: auth_code(asked_for_keys, keys[0]) == 41)
    secrets |= passwords(rough)
    assert len(secrets) >= 5 and all(len(secret) >= 16 for secret in secrets), secrets
    logs = [path for path in rough.run_dir.rglob("*.log*") if path.is_file()]
    assert rough.run_dir / "gateway-secrets.log" in logs and len(logs) >= 4
    texts = {path: path.read_text(errors="replace") for path in logs}
    assert any(keys[0].split("_")[1] in text for text in texts.values()), "what was done is told"
    for path, text in texts.items():
        assert not [secret for secret in secrets if secret in text], path
    assert any(b"key create" in line for line in processes.lines), "what ran was seen"
    for line in processes.lines:
        assert not [secret for secret in secrets if secret.encode() in line], line
