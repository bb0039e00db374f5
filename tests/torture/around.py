"""
What goes on around the load in every scenario, and its judgement: an operator voids receives of the
load and edits their terms, users claim codes, orders use receives (shoppers.py), API keys of
guests come and go (guests.py), and all events reach a subscriber's queue and a webhook, whose
endpoint fails now and then. Of two campaigns coupon.expiring is due around the time of the fault.

What PostgreSQL has at the end, each row, rejection, void, change by an order and entry of the
history, is one event with its own id, and nothing else is; without copies, the events of a coupon
have the order of the commits, and those of orders that of each receive.
"""

import collections
import contextlib
import json
import random
import threading

import pika.exceptions
from guests import Guests
from operate import voids
from part import Violation
from claimers import Claimers
from shoppers import Shoppers

from endpoint import Endpoint
from events import Subscriber, in_order
from stack import wait_until
from ulid import ulid_of
from webhooks import Webhooks

QUEUE = "torture.events"
EVERY_S = (0.3, 1.5)  # between two commands of the operator
CLAIM_EVERY_S = 0.05
REFUSED = 0.05  # of the webhook's requests
JOIN_S = 250  # two commands that wait for a service, each as long as stack.ctl_run lets them
WAIT_S = 120
LEFT = (
    "SELECT (SELECT count(*) FROM event_log) + (SELECT count(*) FROM webhook_delivery"
    " WHERE webhook_id = %s)"
)
DUE = """
    SELECT batch, idx, 'issued' FROM user_coupon WHERE coupon_id = %(coupon)s
    UNION SELECT batch, idx, unnest(ARRAY['issued', 'voided']) FROM coupon_void
        WHERE coupon_id = %(coupon)s
    UNION SELECT batch, idx, 'rejected' FROM receive_rejected
        WHERE coupon_id = %(coupon)s AND reason <> 'voided'
    UNION SELECT batch, idx, result || '/' || num FROM use_operation
        WHERE coupon_id = %(coupon)s AND to_state IS NOT NULL
    UNION SELECT u.batch, u.idx, 'expiring' FROM user_coupon AS u JOIN coupon AS c
        ON c.id = u.coupon_id
        WHERE u.coupon_id = %(coupon)s
        AND u.received_at <= u.valid_to - c.tell_before * interval '1 s'
        AND NOT EXISTS (SELECT FROM coupon_void AS v WHERE v.coupon_id = u.coupon_id
            AND v.batch = u.batch AND v.idx = u.idx)"""
# What may have been told before it was voided.
POSSIBLE = f"""{DUE}
    UNION SELECT v.batch, v.idx, 'expiring' FROM coupon_void AS v JOIN coupon AS c
        ON c.id = v.coupon_id
        WHERE v.coupon_id = %(coupon)s AND c.tell_before IS NOT NULL"""
# The campaigns whose coupon.expiring are not all in event_log.
TELLING = """
    SELECT count(*) FROM coupon AS c WHERE c.id = ANY (%s) AND c.tell_before IS NOT NULL
    AND NOT EXISTS (SELECT FROM expiry_notice AS e WHERE e.coupon_id = c.id
        AND e.pass_from IS NULL AND e.told_to >= c.valid_to)"""
HISTORY = "SELECT id FROM campaign_history WHERE coupon_id = %s"


def known(event_id):
    """Without the time in the id of a change."""
    return event_id.partition("-")[0] if event_id.startswith("campaign/") else event_id


def events_of(_routing_key, _properties, body):
    return json.loads(body)


class Around:
    """Made before the campaigns are, so that it gets all their events."""

    def __init__(self, rig):
        self.rig, self.stack = rig, rig.stack
        self.ending, self.errors = threading.Event(), []
        self.subscriber = Subscriber(self.stack, "event.#", QUEUE, events_of=events_of)
        self.chance = random.Random(rig.seed)
        self.endpoint = Endpoint(lambda _: 503 if self.chance.random() < REFUSED else 204)
        self.webhooks = Webhooks(self.stack)
        self.webhook, self.secret = self.webhooks.add(self.endpoint.url())
        self.claimers = self.operator = self.guests = self.shoppers = None

    def start(self, chance):
        """The load is running."""
        self.claimers = Claimers(self.rig, chance, threads=1, every_s=CLAIM_EVERY_S)
        self.guests = Guests(self.rig, chance)
        self.shoppers = Shoppers(self.rig, chance)
        seed = chance.randrange(2**32)
        self.operator = threading.Thread(target=self._operate, args=(seed,), daemon=True)
        self.operator.start()

    def _operate(self, seed):
        chance = random.Random(seed)
        while not self.ending.wait(chance.uniform(*EVERY_S)):
            try:
                voids(self.rig, chance, 1)
            except Exception as error:  # of the thread, raised by stop()
                self.errors.append(error)
                return

    def stop(self):
        self.ending.set()
        if self.operator:
            self.operator.join(JOIN_S)
        if self.claimers:
            self.claimers.stop()
        if self.guests:
            self.guests.stop()
        if self.shoppers:
            self.shoppers.stop()
        if self.errors:
            raise self.errors[0]

    def close(self):
        """Nothing stays for the next scenario."""
        self.ending.set()
        if self.claimers:
            self.claimers.is_ending.set()
        if self.guests:
            self.guests.is_ending.set()
        if self.shoppers:
            self.shoppers.is_ending.set()
        self.endpoint.close()
        self.webhooks.close()
        with contextlib.suppress(pika.exceptions.AMQPError):  # the broker may have lost the queue
            self.subscriber.close()

    def judge(self, events):
        """events: which of them can be judged, see scenario.py."""
        self.claimers.judge()
        self.guests.judge()
        self.shoppers.judge(events != "moved")
        has_times = events != "moved"
        events = events if has_times else "exact"
        with self.rig.pg() as pg:
            coupons = [self.claimers.coupon, *self.shoppers.coupons]
            coupons += [one.coupon for one in self.rig.load.campaigns]
            ids = ([int(one) for one in coupons],)
            wait_until(lambda: pg.execute(TELLING, ids).fetchone() == (0,), WAIT_S)
            wait_until(lambda: pg.execute(LEFT, (self.webhook,)).fetchone() == (0,), WAIT_S)
            due = {coupon: self._due(pg, coupon) for coupon in coupons}
            read = self.subscriber.read() if events != "lost" else []
            sent = [event for request in self.endpoint.requests for event in request.events]
            # A hold may have ended meanwhile: its event is one of something.
            known_ids = {coupon: self._due(pg, coupon, POSSIBLE) for coupon in coupons}
        if events != "lost":
            firsts = self._sent_judge(due, known_ids, events, "subscriber", read)
            if events == "exact" and has_times and not all(map(in_order, firsts)):
                raise Violation("subscriber: events of a coupon out of order")
        wanted = "complete" if events == "complete" else "exact"
        self._sent_judge(due, known_ids, wanted, "webhook", sent)
        last = self.endpoint.requests[-20:] if has_times else ()
        if not all(request.is_signed(self.secret) for request in last):
            raise Violation("a webhook's request is not signed by its secret")

    @staticmethod
    def _due(pg, coupon, query=DUE):
        ids = {
            f"{ulid_of(batch)}.{index}/{what}"
            for batch, index, what in pg.execute(query, {"coupon": coupon})
        }
        return ids | {f"campaign/{coupon}/{row[0]}" for row in pg.execute(HISTORY, (coupon,))}

    @staticmethod
    def _sent_judge(due, known_ids, events, whom, sent):
        """due: the ids that must have come, known_ids: those that may have. Returns the events of
        each coupon without their copies, in the order they came."""
        firsts = collections.defaultdict(dict)
        for event in sent:
            first = firsts[event["subject"]].setdefault(known(event["id"]), event)
            if events == "exact" and first != event:
                raise Violation(f"{whom}: two events with one id: {first}, {event}")
        for coupon, ids in due.items():
            got = firsts[coupon]
            if missing := ids - got.keys():
                raise Violation(
                    f"{whom}: of coupon {coupon} {len(missing)} of {len(ids)} events never came:"
                    f" {min(missing)}"
                )
            if events == "exact" and (more := got.keys() - known_ids[coupon]):
                raise Violation(f"{whom}: {len(more)} events of nothing: {got[min(more)]}")
        return [list(firsts[coupon].values()) for coupon in due]
