"""PgBouncer between the programs and PostgreSQL: each has a session of PostgreSQL for itself."""

import os
import shutil
import subprocess
from urllib.parse import urlsplit

import psycopg
import pytest

from stack import port_free, wait_until
from standby import Standby

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin")
REFUSED = "pool_mode of the pooler is not session"
pytestmark = pytest.mark.skipif(not PGBOUNCER, reason="pgbouncer is not installed")


@pytest.fixture(name="pooled")
def pooled_fixture(rough, request):
    """pooled(PROGRAM): its settings, through PgBouncer in the mode of the parameter."""
    folder, port = rough.run_dir / "pgbouncer", port_free()
    folder.mkdir(exist_ok=True)
    urls = {name: rough.env_of(name)["DATABASE_URL"] for name in ("gateway", "worker", "operator")}
    server = urlsplit(urls["worker"])
    users = {urlsplit(url).username: urlsplit(url).password for url in urls.values()}
    (folder / "users").write_text("".join(f'"{u}" "{p}"\n' for u, p in users.items()))
    (folder / "ini").write_text(
        f"[databases]\ncouponmq = host={server.hostname} port={server.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = scram-sha-256\nauth_file = {folder}/users\npool_mode = {request.param}\n"
    )
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    for path in (folder, folder / "users", folder / "ini"):
        path.chmod(0o755)
    with open(rough.run_dir / "pgbouncer.log", "ab") as log:
        child = subprocess.Popen(
            [*(as_user if os.getuid() == 0 else []), PGBOUNCER, str(folder / "ini")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip

    def settings(program):
        url = urlsplit(urls[program])
        through = url._replace(netloc=f"{url.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()
        return {"DATABASE_URL": through}

    def answers():
        try:
            with psycopg.connect(settings("operator")["DATABASE_URL"]):
                return True
        except psycopg.OperationalError:
            return False

    wait_until(answers)
    yield settings
    child.terminate()
    child.wait(60)


def couponctl(stack, pooled, *arguments):
    return subprocess.run(
        [str(stack.build_dir / "couponctl"), *arguments],
        env={**os.environ, **stack.env_of("operator"), **pooled("operator")},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_a_session_for_each(rough, rough_redis, rough_coupon, pooled, worker_make, gateway_make):
    rough.stop("worker-1")
    worker = worker_make(rough, **pooled("worker"))
    gateway = gateway_make(rough, **pooled("gateway"))
    coupon = rough_coupon().coupon

    def issued(user):
        with gateway.client() as client:
            return client.issue(coupon, user, ack="issued", key="k")["status"] == "issued"

    wait_until(lambda: issued(1))
    shown = couponctl(rough, pooled, "show", coupon)
    assert shown.returncode == 0, shown
    # The pooler drops both sessions with that of PostgreSQL.
    rough.restart("postgres")
    wait_until(lambda: issued(2))
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    log = worker.log()
    assert log.count("event=database_connected") > 1 and "settle_refused" not in log, log


@pytest.fixture(name="standby")
def standby_fixture(rough):
    one = Standby(rough)
    one.start()
    one.synchronous()
    yield one
    one.synchronous("")
    one.remove()


@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_a_commit_is_judged(rough, rough_coupon, standby, pooled, worker_make, gateway_make):
    """The checks around it, which are prepared in the session, pass the pooler as well."""
    synchronous = {"COUPON_DATABASE_SYNCHRONOUS": "yes"}
    rough.stop("worker-1")
    worker = worker_make(rough, **pooled("worker"), **synchronous)
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000, **pooled("gateway"), **synchronous)
    coupon = rough_coupon().coupon

    def status(user):
        with gateway.client() as client:
            return client.issue(coupon, user, ack="issued", key="k")["status"]

    wait_until(lambda: status(1) == "issued")
    standby.cleared()
    assert status(1) == "unknown", "the look-up finds the row"
    assert status(2) == "unknown"
    wait_until(lambda: "synchronous_standby_names is empty" in worker.log())
    standby.synchronous()
    wait_until(lambda: status(2) == "issued")
    assert status(1) == "issued"


@pytest.mark.parametrize("pooled", ["transaction"], indirect=True)
def test_a_session_that_changes_is_refused(rough, pooled, worker_make, gateway_make):
    rough.stop("worker-1")
    worker = worker_make(rough, ready=False, **pooled("worker"))
    through = pooled("gateway")["DATABASE_URL"]
    gateway = gateway_make(rough, ready=False, DATABASE_URL=through)
    reader = gateway_make(rough, ready=False, DATABASE_READ_URL=through)
    assert REFUSED in couponctl(rough, pooled, "list").stderr
    wait_until(lambda: REFUSED in gateway.trouble("postgresql"))
    wait_until(lambda: REFUSED in reader.trouble("reads"))
    wait_until(lambda: REFUSED in worker.log())
    assert "event=database_connected" not in worker.log()
