"""What a key and a token are for, over lines and HTTP: coupons, users, rates; what ends with them;
and that nobody is told why. tests/e2e/test_e2e_access.py has the table of who may do what."""

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import time
import uuid
from datetime import datetime

import psycopg
import pytest
import requests

from process import AUDIENCE, ISSUER, gateway_process, guarded_process, jwks_write
from stack import Client, wait_until
from wall_clock import WallClock

SECRET = os.urandom(32)
NOT_THIS = (42, 403)
BALANCER = "127.0.0.3"


def user_new():
    return uuid.uuid4().hex


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(secret=SECRET, header=None, **claims):
    """A JWS with HS256; a claim that is None is left out."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time()) + 600,
        "sub": "42",
        **claims,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    head = {"alg": "HS256", "kid": "one", **(header or {})}
    text = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{text}.{b64(hmac.digest(secret, text.encode(), 'sha256'))}"


@pytest.fixture(scope="module")
def wall_clock(tmp_path_factory):
    return WallClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def guarded(stack, tmp_path_factory, wall_clock):
    key = {"kty": "oct", "kid": "one", "k": b64(SECRET)}
    path = jwks_write(tmp_path_factory.mktemp("jwks"), {"keys": [key]})
    gateway = guarded_process(stack, "gateway-guarded", path, **wall_clock.environment)
    yield gateway
    gateway.end()


@pytest.fixture
def clock(wall_clock):
    """The clock of the gateway `guarded`: right again after the test."""
    yield wall_clock
    wall_clock.set(0)


@pytest.fixture(scope="module")
def coupons(stack):
    made = [stack.coupon_make(10**6, limit=100) for _ in range(2)]
    with stack.client() as client:
        for one in made:  # until the keeper has loaded it
            wait_until(lambda one=one: client.issue(one, "somebody")["code"] == 0)
    return made


def key_make(stack, *roles, **options):
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return stack.ctl("key", "create", "--name", "test", "--role", ",".join(roles), *flags)


def known(guarded, key):
    """Until the gateway knows the key."""
    wait_until(lambda: ask(guarded, key, "ping")[1]["code"] == 0)
    return key


def ask(gateway, presented, op, **members):
    """(status over HTTP, reply)."""
    headers = {"Authorization": f"Bearer {presented}"} if presented else {}
    reply = requests.post(gateway.http(f"/v1/{op}"), json=members, headers=headers, timeout=60)
    return reply.status_code, reply.json()


def say(client, op, **members):
    return client.call(op, **members)


def verdict(gateway, presented, op, **members):
    """(code, status) over HTTP, after comparing with lines."""
    status, reply = ask(gateway, presented, op, **members)
    with gateway.client() as client:
        if presented:
            told = client.call("auth", token=presented)
            if told["code"] != 0:
                assert told["code"] == reply["code"], (told, reply)
        code = client.call(op, **members)["code"]
    if (code == 0) != (reply["code"] == 0) and op != "ping":
        raise AssertionError(f"{op}: {code} over lines, {reply} over HTTP")
    return reply["code"], status


def test_scope_of_a_key(stack, guarded, coupons):
    first, second = coupons
    key = known(guarded, key_make(stack, "issue,read", coupons=first))
    user = user_new()
    assert verdict(guarded, key, "issue", coupon=first, user=user)[0] == 0
    assert verdict(guarded, key, "issue", coupon=second, user=user) == NOT_THIS
    everything = known(guarded, key_make(stack, "issue,read"))
    ask(guarded, everything, "issue", coupon=second, user=user, ack="issued")
    ask(guarded, everything, "issue", coupon=first, user=user, ack="issued")
    seen = ask(guarded, key, "coupons", user=user)[1]["coupons"]
    assert {one["coupon"] for one in seen} == {first}
    seen = ask(guarded, everything, "coupons", user=user)[1]["coupons"]
    assert {one["coupon"] for one in seen} == {first, second}


def test_the_first_request_of_a_key_is_answered(stack, guarded, coupons):
    """Whether the gateway knows the key yet, or has to ask the stores: with and without a query."""
    for _ in range(5):
        headers = {"Authorization": f"Bearer {key_make(stack, 'read', 'issue')}"}
        told = requests.get(guarded.http("/v1/coupons?user=1&limit=1"), headers=headers, timeout=60)
        assert told.status_code == 200, told.text
        headers = {"Authorization": f"Bearer {key_make(stack, 'read', 'issue')}"}
        told = requests.post(
            guarded.http("/v1/coupons"), json={"user": "1"}, headers=headers, timeout=60
        )
        assert told.status_code == 200, told.text


def test_tokens_are_for_their_user(guarded, coupons):
    first, second = coupons
    user = user_new()
    mine = token(sub=user)
    assert verdict(guarded, mine, "issue", coupon=first, user=user)[0] == 0
    assert ask(guarded, mine, "issue", coupon=first)[1]["receive"].split(".")[1] == user
    assert verdict(guarded, mine, "status", coupon=first, user=user)[0] == 0
    other = ask(guarded, token(sub=user_new()), "issue", coupon=first)[1]["receive"]
    assert verdict(guarded, mine, "status", receive=other) == NOT_THIS
    scoped = token(sub=user, coupons=[first])
    assert verdict(guarded, scoped, "issue", coupon=second, user=user) == NOT_THIS


def test_a_token_with_a_key_gives_one_receive(guarded, coupons):
    mine = token(sub=user_new(), key="order-1")
    receives = {ask(guarded, mine, "issue", coupon=coupons[0])[1]["receive"] for _ in range(5)}
    assert len(receives) == 1
    assert ask(guarded, mine, "issue", coupon=coupons[0], key="order-1")[1]["code"] == 0
    assert ask(guarded, mine, "issue", coupon=coupons[0], key="order-2")[0] == 400


def test_the_right_of_a_connection_ends_with_its_token(guarded, coupons, clock):
    with guarded.client() as client:
        assert client.call("auth", token=token())["user"] == "42"
        assert client.call("coupon", coupon=coupons[0])["code"] == 0
        clock.set(601)
        assert client.call("coupon", coupon=coupons[0])["code"] == 41
        clock.set(0)
        assert client.call("auth", token=token())["code"] == 0
        assert client.call("coupon", coupon=coupons[0])["code"] == 0
        assert client.call("auth", token=token(aud="x"))["code"] == 41
        assert client.call("coupon", coupon=coupons[0])["code"] == 41


def test_connections_of_a_revoked_key_are_closed(stack, guarded, coupons):
    key = known(guarded, key_make(stack, "issue"))
    with guarded.client() as revoked, guarded.client() as other:
        assert revoked.call("auth", token=key)["key"] == key.split("_")[1]
        assert other.call("auth", token=token())["code"] == 0
        stack.ctl("key", "revoke", key.split("_")[1])
        assert revoked.read_line() is None
        assert other.call("coupon", coupon=coupons[0])["code"] == 0
    wait_until(lambda: ask(guarded, key, "coupon", coupon=coupons[0])[0] == 401)


BEHIND_THE_BACK = """WITH change AS (UPDATE api_key_version SET num = num + 1 RETURNING num)
    UPDATE api_key SET revoked_at = now(), version = change.num FROM change WHERE id = %s"""


@pytest.mark.parametrize("statement", ["SELECT api_key_revoke(%s)", BEHIND_THE_BACK])
def test_a_change_that_redis_was_not_told(stack, guarded, pg, statement):
    key = known(guarded, key_make(stack, "issue"))
    with guarded.client() as client:
        assert client.call("auth", token=key)["code"] == 0
        pg.execute(statement, (key.split("_")[1],))
        assert client.read_line() is None


def test_a_notification_is_faster_than_asking(rough, rough_redis, rough_pg):
    """The gateway looks at every second tick, and at the next one after a notification. At each
    tick it reads the news."""
    rough.stop("worker-1")  # its keeper asks for the same
    with rough_redis.monitor() as monitor:
        commands = (told["command"] for told in monitor.listen())

        def ticks_of(looks):
            ticks = 0
            while looks:
                command = next(commands)
                ticks += command.startswith("HMGET couponmq:gateways ")
                if command == "HGET couponmq:keys version":
                    looks -= 1
                    rough_pg.execute("NOTIFY couponmq_keys")
            return ticks

        counts = []
        while len(counts) < 9 and min(counts, default=99) > 12:
            counts.append(ticks_of(looks=10))
    assert min(counts) <= 12, counts


def test_rotation(stack, guarded, coupons, clock):
    """The old text is good for as long as the overlap; connections that had it go on until then."""
    old = known(guarded, key_make(stack, "issue"))
    with guarded.client() as client:
        assert client.call("auth", token=old)["code"] == 0
        new = stack.ctl("key", "rotate", old.split("_")[1], "--overlap", "1h")

        def codes():
            replies = (ask(guarded, one, "coupon", coupon=coupons[0])[1] for one in (old, new))
            return [*(reply["code"] for reply in replies), client.call("stats")["code"]]

        assert codes() == [0, 0, 42]
        clock.set(3500)
        assert codes() == [0, 0, 42]
        clock.set(3700)
        assert codes() == [41, 0, 41]


def test_rate_of_a_key(stack, guarded, coupons):
    key = known(guarded, key_make(stack, "issue", rate=20))
    request, headers = {"coupon": coupons[0]}, {"Authorization": f"Bearer {key}"}
    with guarded.client() as client:
        client.call("auth", token=key)
        for n in range(100):  # on a slow machine one comes back before the last request
            begun = time.monotonic()
            replies = client.pipeline([{"op": "coupon", **request}] * 200)
            took_s = time.monotonic() - begun
            last = requests.post(guarded.http("/v1/coupon"), json=request, headers=headers)
            codes = [reply["code"] for reply in replies]
            assert set(codes) <= {0, 23} and codes.count(0) <= 40 + 20 * took_s + 1
            assert n > 0 or codes.count(0) >= 30
            waits = [reply["retry_after_ms"] for reply in replies if reply["code"] == 23]
            assert all(1 <= wait <= 50 for wait in waits)
            if last.status_code == 429:
                break
    assert (last.status_code, last.headers["Retry-After"]) == (429, "1")
    assert last.headers["RateLimit-Policy"] == '"key";q=40;w=2'
    assert last.headers["RateLimit"] == '"key";r=0;t=1'


def test_rotation_of_the_keys_of_tokens(stack, coupons, tmp_path):
    """By the file, without a signal. One that cannot be used takes nothing away."""
    sets = [{"kty": "oct", "kid": kid, "k": b64(kid.encode() * 32)} for kid in ("one", "two")]
    mine, next_one = (token(key["kid"].encode() * 32, {"kid": key["kid"]}) for key in sets)
    path = jwks_write(tmp_path, {"keys": sets[:1]})
    gateway = guarded_process(stack, "gateway-rotated", path)
    try:
        with gateway.client() as client:
            assert client.call("auth", token=mine)["code"] == 0
            path.write_text("{")
            wait_until(lambda: "event=token_keys_not_loaded" in gateway.log())
            assert client.call("coupon", coupon=coupons[0])["code"] == code_of(gateway, mine) == 0
            jwks_write(tmp_path, {"keys": sets[1:]})
            wait_until(lambda: code_of(gateway, next_one) == 0)
            assert client.call("coupon", coupon=coupons[0])["code"] == code_of(gateway, mine) == 41
    finally:
        gateway.end()


@pytest.mark.plain  # before TLS there is a header
def test_rate_of_a_user(stack, tmp_path):
    """From wherever he comes; who presents a key has that of the key, and none of its address."""
    path = jwks_write(tmp_path, {"keys": [{"kty": "oct", "kid": "one", "k": b64(SECRET)}]})
    rates = {"COUPON_RATE_USER": "1", "COUPON_RATE_ADDRESS": "25"}  # 20 and 50 at once
    gateway = guarded_process(stack, "gateway-rates", path, COUPON_PROXY_FROM=BALANCER, **rates)

    def allowed(place, text):
        """How many of a hundred requests from there."""
        with Client(gateway.settings["COUPON_LISTEN"], source=BALANCER) as client:
            client.send_bytes(f"PROXY TCP4 192.0.2.{place} 192.0.2.99 40000 7411\r\n".encode())
            assert client.call("auth", token=text)["code"] == 0
            return [reply["code"] for reply in client.pipeline([{"op": "ping"}] * 100)].count(0)

    try:
        key, user = known(gateway, key_make(stack, "issue")), user_new()
        begun = time.monotonic()
        mine = [allowed(place, token(sub=user, jti=str(place))) for place in (1, 2)]
        assert 20 <= mine[0] and sum(mine) <= 20 + time.monotonic() - begun + 1
        assert allowed(1, token(sub=user_new())) >= 20
        assert allowed(1, key) == 100
    finally:
        gateway.end()


def test_wrong_tokens_hold_back_their_address(stack, guarded):
    """No more signatures are verified for it; keys, and tokens that were verified before, go on."""
    key, seen = known(guarded, key_make(stack, "issue")), token(sub=user_new())
    wrong = [token(secret=b"x" * 32, sub=user_new()) for _ in range(50)]

    def codes_of(source, *texts):
        with Client(guarded.settings["COUPON_LISTEN"], source=source) as client:
            replies = client.pipeline([{"op": "auth", "token": text} for text in texts])
            return [reply["code"] for reply in replies]

    assert codes_of("127.9.9.1", seen) == [0]
    for _ in range(100):  # on a slow machine some are paid for before the next one
        *_, fresh, before, by_key = codes_of("127.9.9.1", *wrong, token(sub=user_new()), seen, key)
        assert (before, by_key) == (0, 0)
        if fresh == 23:
            break
    assert fresh == 23
    assert codes_of("127.9.9.2", token(sub=user_new())) == [0]


def test_secrets_are_not_in_the_log(stack, guarded, coupons):
    key = known(guarded, key_make(stack, "issue"))
    secret = key.split("_", 2)[2]
    mine = token(sub=user_new())
    with guarded.client() as client:
        for text in (key, mine, key[:-1] + "!", mine + "x"):
            client.call("auth", token=text)
        client.send_line({"op": "auth", "token": [key]})
        assert secret not in client.read_line()
        client.send_line({"op": "auth", "secret": key, "token": mine})
        assert secret not in client.read_line()
    log = guarded.log()
    for text in (secret, mine.split(".")[2], hashlib.sha256(key.encode()).hexdigest()):
        assert text not in log


def test_users_of_the_machine(stack, coupons, tmp_path):
    key = key_make(stack, "issue")
    path = tmp_path / "socket"
    gateway = gateway_process(
        stack,
        "gateway-unix",
        COUPON_AUTH="required",
        COUPON_UNIX_SOCKET=str(path),
        COUPON_UNIX_KEYS=f"{os.getuid()}:{key.split('_')[1]}",
    )
    try:
        with Client(str(path)) as client, gateway.client() as other:
            wait_until(lambda: client.call("coupon", coupon=coupons[0])["code"] == 0)
            assert client.call("coupons", user="1")["code"] == 42
            assert other.call("coupon", coupon=coupons[0])["code"] == 41
            stack.ctl("key", "revoke", key.split("_")[1])
            assert client.read_line() is None
    finally:
        gateway.end()


def code_of(gateway, key):
    with gateway.client() as client:
        return client.call("auth", token=key)["code"]


def test_keys_while_a_store_is_away(rough, gateway_make):
    """Either store is enough to know a key; without both it is not called wrong."""
    key = key_make(rough, "issue")
    settings = {"COUPON_AUTH": "required", "COUPON_KEYS_STALE_S": "2"}
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    for away in ("redis", "postgres"):
        rough.stop(away)
        gateway = gateway_make(rough, ready=False, **settings)
        wait_until(lambda gateway=gateway: code_of(gateway, key) == 0)
        assert code_of(gateway, wrong) == 41
        rough.start(away)
    rough.stop("redis", "postgres")
    wait_until(lambda: code_of(gateway, key) == 21)
    assert code_of(gateway, wrong) == 21
    fresh = gateway_make(rough, ready=False, **settings)
    assert {code_of(fresh, one) for one in (key, wrong) for _ in range(20)} == {21}
    rough.start("redis", "postgres")
    for one in (gateway, fresh):
        wait_until(lambda one=one: code_of(one, key) == 0)
        assert code_of(one, wrong) == 41


def test_a_store_that_was_put_back_revives_no_key(rough, gateway_make):
    key = key_make(rough, "issue")
    settings = {"COUPON_AUTH": "required"}
    gateway = gateway_make(rough, **settings)
    wait_until(lambda: code_of(gateway, key) == 0)
    rough.ctl("key", "revoke", key.split("_")[1])
    wait_until(lambda: code_of(gateway, key) == 41)
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        pg.execute("ALTER TABLE api_key DISABLE TRIGGER ALL")
        pg.execute(
            "UPDATE api_key SET revoked_at = NULL, version = version - 1 WHERE id = %s",
            (key.split("_")[1],),
        )
        pg.execute("UPDATE api_key_version SET num = num - 1")
        pg.execute("ALTER TABLE api_key ENABLE TRIGGER ALL")
    fresh = gateway_make(rough, **settings)
    for _ in range(20):
        assert {code_of(one, key) for one in (gateway, fresh)} == {41}
        time.sleep(0.1)
    rough.ctl("recover", "--all")
    assert {code_of(one, key) for one in (gateway, fresh)} == {41}


def test_use_of_keys_is_told(stack, gateway_make):
    """Over all processes: how often, how often in vain, and when last."""
    gateway = gateway_make(stack, COUPON_AUTH="required", COUPON_PROCESSES=3)
    key, monitor = key_make(stack, "read"), key_make(stack, "monitor")
    begin = time.time()

    def told():
        headers = {"Authorization": f"Bearer {monitor}"}
        reply = requests.get(gateway.http("/metrics"), headers=headers, timeout=60)
        return {
            name: float(re.search(rf"(?m)^couponmq_key_{name}{{key=.{key[4:14]}.}} (.*)", text)[1])
            for text in [reply.text]
            for name in ("requests_total", "refused_total", "last_used_seconds")
            if key[4:14] in text
        }

    wait_until(lambda: code_of(gateway, key) == 0)
    codes = []
    for n in range(60):
        with gateway.client() as client:
            if client.call("auth", token=key)["code"] == 0:  # another process may not know it yet
                codes += [client.call("coupons", user=str(n))["code"], client.call("stats")["code"]]
    assert len(codes) > 60 and set(codes) == {0, 42}
    wait_until(lambda: code_of(gateway, monitor) == 0)
    wait_until(lambda: told().get("requests_total") == len(codes))
    assert told()["refused_total"] == len(codes) / 2
    assert begin - 1 < told()["last_used_seconds"] <= time.time()

    def last_used():
        """As operators see it."""
        text = json.loads(stack.ctl("key", "show", key[4:14], "--json"))["last_used_at"]
        return text and datetime.fromisoformat(text).timestamp()

    last = told()["last_used_seconds"]
    wait_until(lambda: last_used() == last)
    time.sleep(0.01)  # a use in another millisecond
    assert ask(gateway, key, "coupons", user="1")[1]["code"] == 0
    assert gateway.terminate() == 0
    assert last < last_used() <= time.time(), "told when the gateway ends"


def test_programs_present_a_key(stack, guarded, coupons, tmp_path):
    """couponctl and coupon-rush, by COUPON_GATEWAY_KEY."""
    key = known(guarded, key_make(stack, "issue"))
    file = tmp_path / "key"
    file.write_text(key)
    coupon = stack.coupon_make(1000)
    users = tmp_path / "users.txt"
    users.write_text("".join(f"{user}\n" for user in range(1, 101)))
    issue = ("couponctl", "issue", "--coupon", coupon, "--user", "somebody")
    rush = ("coupon-rush", "--coupon", coupon, "--first-user", 1000)
    where = {name: guarded.settings[name] for name in ("COUPON_LISTEN", "COUPON_HTTP_LISTEN")}

    def run(*words, **settings):
        words = [str(stack.build_dir / words[0]), *map(str, words[1:])]
        env = {**os.environ, **stack.env_of("operator"), **where, **settings}
        return subprocess.run(
            words, env=env, capture_output=True, text=True, check=False, timeout=120
        )

    for words in (
        issue,
        ("couponctl", "distribute", coupon, "--users", users),
        (*rush, "--users", 100, "--connections", 7),
        (*rush, "--open-loop", "--rate", 50, "--duration", "1s"),
        (*rush, "--open-loop", "--rate", 50, "--duration", "1s", "--http"),
    ):
        for wrong in ("", key[:-2] + "xx"):
            done = run(*words, COUPON_GATEWAY_KEY=wrong)
            told = done.stdout + done.stderr
            assert "unauthorized" in told and key[:-2] not in told, words
        done = run(*words, COUPON_GATEWAY_KEY_FILE=str(file))
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    receive = f"{coupon}.1.00000000000000000000000000.0"
    for words in (
        issue,
        ("couponctl", "status", receive),
        ("couponctl", "receive", "quote", receive, "--amount", "1", "--currency", "EUR"),
        ("couponctl", "receive", "rollback", receive, "--order", "1"),
    ):
        # trying again changes nothing, and nothing was changed
        done = run(*words, COUPON_GATEWAY_KEY="cmq_wrong")
        assert done.returncode == 1, (words, done)
        assert "it refuses COUPON_GATEWAY_KEY: unauthorized" in done.stderr
        done = run(*words, COUPON_GATEWAY_KEY="no key")
        assert done.returncode == 1 and "allowed" in done.stderr, (words, done)
        assert "COUPON_GATEWAY_KEY" in done.stderr and "no key" not in done.stderr
        done = run(*words, COUPON_GATEWAY_KEY="")
        assert done.returncode == 1 and "unauthorized" in done.stderr
        assert "COUPON_GATEWAY_KEY" in done.stderr, (words, done)
        done = run(*words, COUPON_GATEWAY_KEY="", COUPON_GATEWAY_KEY_FILE=str(tmp_path))
        assert done.returncode == 1 and "it is a folder" in done.stderr


def test_codes_of_another_coupon_are_none(stack, guarded, coupons, tmp_path):
    """A key of some coupons cannot find codes of the others by trying, and spends none."""
    first, second = coupons
    known_one, code = (f"SCOPE-{uuid.uuid4().hex.upper()}" for _ in range(2))
    path = tmp_path / "codes.csv"
    path.write_text(f"code\n{known_one}\n{code}\n")
    stack.ctl("codes", "import", second, path)
    whole = known(guarded, key_make(stack, "issue"))

    def claimed(presented, text, user):
        return ask(guarded, presented, "claim", code=text, user=user)[1]["code"]

    wait_until(lambda: claimed(whole, known_one, user_new()) == 0)  # the gateway knows the set
    scoped = known(guarded, key_make(stack, "issue", coupons=first))
    user = user_new()
    for presented in (scoped, token(sub=user, coupons=[first])):
        assert claimed(presented, code, user) == 7
    with guarded.client() as client:  # what is presented later does not widen what was asked
        client.call("auth", token=scoped)
        client.send_line({"op": "claim", "code": code, "user": user})
        client.send_line({"op": "auth", "token": "cmq_wrong"})
        assert {client.read_reply()["code"] for _ in range(2)} == {7, 41}
    assert claimed(whole, code, user_new()) == 0
