"""What a command has answered is true for the next request, at each gateway: an API key, a set of
codes, terms, a budget."""

import signal
import time
import uuid

import pytest
import requests

from codes import Codes, column
from relay import Relay, port_of
from stack import Client, wait_until

OK, OUT_OF_STOCK, ENDED, NOT_STARTED, PAUSED = 0, 2, 3, 5, 6
CODE_INVALID, UNAVAILABLE, UNAUTHORIZED = 7, 21, 41
TIMES = 4  # a gateway that only looks by itself is late in most of them
LATER, SOON = "2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"


@pytest.fixture
def guarded(stack, gateway_make):
    """Two gateways that need keys."""
    return [gateway_make(stack, COUPON_AUTH="required") for _ in range(2)]


def key_make(stack, *options):
    return stack.ctl("key", "create", "--name", "known", "--role", "issue,monitor", *options)


def id_of(text):
    return text.split("_")[1]


def presented(gateway, text):
    """The answer over HTTP, and over lines, where the request follows without waiting."""
    reply = requests.get(
        gateway.http("/v1/ping"), headers={"Authorization": f"Bearer {text}"}, timeout=60
    )
    with gateway.client() as client:
        auth, ping = client.pipeline([{"op": "auth", "token": text}, {"op": "stats"}])
    return reply.json()["code"], auth["code"], ping["code"]


GOOD, BAD = (OK, OK, OK), (UNAUTHORIZED, UNAUTHORIZED, UNAUTHORIZED)


def test_a_key(stack, guarded):
    """Made, rotated and revoked."""
    for _ in range(TIMES):
        text = key_make(stack)
        assert [presented(gateway, text) for gateway in guarded] == [GOOD, GOOD]
        other = stack.ctl("key", "rotate", id_of(text), "--overlap", "0s")
        assert [presented(gateway, other) for gateway in guarded] == [GOOD, GOOD]
        assert [presented(gateway, text) for gateway in guarded] == [BAD, BAD]
        stack.ctl("key", "revoke", id_of(text), "--yes")
        assert [presented(gateway, other) for gateway in guarded] == [BAD, BAD]


def test_a_key_that_a_user_of_the_machine_stands_for(stack, gateway_make, tmp_path):
    """The connection is asked for when it first wants something."""
    for _ in range(TIMES):
        text = key_make(stack)
        gateway = gateway_make(
            stack,
            COUPON_AUTH="required",
            COUPON_UNIX_SOCKET=str(tmp_path / "g"),
            COUPON_UNIX_KEYS=f"0:{id_of(text)}",
        )
        with Client(str(tmp_path / "g")) as client:
            assert client.call("stats")["code"] == OK
        gateway.terminate()


def asked_n(cache):
    """How many times Redis was asked for one field."""
    return cache.info("commandstats")["cmdstat_hget"]["calls"]


def test_strangers_share_a_question(stack, guarded, redis_client):
    """An address that has presented too many wrong keys asks nothing any more."""
    gateway = guarded[0]
    wrong = [{"op": "auth", "token": f"cmq_{n:010d}_" + "A" * 43} for n in range(200)]
    with gateway.client() as client:
        before = asked_n(redis_client)
        began = time.monotonic()
        codes = [one["code"] for one in client.pipeline(wrong)]
        took_s = time.monotonic() - began
        after = asked_n(redis_client)
    assert codes == [UNAUTHORIZED] * len(wrong)
    # 10 at once and 10 a second are asked for; others ask, too: gateways look twice a second.
    assert after - before <= 10 + 20 * took_s + 20


def test_a_stranger_delays_nobody_and_gets_an_answer(stack, gateway_make):
    """Redis hangs while it is asked: others on other connections go on."""
    url, text = stack.env_of("gateway")["REDIS_URL"], key_make(stack)
    with Relay(port_of(url)) as gate:
        gateway = gateway_make(stack, COUPON_AUTH="required", REDIS_URL=gate.url(url))
        stranger, known = gateway.client(), gateway.client()
        assert known.call("auth", token=text)["code"] == OK
        gate.mode("hold")
        stranger.send_line('{"op":"auth","token":"cmq_0000000000_' + "A" * 43 + '"}')
        stranger.send_line('{"op":"ping"}')
        for _ in range(20):
            assert known.call("ping")["code"] == OK
        answer = stranger.read_reply()["code"]
        assert answer in (UNAUTHORIZED, UNAVAILABLE), "PostgreSQL was asked instead"
        assert stranger.read_reply()["code"] == OK, "the ping, in its order"
        gate.mode("pass")


def test_a_gateway_that_does_not_tell_is_named(stack, guarded):
    text = key_make(stack)
    assert [presented(gateway, text) for gateway in guarded] == [GOOD, GOOD]
    guarded[1].signal(signal.SIGSTOP)
    began = time.monotonic()
    told = stack.ctl_run("key", "revoke", id_of(text), "--yes")
    assert told.returncode == 12 and time.monotonic() - began >= 4.9
    place = guarded[1].settings["COUPON_LISTEN"]
    assert place in told.stderr and guarded[0].settings["COUPON_LISTEN"] not in told.stderr
    assert presented(guarded[0], text) == BAD
    guarded[1].signal(signal.SIGCONT)
    assert place not in stack.ctl_run("key", "revoke", id_of(text), "--yes").stderr
    assert presented(guarded[1], text) == BAD


def test_a_gateway_that_has_ended_is_not_waited_for(stack, guarded):
    guarded[1].terminate()
    text = key_make(stack)
    told = stack.ctl_run("key", "revoke", id_of(text), "--yes")
    assert told.returncode in (0, 12)  # other tests may have killed some
    assert guarded[1].settings["COUPON_LISTEN"] not in told.stderr


@pytest.fixture
def pair(stack, gateway_make):
    return [gateway_make(stack) for _ in range(2)]


def answers(gateways, coupon, user):
    return [gateway_answer(gateway, coupon, user) for gateway in gateways]


def gateway_answer(gateway, coupon, user):
    with gateway.client() as client:
        return client.issue(coupon, user)["code"]


def test_terms(stack, pair):
    """Gateways cache refusals for 100 ms."""
    for user in range(1, TIMES + 1):
        coupon = stack.ctl("create", "--name", "known", "--total", 1)
        stack.ctl("publish", coupon)
        assert answers(pair, coupon, user) == [OK, OUT_OF_STOCK]
        assert answers(pair, coupon, 100) == [OUT_OF_STOCK, OUT_OF_STOCK]
        stack.ctl("stock", coupon, "--total", 3)
        assert answers(pair, coupon, 200) != [OUT_OF_STOCK, OUT_OF_STOCK]
        stack.ctl("stock", coupon, "--total", 100)
        stack.ctl("pause", coupon)
        assert answers(pair, coupon, 300) == [PAUSED, PAUSED]
        stack.ctl("resume", coupon)
        assert gateway_answer(pair[1], coupon, 400) == OK
        assert gateway_answer(pair[0], coupon, 401) == OK
        stack.coupon_edit(coupon, "--begin", LATER)
        assert answers(pair, coupon, 500) == [NOT_STARTED, NOT_STARTED]
        stack.coupon_edit(coupon, "--begin", SOON)
        assert gateway_answer(pair[1], coupon, 600) == OK
        assert gateway_answer(pair[0], coupon, 601) == OK


def test_a_campaign_that_is_published(stack, pair):
    for _ in range(TIMES):
        coupon = stack.ctl("create", "--name", "known", "--total", 10)
        assert OK not in answers(pair, coupon, 1)
        stack.ctl("publish", coupon)
        assert gateway_answer(pair[0], coupon, 1) == OK
        assert gateway_answer(pair[1], coupon, 2) == OK


def test_codes(stack, pair, tmp_path):
    """A code of a generated set, one of an imported file, and a word are good, and then revoked."""
    codes = Codes(stack, stack.env["COUPON_CODE_KEYS"])
    coupon = stack.coupon_make(1000)

    def claimed(code):
        told = []
        for gateway in pair:
            with gateway.client() as client:
                told.append(client.call("claim", code=code, user=uuid.uuid4().hex)["code"])
        return told

    for n in range(TIMES):
        out = tmp_path / f"codes{n}"
        made = codes.generate(coupon, 3, out)
        first, second, third = column(out)
        assert claimed(first)[0] == OK and claimed(second)[1] != CODE_INVALID
        codes("revoke", third)
        assert claimed(third) == [CODE_INVALID, CODE_INVALID]
        assert made["count"] == 3
        word = f"known{uuid.uuid4().hex}"
        codes("generate", coupon, "--word", word)
        assert claimed(word) == [OK, OK]
        codes("revoke", word)
        assert claimed(word) == [CODE_INVALID, CODE_INVALID]
    (tmp_path / "file.csv").write_text(f"code\n{uuid.uuid4().hex}\n")
    codes("import", coupon, tmp_path / "file.csv")
    assert claimed(column(tmp_path / "file.csv")[0])[0] == OK


def test_a_gateway_that_cannot_read_codes_is_named(stack, gateway_make, pg):
    """It has heard that there is something new, and its PostgreSQL hangs. PostgreSQL had heard of
    it 5 seconds before, and hears no more."""
    codes, words = Codes(stack, stack.env["COUPON_CODE_KEYS"]), [uuid.uuid4().hex for _ in "ab"]
    url, coupon = stack.env_of("gateway")["DATABASE_URL"], stack.coupon_make(10)
    with Relay(port_of(url)) as relay:
        gateway = gateway_make(stack, DATABASE_URL=relay.url(url))
        codes("generate", coupon, "--word", words[0])
        relay.mode("hold")
        place = gateway.settings["COUPON_LISTEN"]
        pg.execute(
            "UPDATE gateway SET seen_at = now() - interval '5 s' WHERE place LIKE %s",
            (f"% {place} %",),
        )
        told = codes.run("generate", coupon, "--word", words[1])
        assert told.returncode == 12 and place in told.stderr
        relay.mode("pass")
        with gateway.client() as client:
            claim = {"op": "claim", "code": words[1]}
            wait_until(lambda: client.call(**claim, user=uuid.uuid4().hex)["code"] == OK)


def test_a_budget(stack, pair):
    """A spent budget pauses its campaigns: with another amount they go on."""
    name = f"known.{uuid.uuid4().hex}"
    stack.ctl("budget", "create", name, "--amount", "1.00", "--currency", "EUR")
    coupon = stack.coupon_make(100, amount_off="1.00", currency="EUR", budget=name)

    def held(gateway, user):
        with gateway.client() as client:
            assert client.issue(coupon, user, ack="issued")["code"] == OK
            return client.call(
                "hold", coupon=coupon, user=str(user), order=f"o{user}", amount=1000, currency="EUR"
            )["code"]

    for n in range(1, 1 + TIMES):
        assert held(pair[n % 2], n) == OK
        wait_until(lambda: answers(pair, coupon, 100) == [PAUSED, PAUSED])
        stack.ctl("budget", "edit", name, "--amount", f"{n + 1}.00")
