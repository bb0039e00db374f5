"""The stack whose processes tests may stop, kill and freeze, and further processes with settings of
their own."""

import subprocess
import time
from pathlib import Path

import psycopg
import pytest
import redis
import requests
from psycopg.conninfo import make_conninfo

from admin_client import Admin, key_maker, known
from audit_ground import Ground, purge
from codes import Codes
from coupon_seen import Seen
from endpoint import Endpoint
from events import Subscriber
from history import DEAD_QUEUE
from lock_agent import STORES, Agent
from process import Worker, gateway_process
from relay import Relay, port_of
from stack import as_the_stack, wait_until
from webhooks import Webhooks

SERVICES = ("redis", "rabbitmq", "postgres")
SLOW_NAMES = Path(__file__).parent / "slow_names.c"
# Small, so that the keeper acts at once.
KEEPER = {
    "COUPON_KEEPER_LEASE_MS": 1000,
    "COUPON_KEEPER_ROUND_MS": 100,
    "COUPON_RESEND_AFTER_MS": 400,
}


def make_whole(stack):
    """After any test: restarts everything and waits until it is ready."""
    names = (*SERVICES, "gateway", "worker-1")
    stack.thaw()
    for name in names:
        if stack.runs(name):
            stack.sigcont(name)
    missing = [name for name in names if not stack.runs(name)]
    if missing:
        stack.start(*missing)
    with as_the_stack():
        wait_until(lambda: gateway_ready(stack))


def gateways_forget(stack):
    """Marks as gone what other tests have killed: nobody starts it again, and a keeper waits for it
    after Redis has lost its data."""
    port = port_of(stack.env["COUPON_LISTEN"])
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        pg.execute(
            "SELECT gateway_gone(id) FROM gateway WHERE gone_at IS NULL AND place NOT LIKE %s",
            (f"%:{port} %",),
        )


def gateway_ready(stack):
    """Why not, is in the output of a test that fails."""
    try:
        reply = requests.get(stack.http("/readyz"), timeout=60)
    except requests.RequestException as error:
        print(f"gateway: {error}")
        return False
    is_whole = reply.json().get("degraded") == []
    if not is_whole:
        print(f"gateway: {reply.status_code} {reply.text}")
    return is_whole


@pytest.fixture(scope="session")
def rough_stack(stack_make):
    rough = stack_make()
    rough.settings = KEEPER
    rough.services()
    rough.start("gateway", "worker-1")
    return rough


@pytest.fixture
def rough(rough_stack):
    """A stack that the test may break; it is repaired before the next one."""
    make_whole(rough_stack)
    gateways_forget(rough_stack)
    yield rough_stack
    make_whole(rough_stack)


@pytest.fixture
def rough_redis(rough):
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as client:
        yield client


@pytest.fixture
def rough_pg(rough):
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def rough_owner(rough):
    """PostgreSQL in the role that owns the tables."""
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def superuser(rough):
    """PostgreSQL with a role that may ALTER SYSTEM, and ALTER ROLE of all."""
    password = rough.kept()["STACK_PG_PASSWORD"]
    url = make_conninfo(rough.env["DATABASE_ADMIN_URL"], user="postgres", password=password)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def rough_coupon(rough, rough_redis, rough_pg):
    """rough_coupon(total=10, loaded=True, **terms): a new coupon, see coupon_seen.py."""

    def make(total=10, loaded=True, **terms):
        one = Seen(rough.coupon_make(total, **terms), rough_redis, rough_pg)
        if loaded:
            wait_until(lambda: rough_redis.exists(one.key))
        return one

    return make


@pytest.fixture
def gateway_make():
    """gateway_make(stack, COUPON_X=…): one more gateway on that stack, on ports of its own."""
    made = []

    def make(stack, **settings):
        made.append(gateway_process(stack, f"gateway-{len(made) + 1}", **settings))
        return made[-1]

    yield make
    for process in made:
        process.end()


@pytest.fixture
def worker_make():
    """worker_make(stack, COUPON_X=…): one more worker. ready=False: without waiting for it."""
    made = []

    def make(stack, ready=True, **settings):
        worker = Worker(stack, f"worker-extra-{len(made) + 1}", {**stack.settings, **settings})
        made.append(worker)
        if ready:
            wait_until(worker.ready)
        return worker

    yield make
    for process in made:
        process.end()


@pytest.fixture
def keeper_behind(rough, worker_make):
    """keeper_behind(NAME): the elected keeper in a worker whose connection to REDIS_URL or
    DATABASE_URL goes through a gate."""
    gates = []

    def make(name):
        rough.stop("worker-1")
        gate = Relay(port_of(rough.env[name]))
        gates.append(gate)
        worker = worker_make(rough, **{name: gate.url(rough.env_of("worker")[name])})
        wait_until(lambda: "keeper_elected" in worker.log())
        return worker, gate

    yield make
    for gate in gates:
        gate.close()


@pytest.fixture
def ground_make(request):
    """ground_make(LIMIT, on=STACK): a coupon for tests of the audit, on the shared stack if no
    other is given; see audit_ground.py."""
    made = []

    def make(limit, on=None):
        if on:
            purge(on, DEAD_QUEUE)  # of tests before, which would be named as well
        made.append(Ground(on or request.getfixturevalue("stack"), limit))
        return made[-1]

    yield make
    for ground in made:
        ground.stack.ctl("close", ground.coupon)
        ground.close()


@pytest.fixture(params=list(STORES))
def store(request):
    """A store of locks."""
    return request.param


@pytest.fixture
def agent(stack, store):
    """Makes owners of locks in the store."""
    agents = []

    def make():
        agents.append(Agent(stack, store))
        return agents[-1]

    yield make
    for one in agents:
        one.end()


@pytest.fixture
def name(request):
    """The name of a lock that no other test has."""
    return f"test:{request.node.name.translate(str.maketrans('[]{}', '--()'))}:{time.time_ns()}"


@pytest.fixture(scope="session")
def codes_stack(stack_make):
    """A stack without programs, whose keys are those of these tests."""
    alone = stack_make()
    alone.services()
    return alone


@pytest.fixture(scope="session")
def keys_file(codes_stack, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    codes_stack.ctl("codes", "key", "--code-keys", path)
    return path


@pytest.fixture
def codes(codes_stack, keys_file):
    return Codes(codes_stack, keys_file)


@pytest.fixture
def codes_coupon(codes_stack):
    return codes_stack.coupon_make(10, publish=False)


@pytest.fixture
def slow_names(tmp_path):
    """Settings for a process whose look-ups of *.slow.test take until the file is gone, and that
    file."""
    library, silent = tmp_path / "slow_names.so", tmp_path / "silent"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SLOW_NAMES, "-ldl"], check=True)
    silent.touch()
    yield {
        "LD_PRELOAD": library,
        "SLOW_NAMES": silent,
        "ASAN_OPTIONS": "verify_asan_link_order=0",
    }, silent
    silent.unlink(missing_ok=True)


@pytest.fixture
def webhooks(codes_stack):
    """On the stack without programs: each test makes its workers."""
    made = Webhooks(codes_stack)
    yield made
    made.close()


@pytest.fixture
def endpoint_make():
    """endpoint_make(answer): see endpoint.py."""
    made = []

    def make(*arguments, **options):
        made.append(Endpoint(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def codes_owner(codes_stack):
    with psycopg.connect(codes_stack.env["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def use(pg_owner):
    """use(ACTION, RECEIVE): what became of it, by the order `a`, as a worker does it."""

    def one(action, receive):
        coupon, user, *_ = receive.split(".")
        return pg_owner.execute(
            "SELECT result FROM use(ARRAY[%s], ARRAY['a'], ARRAY[gen_random_uuid()::text],"
            " '{\"\"}', '{900}', ARRAY[%s::bigint], '{\"\"}', '{\"\"}', '{1}',"
            " ARRAY[%s::bigint], ARRAY[%s], '{NULL}', '{NULL}', '{}')",
            (action, 2000 if action in ("hold", "use") else None, coupon, user),
        ).fetchone()[0]

    return one


@pytest.fixture(scope="module")
def admin(stack):
    one = Admin(stack)
    yield one
    one.end()


@pytest.fixture(scope="module")
def key_make(stack):
    return key_maker(stack)


@pytest.fixture(scope="module")
def api(admin, key_make):
    return known(admin, key_make("admin"))


@pytest.fixture
def subscriber():
    """subscriber(STACK, BINDING): see Subscriber."""
    made = []

    def make(*arguments, **options):
        made.append(Subscriber(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
