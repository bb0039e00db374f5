"""couponctl lock, on real stores."""

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from lock_agent import BUILD
from relay import Relay, port_of
from stack import wait_until


def lock_start(stack, *words, signals="--default-signal"):
    """Whatever signals this test run ignores, as under nohup(1), the command does not."""
    return subprocess.Popen(
        ["env", signals, BUILD / "couponctl", "lock", *map(str, words)],
        env={**os.environ, **stack.env_of("operator")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lock_run(stack, *words):
    """(exit status, standard output, standard error)"""
    process = lock_start(stack, *words)
    out, err = process.communicate(timeout=120)
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


def test_a_caller_that_ignores_the_end_of_its_children(stack, name):
    process = lock_start(stack, name, "--", "sh", "-c", "exit 7", signals="--ignore-signal=CHLD")
    assert process.wait(timeout=120) == 7


def test_the_store_is_gone_at_the_end(stack, name, tmp_path):
    """The lease lasts: nobody else had the lock."""
    script = f"touch {tmp_path}/begun; while ! test -e {tmp_path}/go; do sleep 0.1; done; exit 3"
    with Relay(port_of(stack.env["REDIS_URL"])) as gate:
        away = SimpleNamespace(
            env_of=lambda program: {
                **stack.env_of(program),
                "REDIS_URL": gate.url(stack.env_of(program)["REDIS_URL"]),
            }
        )
        process = lock_start(away, name, "--", "sh", "-c", script)
        wait_until((tmp_path / "begun").exists)
        gate.hold()
        (tmp_path / "go").touch()
        err = process.communicate(timeout=120)[1]
    assert process.returncode == 3
    assert "is free at the end of its lease: Redis: " in err


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
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("got\n", 3)
    assert lock_run(stack, name, "--wait", "fail", "--", "true")[0] == 0


def has_socket(process):
    folder = f"/proc/{process.pid}/fd"
    return any(os.readlink(f"{folder}/{fd}").startswith("socket:") for fd in os.listdir(folder))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_one_that_waits(stack, agent, store, name, number):
    agent().fence(name)
    process = lock_start(stack, name, "--backend", store, "--", "echo", "ran")
    wait_until(lambda: has_socket(process))
    process.send_signal(number)
    assert process.communicate(timeout=120)[0] == "" and process.returncode == -number


def test_the_command_ends_with_its_lock(stack, name, redis_client):
    process = lock_start(stack, name, "--lease", 300, "--", "sh", "-c", "echo in; exec sleep 20")
    assert process.stdout.readline() == "in\n"
    redis_client.delete(f"couponmq:lock:{{{name}}}")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75 and f'the lock "{name}" is lost' in err


def test_the_command_ends_with_couponctl(stack, name):
    process = lock_start(stack, name, "--", "sh", "-c", "echo $$; exec sleep 20")
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=120)
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


# couponmq's own commands


@pytest.fixture
def hold(stack):
    """Holds a lock in PostgreSQL by couponctl lock, until the returned process is ended."""
    made = []

    def start(name):
        words = (name, "--backend", "postgres", "--", "sh", "-c", "echo in; exec sleep 60")
        made.append(lock_start(stack, *words))
        assert made[-1].stdout.readline() == "in\n"
        return made[-1]

    yield start
    for one in made:
        one.terminate()
        one.communicate(timeout=120)


@pytest.mark.parametrize(
    "name, command", [("recover", "recover --all"), ("queue-move", "queue move")]
)
def test_a_lock_keeps_a_command_out(stack, hold, name, command):
    holder = hold(name)
    told = stack.ctl_run(*command.split())
    assert told.returncode == 10
    assert f"another couponctl {command.split(' --')[0]} is running" in told.stderr
    holder.terminate()
    holder.wait(timeout=120)
    stack.ctl(*command.split())


def test_a_lock_keeps_migrate_waiting(stack, hold, pg):
    holder = hold("migrate")
    url = {"DATABASE_ADMIN_URL": stack.env["DATABASE_ADMIN_URL"]}
    migrate = subprocess.Popen(
        [BUILD / "couponctl", "migrate"],
        env={**os.environ, **stack.env_of("operator"), **url},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(
        lambda: pg.execute(
            "SELECT true FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND objid = (hashtext('migrate')::bigint & 4294967295)::oid"
        ).fetchone()
    )
    assert migrate.poll() is None
    holder.terminate()
    out, _ = migrate.communicate(timeout=120)
    assert migrate.returncode == 0 and "the database is at version" in out
