"""A subscriber to events, with a client of its own."""

import collections
import json

import pika

from asyncapi import conforms, members_of, message_of

OF_ORDERS = ("coupon.held", "coupon.used", "coupon.released", "coupon.rolled_back")
CONTENT_TYPE = "application/cloudevents-batch+json; charset=utf-8"


class Subscriber:
    """A queue, durable by default so that it outlives the broker, and what came so far. Each
    message is checked against docs/reference/asyncapi.json, unless events_of reads it."""

    def __init__(self, stack, binding, name="", arguments=None, url="", events_of=None):
        self.events_of = events_of or checked
        self.url = url or stack.env["AMQP_URL"]
        self.name = name
        self.connection = None
        self.events = []
        self.messages = 0
        channel = self.channel()
        kind = {"durable": True} if name else {"exclusive": True}
        self.name = channel.queue_declare(name, arguments=arguments, **kind).method.queue
        channel.queue_bind(self.name, "coupon.event", binding)

    def channel(self):
        if not self.connection or not self.connection.is_open:
            self.connection = pika.BlockingConnection(pika.URLParameters(self.url))
            self.opened = self.connection.channel()
        return self.opened

    def read(self):
        """All events that have come, in their order."""
        for _ in range(2):
            try:
                while self._message_read():
                    pass
                break
            except pika.exceptions.AMQPError:
                # The broker was restarted, or no heartbeat was answered since the last read().
                self.connection = None
        return self.events

    def _message_read(self):
        method, properties, body = self.channel().basic_get(self.name, auto_ack=True)
        if method:
            self.messages += 1
            self.events += self.events_of(method.routing_key, properties, body)
        return method

    def of(self, type_):
        return [event for event in self.read() if event["type"] == type_]

    def ids(self):
        return [event["id"] for event in self.read()]

    def firsts(self):
        """The events without their copies. Copies are the same."""
        found = {}
        for event in self.read():
            assert found.setdefault(event["id"], event) == event
        return list(found.values())

    def close(self):
        self.read()
        channel = self.channel()
        channel.queue_delete(self.name)
        self.connection.close()


def checked(routing_key, properties, body):
    """The events of a message that is as docs/reference/asyncapi.json says, and has nothing
    else."""
    events = json.loads(body)
    type_, coupon = (
        properties.headers["cloudEvents_type"],
        properties.headers["cloudEvents_subject"],
    )
    assert routing_key == f"event.{coupon}.{type_}"
    assert properties.content_type == CONTENT_TYPE and properties.delivery_mode == 2
    conforms(properties.headers, message_of(type_)["headers"])
    conforms(events, message_of(type_)["payload"])
    assert len(body) <= 131072 or len(events) == 1
    for event in events:
        assert (event["type"], event["subject"]) == (type_, coupon)
        assert event["data"]["coupon"] == coupon
        assert event["source"] == properties.headers["cloudEvents_source"]
        assert set(event["data"]) <= members_of(type_), "a member that is not documented"
    return events


def in_order(events):
    """Whether these events, of one coupon and without copies, have the order of the commits. What
    orders do has that of each receive."""
    numbers = collections.defaultdict(list)
    for event in events:
        if event["type"] in OF_ORDERS:
            numbers[event["data"]["receive"]].append(int(event["id"].split("/")[-1]))
    times = [event["time"] for event in events if event["type"] not in OF_ORDERS]
    versions = [event["data"]["version"] for event in events if event["type"] == "campaign.changed"]
    return all(one == sorted(one) for one in [times, versions, *numbers.values()])
