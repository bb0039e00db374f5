"""couponctl trace: what happened to a receive, told by every store that it came to."""

import json

import pika
import pytest

from history import DEAD_QUEUE, queue_length
from message import message, message_publish
from stack import ROOT, wait_until
from unstorable import nothing_storable

SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def letters(rough):
    """A channel, with nothing in the dead-letter queue."""
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)
        yield channel
        channel.queue_purge(DEAD_QUEUE)


def traced(stack, *words, status=0):
    result = stack.ctl_run("trace", *words, "--json")
    assert result.returncode == status, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_issued_receive(stack, gateway):
    coupon = stack.coupon_make(5)
    user = 'a.b"c\\'
    receive = gateway.issue(coupon, user, key="k 1", ack="issued")["receive"]
    wait_until(lambda: traced(stack, receive)[0]["outbox"] is None)
    told = traced(stack, receive)[0]
    assert (told["receive"], told["state"]) == (receive, "issued")
    assert told["redis"] == {
        "loaded": True, "verified": True, "slot": 1, "key": "k 1", "code": None,
    }  # fmt: skip
    assert told["queue"]["consumers"] > 0 and told["dead_letter"] is None
    assert told["postgresql"]["key"] == "k 1" and told["postgresql"]["reason"] is None
    assert told["gateway"]["made_at"] <= told["postgresql"]["received_at"]
    assert told["void"]["at"] is None and told["events"] == {"on": False, "waiting": []}
    text = stack.ctl("trace", receive)
    assert text.startswith(f"receive {receive}: issued\n") and "slot 1, key k 1" in text
    assert "its message does not wait" in text and "events       off" in text


def test_all_receives_of_a_user(stack, gateway):
    coupon = stack.coupon_make(5, limit=3)
    receives = [gateway.issue(coupon, 7, ack="issued")["receive"] for _ in range(3)]
    stack.ctl("void", receives[1], "--why", "fraud", "--by", "ann")
    told = {one["receive"]: one for one in traced(stack, "--coupon", coupon, "--user", 7)}
    assert set(told) == set(receives)
    assert [told[one]["state"] for one in receives] == ["issued", "rejected", "issued"]
    voided = told[receives[1]]
    assert (voided["postgresql"]["reason"], voided["redis"].get("slot")) == ("voided", None)
    assert (voided["void"]["by"], voided["void"]["why"]) == ("ann", "fraud")
    assert voided["void"]["returned"] is True and voided["postgresql"]["rejected_at"]
    text = stack.ctl("trace", receives[1])
    assert ": rejected (voided)\n" in text and "by ann: fraud; its slot came back" in text
    assert stack.ctl("trace", "--coupon", coupon, "--user", 7).count("\nreceive ") == 2


def test_what_nobody_knows(stack, gateway):
    coupon = stack.coupon_make(5)
    receive = gateway.issue(coupon, 7, ack="issued")["receive"]
    for other in (receive.replace(".7.", ".8."), receive[:-1] + "1", f"7{receive}"):
        assert traced(stack, other, status=9)[0]["state"] is None
        assert ": not known\n" in stack.ctl_run("trace", other).stdout
    result = stack.ctl_run("trace", "--coupon", coupon, "--user", 8)
    assert (result.returncode, result.stdout) == (9, "")
    assert f"user 8 has no receive of coupon {coupon}" in result.stderr


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["1.2.3.4"], 'RECEIVE is "1.2.3.4": allowed is <coupon>.<user>.<batch>.<index>'),
        ([], "--coupon"),
        (["--coupon", 1], "--user"),
        (["--coupon", "x", "--user", 1], '--coupon is "x"'),
        (["--coupon", 1, "--user", "a b"], '--user is "a b": byte 2 is not allowed'),
        (["1.2.01M8CEE3XXNPGJT5R7T4JF6H6M.0", "--user", 1], "not both"),
    ],
)
def test_wrong_words(stack, words, sentence):
    result = stack.ctl_run("trace", *words)
    assert (result.returncode, result.stdout) == (2, "") and sentence in result.stderr


def test_on_its_way_without_a_worker(rough):
    """In Redis, outbox and queue; then in PostgreSQL, its events and a webhook."""
    coupon = rough.coupon_make(5, events="on")
    rough.stop("worker-1", "worker-2")
    with rough.client() as client:
        receive = client.issue(coupon, 7, ack="queued", trace=SPAN)["receive"]
    told = traced(rough, receive)[0]
    assert (told["state"], told["postgresql"]["state"]) == ("accepted", None)
    assert told["redis"]["slot"] == 1 and told["outbox"]["accepted_at"]
    assert (told["outbox"]["generation"], told["outbox"]["seq"]) == (1, 1)
    assert told["gateway"]["trace"].startswith(SPAN)
    assert told["queue"]["ready"] >= 1 and told["queue"]["consumers"] == 0
    stranger = receive.replace(".7.", ".8.")
    assert traced(rough, stranger, status=9)[0]["outbox"] is None, "its batch has another user"
    assert ": accepted\n" in rough.ctl("trace", receive)
    rough.stop("gateway")
    webhook = json.loads(rough.ctl("webhook", "create", "https://example.invalid/hook", "--json"))
    try:
        rough.start("worker-1")
        wait_until(lambda: traced(rough, receive)[0]["state"] == "issued")
        wait_until(lambda: traced(rough, receive)[0]["events"] == {"on": True, "waiting": []})
        hook = next(
            one
            for one in traced(rough, receive)[0]["webhooks"]
            if one["webhook"] == webhook["webhook"]
        )
        assert (hook["state"], hook["type"]) == ("enabled", "coupon.issued")
        assert hook["delivery_state"] in ("waiting", "sending")
        assert f"delivery {hook['delivery']} (coupon.issued) is" in rough.ctl("trace", receive)
    finally:
        rough.ctl("webhook", "remove", webhook["webhook"])


def test_a_dead_letter(rough, letters):
    coupon = rough.coupon_make(5)
    with nothing_storable(rough), rough.client() as client:
        receive = client.issue(coupon, 7)["receive"]
        wait_until(lambda: queue_length(rough, DEAD_QUEUE) > 0)
    wait_until(lambda: traced(rough, receive)[0]["dead_marked"])
    told = traced(rough, receive)[0]
    assert told["state"] == "accepted" and told["dead_letter"]["number"] == 1
    assert "SQLSTATE 23514" in told["dead_letter"]["reason"]
    assert "dead letter  number 1: " in rough.ctl("trace", receive)
    rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: traced(rough, receive)[0]["state"] == "issued")
    assert traced(rough, receive)[0]["dead_letter"] is None


def test_dead_letters_are_looked_through_once(rough, letters):
    """For all receives of a user; of those with an outcome nothing is asked."""
    coupon = rough.coupon_make(5, limit=3)
    with rough.client() as client:
        settled = client.issue(coupon, 7, ack="issued")["receive"]
        with nothing_storable(rough):
            dead = [client.issue(coupon, 7)["receive"] for _ in range(2)]
            wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 2)
    told = {one["receive"]: one for one in traced(rough, "--coupon", coupon, "--user", 7)}
    assert {told[one]["dead_letter"]["number"] for one in dead} == {1, 2}
    assert told[settled]["dead_letter"] is told[settled]["dead_letter_unknown"] is None
    taken = letters.basic_get(DEAD_QUEUE)[1] and letters.basic_get(DEAD_QUEUE)[1]
    assert taken.headers["x-delivery-count"] == 1
    letters.basic_recover(requeue=True)


def test_dead_letters_that_cannot_be_looked_at(rough, letters):
    """The rest is told all the same."""
    coupon = rough.coupon_make(5)
    with nothing_storable(rough), rough.client() as client:
        receive = client.issue(coupon, 7)["receive"]
        wait_until(lambda: queue_length(rough, DEAD_QUEUE) > 0)
    wait_until(lambda: traced(rough, receive)[0]["dead_marked"])
    (given,) = [
        one
        for one in json.loads((ROOT / "deploy/rabbitmq.json").read_text())["permissions"]
        if one["user"] == "couponmq_operator"
    ]
    rights = ("set_permissions", given["user"], given["configure"], given["write"])
    rough.rabbitmqctl(*rights, f"^(?!{DEAD_QUEUE}$).*")
    try:
        result = rough.ctl_run("trace", receive)
        assert result.returncode == 10 and "ACCESS_REFUSED" in result.stderr
        assert "dead letter  unknown: RabbitMQ is away, or refuses it\n" in result.stdout
        assert "slot 1" in result.stdout and "PostgreSQL   no outcome" in result.stdout
        told = traced(rough, receive, status=10)[0]
        assert told["dead_letter"] is None and told["dead_letter_unknown"]
    finally:
        rough.rabbitmqctl(*rights, given["read"])


def test_a_dead_letter_that_no_program_can_read(rough, letters):
    """It is all that is known of its receive."""
    body = message(rough.coupon_make(5), v=9)
    message_publish(letters, body)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) > 0)
    receive = f"{body['coupon']}.42.{body['batch']}.0"
    told = traced(rough, receive)[0]
    assert told["state"] == "accepted" and "version" in told["dead_letter"]["reason"]


@pytest.mark.parametrize("store, part", [("redis", "redis"), ("rabbitmq", "queue")])
def test_a_store_that_is_away_is_told_in_its_place(rough, store, part):
    coupon = rough.coupon_make(5)
    with rough.client() as client:
        receive = client.issue(coupon, 7, ack="issued")["receive"]
    rough.stop(store)
    try:
        told = traced(rough, receive, status=10)[0]
        assert told["state"] == "issued" and told[part]["error"]
        assert told[part]["error"] in rough.ctl_run("trace", receive).stdout
        if store == "redis":
            told = traced(rough, "--coupon", coupon, "--user", 7, status=10)[0]
            assert told["receive"] == receive
    finally:
        rough.start(store)
