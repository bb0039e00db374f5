"""`coupon-rush --open-loop`: users who come on schedule, give up, press again with their key, and
what is told and checked of them."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from stack import wait_until

OVER = pytest.mark.parametrize("over", [(), ("--http",)], ids=["lines", "http"])
SMALL = ("--rate", 100, "--duration", "3s")
CLOSE_WAIT = "08"  # in /proc/net/tcp: the client has closed, and the program has not noticed


def open_loop(stack, coupon, *options, gateway=None, passed=True):
    if gateway:
        names = ("COUPON_LISTEN", "COUPON_HTTP_LISTEN")
        listen, http_listen = (gateway.settings[name] for name in names)
        options += ("--listen", listen, "--http-listen", http_listen)
    result = stack.rush_run("--coupon", coupon, "--open-loop", "--json", *options, timeout=300)
    assert result.returncode == (0 if passed else 1), result.stdout + result.stderr
    told = json.loads(result.stdout)
    assert told["passed"] == passed
    return told


def consistent(told):
    """Each user ends once, and each attempt is counted once, in the sum and in its second."""
    loop = told["open_loop"]
    unanswered = sum(
        loop[name] for name in ("gave_up", "gave_up_connecting", "refused", "lost", "no_room")
    )
    assert sum(told["answers"].values()) == told["users"]
    assert sum(loop["answered_at"]) == told["answered"] == told["latency_us"]["n"]
    assert loop["attempts"] == told["answered"] + unanswered
    assert loop["started"] == told["users"] - told["answers"].get("not_started", 0)
    sums = {name: sum(one[name] for one in loop["seconds"]) for name in loop["seconds"][0]}
    assert sums == {
        "offered": told["users"],
        "attempts": loop["attempts"],
        "good": loop["good"],
        "refused": told["answered"] - loop["good"],
        "unanswered": unanswered,
    }


def answers(told):
    """The answers to users who were started. On a busy machine the generator is late for some."""
    return {kind: n for kind, n in told["answers"].items() if kind != "not_started"}


def rows_of(pg, coupon):
    query = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    return pg.execute(query, (coupon,)).fetchone()[0]


@OVER
def test_all_in_time(stack, make_coupon, pg, over):
    coupon = make_coupon(1000)
    told = open_loop(stack, coupon, *SMALL, *over)
    loop = told["open_loop"]
    users = loop["started"]
    assert 200 < told["users"] < 400 and answers(told) == {"accepted": users}
    consistent(told)
    assert loop["http"] == bool(over) and loop["duration_s"] == 3
    assert loop["good"] == loop["attempts"] == users
    assert loop["goodput_least"] <= loop["goodput_per_second"] <= loop["goodput_most"]
    assert loop["after"]["calm"] and loop["after"]["ping_us"] < 2_000_000
    assert (loop["after"]["accepted"], loop["after"]["unsettled"]) == (0, 0)
    assert told["verify"]["rows"] == told["verify"]["accepted"] == users == rows_of(pg, coupon)
    # A seed repeats the users and their times, and the users' keys give the same receives.
    again = open_loop(stack, coupon, *SMALL, *over)
    assert again["users"] == told["users"]
    assert answers(again) == {"accepted": again["open_loop"]["started"]}
    assert users <= rows_of(pg, coupon) <= told["users"]
    seeded = open_loop(stack, make_coupon(1000), *SMALL, *over, "--user-seed", 1)
    assert [one["offered"] for one in seeded["open_loop"]["seconds"]] != [
        one["offered"] for one in loop["seconds"]
    ]


@OVER
def test_sold_out(stack, make_coupon, over):
    told = open_loop(stack, make_coupon(50), *SMALL, *over)
    users = told["open_loop"]["started"]
    assert answers(told) == {"accepted": 50, "out_of_stock": users - 50}
    assert told["open_loop"]["good"] == users
    assert (told["verify"]["issued"], told["verify"]["rows"]) == (50, 50)
    consistent(told)


def left_behind(gateway, over):
    """Connections whose clients have gone, while the gateway is frozen."""
    name = "COUPON_HTTP_LISTEN" if over else "COUPON_LISTEN"
    port = int(gateway.settings[name].rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == CLOSE_WAIT for row in rows)


@OVER
def test_a_gateway_that_is_frozen(stack, make_coupon, gateway_make, pg, over):
    """Users give up, press again, and are answered after it: with their key once each."""
    coupon, gateway = make_coupon(10_000), gateway_make(stack)
    options = ("--rate", 100, "--duration", "8s", "--give-up", "1s", *over)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(open_loop, stack, coupon, *options, gateway=gateway)
        wait_until(lambda: rows_of(pg, coupon) > 50)
        gateway.signal(signal.SIGSTOP)
        wait_until(lambda: left_behind(gateway, over) > 100)
        gateway.signal(signal.SIGCONT)
        told = ended.result()
    consistent(told)
    loop, verify = told["open_loop"], told["verify"]
    # Under TLS they have no connection before the gateway has done its part of the handshake.
    assert loop["gave_up"] + loop["gave_up_connecting"] > 100
    assert sum(loop["answered_at"][1:]) > 0
    assert told["latency_us"]["max"] > 1_000_000
    assert min(one["good"] for one in loop["seconds"][1:7]) < 50, "the time without answers"
    assert set(answers(told)) <= {"accepted", "unknown_no_answer", "not_connected"}
    assert verify["accepted"] == told["answers"]["accepted"] == verify["rows"]
    assert rows_of(pg, coupon) == verify["rows"] + verify["behind_unknown"] <= told["users"]
    assert loop["after"]["calm"]


@OVER
def test_a_gateway_that_has_ended(stack, make_coupon, gateway_make, pg, over):
    """A user whose connection is refused has sent nothing, and nothing of it is in doubt."""
    coupon, gateway = make_coupon(10_000), gateway_make(stack)
    with ThreadPoolExecutor(1) as pool:
        options = (*SMALL, "--retries", 1, "--pause", "fixed", *over)
        ended = pool.submit(open_loop, stack, coupon, *options, gateway=gateway)
        wait_until(lambda: rows_of(pg, coupon) > 50)
        gateway.terminate()
        told = ended.result()
    consistent(told)
    ends, loop = answers(told), told["open_loop"]
    assert ends["not_connected"] > 20 and loop["refused"] >= 2 * ends["not_connected"] - 10
    assert set(ends) <= {"accepted", "unavailable", "not_connected", "unknown_connection_lost"}
    assert told["unknown"] < ends["not_connected"]
    assert not loop["after"]["calm"] and loop["after"]["ping_us"] is None


@pytest.mark.plain
def test_connections_that_are_refused(stack, make_coupon, gateway_make):
    """The answer comes before the request was read, and without its id."""
    coupon, gateway = make_coupon(10), gateway_make(stack, COUPON_CONNECTIONS_MAX=16)
    with ExitStack() as clients:
        for _ in range(16):
            client = clients.enter_context(gateway.client())
            assert client.call("ping")["code"] == 0
        told = open_loop(stack, coupon, *SMALL, gateway=gateway)
    consistent(told)
    assert answers(told) == {"busy": told["open_loop"]["started"]}
    assert told["open_loop"]["good"] == 0 and told["verify"]["rows"] == 0


@pytest.mark.plain
def test_more_users_than_connections(stack, make_coupon, gateway_make):
    """A frozen gateway, and 10 connections at once: the others cannot be started in time."""
    coupon, gateway = make_coupon(1000), gateway_make(stack)
    with ThreadPoolExecutor(1) as pool:
        options = (*SMALL, "--connections", 10, "--give-up", "1s", "--retries", 0)
        gateway.signal(signal.SIGSTOP)
        ended = pool.submit(open_loop, stack, coupon, *options, gateway=gateway)
        wait_until(lambda: left_behind(gateway, ()) >= 20)
        gateway.signal(signal.SIGCONT)
        told = ended.result()
    consistent(told)
    assert told["open_loop"]["connections_most"] == 10
    assert told["answers"]["not_started"] > 20
    assert told["open_loop"]["gave_up"] + told["open_loop"]["gave_up_connecting"] >= 20


def test_over_many_addresses(stack, make_coupon):
    told = open_loop(stack, make_coupon(1000), *SMALL, "--sources", 5)
    assert answers(told) == {"accepted": told["open_loop"]["started"]}


def test_text(stack, make_coupon):
    result = stack.rush_run("--coupon", make_coupon(1000), "--open-loop", *SMALL)
    assert result.returncode == 0, result.stdout + result.stderr
    for part in (
        "users in 3 s, 100 a second, each over a connection of its own, who give up after 2 s",
        "\n  5 s after the end      calm: ping ",
        ", accepted in a second 0, without an outcome 0\n",
        "\nPASS: ",
    ):
        assert part in result.stdout, result.stdout


@pytest.mark.parametrize(
    "options, error",
    [
        (("--users", 5), "--users is given: it has no effect with --open-loop"),
        (("--pipeline", 5), "--pipeline is given: it has no effect with --open-loop"),
        (("--duration", "0s"), '--duration is "0s": allowed are 1s to 3600s'),
        (("--rate", 10**6, "--duration", "60s"), "60000000 users come, and allowed are 50000000"),
        (("--pause", "long"), '--pause is "long": allowed are none, fixed and exponential'),
        (("--rate", 200_000, "--duration", "5s"), "local ports are needed"),
        (("--sources", 2, "--listen", "[::1]:9"), "for a gateway at an address of 127.0.0.0/8"),
        (("--http", "--http-listen", "off"), 'COUPON_HTTP_LISTEN is "off": allowed is host:port'),
    ],
)
def test_wrong_options(stack, options, error):
    given = {"--rate": 10, "--duration": "1s"}
    given = [str(word) for name in given if name not in options for word in (name, given[name])]
    result = stack.rush_run("--coupon", 1, "--open-loop", *given, *options)
    assert result.returncode in (1, 2) and error in result.stderr, result.stderr


def test_options_of_the_open_loop_alone(stack):
    result = stack.rush_run("--coupon", 1, "--users", 1, "--retries", 1)
    assert result.returncode == 2 and "--retries is given: it needs --open-loop" in result.stderr
