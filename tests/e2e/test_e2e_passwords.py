"""Passwords apart from the URLs of the stores: each program logs in to each store by the files that
its settings name, couponctl and coupon-rush also by files of settings, and none is printed."""

import json
import os
import subprocess
from urllib.parse import unquote

import pytest
import requests

from process import Process
from stack import port_free, url_of, wait_until

STORES = {
    "REDIS_PASSWORD": "REDIS_URL",
    "AMQP_PASSWORD": "AMQP_URL",
    "DATABASE_PASSWORD": "DATABASE_URL",
    "DATABASE_ADMIN_PASSWORD": "DATABASE_ADMIN_URL",
}
WRONG = "wr0ng&secret'%"


def split(url):
    """The URL without its password, and the password."""
    scheme, _, rest = url.partition("://")
    login, _, where = rest.rpartition("@")
    user, _, password = login.partition(":")
    return f"{scheme}://{user}@{where}", unquote(password)


def apart(stack, program, folder):
    """The logins of a program: URLs without passwords, and files with them."""
    settings = {}
    for name, url_name in STORES.items():
        url = stack.env_of(program).get(url_name)
        if not url or program != "operator" and "ADMIN" in name:
            continue
        settings[url_name], password = split(url)
        assert password
        path = folder / f"{program}-{name.lower()}"
        path.write_text(password + "\n")
        path.chmod(0o600)
        settings[f"{name}_FILE"] = path
    assert len(settings) == (8 if program == "operator" else 6)
    return settings


def secrets(settings):
    return {path.read_text().strip() for name, path in settings.items() if name.endswith("_FILE")}


def test_services_have_their_passwords_from_files(rough, gateway_make, worker_make, tmp_path):
    """Ready means that it is connected to all three stores."""
    gateway = gateway_make(rough, **apart(rough, "gateway", tmp_path))
    worker = worker_make(rough, **apart(rough, "worker", tmp_path))
    wait_until(lambda: requests.get(worker.http("/readyz"), timeout=60).status_code == 200)
    rough.stop("worker-1")
    coupon = rough.coupon_make(10)
    with gateway.client() as client:
        assert client.issue(coupon, "1", ack="issued")["status"] == "issued"
    assert worker.metrics()["couponmq_worker_issued_total"] > 0


def test_admin_hands_its_passwords_to_couponctl(rough, tmp_path):
    key = rough.ctl("key", "create", "--name", "console", "--role", "admin")
    coupon = rough.coupon_make(10)
    address = f"127.0.0.1:{port_free()}"
    settings = apart(rough, "operator", tmp_path) | {
        "COUPON_ADMIN_LISTEN": address,
        "COUPON_CONFIG_DIR": tmp_path,
    }
    # A file of settings that leads to other stores: the command does not read it.
    (tmp_path / "couponmq.conf").write_text("REDIS_URL=redis://127.0.0.1:1\n")
    admin = Process(rough, "coupon-admin", "admin-passwords", settings)
    bearer = {"Authorization": f"Bearer {key}"}

    def shown():
        try:
            url = url_of(address, f"/admin/v1/campaigns/{coupon}")
            return requests.get(url, headers=bearer, timeout=60)
        except requests.RequestException:
            return None

    try:
        wait_until(lambda: (reply := shown()) is not None and reply.status_code == 200)
        assert shown().json()["redis"] is not None
        assert not [
            secret
            for secret in secrets(apart(rough, "operator", tmp_path))
            if secret in admin.log()
        ]
    finally:
        admin.end()


class Tools:
    """couponctl and coupon-rush without a setting but the folder, as an operator has them."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder

    def run(self, program, *words, **settings):
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return subprocess.run(
            [self.stack.build_dir / program, *map(str, words)],
            env={**kept, "COUPON_CONFIG_DIR": str(self.folder), **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def ctl(self, *words):
        result = self.run("couponctl", *words)
        assert result.returncode == 0, f"{words}: {result.stderr}{result.stdout}"
        return result.stdout.strip()


@pytest.fixture
def tools(stack, tmp_path):
    settings = apart(stack, "operator", tmp_path)
    env = stack.env_of("operator")
    general = {name: value for name, value in settings.items() if "ADMIN" not in name}
    own = {name: value for name, value in settings.items() if "ADMIN" in name}
    own |= {name: env[name] for name in ("COUPON_LISTEN", "COUPON_CODE_KEYS")}
    for name, lines in ("couponmq.conf", general), ("couponctl.conf", own):
        text = "".join(f"{key}='{value}'\n" for key, value in lines.items())
        (tmp_path / name).write_text("# made by a test\n\n" + text)
    return Tools(stack, tmp_path)


def test_an_operator_types_no_url(tools):
    coupon = tools.ctl("create", "--name", "from files", "--total", "10")
    tools.ctl("publish", coupon)
    shown = json.loads(tools.ctl("show", coupon, "--json"))
    assert shown["redis"] and shown["state"] == "issuing"
    tools.ctl("migrate", "--dry-run")  # as the owner
    tools.ctl("dead", "list")  # RabbitMQ
    tools.ctl("codes", "generate", tools.ctl("create", "--name", "c", "--total", "5"), "--count=5")
    rush = tools.run("coupon-rush", "--coupon", coupon, "--users", "12")
    assert rush.returncode == 0 and "PASS: 10 accepted" in rush.stdout, rush.stderr
    tools.ctl("audit", coupon)


def test_the_key_of_a_client_from_a_file(tools, gateway_make, tmp_path):
    """The key of couponctl and coupon-rush, for a gateway that asks for keys."""
    gateway = gateway_make(tools.stack, COUPON_AUTH="required")
    coupon = tools.ctl("create", "--name", "keys", "--total", "10")
    tools.ctl("publish", coupon)
    listen = {"COUPON_LISTEN": gateway.settings["COUPON_LISTEN"]}
    issue = ("issue", "--coupon", coupon, "--user", "1")
    rush = ("--coupon", coupon, "--users", "5", "--first-user", "2")
    assert "unauthorized" in tools.run("couponctl", *issue, **listen).stderr
    key = tools.ctl("key", "create", "--name", "file", "--role", "issue")
    (tmp_path / "key").write_text(key + "\n")
    with open(tmp_path / "couponctl.conf", "a", encoding="utf-8") as file:
        file.write(f"COUPON_GATEWAY_KEY_FILE={tmp_path / 'key'}\n")
    for result in tools.run("couponctl", *issue, **listen), tools.run(
        "coupon-rush", *rush, **listen
    ):
        assert result.returncode == 0, result.stdout + result.stderr
        assert key.split("_")[2] not in result.stdout + result.stderr


def test_a_password_in_the_url_has_precedence(tools):
    env = tools.stack.env_of("operator")
    words = [f"--{name.lower().replace('_', '-')}={WRONG}" for name in STORES]
    urls = [f"--{name.lower().replace('_', '-')}={env[name]}" for name in STORES.values()]
    for command in (("list",), ("dead", "list"), ("migrate", "--dry-run")):
        assert tools.run("couponctl", *urls, *words, *command).returncode == 0


@pytest.mark.parametrize(
    "name, command",
    [
        ("REDIS_PASSWORD", ("create", "--name", "x", "--total", "1")),
        ("AMQP_PASSWORD", ("dead", "list")),
        ("DATABASE_PASSWORD", ("list",)),
        ("DATABASE_ADMIN_PASSWORD", ("migrate",)),
    ],
)
def test_a_wrong_password_is_not_printed(tools, name, command):
    """Not in what couponctl says, and it is the one that was used: without it, it works."""
    result = tools.run("couponctl", *command, **{name: WRONG}, COUPON_LOG_LEVEL="debug")
    said = result.stdout + result.stderr
    assert result.returncode != 0 and said
    assert not [secret for secret in (WRONG, WRONG.split("&", 1)[0]) if secret in said], said
    tools.ctl(*(command if command != ("migrate",) else ("migrate", "--dry-run")))


@pytest.mark.parametrize("program", ["gateway", "worker"])
def test_wrong_passwords_are_not_logged(stack, program):
    """By a service, which goes on trying."""
    env = stack.env_of(program)
    settings = {name: WRONG for name in STORES if "ADMIN" not in name}
    settings |= {STORES[name]: split(env[STORES[name]])[0] for name in settings}
    settings |= {
        "COUPON_LISTEN": f"127.0.0.1:{port_free()}",
        "COUPON_HTTP_LISTEN": "off",
        "COUPON_UNIX_SOCKET": "",
        "COUPON_LOG_LEVEL": "debug",
    }
    service = Process(stack, f"coupon-{program}", f"{program}-wrong", settings)
    try:
        for refused in ("password authentication failed", "WRONGPASS", "ACCESS_REFUSED"):
            wait_until(lambda: refused in service.log())
        assert WRONG not in service.log() and WRONG.split("&", 1)[0] not in service.log()
    finally:
        service.end()


def test_help_has_no_value(tools):
    for program in ("couponctl", "coupon-rush", "coupon-gateway", "coupon-worker", "coupon-admin"):
        for words in (("--help",), ("--help", "settings"), ("--help", "json")):
            result = tools.run(program, *words, **{name: WRONG for name in STORES})
            assert result.returncode == 0 and WRONG not in result.stdout + result.stderr
