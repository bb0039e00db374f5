"""claim: exchange codes from generating them to the row that has used them, over the socket and
HTTP."""

import collections
import json
import os
import random
import signal
import subprocess
import threading
import urllib.error
import urllib.request

import psycopg
import pytest
import redis

from codes import Claim, Codes, column, user_new
from process import no_descriptors
from relay import Relay, port_of
from sent import script_sent
from stack import wait_until, with_faults

WRONG = {"code": 7, "status": "code_invalid", "message": "no such exchange code"}


@pytest.fixture
def claim(stack, tmp_path):
    return Claim(stack, tmp_path)


def call(client, code, user, **members):
    return client.call("claim", code=code, user=str(user), **members)


def settled(client, receive):
    return wait_until(
        lambda: (r := client.call("status", receive=receive))["status"] == "issued" and r
    )


def rows(stack, sql, *params):
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as db:
        return db.execute(sql, params).fetchall()


def test_a_code_from_generating_to_its_row(stack, claim):
    coupon, user = stack.coupon_make(10), user_new()
    code, other = claim.made(coupon, 2)
    with stack.client() as client:
        reply = call(client, code.lower().replace("-", " "), user, ack="issued")
        assert (reply["code"], reply["status"], reply["coupon"]) == (0, "issued", coupon)
        assert reply["receive"].startswith(f"{coupon}.{user}.") and reply["slot"] == 1
        again = call(client, code, user)
        assert (again["receive"], again["slot"]) == (reply["receive"], 1)
        used = call(client, code, user_new())
        assert (used["code"], used["status"], used["coupon"]) == (8, "code_used", coupon)
        limited = call(client, other, user)
        assert (limited["status"], limited["coupon"]) == ("limit_reached", coupon)
    shown = claim.show(code)
    assert (shown["state"], shown["user"], shown["receive"]) == ("used", user, reply["receive"])
    assert claim.show(other)["state"] == "unused"
    assert claim.stats(coupon)["used"] == 1
    assert stack.ctl_run("audit", coupon).returncode == 0


def test_key_and_ack_are_those_of_issue(stack, claim):
    coupon, user = stack.coupon_make(10, limit=3), user_new()
    first, second = claim.made(coupon, 2)
    with stack.client() as client:
        one = call(client, first, user, key="order 1", ack="queued")
        assert one["status"] == "queued" and "replayed" not in one
        again = {**one, "status": "accepted", "replayed": True}
        for key in ({"key": "order 1"}, {"key": "order 2"}, {}):  # the code names the receive, too
            assert call(client, first, user, **key) == again
        for reply in (
            call(client, second, user, key="order 1"),
            client.issue(coupon, user, key="order 1"),
        ):
            assert (reply["code"], reply["status"]) == (44, "key_reused"), reply
            words = "was used for another request; a new request needs a new key"
            assert reply["message"] == f'key is "order 1": {words}'
        assert call(client, second, user, key="order 3")["slot"] == 2
        settled(client, one["receive"])
    sql = "SELECT key, code IS NOT NULL FROM user_coupon WHERE user_id = %s ORDER BY slot"
    both = [("order 1", True), ("order 3", True)]
    wait_until(lambda: rows(stack, sql, user) == both)


def test_wrong_codes_get_one_answer(stack, claim):
    coupon = stack.coupon_make(10)
    (code,) = claim.made(coupon, 1)
    swapped = code[:-1] + ("2" if code[-1] != "2" else "3")
    wrong = [swapped, "X", "0" * 128, "7KQ2M-9XH4-RTWP", code + "2", code[:-1], "é", "\u0001", " "]
    with stack.client() as client:
        for text in wrong:
            assert call(client, text, user_new()) == WRONG, text
        assert call(client, code, user_new())["code"] == 0


def test_bad_requests(stack):
    with stack.client() as client:
        for members, message in (
            ({"user": "1"}, "code: is missing"),
            ({"code": "x"}, "user: is missing"),
            ({"code": 5, "user": "1"}, "code is 5: must be a string of 1 to 128 bytes"),
            ({"code": "", "user": "1"}, 'code is "": must be a string of 1 to 128 bytes'),
            ({"code": "x", "user": "1", "coupon": "1"}, "coupon: no such member of claim"),
            ({"code": "x", "user": "a b"}, "byte 2"),
            ({"code": "x", "user": "1", "ack": "now"}, "ack is"),
        ):
            reply = client.call("claim", **members)
            assert reply["status"] == "bad_request" and message in reply["message"], reply


def post(stack, body):
    request = urllib.request.Request(
        stack.http("/v1/claim"), json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_http(stack, claim):
    coupon, user = stack.coupon_make(10), user_new()
    (code,) = claim.made(coupon, 1)
    status, reply = post(stack, {"code": code, "user": user, "ack": "issued"})
    assert (status, reply["status"], reply["coupon"]) == (200, "issued", coupon)
    assert post(stack, {"code": code, "user": user})[1]["receive"] == reply["receive"]
    assert post(stack, {"code": code, "user": user_new()})[0] == 409
    assert post(stack, {"code": "nothing", "user": user_new()}) == (422, WRONG)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(stack.http(f"/v1/claim?code={code}&user=1"))


def test_a_refusal_leaves_the_code(stack, claim):
    coupon = stack.coupon_make(1)
    first, second, third = claim.made(coupon, 3)
    with stack.client() as client:
        assert call(client, first, user_new(), ack="issued")["code"] == 0
        assert call(client, second, user_new())["status"] == "out_of_stock"
        stack.ctl("stock", coupon, "--total", 3)
        wait_until(lambda: call(client, second, user := user_new())["code"] == 0 and user)
        stack.ctl("pause", coupon)
        wait_until(lambda: call(client, third, user_new())["status"] == "paused")
        assert call(client, second, user_new())["status"] == "code_used"
        stack.ctl("resume", coupon)
        wait_until(lambda: call(client, third, user_new())["code"] == 0)


def test_many_users_with_one_word(stack, claim):
    coupon = stack.coupon_make(50, limit=2)
    word = f"Noon-{random.randrange(10**9)}"
    claim.word(coupon, word)
    users = [user_new() for _ in range(20)]
    with stack.client() as client:
        replies = client.pipeline(
            [{"op": "claim", "code": word.upper(), "user": user} for user in users]
        )
        assert {reply["code"] for reply in replies} == {0}
        assert call(client, word, users[0])["slot"] == 2
        assert call(client, word, users[0])["status"] == "limit_reached"
        settled(client, replies[-1]["receive"])
        wait_until(lambda: claim.stats(coupon)["sets"][0]["claimed"] == 21)
    assert f"{word}, redemptions: 21" in claim("list", coupon)


def test_imported_codes(stack, claim):
    coupon = stack.coupon_make(500, limit=100)
    texts = [f"SHOP'\\{random.randrange(10**12)}" for _ in range(300)]
    claim.imported(coupon, texts)
    user = user_new()
    with stack.client() as client:
        replies = client.pipeline(
            [{"op": "claim", "code": text.lower(), "user": user} for text in texts[:90]]
        )
        assert {reply["code"] for reply in replies} == {0}
        assert call(client, texts[0], user_new())["status"] == "code_used"
        assert call(client, "SHOPX", user_new()) == WRONG
        for reply in replies:
            settled(client, reply["receive"])
    assert claim.stats(coupon)["used"] == 90
    shown = claim.show(texts[3])
    assert (shown["state"], shown["user"], shown["metadata"]) == ("used", user, {"shop": "a"})


def test_codes_as_they_are_pasted(stack, claim):
    """None of them is a guess: with one wrong code more the user would have to wait."""
    coupon, user = stack.coupon_make(100, limit=100), user_new()
    code, *_ = claim.made(coupon, 1)
    shop = f"SHOP-{random.randrange(10**12)}"
    claim.imported(coupon, [shop])
    word = f"NOON-{random.randrange(10**12)}"
    claim.word(coupon, word)
    with stack.client() as client:
        for _ in range(5):
            assert call(client, "NOON-NONE", user) == WRONG
        for between in ("\u00a0", "\u200b", "\t", "\n", "\r\n", "\u2013", "\u2011", "\ufeff"):
            for text in (code, shop, word):
                pasted = between + text.replace("-", between) + between
                assert call(client, pasted, user, key=text)["code"] == 0, (between, text)


def test_a_word_is_counted(stack, claim):
    coupon = stack.coupon_make(100)
    word = f"COUNT{random.randrange(10**12)}"
    claim.word(coupon, word)
    assert (claim.show(word)["state"], claim.show(word)["claimed"]) == ("open", 0)
    with stack.client() as client:
        for _ in range(5):
            settled(client, call(client, word, user_new())["receive"])
    shown = claim.show(word)
    assert (shown["state"], shown["claimed"], shown["user"]) == ("open", 5, None)
    assert claim("show", word).splitlines()[1] == "  state    open, redemptions: 5"
    claim("revoke", word)
    assert claim("show", word).splitlines()[1].startswith("  state    revoked, redemptions: 5")


def test_codes_that_were_used_or_revoked_elsewhere(stack, claim):
    """Nobody gets a coupon by them: not by the gateway, and not by settle()."""
    coupon, mark = stack.coupon_make(10), f"OLD-{random.randrange(10**12)}"
    path = claim.folder / "old.csv"
    path.write_text(
        f"code,state,user\n{mark}-1,used,alice\n{mark}-2,revoked,\n{mark}-3,Unused,\n"
        f"{mark}-4,used,\n"
    )
    claim.known(json.loads(claim("import", coupon, path, "--json"))["set"])
    user = user_new()
    with stack.client() as client:
        assert call(client, f"{mark}-2", user) == WRONG
        for used in ("1", "4"):
            reply = call(client, f"{mark}-{used}", user)
            assert (reply["status"], reply["coupon"]) == ("code_used", coupon), reply
        settled(client, call(client, f"{mark}-3", user)["receive"])
    assert [claim.show(f"{mark}-{n}")["state"] for n in range(1, 5)] == [
        "used", "revoked", "used", "used",
    ]  # fmt: skip
    # Not counted yet: null.
    wait_until(
        lambda: (json.loads(stack.ctl("show", coupon, "--json"))["refused"] or {}).get("code_used")
        == 2
    )
    assert (claim.stats(coupon)["used"], claim.stats(coupon)["revoked"]) == (3, 1)
    # A rebuild and an audit find nothing to do.
    stack.ctl("rebuild", coupon)
    assert stack.ctl("audit", coupon).splitlines()[-1].startswith("PASS")
    with stack.client() as client:
        wait_until(lambda: call(client, f"{mark}-1", user)["status"] == "code_used")
    told = claim.run("revoke", f"{mark}1", f"{mark}2", f"{mark}3", f"{mark}4")
    assert told.returncode == 6 and "0 revoked, 1 revoked before, 3 refused" in told.stdout
    assert f'"{mark}1": it is used, by user alice' in told.stderr
    assert f'"{mark}4": it was used when it was imported' in told.stderr


def test_codes_that_wait_for_a_lock_delay_no_status(stack, claim, gateway_make):
    coupon, user = stack.coupon_make(10, limit=5), user_new()
    texts = [f"LOCK{random.randrange(10**12)}" for _ in range(4)]
    claim.imported(coupon, texts)
    gateway = gateway_make(stack, COUPON_CALL_TIMEOUT_MS=20000)
    with gateway.client() as codes, gateway.client() as other:
        wait_until(lambda: call(codes, texts[0], user)["code"] == 0)
        with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
            holder.execute("LOCK TABLE code IN ACCESS EXCLUSIVE MODE")
            for text in texts[1:]:
                codes.send_line({"op": "claim", "code": text, "user": user})
            for _ in range(20):
                assert other.call("status", coupon=coupon, user=user)["code"] == 0
            assert gateway.metrics()["couponmq_requests_inflight"] == 3
            holder.rollback()
        assert [codes.read_reply()["code"] for _ in range(3)] == [0] * 3


def test_revoked_codes(stack, claim):
    coupon = stack.coupon_make(10)
    used, revoked, other = claim.made(coupon, 3)
    user = user_new()
    with stack.client() as client:
        receive = call(client, used, user, ack="issued")["receive"]
        result = claim.run("revoke", used, revoked, "--json")
        assert result.returncode == 6 and f"it is used, by user {user}" in result.stderr
        assert json.loads(result.stdout) == {"revoked": 1, "revoked_before": 0, "refused": 1}
        assert call(client, revoked, user_new()) == WRONG
        assert call(client, used, user)["receive"] == receive
        shown = claim.show(other)
        claim("revoke", "--set", shown["set"])
        assert call(client, other, user_new()) == WRONG
        assert call(client, used, user)["receive"] == receive
        # After a rebuild, too.
        stack.ctl("rebuild", coupon)
        wait_until(lambda: call(client, revoked, user_new()) == WRONG)
        assert call(client, other, user_new()) == WRONG
        assert call(client, used, user_new())["status"] == "code_used"
    numbers = claim.stats(coupon)
    assert [numbers[name] for name in ("unused", "used", "revoked")] == [0, 1, 2]


def test_a_code_that_is_claimed_and_not_settled(rough, rough_coupon, tmp_path):
    """It stays its user's, and is revoked as soon as the receive loses it."""
    coupon, claim = rough_coupon().coupon, Claim(rough, tmp_path)
    (code,) = claim.made(coupon, 1)
    with rough.client() as client:
        rough.stop("worker-1")
        receive = call(client, code, "1")["receive"]
        result = claim.run("revoke", code)
        assert result.returncode == 6 and "it is used, by user 1" in result.stderr
        assert result.stdout == "0 revoked, 0 revoked before, 1 refused\n"
        rough.start("worker-1")
        settled(client, receive)
        assert claim.show(code)["state"] == "used"
        rough.ctl("void", receive)
        wait_until(lambda: call(client, code, "2") == WRONG)
    assert claim.show(code)["state"] == "revoked"
    rough.ctl("audit", coupon)


def revoked_by_the_keeper(stack, claim, coupon, code):
    with stack.client() as client:
        assert claim.show(code)["state"] == "revoked"
        with redis.Redis.from_url(stack.env["REDIS_URL"]) as cache:
            wait_until(lambda: cache.hget(f"coupon:{{{coupon}}}", "revocation") == b"1")
        assert call(client, code, user_new()) == WRONG
        assert claim("revoke", code) == "0 revoked, 1 revoked before, 0 refused"
    stack.ctl("audit", coupon)


def test_revoke_that_is_killed_between_the_stores(stack, claim):
    """PostgreSQL has it revoked; the keeper tells Redis."""
    coupon = stack.coupon_make(10)
    (code,) = claim.made(coupon, 1)
    program = with_faults(stack, "couponctl")
    killed = subprocess.run(
        [program, "codes", "revoke", code],
        env={**os.environ, **stack.env_of("operator"), "COUPON_FAULT": "revoke_committed:1:kill"},
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    revoked_by_the_keeper(stack, claim, coupon, code)


def test_revoke_without_redis_says_so(stack, claim):
    coupon = stack.coupon_make(10)
    (code,) = claim.made(coupon, 1)
    gate = Relay(port_of(stack.env["REDIS_URL"]))
    try:
        gate.trap(script_sent("revoke"))
        with subprocess.Popen(
            [stack.build_dir / "couponctl", "codes", "revoke", code],
            env={
                **os.environ,
                **stack.env_of("operator"),
                "REDIS_URL": gate.url(stack.env_of("operator")["REDIS_URL"]),
            },
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            wait_until(gate.trapped_num)
            gate.cut()
            told = command.communicate(timeout=120)[1]
        assert command.returncode == 3 and "PostgreSQL has revoked it, Redis not yet" in told
    finally:
        gate.close()
    revoked_by_the_keeper(stack, claim, coupon, code)


@pytest.mark.long
@pytest.mark.parametrize("there", ["the copy before", "a placeholder", "nothing"])
@pytest.mark.parametrize("what", ["code", "word", "set"])
def test_revoked_while_a_rebuild_is_held_open(
    rough, rough_coupon, keeper_behind, tmp_path, what, there
):
    """The keeper has read PostgreSQL before, and puts the coupon in place after."""
    coupon, claim = rough_coupon(limit=2), Claim(rough, tmp_path)
    code, other = claim.made(coupon.coupon, 2)
    word = f"W{random.randrange(10**12)}"
    claim.word(coupon.coupon, word)
    revoked = {"code": (code,), "word": (word,), "set": ("--set", claim.show(code)["set"])}[what]
    tried = word if what == "word" else code
    with rough.client() as client:
        kept = call(client, other, "1", ack="issued")["receive"]
        _, gate = keeper_behind("REDIS_URL")
        gate.trap(script_sent("place"))
        if there == "a placeholder":
            coupon.redis.delete(*coupon.redis.keys(f"{coupon.key}*"))
        else:
            coupon.redis.hset(coupon.key, "rebuild", 1)
        wait_until(gate.trapped_num)
        if there == "nothing":
            coupon.redis.flushall()
        claim("revoke", *revoked)
        assert coupon.field("revocation") == (None if there == "nothing" else "1")
        gate.let_go()
        refused_soon(client, tried)
        assert call(client, other, "1")["receive"] == kept
        assert coupon.field("revocation") == "1"
    rough.ctl("audit", coupon.coupon)


def refused_soon(client, code):
    """And never accepted."""

    def is_refused():
        reply = call(client, code, user_new())
        assert reply == WRONG or reply["status"] in ("unavailable", "unknown"), reply
        return reply == WRONG

    wait_until(is_refused)


def test_revoked_while_a_coupon_is_loaded(
    rough, rough_coupon, rough_owner, keeper_behind, tmp_path
):
    """The keeper has read its row before, and Redis does not have it yet, so couponctl would do
    this alone. But it takes longer than the keeper waits for Redis."""
    coupon, claim = rough_coupon(loaded=False, publish=False), Claim(rough, tmp_path)
    (code,) = claim.made(coupon.coupon, 1)
    code_set = claim.show(code)["set"]
    _, gate = keeper_behind("REDIS_URL")
    gate.trap(script_sent("hold"))
    rough.ctl("publish", coupon.coupon)
    wait_until(gate.trapped_num)
    rough_owner.execute(
        "SELECT code_revoke(ARRAY[id], ARRAY[NULL]::bigint[], ARRAY[coupon_id])"
        " FROM code_set WHERE id = %s",
        (code_set,),
    )
    gate.let_go()
    before = gate.trapped_num()
    gate.trap(script_sent("revoke"))  # which the keeper's next round would send
    with rough.client() as client:
        refused_soon(client, code)
    assert gate.trapped_num() == before


def test_a_revoked_word(stack, claim):
    coupon, word = stack.coupon_make(10), f"W{random.randrange(10**12)}"
    claim.word(coupon, word)
    with stack.client() as client:
        assert call(client, word, user_new())["code"] == 0
        claim("revoke", word)
        assert call(client, word, user_new()) == WRONG


def test_a_coupon_that_redis_does_not_have(stack, claim):
    """Its codes are known, and revoked, before it is published."""
    coupon = stack.coupon_make(10, publish=False)
    code, revoked = claim.made(coupon, 2)
    claim("revoke", revoked)
    with stack.client() as client:
        assert call(client, code, user_new())["status"] == "not_found"
        stack.ctl("publish", coupon)
        wait_until(lambda: call(client, code, "somebody")["code"] == 0)
        assert call(client, revoked, user_new()) == WRONG


@pytest.mark.parametrize("terms", ["yes", "no"])
def test_a_voided_receive(stack, claim, terms):
    coupon, user = stack.coupon_make(10, void_returns=terms), user_new()
    (code,) = claim.made(coupon, 1)
    with stack.client() as client:
        receive = call(client, code, user, ack="issued")["receive"]
        stack.ctl("void", receive)
        if terms == "no":
            assert call(client, code, user_new())["status"] == "code_used"
            return
        again = wait_until(lambda: (r := call(client, code, "another"))["code"] == 0 and r)
        settled(client, again["receive"])
    assert claim.show(code)["user"] == "another"
    assert stack.ctl_run("audit", coupon).returncode == 0


def test_wrong_codes_of_a_user_are_held_back(stack, claim):
    coupon, user = stack.coupon_make(10), user_new()
    (code,) = claim.made(coupon, 1)
    with stack.client() as client:
        for _ in range(6):
            assert call(client, "nothing", user) == WRONG
        held = call(client, code, user)
        assert held["status"] == "busy" and 0 < held["retry_after_ms"] <= 1000, held
        assert "too many wrong codes" in held["message"]
        # others are not concerned, on the same connection either
        assert call(client, "nothing", user_new()) == WRONG
        assert wait_until(lambda: (r := call(client, code, user))["code"] == 0 and r)
        assert claim.stats_of("codes_held_back_total") > 0


def test_wrong_codes_at_once_are_looked_up_no_more_than_one_by_one(stack, claim):
    claim.imported(stack.coupon_make(1), [f"ONCE{random.randrange(10**12)}"])
    user, n = user_new(), 2000
    with stack.client() as client:
        replies = client.pipeline(
            [{"op": "claim", "code": f"NONE{i}", "user": user} for i in range(n)]
        )
    states = [reply["status"] for reply in replies]
    assert states.count("code_invalid") + states.count("busy") == n
    # Six, and one after each wait: of 1, 2, 4, … s.
    assert 6 <= states.count("code_invalid") < 14


def test_a_storm_of_known_codes(stack, claim, gateway_make):
    """Imported codes that are sent again after an outage, by those who have claimed them: none is
    refused, whatever COUPON_READS_MAX is, and each gets its own receive."""
    n = 600
    texts = [f"STORM{random.randrange(10**12)}" for _ in range(n)]
    claim.imported(stack.coupon_make(n), texts)
    lines = [
        {"op": "claim", "code": text, "user": user_new(), "key": f"k{i}", "ack": "issued"}
        for i, text in enumerate(texts)
    ]
    gateway = gateway_make(stack, COUPON_READS_MAX=3, COUPON_CALL_TIMEOUT_MS=60000)
    wait_until(lambda: gateway.metrics()["couponmq_code_sets_read_total"] >= 1)
    with stack.client() as client:
        first = client.pipeline(lines)
    with gateway.client() as client, psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("LOCK TABLE code IN ACCESS EXCLUSIVE MODE")
        for i, line in enumerate(lines):
            client.send_line({"id": i, **line})
        wait_until(lambda: gateway.metrics()["couponmq_codes_waiting"] == n)
        before = gateway.metrics()["couponmq_lookups_total"]
        holder.rollback()
        again = {reply["id"]: reply for reply in (client.read_reply() for _ in lines)}
    assert {reply["status"] for reply in first} == {"issued"}
    assert [again[i]["receive"] for i in range(n)] == [reply["receive"] for reply in first]
    assert {reply["status"] for reply in again.values()} == {"issued"}
    assert gateway.metrics()["couponmq_lookups_total"] - before < n / 10


def test_codes_do_not_wait_for_one_time_out_after_the_other(stack, claim, gateway_make):
    """A look-up that fails is followed by others only for those that came lately, not for all that
    wait, 256 at a time."""
    text = f"LATE{random.randrange(10**12)}"
    claim.imported(stack.coupon_make(1), [text])
    gateway = gateway_make(
        stack,
        COUPON_CALL_TIMEOUT_MS=2000,  # one that waits for a lock fails after a quarter
        COUPON_INFLIGHT_MAX=200000,
        COUPON_INFLIGHT_PER_CONNECTION_MAX=10000,
        COUPON_OUTPUT_LIMIT_BYTES=8388608,
    )
    wait_until(lambda: gateway.metrics()["couponmq_code_sets_read_total"] >= 1)
    lines = [{"op": "claim", "code": f"NONE{i}", "user": user_new()} for i in range(6000)]
    with gateway.client() as client, psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder:
        holder.execute("LOCK TABLE code IN ACCESS EXCLUSIVE MODE")
        states = {reply["status"] for reply in client.pipeline(lines)}
        failed = gateway.log().count("event=code_lookup_failed")
        holder.rollback()
        assert call(client, text, user_new())["code"] == 0
    assert states == {"unavailable"}
    assert 0 < failed < len(lines) / 256 / 2


def guesses(client, stop, results):
    """Sends wrong imported codes of ever new users as fast as it can."""
    while not stop.is_set():
        replies = client.pipeline(
            [{"op": "claim", "code": f"GUESS{n}", "user": user_new()} for n in range(500)]
        )
        results.update(reply["status"] for reply in replies)


@pytest.mark.parametrize("processes", [1, 2])
def test_who_tries_codes_refuses_nobody_else(stack, claim, gateway_make, processes):
    """Over one connection, from the address of the honest ones."""
    coupon, word = stack.coupon_make(1000), f"W{random.randrange(10**12)}"
    texts = [f"HONEST{random.randrange(10**12)}" for _ in range(100)]
    claim.imported(coupon, texts)
    claim.word(coupon, word)
    gateway = gateway_make(stack, COUPON_CODE_WRONG_MAX=50, COUPON_PROCESSES=processes)
    stop, results = threading.Event(), collections.Counter()
    with gateway.client() as client, gateway.client() as bad:
        wait_until(lambda: call(client, word, user_new())["code"] == 0)
        guessing = threading.Thread(target=guesses, args=(bad, stop, results))
        guessing.start()
        try:
            wait_until(lambda: results["busy"] > 500)
            replies = [call(client, text, user_new()) for text in texts]
            replies += [call(client, word, user_new()) for _ in range(100)]
            before = results["busy"]
            wait_until(lambda: results["busy"] > before or not guessing.is_alive())
        finally:
            stop.set()
            guessing.join()
    assert collections.Counter(reply["status"] for reply in replies) == {"accepted": 200}
    assert results["code_invalid"] > 0


def test_processes_share_the_budget_of_a_user(stack, gateway_make):
    """Over connections that the kernel gives to either process."""
    gateway = gateway_make(stack, COUPON_CODE_ATTEMPTS=1, COUPON_PROCESSES=2)
    users, wrong = [user_new() for _ in range(10)], 0

    def all_know_the_sets():
        return gateway.metrics()["couponmq_code_sets_read_total"] >= 2

    wait_until(all_know_the_sets)
    for user in users:
        for _ in range(16):
            with gateway.client() as client:
                reply = call(client, "none", user)
                wrong += reply == WRONG
    # Two of a user, and one more after a second; without sharing twice as many.
    assert 2 * len(users) <= wrong < 3 * len(users)


def test_a_process_that_dies_gives_back_what_it_took(stack, claim, gateway_make):
    coupon, user, text = stack.coupon_make(10), user_new(), f"DIES{random.randrange(10**12)}"
    claim.imported(coupon, [text])
    gateway = gateway_make(
        stack, COUPON_CODE_ATTEMPTS=1, COUPON_PROCESSES=2, COUPON_CALL_TIMEOUT_MS=20000
    )
    wait_until(lambda: gateway.metrics()["couponmq_code_sets_read_total"] >= 2)
    before = gateway.processes()
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as holder, gateway.client() as client:
        holder.execute("LOCK TABLE code IN ACCESS EXCLUSIVE MODE")
        client.send_line({"op": "claim", "code": text, "user": user})
        wait_until(lambda: gateway.metrics()["couponmq_codes_waiting"] == 1)
        for process in before:
            os.kill(process, signal.SIGKILL)
        holder.rollback()
    wait_until(lambda: len(gateway.processes()) == 2 and not set(before) & set(gateway.processes()))
    wait_until(lambda: gateway.metrics()["couponmq_code_sets_read_total"] >= 4)
    wait_until(lambda: gateway.log().count("event=gateway_known") == 4)
    with gateway.client() as client:
        assert call(client, text, user)["code"] == 0


def test_a_missing_key_does_not_read_the_sets_again(stack, claim, gateway_make, tmp_path):
    coupon, keys = stack.coupon_make(10), tmp_path / "keys"
    (code,) = claim.made(coupon, 1)
    gateway = gateway_make(stack, COUPON_CODE_KEYS=keys)
    reads = "couponmq_code_sets_read_total"
    wait_until(lambda: gateway.metrics()["couponmq_code_keys_missing"] > 0)
    assert gateway.metrics()[reads] == 1

    def asked_at():
        """When gateways, the one of the stack among them, last asked whether sets have changed."""
        sql = "SELECT query_start FROM pg_stat_activity WHERE application_name = %s"
        return [at for (at,) in rows(stack, sql, "coupon-gateway codes")]

    with gateway.client() as client:
        for _ in range(3):
            before = max(asked_at())
            wait_until(lambda: min(asked_at()) > before)
        assert gateway.metrics()[reads] == 1
        assert call(client, code, user_new()) == WRONG
        part = tmp_path / "part"
        part.write_bytes(open(stack.env["COUPON_CODE_KEYS"], "rb").read())
        part.chmod(0o600)
        part.rename(keys)
        wait_until(lambda: gateway.metrics()["couponmq_code_keys_missing"] == 0)
        assert call(client, code, user_new())["code"] == 0
        assert gateway.metrics()[reads] == 2


@pytest.mark.long
def test_keys_that_are_rotated_and_removed_in_mid_sale(stack_make, gateway_make, tmp_path):
    """A new key counts at once; a code whose key was taken out of the file is none, and is one
    when the key is back. The other codes are claimed all the time."""
    stack, keys = stack_make(), tmp_path / "keys"
    stack.services()
    stack.start("worker-1")
    coupon, codes = stack.coupon_make(100), Codes(stack, keys)
    codes("key")
    gateway = gateway_make(stack, COUPON_CODE_KEYS=keys)

    def generated(name):
        codes.generate(coupon, 10, tmp_path / name)
        return column(tmp_path / name)

    old = generated("old")
    codes("key")
    new = generated("new")
    whole = keys.read_text()
    lacking = "".join(line for line in whole.splitlines(True) if not line.startswith("1 "))
    missing = lambda: gateway.metrics()["couponmq_code_keys_missing"]  # noqa: E731

    def put(text):
        part = tmp_path / "part"
        part.write_text(text)
        part.chmod(0o600)
        part.rename(keys)

    with gateway.client() as client:
        for code in (old.pop(), new.pop()):
            wait_until(lambda: call(client, code, user_new())["code"] == 0)  # noqa: B023
        put(lacking)
        wait_until(missing)
        assert call(client, old[0], user_new()) == WRONG
        assert call(client, new.pop(), user_new())["code"] == 0
        put(whole)
        wait_until(lambda: not missing())
        assert call(client, old.pop(0), user_new())["code"] == 0
        told = gateway.log().count("event=code_keys")
        put("1 nonsense\n")  # by mistake
        wait_until(lambda: gateway.log().count("event=code_keys") > told)
        assert call(client, old.pop(), user_new())["code"] == 0


def test_descriptors_are_out_when_the_keys_are_read(stack, claim, gateway_make):
    """The codes that are known stay valid, and the new ones are read when there are some again."""
    coupon = stack.coupon_make(10)
    (old,) = claim.made(coupon, 1)
    gateway = gateway_make(stack, COUPON_PROCESSES=1)
    with gateway.client() as client:
        wait_until(lambda: client.call("stats")["stats"].get("code_sets", 0))
        with no_descriptors(gateway.child.pid):
            told = claim.run("generate", coupon, "--count", 1, "--out", claim.folder / "new.csv")
            assert "have not told that they know it" in told.stderr
            (new,) = column(claim.folder / "new.csv")
            wait_until(lambda: "event=code_keys" in gateway.log())
            assert call(client, old, user_new())["code"] == 0
        wait_until(lambda: call(client, new, user_new())["code"] == 0)


def test_the_codes_of_a_rebuilt_coupon(stack, claim):
    coupon = stack.coupon_make(100, limit=5)
    texts = claim.made(coupon, 30)
    users = [user_new() for _ in range(10)]
    with stack.client() as client:
        taken = {text: random.choice(users) for text in texts[:20]}
        receives = {
            text: reply["receive"]
            for text, user in taken.items()
            if (reply := call(client, text, user))["code"] == 0
        }
        assert len(receives) >= 10
        stack.ctl("rebuild", coupon)
        for text, receive in receives.items():
            again = wait_until(lambda: (r := call(client, text, taken[text]))["code"] == 0 and r)
            assert again["receive"] == receive
            assert call(client, text, user_new())["status"] == "code_used"
        for receive in receives.values():
            settled(client, receive)
    assert stack.ctl_run("audit", coupon).returncode == 0
    assert claim.stats(coupon)["used"] == len(receives)


def found(stack, coupon):
    told = json.loads(stack.ctl_run("audit", coupon, "--json").stdout)
    return [(one["kind"], one["user"]) for one in told["wrong"]]


def test_audit_finds_codes_that_do_not_agree(stack, claim):
    coupon, user, other = stack.coupon_make(10, limit=3), user_new(), user_new()
    code, free = claim.made(coupon, 2)
    with stack.client() as client:
        call(client, code, user, ack="issued")
    shown = claim.show(code)
    reference = rows(stack, "SELECT code FROM user_coupon WHERE user_id = %s", user)[0][0]
    unused = f"{shown['set']}.{1 - int(reference.split('.')[1])}"
    assert found(stack, coupon) == []
    stores = redis.Redis.from_url(stack.env["REDIS_URL"], decode_responses=True)
    key = f"coupon:{{{coupon}}}:codes"
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as db:
        state = "UPDATE code SET user_id = %s WHERE set_id = %s AND state = 'used'"
        db.execute(state, (other, shown["set"]))
        assert {("code_row", user), ("code_row", other)} == set(found(stack, coupon))
        db.execute(state, (user, shown["set"]))
        db.execute("UPDATE user_coupon SET code = NULL WHERE user_id = %s", (user,))
        assert {("code_row", user), ("slot_key", user)} == set(found(stack, coupon))
        db.execute("UPDATE user_coupon SET code = %s WHERE user_id = %s", (reference, user))
    stores.hset(key, unused, other)
    assert found(stack, coupon) == [("code_owner", other)]
    stores.hdel(key, unused)
    stores.hdel(key, reference)
    assert found(stack, coupon) == [("code_owner", user)]
    stores.hset(key, reference, other)
    assert set(found(stack, coupon)) == {("code_owner", user), ("code_owner", other)}
    # A rebuild that somebody asks for mends it.
    stack.ctl("rebuild", coupon)
    wait_until(lambda: found(stack, coupon) == [])
    assert stores.hget(key, reference) == user
    with stack.client() as client:
        assert call(client, free, user)["code"] == 0
