"""Programs that systemd starts: what they tell it, and the sockets that they get from it. A test
decides by what was told, and in which order."""

import ctypes
import os
import signal
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest
import requests

from relay import Relay, port_of
from service_manager import Manager, Service
from stack import Client, port_free, process_gone, process_stat, process_tree, wait_until

pytestmark = [pytest.mark.always, pytest.mark.plain]

PROGRAMS = ("coupon-gateway", "coupon-worker", "coupon-admin")
# Without these it is not ready.
STORES = {
    "coupon-gateway": ("REDIS_URL",),
    "coupon-worker": ("AMQP_URL",),
    "coupon-admin": ("REDIS_URL", "DATABASE_URL"),
}
SOME = 4  # of what comes again and again
RESTARTS = 5
CALLERS = 4  # of each kind
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
LIBC.ptrace.restype = ctypes.c_long
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAIT_ALL = 0x40000000  # __WALL: for a thread, too


def listening(address=("127.0.0.1", 0), family=socket.AF_INET):
    """As systemd has it: a socket that listens, and that waits."""
    one = socket.socket(family)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET and not address[1]:
        address = (address[0], port_free())
    one.bind(address)
    one.listen(4096)
    return one


def address_of(one):
    name = one.getsockname()
    return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


@pytest.fixture
def managers(tmp_path):
    """managers(): one more systemd."""
    made = []

    def make(**options):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Manager(folder, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def service(stack):
    """service(PROGRAM, manager, COUPON_X=…): on addresses of its own, if it is given no sockets."""
    made = []

    def make(program, manager=None, sockets=(), **settings):
        for name in ("LISTEN", "HTTP_LISTEN", "ADMIN_LISTEN", "WORKER_HTTP_LISTEN"):
            settings.setdefault(f"COUPON_{name}", f"127.0.0.1:{port_free()}")
        made.append(Service(stack, program, manager, sockets, **settings))
        return made[-1]

    yield make
    for one in made:
        one.end()


def http_listen(one):
    name = {"coupon-gateway": "HTTP", "coupon-worker": "WORKER_HTTP", "coupon-admin": "ADMIN"}
    return f"http://{one.settings[f'COUPON_{name[one.program]}_LISTEN']}"


def readyz(one):
    return requests.get(f"{http_listen(one)}/readyz", timeout=60).status_code


def children(one):
    """The processes of COUPON_PROCESSES."""
    return [pid for pid in process_tree(one.child.pid)[1:] if not process_gone(pid)]


# What it tells


@pytest.mark.parametrize(
    "program, processes",
    [("coupon-gateway", 1), ("coupon-gateway", 3), ("coupon-worker", 1), ("coupon-admin", 1)],
)
def test_ready_is_told_when_it_is(stack, service, managers, program, processes):
    manager = managers()
    env = stack.env_of(program.removeprefix("coupon-"))
    ports = {name: port_free() for name in STORES[program]}
    urls = {name: env[name].replace(f":{port_of(env[name])}", f":{ports[name]}") for name in ports}
    one = service(program, manager, COUPON_PROCESSES=processes, **urls)
    wait_until(lambda: manager.last("STATUS"))
    status = manager.last("STATUS")
    assert status.startswith("not ready; " if processes == 1 else "0 of 3 processes are ready")
    wait_until(lambda: not one.child.poll() and readyz(one) == 503)
    assert manager.count("READY") == 0
    with ExitStack() as relays:
        for name, port in ports.items():
            relays.enter_context(Relay(port_of(env[name]), port=port))
        manager.wait("READY")
        assert readyz(one) == 200
        names = [told.name for told in manager.told]
        before = [told for told in manager.told[: names.index("READY")] if told.name == "STATUS"]
        status = before[-1].value
        assert status.startswith("ready" if processes == 1 else "3 of 3 processes are ready")
        assert one.terminate() == 0
    assert manager.count("READY") == 1
    assert {told.pid for told in manager.told} == {one.child.pid}


@pytest.mark.parametrize(
    "program, processes, most_s",
    [
        ("coupon-gateway", 1, 7 + 11 + 13),
        ("coupon-gateway", 2, 7 + 11 + 13),
        ("coupon-worker", 1, 150),
        ("coupon-admin", 1, 20 + 15),
    ],
)
def test_the_end_is_told(service, managers, program, processes, most_s):
    """And how long it may take, by the settings."""
    manager = managers()
    one = service(
        program,
        manager,
        COUPON_PROCESSES=processes,
        COUPON_DRAIN_S=7,
        COUPON_STOP_WAIT_S=11,
        COUPON_ADMIN_TIMEOUT_MS=20000,
    )
    manager.wait("READY")
    assert manager.count("STOPPING") == 0
    one.signal(signal.SIGTERM)
    manager.wait("STOPPING")
    assert int(manager.last("EXTEND_TIMEOUT_USEC")) == most_s * 1000000
    one.signal(signal.SIGTERM)  # it drains no longer
    assert one.child.wait(120) == 0
    assert manager.count("STOPPING") == 1


@pytest.mark.parametrize(
    "program, processes",
    [("coupon-gateway", 1), ("coupon-gateway", 2), ("coupon-worker", 1), ("coupon-admin", 1)],
)
def test_a_reload_is_told(service, managers, program, processes):
    """Its end after its beginning, each time."""
    manager = managers()
    one = service(program, manager, COUPON_PROCESSES=processes)
    manager.wait("READY")
    for times in range(1, SOME):
        one.signal(signal.SIGHUP)
        manager.wait("READY", 1 + times)
        names = [told.name for told in manager.told if told.name in ("READY", "RELOADING")]
        assert names == ["READY"] + times * ["RELOADING", "READY"]
    assert one.terminate() == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_systemd_nothing_is_told(service, program):
    one = service(program)
    wait_until(lambda: "event=ready" in one.log())
    assert one.terminate() == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_a_service_starts_tells_nothing(service, managers, program):
    """It is the service that systemd means."""
    manager = managers()
    one = service(program, manager, watchdog_ms=400, STARTED=os.getpid())
    wait_until(lambda: "event=ready" in one.log())
    assert one.terminate() == 0
    manager.close()
    assert manager.told == []


# The watchdog


@pytest.mark.parametrize(
    "program, processes",
    [("coupon-gateway", 1), ("coupon-gateway", 3), ("coupon-worker", 1), ("coupon-admin", 1)],
)
def test_the_watchdog_is_told_while_it_runs(service, managers, program, processes):
    """The other program is the clock."""
    manager, clock = managers(), managers()
    one = service(program, manager, watchdog_ms=800, COUPON_PROCESSES=processes)
    service("coupon-admin", clock, watchdog_ms=800)
    manager.wait("WATCHDOG", SOME)
    one.signal(signal.SIGSTOP)
    wait_until(lambda: process_stat(one.child.pid)[0] == "T")
    clock.wait("WATCHDOG", clock.count("WATCHDOG") + 1)
    told = manager.count("WATCHDOG")
    clock.wait("WATCHDOG", clock.count("WATCHDOG") + SOME)
    assert manager.count("WATCHDOG") == told
    one.signal(signal.SIGCONT)
    manager.wait("WATCHDOG", told + SOME)
    assert one.terminate() == 0


def test_a_process_that_hangs_is_replaced(service, managers):
    """The others go on, and so does the watchdog of all of them."""
    manager = managers()
    one = service("coupon-gateway", manager, watchdog_ms=1600, COUPON_PROCESSES=3)
    manager.wait("READY")
    victim, *others = children(one)
    os.kill(victim, signal.SIGSTOP)
    wait_until(lambda: process_gone(victim))
    assert one.log().count(f"event=process_hangs pid={victim}") == 1
    wait_until(lambda: len(children(one)) == 3)
    assert set(others) < set(children(one))
    wait_until(lambda: manager.last("STATUS") == "3 of 3 processes are ready")
    manager.wait("WATCHDOG", manager.count("WATCHDOG") + SOME)
    assert one.log().count("event=process_hangs") == 1
    assert one.terminate() == 0


def test_without_a_watchdog_no_process_is_replaced(service, managers):
    """It may be frozen by a debugger."""
    manager, clock = managers(), managers()
    one = service("coupon-gateway", manager, COUPON_PROCESSES=2)
    service("coupon-admin", clock, watchdog_ms=800)
    manager.wait("READY")
    before = children(one)
    os.kill(before[0], signal.SIGSTOP)
    clock.wait("WATCHDOG", 2 * SOME)
    assert children(one) == before
    os.kill(before[0], signal.SIGCONT)
    assert one.terminate() == 0


def test_a_systemd_that_hangs_stops_nobody(service, managers):
    """What it could not be told it is told later."""
    manager = managers(reads=False)
    manager.fill()
    one = service("coupon-gateway", manager, watchdog_ms=100)
    wait_until(lambda: "event=ready" in one.log())
    with Client(one.settings["COUPON_LISTEN"]) as client:
        wait_until(lambda: readyz(one) == 200)
        for _ in range(SOME):
            assert client.call("ping")["code"] == 0
        manager.read()
        manager.wait("READY")
        manager.wait("WATCHDOG", SOME)
        assert client.call("ping")["code"] == 0
    assert one.terminate() == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_while_it_stops_it_goes_on_telling(service, managers, processes):
    """What it could not be told at first, and that the program lives."""
    manager, clock = managers(), managers()
    settings = {"COUPON_PROCESSES": processes, "COUPON_DRAIN_S": 600}
    one = service("coupon-gateway", manager, watchdog_ms=800, **settings)
    service("coupon-admin", clock, watchdog_ms=800)
    manager.wait("READY")
    manager.fill()
    one.signal(signal.SIGTERM)
    wait_until(lambda: one.log().count("event=draining") == processes)
    clock.wait("WATCHDOG", clock.count("WATCHDOG") + 1)
    manager.read()
    manager.wait("STOPPING")
    assert int(manager.last("EXTEND_TIMEOUT_USEC")) > 600000000
    manager.wait("WATCHDOG", manager.count("WATCHDOG") + SOME)
    one.signal(signal.SIGTERM)  # it drains no longer
    assert one.child.wait(120) == 0
    assert manager.count("STOPPING") == 1


def trace(request, thread):
    if LIBC.ptrace(request, thread, None, None):
        pytest.skip(os.strerror(ctypes.get_errno()))


@contextmanager
def frozen(thread):
    trace(PTRACE_SEIZE, thread)
    trace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WAIT_ALL)
    try:
        yield
    finally:
        trace(PTRACE_DETACH, thread)


def test_a_thread_that_hangs_is_noticed(service, managers):
    """The worker has two loops, and the one of uses is not the one that tells."""
    manager, clock = managers(), managers()
    one = service("coupon-worker", manager, watchdog_ms=400)
    service("coupon-admin", clock, watchdog_ms=400)
    manager.wait("READY")
    wait_until(lambda: one.log().count("event=ready ") == 2)
    silent = 0
    for name in os.listdir(f"/proc/{one.child.pid}/task"):
        if int(name) == one.child.pid:
            continue
        with frozen(int(name)):
            # What the thread had said of itself before has become old.
            clock.wait("WATCHDOG", clock.count("WATCHDOG") + 2 * SOME)
            told = manager.count("WATCHDOG")
            clock.wait("WATCHDOG", clock.count("WATCHDOG") + SOME)
            silent += manager.count("WATCHDOG") == told
    assert silent == 1
    manager.wait("WATCHDOG", manager.count("WATCHDOG") + SOME)
    assert one.terminate() == 0


# Sockets


def ping(address):
    with Client(address) as client:
        return client.call("ping")["code"] == 0


def healthz(address):
    return requests.get(f"http://{address}/healthz", timeout=60).status_code == 200


def test_who_connects_before_it_runs_is_answered(service, tmp_path):
    sockets = [
        ("http", listening()),
        ("lines", listening()),
        ("lines", listening(str(tmp_path / "socket"), socket.AF_UNIX)),
    ]
    with ExitStack() as clients:
        early = [clients.enter_context(Client(address_of(one))) for _, one in sockets]
        for client in early[1:]:
            client.send_line({"op": "ping"})
        early[0].send_bytes(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        one = service("coupon-gateway", sockets=sockets)
        for client in early[1:]:
            assert client.read_reply()["code"] == 0
        assert early[0].read_line() == "HTTP/1.1 200 OK\r"
    # The settings have other addresses, which are not used.
    for name in ("COUPON_LISTEN", "COUPON_HTTP_LISTEN"):
        assert one.settings[name] not in one.log()
    ready = next(line for line in one.log().splitlines() if "event=ready" in line)
    for _, given in sockets:
        assert address_of(given) in ready
    assert one.terminate() == 0
    # The path stays, for it is systemd's.
    with Client(address_of(sockets[2][1])):
        pass


def test_admin_takes_its_socket(service):
    sockets = [("admin", listening())]
    with Client(address_of(sockets[0][1])) as early:
        early.send_bytes(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        one = service("coupon-admin", sockets=sockets)
        assert early.read_line() == "HTTP/1.1 200 OK\r"
    assert one.terminate() == 0


def test_the_others_are_bound_by_the_program(service):
    one = service("coupon-gateway", sockets=[("lines", listening())])
    wait_until(lambda: "event=ready" in one.log())
    assert ping(address_of(one.sockets[0][1]))
    assert healthz(one.settings["COUPON_HTTP_LISTEN"])
    assert one.terminate() == 0


@pytest.mark.parametrize(
    "program, processes", [("coupon-gateway", 1), ("coupon-gateway", 2), ("coupon-admin", 1)]
)
def test_a_restart_refuses_no_connection(service, tmp_path, program, processes):
    """Each connection of clients that come all the time is accepted and answered, whatever moment
    of a restart it meets."""
    if program == "coupon-admin":
        sockets, calls = [("admin", listening())], [healthz]
    else:
        unix = listening(str(tmp_path / "socket"), socket.AF_UNIX)
        sockets = [("lines", listening()), ("http", listening()), ("lines", unix)]
        calls = [ping, healthz, ping]
    one = service(program, sockets=sockets, COUPON_PROCESSES=processes)
    answered, wrong, ends = [0] * (CALLERS * len(calls)), [], threading.Event()

    def call(number):
        kind = number % len(calls)
        while not ends.is_set():
            try:
                assert calls[kind](address_of(sockets[kind][1]))
                answered[number] += 1
            except (AssertionError, OSError) as error:
                wrong.append(repr(error))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(len(answered))]

    def all_answered(more):
        wanted = [count + more for count in answered]
        wait_until(lambda: wrong or all(map(lambda n, w: n >= w, answered, wanted)))
        assert not wrong, f"of {sum(answered)}: {wrong}"

    for caller in callers:
        caller.start()
    try:
        for _ in range(RESTARTS):
            all_answered(20)
            assert one.terminate() == 0
            one.start()
        all_answered(20)
    finally:
        ends.set()
        for caller in callers:
            caller.join()
    assert not wrong, f"of {sum(answered)}: {wrong}"
    print(f"{sum(answered)} connections, each answered")
    assert one.terminate() == 0


def refusal(one):
    assert one.child.wait(120) == 1
    return one.log().splitlines()[-1]


@pytest.mark.parametrize(
    "program, name, settings, sentence",
    [
        (
            "coupon-gateway",
            "metrics",
            {},
            'as "metrics": this program takes no socket of that name',
        ),
        ("coupon-worker", "http", {}, 'as "http": this program takes no socket of that name'),
        ("coupon-gateway", "http", {"COUPON_HTTP_LISTEN": "off"}, 'COUPON_HTTP_LISTEN is "off"'),
    ],
)
def test_a_socket_that_it_does_not_take(service, program, name, settings, sentence):
    one = service(program, sockets=[(name, listening())], **settings)
    assert sentence in refusal(one)


def test_an_address_of_systemd_is_checked_as_any_other(service):
    """Others can reach it."""
    one = service("coupon-gateway", sockets=[("lines", listening(("0.0.0.0", 0)))])
    assert 'COUPON_LISTEN is "0.0.0.0:' in refusal(one)
    assert "which other machines can reach" in refusal(one)
