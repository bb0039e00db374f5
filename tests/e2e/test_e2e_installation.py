"""Programs whose PostgreSQL and Redis are of different installations change nothing, and Redis that
has lost its data gets back the id that it had."""

import json

import pika
import pytest
import redis
import requests

from history import DEAD_QUEUE, QUEUE, queue_length
from installation import BUSY, another_installation
from message import message, message_publish
from stack import wait_until
from admin_client import API, Admin, key_maker, ok, problem

CHANGES = "couponmq:changes"
OTHER = "00000000-0000-4000-8000-000000000001"
TOLD = "Redis belongs to another installation than PostgreSQL"


@pytest.fixture
def other(rough):
    with another_installation(rough) as other:
        yield other


@pytest.fixture
def wrong_worker(rough, other, worker_make):
    return worker_make(rough, ready=False, **other.env)


@pytest.fixture
def amqp_rough(rough):
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        channel = connection.channel()
        channel.queue_purge(DEAD_QUEUE)
        yield channel
        channel.queue_purge(DEAD_QUEUE)


def readyz(process):
    return requests.get(process.http("/readyz"), timeout=3)


def trouble(process, part):
    try:
        return readyz(process).json()[part]
    except requests.RequestException:
        return ""


def own_id(pg):
    return str(pg.execute("SELECT id FROM installation").fetchone()[0])


def adopted(rough_redis, installation):
    return rough_redis.hget(CHANGES, "installation") == installation


def issued(client, coupon, user):
    """Settled by the right worker."""
    reply = client.issue(coupon, user, ack="issued")
    assert reply["status"] == "issued", reply


def test_a_worker_of_another_database_changes_nothing(
    rough, rough_redis, rough_pg, rough_coupon, other, wrong_worker
):
    coupon, own = rough_coupon(100).coupon, own_id(rough_pg)
    assert other.installation() != own
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued")
        before = other.rows()
        wait_until(lambda: TOLD in trouble(wrong_worker, "redis"), timeout=60)
        assert readyz(wrong_worker).status_code == 503
        metrics = wrong_worker.metrics()
        assert metrics["couponmq_keeper_installation_differs"] == 1
        assert metrics["couponmq_worker_consumer_up"] == 0
        for user in range(2, 40):
            issued(client, coupon, user)
        wait_until(lambda: wrong_worker.metrics()["couponmq_keeper_installation_differs"] == 1)
    log = wrong_worker.log()
    assert log.count("event=installation_differs") == 1
    assert other.installation() in log and own in log
    assert "event=ready" not in log and "keeper_elected" not in log
    assert other.rows() == before
    assert adopted(rough_redis, own)
    assert str(BUSY) not in rough_redis.hvals(CHANGES)
    rough.ctl("audit", coupon)


def test_its_couponctl_refuses(rough, rough_redis, other):
    before = rough_redis.dump(CHANGES), other.rows()
    refused = other.ctl("create", "--name", "x", "--total", 5, "--valid-days", 1)
    assert refused.returncode == 1
    assert "nothing was done" in refused.stderr and other.installation() in refused.stderr
    assert (rough_redis.dump(CHANGES), other.rows()) == before


def test_its_gateway_issues_nothing(rough, rough_redis, rough_coupon, other, gateway_make):
    coupon = rough_coupon(100)
    gateway = gateway_make(rough, ready=False, **other.env)
    wait_until(lambda: TOLD in gateway.trouble("postgresql"), timeout=60)
    assert readyz(gateway).status_code == 503
    before = rough_redis.hgetall(coupon.key)
    with gateway.client() as client:
        for op, member in (("issue", {"coupon": coupon.coupon}), ("claim", {"code": "ABCD"})):
            reply = client.call(op, user="1", **member)
            assert (reply["status"], reply["message"]) == ("unavailable", TOLD)
    assert rough_redis.hgetall(coupon.key) == before
    with rough.client() as client:
        issued(client, coupon.coupon, 1)


class Waiting(Admin):
    """One that is never ready."""

    def is_ready(self):
        try:
            return requests.get(self.url + "/readyz", timeout=60).status_code == 503
        except requests.RequestException:
            return False


def test_its_admin_takes_no_keys_of_redis(rough, other):
    """Nor says that they are wrong."""
    text = key_maker(rough)("admin")
    admin = Waiting(rough, **other.env)
    wait_until(lambda: "event=installation_differs" in admin.log())
    for _ in range(3):
        problem(admin.call("GET", f"{API}/campaigns", key=text), 503)
        problem(admin.call("POST", "/admin/session", {"key": text}), 503)
    assert admin.is_ready()
    admin.end()
    own = Admin(rough)
    ok(own.call("GET", f"{API}/campaigns", key=text))
    own.end()


def test_an_emptied_redis_gets_the_id_that_gateways_know(
    rough, rough_redis, rough_pg, rough_coupon, wrong_worker
):
    """Also while PostgreSQL is away; and the worker of another database does not adopt it."""
    coupon, own = rough_coupon(100).coupon, own_id(rough_pg)
    wait_until(lambda: TOLD in trouble(wrong_worker, "redis"), timeout=60)
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued")
        rough.stop("postgres")
        rough_redis.flushall()
        wait_until(lambda: adopted(rough_redis, own), timeout=60)
        assert "event=installation_adopted" in rough.log("gateway")
        rough.start("postgres")
        wait_until(lambda: client.issue(coupon, 2, ack="issued")["status"] == "issued", timeout=60)
    assert adopted(rough_redis, own)


def test_without_gateways_a_keeper_claims_it(rough, rough_redis, rough_pg):
    own = own_id(rough_pg)
    rough.stop("gateway")
    rough_redis.flushall()
    wait_until(lambda: adopted(rough_redis, own))
    wait_until(lambda: "event=installation_adopted" in rough.log("worker-1"))


# Messages


def test_messages_have_the_id(rough, rough_redis, rough_pg, rough_coupon, amqp_rough):
    """Messages of a gateway have it, and those that the keeper sends again."""
    coupon, own = rough_coupon(100), own_id(rough_pg)
    rough.stop("worker-1")
    with rough.client() as client:
        reply = wait_until(lambda: (r := client.issue(coupon.coupon, 1))["code"] == 0 and r)
        wait_until(lambda: queue_length(rough, QUEUE) == 1)
        told = amqp_rough.basic_get(QUEUE, auto_ack=True)[1]
        assert told.app_id == own
        rough.start("worker-1")  # which finds the message in the outbox
        status = wait_until(
            lambda: (r := client.call("status", receive=reply["receive"]))["status"] == "issued"
            and r,
            timeout=60,
        )
    assert status["receive"] == reply["receive"]


def test_a_message_of_another_installation_goes_to_the_dead_letters(
    rough, rough_pg, rough_coupon, amqp_rough, other
):
    coupon, own = rough_coupon(100), own_id(rough_pg)
    body = message(coupon.coupon)
    message_publish(amqp_rough, body, app_id=OTHER)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    told = json.loads(rough.ctl("dead", "list", "--json"))["messages"]
    assert [one["reason"] for one in told] == ["of another installation"]
    assert coupon.row("issued_num") == (0,)
    assert not coupon.redis.exists(coupon.key + ":dead"), "Redis does not know it"
    refused = other.ctl("dead", "remove", "--all", "--yes")
    assert refused.returncode == 1 and "nothing was done" in refused.stderr
    assert queue_length(rough, DEAD_QUEUE) == 1

    said = rough.log("worker-1").count("of another installation")
    rough.ctl("dead", "requeue", "--all")
    wait_until(lambda: rough.log("worker-1").count("of another installation") == said + 1)
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 1)
    rough.ctl("dead", "requeue", "--all", "--adopt")
    wait_until(lambda: coupon.row("issued_num") == (1,))
    wait_until(lambda: queue_length(rough, DEAD_QUEUE) == 0)

    message_publish(amqp_rough, message(coupon.coupon, seq=2, receives=[["43", 1, ""]]), app_id=own)
    message_publish(amqp_rough, message(coupon.coupon, seq=3, receives=[["44", 1, ""]]))
    wait_until(lambda: coupon.row("issued_num") == (3,))
    assert queue_length(rough, DEAD_QUEUE) == 0


# couponctl installation


@pytest.fixture
def whole(rough, rough_owner):
    """The stack, which has its id again at the end."""
    own = own_id(rough_owner)
    yield rough
    rough.stop("gateway", "worker-1")
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as cache:
        cache.hset(CHANGES, "installation", own)
    rough_owner.execute("UPDATE installation SET id = %s", (own,))


def test_show(rough, rough_redis, rough_pg, other):
    own = own_id(rough_pg)
    wait_until(lambda: adopted(rough_redis, own))
    assert rough.ctl("installation", "show").split()[:4] == ["PostgreSQL", own, "Redis", own]
    told = other.ctl("installation", "show", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout) == {"postgresql": other.installation(), "redis": own}
    assert TOLD in other.ctl("installation", "show").stdout


def test_new_and_adopt(whole, rough_redis, rough_pg, rough_coupon):
    coupon, old = rough_coupon(100).coupon, own_id(rough_pg)
    refused = whole.ctl_run("installation", "new")
    assert refused.returncode == 1 and f"--instead-of {old}" in refused.stderr
    refused = whole.ctl_run("installation", "new", "--instead-of", OTHER)
    assert refused.returncode == 2 and old in refused.stderr
    assert own_id(rough_pg) == old

    new = whole.ctl("installation", "new", "--instead-of", old)
    assert own_id(rough_pg) == new != old
    wait_until(lambda: whole.log_has("worker-1", "event=installation_differs"), timeout=60)
    wait_until(lambda: whole.log_has("gateway", "event=installation_differs"), timeout=60)

    refused = whole.ctl_run("installation", "adopt")
    assert refused.returncode == 1 and f"--instead-of {old}" in refused.stderr
    refused = whole.ctl_run("installation", "adopt", "--instead-of", OTHER)
    assert refused.returncode == 1
    assert adopted(rough_redis, old)
    assert whole.ctl("installation", "adopt", "--instead-of", old) == new
    assert adopted(rough_redis, new)
    with whole.client() as client:
        wait_until(lambda: client.issue(coupon, 1, ack="issued")["status"] == "issued", timeout=60)
    whole.ctl("audit", coupon)


def test_a_copy_gets_an_id_of_its_own(rough, rough_redis, rough_pg, other):
    """A database that was restored from the backup of another one."""
    own = own_id(rough_pg)
    with other.owner() as pg:
        pg.execute("UPDATE installation SET id = %s", (own,))
    assert other.ctl("installation", "show").returncode == 0, "nothing tells them apart"
    assert other.ctl("installation", "new").returncode == 1, "it has the Redis of production"
    new = other.ctl("installation", "new", "--instead-of", own).stdout.strip()
    assert other.installation() == new != own
    assert other.ctl("installation", "show").returncode == 1
    assert adopted(rough_redis, own)


def test_both_get_another_id_at_once(whole, rough_redis, rough_owner, rough_coupon, amqp_rough):
    """No keeper sees them differ. What a gateway publishes then, its worker takes."""
    coupon = rough_coupon(100)
    whole.stop("worker-1")
    whole.start("worker-1", COUPON_KEEPER_ROUND_MS=1000)
    with whole.client() as client:
        wait_until(lambda: client.issue(coupon.coupon, 1, ack="issued")["status"] == "issued")
        rough_owner.execute("UPDATE installation SET id = %s", (OTHER,))
        rough_redis.hset(CHANGES, "installation", OTHER)
        users = iter(range(2, 100))
        wait_until(
            lambda: client.issue(coupon.coupon, next(users), ack="issued")["status"] == "issued",
            timeout=60,
        )
    whole.ctl("dead", "requeue", "--all", "--adopt")
    told = coupon.redis.hlen(coupon.key + ":users")
    wait_until(lambda: coupon.row("issued_num") == (told,))
