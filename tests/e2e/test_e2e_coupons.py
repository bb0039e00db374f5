"""`coupons`: a user's coupons in pages, over the socket and HTTP. Nothing else waits for them."""

import json
import re
import threading
import uuid

import psycopg
import pytest
import requests

from process import metrics_read
from relay import Relay, port_of
from replies import refused, still_talks
from stack import wait_until


@pytest.fixture
def user():
    """One that has no coupons, with bytes that are special in a URL."""
    return f"a&b=c%20+{uuid.uuid4()}"


@pytest.fixture
def proxy(stack):
    middle = Relay(port_of(stack.env["DATABASE_URL"]))
    yield middle
    middle.close()


def issue_each(client, user, coupons):
    """Returns the receives, in this order: each is settled before the next one is sent."""
    receives = []
    for coupon in coupons:
        reply = client.issue(coupon, user, ack="issued")
        assert reply["status"] == "issued", reply
        receives.append(reply["receive"])
    return receives


def pages(client, user, limit):
    """All pages, as lists of receives."""
    found, more = [], {}
    while more is not None:
        reply = client.call("coupons", user=user, limit=limit, **more)
        assert (reply["code"], reply["status"], reply["user"]) == (0, "ok", user), reply
        found.append([one["receive"] for one in reply["coupons"]])
        more = {"cursor": reply["cursor"]} if "cursor" in reply else None
    return found


def get(stack, **parameters):
    return requests.get(stack.http("/v1/coupons"), params=parameters, timeout=60)


def test_newest_first_in_pages(gateway, make_coupon, user):
    coupons = [make_coupon(5, limit=2) for _ in range(3)]
    newest = issue_each(gateway, user, [*coupons, *reversed(coupons)])[::-1]
    assert pages(gateway, user, 100) == [newest]
    assert pages(gateway, user, 6) == [newest], "no cursor leads to an empty page"
    assert pages(gateway, user, 4) == [newest[:4], newest[4:]]
    assert pages(gateway, user, 1) == [[receive] for receive in newest]


def test_an_entry(gateway, stack, pg, user):
    coupon = stack.coupon_make(1, name='Noon "50 %" \N{SNOWMAN}', valid_days=2)
    wait_until(lambda: gateway.call("coupon", coupon=coupon)["code"] == 0)
    (receive,) = issue_each(gateway, user, [coupon])
    (entry,) = gateway.call("coupons", user=user)["coupons"]
    status = gateway.call("status", receive=receive)
    (received_at,) = pg.execute(
        "SELECT to_char(received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
        " FROM user_coupon WHERE user_id = %s",
        (user,),
    ).fetchone()
    assert entry == {
        "coupon": coupon,
        "name": 'Noon "50 %" \N{SNOWMAN}',
        "receive": receive,
        "slot": 1,
        "received_at": received_at,
        "valid_from": status["valid_from"],
        "valid_to": status["valid_to"],
    }


def test_nothing_and_only_their_own(gateway, make_coupon, user):
    coupon = make_coupon(5)
    assert gateway.call("coupons", user=user) == {
        "code": 0,
        "status": "ok",
        "user": user,
        "coupons": [],
    }
    others = [f"0{user}", f"{user}0", user.upper(), "%"]
    for other in others:
        assert gateway.issue(coupon, other, ack="issued")["code"] in (0, 4)
    assert pages(gateway, user, 20) == [[]]
    (mine,) = issue_each(gateway, user, [coupon])
    assert pages(gateway, user, 20) == [[mine]]


def test_without_a_limit_a_page_has_twenty(gateway, make_coupon, user):
    coupon = make_coupon(30, limit=21)
    requests_ = [
        {"op": "issue", "coupon": coupon, "user": user, "ack": "issued"} for _ in range(21)
    ]
    assert {reply["status"] for reply in gateway.pipeline(requests_)} == {"issued"}
    reply = gateway.call("coupons", user=user)
    assert len(reply["coupons"]) == 20
    reply = gateway.call("coupons", user=user, cursor=reply["cursor"])
    assert len(reply["coupons"]) == 1 and "cursor" not in reply


def test_coupons_that_come_between_two_pages(gateway, make_coupon, user):
    """Nothing is repeated and nothing is left out of what was there when the first page was
    read."""
    coupons = [make_coupon(5) for _ in range(7)]
    newest = issue_each(gateway, user, coupons[:4])[::-1]
    first = gateway.call("coupons", user=user, limit=2)
    later = issue_each(gateway, user, coupons[4:6])[::-1]
    second = gateway.call("coupons", user=user, limit=2, cursor=first["cursor"])
    found = [one["receive"] for reply in (first, second) for one in reply["coupons"]]
    assert found == newest and "cursor" not in second
    again = gateway.call("coupons", user=user, limit=2, cursor=first["cursor"])
    assert again == second, "a cursor stays valid"
    assert pages(gateway, user, 4) == [later + newest[:2], newest[2:]]


def test_pages_while_coupons_arrive(stack, gateway, make_coupon, user):
    coupon = make_coupon(200, limit=100)
    before = set(issue_each(gateway, user, [coupon] * 20))
    stop = threading.Event()

    def keep_issuing():
        with stack.client() as client:
            while not stop.wait(0.001):
                client.issue(coupon, user)

    issuing = threading.Thread(target=keep_issuing)
    issuing.start()
    try:
        for limit in (1, 3, 7):
            found = [receive for page in pages(gateway, user, limit) for receive in page]
            assert len(found) == len(set(found)) and before <= set(found)
    finally:
        stop.set()
        issuing.join()


def test_over_http_it_is_the_same(gateway, stack, make_coupon, user):
    coupons = [make_coupon(1) for _ in range(3)]
    issue_each(gateway, user, coupons)
    wanted = gateway.call("coupons", user=user, limit=2)
    response = get(stack, user=user, limit=2)
    assert (response.status_code, response.json()) == (200, wanted)
    body = {"user": user, "limit": 2}
    assert requests.post(stack.http("/v1/coupons"), json=body, timeout=60).json() == wanted
    following = get(stack, user=user, cursor=wanted["cursor"]).json()
    assert following == gateway.call("coupons", user=user, cursor=wanted["cursor"])
    assert [one["coupon"] for one in following["coupons"]] == [coupons[0]]


LIMIT = "must be an integer from 1 to 100"
CURSOR = "must be the cursor of a reply to coupons of the same user"
BAD = [
    ({}, "user: is missing"),
    ({"user": "a b"}, "user is"),
    ({"user": "1", "limit": "0"}, f'limit is "0": {LIMIT}'),
    ({"user": "1", "limit": "101"}, f'limit is "101": {LIMIT}'),
    ({"user": "1", "limit": "-1"}, f'limit is "-1": {LIMIT}'),
    ({"user": "1", "limit": "ten"}, f'limit is "ten": {LIMIT}'),
    ({"user": "1", "limit": "1e1"}, f'limit is "1e1": {LIMIT}'),
    ({"user": "1", "limit": ""}, f'limit is "": {LIMIT}'),
    ({"user": "1", "limit": "99999999999999999999"}, f": {LIMIT}"),
    ({"user": "1", "cursor": ""}, f'cursor is "": {CURSOR}'),
    ({"user": "1", "cursor": "0" * 54}, f": {CURSOR}"),
    ({"user": "1", "cursor": "x" * 5000}, f": {CURSOR}"),
    ({"user": "1", "coupon": "1"}, "coupon: no such member of coupons"),
    ({"user": "1", "page": "1"}, "page: no such member of coupons"),
]


@pytest.mark.parametrize("members, words", BAD)
def test_refused(gateway, stack, members, words):
    refused(gateway.call("coupons", **members), words)
    assert still_talks(gateway)
    response = get(stack, **members)
    assert response.status_code == 400 and refused(response.json(), words)


@pytest.mark.parametrize("limit", [0, 101, -1, 1.5, None, True, [1], {}, 10**18])
def test_refused_limits_that_are_no_text(gateway, limit):
    refused(gateway.call("coupons", user="1", limit=limit))


def test_a_cursor_is_of_its_user_and_whole(gateway, make_coupon, user):
    coupons = [make_coupon(5) for _ in range(2)]
    issue_each(gateway, user, coupons)
    issue_each(gateway, f"{user}0", coupons)
    cursor = gateway.call("coupons", user=user, limit=1)["cursor"]
    refused(gateway.call("coupons", user=f"{user}0", cursor=cursor), CURSOR)
    wrong = [cursor[:-1], cursor + "0", cursor.upper(), f" {cursor}", cursor[:9] + cursor[10:]]
    wrong += [cursor[:at] + ("1" if cursor[at] == "0" else "0") + cursor[at + 1 :] for at in (0, 9)]
    for text in wrong:
        refused(gateway.call("coupons", user=user, cursor=text), CURSOR)
    assert len(gateway.call("coupons", user=user, cursor=cursor)["coupons"]) == 1


def test_busy_when_too_many_wait(stack, make_coupon, gateway_make, proxy):
    """Only reads: look-ups and `issue` have their own ways."""
    coupon = make_coupon(10)
    gateway = gateway_make(
        stack,
        DATABASE_READ_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READ_CONNECTIONS=2,
        COUPON_READS_MAX=3,
    )
    wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 2)
    with gateway.client() as asking, gateway.client() as other:
        proxy.mode("hold", "down")
        for n in range(8):
            asking.send_line({"id": n, "op": "coupons", "user": "nobody"})
        replies = [asking.read_reply() for _ in range(3)]
        assert [(one["id"], one["code"], one["status"]) for one in replies] == [
            (n, 20, "busy") for n in (5, 6, 7)
        ]
        response = requests.get(gateway.http("/v1/coupons?user=1"), timeout=60)
        assert (response.status_code, response.json()["status"]) == (429, "busy")
        metrics = gateway.metrics()
        assert metrics["couponmq_reads_total"] == 2
        assert metrics["couponmq_reads_refused_total"] == 4
        wait_until(lambda: gateway.metrics()["couponmq_reads_waiting"] == 3)
        receive = other.issue(coupon, 1, ack="issued")["receive"]
        assert other.call("status", receive=receive)["status"] == "issued"
        proxy.heal()
        assert sorted(asking.read_reply()["id"] for _ in range(5)) == list(range(5))
        wait_until(lambda: gateway.metrics()["couponmq_reads_waiting"] == 0)
        assert asking.call("coupons", user="nobody")["status"] == "ok"


def test_one_connection_that_is_lost_fails_only_its_read(stack, gateway_make, proxy):
    gateway = gateway_make(
        stack,
        DATABASE_READ_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=20000,
        COUPON_READ_CONNECTIONS=2,
    )
    wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 2)
    with gateway.client() as asking:
        proxy.mode("hold", "down")
        for n in range(4):
            asking.send_line({"id": n, "op": "coupons", "user": "nobody"})
        wait_until(lambda: gateway.metrics()["couponmq_reads_waiting"] == 2)
        proxy.reset_in_piece("down")
        proxy.mode("pass")
        replies = [asking.read_reply() for _ in range(4)]
    assert sorted(one["status"] for one in replies) == ["ok"] * 3 + ["unavailable"]
    assert gateway.log().count("event=reads_lost") == 1
    assert "event=database_lost" not in gateway.log()


def issues(client, coupon, users):
    for user in users:
        assert client.issue(coupon, user)["status"] == "accepted"


def test_postgresql_is_frozen(rough, rough_coupon, gateway_make):
    """Reads are answered when their time is over, and issuing does not notice."""
    coupon = rough_coupon(500)
    gateway = gateway_make(rough, COUPON_CALL_TIMEOUT_MS=1000, COUPON_READS_MAX=10)
    with gateway.client() as asking, gateway.client() as issuing:
        assert asking.call("coupons", user="1")["status"] == "ok"
        rough.sigstop("postgres")
        for n in range(20):
            asking.send_line({"id": n, "op": "coupons", "user": "1"})
        assert [asking.read_reply()["status"] for _ in range(8)] == ["busy"] * 8
        issues(issuing, coupon.coupon, range(1, 11))
        replies = [asking.read_reply() for _ in range(12)]
        assert {reply["status"] for reply in replies} == {"unavailable"}
        asking.send_line({"op": "coupons", "user": "1"})  # while it reconnects
        issues(issuing, coupon.coupon, range(201, 301))
        assert asking.read_reply()["status"] == "unavailable"
        rough.sigcont("postgres")
        wait_until(lambda: asking.call("coupons", user="1")["status"] == "ok")

        def listed():
            page = asking.call("coupons", user="7")["coupons"]
            return [one["coupon"] for one in page].count(str(coupon.coupon)) == 1

        wait_until(listed)  # the worker has to find its connection again


def test_postgresql_is_down(rough, gateway_make):
    gateway = gateway_make(rough)
    with gateway.client() as client:
        assert client.call("coupons", user="1")["status"] == "ok"
        rough.stop("postgres")
        wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 0)
        assert client.call("coupons", user="1")["status"] == "unavailable"
        response = requests.get(gateway.http("/v1/coupons?user=1"), timeout=60)
        assert (response.status_code, response.json()["code"]) == (503, 21)
        assert requests.get(gateway.http("/readyz"), timeout=60).json()["reads"]
        rough.start("postgres")
        wait_until(lambda: client.call("coupons", user="1")["status"] == "ok")
        wait_until(lambda: "reads" not in requests.get(gateway.http("/readyz"), timeout=60).json())


def test_another_database_for_reads(stack, make_coupon, gateway_make, proxy, user):
    """What decides about a receive never depends on it."""
    coupon, unknown = make_coupon(10), 700000005000
    gateway = gateway_make(
        stack,
        DATABASE_READ_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        COUPON_CALL_TIMEOUT_MS=500,
    )
    with gateway.client() as client:
        receive = client.issue(coupon, user, ack="issued")["receive"]
        assert pages(client, user, 20) == [[receive]]
        proxy.mode("hold")
        assert client.call("coupons", user=user)["status"] == "unavailable"
        assert client.call("coupon", coupon=unknown)["status"] == "unavailable"
        assert client.call("coupon", coupon=coupon)["state"] == "open", "from Redis"
        assert client.call("status", receive=receive)["status"] == "issued"
        assert client.call("status", coupon=coupon, user=user)["receives"]
        assert client.issue(unknown, 1)["status"] == "not_found"
        proxy.cut()
        wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 0)
        told = requests.get(gateway.http("/readyz"), timeout=60)
        assert told.status_code == 200 and told.json()["degraded"], "the gateway issues"
        assert gateway.metrics()["couponmq_database_up"] == 1
        proxy.heal()
        wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 2)
        assert pages(client, user, 20) == [[receive]]


def test_reads_do_not_need_the_other_database(stack, make_coupon, gateway_make, proxy, user):
    coupon = make_coupon(10)
    gateway = gateway_make(
        stack,
        DATABASE_URL=proxy.url(stack.env_of("gateway")["DATABASE_URL"]),
        DATABASE_READ_URL=stack.env["DATABASE_URL"],
        COUPON_CALL_TIMEOUT_MS=500,
    )
    with gateway.client() as client:
        receive = client.issue(coupon, user, ack="issued")["receive"]
        proxy.mode("hold")
        assert client.call("status", receive=receive)["status"] == "unavailable"
        assert pages(client, user, 20) == [[receive]]


def test_reads_show_their_name(stack, gateway_make):
    gateway_make(stack, COUPON_READ_CONNECTIONS=3)
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as admin:
        wait_until(
            lambda: admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'coupon-gateway reads'"
            ).fetchone()[0]
            >= 3 + 2,
        )


def test_the_type_of_a_column_changes(rough, rough_coupon, rough_owner, gateway_make, user):
    """Then the statement that was prepared is refused: it is prepared again."""
    coupon = rough_coupon(1)
    gateway = gateway_make(rough, COUPON_READ_CONNECTIONS=1)
    with gateway.client() as client:
        receive = client.issue(coupon.coupon, user, ack="issued")["receive"]
        assert pages(client, user, 20) == [[receive]]
        rough_owner.execute("ALTER TABLE user_coupon ALTER COLUMN idx TYPE int")
        try:
            wait_until(lambda: client.call("coupons", user=user)["code"] == 0)
            assert pages(client, user, 20) == [[receive]]
        finally:
            rough_owner.execute("ALTER TABLE user_coupon ALTER COLUMN idx TYPE smallint")
        wait_until(lambda: client.call("coupons", user=user)["code"] == 0)
    assert gateway.log().count("event=reads_lost") == 2
    assert "event=read_failed" not in gateway.log()


def test_a_role_that_may_not_read(stack, gateway_make, pg_owner):
    """The reason is logged, and the gateway issues."""
    role = f"nobody_{uuid.uuid4().hex}"
    pg_owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        url = re.sub(r"//[^@]*@", f"//{role}:x@", stack.env["DATABASE_URL"])
        gateway = gateway_make(stack, DATABASE_READ_URL=url)
        with gateway.client() as client:
            wait_until(lambda: gateway.metrics()["couponmq_read_connections"] == 2)
            assert client.call("coupons", user="1")["status"] == "unavailable"
        assert gateway.ready() and "permission denied" in gateway.log()
        assert gateway.metrics()["couponmq_reads_failed_total"] == 1
        gateway.end()
    finally:
        pg_owner.execute(f"DROP ROLE {role}")


def test_several_processes_have_their_own_connections(stack, gateway_make):
    gateway = gateway_make(stack, COUPON_PROCESSES=2, COUPON_READ_CONNECTIONS=3)
    wait_until(lambda: metrics_read(gateway.http("/metrics"))["couponmq_read_connections"] == 6)


def test_a_slow_reader_of_pages_is_cut_and_nobody_else(stack, make_coupon, gateway_make, user):
    """Pages are replies as others: their bytes count."""
    coupon = make_coupon(100, limit=100)
    gateway = gateway_make(stack, COUPON_OUTPUT_LIMIT_BYTES=65536)
    lines = [{"op": "issue", "coupon": coupon, "user": user, "ack": "issued"} for _ in range(100)]
    with gateway.client() as client:
        assert {reply["status"] for reply in client.pipeline(lines)} == {"issued"}
        reply = client.call("coupons", user=user, limit=100)
        assert len(reply["coupons"]) == 100 and len(json.dumps(reply)) < 65536
    with gateway.client() as deaf, gateway.client() as other:
        line = json.dumps({"op": "coupons", "user": user, "limit": 100}).encode() + b"\n"
        deaf.send_bytes(line * 900)
        wait_until(lambda: "event=connection_cut" in gateway.log())
        assert other.call("coupons", user=user, limit=1)["status"] == "ok"
