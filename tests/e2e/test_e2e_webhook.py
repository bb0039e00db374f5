"""Webhooks: what an endpoint gets, in which order, and how often it is tried."""

import threading
import time

import pytest

from stack import wait_until
from webhooks import SOON


@pytest.fixture
def worker(webhooks, worker_make):
    return worker_make(webhooks.stack, **SOON)


def test_events_arrive_signed_and_in_order(webhooks, worker, endpoint_make):
    endpoint = endpoint_make()
    webhook, secret = webhooks.add(endpoint.url("/hook?x=1"))
    sent = webhooks.enqueue(1001, 250)
    wait_until(lambda: len(endpoint.event_ids) == 250)
    assert endpoint.event_ids == sent
    assert [len(request.events) for request in endpoint.requests] == [100, 100, 50]
    for request in endpoint.requests:
        assert request.path == "/hook?x=1"
        assert request.headers["content-type"] == "application/cloudevents-batch+json"
        assert request.headers["user-agent"].startswith("couponmq/")
        assert "expect" not in request.headers and "authorization" not in request.headers
        assert request.is_signed(secret) and len(request.signatures()) == 1
        assert not request.is_signed("whsec_" + "A" * 32)
        assert request.events[0]["data"] == {"coupon": "1001", "text": 'é "€"'}
    assert len({request.id for request in endpoint.requests}) == 3
    assert endpoint.connections == 1, "it is kept open"
    webhooks.wait_empty(webhook)
    shown = webhooks.show(webhook)
    assert (shown["delivered_events"], shown["failures"], shown["dropped_events"]) == (250, 0, 0)
    assert shown["delivered_at"] and not shown["failing_since"]
    assert worker.metrics()["couponmq_worker_webhook_delivered_total"] == 3
    assert webhooks.deliveries(webhook) == []


def test_a_webhook_gets_what_it_asked_for(webhooks, worker, endpoint_make):
    coupon = webhooks.stack.coupon_make(10, publish=False)
    every, one, voided = endpoint_make(), endpoint_make(), endpoint_make()
    webhooks.add(every.url())
    webhooks.add(one.url(), "--coupon", coupon)
    webhooks.add(voided.url(), "--types", "coupon.voided,campaign.changed", "--batch", 1)
    issued = webhooks.enqueue(coupon, 2)
    other = webhooks.enqueue(7, 2)
    void = webhooks.enqueue(7, 2, "coupon.voided")
    wait_until(lambda: len(every.event_ids) == 6 and len(voided.event_ids) == 2)
    wait_until(lambda: len(one.event_ids) == 2)
    assert sorted(every.event_ids) == sorted(issued + other + void)
    assert one.event_ids == issued
    assert [request.event_ids for request in voided.requests] == [[void[0]], [void[1]]]


def test_the_events_of_a_campaign_arrive(webhooks, worker, endpoint_make, gateway_make):
    """From the change, or the traced request, over the log and the relay to the endpoint."""
    endpoint, trace = endpoint_make(), f"00-{'a' * 32}-{'b' * 16}-01"
    types = "campaign.changed,coupon.issued,coupon.used"
    _, secret = webhooks.add(endpoint.url(), "--types", types)
    coupon = webhooks.stack.coupon_make(10, events="on")

    def told(of):
        events = [event for request in endpoint.requests for event in request.events]
        return [one for one in events if (one["type"], one["data"]["coupon"]) == (of, coupon)]

    wait_until(lambda: any(one["data"]["to"] == "issuing" for one in told("campaign.changed")))
    with gateway_make(webhooks.stack).client() as client:
        receive = client.issue(coupon, 1, trace=trace, ack="issued")["receive"]
        assert client.call("hold", receive=receive, order="order-1")["code"] == 0
        assert client.call("use", receive=receive, order="order-1")["code"] == 0
    (issued,) = wait_until(lambda: told("coupon.issued"))
    assert (issued["data"]["receive"], issued["traceparent"]) == (receive, trace)
    (used,) = wait_until(lambda: told("coupon.used"))
    assert (used["data"]["receive"], used["data"]["order"]) == (receive, "order-1")
    assert told("coupon.held") == [], "it was not asked for"
    assert all(request.is_signed(secret) for request in endpoint.requests)


def test_a_failure_is_tried_again_with_the_same_id(webhooks, worker, endpoint_make):
    statuses = iter([500, 404])
    endpoint = endpoint_make(lambda request: next(statuses, 200))
    webhook, secret = webhooks.add(endpoint.url())
    webhooks.enqueue(1001, 3)
    webhooks.wait_empty(webhook)
    assert len(endpoint.requests) == 3
    assert len({request.id for request in endpoint.requests}) == 1
    assert len({request.body for request in endpoint.requests}) == 1
    assert all(request.is_signed(secret) for request in endpoint.requests)
    metrics = worker.metrics()
    assert metrics["couponmq_worker_webhook_failed_total"] == 2
    assert metrics["couponmq_worker_webhook_delivered_total"] == 1
    assert "event=webhook_failed" in worker.log() and "status=404" in worker.log()


def test_a_delivery_that_failed_is_overtaken(webhooks, worker_make, endpoint_make):
    refused = []

    def answer(request):
        refused.append(request.id)
        return 500 if refused.count(refused[0]) == 1 and request.id == refused[0] else 200

    worker_make(webhooks.stack, **SOON | {"COUPON_WEBHOOK_RETRY_MS": 1000})
    endpoint = endpoint_make(answer)
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    sent = webhooks.enqueue(1001, 4)
    webhooks.wait_empty(webhook)
    assert endpoint.event_ids == [sent[0], sent[1], sent[2], sent[3], sent[0]]
    assert endpoint.requests[-1].at - endpoint.requests[0].at >= 1


def test_deliveries_of_a_coupon_wait_for_each_other(webhooks, worker_make, endpoint_make):
    """One delivery of a coupon is sent at a time, also by two workers; of one webhook at most
    four."""
    for _ in range(2):
        worker_make(webhooks.stack, **SOON)
    busy, overlaps = set(), []

    def answer(request):
        coupon = request.events[0]["source"]
        if coupon in busy:
            overlaps.append(coupon)
        busy.add(coupon)
        time.sleep(0.02)
        busy.discard(coupon)
        return 200

    endpoint = endpoint_make(answer)
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    sent = {coupon: [] for coupon in range(1, 9)}
    for _ in range(5):
        for coupon, ids in sent.items():
            ids += webhooks.enqueue(coupon, 2)
    webhooks.wait_empty(webhook)
    assert overlaps == []
    assert 2 <= endpoint.most_at_once <= 4
    for coupon, ids in sent.items():
        got = [event for request in endpoint.requests for event in request.events]
        assert [one["id"] for one in got if one["source"] == f"/coupons/{coupon}"] == ids


def test_deliveries_of_a_coupon_follow_each_other_at_once(webhooks, worker_make, endpoint_make):
    endpoint = endpoint_make()
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    sent = webhooks.enqueue(1001, 400)
    worker_make(webhooks.stack, **SOON)
    webhooks.wait_empty(webhook)  # for two minutes; one at each look, a second, would take seven
    assert endpoint.event_ids == sent


def test_a_slow_endpoint_does_not_hold_up_others(webhooks, worker, endpoint_make):
    go_on = threading.Event()
    slow, quick = endpoint_make(lambda request: go_on.wait(20) and 200), endpoint_make()
    slow_hook, _ = webhooks.add(slow.url(), "--batch", 1)
    webhooks.add(quick.url(), "--batch", 1)
    for coupon in range(1, 11):
        webhooks.enqueue(coupon, 10)
    wait_until(lambda: len(quick.requests) == 100)
    assert len(slow.requests) == slow.most_at_once == 4
    wait_until(lambda: worker.metrics()["couponmq_worker_webhook_sending"] == 4)
    states = [one["state"] for one in webhooks.deliveries(slow_hook, "--count", 1000)]
    assert (states.count("sending"), states.count("waiting")) == (4, 96)
    go_on.set()
    webhooks.wait_empty(slow_hook)
    assert len(slow.requests) == 100


def test_410_disables(webhooks, worker, endpoint_make):
    statuses = iter([410])
    endpoint = endpoint_make(lambda request: next(statuses, 204))
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    sent = webhooks.enqueue(1001, 2)
    wait_until(lambda: webhooks.show(webhook)["state"] == "disabled")
    shown = webhooks.show(webhook)
    assert (shown["why"], shown["waiting"]) == ("the endpoint answered 410 Gone", 2)
    assert "event=webhook_disabled" in worker.log()
    webhooks.enqueue(1001, 5)  # not queued for a disabled one
    webhooks("edit", webhook, "--state", "enabled")
    webhooks.wait_empty(webhook)
    assert len(endpoint.requests) == 3
    assert sorted(endpoint.event_ids[1:]) == sorted(sent)
    assert webhooks.show(webhook)["why"] is None


def test_an_operator_disables_enables_and_removes(webhooks, worker, endpoint_make):
    endpoint = endpoint_make()
    webhook, _ = webhooks.add(endpoint.url())
    webhooks("edit", webhook, "--state", "disabled", "--why", "holidays", "--by", "ops")
    shown = webhooks.show(webhook)
    assert (shown["state"], shown["why"], shown["state_by"]) == ("disabled", "holidays", "ops")
    webhooks.enqueue(1001)
    assert webhooks.show(webhook)["waiting"] == 0
    webhooks("edit", webhook, "--state", "enabled")
    webhooks.enqueue(1001)
    wait_until(lambda: len(endpoint.requests) == 1)
    webhooks("remove", webhook)
    assert f"there is no webhook {webhook}" in webhooks.refused("show", webhook, status=9)
    webhooks.enqueue(1001)


def test_a_failing_webhook_gets_one_attempt_at_a_time_and_is_disabled(
    webhooks, worker_make, endpoint_make
):
    worker = worker_make(webhooks.stack, **SOON | {"COUPON_WEBHOOK_DISABLE_S": 1})
    endpoint = endpoint_make(lambda request: 503)
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    for coupon in range(1, 21):
        webhooks.enqueue(coupon, 5)
    wait_until(lambda: webhooks.show(webhook)["state"] == "disabled")
    shown = webhooks.show(webhook)
    assert shown["why"].startswith("every attempt has failed since 20")
    # What a slow worker has leased before is still being sent.
    wait_until(lambda: webhooks.show(webhook)["waiting"] == 100)
    shown = webhooks.show(webhook)
    assert shown["given_up"] == 0
    assert shown["failures"] == len(endpoint.requests) < 15, "it is not hammered"
    wait_until(lambda: worker.metrics()["couponmq_worker_webhook_disabled"] >= 1)


def test_retry_after_is_respected(webhooks, worker, endpoint_make):
    answers = iter([(429, {"Retry-After": "2"}, b"slow down")])
    endpoint = endpoint_make(lambda request: next(answers, 200))
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 1)
    webhooks.enqueue(1001, 2)
    webhooks.wait_empty(webhook)
    first, second = endpoint.requests[:2]
    assert second.at - first.at >= 1.9


def test_what_is_given_up_can_be_sent_again(webhooks, worker_make, endpoint_make):
    status = [500]
    endpoint = endpoint_make(lambda request: status[0])
    worker = worker_make(webhooks.stack, **SOON | {"COUPON_WEBHOOK_ATTEMPTS": 2})
    webhook, _ = webhooks.add(endpoint.url())
    sent = webhooks.enqueue(1001, 2)
    wait_until(lambda: webhooks.show(webhook)["given_up"] == 1)
    [delivery] = webhooks.deliveries(webhook, "--failed")
    assert (delivery["state"], delivery["attempts"], delivery["last_status"]) == ("failed", 2, 500)
    assert (delivery["events"], delivery["coupon"], delivery["next_at"]) == (2, "1001", None)
    assert "event=webhook_given_up" in worker.log()
    wait_until(lambda: worker.metrics()["couponmq_worker_webhook_given_up"] >= 1)
    assert webhooks.deliveries(webhook, "--waiting") == []
    missing = webhooks.refused("show", "--resend", webhook, "--delivery", 2**62)
    assert f"webhook {webhook} has no delivery {2**62} that was given up" in missing
    status[0] = 200
    assert (
        webhooks.json("show", "--resend", webhook, "--delivery", delivery["delivery"])["resent"]
        == 1
    )
    wait_until(lambda: webhooks.show(webhook)["delivered_events"] == 2)
    assert {request.id for request in endpoint.requests} == {delivery["message"]}
    assert endpoint.requests[-1].event_ids == sent
    assert webhooks.json("show", "--resend", webhook)["resent"] == 0


def test_a_full_queue_drops_and_counts(webhooks, worker_make, endpoint_make):
    endpoint = endpoint_make(lambda request: 500)
    webhook, _ = webhooks.add(endpoint.url(), "--batch", 2, "--queue", 3)
    kept = webhooks.enqueue(1001, 7)  # the fourth delivery has one event
    webhooks.enqueue(1001, 1)
    shown = webhooks.show(webhook)
    assert (shown["waiting"], shown["dropped_events"]) == (3, 2)
    assert shown["dropped_at"]
    worker = worker_make(webhooks.stack, **SOON | {"COUPON_WEBHOOK_ATTEMPTS": 1})
    wait_until(lambda: webhooks.show(webhook)["given_up"] == 3)
    assert endpoint.event_ids == kept[:6]
    # What was given up makes room.
    endpoint.answer = lambda request: 200
    new = webhooks.enqueue(1001, 4)
    wait_until(lambda: webhooks.show(webhook)["delivered_events"] == 4)
    assert endpoint.event_ids[6:] == new
    assert webhooks.show(webhook)["given_up"] == 1
    webhooks("edit", webhook, "--state", "disabled")
    webhooks("edit", webhook, "--state", "enabled")
    wait_until(lambda: worker.metrics()["couponmq_worker_webhook_dropped_events"] >= 2)


def test_a_new_secret_overlaps_the_old_one(webhooks, worker, endpoint_make, tmp_path):
    endpoint = endpoint_make()
    webhook, first = webhooks.add(endpoint.url())

    def next_request():
        n = len(endpoint.requests)
        webhooks.enqueue(1001)
        wait_until(lambda: len(endpoint.requests) > n)
        return endpoint.requests[-1]

    second = webhooks.json("rotate", webhook, "--overlap", "2h")["secret"]
    request = next_request()
    assert request.is_signed(first) and request.is_signed(second)
    assert len(request.signatures()) == 2
    secrets = webhooks.show(webhook)["secrets"]
    assert [bool(one["expires_at"]) for one in secrets] == [False, True]
    own = tmp_path / "secret"
    own.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    rotated = webhooks.json("rotate", webhook, "--overlap", "0s", "--secret-file", own)
    assert rotated["secret"] is None, "it is known"
    request = next_request()
    assert request.is_signed(own.read_text().strip()) and len(request.signatures()) == 1
    for _ in range(3):
        webhooks("rotate", webhook)
    assert "has 4 valid secrets" in webhooks.refused("rotate", webhook)
    assert len(next_request().signatures()) == 4
    webhooks("rotate", webhook, "--overlap", "0s")
    assert len(next_request().signatures()) == 1


def test_secrets_are_printed_once(webhooks, endpoint_make):
    webhook, secret = webhooks.add("https://example.com/hook")
    assert secret.startswith("whsec_")
    for command in (("show", webhook), ("list",), ("show", "--deliveries", webhook)):
        for flags in ((), ("--json",)):
            assert secret not in webhooks(*command, *flags)
            assert secret[6:] not in webhooks(*command, *flags)
    before = webhooks.show(webhook)["secrets"][0]["fingerprint"]
    assert len(before) == 16
    webhooks("rotate", webhook)
    after = [one["fingerprint"] for one in webhooks.show(webhook)["secrets"]]
    assert len(set(after)) == 2 and after[1] == before
