"""PostgreSQL as the C programs use it: its statements by name, parameters and results as text."""

import json
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg.pq import ExecStatus

from sent import QUERIES

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = sorted((ROOT / "sql" / "schema").glob("*.sql"))
MIGRATIONS = sorted((ROOT / "sql" / "migration").glob("*.sql"))  # those after it
FUNCTIONS = sorted((ROOT / "sql" / "function").glob("*.sql"))
ROLES = ROOT / "sql" / "roles.sql"
AT_MS = 1700000000123


@dataclass(frozen=True)
class Receive:
    coupon: int
    user: str
    batch: uuid.UUID
    idx: int
    slot: int = 1
    generation: int = 0
    seq: int = 1
    key: str = ""  # with a tab and the code if one was claimed
    at_ms: int = AT_MS
    trace: str = ""

    def but(self, **changes):
        return replace(self, **changes)


@dataclass(frozen=True)
class Operation:
    """On receives, or on any receive of a (coupon, user)."""

    action: str
    order: str
    receives: tuple
    key: str = ""  # none: a new one
    ttl_s: int = 900
    amount: int | None = None
    currency: str = ""
    by: str = ""
    reason: str = ""
    trace: str = ""


def array_text(values):
    """A PostgreSQL array literal, every element quoted, but None."""
    values = list(values)
    if None in values:
        return "{" + ",".join("NULL" if v is None else array_text([v])[1:-1] for v in values) + "}"
    quoted = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


class Db:
    def __init__(self, url):
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self.pid = self.connection.info.backend_pid
        self.prepared = set()
        self.change = None  # of the last settle(): 'STRIPE:NUM'

    def close(self):
        self.connection.close()

    def reset(self):
        """As it was when it was opened."""
        self.connection.rollback()
        self.connection.execute("DISCARD ALL")
        self.connection.execute("SELECT pg_stat_force_next_flush()")  # of pg_stat_xact_user_tables
        self.prepared.clear()
        self.change = None

    def execute(self, text, *params):
        cursor = self.connection.execute(text, params or None)
        return cursor.fetchall() if cursor.description else []

    def prepare(self, name):
        """From now on this query is a prepared statement."""
        result = self.connection.pgconn.prepare(name.encode(), QUERIES[name].encode())
        if result.status != ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
        self.prepared.add(name)

    def coupon_create(self, coupon, total, limit=1, name="test", **terms):
        """The rows of `coupon_create`; terms are columns of the table."""
        terms = {"name": name, "total_num": total, "user_limit": limit, **terms}
        return self.query("coupon_create", coupon, json.dumps(terms))

    def status_put(self, coupon, status):
        """Sets the status of a draft, by the changes that are allowed."""
        steps = {"draft": [], "paused": ["published"], "closed": ["published"]}.get(status, [])
        for step in [*steps, *([] if status == "draft" else [status])]:
            self.execute("UPDATE coupon SET status = %s WHERE id = %s", step, coupon)

    def query(self, name, *params):
        """Rows of this statement, as dictionaries of text."""
        values = [None if value is None else str(value).encode() for value in params]
        if name in self.prepared:
            result = self.connection.pgconn.exec_prepared(name.encode(), values)
        else:
            result = self.connection.pgconn.exec_params(QUERIES[name].encode(), values)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result)
        names = [result.fname(column).decode() for column in range(result.nfields)]
        return [
            {
                name: None if (value := result.get_value(row, column)) is None else value.decode()
                for column, name in enumerate(names)
            }
            for row in range(result.ntuples)
        ]

    def outcomes(self, name, *asked):
        """Rows of this statement for (coupon, user, batch, index) each, or for (coupon, user)."""
        return self.query(name, *(array_text(column) for column in zip(*asked, strict=True)))

    def settle(self, *receives):
        """Per receive: `issued`, `repeated` or the reason of its rejection."""
        fields = ("coupon", "generation", "seq", "batch", "idx", "user", "slot")
        columns = [array_text(getattr(one, field) for one in receives) for field in fields]
        times = array_text(one.at_ms for one in receives)
        traces = [one.trace for one in receives]
        traces = array_text(traces if any(traces) else [])
        rows = self.query("settle", *columns, *self.tails(receives), times, traces)
        changed = rows.pop()
        assert (changed["ord"], changed["outcome"]) == ("0", "changed"), "it comes last"
        self.change = changed["reason"]
        outcomes = ["issued"] * len(receives)
        for row in rows:
            assert (row["outcome"] == "rejected") == (row["reason"] is not None), row
            assert outcomes[int(row["ord"]) - 1] == "issued", "an element has two outcomes"
            outcomes[int(row["ord"]) - 1] = row["reason"] or row["outcome"]
        return outcomes

    def tails(self, receives):
        """The keys and the codes."""
        pairs = [one.key.partition("\t") for one in receives]
        codes = [code for _, _, code in pairs]
        return array_text(key for key, _, _ in pairs), array_text(codes if any(codes) else [])

    def settle_retrying(self, *receives):
        """As a worker does; any error but 40001, in particular a deadlock, is a failure."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.settle(*receives)
            except psycopg.errors.SerializationFailure:
                assert time.monotonic() < deadline, "still to be retried after 60 s"

    def use(self, *operations):
        """The rows of each operation."""
        keys = [one.key or uuid.uuid4().hex for one in operations]
        fields = ("action", "order", "by", "ttl_s", "amount", "currency", "reason")
        action, order, *others = [[getattr(o, field) for o in operations] for field in fields]
        named = [
            (position, *(one[:2] if isinstance(one, tuple) else (one.coupon, one.user)))
            + ((None, None) if isinstance(one, tuple) else (one.batch, one.idx))
            for position, operation in enumerate(operations, 1)
            for one in operation.receives
        ]
        traces = [one.trace for one in operations]
        columns = [action, order, keys, *others, *zip(*named), traces if any(traces) else []]
        rows = self.query("use", *map(array_text, columns))
        changed = rows.pop()
        assert (changed["of_op"], changed["result"]) == ("0", "changed"), "it comes last"
        self.change = changed["record"]
        told = [[] for _ in operations]
        for row in rows:
            told[int(row["of_op"]) - 1].append(row)
        return told

    def rows(self, coupon):
        return self.execute(
            "SELECT user_id, slot, batch, idx FROM user_coupon WHERE coupon_id = %s ORDER BY"
            " user_id, slot",
            coupon,
        )

    def tombstones(self, coupon):
        return self.execute(
            "SELECT user_id, slot, batch, idx, reason FROM receive_rejected WHERE coupon_id = %s"
            " ORDER BY user_id, slot, batch, idx",
            coupon,
        )

    def counts(self, coupon):
        """(issued_num, seq_seen, settled_num)"""
        return self.execute(
            "SELECT issued_num, seq_seen, settled_num FROM coupon WHERE id = %s", coupon
        )[0]

    def generations(self, coupon):
        """The generations that are not current: {generation: (seq_seen, settled_num)}"""
        rows = self.query("coupon_generation_page", coupon)
        return {
            int(row["generation"]): (int(row["seq_seen"]), int(row["settled_num"])) for row in rows
        }

    def audit(self, *coupons):
        """The findings of the audits on these coupons."""
        return [
            (name, row)
            for coupon in coupons
            for name in ("audit_stock", "audit_limit", "audit_twice")
            for row in self.query(name, coupon)
        ]

    def is_blocked(self, pid):
        return self.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", pid)[0][0]


def users_make(first, end):
    """Ids of one length, so that they sort as their numbers."""
    return [f"{number:03}" for number in range(first, end)]


def batch_make(coupon, users, seq_first=1, **fields):
    """The receives of one message, one for each user."""
    batch = uuid.uuid4()
    return [
        Receive(coupon, user, batch, index, seq=seq_first + index, **fields)
        for index, user in enumerate(users)
    ]
