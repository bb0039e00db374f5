"""Events: each is published at least once, in the order of the commits of its coupon, whatever
dies; what a subscriber gets is what docs/reference/asyncapi.json says."""

import json
import random
import subprocess
import threading

import psycopg
import pytest
import requests

from events import in_order
from history import QUEUE
from process import Worker, confirmed_wait, metrics_read
from relay import Relay, port_of
from stack import wait_until, with_faults
from ulid import ulid_make, ulid_uuid

SETTLE = (
    "SELECT * FROM settle(ARRAY[%s]::bigint[], ARRAY[1], ARRAY[1]::bigint[], ARRAY[%s]::uuid[],"
    " ARRAY[0]::smallint[], ARRAY[%s], ARRAY[1]::smallint[], ARRAY[''],"
    " '{}', ARRAY[1700000000123]::bigint[], '{}')"
)
FAILURES = "couponmq_worker_relay_failures_total"


@pytest.fixture
def coupon_on(subscriber):
    """coupon_on(STACK, total): a coupon with events, and a subscriber to them."""

    def make(stack, total=100, name="", **terms):
        coupon = str(random.SystemRandom().randrange(10**17, 10**18))
        own = subscriber(stack, f"event.{coupon}.#", name=name)  # before its first event
        stack.coupon_make(total, events="on", id=coupon, **terms)
        return coupon, own

    return make


def issue(client, coupon, *users, **members):
    """The receives, which are issued."""
    replies = client.pipeline(
        [
            {"op": "issue", "coupon": coupon, "user": str(user), "ack": "issued", **members}
            for user in users
        ]
    )
    assert {reply["status"] for reply in replies} == {"issued"}, replies
    return [reply["receive"] for reply in replies]


def issued_in(events):
    return {event["data"]["receive"] for event in events if event["type"] == "coupon.issued"}


def log_is_empty(pg):
    return pg.execute("SELECT count(*) FROM event_log").fetchone() == (0,)


def plant(pg, coupon, user):
    """A row that Redis does not know: the next receive of this user is rejected."""
    pg.execute(
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, 1, 0, %s, now(), now())",
        (user, coupon, ulid_uuid(ulid_make())),
    )
    pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))


def test_every_type(stack, gateway, pg, coupon_on):
    coupon, events = coupon_on(stack, valid_days=2)
    (receive,) = issue(gateway, coupon, 'a"b\\c|d', key="order 77")
    plant(pg, coupon, "7")
    rejected = gateway.issue(coupon, "7", ack="issued")
    assert rejected["status"] == "rejected"
    stack.ctl("void", receive, "--why", 'the "card"', "--by", "ann")
    version = json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["version"]
    stack.ctl("edit", coupon, "--version", version, "--name", "Møøse \U0001f98c", "--by", "bob")
    stack.ctl("pause", coupon)
    wait_until(lambda: len(events.read()) >= 7)
    assert [event["type"] for event in events.read()][-5:] == [
        "coupon.issued",
        "coupon.rejected",
        "coupon.voided",
        "campaign.changed",
        "campaign.changed",
    ]
    issued, rejection, voided, edited, paused = (event["data"] for event in events.read()[-5:])
    assert (issued["user"], issued["receive"], issued["key"]) == ('a"b\\c|d', receive, "order 77")
    stored = gateway.call("status", receive=receive)
    assert stored["reason"] == "voided"
    assert issued["valid_from"] == issued["received_at"] < issued["valid_to"]
    assert (rejection["receive"], rejection["reason"]) == (rejected["receive"], "slot_taken")
    assert (voided["receive"], voided["why"], voided["by"]) == (receive, 'the "card"', "ann")
    assert voided["returned"] is True
    assert edited["changes"] == {"name": ["test", "Møøse \U0001f98c"]} and edited["by"] == "bob"
    assert (edited["action"], edited["version"]) == ("edit", version + 1)
    assert (paused["action"], paused["from"], paused["to"]) == ("pause", "issuing", "paused")
    assert in_order(events.read()) and len(set(events.ids())) == len(events.ids())
    assert events.events[2]["id"] == f"{'.'.join(receive.rsplit('.', 2)[1:])}/issued"


def test_what_orders_do(stack, gateway, coupon_on):
    coupon, events = coupon_on(stack, amount_off="5.00", currency="EUR")
    (receive,) = issue(gateway, coupon, 'a"b\\c|d')

    def ask(op, order, **members):
        reply = gateway.call(op, receive=receive, order=order, **members)
        assert reply["code"] == 0, reply
        return reply

    asked = {"amount": 1000, "currency": "EUR", "key": receive, "ttl_s": 1}
    held = ask("hold", 'order "1"', **asked)
    again = ask("hold", 'order "1"', **asked)
    assert again.pop("replayed") and again.pop("now")["state"] in ("held", "free")
    assert again == held
    wait_until(lambda: events.of("coupon.released"))
    ask("hold", "order-2")
    ask("release", "order-2")
    ask("use", "order-3")
    assert gateway.call("use", receive=receive, order="order-4")["code"] == 11
    ask("rollback", "order-3", reason='sent "back"')
    wait_until(lambda: events.of("coupon.rolled_back"))
    told = events.read()[-6:]
    assert [event["type"] for event in told] == [
        "coupon.held",
        "coupon.released",
        "coupon.held",
        "coupon.released",
        "coupon.used",
        "coupon.rolled_back",
    ]
    first, ended, _, given_up, used, rolled_back = (event["data"] for event in told)
    who = {"coupon": coupon, "user": 'a"b\\c|d', "receive": receive}
    off = {"amount_off": 500, "currency": "EUR"}
    assert first == {
        **who,
        **off,
        "order": 'order "1"',
        "amount": 1000,
        "until": held["until"],
    }
    assert ended == {**who, "order": 'order "1"', "reason": "hold_ended"}
    assert given_up == {**who, "order": "order-2"}
    assert used == {**who, **off, "order": "order-3"}
    assert rolled_back == {**who, "order": "order-3", "reason": 'sent "back"'}
    assert in_order(events.read()) and len(set(events.ids())) == len(events.ids())


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TRACED = (f"trace={TRACE}", f"span={SPAN}")


def traced_in(log):
    """The words of each line of a traced receive."""
    return [set(line.split()) for line in log.splitlines() if "event=receive_traced" in line]


def test_a_trace_is_handed_on(rough, rough_pg, worker_make, coupon_on):
    """To the message, which is sent again after the queue has lost it; to the events, and to the
    logs of gateway and worker."""
    coupon, events = coupon_on(rough, name="traced")
    parent, unsampled = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
    rough.stop("worker-1")
    asked = [
        ("1", {}),
        ("2", {"traceparent": parent}),
        ("3", {"traceparent": parent, "X-Request-Id": 'order"77'}),
        ("4", {"traceparent": unsampled, "X-Request-Id": "order-78"}),
        ("5", {"X-Request-Id": "order-79"}),
    ]
    receives = {}
    for user, headers in asked:
        body = {"coupon": coupon, "user": user}
        reply = requests.post(rough.http("/v1/issue"), json=body, headers=headers, timeout=60)
        receives[user] = reply.json()["receive"]
    with rough.client() as client:
        receives["6"] = client.issue(coupon, "6", trace=parent)["receive"]
        plant(rough_pg, coupon, "7")
        receives["7"] = client.issue(coupon, "7", trace=parent)["receive"]
    confirmed_wait(rough)
    rough.rabbitmqctl("purge_queue", QUEUE)
    worker = worker_make(rough)
    wait_until(lambda: len(events.of("coupon.issued")) == 6 and events.of("coupon.rejected"))
    of_user = {
        event["data"]["user"]: (event.get("traceparent"), event.get("requestid"))
        for event in events.of("coupon.issued") + events.of("coupon.rejected")
    }
    assert of_user == {
        "1": (None, None),
        "2": (parent, None),
        "3": (parent, 'order"77'),
        "4": (None, None),
        "5": (None, None),
        "6": (parent, None),
        "7": (parent, None),
    }
    traced = {user: {f"receive={receives[user]}", *TRACED} for user in "2367"}
    for log, outcomes in (
        (rough.log("gateway"), dict.fromkeys("2367", "accepted")),
        (worker.log(), {**dict.fromkeys("236", "issued"), "7": "rejected"}),
    ):
        lines = traced_in(log)
        for user, outcome in outcomes.items():
            assert any({*traced[user], f"outcome={outcome}"} <= words for words in lines), user
        for user in "145":
            assert not any(f"receive={receives[user]}" in words for words in lines)


def test_events_and_receives_have_exchanges_of_their_own(stack, gateway, amqp, coupon_on):
    keys = {}
    for exchange in ("coupon.topic", "coupon.event"):
        queue = amqp.queue_declare("", exclusive=True).method.queue
        amqp.queue_bind(queue, exchange, "#")
        keys[exchange] = queue
    coupon, events = coupon_on(stack)
    issue(gateway, coupon, 1, 2)
    wait_until(lambda: len(events.of("coupon.issued")) == 2, timeout=60)
    for exchange, queue in keys.items():
        keys[exchange] = set()
        while (message := amqp.basic_get(queue, auto_ack=True))[0]:
            keys[exchange].add(message[0].routing_key)
    # Other tests may have coupons that are locked.
    assert {"coupon.receive"} <= keys["coupon.topic"] <= {"coupon.receive", "coupon.parked"}
    assert all(key.startswith("event.") for key in keys["coupon.event"])
    assert f"event.{coupon}.coupon.issued" in keys["coupon.event"]


@pytest.mark.parametrize(
    "terms",
    [
        {"valid_days": 3},
        {"valid_from": "2030-01-01T00:00:00Z", "valid_to": "2030-02-01T00:00:00.5Z"},
    ],
)
def test_validity_is_that_of_the_coupon(stack, gateway, coupon_on, terms):
    coupon, events = coupon_on(stack, **terms)
    issue(gateway, coupon, 1)
    (event,) = wait_until(lambda: events.of("coupon.issued"))
    (told,) = gateway.call("coupons", user=1, limit=1)["coupons"]
    assert told["coupon"] == coupon
    assert {name: event["data"][name] for name in ("received_at", "valid_from", "valid_to")} == {
        name: told[name] for name in ("received_at", "valid_from", "valid_to")
    }


def test_a_coupon_without_events(stack, gateway, subscriber, pg):
    coupon = stack.coupon_make(10)
    everything = subscriber(stack, "event.#")
    issue(gateway, coupon, 1, 2)
    assert "events" not in stack.ctl("show", coupon)
    assert json.loads(stack.ctl("show", coupon, "--json"))["events"] is False
    stack.ctl("edit", coupon, "--version", 2, "--events", "on")
    (receive,) = issue(gateway, coupon, 3)
    wait_until(lambda: receive in issued_in(everything.read()))
    mine = [event for event in everything.read() if event["subject"] == coupon]
    assert [event["type"] for event in mine] == ["campaign.changed", "coupon.issued"]
    assert mine[0]["data"]["changes"] == {"events_on": [False, True]}
    assert "events       on" in stack.ctl("show", coupon)
    stack.ctl("edit", coupon, "--version", 3, "--events", "off")
    issue(gateway, coupon, 4)
    wait_until(lambda: len(everything.of("campaign.changed")) >= 2)
    wait_until(lambda: log_is_empty(pg))
    assert len([event for event in everything.read() if event["subject"] == coupon]) == 3


def test_many_of_several_coupons_are_complete_and_in_order(stack, gateway, pg, coupon_on):
    made = [coupon_on(stack, total=2000, limit=2) for _ in range(3)]
    coupons = [coupon for coupon, _ in made]
    receives = []

    def load(first):
        with stack.client() as client:
            for user in range(first, first + 400, 40):
                for coupon in coupons:
                    receives.extend(issue(client, coupon, *range(user, user + 40)))

    threads = [threading.Thread(target=load, args=(first,)) for first in (1000, 2000)]
    for thread in threads:
        thread.start()
    for number in range(3):
        for coupon in coupons:
            stack.ctl("stock", coupon, "--total", 2001 + number)
    for thread in threads:
        thread.join()
    voided = receives[::50]
    for receive in voided:
        stack.ctl("void", receive)
    wait_until(lambda: log_is_empty(pg))
    assert len(receives) == 2400
    wait_until(lambda: len(set().union(*(issued_in(own.read()) for _, own in made))) == 2400)
    for coupon, own in made:
        firsts = own.firsts()
        assert in_order(firsts)
        assert issued_in(firsts) == {one for one in receives if one.split(".")[0] == coupon}
        order = [event["data"].get("receive") for event in firsts]
        types = [event["type"] for event in firsts]
        assert types.count("campaign.changed") == 5
        for receive in voided:
            if receive.split(".")[0] == coupon:
                places = [place for place, one in enumerate(order) if one == receive]
                assert [types[place] for place in places] == ["coupon.issued", "coupon.voided"]
        assert own.messages < len(own.events), "several events are one message"


def test_a_transaction_that_commits_late_is_not_left_out(stack, gateway, pg, coupon_on):
    """An operator's or a slow worker's. Meanwhile the events of other coupons are published."""
    late, its = coupon_on(stack)
    coupon, events = coupon_on(stack)
    batch = ulid_make()
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as slow:
        slow.execute(SETTLE, (late, ulid_uuid(batch), "slow"))
        (receive,) = issue(gateway, coupon, 1)
        wait_until(lambda: receive in issued_in(events.read()))
        wait_until(lambda: log_is_empty(pg))
        assert its.of("coupon.issued") == []
        slow.commit()
    wait_until(lambda: its.ids()[-1] == f"{batch}.0/issued")


@pytest.fixture
def fault_worker(rough, rough_pg):
    """fault_worker(FAULT): the only worker of the stack; it dies at the fault point."""
    made = []

    def make(fault):
        rough.stop("worker-1")
        usual = rough.build_dir
        rough.build_dir = with_faults(rough, "coupon-worker").parent
        try:
            made.append(Worker(rough, "worker-fault", {**rough.settings, "COUPON_FAULT": fault}))
        finally:
            rough.build_dir = usual
        wait_until(lambda: "relay_elected" in made[-1].log())
        return made[-1]

    yield make
    for process in made:
        process.end()


@pytest.mark.parametrize("point", ["relay_before_publish", "relay_before_delete"])
def test_killed_while_it_publishes(rough, rough_pg, coupon_on, fault_worker, point):
    worker = fault_worker(f"{point}:3:kill")
    coupon, events = coupon_on(rough)
    accepted = []
    with rough.client() as client:

        def died():
            accepted.append(client.issue(coupon, len(accepted) + 1)["receive"])
            return worker.child.poll() is not None

        wait_until(died, interval=0.1)
        before = events.ids()[:]
        rough.start("worker-1")
        accepted += issue(client, coupon, 98, 99)
    wait_until(lambda: issued_in(events.read()) == set(accepted))
    wait_until(lambda: log_is_empty(rough_pg))
    copies = len(events.ids()) - len(set(events.ids()))
    assert (copies > 0) == (point == "relay_before_delete"), (copies, before)
    assert in_order(events.firsts())


def test_another_worker_takes_over(rough, rough_pg, worker_make, coupon_on):
    rough.stop("worker-1")
    first = worker_make(rough)
    wait_until(lambda: "relay_elected" in first.log())
    second = worker_make(rough)
    coupon, events = coupon_on(rough)
    with rough.client() as client:
        receives = issue(client, coupon, *range(20))
        wait_until(lambda: issued_in(events.read()) == set(receives))
        assert first.metrics()["couponmq_worker_relay_active"] == 1
        assert second.metrics()["couponmq_worker_relay_active"] == 0
        assert json.loads(rough.ctl("installation", "show", "--event-log", "--json"))["relays"] == 2
        first.kill9()
        receives += issue(client, coupon, *range(20, 40))
    wait_until(lambda: issued_in(events.read()) == set(receives))
    assert second.metrics()["couponmq_worker_relay_active"] == 1
    assert second.metrics()["couponmq_worker_relay_events_total"] >= 20
    assert in_order(events.firsts())
    assert second.terminate() == 0
    rough.start("worker-1")


@pytest.mark.long
def test_without_rabbitmq_events_wait(rough, rough_pg, coupon_on):
    coupon, events = coupon_on(rough, name="events-wait")
    with rough.client() as client:
        (receive,) = issue(client, coupon, 1)
    wait_until(lambda: receive in issued_in(events.read()))
    rough.stop("rabbitmq")
    rough.ctl("void", receive)
    rough.ctl("stock", coupon, "--total", 101)
    told = json.loads(rough.ctl("installation", "show", "--event-log", "--json"))
    assert (told["waiting"], told["transactions"], told["allowed"]) == (2, 2, 1000000)
    assert told["oldest_ms"] >= 0 and told["bytes"] > 0
    assert "events that wait    2 of 2 transactions" in rough.ctl(
        "installation", "show", "--event-log"
    )
    metrics = rough.worker_http(1, "/metrics")
    wait_until(lambda: metrics_read(metrics)["couponmq_worker_events_waiting"] == 2)
    assert metrics_read(metrics)["couponmq_worker_events_oldest_ms"] > 0
    rough.start("rabbitmq")
    wait_until(lambda: len(events.firsts()) == 5)
    assert [event["type"] for event in events.firsts()][-2:] == [
        "coupon.voided",
        "campaign.changed",
    ]
    wait_until(lambda: log_is_empty(rough_pg))
    wait_until(lambda: metrics_read(metrics)["couponmq_worker_events_waiting"] == 0)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["hold", "reset"])
def test_a_bad_link_to_rabbitmq(rough, rough_pg, worker_make, coupon_on, fault):
    """Confirms do not arrive, or the connection breaks: what is not confirmed comes again."""
    rough.stop("worker-1")
    gate = Relay(port_of(rough.env["AMQP_URL"]))
    worker = worker_make(rough, AMQP_URL=gate.url(rough.env_of("worker")["AMQP_URL"]))
    wait_until(lambda: "amqp_connected connection=events" in worker.log())
    coupon, events = coupon_on(rough)
    with rough.client() as client:
        receives = issue(client, coupon, *range(10))
        wait_until(lambda: issued_in(events.read()) == set(receives))
        if fault == "hold":
            gate.mode("hold", "down")
        else:
            gate.reset()
        rough.ctl("stock", coupon, "--total", 200)
        if fault == "hold":
            wait_until(lambda: "events_not_published" in worker.log())
            gate.mode("pass", "down")
        receives += issue(client, coupon, *range(10, 20))
    wait_until(lambda: issued_in(events.read()) == set(receives))
    wait_until(lambda: log_is_empty(rough_pg))
    assert in_order(events.firsts())
    worker.end()
    gate.close()
    rough.start("worker-1")


def test_a_queue_that_refuses_is_tried_again(rough, rough_pg, coupon_on, subscriber):
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    coupon, events = coupon_on(rough)
    narrow = subscriber(rough, f"event.{coupon}.coupon.issued", arguments=full)

    def failures():
        return metrics_read(rough.worker_http(1, "/metrics"))[FAILURES]

    with rough.client() as client:
        receives = issue(client, coupon, 1)
        wait_until(lambda: issued_in(events.read()) == set(receives))
        wait_until(lambda: log_is_empty(rough_pg))
        before = failures()  # the queue is full: it refuses this one
        receives += issue(client, coupon, 2)
    wait_until(lambda: failures() > before)
    assert not log_is_empty(rough_pg), rough.queues_told()
    wait_until(lambda: issued_in(narrow.read()) == set(receives))
    wait_until(lambda: log_is_empty(rough_pg))
    assert issued_in(events.firsts()) == set(receives) and in_order(events.firsts())


def test_without_postgresql_for_a_time(rough, rough_owner, coupon_on):
    coupon, events = coupon_on(rough)
    with rough.client() as client:
        receives = issue(client, coupon, *range(5))
        rough.restart("postgres")
        receives += [client.issue(coupon, user)["receive"] for user in range(5, 10)]
    wait_until(lambda: issued_in(events.read()) == set(receives))
    assert in_order(events.firsts())


@pytest.mark.long
def test_the_alarm(rough, rough_pg, worker_make, coupon_on):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_EVENT_LOG_MAX=2)
    wait_until(lambda: "relay_elected" in worker.log())
    coupon, events = coupon_on(rough, name="events-alarm")
    wait_until(lambda: len(events.read()) == 2)
    rough.stop("rabbitmq")
    for total in range(101, 104):
        rough.ctl("stock", coupon, "--total", total)
    wait_until(lambda: "event_log_full" in worker.log())
    told = requests.get(worker.http("/readyz"), timeout=60).json()
    assert "events: 3 wait to be published, COUPON_EVENT_LOG_MAX is 2" in " ".join(told["warnings"])
    result = rough.ctl_run("installation", "show", "--event-log", "--event-log-max", 2)
    assert result.returncode == 1 and "more events wait than" in result.stderr
    rough.start("rabbitmq")
    wait_until(lambda: len(events.firsts()) == 5)
    assert (
        rough.ctl_run("installation", "show", "--event-log", "--event-log-max", 2).returncode == 0
    )
    worker.end()
    rough.start("worker-1")


def test_the_source_is_a_setting(rough, worker_make, coupon_on):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_EVENT_SOURCE="https://shop.example/coupons")
    _, events = coupon_on(rough)
    wait_until(lambda: len(events.read()) == 2)
    assert {event["source"] for event in events.read()} == {"https://shop.example/coupons"}
    worker.end()
    rough.start("worker-1")


@pytest.mark.parametrize(
    "words, message",
    [
        (("create", "--name", "a", "--total", 1, "--events", "maybe"), '--events is "maybe"'),
        (("edit", 1, "--version", 1, "--events", ""), '--events is ""'),
        (("installation", "show", "--event-log", "now"), "now"),
        (
            ("installation", "show", "--event-log", "--event-log-max", 0),
            '--event-log-max is "0": allowed is an integer from 1',
        ),
    ],
)
def test_bad_words(stack, words, message):
    result = stack.ctl_run(*words)
    assert result.returncode != 0 and message in result.stderr


@pytest.mark.parametrize("source", ["", "a b", 'a"b', "a\\b", "ä", "x" * 201])
def test_bad_sources(stack, source):
    result = subprocess.run(
        [str(stack.build_dir / "coupon-worker"), "-n"],
        env={**stack.env, "COUPON_EVENT_SOURCE": source},
        capture_output=True,
        check=False,
        timeout=120,
    )
    told = result.stderr.decode(errors="replace")
    if source == "":
        assert result.returncode == 0, "empty is the default"
    else:
        assert result.returncode == 1 and "COUPON_EVENT_SOURCE is" in told and "allowed" in told


@pytest.mark.long
def test_a_worker_ends_at_once_while_rabbitmq_is_away(rough, rough_pg, coupon_on):
    coupon, events = coupon_on(rough, name="events-end")
    wait_until(lambda: len(events.read()) == 2)
    rough.stop("worker-1")
    worker = Worker(rough, "worker-ends", rough.settings)
    wait_until(lambda: "relay_elected" in worker.log())
    rough.stop("rabbitmq")
    rough.ctl("stock", coupon, "--total", 101)
    assert worker.terminate() == 0
    rough.start("rabbitmq", "worker-1")
    wait_until(lambda: len(events.firsts()) == 3)


def test_the_trace_of_an_order_is_handed_on(stack, gateway, coupon_on):
    """To its event, which has none where the caller's tracing does not record the request, and to
    the log of a worker."""
    coupon, events = coupon_on(stack)
    (receive,) = issue(gateway, coupon, "1")
    parent = f"00-{TRACE}-{SPAN}-01"
    asked = (
        ("hold", {"traceparent": parent, "X-Request-Id": 'order"77'}),
        ("use", {"traceparent": parent[:-1] + "0", "X-Request-Id": "order-78"}),
    )
    for op, headers in asked:
        body = {"receive": receive, "order": "a"}
        assert requests.post(stack.http(f"/v1/{op}"), json=body, headers=headers, timeout=60).ok
    assert gateway.call("rollback", receive=receive, order="a", trace=parent)["code"] == 0
    wait_until(lambda: events.of("coupon.rolled_back"))
    told = [(one.get("traceparent"), one.get("requestid")) for one in events.read()[-3:]]
    assert told == [(parent, 'order"77'), (None, None), (parent, None)]
    lines = [words for n in "12" for words in traced_in(stack.log(f"worker-{n}"))]
    for outcome, count in (("held", 1), ("used", 0), ("rolled_back", 1)):
        wanted = {f"receive={receive}", *TRACED, f"outcome={outcome}"}
        assert sum(wanted <= words for words in lines) == count, outcome
