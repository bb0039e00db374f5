"""The lock library, by owners (tests/lock/agent.c) and by couponctl lock, on real stores."""

import os
import signal
import subprocess
import threading
import time
from queue import Empty, Queue
from types import SimpleNamespace

import pytest

from stack import ROOT, wait_until

BUILD = ROOT / os.environ.get("BUILD_DIR", "build")
EXCLUSIVE, FAIR, READ, WRITE = range(4)
SKIP, FAIL, KEEP, SKIP_AFTER, FAIL_AFTER = range(5)
STORES = {"redis": (0, "REDIS_URL"), "postgres": (1, "DATABASE_URL")}
if os.environ.get("WITH_ZOOKEEPER"):
    STORES["zookeeper"] = (2, "ZOOKEEPER_HOSTS")
LEASE = 30000


class Agent:
    """An owner. Commands may be sent before earlier answers are read."""

    def __init__(self, stack, store):
        number, setting = STORES[store]
        self.process = subprocess.Popen(
            [BUILD / "tests/lock_agent", str(number), {**os.environ, **stack.env}[setting]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.answers, self.lost = Queue(), Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            (self.lost if line.startswith("lost ") else self.answers).put(line.strip())

    def send(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def answer(self, timeout=20):
        return self.answers.get(timeout=timeout)

    def has_answered(self, within=0.3):
        try:
            self.answers.put(self.answers.get(timeout=within))
        except Empty:
            return False
        return True

    def do(self, *words):
        self.send(*words)
        return self.answer()

    def take_send(self, name, kind=EXCLUSIVE, wait=KEEP, wait_ms=0, lease=LEASE, watched=1):
        self.send("take", name, kind, wait, wait_ms, lease, watched)

    def take(self, name, **options):
        """(result, what follows it)"""
        self.take_send(name, **options)
        result, _, rest = self.answer().partition(" ")
        return result, rest

    def fence(self, name, **options):
        result, rest = self.take(name, **options)
        assert result == "taken", rest
        return int(rest)

    def release(self, name):
        return self.do("release", name)

    def held(self, name):
        return self.do("held", name)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(timeout=10)


@pytest.fixture(params=list(STORES))
def store(request):
    return request.param


@pytest.fixture
def agent(stack, store):
    agents = []

    def make():
        agents.append(Agent(stack, store))
        return agents[-1]

    yield make
    for one in agents:
        one.end()


@pytest.fixture
def name(request):
    return f"test:{request.node.name.translate(str.maketrans('[]{}', '--()'))}:{time.time_ns()}"


# Exclusion


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, WRITE])
def test_a_counter_is_right(agent, name, tmp_path, kind):
    file = tmp_path / "count"
    file.write_text("0")
    agents = [agent() for _ in range(6)]
    for one in agents:
        one.send("count", file, 20, name, kind)
    fences = [int(one.answer(60)) for one in agents]
    assert file.read_text() == "120" and len(set(fences)) == 6


def test_a_counter_without_a_lock_is_wrong(agent, name, tmp_path):
    """The test above can fail."""
    file = tmp_path / "count"
    file.write_text("0")
    agents = [agent() for _ in range(6)]
    for n, one in enumerate(agents):
        one.send("count", file, 20, f"{name}:{n}", EXCLUSIVE)
    for one in agents:
        one.answer(60)
    assert int(file.read_text()) < 120


@pytest.mark.parametrize("first", [EXCLUSIVE, FAIR, READ, WRITE])
@pytest.mark.parametrize("second", [EXCLUSIVE, FAIR, READ, WRITE])
def test_readers_share_and_writers_are_alone(agent, name, first, second):
    a, b = agent(), agent()
    fence = a.fence(name, kind=first)
    result, rest = b.take(name, kind=second, wait=FAIL)
    if first == second == READ:
        assert result == "taken" and int(rest) > fence
    else:
        assert result == "failed"
    assert a.release(name) == "0"


def test_other_names_do_not_wait(agent, name):
    a, b = agent(), agent()
    assert a.fence(name) and b.fence(name + ":other", wait=FAIL)


def test_the_owner_enters_again(agent, name):
    a, b = agent(), agent()
    fence = a.fence(name)
    assert a.fence(name, wait=FAIL) == fence == a.fence(name, kind=READ, wait=FAIL)
    assert a.do("leave", name) == "0" and a.do("leave", name) == "0"
    assert b.take(name, wait=FAIL)[0] == "failed"
    assert a.release(name) == "0"
    assert b.fence(name, wait=FAIL) > fence


def test_a_reader_does_not_become_a_writer(agent, name):
    a = agent()
    a.fence(name, kind=READ)
    result, why = a.take(name, kind=WRITE, wait=FAIL)
    assert result == "refused" and "cannot become a writer" in why
    assert a.release(name) == "0"


# When it is taken


@pytest.mark.parametrize(
    "wait, wait_ms, result, least, most",
    [
        (SKIP, 0, "skipped", 0, 0.5),
        (FAIL, 0, "failed", 0, 0.5),
        (SKIP_AFTER, 400, "skipped", 0.4, 1.5),
        (FAIL_AFTER, 400, "failed", 0.4, 1.5),
        (FAIL_AFTER, 0, "failed", 0, 0.5),
    ],
)
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, READ, WRITE])
def test_what_happens_when_it_is_taken(agent, name, kind, wait, wait_ms, result, least, most):
    a, b = agent(), agent()
    b.fence(name + ":first")  # connects
    a.fence(name)
    begun = time.monotonic()
    assert b.take(name, kind=kind, wait=wait, wait_ms=wait_ms) == (result, "")
    assert least <= time.monotonic() - begun < most
    a.release(name)
    assert b.fence(name, kind=kind, wait=wait, wait_ms=wait_ms)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAIR, READ, WRITE])
def test_who_waits_gets_it_at_once(agent, name, kind):
    a, b = agent(), agent()
    a.fence(name)
    b.take_send(name, kind=kind)
    assert not b.has_answered()
    begun = time.monotonic()
    a.release(name)
    assert b.answer().startswith("taken ")
    assert time.monotonic() - begun < 0.5, "before the next poll"


def test_fair_is_in_the_order_of_asking(agent, name):
    owners = [agent() for _ in range(5)]
    for n, one in enumerate(owners):
        one.fence(f"{name}:{n}")  # connects
    for one in owners:
        one.take_send(name, kind=FAIR)
        assert one is not owners[0] or one.answer().startswith("taken ")
        assert one is owners[0] or not one.has_answered(0.5)
    for one, after in zip(owners, owners[1:]):
        assert not any(other.has_answered(0.02) for other in owners[1:])
        assert one.release(name) == "0"
        assert after.answer().startswith("taken ")


def test_readers_do_not_starve_a_writer(agent, name):
    a, b, writer = agent(), agent(), agent()
    a.fence(name, kind=READ)
    writer.take_send(name, kind=WRITE)
    assert not writer.has_answered()
    assert b.take(name, kind=READ, wait=FAIL)[0] == "failed"
    a.release(name)
    assert writer.answer().startswith("taken ")


# Leases


def test_a_watched_lease_lasts(agent, name):
    a, b = agent(), agent()
    a.fence(name, lease=600)
    assert b.take(name, wait=FAIL_AFTER, wait_ms=2000)[0] == "failed"
    assert a.held(name) == "1" and a.release(name) == "0" and a.lost.empty()


def test_a_fixed_lease_ends(agent, name):
    a, b = agent(), agent()
    first = a.fence(name, lease=500, watched=0)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=5000) > first
    assert a.lost.get(timeout=5) == f"lost {name}"
    assert a.held(name) == "0" and a.release(name) == "-1"
    assert b.held(name) == "1" and b.release(name) == "0", "another did not release it"


def test_the_owner_is_killed(agent, name):
    a, b = agent(), agent()
    first = a.fence(name, lease=1000)
    a.signal(signal.SIGKILL)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=10000) > first


def test_the_owner_is_stopped_past_its_lease(agent, name):
    """The fence tells them apart: what the lock protects refuses the lower one."""
    a, b = agent(), agent()
    first = a.fence(name, lease=700)
    a.signal(signal.SIGSTOP)
    second = b.fence(name, wait=FAIL_AFTER, wait_ms=10000, lease=LEASE)
    a.signal(signal.SIGCONT)
    assert a.lost.get(timeout=5) == f"lost {name}"
    assert first < second and a.held(name) == "0"
    assert a.release(name) == "-1" and b.held(name) == "1"
    accepted = [0]

    def write(fence):
        if fence < accepted[0]:
            return False
        accepted[0] = fence
        return True

    assert write(second) and not write(first)


def test_who_waits_is_killed(agent, name):
    a, dead, b = agent(), agent(), agent()
    a.fence(name, kind=FAIR)
    dead.take_send(name, kind=FAIR, lease=3000)
    assert not dead.has_answered()
    b.take_send(name, kind=FAIR)
    assert not b.has_answered()
    dead.signal(signal.SIGKILL)
    a.release(name)
    assert b.answer(15).startswith("taken ")


def test_an_owner_that_ends_releases(agent, name):
    a, b = agent(), agent()
    a.fence(name)
    a.process.stdin.close()
    a.process.wait(timeout=10)
    assert b.fence(name, wait=FAIL_AFTER, wait_ms=2000)


# While stores fail


def test_redis_loses_its_data(rough, rough_redis, name):
    a, b = Agent(rough, "redis"), Agent(rough, "redis")
    try:
        first = a.fence(name, lease=3000)
        rough_redis.flushall()
        second = b.fence(name, wait=FAIL)
        assert second > first, "both believe that they have it: only the fence tells"
        assert a.lost.get(timeout=5) == f"lost {name}"
        assert a.release(name) == "-1" and b.held(name) == "1"
    finally:
        a.end()
        b.end()


def test_redis_is_restarted(rough, name):
    a, b = Agent(rough, "redis"), Agent(rough, "redis")
    try:
        a.fence(name, lease=20000)
        b.take_send(name)
        assert not b.has_answered()
        rough.restart("redis")
        wait_until(lambda: a.held(name) == "1")
        assert not b.has_answered(1)
        assert a.release(name) == "0"
        assert b.answer().startswith("taken ")
    finally:
        a.end()
        b.end()


def test_without_the_right_to_listen(stack, redis_client, name):
    rights = ("on", ">deaf", "allkeys", "resetchannels", "+@all")
    redis_client.execute_command("ACL", "SETUSER", "deaf", *rights)
    deaf = {"REDIS_URL": stack.env["REDIS_URL"].replace("://", "://deaf:deaf@")}
    a, b = (Agent(SimpleNamespace(env=deaf), "redis") for _ in range(2))
    try:
        a.fence(name)
        b.take_send(name)
        assert not b.has_answered()
        assert a.release(name) == "0"
        assert b.answer(2).startswith("taken ")
    finally:
        a.end()
        b.end()
        redis_client.execute_command("ACL", "DELUSER", "deaf")


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_cuts_the_connection(agent, name, pg):
    a, b = agent(), agent()
    first = a.fence(name, lease=1000)
    b.take_send(name)
    assert not b.has_answered()
    pg.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND objid = (hashtext(%s)::bigint & 4294967295)::oid",
        (name,),
    )
    assert a.lost.get(timeout=5) == f"lost {name}"
    assert int(b.answer().split()[1]) > first
    assert a.release(name) == "-1"


def test_a_store_that_is_down(store, name):
    class Nowhere:
        env = {
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
            "ZOOKEEPER_HOSTS": "127.0.0.1:1",
        }

    one = Agent(Nowhere, store)
    try:
        assert one.take(name, wait=FAIL)[0] == "unreachable"
        begun = time.monotonic()
        result, why = one.take(name, wait=SKIP_AFTER, wait_ms=600)
        assert result == "unreachable" and why and 0.6 <= time.monotonic() - begun < 5
    finally:
        one.end()


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"name": "x" * 201}, "1 to 200 bytes"),
        ({"name": "}x"}, "must not begin with }"),
        ({"lease": 99}, "100 to 86400000 ms"),
        ({"lease": 86400001}, "100 to 86400000 ms"),
    ],
)
def test_what_is_refused(agent, bad, words):
    options = {"name": "x", **bad}
    result, why = agent().take(options.pop("name"), **options)
    assert result == "refused" and words in why


# couponctl lock


def lock_start(stack, *words):
    return subprocess.Popen(
        [BUILD / "couponctl", "lock", *map(str, words)],
        env={**os.environ, **stack.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lock_run(stack, *words):
    """(exit status, standard output, standard error)"""
    process = lock_start(stack, *words)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_a_command_runs_under_a_lock(stack, store, name):
    show = 'echo "$COUPON_LOCK_NAME $COUPON_LOCK_FENCE" "$@"'
    words = (name, "--backend", store, "--", "sh", "-c", show, "sh", "--help", "--lease")
    status, out, err = lock_run(stack, *words)
    held, fence, *rest = out.split()
    assert (status, held, rest, err) == (0, name, ["--help", "--lease"], "")
    assert int(lock_run(stack, *words)[1].split()[1]) > int(fence) > 0


@pytest.mark.parametrize(
    "command, status",
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("/nowhere/x",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_the_exit_status_is_that_of_the_command(stack, name, command, status):
    assert lock_run(stack, name, "--", *command)[0] == status


@pytest.mark.parametrize(
    "how, status", [("skip", 0), ("fail", 1), ("skip:200", 0), ("fail:200", 1)]
)
def test_a_lock_that_is_taken(stack, agent, store, name, how, status):
    agent().fence(name)
    words = (name, "--backend", store, "--wait", how, "--", "echo", "ran")
    code, out, err = lock_run(stack, *words)
    assert (code, out) == (status, "") and ("is taken" in err) == bool(status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(stack, name, number):
    script = "trap 'echo got; exit 3' TERM INT HUP USR1; echo ready; while :; do sleep 0.05; done"
    process = lock_start(stack, name, "--", "sh", "-c", script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=10)
    assert (out, process.returncode) == ("got\n", 3)
    assert lock_run(stack, name, "--wait", "fail", "--", "true")[0] == 0


def test_the_command_ends_with_its_lock(stack, name, redis_client):
    process = lock_start(stack, name, "--lease", 300, "--", "sh", "-c", "echo in; exec sleep 20")
    assert process.stdout.readline() == "in\n"
    redis_client.delete(f"couponmq:lock:{{{name}}}")
    _, err = process.communicate(timeout=10)
    assert process.returncode == 75 and f'the lock "{name}" is lost' in err


def test_the_command_ends_with_couponctl(stack, name):
    process = lock_start(stack, name, "--", "sh", "-c", "echo $$; exec sleep 20")
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=10)
    wait_until(lambda: not os.path.exists(f"/proc/{child}"))


@pytest.mark.parametrize(
    "words, told",
    [
        ((), "lock needs NAME"),
        (("a",), "lock needs -- and a command"),
        (("a", "--"), "lock needs -- and a command"),
        (("a", "--kind", "x", "--", "true"), "exclusive, fair, read and write"),
        (("a", "--wait", "x", "--", "true"), "skip, fail, keep, skip:MS and fail:MS"),
        (("a", "--wait", "skip:x", "--", "true"), "0 to 86400000 ms"),
        (("a", "--lease", "99", "--", "true"), "100 to 86400000"),
        (("a", "--backend", "x", "--", "true"), "redis, postgres and zookeeper"),
        (("a", "b", "--", "true"), "only one argument"),
    ],
)
def test_wrong_command_lines(stack, words, told):
    status, out, err = lock_run(stack, *words)
    assert (status, out) == (2, "") and told in err


def test_a_store_out_of_reach_is_no_conflict(stack, name):
    words = (name, "--redis-url", "redis://127.0.0.1:1", "--wait", "fail", "--", "echo", "ran")
    status, out, err = lock_run(stack, *words)
    assert (status, out) == (69, "") and "Redis: " in err
