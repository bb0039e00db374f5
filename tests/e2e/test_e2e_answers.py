"""Every answer of the protocol, produced over the socket."""

import datetime
import signal

import pika
import requests

from message import message_text
from stack import wait_until
from ulid import CROCKFORD, ulid_make


def moment(seconds):
    """RFC 3339, this many seconds from now."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def slot_plant(pg, coupon, user, slot=1):
    """A user coupon that no message of this coupon made."""
    pg.execute(
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, %s, 0, gen_random_uuid(), now(), now())",
        (user, coupon, slot),
    )
    pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))


# 0: done


def test_accepted_names_the_receive_and_the_slot(gateway, make_coupon):
    coupon = make_coupon(10)
    reply = gateway.issue(coupon, 42, id=7)
    assert reply == {
        "id": 7,
        "code": 0,
        "status": "accepted",
        "receive": reply["receive"],
        "slot": 1,
    }
    named_coupon, user, batch, index = reply["receive"].split(".")
    assert (named_coupon, user, index) == (coupon, "42", "0")
    assert len(batch) == 26 and set(batch) <= set(CROCKFORD)


def test_queued(gateway, make_coupon):
    reply = gateway.issue(make_coupon(10), 42, ack="queued")
    assert (reply["code"], reply["status"], reply["slot"]) == (0, "queued", 1)


def test_issued_is_committed_when_it_is_answered(gateway, make_coupon, pg):
    coupon = make_coupon(10)
    reply = gateway.issue(coupon, 42, ack="issued", key="order-77")
    assert (reply["code"], reply["status"], reply["slot"]) == (0, "issued", 1)
    rows = pg.execute(
        "SELECT user_id, slot, key FROM user_coupon WHERE coupon_id = %s", (coupon,)
    ).fetchall()
    assert rows == [("42", 1, "order-77")]
    assert pg.execute("SELECT issued_num FROM coupon WHERE id = %s", (coupon,)).fetchone() == (1,)


def test_each_receive_has_a_slot_of_its_own(gateway, make_coupon):
    coupon = make_coupon(10, limit=3)
    assert [gateway.issue(coupon, 42)["slot"] for _ in range(3)] == [1, 2, 3]


def test_the_same_key_is_the_same_receive(gateway, make_coupon):
    coupon = make_coupon(10, limit=3)
    first = gateway.issue(coupon, 42, key="k")
    assert "replayed" not in first
    assert gateway.issue(coupon, 42, key="k") == {**first, "replayed": True}
    for ack in ("queued", "issued"):
        assert gateway.issue(coupon, 42, key="k", ack=ack) == {
            **first, "replayed": True, "status": "issued"
        }  # fmt: skip
    assert gateway.issue(coupon, 42, key="other")["slot"] == 2
    other = gateway.issue(coupon, 43, key="k")
    assert other["receive"] != first["receive"] and "replayed" not in other
    assert gateway.call("coupon", coupon=coupon)["stock"] == 7


def test_a_known_key_is_answered_after_stock_pause_and_end(gateway, stack, make_coupon):
    coupon = make_coupon(1)
    first = gateway.issue(coupon, 42, key="k")
    again = {**first, "replayed": True}
    assert gateway.issue(coupon, 43)["code"] == 2
    assert gateway.issue(coupon, 42, key="k") == again
    stack.ctl("pause", coupon)
    assert gateway.issue(coupon, 42, key="k") == again
    stack.ctl("close", coupon)
    assert gateway.issue(coupon, 42, key="k") == again
    assert gateway.issue(coupon, 42, key="new")["code"] == 3


def test_ping_and_stats(gateway):
    assert gateway.call("ping", id=1) == {"id": 1, "code": 0, "status": "ok"}
    reply = gateway.call("stats")
    assert (reply["code"], reply["status"]) == (0, "ok")
    assert reply["stats"]["requests_total"] >= 2
    assert reply["stats"]["answers"]["ok"] >= 1


def test_the_unix_socket_answers_alike(stack, make_coupon):
    coupon = make_coupon(1)
    with stack.client_unix() as client:
        assert client.issue(coupon, 1)["code"] == 0
        assert client.issue(coupon, 2)["code"] == 2


# 1 to 6: refused


def test_not_found(gateway):
    reply = gateway.issue(987654321, 1)
    assert (reply["code"], reply["status"]) == (1, "not_found")
    assert "987654321" in reply["message"]


def test_a_draft_is_not_found(gateway, stack, make_coupon):
    coupon = make_coupon(10, publish=False)
    assert gateway.issue(coupon, 1)["code"] == 1
    assert gateway.call("coupon", coupon=coupon)["code"] == 1
    stack.ctl("publish", coupon)
    wait_until(lambda: gateway.issue(coupon, 1, key="k")["code"] == 0)


def test_out_of_stock(gateway, make_coupon):
    coupon = make_coupon(2)
    assert [gateway.issue(coupon, user)["code"] for user in (1, 2, 3)] == [0, 0, 2]
    assert gateway.issue(coupon, 3)["status"] == "out_of_stock"
    assert gateway.issue(coupon, 1)["code"] == 2, "stock is checked before the limit"


def test_a_total_of_nothing(stack, gateway, make_coupon):
    coupon = make_coupon(1)
    stack.ctl("stock", coupon, "--total", 0)
    assert gateway.issue(coupon, 1)["status"] == "out_of_stock"


def test_ended_by_its_end(gateway, stack, make_coupon):
    coupon = make_coupon(10, end=moment(600))
    assert gateway.issue(coupon, 1)["code"] == 0
    stack.coupon_edit(coupon, "--end", moment(1))
    wait_until(lambda: gateway.call("coupon", coupon=coupon)["state"] == "ended")
    reply = gateway.issue(coupon, 2)
    assert (reply["code"], reply["status"]) == (3, "ended")


def test_ended_by_close(gateway, stack, make_coupon):
    coupon = make_coupon(10)
    stack.ctl("close", coupon)
    assert gateway.issue(coupon, 1)["code"] == 3
    assert gateway.call("coupon", coupon=coupon)["state"] == "ended"


def test_limit_reached(gateway, make_coupon):
    coupon = make_coupon(10, limit=2)
    assert [gateway.issue(coupon, 1)["code"] for _ in range(3)] == [0, 0, 4]
    assert gateway.issue(coupon, 1)["status"] == "limit_reached"
    assert gateway.issue(coupon, 2)["code"] == 0, "it applies to one user only"


def test_not_started_and_then_it_begins(gateway, stack, make_coupon):
    coupon = make_coupon(10, begin=moment(600))
    reply = gateway.issue(coupon, 1)
    assert (reply["code"], reply["status"]) == (5, "not_started")
    assert gateway.call("coupon", coupon=coupon)["state"] == "not_started"
    stack.coupon_edit(coupon, "--begin", moment(1))
    wait_until(lambda: gateway.issue(coupon, 1, key="k")["code"] == 0)


def test_paused_and_resumed(gateway, stack, make_coupon):
    coupon = make_coupon(10)
    stack.ctl("pause", coupon)
    reply = gateway.issue(coupon, 1)
    assert (reply["code"], reply["status"]) == (6, "paused")
    assert gateway.call("coupon", coupon=coupon)["state"] == "paused"
    stack.ctl("resume", coupon)
    wait_until(lambda: gateway.issue(coupon, 1)["code"] == 0)


# 9: rejected


def test_rejected_when_postgresql_holds_the_slot(gateway, make_coupon, pg):
    coupon = make_coupon(10)
    slot_plant(pg, coupon, 42)
    reply = gateway.issue(coupon, 42, ack="issued")
    assert (reply["code"], reply["status"], reply["reason"], reply["slot"]) == (
        9,
        "rejected",
        "slot_taken",
        1,
    )
    status = gateway.call("status", receive=reply["receive"])
    assert (status["code"], status["status"], status["reason"]) == (9, "rejected", "slot_taken")
    assert status["receive"] == reply["receive"] and status["message"]
    states = gateway.call("status", coupon=coupon, user="42")["receives"]
    assert sorted(item["state"] for item in states) == ["issued", "rejected"]


def test_rejected_when_postgresql_has_no_stock(gateway, make_coupon, pg):
    coupon = make_coupon(1)
    slot_plant(pg, coupon, 7)
    reply = gateway.issue(coupon, 42, ack="issued")
    assert (reply["code"], reply["reason"]) == (9, "out_of_stock")


def test_rejected_when_postgresql_lost_the_coupon(gateway, make_coupon, pg_owner):
    coupon = make_coupon(1)
    pg_owner.execute("DELETE FROM coupon WHERE id = %s", (coupon,))
    reply = gateway.issue(coupon, 42, ack="issued")
    assert (reply["code"], reply["reason"]) == (9, "unknown_coupon")


def test_rejected_when_the_slot_cannot_be(gateway, make_coupon, amqp):
    coupon, batch = make_coupon(10), ulid_make()
    amqp.basic_publish(
        "coupon.topic",
        "coupon.receive",
        message_text(coupon, batch=batch, at=1, receives=[["42", 5, ""]]).encode(),
        pika.BasicProperties(delivery_mode=2),
    )
    receive = f"{coupon}.42.{batch}.0"
    status = wait_until(
        lambda: (reply := gateway.call("status", receive=receive))["code"] == 9 and reply
    )
    assert status["reason"] == "slot_invalid"


# 20 to 22: busy, unavailable, unknown


def test_busy(stack, make_coupon, gateway_make):
    coupon = make_coupon(10)
    with gateway_make(stack, COUPON_INFLIGHT_MAX=1).client() as client:
        first, second = client.pipeline(
            [{"op": "issue", "coupon": coupon, "user": user} for user in (1, 2)]
        )
        assert (first["code"], second["code"], second["status"]) == (0, 20, "busy")
        assert client.issue(coupon, 2)["code"] == 0


def test_unavailable_while_redis_is_away(rough):
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        issued = client.issue(coupon, 1, ack="issued")
        rough.stop("redis")
        # Until the gateway has noticed, a call that was sent is unknown.
        wait_until(lambda: requests.get(rough.http("/readyz"), timeout=60).status_code == 503)
        reply = client.issue(coupon, 2)
        assert (reply["code"], reply["status"]) == (21, "unavailable")
        assert (
            requests.get(rough.http(f"/v1/coupon?coupon={coupon}"), timeout=60).status_code == 503
        )
        assert client.call("coupon", coupon=coupon)["code"] == 21
        assert client.call("status", coupon=coupon, user="1")["code"] == 21
        assert (
            client.call("status", receive=issued["receive"])["status"] == "issued"
        ), "PostgreSQL holds it"
        rough.start("redis")
        wait_until(lambda: client.issue(coupon, 2, key="k")["code"] == 0)
        assert client.call("coupon", coupon=coupon)["stock"] == 8


def test_unavailable_while_published_and_not_loaded(rough):
    rough.stop("worker-1")
    coupon = rough.coupon_make(10, publish=False)
    rough.ctl("publish", coupon, "--wait-s", 0)
    with rough.client() as client:
        assert client.issue(coupon, 1)["status"] == "unavailable"
        assert client.call("coupon", coupon=coupon)["status"] == "unavailable"
        rough.start("worker-1")
        wait_until(lambda: client.issue(coupon, 1, key="k")["code"] == 0)


def test_the_coupon_is_unavailable_until_it_is_compared_or_rebuilt(rough, rough_redis):
    """A placeholder, or what a restarted Redis has, is not answered as the coupon's state."""
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, 1, key="k")["code"] == 0)
        rough.stop("worker-1")
        run_id = rough_redis.hget(f"coupon:{{{coupon}}}", "run_id")
        rough_redis.hset(f"coupon:{{{coupon}}}", mapping={"run_id": "0" * 40, "stock": 10})
        assert client.issue(coupon, 2)["status"] == "unavailable"
        assert client.call("coupon", coupon=coupon)["status"] == "unavailable"
        rough_redis.hset(f"coupon:{{{coupon}}}", mapping={"run_id": run_id, "stock": 9})
        assert client.call("coupon", coupon=coupon)["stock"] == 9
        rough.start("worker-1")


def test_unknown_and_the_retry_with_the_key_consumes_once(rough, rough_pg, gateway_make):
    coupon = rough.coupon_make(10, limit=5)
    gateway = gateway_make(rough, COUPON_CALL_TIMEOUT_MS=500)
    with gateway.client() as client:
        rough.sigstop("redis")
        try:
            # Both at once: a connection to Redis is closed after its first time-out.
            issue = {"coupon": coupon, "user": "42", "key": "k"}
            client.send_line({"op": "issue", **issue})
            over_http = requests.post(gateway.http("/v1/issue"), json=issue, timeout=60)
            assert over_http.status_code == 504
            reply = client.read_reply()
            assert (reply["code"], reply["status"]) == (22, "unknown")
            assert "receive" not in reply
        finally:
            rough.sigcont("redis")
        status = wait_until(
            lambda: (r := client.call("status", coupon=coupon, user="42"))["code"] == 0 and r
        )
        if not status["receives"]:
            assert status["final"] is False
        reply = wait_until(lambda: (r := client.issue(coupon, 42, key="k"))["code"] == 0 and r)
        again = client.issue(coupon, 42, key="k", ack="issued")
        assert (again["status"], again["receive"]) == ("issued", reply["receive"])
        assert client.call("coupon", coupon=coupon)["stock"] == 9
    rows = rough_pg.execute(
        "SELECT slot FROM user_coupon WHERE coupon_id = %s", (coupon,)
    ).fetchall()
    assert rows == [(1,)]


def test_unknown_with_the_receive_when_the_outcome_is_late(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=200)
    with gateway.client() as client:
        rough.sigstop("worker-1")
        reply = client.issue(coupon, 42, ack="issued")
        assert (reply["code"], reply["status"], reply["slot"]) == (22, "unknown", 1)
        assert client.call("status", receive=reply["receive"])["status"] == "accepted"
        assert client.call("status", coupon=coupon, user="42")["receives"] == [
            {"receive": reply["receive"], "slot": 1, "state": "accepted"}
        ]
        rough.signal("worker-1", signal.SIGCONT)
        wait_until(lambda: client.call("status", receive=reply["receive"])["status"] == "issued")


# 40 and 43 (all their causes: test_e2e_protocol.py, test_e2e_protocol_lines.py)


def test_bad_request(gateway):
    reply = gateway.issue("none", 1, id="x")
    assert (reply["id"], reply["code"], reply["status"]) == ("x", 40, "bad_request")
    assert reply["message"].startswith('coupon is "none": must be')


def test_too_large(gateway):
    gateway.send_bytes(b" " * 70000 + b"\n")
    reply = gateway.read_reply()
    assert (reply["code"], reply["status"]) == (43, "too_large")


# status and coupon


def test_status_of_a_receive(gateway, make_coupon):
    receive = gateway.issue(make_coupon(10, valid_days=30), 42, ack="issued")["receive"]
    status = gateway.call("status", receive=receive)
    begin, end = (
        datetime.datetime.fromisoformat(status.pop(name).replace("Z", "+00:00"))
        for name in ("valid_from", "valid_to")
    )
    assert status == {"code": 0, "status": "issued", "receive": receive, "slot": 1}
    assert end - begin == datetime.timedelta(days=30)
    assert abs(begin.timestamp() - datetime.datetime.now().timestamp()) < 60


def test_status_of_a_receive_that_never_was(gateway, make_coupon):
    reply = gateway.call("status", receive=f"{make_coupon(1)}.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0")
    assert (reply["code"], reply["status"], reply["final"]) == (1, "not_found", True)


def test_status_of_another_users_receive_is_not_found(gateway, make_coupon):
    coupon = make_coupon(1)
    receive = gateway.issue(coupon, 42, ack="issued")["receive"]
    stranger = receive.replace(".42.", ".43.")
    assert gateway.call("status", receive=stranger)["code"] == 1


def test_status_of_a_user(gateway, make_coupon):
    coupon = make_coupon(10, limit=2)
    receives = [gateway.issue(coupon, 42, ack="issued")["receive"] for _ in range(2)]
    reply = gateway.call("status", coupon=int(coupon), user=42)
    assert (reply["code"], reply["coupon"], reply["user"]) == (0, coupon, "42")
    found = sorted(reply["receives"], key=lambda item: item["slot"])
    assert [(item["receive"], item["slot"], item["state"]) for item in found] == [
        (receives[0], 1, "issued"),
        (receives[1], 2, "issued"),
    ]
    assert gateway.call("status", coupon=coupon, user="43") == {
        "code": 0, "status": "ok", "coupon": coupon, "user": "43", "receives": [], "final": True,
    }  # fmt: skip


def test_coupon(gateway, make_coupon):
    coupon = make_coupon(10, limit=3, begin="2026-01-01T12:00:00+01:00", end="2099-01-01T00:00:00Z")
    gateway.issue(coupon, 1)
    assert gateway.call("coupon", coupon=coupon) == {
        "code": 0, "status": "ok", "coupon": coupon, "state": "open", "total": 10, "stock": 9,
        "limit": 3, "begin": "2026-01-01T11:00:00.000Z", "end": "2099-01-01T00:00:00.000Z",
    }  # fmt: skip
    assert gateway.call("coupon", coupon="987654321")["code"] == 1


def test_coupon_without_a_window(gateway, make_coupon):
    reply = gateway.call("coupon", coupon=make_coupon(10))
    assert "begin" not in reply and "end" not in reply
