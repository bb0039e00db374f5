"""Messages of coupon.receive.queue, as lua/issue.lua builds them."""

import json

import pika

from ulid import ulid_make

AT_MS = 1_700_000_000_123


def message(coupon, /, **changes):
    """One receive of user 42 in version 1; a member that is None is left out."""
    whole = {
        "v": 1,
        "batch": ulid_make(),
        "coupon": str(coupon),
        "generation": 1,
        "seq": 1,
        "at": AT_MS,
        "receives": [["42", 1, ""]],
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def message_text(coupon, /, **changes):
    """As it is in the outbox."""
    return json.dumps(message(coupon, **changes), separators=(",", ":"))


PACKED = b'{"v":2,"batches":[\n', b",\n", b"\n]}"


def packed(bodies):
    """Several bodies of version 1 as one of version 2."""
    head, between, tail = PACKED
    return head + between.join(bodies) + tail


def batches(body):
    """The bodies of version 1 in a message of either version."""
    head, between, tail = PACKED
    if not body.startswith(head):
        return [body]
    return body.removeprefix(head).removesuffix(tail).split(between)


def message_publish(channel, body, **properties):
    """body: bytes, or a message of message()."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    channel.basic_publish(
        "coupon.topic", "coupon.receive", body, pika.BasicProperties(delivery_mode=2, **properties)
    )
