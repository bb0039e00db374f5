"""User ids of every allowed byte, and ids that something could take for its own, at every door and
in every store. No id changes, meets another one, or leaves its field."""

import http.client
import json
import re
import urllib.parse

import pika
import pytest

from audit_ground import purge
from coupon_seen import Seen
from history import QUEUE
from process import Worker, metrics_read
from replies import ask, refused, still_talks
from stack import dial, wait_until
from ulid import ulid_make, ulid_uuid
from user_ids import HOSTILE, LENGTH_MAX, PRINTABLE, receive_parts

FLAGS = ("--json", "--help", "-h", "--user", "--coupon=7", "--redis-url=redis://127.0.0.1:9", "=")
USERS = tuple(dict.fromkeys((*HOSTILE, *PRINTABLE, *FLAGS)))
# User ids that a parser of ours has met; each costs a process or more.
FEW = (
    'a=b,level="error"', '"],["43",1,""', "\\", "%s%n", "a.b", "1.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
    "{1001}:x", "a&user=b+c#d", PRINTABLE[:LENGTH_MAX], PRINTABLE[-LENGTH_MAX:],
)  # fmt: skip
# A text that is no id, and what its refusal says.
WRONG = (
    ("", "has 0 bytes"), ("x" * 65, "has 65 bytes"), (" a", "byte 1"), ("a b", "byte 2"),
    ("abc\n", "byte 4"), ("a\x1b[31m", "byte 2"), ("ab\x7f", "byte 3"), ("é", "byte 1"),
    ("x" * 64 + "\t", "byte 65"), ("a\x9b31m", "byte 2"),
)  # fmt: skip
ALLOWED = "1 to 64 bytes of printable ASCII without spaces"


def issue_all(client, coupon, users, **members):
    """The replies, each with the user's own receive."""
    replies = client.pipeline(
        [{"op": "issue", "coupon": coupon, "user": user, **members} for user in users]
    )
    for user, reply in zip(users, replies):
        assert reply["code"] == 0 and receive_parts(reply["receive"])[:2] == (coupon, user), reply
    return replies


def rows_of(pg, coupon):
    query = "SELECT user_id, slot FROM user_coupon WHERE coupon_id = %s"
    return sorted(pg.execute(query, (coupon,)).fetchall())


def http_raw(stack, path, body=None):
    """(status, JSON) of this path, byte by byte."""
    connection = http.client.HTTPConnection(stack.env["COUPON_HTTP_LISTEN"])
    connection.sock = dial(stack.env["COUPON_HTTP_LISTEN"])
    connection.putrequest("POST" if body else "GET", path)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.putheader("Content-Type", "application/json")
    connection.endheaders(body)
    response = connection.getresponse()
    reply = json.loads(response.read())
    connection.close()
    return response.status, reply


# What is taken


def test_every_byte_by_the_socket(stack, gateway, make_coupon, pg, redis_client):
    coupon = make_coupon(1000, limit=2)
    first = issue_all(gateway, coupon, USERS, key="order", ack="issued")
    assert {reply["status"] for reply in first} == {"issued"}
    again = issue_all(gateway, coupon, USERS, key="order")
    assert [reply["receive"] for reply in again] == [reply["receive"] for reply in first]
    second = issue_all(gateway, coupon, USERS, ack="issued")
    assert rows_of(pg, coupon) == sorted((user, slot) for user in USERS for slot in (1, 2))
    assert set(redis_client.hkeys(f"coupon:{{{coupon}}}:users")) == set(USERS)
    for user, one, two in zip(USERS, first, second):
        told = gateway.call("status", coupon=coupon, user=user)
        assert told["user"] == user
        assert [receive["receive"] for receive in told["receives"]] == [
            one["receive"], two["receive"]
        ]  # fmt: skip
        assert gateway.call("status", receive=two["receive"])["status"] == "issued"
    refusals = gateway.pipeline([{"op": "issue", "coupon": coupon, "user": user} for user in USERS])
    for user, reply in zip(USERS, refusals):
        assert reply["status"] == "limit_reached" and f"user {user} has" in reply["message"]
    assert stack.ctl_run("audit", coupon).returncode == 0
    labels = "".join(metrics_read(stack.http("/metrics")))
    assert "shopify" not in labels and "auth0" not in labels


def test_ids_that_look_alike_are_different_users(gateway, make_coupon, pg):
    coupon = make_coupon(100)
    users = ("42", "042", "a", "A", "0", "-0", "4.2e1", "42.", str(2**53 - 1))
    issue_all(gateway, coupon, users, ack="issued")
    for number in (42, 0, 2**53 - 1):
        assert gateway.call("issue", coupon=coupon, user=number)["status"] == "limit_reached"
    assert rows_of(pg, coupon) == sorted((user, 1) for user in users)
    refused(gateway.call("issue", coupon=coupon, user=2**53), "send it as a string")


def test_every_byte_by_http(stack, make_coupon, pg):
    coupon = make_coupon(1000)
    for user in USERS:
        body = json.dumps({"coupon": coupon, "user": user}).encode()
        status, reply = http_raw(stack, "/v1/issue", body)
        assert (status, receive_parts(reply["receive"])[:2]) == (200, (coupon, user))
        query = urllib.parse.urlencode({"coupon": coupon, "user": user})
        status, told = http_raw(stack, "/v1/status?" + query)
        assert (status, told["user"]) == (200, user)
        assert told["receives"][0]["receive"] == reply["receive"]
        whole = "".join(f"%{byte:02x}" for byte in reply["receive"].encode())
        status, told = http_raw(stack, "/v1/status?receive=" + whole)
        assert (status, told["receive"]) == (200, reply["receive"])
    wait_until(lambda: len(rows_of(pg, coupon)) == len(USERS))
    assert rows_of(pg, coupon) == sorted((user, 1) for user in USERS)


def test_every_byte_by_couponctl(stack, make_coupon):
    coupon = make_coupon(100)
    for user in (*FEW, *FLAGS):
        issued = stack.ctl(
            "issue", "--coupon", coupon, "--user", user, "--key", "k", "--ack", "issued", "--json"
        )
        receive = json.loads(issued)["receive"]
        assert receive_parts(receive)[:2] == (coupon, user)
        assert receive in stack.ctl("status", receive).split()
        told = json.loads(stack.ctl("status", f"--user={user}", "--coupon", coupon, "--json"))
        assert (told["user"], told["receives"][0]["state"]) == (user, "issued")
    assert stack.ctl_run("audit", coupon).returncode == 0


# What is refused


@pytest.mark.parametrize("text, words", WRONG)
def test_wrong_ids(stack, gateway, text, words):
    for op in ("issue", "status"):
        line = json.dumps({"op": op, "coupon": "1", "user": text}, ensure_ascii=False)
        if text.isprintable():
            reply = ask(gateway, line.encode())
        else:
            reply = gateway.call(op, coupon="1", user=text)
        assert refused(reply, f": {words}") and reply["message"].startswith("user is ")
        assert reply["message"].endswith(ALLOWED) and still_talks(gateway)
    members = {"coupon": "1", "user": text}
    for path, body in (
        ("/v1/issue", json.dumps(members).encode()),
        ("/v1/status?" + urllib.parse.urlencode(members), None),
    ):
        status, reply = http_raw(stack, path, body)
        assert status == 400 and refused(reply, words)
    reply = gateway.call("status", receive=f"1.{text}.{ulid_make()}.0")
    assert refused(reply, "receive is ")
    assert words.startswith("has") or "byte " in reply["message"]
    result = stack.ctl_run("issue", "--coupon", 1, "--user", text)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith('couponctl: --user is "') and words in result.stderr
    assert result.stderr.endswith(ALLOWED + "\n")
    assert ("é" in result.stderr) == ("é" in text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", result.stderr[:-1])


@pytest.mark.parametrize(
    "query, words",
    [
        ("user=a+b", "byte 2"),  # a space
        ("user=a%20b", "byte 2"),
        ("user=%e9", "user: byte 1 is not allowed: must be 1 to 64"),
        ("user=ab%ff", "user: byte 3 is not allowed: must be 1 to 64"),
        ("user=a&b", "the query"),
        ("user=a&b=c", "b: no such member"),
        ("user=a&user=b", "twice"),
        ("user=a#b", "the query"),
        ("user=a#", "the query"),
        ("user=100%", "user: byte 4 is not allowed: the query must"),
        ("user=%4", "user: byte 1 is not allowed: the query must"),
        ("user=%zz", "user: byte 1 is not allowed: the query must"),
        ("user=a%00", "user: byte 2 is not allowed: the query must"),
        ("user=%41%42%", "user: byte 3 is not allowed: the query must"),
        ("%00=1", "the query"),
        ("user=", "has 0 bytes"),
    ],
)
def test_queries_that_are_not_encoded(stack, query, words):
    status, reply = http_raw(stack, "/v1/status?coupon=1&" + query)
    assert status == 400 and refused(reply, words)


# While things fail


def bodies_peek(stack):
    """The messages in the queue, which stay there."""
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        got = iter(lambda: channel.basic_get(QUEUE), (None, None, None))
        return [json.loads(body) for _, _, body in got]


def test_every_byte_through_restarts_and_a_rebuild(rough, rough_coupon, rough_pg, rough_redis):
    one = rough_coupon(1000, limit=2)
    rough.stop("worker-1")
    with rough.client() as client:
        replies = issue_all(client, one.coupon, USERS, key="k", ack="queued")
    batches = [batch for body in bodies_peek(rough) for batch in body.get("batches", [body])]
    sent = [receive[0] for batch in batches for receive in batch["receives"]]
    assert sorted(sent) == sorted(USERS)
    rough.stop("gateway")
    rough.restart("redis")
    rough.start("gateway", "worker-1")
    wait_until(lambda: len(rows_of(rough_pg, one.coupon)) == len(USERS))
    assert rows_of(rough_pg, one.coupon) == sorted((user, 1) for user in USERS)
    users = rough_redis.hgetall(one.key + ":users")
    assert set(users) == set(USERS)
    rough_redis.flushall()
    wait_until(lambda: rough_redis.hgetall(one.key + ":users") == users)
    with rough.client() as client:
        wait_until(lambda: client.issue(one.coupon, "42", key="k")["code"] == 0)
        again = issue_all(client, one.coupon, USERS, key="k")
        for reply in again:
            assert client.call("status", receive=reply["receive"])["status"] == "issued"
    assert [reply["receive"] for reply in again] == [reply["receive"] for reply in replies]
    assert rough.ctl_run("audit", one.coupon).returncode == 0


def test_receives_that_are_lost(rough, rough_coupon, rough_redis):
    """The audit and rebuild --give-up-lost name each, in text and in JSON."""
    one = rough_coupon(1000)
    rough.stop("worker-1")
    with rough.client() as client:
        lost = issue_all(client, one.coupon, FEW, ack="queued")
        rough_redis.delete(one.key + ":outbox")
        purge(rough)
        rough.start("worker-1")
        receives = {reply["receive"]: user for user, reply in zip(FEW, lost)}
        result = rough.ctl_run("audit", one.coupon, "--grace", 0, "--json")
        told = json.loads(result.stdout)["wrong"]
        assert {finding["receive"]: finding["user"] for finding in told} == receives
        lines = rough.ctl_run("audit", one.coupon, "--grace", 0).stdout.splitlines()
        for receive, user in receives.items():
            place = f"coupon {one.coupon}, user {user}, slot 1, receive {receive}: "
            assert sum(place in line for line in lines) == 1
        freed = rough.ctl("rebuild", one.coupon, "--give-up-lost", "--older-than-s", 0)
        for receive, user in receives.items():
            assert f"lost: receive {receive}, user {user}, slot 1\n" in freed
            assert client.call("status", receive=receive)["reason"] == "lost"
        wait_until(lambda: one.field("stock") == "1000")
        issue_all(client, one.coupon, FEW, ack="issued")
    assert rough.ctl_run("audit", one.coupon).returncode == 0


def plant_rows(pg, coupon):
    """User coupons that are unknown to Redis. Returns the users' records for them."""
    records = {}
    for user in USERS:
        batch = ulid_make()
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from, key) VALUES (%s, %s, 1, 7, %s, now(), now(), %s)",
            (user, coupon, ulid_uuid(batch), user),
        )
        records[user] = f"1:{batch}:7:{user}"
    pg.execute("UPDATE coupon SET issued_num = %s WHERE id = %s", (len(USERS), coupon))
    pg.execute(
        "INSERT INTO coupon_generation VALUES (%s, 0, %s, %s)", (coupon, len(USERS), len(USERS))
    )
    return records


def test_every_byte_in_receives_that_are_rejected(gateway, make_coupon, pg, redis_client):
    """Their slots go to the receives that PostgreSQL has there, with keys of the same bytes."""
    one = Seen(make_coupon(1000), redis_client, pg)
    records = plant_rows(pg, one.coupon)
    replies = issue_all(gateway, one.coupon, USERS)
    for reply in replies:
        wait_until(
            lambda: gateway.call("status", receive=reply["receive"])["status"]  # noqa: B023
            == "rejected"
        )
    wait_until(lambda: redis_client.hgetall(one.key + ":users") == records)
    for user in USERS:
        told = gateway.call("status", coupon=one.coupon, user=user)["receives"]
        assert sorted(receive["state"] for receive in told) == ["issued", "rejected"]
    assert gateway.issue(one.coupon, "42", key="42")["receive"].endswith(".7")


# Logs


FIELD = r'[a-z_]+=(?:[^\s"=\\]+|"(?:[^"\\]|\\.)*")'


def fields_of(line, log_format):
    """The fields of a line of the log, which holds nothing else."""
    if log_format == "json":
        return json.loads(line)
    assert re.fullmatch(f"{FIELD}(?: {FIELD})*\n", line), line
    fields = [field.split("=", 1) for field in re.findall(FIELD, line)]
    assert len(fields) == len(dict(fields)), line
    return {name: json.loads(value) if value[0] == '"' else value for name, value in fields}


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_id_leaves_its_field_of_the_log(rough, rough_coupon, rough_pg, rough_redis, log_format):
    """Rejected receives whose records in Redis are malformed: their users are logged."""
    one = rough_coupon(10)
    rough.stop("worker-1")
    for user in FEW:
        rough_pg.execute(
            "INSERT INTO receive_rejected (coupon_id, batch, idx, user_id, slot, reason,"
            " received_at) VALUES (%s, %s, 0, %s, 1, 'slot_invalid', now())",
            (one.coupon, ulid_uuid(ulid_make()), user),
        )
        rough_redis.hset(one.key + ":users", user, "malformed")
    settings = {**rough.settings, "COUPON_LOG_FORMAT": log_format, "COUPON_TRACE": "all"}
    worker = Worker(rough, f"worker-{log_format}", settings)
    names = {"time", "level", "program", "event", "coupon", "user", "suppressed"}

    def users_named():
        lines = [fields_of(line, log_format) for line in worker.log().splitlines(True)]
        told = [line for line in lines if line["event"] == "slot_free_malformed"]
        assert all(line.keys() <= names and line["level"] == "error" for line in told)
        return {line["user"] for line in told}

    try:
        wait_until(lambda: users_named() == set(FEW))
    finally:
        rough_redis.delete(one.key + ":users")
        worker.end()
