"""
Orders of a shop under torture: many at once want the same few receives, hold them, use them, give
them up and take uses back, within one budget that two campaigns share, while an operator voids
some. Requests that are `unknown` are sent again with their key, and copies come late. The judgement
is that of tests/orders.py (P12 to P14); and both stores have each change in the end (P10).
"""

import collections
import datetime
import itertools
import json
import random
import threading
import time

from history import USE_QUEUE, History, queue_length
from load import now
from orders import HAS, Budget, Operation, Orders, Row
from operate import AT_MOST_S, KILL_S
from part import Violation
from stack import Client
from ulid import ulid_of
from user_ids import receive_parts
from uses import CHANGES, USES
from voids import Times

COUPONS = 2
RECEIVES = 16  # of each
OFF = 500  # a use takes off
BUDGET = 16 * OFF  # half of what all would take
STANDING = 8  # uses that last: the oldest of more is taken back
THREADS = 3
EVERY_S = 0.02
HOT = 6  # receives that all want
RACERS = 4
MOVES = 0.04
LATE = 0.2
ANY = 0.2  # of those with one receive
VOIDS = 0.005
PARTS = 0.2  # of the uses of one receive
TIMEOUT_S = 6.0
AGAIN_S = 0.1
FILLED_S = 90  # until the keeper has filled what Redis has lost
SETTLED_S = 60
MANY = 5  # orders at least that used something
ROWS = """
    SELECT coupon_id, user_id, batch, idx, state, order_id, amount_off FROM receive_use
    WHERE coupon_id = ANY(%s)"""
CHANGES_MADE = """
    SELECT coupon_id, batch, idx, action, key FROM use_operation
    WHERE coupon_id = ANY(%s) AND to_state IS NOT NULL AND action <> 'expire'
        AND at >= to_timestamp(%s / 1000.0)"""


class Shoppers:
    """Threads that shop until stop()."""

    def __init__(self, rig, chance):
        self.rig, self.stack = rig, rig.stack
        self.seed = chance.randrange(2**32)
        self.name = f"torture.{self.seed}"
        self.stack.ctl(
            "budget", "create", self.name, "--amount", f"{BUDGET / 100:.2f}", "--currency", "EUR"
        )
        self.coupons = [self._coupon_make() for _ in range(COUPONS)]
        self.receives = [one for coupon in self.coupons for one in self._issue(coupon)]
        self.began_at = time.time() - now()
        self.loses = rig.postgresql_goes_back
        self.operations, self.errors = [], []
        self.histories = [History(self.stack, one, RECEIVES) for one in self.coupons]
        self.standing = collections.deque()  # (order, receives)
        self.numbers = itertools.count(1)
        self.is_ending = threading.Event()
        self.threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(THREADS)
        ]
        for thread in self.threads:
            thread.start()

    def _coupon_make(self):
        return self.stack.coupon_make(
            RECEIVES,
            name="shop",
            budget=self.name,
            amount_off=f"{OFF / 100:.2f}",
            currency="EUR",
            events="on",
        )

    def _issue(self, coupon):
        asked = {"op": "issue", "coupon": coupon, "key": "k", "ack": "issued"}
        wanted, told = [{**asked, "user": f"shopper-{n}"} for n in range(RECEIVES)], []

        def are_issued():
            told[:] = client.pipeline(wanted)
            return all(one["code"] == 0 for one in told)

        with Client(self.rig.gateways[0].listen, TIMEOUT_S) as client:
            self.rig.wait(are_issued)
        return [one["receive"] for one in told]

    def stop(self):
        self.is_ending.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S + 5)

    def void(self, chance):
        """By a command that may be killed. Afterwards nobody wants the receive any more."""
        receive = chance.choice(self.receives)
        history = self.histories[self.coupons.index(receive_parts(receive)[0])]
        history.void(receive, chance.uniform(0, KILL_S) if chance.random() < 0.3 else AT_MOST_S)
        self.receives = [one for one in self.receives if one != receive]

    def _run(self, number):
        shopper = Shopper(self, random.Random(self.seed + number))
        try:
            while not self.is_ending.wait(EVERY_S):
                shopper.serve()
        except Exception as error:  # of the thread, raised by judge()
            self.errors.append(error)
        finally:
            shopper.hang_up()

    # The judgement

    def judge(self, has_times):
        if self.errors:
            raise self.errors[0]
        done = collections.Counter(one.action for one in self.operations if one.is_done)
        if done["use"] < MANY:
            raise Violation(f"hardly an order was served: {dict(done)}")
        self.rig.wait(lambda: queue_length(self.stack, USE_QUEUE) == 0, SETTLED_S)
        rows, read_at, budget = self._stored()
        moment = self.moment if has_times else None
        Orders(self.operations, rows, read_at, budget, moment, self._voids(), self.loses).check()
        if self.rig.has_rates:  # else the tests would wait for the keeper
            self._stores_judge()
        for history in self.histories:
            history.settle()
            result = self.stack.ctl_run("audit", history.coupon, "--json")
            if result.returncode:
                raise Violation(f"P12: audit of the shop: {result.stdout}{result.stderr}")
        return dict(done)

    def moment(self, text):
        """A time that PostgreSQL has told, by the clock of the requests."""
        return (
            datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - self.began_at
        )

    def _voids(self):
        voidings = collections.defaultdict(list)
        for history in self.histories:
            for one in history.voidings:
                voidings[one.receive].append(one)
        return {receive: Times(ones) for receive, ones in voidings.items()}

    def _stored(self):
        with self.rig.pg() as pg, pg.transaction():
            pg.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            counts = pg.execute(
                "SELECT spent, held FROM budget WHERE name = %s", (self.name,)
            ).fetchone()
            read_at = now()
            rows = {
                f"{coupon}.{user}.{ulid_of(batch)}.{index}": Row(*of)
                for coupon, user, batch, index, *of in pg.execute(ROWS, (self._ids(),))
            }
        return rows, read_at, Budget(BUDGET, *counts)

    def _ids(self):
        return [int(coupon) for coupon in self.coupons]

    def _stores_judge(self):
        """P10: each change is in PostgreSQL and in Redis; where that may remove the oldest, those
        that it says it has."""

        def differ():
            with self.rig.pg() as pg, self.rig.redis() as cache:
                records = [json.loads(text) for text in cache.lrange(USES, 0, -1)]
                since_ms = int(cache.hget(CHANGES, "uses_since")) if self.rig.trim_expected else 0
                rows = pg.execute(CHANGES_MADE, (self._ids(), since_ms)).fetchall()
            there = {
                (int(one[3]), *one[5:9])
                for one in records
                if one[3] in self.coupons and one[2] * 1000 >= since_ms
            }
            return there ^ {(row[0], str(row[1]), *row[2:]) for row in rows}

        try:
            self.rig.wait(lambda: not differ(), FILLED_S)
        except AssertionError:
            alone = differ()
            raise Violation(f"P10: one store alone has {len(alone)}: {min(alone)}") from None


class Shopper:
    """Serves one order after the other, over a connection to any gateway."""

    def __init__(self, shop, chance):
        self.shop, self.chance = shop, chance
        self.client = None

    def serve(self):
        dice = self.chance.random()
        if dice < VOIDS and len(self.shop.receives) > RECEIVES:
            self.shop.void(self.chance)
        elif dice < 0.03:
            self._steal()
        elif dice < 0.2:
            self._race()
        else:
            self._checkout()
        while len(self.shop.standing) > STANDING:
            self._ask("rollback", *self.shop.standing.popleft(), reason="sent back")

    # Orders

    def _order(self):
        return f"order-{next(self.shop.numbers)}"

    def _receives(self):
        """Usually one of the few that all want."""
        wanted = self.shop.receives[:HOT] if self.chance.random() < 0.7 else self.shop.receives
        return self.chance.sample(wanted, self.chance.choices((1, 2, 3), (8, 1, 1))[0])

    def _steal(self):
        """A receive of somebody else."""
        self._ask("use", self._order(), self._receives()[:1], is_forged=True, user="thief")

    def _race(self):
        """Several orders for one receive, in one message."""
        receives = self._receives()
        racers = [self._operation("use", self._order(), receives) for _ in range(RACERS)]
        self._send_all(racers)
        for one in racers:
            if one.is_done:
                self._used(one)

    def _checkout(self):
        order, receives, asked = self._order(), self._receives(), []
        if self.chance.random() < 0.6:
            ttl_s = self.chance.choice((1, 2, 900))
            asked.append(self._ask("hold", order, receives, ttl_s=ttl_s))
            if not asked[0].is_done:
                return
            dice = self.chance.random()
            if dice < 0.3:
                asked.append(self._ask("release", order, receives))
            if dice < 0.3 or dice < 0.4 and ttl_s < 900:  # else it is left to its end
                self._come_late(asked)
                return
        amount = self.chance.randint(OFF, 10 * OFF)
        asked.append(self._ask("use", order, receives, amount=amount, currency="EUR"))
        if asked[-1].is_done:
            asked += self._used(asked[-1])
        self._come_late(asked)

    def _used(self, operation):
        """Most are taken back, some of them later; of some a part before, and the discount is
        taken again by a larger order."""
        done = []
        if len(operation.receives) == 1 and self.chance.random() < PARTS and not self.shop.loses:
            order, receives, euro = operation.order, operation.receives, {"currency": "EUR"}
            part = self.chance.randint(1, OFF)
            done.append(self._ask("rollback", order, receives, amount=part, **euro))
            if done[0].is_done and self.chance.random() < 0.5:
                done.append(self._ask("use", order, receives, amount=11 * OFF, **euro))
        if self.chance.random() < 0.5:
            self.shop.standing.append((operation.order, operation.receives))
            return done
        taken_back = self._ask("rollback", operation.order, operation.receives, reason="cancelled")
        return [*done, taken_back]

    def _come_late(self, asked):
        """A copy of something that has its answer. Where PostgreSQL is put back, only of what has
        changed something, which Redis has, too."""
        known = [one for one in asked if one.reply and (one.is_done or not self.shop.loses)]
        if known and self.chance.random() < LATE:
            self._send([self.chance.choice(known)])

    # Requests

    def _operation(self, action, order, receives, is_forged=False, **members):
        key = f"{self.shop.name}-{next(self.shop.numbers)}"
        is_any = not is_forged and len(receives) == 1 and self.chance.random() < ANY
        one = Operation(action, order, key, receives, is_forged, is_any, members)
        self.shop.operations.append(one)
        return one

    def _ask(self, action, order, receives, **members):
        operation = self._operation(action, order, receives, **members)
        self._send_all([operation])
        return operation

    def _send_all(self, operations):
        """Again and again, until their answers are certain."""
        while left := [one for one in operations if not one.reply]:
            self._send(left)
            if any(not one.reply for one in left) and self.shop.is_ending.wait(AGAIN_S):
                return

    def _send(self, operations):
        """All at once."""
        at, left = now(), dict(enumerate(operations))
        try:
            if not self.client or self.chance.random() < MOVES:
                self.hang_up()
                self.client = Client(self.chance.choice(self.shop.rig.gateways).listen, TIMEOUT_S)
            for number, one in left.items():
                self.client.send_line({"id": number, **one.request()})
            while left:
                reply, answered_at = self.client.read_reply(), now()
                one = left.pop(reply.pop("id"))
                one.sent(at, answered_at, reply)
                if one.is_done and one.action in HAS:
                    self.shop.rig.witness.on_use(one, answered_at)
        except (OSError, AssertionError, ValueError):
            self.hang_up()
            for one in left.values():
                one.sent(at)

    def hang_up(self):
        if self.client:
            self.client.close()
        self.client = None
