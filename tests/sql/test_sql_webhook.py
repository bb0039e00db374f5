"""The queue of webhooks in PostgreSQL: what is queued, leased and finished, and by whom."""

import json

import pytest

LEASE_MS = 60000
FINISHES = {"retry": (500, "why"), "failed": (0, "no answer"), "gone": (410, None)}


class Queue:
    def __init__(self, db):
        self.db = db

    def hook(self, coupon=None, types="{}", batch=100, queue=100):
        [row] = self.db.query("webhook_add", "https://e.com/", coupon, types, batch, queue)
        secret = "whsec_" + "A" * 32
        assert len(self.db.query("webhook_secret_add", row["id"], secret, 0)) == 1
        return int(row["id"])

    def add(self, coupon, count=1, type_="coupon.issued"):
        events = [{"id": str(number), "type": type_} for number in range(count)]
        self.add_all([(coupon, type_, json.dumps(events))])

    def add_all(self, packets):
        columns = [list(column) for column in zip(*packets, strict=True)]
        self.db.execute("SELECT event_log_remove('{}', %s::bigint[], %s, %s)", *columns)

    def lease(self, most=100, webhook_most=100, lease_ms=LEASE_MS):
        return self.db.query("webhook_lease", most, webhook_most, lease_ms)

    def leased(self, *arguments):
        """The ids of the deliveries."""
        return [int(row["delivery"]) for row in self.lease(*arguments)]

    def finish(self, delivery, lease, result, retry_ms=3600000, pause_ms=0, disable_s=432000):
        status, why = FINISHES.get(result, (200, None))
        [row] = self.db.query(
            "webhook_finish",
            delivery,
            lease,
            result,
            status,
            why,
            retry_ms,
            pause_ms,
            5000,
            disable_s,
        )
        return row["is_own"] == "t", row["disabled_why"]

    def rows(self, hook, columns):
        return self.db.execute(
            f"SELECT {columns} FROM webhook_delivery WHERE webhook_id = %s ORDER BY id", hook
        )

    def shown(self, hook):
        [row] = self.db.query("webhook_list", hook, 0, None)
        return row

    def paused_s(self, hook):
        [[seconds]] = self.db.execute(
            "SELECT extract(epoch FROM pause_until - now()) FROM webhook WHERE id = %s", hook
        )
        return float(seconds)


@pytest.fixture
def queue(db):
    yield Queue(db)
    db.execute("DELETE FROM webhook")


def test_deliveries_are_parts_of_the_events_in_their_order(queue):
    hook = queue.hook(batch=3)
    queue.add(1, 7)
    queue.add(1, 0)
    rows = queue.rows(hook, "events_num, body, coupon_id, type, state, attempts")
    assert [(row[0], *row[2:]) for row in rows] == [
        (count, 1, "coupon.issued", "waiting", 0) for count in (3, 3, 1)
    ]
    bodies = [[event["id"] for event in json.loads(row[1])] for row in rows]
    assert bodies == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_the_wanted_ones_get_events(queue, coupon_new):
    coupon = coupon_new()
    every, one = queue.hook(), queue.hook(coupon)
    voided = queue.hook(types="{coupon.voided}")
    off = queue.hook()
    queue.db.query("webhook_state_set", off, "disabled", None)
    queue.add(coupon)
    queue.add(coupon, type_="coupon.voided")
    queue.add(7)
    counts = [len(queue.rows(hook, "id")) for hook in (every, one, voided, off)]
    assert counts == [3, 2, 1, 0]


def test_no_webhook_of_an_unknown_coupon(queue):
    assert queue.db.query("webhook_add", "https://e.com/", 2**62, "{}", 1, 1) == []


def test_a_full_queue_gives_up_the_oldest_that_failed_first(queue):
    hook = queue.hook(batch=1, queue=4)
    queue.add(1, 3)
    for _ in range(2):
        [row] = queue.lease()
        queue.finish(row["delivery"], row["lease"], "failed")
    failed = [row[0] for row in queue.rows(hook, "id")][:2]
    queue.add(1, 2)  # room for one, and for another in place of the first that failed
    assert [row[0] for row in queue.rows(hook, "id")][0] == failed[1]
    assert queue.shown(hook)["dropped_events"] == "0"
    queue.add(1, 5)
    assert queue.shown(hook)["dropped_events"] == "4"
    assert [row[0] for row in queue.rows(hook, "state")] == ["waiting"] * 4


def test_a_full_queue_is_counted_once_for_many_elements(queue):
    hooks = [queue.hook(batch=1, queue=50) for _ in range(10)]
    queue.add(1, 50)
    read = (
        "SELECT idx_tup_fetch::int FROM pg_stat_xact_user_tables"
        " WHERE relname = 'webhook_delivery'"
    )
    with queue.db.connection.transaction():
        [[before]] = queue.db.execute(read)
        queue.add_all([(coupon, "coupon.issued", '[{"id": "1"}]') for coupon in range(1, 201)])
        [[after]] = queue.db.execute(read)
    assert 0 < after - before <= 2 * 50 * len(hooks)
    assert {queue.shown(hook)["dropped_events"] for hook in hooks} == {"200"}


def test_elements_are_queued_in_their_order_up_to_the_room(queue):
    every = queue.hook(batch=2, queue=5)
    some = queue.hook(types="{coupon.voided}", batch=2, queue=5)
    queue.add_all(
        [
            (coupon, type_, json.dumps([{"id": f"{coupon}.{n}"} for n in range(count)]))
            for coupon, type_, count in (
                (1, "coupon.issued", 3),
                (2, "coupon.voided", 5),
                (3, "coupon.issued", 0),
                (4, "coupon.issued", 1),
            )
        ]
    )
    queued = queue.rows(every, "coupon_id, events_num, body")
    assert [row[:2] for row in queued] == [(1, 2), (1, 1), (2, 2), (2, 2), (2, 1)]
    assert json.loads(queued[3][2]) == [{"id": "2.2"}, {"id": "2.3"}]
    assert queue.shown(every)["dropped_events"] == "1"
    assert [row[0] for row in queue.rows(some, "events_num")] == [2, 2, 1]
    assert queue.shown(some)["dropped_events"] == "0"


def test_events_that_do_not_fit_are_counted_one_by_one(queue):
    hook = queue.hook(batch=10, queue=2)
    queue.add(1, 25)
    assert [row[0] for row in queue.rows(hook, "events_num")] == [10, 10]
    assert queue.shown(hook)["dropped_events"] == "5"


def test_one_of_a_coupon_at_a_time_and_the_first_first(queue):
    queue.hook(batch=1)
    queue.add(1, 3)
    queue.add(2, 2)
    [first, other] = queue.lease()
    assert (first["attempts"], first["lease"]) == ("0", "1")
    assert first["secrets"] == "whsec_" + "A" * 32 and first["message"].startswith("msg_")
    assert queue.lease() == []
    assert queue.finish(first["delivery"], 1, "delivered") == (True, None)
    [second] = queue.lease()
    assert int(second["delivery"]) == int(first["delivery"]) + 1
    queue.finish(second["delivery"], 1, "retry")
    assert queue.leased() == [int(first["delivery"]) + 2], "it overtakes"
    assert queue.finish(other["delivery"], 1, "released") == (True, None)
    assert queue.leased() == [int(other["delivery"])]


def test_a_lease_that_ended_is_another_workers(queue):
    hook = queue.hook()
    queue.add(1)
    [first] = queue.lease(1, lease_ms=0)
    [again] = queue.lease()
    assert (first["delivery"], first["message"]) == (again["delivery"], again["message"])
    assert (first["lease"], again["lease"]) == ("1", "2")
    for result in ("delivered", "retry", "failed", "gone", "released"):
        assert queue.finish(first["delivery"], 1, result) == (False, None)
    assert queue.rows(hook, "state, attempts, is_leased") == [("waiting", 0, True)]
    assert queue.shown(hook)["failures"] == "0"
    assert queue.finish(again["delivery"], 2, "delivered") == (True, None)
    assert queue.finish(again["delivery"], 2, "delivered") == (False, None)
    shown = queue.shown(hook)
    assert (shown["delivered_events"], shown["waiting"]) == ("1", "0")


def test_webhooks_and_coupons_take_turns(queue):
    hooks = [queue.hook(batch=1) for _ in range(2)]
    for coupon in (1, 2, 3):
        queue.add(coupon, 2)
    turns = []
    for _ in range(12):
        [row] = queue.lease(1)
        [[coupon]] = queue.db.execute(
            "SELECT coupon_id FROM webhook_delivery WHERE id = %s", row["delivery"]
        )
        turns.append((int(row["webhook"]), coupon))
        queue.finish(row["delivery"], row["lease"], "delivered")
    assert turns == [(hook, coupon) for coupon in (1, 2, 3) for hook in hooks] * 2


def test_a_webhook_has_its_limit(queue):
    first, second = queue.hook(), queue.hook()
    for coupon in range(1, 11):
        queue.add(coupon)
    taken = [int(row["webhook"]) for row in queue.lease(100, 4)]
    assert (taken.count(first), taken.count(second)) == (4, 4)
    assert queue.lease(100, 4) == []
    assert len(queue.lease(3, 100)) == 3


def test_pauses_grow_with_failures_in_a_row(queue):
    hook = queue.hook(batch=1)
    paused = []
    for coupon in range(1, 13):
        queue.add(coupon)
        [row] = queue.lease()
        queue.finish(row["delivery"], row["lease"], "retry")
        paused.append(round(queue.paused_s(hook)))
        assert (queue.lease() == []) or paused[-1] == 0
        queue.db.execute("UPDATE webhook SET pause_until = now() WHERE id = %s", hook)
    assert paused == [0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300, 300]
    # One at a time while it fails.
    for coupon in range(101, 111):
        queue.add(coupon)
    [row] = queue.lease()
    queue.finish(row["delivery"], row["lease"], "delivered")
    assert len(queue.lease()) == 9
    assert queue.shown(hook)["failing_since"] is None


def test_a_pause_that_is_asked_for(queue):
    hook = queue.hook()
    queue.add(1)
    [row] = queue.lease()
    queue.finish(row["delivery"], row["lease"], "retry", pause_ms=7000)
    assert round(queue.paused_s(hook)) == 7


@pytest.mark.parametrize("result", ["leased", "retry", "paused"])
def test_what_waits_is_due_when_the_clock_is_set_back(queue, result):
    queue.hook(batch=1)
    queue.add(1, 2)
    [row] = queue.lease()
    if result == "paused":
        queue.finish(row["delivery"], row["lease"], "retry", retry_ms=0, pause_ms=3000)
    elif result != "leased":
        queue.finish(row["delivery"], row["lease"], result)
    queue.db.execute(
        "UPDATE webhook SET turn_at = turn_at + '1 h', failing_since = failing_since + '1 h',"
        " pause_until = pause_until + '1 h'"
    )
    queue.db.execute(
        "UPDATE webhook_delivery SET next_at = next_at + '1 h', created_at = created_at + '1 h'"
    )
    assert queue.leased() == [int(row["delivery"])]
    assert queue.leased() == [], "one of a coupon at a time, as ever"
    assert queue.db.execute("SELECT failing_since > now() FROM webhook") != [(True,)]


@pytest.mark.parametrize("result", ["delivered", "retry"])
def test_an_outcome_notes_the_clock(queue, result):
    queue.hook()
    queue.add(1)
    [row] = queue.lease()
    queue.db.execute("UPDATE webhook SET turn_at = turn_at - interval '1 h'")
    queue.finish(row["delivery"], row["lease"], result)
    [[noted]] = queue.db.execute("SELECT now() - turn_at < '1 min' FROM webhook")
    assert noted


@pytest.mark.parametrize("result", ["delivered", "retry"])
def test_an_outcome_does_not_hide_that_the_clock_was_set_back(queue, result):
    """Of a request that was under way then, while another one waits for the clock of before."""
    queue.hook()
    queue.add(1)
    queue.add(2)
    waits, under_way = queue.lease()
    queue.finish(waits["delivery"], waits["lease"], "retry")
    queue.db.execute("UPDATE webhook SET turn_at = turn_at + '1 h'")
    queue.finish(under_way["delivery"], under_way["lease"], result)
    assert int(waits["delivery"]) in queue.leased()


def test_what_nobody_has_leased_is_due_when_the_clock_is_set_back(queue):
    hook = queue.hook()
    queue.add(1)
    queue.db.execute("UPDATE webhook_delivery SET created_at = created_at + '1 h'")
    [shown] = queue.db.query("webhook_deliveries", hook, None, 0, 1)
    assert shown["next_at"] == shown["created_at"]
    assert len(queue.leased()) == 1


def test_when_a_webhook_is_disabled(queue):
    hook = queue.hook(batch=1)
    queue.add(1, 3)
    [row] = queue.lease()
    assert queue.finish(row["delivery"], row["lease"], "retry", disable_s=3600) == (True, None)
    queue.db.execute("UPDATE webhook SET failing_since = now() - interval '1 h'")
    [row] = queue.lease()
    own, why = queue.finish(row["delivery"], row["lease"], "failed", disable_s=3600)
    assert own and why.startswith("every attempt has failed since ")
    shown = queue.shown(hook)
    assert (shown["state"], shown["why"], shown["state_by"]) == (
        "disabled",
        why,
        "coupon-worker",
    )
    assert queue.lease() == []
    assert queue.db.query("webhook_state_set", hook, "enabled", None) == [{"id": str(hook)}]
    shown = queue.shown(hook)
    assert (shown["failures"], shown["failing_since"]) == ("0", None)
    [row] = queue.lease()
    assert queue.finish(row["delivery"], row["lease"], "gone") == (
        True,
        "the endpoint answered 410 Gone",
    )


def test_a_worker_does_not_wait_for_another(queue, db_new):
    first, second = queue.hook(), queue.hook()
    queue.add(1)
    other = Queue(db_new())
    other.db.execute("BEGIN")
    other.db.execute("SELECT FROM webhook WHERE id = %s FOR UPDATE", first)
    assert [int(row["webhook"]) for row in queue.lease()] == [second]
    other.db.execute("ROLLBACK")
    assert [int(row["webhook"]) for row in queue.lease()] == [first]


def test_enqueue_waits_for_no_worker(queue, db_new):
    """A claim or a finish that has not ended keeps only other claims and finishes away."""
    hook = queue.hook(queue=10)
    queue.add(1)
    other = Queue(db_new())
    other.db.execute("BEGIN")
    [row] = other.lease()
    queue.db.execute("SET lock_timeout = '200ms'")
    queue.add(1)
    other.finish(row["delivery"], row["lease"], "delivered")
    queue.add(1)
    other.db.execute("COMMIT")
    assert len(queue.rows(hook, "id")) == 2


def test_a_webhook_that_is_removed_while_it_is_sent_to(queue, db_new, background):
    """The remover and the finisher lock in one order; the delivery has gone then."""
    hook = queue.hook()
    queue.add(1)
    [row] = queue.lease()
    other = Queue(db_new())
    other.db.execute("BEGIN")
    assert other.db.query("webhook_remove", hook) == [{"id": str(hook)}]
    finishing = background(queue.finish, row["delivery"], row["lease"], "delivered")
    other.db.execute("COMMIT")
    assert finishing.result() == (False, None)


def test_what_expires(queue):
    hook = queue.hook(batch=1)
    queue.add(1, 3)
    for _ in range(2):
        [row] = queue.lease()
        queue.finish(row["delivery"], row["lease"], "failed")
    queue.db.execute(
        "UPDATE webhook_delivery SET last_at = now() - interval '1 h' WHERE id = (SELECT min(id)"
        " FROM webhook_delivery WHERE webhook_id = %s)",
        hook,
    )
    assert len(queue.db.query("webhook_secret_add", hook, "whsec_" + "B" * 32, 0)) == 1
    assert len(queue.db.query("webhook_secrets", hook)) == 1
    queue.db.query("webhook_expire", 3601)
    assert len(queue.rows(hook, "id")) == 3
    queue.db.query("webhook_expire", 3599)
    assert [row[0] for row in queue.rows(hook, "state")] == ["failed", "waiting"]
    assert queue.db.execute("SELECT secret FROM webhook_secret WHERE webhook_id = %s", hook) == [
        ("whsec_" + "B" * 32,)
    ]


def test_secrets_overlap_and_are_limited(queue):
    hook = queue.hook()
    for letter, overlap_s in (("B", 60), ("C", 3600), ("D", 3600)):
        assert queue.db.query("webhook_secret_add", hook, f"whsec_{letter * 32}", overlap_s)
    assert queue.db.query("webhook_secret_add", hook, "whsec_" + "E" * 32, 60) == []
    queue.add(1)
    [row] = queue.lease()
    assert row["secrets"].split(" ") == [f"whsec_{letter * 32}" for letter in "DCBA"]
    # A later overlap does not prolong an earlier one.
    assert queue.db.execute(
        "SELECT count(*) FROM webhook_secret WHERE expires_at < now() + interval '10 min'"
    ) == [(1,)]
    assert queue.db.query("webhook_secret_add", hook, "whsec_" + "E" * 32, 0)
    assert [one["secret"][6] for one in queue.db.query("webhook_secrets", hook)] == ["E"]
    queue.add(2)
    [row] = queue.lease()
    assert row["secrets"] == "whsec_" + "E" * 32


def test_counts(queue):
    hook = queue.hook(batch=1)
    queue.add(1, 3)
    off = queue.hook()
    queue.add(2)
    queue.db.query("webhook_state_set", off, "disabled", None)
    [row, _] = queue.lease()
    queue.finish(row["delivery"], row["lease"], "failed")
    [counts] = queue.db.query("webhook_counts")
    assert int(counts.pop("oldest_ms")) >= 0
    assert counts == {
        "waiting_num": "3",
        "failed_num": "1",
        "disabled_num": "1",
        "dropped_num": "0",
    }
    queue.db.execute("DELETE FROM webhook WHERE id = ANY (%s)", [hook, off])
    [counts] = queue.db.query("webhook_counts")
    assert set(counts.values()) == {"0"}


def test_there_are_not_too_many(queue):
    made = "SELECT 'https://e.com/', '{}'::text[], 1, 1, 'a', 'a' FROM generate_series(1, 1000)"
    queue.db.execute(
        "INSERT INTO webhook (url, types, batch_max, queue_max, state_by, created_by) " + made
    )
    assert queue.db.query("webhook_add", "https://e.com/", None, "{}", 1, 1) == []
