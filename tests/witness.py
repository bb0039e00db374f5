"""
Whether `issued`, `held` and `used` are true at the moment of the answer: a thread with a connection
of its own to PostgreSQL looks for the row as soon as a client has read such an answer.

It looks at one answer at a time, and at the next one that is read after that; answers that are read
meanwhile are passed over, because a later look would prove less. share() is what it looked at.
"""

import queue
import statistics
import threading

import psycopg

from load import now
from user_ids import receive_parts
from verdict import place_of

CONNECT_S = 2
FROZEN_S = 2  # the server, where a look takes longer
JOIN_S = 30
ROW = (
    "SELECT FROM user_coupon WHERE user_id = %s AND coupon_id = %s AND slot = %s AND batch = %s"
    " AND idx = %s"
)
VOIDS = "SELECT to_regclass('coupon_void') IS NOT NULL"
VOID = "SELECT FROM coupon_void WHERE coupon_id = %s AND batch = %s AND idx = %s"
USE = (
    "SELECT FROM use_operation WHERE coupon_id = %s AND batch = %s AND idx = %s AND action = %s"
    " AND key = %s AND to_state IS NOT NULL"
)


def receives_issued(ask):
    """(receive, slot) of each receive that this answer calls issued."""
    reply = ask.reply
    if reply["status"] == "issued":
        return [(reply["receive"], reply["slot"])]
    return [
        (one["receive"], one["slot"])
        for one in reply.get("receives", [])
        if one["state"] == "issued"
    ]


class Witness:
    def __init__(self, url):
        self.url = url
        self.asks = queue.Queue(maxsize=1)
        self.told = self.looked = 0
        self.delays = []  # seconds from each answer to the look
        self.false = []  # answers whose row was not there
        self.errors = []
        self.pg = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def on_answer(self, ask):
        """Called by the thread that has read it."""
        if issued := receives_issued(ask):
            self._tell(ask, ask.answered_at, lambda: self._rows_exist(issued))

    def on_use(self, operation, answered_at):
        """So is this, of one that was done, and has changed its receives (orders.py)."""
        self._tell(operation, answered_at, lambda: self._uses_exist(operation))

    def _tell(self, *ask):
        self.told += 1
        try:
            self.asks.put_nowait(ask)
        except queue.Full:
            pass

    def stop(self):
        self.asks.put(None)
        self.thread.join(JOIN_S)
        assert not self.thread.is_alive(), "the witness hangs"
        assert not self.errors, self.errors

    def share(self):
        delay_ms = statistics.median(self.delays) * 1000 if self.delays else 0.0
        return f"{self.looked} of {self.told} answers seen {delay_ms:.1f} ms later"

    def _run(self):
        while ask := self.asks.get():
            try:
                self._look(*ask)
            except psycopg.OperationalError:  # PostgreSQL is away: the next look connects again
                self._close()
            except Exception as error:  # an error of the thread, raised by stop()
                self.errors.append(repr(error))
        self._close()

    def _close(self):
        if self.pg:
            self.pg.close()
        self.pg = None

    def _look(self, ask, answered_at, is_true):
        if not self.pg:
            self.pg = psycopg.connect(
                self.url, autocommit=True, connect_timeout=CONNECT_S, application_name="torture"
            )
        looked_at = now()
        found = is_true()
        if self._is_doubtful(found, now() - looked_at):
            self._close()
            return
        self.looked += 1
        self.delays.append(looked_at - answered_at)
        if not found:
            self.false.append(ask)

    def _is_doubtful(self, _found, took_s):
        """The server was frozen, and may not lead any more."""
        return took_s > FROZEN_S

    def _rows_exist(self, issued):
        return all(self._row_exists(receive, slot) for receive, slot in issued)

    def _uses_exist(self, operation):
        return all(self._use_exists(operation, receive) for receive in operation.receives)

    def _use_exists(self, operation, receive):
        place = (int(receive_parts(receive)[0]), *place_of(receive))
        return self.pg.execute(USE, (*place, operation.action, operation.key)).rowcount

    def _row_exists(self, receive, slot):
        coupon, user, _, _ = receive_parts(receive)
        if self.pg.execute(ROW, (user, int(coupon), slot, *place_of(receive))).rowcount:
            return True
        # It may have been voided meanwhile; verdict.py checks when.
        (has_voids,) = self.pg.execute(VOIDS).fetchone()
        return has_voids and self.pg.execute(VOID, (int(coupon), *place_of(receive))).rowcount
