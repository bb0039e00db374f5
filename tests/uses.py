"""Uses of receives, sent to the workers as gateways do."""

import json

import pika

from stack import wait_until
from ulid import ulid_make

CHANGES = "couponmq:changes"
USES = f"{{{CHANGES}}}:uses"


class Shop:
    """Publishes messages of uses as a gateway does, and takes the replies."""

    def __init__(self, stack):
        self.connection = pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"]))
        self.channel = self.connection.channel()
        self.replies = []
        self.channel.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda channel, method, properties, body: self.replies.append(json.loads(body)),
            auto_ack=True,
        )

    def send(self, *uses, batch=None):
        """Each use is (action, order, receive). Returns the id of the message."""
        batch = batch or ulid_make()
        named = [
            [action, order, f"{batch}.{n}", "", 900 * (action == "hold"), None, "", "", [receive]]
            for n, (action, order, receive) in enumerate(uses)
        ]
        self.channel.basic_publish(
            "coupon.topic",
            "coupon.use",
            json.dumps({"v": 1, "batch": batch, "at": 1, "uses": named}).encode(),
            pika.BasicProperties(
                delivery_mode=2,
                reply_to="amq.rabbitmq.reply-to",
                correlation_id=batch,
                type="couponmq.use",
            ),
        )
        return batch

    def reply(self, batch, timeout_s=30):
        """The results of its uses."""
        found = []

        def is_there():
            self.connection.process_data_events(0.05)
            found[:] = [one for one in self.replies if one["batch"] == batch]
            return found

        wait_until(is_there, timeout_s)
        return [outcome[1] for outcome in found[0]["uses"]]

    def use(self, *uses):
        return self.reply(self.send(*uses))


def receive_of(stack, coupon, user):
    """As a message names it."""
    with stack.client() as client:
        told = client.issue(coupon, user, ack="issued")
    *_, batch, index = told["receive"].split(".")
    return [str(coupon), user, batch, int(index)]
