"""Look-ups in PostgreSQL while it is slow, unreachable and back: no other request waits for
them."""

import json
import threading

import psycopg
import pytest

from relay import Relay, port_of
from stack import port_free, wait_until


@pytest.fixture
def proxy(stack):
    middle = Relay(port_of(stack.env["DATABASE_URL"]))
    yield middle
    middle.close()


def first_look_ups(gateway, client, unknown):
    """Their number, when those have ended that a new connection begins with: here one of a coupon,
    and the query of the settings, some time after it was made."""
    assert client.issue(unknown, 1)["status"] == "not_found"
    wait_until(lambda: gateway.metrics()["couponmq_lookups_total"] == 2)
    with gateway.client() as other:  # one statement at a time: the second has ended
        assert other.issue(unknown + 1000, 1)["status"] == "not_found"
    return 3


def first_read(gateway, client, unknown):
    assert client.call("coupon", coupon=unknown)["status"] == "not_found"
    assert gateway.metrics()["couponmq_reads_total"] == 1
    return 1


def test_an_answer_without_its_end_holds_up_nobody(stack, make_coupon, gateway_make, proxy):
    coupon = make_coupon(1)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=60000,
    )
    with gateway.client() as asking, gateway.client() as other:
        proxy.mode("hold_ends", "down")
        asking.send_line({"op": "status", "coupon": coupon, "user": "1"})
        for _ in range(20):
            assert other.call("ping")["code"] == 0
        proxy.heal()
        assert asking.read_reply()["receives"] == []


def test_postgresql_comes_back_while_it_is_asked_for(stack, make_coupon, gateway_make):
    coupon = make_coupon(1)
    port = port_free()
    url = stack.env["DATABASE_URL"]
    nobody = url.replace(str(port_of(url)), str(port))
    gateway = gateway_make(stack, ready=False, DATABASE_URL=nobody, COUPON_CALL_TIMEOUT_MS=2000)
    stop = threading.Event()

    def keep_asking():
        with gateway.client() as client:
            while not stop.wait(0.02):
                client.send_line({"op": "status", "coupon": coupon, "user": "1"})

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        wait_until(lambda: gateway.metrics()["couponmq_lookups_failed_total"] > 20)
        with Relay(port_of(url), port=port):
            wait_until(gateway.ready)
    finally:
        stop.set()
        asking.join()


def test_none_is_not_final_while_its_own_issue_is_on_its_way(stack, make_coupon):
    coupon = make_coupon(10)
    with stack.client() as client:
        for user in range(1, 6):
            lines = [
                {"id": 1, "op": "issue", "coupon": coupon, "user": user},
                {"id": 2, "op": "status", "coupon": coupon, "user": user},
            ]
            client.send_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            replies = {reply["id"]: reply for reply in (client.read_reply(), client.read_reply())}
            assert replies[1]["code"] == 0
            assert replies[2]["receives"] or replies[2]["final"] is False


def test_a_burst_of_unknown_coupons_delays_no_status(stack, make_coupon, gateway_make, proxy):
    """PostgreSQL is slow and works. Of a burst of look-ups each one is answered, and the
    connection stays, although the last ones wait for longer than the time limit of one."""
    coupon, unknown = make_coupon(1), 700000000000
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=1000,
    )
    with gateway.client() as burst, gateway.client() as other:
        receive = other.issue(coupon, 1, ack="issued")["receive"]
        connects = gateway.log().count("event=database_ready")
        proxy.mode("delay", "down", ms=50)
        burst.send_bytes(
            b"".join(
                json.dumps({"op": op, "coupon": unknown + n, **members}).encode() + b"\n"
                for n in range(400)
                for op, members in (("issue", {"user": "1"}), ("coupon", {}))
            )
        )
        for _ in range(5):
            assert other.call("status", receive=receive)["status"] == "issued"
        assert [burst.read_reply()["status"] for _ in range(800)] == ["not_found"] * 800
    assert "event=database_lost" not in gateway.log()
    assert gateway.log().count("event=database_ready") == connects


def test_coupons_of_one_statement_are_told_apart(stack, pg, gateway_make, proxy):
    """While the first look-up is under way, the others wait, and are then one statement."""
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_READ_CONNECTIONS=1,
    )
    closed, unknown = int(stack.ctl("create", "--name", "Closed", "--total", 1)), 700000001000
    with pg.transaction():  # no keeper sees it open
        for status in ("published", "closed"):
            pg.execute("UPDATE coupon SET status = %s WHERE id = %s", (status, closed))
    coupons = [unknown, closed, unknown + 1, unknown + 2]
    with gateway.client() as client:
        assert client.call("coupon", coupon=unknown + 3)["status"] == "not_found"
        proxy.mode("delay", "down", ms=50)
        client.send_bytes(
            b"".join(
                json.dumps({"id": coupon, "op": "coupon", "coupon": coupon}).encode() + b"\n"
                for coupon in coupons
            )
        )
        replies = [client.read_reply() for _ in coupons]
    assert {reply["id"]: reply["status"] for reply in replies} == {
        coupon: "ended" if coupon == closed else "not_found" for coupon in coupons
    }


def test_a_look_up_that_waited_too_long_fails_alone(stack, make_coupon, gateway_make, proxy):
    coupon = make_coupon(1)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=3000,
    )
    with gateway.client() as client:
        proxy.mode("delay", "down", ms=700)
        states = [
            reply["status"]
            for reply in client.pipeline(
                [{"op": "status", "coupon": coupon, "user": user} for user in range(1, 301)]
            )
        ]
        assert set(states) == {"ok", "unavailable"} and states.count("ok") >= 2
        proxy.heal()
        assert client.call("status", coupon=coupon, user="1")["status"] == "ok"
    assert "event=database_lost" not in gateway.log()


def test_reads_of_one_coupon_count_once(stack, gateway_make, proxy):
    """Beyond COUPON_READS_MAX coupons, reads of others are answered busy, and `coupons` is not."""
    unknown = 700000000000
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READS_MAX=3,
        COUPON_READ_CONNECTIONS=1,
    )
    with gateway.client() as burst, gateway.client() as other:
        before = first_read(gateway, burst, unknown + 99)
        proxy.mode("hold", "down")
        burst.send_line({"op": "coupon", "coupon": unknown})
        wait_until(lambda: gateway.metrics()["couponmq_reads_total"] == before + 1)
        lines = [{"op": "coupon", "coupon": unknown + 1 + n % 5} for n in range(50)]
        burst.send_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        assert [burst.read_reply()["status"] for _ in range(20)] == ["busy"] * 20
        assert gateway.metrics()["couponmq_reads_refused_total"] == 20
        other.send_line({"op": "coupons", "user": "1"})
        proxy.heal()
        assert [burst.read_reply()["status"] for _ in range(31)] == ["not_found"] * 31
        assert other.read_reply()["status"] == "ok"
        sent = gateway.metrics()["couponmq_reads_total"] - before
        assert 3 <= sent <= 6, "the 51 requests share reads; one may be repeated when slow"


def test_coupons_beyond_the_limit_of_look_ups(stack, make_coupon, gateway_make, proxy):
    """Beyond COUPON_READS_MAX coupons, `issue` of others is answered busy; `status` is not."""
    coupon, unknown = make_coupon(1), 700000004000
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READS_MAX=3,
    )
    with gateway.client() as burst, gateway.client() as other:
        before = first_look_ups(gateway, burst, unknown + 99)
        proxy.mode("hold", "down")
        burst.send_line({"op": "issue", "coupon": unknown, "user": "1"})
        wait_until(lambda: gateway.metrics()["couponmq_lookups_total"] == before + 1)
        lines = [{"op": "issue", "coupon": unknown + 1 + n, "user": "1"} for n in range(5)]
        burst.send_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        assert [burst.read_reply()["status"] for _ in range(2)] == ["busy"] * 2
        other.send_line({"op": "status", "coupon": coupon, "user": "1"})
        proxy.heal()
        assert [burst.read_reply()["status"] for _ in range(4)] == ["not_found"] * 4
        assert other.read_reply()["status"] == "ok"
        assert gateway.metrics()["couponmq_lookups_refused_total"] >= 2


USERS = 32  # LOOKUP_USERS_MAX


def replies_after_a_hold(gateway, client, proxy, lines):
    """By their ids. While the look-up of the first one is under way, the others wait."""
    before = gateway.metrics()["couponmq_lookups_total"]
    proxy.mode("hold", "down")
    client.send_line(lines[0])
    wait_until(lambda: gateway.metrics()["couponmq_lookups_total"] == before + 1)
    client.send_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines[1:]))

    def have_arrived():
        metrics = gateway.metrics()
        waiting = metrics["couponmq_lookups_waiting"] + metrics["couponmq_lookups_refused_total"]
        return waiting >= len(lines) - 1

    wait_until(have_arrived)
    proxy.heal()
    replies = {reply["id"]: reply for reply in (client.read_reply() for _ in lines)}
    return replies, gateway.metrics()["couponmq_lookups_total"] - before


@pytest.mark.parametrize("ack", ["issued", "queued"])
def test_a_storm_of_known_keys(stack, make_coupon, gateway_make, proxy, ack):
    """Requests that are sent again after an outage, with the same keys, cost few statements. None
    is refused or unknown, whatever COUPON_READS_MAX is, and each gets its own receive."""
    n = 600
    coupon = make_coupon(n)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=60000,
        COUPON_ISSUED_TIMEOUT_MS=60000,
        COUPON_READS_MAX=3,
    )
    lines = [
        {"id": i, "op": "issue", "coupon": coupon, "user": f"u{i}", "key": f"k{i}", "ack": "issued"}
        for i in range(n)
    ]
    with gateway.client() as client:
        first_look_ups(gateway, client, 700000006000)
        first = client.pipeline(lines)
        again, sent = replies_after_a_hold(
            gateway, client, proxy, [{**line, "ack": ack} for line in lines]
        )
    for i, reply in again.items():
        assert reply["status"] == "issued" and reply["receive"] == first[i]["receive"], reply
        assert f".u{i}." in reply["receive"]
    assert sent == 1 + -(-(n - 1) // 256)
    assert gateway.metrics()["couponmq_lookups_refused_total"] == 0


@pytest.mark.parametrize("way", ["receive", "user"])
def test_status_of_many_is_told_apart(stack, make_coupon, gateway_make, proxy, way):
    """One statement looks up many, of which some are not there and one was taken back."""
    n = 90
    coupon = make_coupon(n)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=60000,
    )
    with gateway.client() as client:
        first_look_ups(gateway, client, 700000007000)
        asked = [
            reply["receive"]
            for reply in client.pipeline(
                [
                    {"op": "issue", "coupon": coupon, "user": f"u{i}", "ack": "issued"}
                    for i in range(n)
                ]
            )
        ]
        stack.ctl("void", asked[7])
        asked.insert(40, asked[0].replace(".u0.", ".nobody."))
        members = [
            {"receive": receive}
            if way == "receive"
            else {"coupon": coupon, "user": receive.split(".")[1]}
            for receive in asked
        ]
        replies, sent = replies_after_a_hold(
            gateway,
            client,
            proxy,
            [{"id": i, "op": "status", **one} for i, one in enumerate(members)],
        )
    assert sent == 1 + (1 if way == "receive" else -(-n // USERS))
    for i, reply in replies.items():
        state = "rejected" if i == 7 else "issued"
        if i == 40:
            assert reply["status"] == ("not_found" if way == "receive" else "ok")
            assert reply.get("receives", []) == []
        elif way == "receive":
            assert (reply["status"], reply["receive"]) == (state, asked[i])
        else:
            (found,) = reply["receives"]
            assert (reply["status"], found["state"], found["receive"]) == ("ok", state, asked[i])


def test_a_flood_of_status_delays_no_other_look_up(stack, make_coupon, gateway_make, proxy):
    """Beyond its limit `status` is answered busy, and the others are not. They come after one
    statement of `status`, which has USERS of them, not after all that wait."""
    coupon, unknown, limit = make_coupon(2), 700000005000, 2 * USERS
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READS_MAX=limit,
    )
    status = {"op": "status", "coupon": coupon, "user": "1"}
    with gateway.client() as client, gateway.client() as other:
        accepted = client.issue(coupon, 1, key="once", ack="issued")
        before = first_look_ups(gateway, client, unknown)
        proxy.mode("hold", "down")
        client.send_line(status)
        wait_until(lambda: gateway.metrics()["couponmq_lookups_total"] == before + 1)
        client.send_bytes(json.dumps(status).encode().join([b"\n"] * (limit + 6))[1:])
        assert [client.read_reply()["status"] for _ in range(5)] == ["busy"] * 5
        client.send_line({**status, "op": "issue", "key": "once", "ack": "issued"})
        wait_until(lambda: gateway.metrics()["couponmq_outcomes_waiting"] == 1)
        client.send_line({"op": "issue", "coupon": unknown + 1, "user": "1"})
        client.send_line({"op": "status", "coupon": unknown + 2, "user": "1"})
        assert other.issue(coupon, 2)["code"] == 0, "by Redis, after those before it"
        wait_until(lambda: gateway.metrics()["couponmq_lookups_waiting"] >= limit + 3)
        proxy.heal()
        replies = [client.read_reply() for _ in range(limit + 4)]
    states = [reply["status"] for reply in replies]
    first = 4 + USERS
    assert states.index("issued") < first and states.index("not_found") < first, states
    assert replies[states.index("issued")]["receive"] == accepted["receive"]
    assert states.count("busy") <= 1, "the last, if its coupon was found to be unknown so early"


def test_the_two_kinds_of_reads_take_turns(stack, make_coupon, gateway_make, proxy):
    """Neither a burst of unknown coupons nor one of `coupons` makes the other wait until its end.
    Look-ups are sent by the same code."""
    coupon, unknown, in_one = make_coupon(1), 700000002000, 256
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READ_CONNECTIONS=1,
    )
    coupons = [{"op": "coupon", "coupon": unknown + n} for n in range(2 * in_one + 50)]
    with gateway.client() as client, gateway.client() as first:
        before = first_read(gateway, client, unknown - 1) + 1
        assert "partial" not in client.call("coupon", coupon=coupon), "it is known from now on"
        proxy.mode("hold", "down")
        first.send_line({"op": "coupons", "user": "1"})
        wait_until(lambda: gateway.metrics()["couponmq_reads_total"] == before + 1)
        users = [{"op": "coupons", "user": str(n)} for n in range(1, 5)]
        client.send_bytes(
            b"".join(json.dumps(line).encode() + b"\n" for line in (*coupons, *users))
        )
        wait_until(
            lambda: gateway.metrics()["couponmq_requests_inflight"] == len(coupons + users) + 1
        )
        # A reply of Redis after those to all of them.
        with gateway.client() as last:
            assert last.call("coupon", coupon=coupon)["code"] == 0
        wait_until(lambda: gateway.metrics()["couponmq_reads_waiting"] == len(coupons + users))
        proxy.heal()
        replies = [client.read_reply() for _ in range(len(coupons) + len(users))]
    kinds = "".join("U" if "coupons" in reply else "C" for reply in replies)
    assert kinds == f"{'C' * in_one}U{'C' * in_one}U{'C' * 50}UU"


def test_what_waits_for_a_lost_connection_fails_at_once(stack, make_coupon, gateway_make, proxy):
    coupon = make_coupon(1)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
    )
    with gateway.client() as client:
        before = first_look_ups(gateway, client, 700000003000)
        proxy.mode("hold", "down")
        lines = [{"op": "status", "coupon": coupon, "user": str(user)} for user in range(1, 6)]
        lines += [{"op": "coupon", "coupon": 700000003001 + n} for n in range(5)]
        client.send_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        wait_until(lambda: gateway.metrics()["couponmq_lookups_total"] == before + 1)
        proxy.cut()  # and new connections are held
        assert {client.read_reply()["status"] for _ in lines} == {"unavailable"}


CALL_MS = 3000


@pytest.fixture
def admin(stack):
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as pg:
        yield pg


@pytest.fixture
def backends(admin):
    """The number of sessions of this database that run the look-up of a user's receives."""

    def running():
        return admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'coupon-gateway %' AND state = 'active'"
            " AND query LIKE '%AS r (coupon_id, user_id, ord)%'"
        ).fetchone()[0]

    return running


def status_send(client, coupon):
    client.send_line({"op": "status", "coupon": coupon, "user": "1"})


def test_a_look_up_that_waits_for_a_lock_fails_alone(
    stack, make_coupon, gateway_make, admin, backends
):
    """It ends before the time limit of a call, so the connection stays, and look-ups behind it
    that need no lock are answered."""
    coupon = make_coupon(1)
    gateway = gateway_make(stack, COUPON_CALL_TIMEOUT_MS=CALL_MS)
    with gateway.client() as asking, gateway.client() as other:
        receive = other.issue(coupon, 1, ack="issued")["receive"]
        with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as locking:
            locking.execute("LOCK TABLE user_coupon IN ACCESS EXCLUSIVE MODE")
            status_send(asking, coupon)
            wait_until(lambda: backends() == 1)
            assert other.issue(700000000000, 1)["status"] == "not_found"
            reply = asking.read_reply()
            assert reply["status"] == "unavailable" and "PostgreSQL" in reply["message"]
            wait_until(lambda: backends() == 0)
            assert gateway.log().count("event=lookup_failed") == 1
        assert asking.call("status", coupon=coupon, user="1")["receives"][0]["receive"] == receive
        assert other.call("status", receive=receive)["status"] == "issued"
    assert "event=database_lost" not in gateway.log()


def test_the_lock_wait_of_a_gateway_that_died_ends(
    stack, make_coupon, gateway_make, admin, backends
):
    """PostgreSQL does not notice the end of a client that waits for a lock."""
    coupon = make_coupon(1)
    gateway = gateway_make(stack, COUPON_CALL_TIMEOUT_MS=CALL_MS)
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as locking:
        locking.execute("LOCK TABLE user_coupon IN ACCESS EXCLUSIVE MODE")
        with gateway.client() as asking:
            status_send(asking, coupon)
            wait_until(lambda: backends() == 1)
            gateway.kill9()
        wait_until(lambda: backends() == 0)


def test_a_look_up_that_runs_for_too_long_is_ended_by_the_server(
    stack, make_coupon, gateway_make, admin, backends
):
    """It waits for no lock. The gateway opens another connection, on which look-ups go on, and does
    not leave the slow one to the server."""
    coupon = make_coupon(1)
    gateway = gateway_make(stack, COUPON_CALL_TIMEOUT_MS=CALL_MS)
    with gateway.client() as asking:
        assert asking.issue(coupon, 1, ack="issued")["status"] == "issued"
        admin.execute("CREATE POLICY slow ON user_coupon USING (pg_sleep(60) IS NOT NULL)")
        try:
            admin.execute("ALTER TABLE user_coupon ENABLE ROW LEVEL SECURITY")
            status_send(asking, coupon)
            wait_until(lambda: backends() == 1)
            assert asking.read_reply()["status"] == "unavailable"
            wait_until(lambda: backends() == 0)
        finally:
            admin.execute("ALTER TABLE user_coupon DISABLE ROW LEVEL SECURITY")
            admin.execute("DROP POLICY slow ON user_coupon")
        wait_until(gateway.ready)
        assert asking.call("status", coupon=coupon, user="1")["receives"][0]["state"] == "issued"
