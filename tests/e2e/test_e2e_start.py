"""What the programs do with a wrong setting at their start: they change no file that is not
theirs, and print no password."""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess

import pytest

from certificates import Authority
from process import Process, gateway_process
from stack import port_free, wait_until


# With a password that libpq takes for something else. Its messages repeat the part that it does not
# understand.
PASSWORD = "secret-word"
WRONG_URLS = {
    "a space in an unquoted password": f"host=127.0.0.1 password=x {PASSWORD}",
    "an equals sign after the space": f"host=127.0.0.1 password=x {PASSWORD}=1",
    "a percent sign": f"postgresql://user:{PASSWORD}%zz@127.0.0.1/db",
    "an unfinished IPv6 address": f"postgresql://user:{PASSWORD}@[::1/db",
    "an unknown parameter": f"postgresql://user@127.0.0.1/db?{PASSWORD}",
    "a slash": f"postgresql://user:{PASSWORD}/x@127.0.0.1/db",
    "a colon and a slash": f"postgresql://user:12:{PASSWORD}/x@127.0.0.1/db",
    "an at sign": f"postgresql://user:x@{PASSWORD}@127.0.0.1/db",
}


def run(stack, program, *arguments, **settings):
    return subprocess.run(
        [str(stack.build_dir / program), *arguments],
        env={**os.environ, **stack.env, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def core_limit(text):
    """The soft one, of /proc/PID/limits."""
    (line,) = (line for line in text.splitlines() if line.startswith("Max core file size"))
    return line.split()[4]


def test_no_program_dumps_core(stack, gateway_make, worker_make):
    """It would have keys and passwords. The limit that they are started with is higher."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        pids = [gateway_make(stack).child.pid, worker_make(stack).child.pid]
        script = "cat /proc/$PPID/limits"
        ctl = run(stack, "couponctl", "lock", "core-limit", "--", "sh", "-c", script)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    limits = [pathlib.Path(f"/proc/{pid}/limits").read_text() for pid in pids]
    assert [core_limit(text) for text in (*limits, ctl.stdout)] == ["0"] * 3


def start_refused(stack, **settings):
    """A gateway that does not start; returns its last line."""
    gateway = gateway_process(stack, "gateway-refused", ready=None, **settings)
    assert gateway.child.wait(30) == 1
    return gateway.log().splitlines()[-1]


@pytest.mark.parametrize("url", WRONG_URLS.values(), ids=WRONG_URLS)
def test_a_wrong_database_url_is_named_and_not_printed(stack, url):
    for program, arguments in (
        ("coupon-gateway", ("-n",)),
        ("coupon-worker", ("-n",)),
        ("couponctl", ("list",)),
    ):
        result = run(stack, program, *arguments, DATABASE_URL=url)
        output = result.stdout + result.stderr
        assert result.returncode != 0 and "DATABASE_URL" in output, output
        assert PASSWORD not in output


def test_a_wrong_database_admin_url_too(stack):
    url = WRONG_URLS["a percent sign"]
    result = run(stack, "couponctl", "migrate", DATABASE_ADMIN_URL=url)
    assert result.returncode != 0 and "DATABASE_ADMIN_URL" in result.stderr
    assert PASSWORD not in result.stdout + result.stderr


def test_a_wrong_database_read_url_too(stack):
    for url in WRONG_URLS.values():
        result = run(stack, "coupon-gateway", "-n", DATABASE_READ_URL=url)
        assert result.returncode != 0 and "DATABASE_READ_URL" in result.stderr
        assert PASSWORD not in result.stdout + result.stderr
    assert run(stack, "coupon-gateway", "-n", DATABASE_READ_URL="").returncode == 0


def test_http_hosts_that_are_no_names(stack):
    for hosts in ("a,", ",a", "a b", "https://a", "a:80", "x" * 254, "*"):
        result = run(stack, "coupon-gateway", "-n", COUPON_HTTP_HOSTS=hosts)
        assert result.returncode == 1
        assert f'COUPON_HTTP_HOSTS is "{hosts}": allowed are host names' in result.stderr
    assert run(stack, "coupon-gateway", "-n", COUPON_HTTP_HOSTS="a,b-c.example").returncode == 0


def test_settings_of_tokens(stack, tmp_path):
    path = tmp_path / "jwks.json"
    key = '{"kty":"OKP","crv":"Ed25519","kid":"%s","x":"%s"}'
    point = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    path.write_text('{"keys":[%s]}' % (key % ("one", point)))
    good = {
        "COUPON_TOKEN_KEYS": str(path),
        "COUPON_TOKEN_ISSUER": "https://shop.example",
        "COUPON_TOKEN_AUDIENCE": "couponmq",
    }
    assert run(stack, "coupon-gateway", "-n", **good).returncode == 0
    for missing in ("COUPON_TOKEN_ISSUER", "COUPON_TOKEN_AUDIENCE"):
        result = run(stack, "coupon-gateway", "-n", **{**good, missing: ""})
        assert result.returncode == 1 and missing in result.stderr
    path.write_text('{"keys":[%s]}' % (key % ("two", "AAAA")))
    result = run(stack, "coupon-gateway", "-n", **good)
    assert result.returncode == 1
    assert str(path) in result.stderr and "key 1 (kid two): its x must be" in result.stderr


def test_origins_that_are_malformed_end_the_start(stack):
    for origins in ("*", "shop.example", "https://shop.example/", "https://a,"):
        result = run(stack, "coupon-gateway", "-n", COUPON_HTTP_ORIGINS=origins)
        assert result.returncode == 1
        assert f'COUPON_HTTP_ORIGINS is "{origins}": allowed are origins' in result.stderr
    allowed = "https://shop.example,http://localhost:3000"
    assert run(stack, "coupon-gateway", "-n", COUPON_HTTP_ORIGINS=allowed).returncode == 0


# --ready


def ready(process, program, **settings):
    """(exit status, what it printed) of the same program with the settings of the process."""
    told = run(process.stack, program, "--ready", **{**process.settings, **settings})
    assert not told.stderr
    return told.returncode, told.stdout


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "[::]"])
def test_a_gateway_is_asked_whether_it_is_ready(stack, gateway_make, bound):
    settings = {"COUPON_INSECURE": "yes", "COUPON_HTTP_LISTEN": f"{bound}:{port_free()}"}
    gateway = gateway_make(stack, ready=None, COUPON_DRAIN_S=600, **settings)
    wait_until(lambda: "event=ready" in gateway.log())
    wait_until(lambda: ready(gateway, "coupon-gateway")[0] == 0)
    gateway.signal(signal.SIGTERM)
    wait_until(lambda: "event=draining" in gateway.log())
    status, told = ready(gateway, "coupon-gateway")
    assert status == 1 and json.loads(told)["gateway"] == "draining"
    gateway.kill9()
    status, told = ready(gateway, "coupon-gateway")
    assert status == 1 and told.startswith("no answer at http")


def test_a_gateway_behind_a_balancer_is_asked_with_its_header(stack, gateway_make):
    gateway = gateway_make(stack, ready=None, COUPON_PROXY_FROM="127.0.0.0/8")
    wait_until(lambda: ready(gateway, "coupon-gateway")[0] == 0)
    assert ready(gateway, "coupon-gateway", COUPON_PROXY_FROM="")[0] == 1


def test_a_gateway_under_tls_is_asked_under_tls(stack, gateway_make, tmp_path):
    """Whatever host its certificate is for."""
    cert, key = Authority(tmp_path, "ca").issue("IP:192.0.2.1")
    gateway = gateway_make(stack, ready=None, COUPON_TLS_CERT=cert, COUPON_TLS_KEY=key)
    wait_until(lambda: ready(gateway, "coupon-gateway")[0] == 0)
    assert ready(gateway, "coupon-gateway", COUPON_TLS_CERT="", COUPON_TLS_KEY="")[0] == 1


def test_a_worker_is_asked_whether_it_is_ready(stack, worker_make):
    worker = worker_make(stack)
    wait_until(lambda: ready(worker, "coupon-worker")[0] == 0)
    told = run(stack, "coupon-worker", "--ready", COUPON_WORKER_HTTP_LISTEN="off")
    assert told.returncode == 1
    assert 'COUPON_WORKER_HTTP_LISTEN is "off": --ready needs host:port' in told.stderr


@pytest.mark.parametrize("has_stores", [True, False])
def test_a_coupon_admin_is_asked_whether_it_is_ready(stack, has_stores):
    """Without a store it knows no keys."""
    settings = {"COUPON_ADMIN_LISTEN": f"127.0.0.1:{port_free()}"}
    if not has_stores:
        settings["DATABASE_URL"] = "postgresql://127.0.0.1:1/couponmq"
        settings["REDIS_URL"] = "redis://127.0.0.1:1/0"
    admin = Process(stack, "coupon-admin", "admin-ready", settings)
    try:
        wait_until(lambda: ready(admin, "coupon-admin")[1].startswith("{"))
        wait_until(lambda: ready(admin, "coupon-admin")[0] == 0 or not has_stores)
        status, told = ready(admin, "coupon-admin")
        assert (status == 0) is json.loads(told)["ready"] is has_stores
        assert told.count("\n") == 1
        admin.kill9()
        status, told = ready(admin, "coupon-admin")
        assert status == 1 and told.startswith("no answer at http")
    finally:
        admin.end()


def test_an_answer_without_a_body_is_named(stack):
    """As that of another server at this port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        asking = subprocess.Popen(
            [str(stack.build_dir / "coupon-worker"), "--ready"],
            env={**os.environ, **stack.env, "COUPON_WORKER_HTTP_LISTEN": address,
                 "COUPON_TLS_CERT": "", "COUPON_TLS_KEY": ""},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert asking.communicate()[0] == f"http://{address}/readyz answers 204 without a body\n"
        assert asking.returncode == 1


# The path of the Unix socket


def test_a_file_at_the_path_of_the_socket_stays(stack, tmp_path):
    path = tmp_path / "socket"
    path.write_text("precious")
    assert f'COUPON_UNIX_SOCKET is "{path}"' in start_refused(stack, COUPON_UNIX_SOCKET=path)
    assert path.read_text() == "precious"


def test_a_link_at_the_path_of_the_socket_stays(stack, tmp_path):
    path, target = tmp_path / "socket", tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    assert f'COUPON_UNIX_SOCKET is "{path}"' in start_refused(stack, COUPON_UNIX_SOCKET=path)
    assert path.is_symlink() and target.read_text() == "precious"


def test_a_stale_socket_is_replaced(stack, tmp_path, gateway_make):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    gateway_make(stack, COUPON_UNIX_SOCKET=path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_the_socket_of_another_process_stays(stack, tmp_path):
    """Also of one that does not accept, so that its backlog is full."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(str(path))
        other.listen(0)
        waiting.connect(str(path))
        last = start_refused(stack, COUPON_UNIX_SOCKET=path)
        assert "another process listens there" in last
        assert path.is_socket()


def test_a_socket_of_another_kind_stays(stack, tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        assert f'COUPON_UNIX_SOCKET is "{path}"' in start_refused(stack, COUPON_UNIX_SOCKET=path)
        assert path.is_socket()


@pytest.mark.parametrize("processes", [1, 2])
def test_at_its_end_a_gateway_removes_its_own_socket_only(stack, tmp_path, gateway_make, processes):
    path = tmp_path / "socket"
    first = gateway_make(stack, COUPON_UNIX_SOCKET=path, COUPON_PROCESSES=processes)
    assert first.terminate() == 0
    assert not path.exists()
    second = gateway_make(stack, COUPON_UNIX_SOCKET=path, COUPON_PROCESSES=processes)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert second.terminate() == 0
        assert path.is_socket()


def test_listeners_that_others_reach(stack, tmp_path):
    """Without TLS and identities they do not start by accident."""
    cert = {"COUPON_TLS_CERT": str(tmp_path / "cert.pem"), "COUPON_TLS_KEY": str(tmp_path / "key")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-subj", "/CN=x", "-keyout", cert["COUPON_TLS_KEY"]]
        + ["-out", cert["COUPON_TLS_CERT"]],
        check=True,
        capture_output=True,
        timeout=60,
    )
    os.chmod(cert["COUPON_TLS_KEY"], 0o600)
    none = {"COUPON_TLS_CERT": "", "COUPON_TLS_KEY": ""}
    for name in ("COUPON_LISTEN", "COUPON_HTTP_LISTEN"):
        for others in ({}, {**cert}, {"COUPON_AUTH": "required"}):
            listen = {**none, **others, name: "0.0.0.0:7411"}
            result = run(stack, "coupon-gateway", "-n", **listen)
            assert result.returncode == 1
            assert f'{name} is "0.0.0.0:7411", which other machines can reach' in result.stderr
            result = run(stack, "coupon-gateway", "-n", **listen, COUPON_INSECURE="yes")
            assert result.returncode == 0 and "weak_setting" in result.stderr
        safe = {**cert, "COUPON_AUTH": "required", name: "[::]:7411"}
        assert run(stack, "coupon-gateway", "-n", **safe).returncode == 0
    listen = {**none, "COUPON_WORKER_HTTP_LISTEN": "0.0.0.0:7481"}
    assert run(stack, "coupon-worker", "-n", **listen).returncode == 1
    assert run(stack, "coupon-worker", "-n", **{**listen, **cert}).returncode == 1
    clients = {"COUPON_TLS_CLIENT_CA": cert["COUPON_TLS_CERT"]}
    assert run(stack, "coupon-worker", "-n", **{**listen, **cert, **clients}).returncode == 0


def test_limits_of_the_kernel_are_told(stack, gateway_make):
    few = gateway_make(stack, descriptors_max=300, COUPON_CONNECTIONS_MAX=101)
    assert "event=kernel_limit name=RLIMIT_NOFILE value=300 wanted=301" in few.log()
    enough = gateway_make(stack, descriptors_max=301, COUPON_CONNECTIONS_MAX=101)
    assert "RLIMIT_NOFILE" not in enough.log()


def test_a_worker_that_recovers_needs_couponctl(stack, tmp_path):
    for wrong in ("yes", "AUTO"):
        result = run(stack, "coupon-worker", "-n", COUPON_RECOVER=wrong)
        told = f'COUPON_RECOVER is "{wrong}": allowed are manual and auto'
        assert result.returncode == 1 and told in result.stderr
    assert run(stack, "coupon-worker", "-n", COUPON_RECOVER="auto").returncode == 0
    alone = shutil.copy(stack.build_dir / "coupon-worker", tmp_path)
    result = run(stack, alone, "-n", COUPON_RECOVER="auto")
    told = f'COUPON_RECOVER is "auto", but {tmp_path}/couponctl, which it runs, cannot be executed'
    assert result.returncode == 1 and told in result.stderr
    assert run(stack, alone, "-n", COUPON_RECOVER="manual").returncode == 0


@pytest.mark.parametrize("program", ["coupon-gateway", "coupon-worker", "coupon-admin"])
def test_a_misspelled_setting_is_named(stack, program):
    told = run(stack, program, "-n", COUPON_PREFECTH="7", COUPON_LOG_LEVEL_FILE="")
    text = told.stdout + told.stderr
    assert "event=unknown_setting name=COUPON_PREFECTH" in text
    assert text.count("unknown_setting") == 1
