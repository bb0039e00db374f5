"""couponctl dead: messages that workers cannot settle are listed, shown, sent again and removed,
and no owed receive is lost."""

import base64
import hashlib
import json
import os
import subprocess

import pika
import pytest

from history import DEAD_QUEUE, QUEUE, USE_QUEUE, History, queue_length
from message import message
from relay import Relay
from stack import wait_until
from ulid import ulid_make
from unstorable import nothing_storable
from user_ids import HOSTILE, receive_parts

BASIC_ACK = b"\x00\x3c\x00\x50"  # class and method, as in a frame


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        yield connection.channel()


@pytest.fixture
def dead(rough, amqp_rough):
    """The stack, with nothing in its dead-letter queue."""
    amqp_rough.queue_purge(DEAD_QUEUE)
    yield rough
    amqp_rough.queue_purge(DEAD_QUEUE)


@pytest.fixture
def history(dead):
    return History(dead, dead.coupon_make(1000, 2), 1000, 2)


def publish(channel, body, **properties):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    channel.basic_publish(
        "coupon.topic", "coupon.receive", body, pika.BasicProperties(delivery_mode=2, **properties)
    )


def dead_wait(stack, count):
    wait_until(lambda: queue_length(stack, DEAD_QUEUE) == count)


def listed(stack, *arguments):
    return json.loads(stack.ctl("dead", "list", "--json", *arguments))


def unstorable(stack, history, users, ordered=False):
    """Accepted receives of these users, each in a message of its own, all of them dead-lettered;
    twice, where a busy machine let the keeper send one again before it was. Two workers
    dead-letter them in any order, unless each is waited for."""
    before = queue_length(stack, DEAD_QUEUE)
    with nothing_storable(stack), stack.client() as client:
        for number, user in enumerate(users, 1):
            assert history.ask(client, user)["code"] == 0
            if ordered or number == len(users):
                wait_until(lambda: queue_length(stack, DEAD_QUEUE) >= before + number)


# list, show


def test_an_empty_queue(dead):
    assert dead.ctl("dead", "list") == f"{DEAD_QUEUE} is empty"
    assert listed(dead) == {"queue": DEAD_QUEUE, "count": 0, "messages": []}
    assert dead.ctl("dead", "requeue", "--all") == "0 messages requeued"
    result = dead.ctl_run("dead", "show", 1)
    assert (result.returncode, result.stdout) == (9, "") and "no dead letter 1" in result.stderr


def test_list_tells_what_can_be_read_and_takes_nothing(dead, amqp_rough):
    newer = message(1001, v=9, receives=[["42", 1, ""], ["43", 1, ""]])
    bodies = [b"hello", newer, b"\xff\xfe", b""]
    for number, body in enumerate(bodies, 1):
        publish(amqp_rough, body)
        dead_wait(dead, number)  # so that their order is known
    for _ in range(2):
        told = listed(dead)
        assert told["count"] == 4
        assert [one["number"] for one in told["messages"]] == [1, 2, 3, 4]
        assert [one["batch"] for one in told["messages"]] == [None, newer["batch"], None, None]
        assert [one["bytes"] for one in told["messages"]] == [5, len(json.dumps(newer)), 2, 0]
        assert (told["messages"][1]["coupon"], told["messages"][1]["receives"]) == ("1001", 2)
        assert all(
            one["reason"].startswith("unreadable: ") and not one["readable"]
            for one in told["messages"]
        )
        assert "version" in told["messages"][1]["reason"]
        dead_wait(dead, 4)
    page = listed(dead, "--count", 2)
    assert [one["number"] for one in listed(dead, "--after", 3)["messages"]] == [4]
    assert (page["count"], [one["number"] for one in page["messages"]]) == (4, [1, 2])
    text = dead.ctl("dead", "list", "--count", 3)
    assert "has 4 messages" in text and newer["batch"] in text and text.endswith("1 more")


def test_show_prints_all_of_it_and_obeys_nothing(dead, amqp_rough):
    newer = message(1001, v=9)
    publish(
        amqp_rough, newer, message_id="m-1", correlation_id="c-1", content_type="application/json"
    )
    dead_wait(dead, 1)
    publish(amqp_rough, b"\x1b[31mred\xff")
    dead_wait(dead, 2)
    for which in (1, newer["batch"]):
        shown = json.loads(dead.ctl("dead", "show", which, "--json"))
        assert json.loads(shown["body"]) == newer and shown["unreadable"] == "unknown version"
        named = {
            "message_id": "m-1",
            "correlation_id": "c-1",
            "content_type": "application/json",
            "delivery_mode": 2,
        }
        assert shown["properties"] == named
        assert (
            shown["headers"]["x-couponmq-reason"]
            == shown["reason"]
            == "unreadable: unknown version"
        )
    second = json.loads(dead.ctl("dead", "show", 2, "--json"))
    assert base64.b64decode(second["body_base64"]) == b"\x1b[31mred\xff" and "body" not in second
    text = dead.ctl("dead", "show", 2)
    assert "\\x1b[31mred\\xff" in text and "\x1b" not in text
    assert "message_id: m-1" in dead.ctl("dead", "show", 1)
    assert second["digest"] == hashlib.sha256(b"\x1b[31mred\xff").hexdigest()[:32]
    same = json.loads(dead.ctl("dead", "show", second["digest"], "--json"))
    assert (same["number"], same["body_base64"]) == (2, second["body_base64"])
    for absent in (ulid_make(), "0" * 31 + "1"):
        missing = dead.ctl_run("dead", "show", absent)
        assert missing.returncode == 9 and "none of the 2 messages" in missing.stderr
    dead_wait(dead, 2)


@pytest.mark.parametrize(
    "arguments, told",
    [
        ([], "needs a command"),
        (["bury"], '"bury"'),
        (["show"], "N|BATCH"),
        (["show", "0"], '"0"'),
        (["show", "01jd"], '"01jd"'),
        (["list", "--count", "100001"], "1 to 100000"),
        (["requeue"], "--all"),
        (["requeue", "1", "--all"], "--all"),
        (["remove", "--yes"], "--count"),
        (["remove", "--count", "0", "--yes"], "--count"),
    ],
)
def test_a_wrong_command_line(stack, arguments, told):
    result = stack.ctl_run("dead", *arguments)
    assert (result.returncode, result.stdout) == (2, "") and told in result.stderr
    assert result.stderr.startswith("couponctl: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["list"], ["show", 1], ["requeue", "--all"], ["remove", "--all", "--yes"]]
)
def test_without_rabbitmq_it_says_so(stack, command):
    result = stack.ctl_run("dead", *command, "--amqp-url", "amqp://a:b@127.0.0.1:9/%2f")
    assert result.returncode == 10 and "RabbitMQ" in result.stderr and "AMQP_URL" in result.stderr


def test_their_order_stays_whatever_is_looked_at(dead, amqp_rough):
    for number in range(150):
        amqp_rough.basic_publish(
            "coupon.dlx", "x", b"%d" % number, pika.BasicProperties(delivery_mode=2)
        )
    dead_wait(dead, 150)

    def order():
        whole = listed(dead, "--count", 1000)["messages"]
        dead_wait(dead, 150)
        return [(one["number"], one["bytes"]) for one in whole]

    first = order()
    assert [number for number, _ in first] == list(range(1, 151)) and first[9:11] == [
        (10, 1),
        (11, 2),
    ]
    assert [one["reason"] for one in listed(dead, "--count", 3)["messages"]] == [None] * 3
    dead_wait(dead, 150)
    for number in (1, 70, 150):
        assert json.loads(dead.ctl("dead", "show", number, "--json"))["body"] == str(number - 1)
        dead_wait(dead, 150)
    assert dead.ctl("dead", "remove", 100, "--yes")
    dead_wait(dead, 149)
    bodies = [amqp_rough.basic_get(DEAD_QUEUE, auto_ack=True)[2] for _ in range(149)]
    assert bodies == [b"%d" % number for number in range(150) if number != 99]


# requeue


def test_what_was_unstorable_for_a_while_is_settled_after_requeue(dead, history):
    unstorable(dead, history, HOSTILE[7:14], ordered=True)
    told = listed(dead)
    assert told["count"] == 7
    for one, asked in zip(told["messages"], history.asked):
        coupon, _, batch, _ = receive_parts(asked.receive)
        assert (one["coupon"], one["batch"], one["receives"]) == (coupon, batch, 1)
        assert one["reason"] == "unstorable: SQLSTATE 23514" and one["readable"]
    batch = told["messages"][4]["batch"]
    assert dead.ctl("dead", "requeue", batch) == "1 message requeued"
    dead_wait(dead, 6)
    assert batch not in [one["batch"] for one in listed(dead)["messages"]]
    assert dead.ctl("dead", "requeue", 1) == "1 message requeued"
    assert dead.ctl("dead", "requeue", "--count", 2) == "2 messages requeued"
    left = [one["batch"] for one in told["messages"] if one["batch"] != batch][3:]
    assert [one["batch"] for one in listed(dead)["messages"]] == left
    assert dead.ctl("dead", "requeue", "--all") == "3 messages requeued"
    assert history.judge() == 7
    dead_wait(dead, 0)


def test_many_are_requeued_in_several_rounds(dead, history):
    unstorable(dead, history, range(1, 151))
    count, words = dead.ctl("dead", "requeue", "--all").split(" ", 1)
    assert int(count) >= 150 and words == "messages requeued"
    assert history.judge() == 150
    dead_wait(dead, 0)


def test_what_is_still_unstorable_comes_back_once(dead, history):
    unstorable(dead, history, [1, 2])
    with nothing_storable(dead):
        assert (
            dead.ctl("dead", "requeue", "--all") == "2 messages requeued"
        ), "not those that returned meanwhile"
        # More, where the keeper has sent one again between its mark's removal and its return.
        wait_until(lambda: queue_length(dead, DEAD_QUEUE) >= 2)
    dead.ctl("dead", "requeue", "--all")
    assert history.judge() == 2
    dead_wait(dead, 0)


def test_killed_between_publish_and_ack_nothing_is_lost_or_settled_twice(dead, history):
    unstorable(dead, history, range(1, 4))
    proxy = Relay(pika.URLParameters(dead.env["AMQP_URL"]).port)
    proxy.trap(BASIC_ACK)
    command = [
        str(dead.build_dir / "couponctl"),
        "dead",
        "requeue",
        "--all",
        "--amqp-url",
        proxy.url(dead.env["AMQP_URL"]),
    ]
    requeue = subprocess.Popen(
        command, env={**os.environ, **dead.env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_until(proxy.trapped_num)  # it is confirmed, and would be acked
    finally:
        requeue.kill()
        requeue.communicate()
        proxy.close()
    dead_wait(dead, 3)
    assert history.judge() == 3, "the copies that were published are settled"
    assert dead.ctl("dead", "requeue", "--all") == "3 messages requeued"
    dead_wait(dead, 0)
    wait_until(lambda: queue_length(dead) == 0)
    assert history.judge() == 3, "and the second copies change nothing"


def test_nothing_leaves_when_no_queue_takes_it(dead, history, amqp_rough):
    unstorable(dead, history, [1, 2])
    amqp_rough.queue_unbind(QUEUE, "coupon.topic", "coupon.receive")
    try:
        result = dead.ctl_run("dead", "requeue", "--all")
        assert (
            result.returncode == 7
            and "no queue took a message" in result.stderr
            and DEAD_QUEUE in result.stderr
        )
        assert result.stdout == "0 messages requeued\n"
    finally:
        amqp_rough.queue_bind(QUEUE, "coupon.topic", "coupon.receive")
    dead_wait(dead, 2)
    dead.ctl("dead", "requeue", "--all")
    assert history.judge() == 2


# remove


def test_remove_names_what_is_owed_and_needs_yes(dead, history, amqp_rough):
    users = ["1.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0", '"],["43",1,""']
    unstorable(dead, history, users, ordered=True)
    publish(amqp_rough, b"hello")
    dead_wait(dead, 3)
    owed = [f"owed: {asked.receive}" for asked in history.asked]
    result = dead.ctl_run("dead", "remove", "--all")
    assert result.returncode == 1 and "--yes" in result.stderr
    told = dead.ctl_run("dead", "remove", "--all", "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert (told.returncode, [one["removed"] for one in lines]) == (1, [False] * 3)
    assert [one["owed"] for one in lines] == [*([a.receive] for a in history.asked), []]
    assert [one["readable"] for one in lines] == [True, True, False]
    assert [line.strip() for line in result.stdout.splitlines() if "owed: " in line] == owed
    assert (
        "would remove 3: 5 bytes; unreadable" in result.stdout and "cannot be read" in result.stdout
    )
    dead_wait(dead, 3)
    assert (
        dead.ctl("dead", "remove", 3, "--yes").splitlines()[-1]
        == "1 message removed, with 0 receives that were owed"
    )
    dead_wait(dead, 2)
    batch = receive_parts(history.asked[0].receive)[2]
    assert dead.ctl_run("dead", "remove", lines[2]["digest"], "--yes").returncode == 9
    removed = dead.ctl("dead", "remove", batch, "--yes").splitlines()
    assert removed[0].startswith(f"removed 1: coupon {history.coupon}, batch {batch}, 1 receive")
    assert (
        removed[1].strip() == owed[0]
        and removed[-1] == "1 message removed, with 1 receive that was owed"
    )
    assert [one["batch"] for one in listed(dead)["messages"]] == [
        receive_parts(history.asked[1].receive)[2]
    ]


def test_remove_of_a_copy_whose_receive_is_settled_owes_nothing(dead, history, amqp_rough):
    unstorable(dead, history, [1])
    body = json.loads(dead.ctl("dead", "show", 1, "--json"))["body"].encode()
    publish(amqp_rough, body)  # another copy, which can be stored by now
    assert history.judge() == 1
    removed = dead.ctl("dead", "remove", "--all", "--yes").splitlines()
    assert len(removed) == 2 and removed[-1] == "1 message removed, with 0 receives that were owed"
    dead_wait(dead, 0)


def test_of_uses(dead, amqp_rough):
    """They are sent to their own queue again, and no receive is owed for them."""
    use = ["use", "order-77", "key-1", "", 0, None, "", "", [["100001", "42", ulid_make(), 0]]]
    body = {"v": 1, "batch": ulid_make(), "at": 1, "uses": [use]}
    dead.stop("worker-1")
    amqp_rough.basic_publish(
        "coupon.dlx",
        "coupon.use",
        json.dumps(body).encode(),
        pika.BasicProperties(delivery_mode=2, type="couponmq.use"),
    )
    dead_wait(dead, 1)
    (one,) = listed(dead)["messages"]
    assert (one["batch"], one["receives"], one["readable"]) == (body["batch"], 1, True)
    assert "with 0 receives that were owed" in dead.ctl_run("dead", "remove", 1).stdout
    dead.ctl("dead", "requeue", 1)
    wait_until(lambda: queue_length(dead, USE_QUEUE) == 1)
    _, properties, again = amqp_rough.basic_get(USE_QUEUE, auto_ack=True)
    assert json.loads(again) == body and properties.type == "couponmq.use"
    dead.start("worker-1")


def test_remove_without_postgresql_drops_nothing_it_cannot_judge(dead, history):
    unstorable(dead, history, [1])
    result = dead.ctl_run(
        "dead", "remove", "--all", "--yes", "--database-url", "postgresql://a:b@127.0.0.1:9/x"
    )
    assert result.returncode == 10 and "PostgreSQL" in result.stderr
    dead_wait(dead, 1)
