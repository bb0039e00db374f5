"""couponctl webhook and the queue of deliveries, for tests."""

import json
import uuid

import psycopg

from command import Command
from stack import wait_until

# For tests: endpoints on this machine, without TLS, and soon tried again.
ALLOWED = {
    "COUPON_WEBHOOK_SCHEMES": "https,http",
    "COUPON_WEBHOOK_NETWORKS": "127.0.0.1",
}
SOON = {**ALLOWED, "COUPON_WEBHOOK_RETRY_MS": 20}
ALLOWED_FLAGS = ("--webhook-schemes", "https,http", "--webhook-networks", "127.0.0.1")


class Webhooks(Command):
    def __init__(self, stack):
        super().__init__(stack, "webhook", *ALLOWED_FLAGS)
        self.db = psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True)
        self.made = []

    def json(self, *arguments):
        return json.loads(self(*arguments, "--json"))

    def add(self, url, *options):
        """(id, secret)"""
        made = self.json("create", url, *options)
        self.made.append(made["webhook"])
        return made["webhook"], made["secret"]

    def show(self, webhook):
        return self.json("show", webhook)

    def deliveries(self, webhook, *options):
        lines = self("show", "--deliveries", webhook, "--json", *options).splitlines()
        return [json.loads(line) for line in lines]

    def enqueue(self, coupon, count=1, type_="coupon.issued"):
        """As the publisher of events does; returns their ids."""
        events = [
            {
                "specversion": "1.0",
                "id": str(uuid.uuid4()),
                "source": f"/coupons/{coupon}",
                "type": type_,
                "subject": f"user-{number}",
                "time": "2026-11-23T12:00:00.000Z",
                "data": {"coupon": str(coupon), "text": 'é "€"'},
            }
            for number in range(count)
        ]
        columns = [coupon], [type_], [json.dumps(events)]
        self.db.execute("SELECT event_log_remove('{}', %s::bigint[], %s, %s)", columns)
        return [event["id"] for event in events]

    def wait_empty(self, webhook, timeout=120):
        wait_until(lambda: self.show(webhook)["waiting"] == 0, timeout)

    def close(self):
        for webhook in self.made:
            self.run("remove", webhook)
        self.db.close()
