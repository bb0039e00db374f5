"""Fixtures of all tests. `stack` is shared: a test that breaks a process uses `rough`, or makes a
stack with `stack_make`."""

import fcntl
import os
import re
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pika
import psycopg
import pytest
import redis

from selection import SELECTION, is_selected
from skips import reason
from stack import PLAIN, PORT_BASE, ROOT, RUN_DIR, Stack, as_the_stack, port_base_free, wait_until

DESELECTED = []
os.environ["COUPON_CONFIG_DIR"] = ""  # not the settings of this machine


def pytest_addoption(parser):
    parser.addoption(
        "--stack",
        choices=("rough", "shared", "both"),
        help="of a whole run: of tests/e2e those that use `stack`, the others, or both",
    )


def is_on_shared(item):
    """Whether a test of tests/e2e uses the shared stack, and not `rough` or one of its own."""
    return "stack" in item.fixturenames and "rough_stack" not in item.fixturenames


def is_rest(item):
    """Whether not every run has it, unless it is marked `always`."""
    return bool(
        item.get_closest_marker("long")
        or (item.path.parent.name == "e2e" and not is_on_shared(item))
    )


def is_chosen(item, stack):
    """See selection.py. REST=1 chooses only what neither every run has nor the shared stack;
    without --stack, for instance of one file, all is chosen but what is marked `whole`."""
    is_whole = bool(item.get_closest_marker("whole"))
    is_always = bool(item.get_closest_marker("always"))
    is_shared = not is_rest(item)
    if item.get_closest_marker("unchosen"):
        return False
    if os.environ.get("REST"):
        return is_whole or not (is_always or is_shared)
    if os.environ.get("ALL"):
        return True
    file = str(item.path.relative_to(ROOT))
    if is_whole:
        return bool(stack) and file in SELECTION["files"]
    if is_always or not stack or (is_shared and item.path.parent.name not in ("e2e", "sql")):
        return True
    return is_selected(file, item.nodeid, is_shared)


def pytest_collection_modifyitems(config, items):
    stack = config.getoption("--stack")

    def is_elsewhere(item):
        is_of_e2e = item.path.parent.name == "e2e"
        return (
            stack in ("rough", "shared") and is_of_e2e and is_on_shared(item) != (stack == "shared")
        )

    items[:] = [item for item in items if not is_elsewhere(item)]
    config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item, stack)])
    items[:] = [item for item in items if is_chosen(item, stack)]


def pytest_deselected(items):
    DESELECTED.extend(items)


def pytest_sessionfinish(session):
    """For the last line of `make test`."""
    if session.config.option.xmlpath:
        with open(f"{session.config.option.xmlpath}.deselected", "w", encoding="ascii") as file:
            file.write(f"{len(DESELECTED)}\n")


def skip_check(report):
    """A skip that tests/skips.py does not have is a failure."""
    if report.skipped and not hasattr(report, "wasxfail") and not reason(report.nodeid):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} may not be skipped here: {why}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    skip_check((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    skip_check((yield).get_result())


def stat_read():
    """How many processes want to run, and the time that the cores spent: in all, and spare. Builds
    have a lower priority; their time counts as spare."""
    stat = Path("/proc/stat").read_text(encoding="ascii")
    spent = [int(ticks) for ticks in stat.split("\n", 1)[0].split()[1:9]]
    running = re.search(r"^procs_running (\d+)$", stat, re.MULTILINE)[1]
    return int(running), sum(spent), spent[1] + spent[3] + spent[4]


def cores_are_busy():
    """Whether more processes want to run than there are cores, and leave them no spare time."""
    running, spent, spare = stat_read()
    if running - 1 <= len(os.sched_getaffinity(0)):
        return False
    time.sleep(0.2)
    _, spent_then, spare_then = stat_read()
    return (spare_then - spare) < (spent_then - spent) / 8


@contextmanager
def turn():
    """Parts of a whole run take turns by what the machine can do: the one that has the file TURN
    goes on, the others while cores are free. So a slow machine runs fewer tests at once, and each
    takes no longer than on a fast one."""
    with open(os.environ["TURN"], "w", encoding="ascii") as file:
        while cores_are_busy():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.2)
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    if "TURN" in os.environ and item.path.parent.name in ("e2e", "torture"):
        with turn():
            yield
    else:
        yield


def pytest_configure(config):
    """On SIGTERM pytest ends as after Ctrl-C, and stops what it has started."""
    config.addinivalue_line("markers", "plain: its own gateways are without TLS in any case")
    config.addinivalue_line("markers", "long: not every run has it: see selection.py")
    config.addinivalue_line("markers", "whole: with ALL=1, or if its file is selected")
    config.addinivalue_line("markers", "unchosen: a scenario that this run does not have")
    config.addinivalue_line("markers", "always: every run has it, though it is long")
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(autouse=True)
def plain(request):
    """For tests of connections themselves, which count them, or leave their bytes unread."""
    if request.node.get_closest_marker("plain"):
        PLAIN.append(1)
        yield
        PLAIN.pop()
    else:
        yield


@pytest.fixture(scope="session")
def stack():
    """The stack in RUN_DIR. It is started here and not stopped: `make test` stops it at the end."""
    shared = Stack(RUN_DIR, PORT_BASE)
    shared.services()
    shared.start("gateway", "worker-1", "worker-2")
    return shared


@pytest.fixture(scope="session")
def env(stack):
    return stack.env


@pytest.fixture(scope="session")
def stack_make():
    """Makes further stacks, each in its own folder on its own ports, nothing of it started. All end
    with the session."""
    made = []

    def make():
        base = port_base_free(PORT_BASE + 100 * (len(made) + 1))
        made.append(Stack(f"{RUN_DIR}-{len(made) + 1}", base))
        made[-1].remove()
        return made[-1]

    yield make
    for one in made:
        one.down()


@pytest.fixture
def redis_client(env):
    with redis.Redis.from_url(env["REDIS_URL"], decode_responses=True) as client:
        yield client


@pytest.fixture
def pg(env):
    """PostgreSQL in the role that owns the tables."""
    with psycopg.connect(env["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def pg_owner(env):
    with psycopg.connect(env["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture
def amqp(env):
    """A channel of pika."""
    connection = pika.BlockingConnection(pika.URLParameters(env["AMQP_URL"]))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def gateway(stack):
    """A connection to the gateway's socket."""
    with stack.client() as client:
        yield client


@pytest.fixture
def make_coupon(stack):
    """make_coupon(total, limit=1, **terms): the id of a published coupon that can be issued now."""

    def make(total, limit=1, **terms):
        coupon = stack.coupon_make(total, limit, **terms)
        if terms.get("publish", True):
            with as_the_stack(), stack.client() as client:
                wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        return coupon

    return make
