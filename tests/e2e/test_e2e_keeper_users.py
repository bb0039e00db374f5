"""The keeper and users of any byte: their rejected receives are freed, a rebuild keeps their
slots, its late outcomes are counted, receives without a message are settled, and what is lost is
given up by name."""

import pika
import psycopg
import pytest

from audit_ground import outbox_lose, purge
from history import DEAD_QUEUE, QUEUE
from stack import Client, wait_until
from ulid import ulid_make, ulid_uuid
from user_ids import HOSTILE

UNAVAILABLE = 21


def key_of(coupon):
    return f"coupon:{{{coupon}}}"


def count(redis_client, coupon, name):
    return int(redis_client.hget(key_of(coupon), name) or 0)


def users_of(redis_client, coupon):
    return redis_client.hgetall(key_of(coupon) + ":users")


def issue_all(client, coupon, users, **members):
    return client.pipeline(
        [{"op": "issue", "coupon": str(coupon), "user": user, **members} for user in users]
    )


def record_of(reply, key=""):
    """As Redis has it."""
    batch, index = reply["receive"].rsplit(".", 2)[1:]
    return f"{reply['slot']}:{batch}:{index}:{key}"


def audited(rough, coupon):
    wait_until(lambda: rough.ctl_run("audit", coupon).returncode == 0)
    return True


def test_rejected_receives_are_freed(rough, rough_redis, rough_pg):
    """PostgreSQL has another receive in the slot of every second one; the others cannot be issued,
    since the total was lowered by hand."""
    coupon = rough.coupon_make(2 * len(HOSTILE))
    wait_until(lambda: rough_redis.exists(key_of(coupon)))
    records = {}
    for user in HOSTILE[::2]:
        batch = ulid_make()
        rough_pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from, key) VALUES (%s, %s, 1, 7, %s, now(), now(), 'k')",
            (user, coupon, ulid_uuid(batch)),
        )
        records[user] = f"1:{batch}:7:k"
    rough_pg.execute("UPDATE coupon SET issued_num = %s WHERE id = %s", (len(HOSTILE[::2]), coupon))
    rough_pg.execute(
        "INSERT INTO coupon_generation VALUES (%s, 0, %s, %s)",
        (coupon, len(HOSTILE[::2]), len(HOSTILE[::2])),
    )
    with Client(rough.env["COUPON_LISTEN"]) as client:
        replies = issue_all(client, coupon, HOSTILE, ack="issued")
        assert {r.get("reason") for r in replies[::2]} == {"slot_taken"}
        assert {r["status"] for r in replies[1::2]} == {"issued"}
        records.update(zip(HOSTILE[1::2], map(record_of, replies[1::2])))
        query = "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND freed_at IS NULL"
        wait_until(lambda: rough_pg.execute(query, (coupon,)).fetchone() == (0,))
        assert users_of(rough_redis, coupon) == records
        for user in HOSTILE:
            receives = client.call("status", coupon=coupon, user=user)["receives"]
            states = {r["receive"]: r["state"] for r in receives}
            slot, batch, index, _ = records[user].split(":")
            assert states.pop(f"{coupon}.{user}.{batch}.{index}") == "issued" and slot == "1"
            assert set(states.values()) <= {"rejected"}
    assert audited(rough, coupon)


def test_a_rebuild_keeps_their_slots(rough, rough_redis, rough_pg):
    """Redis is wiped while one half is issued and the other is in flight: of the latter nothing
    is known but how many, until each late outcome is counted."""
    n = len(HOSTILE)
    coupon = rough.coupon_make(2 * n)
    wait_until(lambda: rough_redis.exists(key_of(coupon)))
    with Client(rough.env["COUPON_LISTEN"]) as client:
        replies = issue_all(client, coupon, HOSTILE[::2], ack="issued", key="k")
        rough.stop("worker-1")
        replies += issue_all(client, coupon, HOSTILE[1::2], ack="queued", key="k")
        assert {r["code"] for r in replies} == {0}
        rough_redis.flushall()
        rough.start("worker-1")
        again = [
            wait_until(
                lambda: (r := client.issue(coupon, user, key="k"))["code"] != UNAVAILABLE and r
            )
            for user in HOSTILE[::2]
        ]
        assert [r["receive"] for r in again] == [r["receive"] for r in replies[: len(again)]]
        wait_until(lambda: count(rough_redis, coupon, "reserved") == 0)
        wait_until(lambda: len(users_of(rough_redis, coupon)) == n)
    assert users_of(rough_redis, coupon) == {
        r["receive"].split(".", 1)[1].rsplit(".", 2)[0]: record_of(r, "k") for r in replies
    }
    assert count(rough_redis, coupon, "stock") == n
    assert audited(rough, coupon)


def test_lost_receives_are_given_up_by_name(rough, rough_redis):
    coupon = rough.coupon_make(1000)
    wait_until(lambda: rough_redis.exists(key_of(coupon)))
    rough.stop("worker-1")
    with Client(rough.env["COUPON_LISTEN"]) as client:
        replies = issue_all(client, coupon, HOSTILE, ack="queued")
        with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as amqp:
            channel = amqp.channel()
            wait_until(lambda: channel.queue_purge(QUEUE).method.message_count == 0)
            channel.queue_purge(DEAD_QUEUE)  # those of other tests
        rough_redis.delete(key_of(coupon) + ":outbox")
        rough.start("worker-1")
        told = rough.ctl("rebuild", coupon, "--give-up-lost", "--older-than-s", 0).splitlines()
        for user, reply in zip(HOSTILE, replies):
            assert f"lost: receive {reply['receive']}, user {user}, slot 1" in told
        wait_until(lambda: not users_of(rough_redis, coupon))
        assert {client.call("status", receive=reply["receive"])["reason"] for reply in replies} == {
            "lost"
        }
    assert audited(rough, coupon)


@pytest.mark.long
def test_receives_without_a_message_are_settled_from_their_slots(rough, rough_redis, tmp_path):
    """Redis and RabbitMQ have lost the messages; keys and codes come from the users' records."""
    coupon = rough.coupon_make(1000)
    wait_until(lambda: rough_redis.exists(key_of(coupon)))
    path = tmp_path / "codes.csv"
    path.write_text("code\nSTUCK-1\nSTUCK-2\n")
    with Client(rough.env["COUPON_LISTEN"]) as client:
        sets = client.call("stats")["stats"].get("code_sets", 0)
        rough.ctl("codes", "import", coupon, path)
        wait_until(lambda: client.call("stats")["stats"].get("code_sets", 0) > sets)
        rough.stop("worker-1")
        replies = [
            client.issue(coupon, "plain", key="k", ack="queued"),
            client.call("claim", code="STUCK-1", user="one", ack="queued"),
            client.call("claim", code="STUCK-2", user="two", key="k", ack="queued"),
        ]
        assert [reply["status"] for reply in replies] == ["queued"] * 3
    purge(rough)
    outbox_lose(rough, coupon)
    rough.start("worker-1")
    rows = "SELECT user_id, key, code IS NOT NULL FROM user_coupon WHERE coupon_id = %s ORDER BY 1"
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"], autocommit=True) as db:
        settled = wait_until(lambda: db.execute(rows, [coupon]).fetchall())
        ((used,),) = db.execute(
            "SELECT count(*) FROM code WHERE coupon_id = %s AND state = 'used'", [coupon]
        )
    assert settled == [("one", None, True), ("plain", "k", False), ("two", "k", True)]
    assert used == 2
    assert audited(rough, coupon)
