"""An accepted receive has two copies, and a lost one is made again: gateways and workers write
outbox entries again that Redis has lost, and a gateway that is told to end waits while it alone has
some."""

import re
import shutil
import signal

import pytest

from audit_ground import audit
from process import metrics_read
from redis_server import replica_of
from relay import Relay, port_of
from stack import wait_until

USERS = 30
# The time for confirms, before a gateway ends, is 10 s in any case.
SOON = {"COUPON_RESEND_AFTER_MS": 1000}


class Away:
    """A gateway for which RabbitMQ takes nothing and confirms nothing, while workers and the keeper
    reach it."""

    def __init__(self, stack, redis_client, pg, make):
        self.stack, self.redis, self.pg, self.make = stack, redis_client, pg, make
        self.relay = Relay(port_of(stack.env["AMQP_URL"]))
        self.gateway = None

    def gateway_start(self, **settings):
        self.stack.stop("gateway")
        url = self.relay.url(self.stack.env_of("gateway")["AMQP_URL"])
        self.gateway = self.make(self.stack, AMQP_URL=url, **settings)
        wait_until(lambda: self.gateway.metrics()["couponmq_amqp_up"])

    def accept(self, coupon, users=USERS):
        """So many users are answered `accepted`, and RabbitMQ gets none of it."""
        wait_until(lambda: self.issue(coupon, "first", key="k", ack="issued")["status"] == "issued")
        self.relay.mode("lose", "up")
        replies = [self.issue(coupon, f"user-{n}") for n in range(users)]
        assert {reply["status"] for reply in replies} == {"accepted"}
        return replies

    def issue(self, coupon, user, **members):
        with self.gateway.client() as client:
            return client.issue(coupon, user, **members)

    def silent(self, place, others=False):
        """PostgreSQL has not heard of the gateways at this place, or of the others, for as long as
        lets them be taken for dead."""
        self.pg.execute(
            "UPDATE gateway SET seen_at = now() - interval '11 min' WHERE (place LIKE %s) <> %s",
            (f"% {place} %", others),
        )

    def lacking(self):
        """Gateways that may have receives alone, as the keeper counts them."""
        return metrics_read(self.stack.worker_http(1, "/metrics"))[
            "couponmq_keeper_gateways_lacking"
        ]

    def ended(self):
        return self.gateway.child.poll() is not None

    def alone(self):
        """As show, audit and --give-up-lost name the gateway."""
        return f"{self.gateway.settings['COUPON_LISTEN']} 0 ({USERS} receives)"

    def alone_wait(self, coupon):
        """Until the gateway has told that it alone has the receives."""
        wait_until(lambda: self.alone() in self.stack.ctl_run("show", coupon).stdout)

    def found(self, coupon):
        """What audit tells."""
        _, told = audit(self.stack, coupon, "--grace", 0)
        print(told)
        return told

    def is_named(self, coupon, *release):
        """What the gateway that was killed had alone may be lost: the gateway is named, and nothing
        is given up."""
        self.alone_wait(coupon)
        wait_until(lambda: self.alone() in self.stack.ctl_run(*release).stderr)

    def is_found(self, coupon, *release):
        """When the gateway is taken for dead, audit finds the receives, and an operator may give
        them up. The keeper may have sent some before Redis lost them."""
        place = self.gateway.settings["COUPON_LISTEN"]
        wait_until(lambda: self.alone() in self.found(coupon)["coupons"][0].get("uncopied", ""))
        self.silent(place)
        self.silent(place, others=True)  # those that other tests have killed
        wait_until(lambda: {one["kind"] for one in self.found(coupon)["wrong"]} == {"receive_lost"})
        assert self.found(coupon)["coupons"][0]["in_flight"] + self.rows(coupon) == USERS
        self.stack.ctl(*release)
        wait_until(lambda: self.stack.ctl_run("audit", coupon).returncode == 0)

    def begin_anew(self):
        """The gateway has ended, and what it had written to its socket is lost."""
        wait_until(self.ended)
        self.relay.cut()
        self.stack.start("gateway")

    def outbox(self, coupon):
        """Receives in it."""
        bodies = self.redis.hvals(f"coupon:{{{coupon}}}:outbox")
        return sum(body.count('"user-') for body in bodies)

    def rows(self, coupon):
        return self.pg.execute(
            "SELECT count(*) FROM user_coupon WHERE coupon_id = %s AND user_id LIKE 'user-%%'",
            (coupon,),
        ).fetchone()[0]

    def copied(self, coupon):
        """How many users have a receive in the outbox, or a coupon already."""
        bodies = self.redis.hvals(f"coupon:{{{coupon}}}:outbox")
        users = {user for body in bodies for user in re.findall(r'"(user-\d+)"', body)}
        rows = self.pg.execute(
            "SELECT user_id FROM user_coupon WHERE coupon_id = %s AND user_id LIKE 'user-%%'",
            (coupon,),
        )
        return len(users | {user for (user,) in rows})

    def restored(self, coupon, users=USERS):
        """Redis has lost its data, or a part of it: everything is in the outbox again, or was sent
        from there."""
        wait_until(lambda: self.copied(coupon) == users)

    def all_settled(self, coupon, users=USERS):
        wait_until(lambda: self.rows(coupon) == users)
        wait_until(lambda: self.outbox(coupon) == 0)
        wait_until(lambda: self.stack.ctl_run("audit", coupon).returncode == 0)


@pytest.fixture
def away(rough, rough_redis, rough_pg, gateway_make):
    rough.restart("worker-1", **SOON)
    away = Away(rough, rough_redis, rough_pg, gateway_make)
    yield away
    away.gateway.kill9()
    away.relay.close()
    rough.start("redis", "gateway")
    rough_redis.config_set("maxmemory", 0)
    rough.restart("worker-1")


def keys_of(redis_client, coupon):
    return redis_client.keys(f"coupon:{{{coupon}}}*")


def flush(away, _):
    away.redis.flushall()


def delete_coupon(away, coupon):
    away.redis.delete(*keys_of(away.redis, coupon))


def delete_outbox_and_numbers(away, coupon):
    """As if an older state of the coupon had been restored by hand."""
    away.redis.delete(f"coupon:{{{coupon}}}:outbox")
    away.redis.hset(f"coupon:{{{coupon}}}", "seq", 1)


LOSSES = [flush, delete_coupon, delete_outbox_and_numbers]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_gateway_ends_after_redis_has_lost_data(how, loss, away):
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)  # sold out: no request follows
    replies = away.accept(coupon)
    loss(away, coupon)
    away.restored(coupon)
    away.gateway.signal(how)
    away.begin_anew()
    assert "event=waiting" not in away.gateway.log()
    away.all_settled(coupon)
    with away.stack.client() as client:
        for reply in replies:
            assert client.call("status", receive=reply["receive"])["status"] == "issued"


# The moments at which the gateway may be told to end. Each returns what lets it go on.


def before_the_loss(away, _):
    return lambda: None


def before_the_rebuild(away, coupon):
    """Redis has lost the coupon, and there is no keeper: nobody can write anything to it."""
    away.stack.sigstop("worker-1")
    away.redis.flushall()
    wait_until(lambda: away.redis.exists(f"coupon:{{{coupon}}}:seen"))
    away.alone_wait(coupon)
    return lambda: away.stack.sigcont("worker-1")


def before_it_is_restored(away, coupon):
    """The coupon is open again, and Redis, out of memory, refuses what it gets."""
    with away.redis.pipeline() as at_once:
        at_once.delete(f"coupon:{{{coupon}}}:outbox")
        at_once.hset(f"coupon:{{{coupon}}}", "seq", 1)
        at_once.config_set("maxmemory", 1)
        at_once.execute()
    away.alone_wait(coupon)
    return lambda: away.redis.config_set("maxmemory", 0)


def while_rabbitmq_comes_back(away, coupon):
    away.redis.flushall()
    away.restored(coupon)
    away.relay.heal()
    return lambda: None


STEPS = [
    before_the_loss,
    before_the_rebuild,
    before_it_is_restored,
    while_rabbitmq_comes_back,
]
ALONE = [before_the_rebuild, before_it_is_restored]  # then the gateway alone has the receives


@pytest.mark.parametrize("step", STEPS)
def test_sigterm_at_each_step(step, away):
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    go_on = step(away, coupon)
    away.gateway.signal(signal.SIGTERM)
    if step in ALONE:
        wait_until(lambda: "event=waiting" in away.gateway.log())
        assert not away.ended()
    go_on()
    away.begin_anew()
    assert "event=receives_lost" not in away.gateway.log()
    away.all_settled(coupon)


@pytest.mark.parametrize("step", STEPS)
def test_sigkill_at_each_step(step, away):
    """Nothing is lost but what the gateway alone has: then it is named."""
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    go_on = step(away, coupon)
    away.gateway.kill9()
    go_on()
    away.begin_anew()
    if step not in ALONE:
        away.all_settled(coupon)
        return
    release = ("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
    away.is_named(coupon, *release)
    if step is before_the_rebuild:
        away.is_found(coupon, *release)  # it has told Redis its numbers


def test_of_two_processes_each_writes_its_own(away):
    away.gateway_start(COUPON_PROCESSES=2)
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    away.redis.flushall()
    away.restored(coupon)
    away.gateway.kill9()
    away.begin_anew()
    away.all_settled(coupon)


def test_an_older_file_of_redis_is_put_back(away):
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)
    data = (away.stack.run_dir / "redis").resolve()
    wait_until(lambda: away.issue(coupon, "first", key="k", ack="issued")["status"] == "issued")
    away.stack.stop("redis")
    shutil.copytree(data, data.with_name("redis-older"))
    away.stack.start("redis")
    away.accept(coupon)
    away.stack.kill9("redis")
    shutil.rmtree(data)
    data.with_name("redis-older").rename(data)
    away.stack.start("redis")
    away.restored(coupon)
    away.gateway.kill9()
    away.begin_anew()
    away.all_settled(coupon)


def test_what_has_its_outcome_does_not_come_back(away):
    """RabbitMQ has the messages and the worker has settled them; only the gateway does not know."""
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1, limit=2)
    wait_until(lambda: away.issue(coupon, "first", ack="issued")["status"] == "issued")
    away.relay.mode("lose", "down")
    # PostgreSQL knows another receive of one user: that of Redis is rejected.
    away.pg.execute(
        "INSERT INTO user_coupon (coupon_id, user_id, slot, batch, idx, received_at, valid_from)"
        " VALUES (%s, 'user-0', 1, gen_random_uuid(), 0, now(), now())",
        (coupon,),
    )
    away.pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))
    rejected, voided, issued = (away.issue(coupon, f"user-{n}")["receive"] for n in range(3))
    with away.gateway.client() as client:
        wait_until(lambda: client.call("status", receive=rejected)["status"] == "rejected")
        wait_until(lambda: client.call("status", receive=voided)["status"] == "issued")
        wait_until(lambda: client.call("status", receive=issued)["status"] == "issued")
        away.stack.ctl("void", voided)
        wait_until(lambda: away.outbox(coupon) == 0)
        before = away.gateway.metrics()["couponmq_outbox_restored_total"]
        away.redis.flushall()
        wait_until(lambda: away.gateway.metrics()["couponmq_outbox_restored_total"] >= before + 3)
        wait_until(lambda: away.outbox(coupon) == 0)  # sent again, and settled as before
        assert client.call("status", receive=rejected)["status"] == "rejected"
        assert client.call("status", receive=voided)["reason"] == "voided"
        assert client.call("status", receive=issued)["status"] == "issued"
    assert away.rows(coupon) == 2


def test_a_gateway_waits_while_it_alone_has_receives(away):
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    away.stack.stop("redis")
    data = (away.stack.run_dir / "redis").resolve()
    shutil.rmtree(data)
    data.mkdir()
    away.gateway.signal(signal.SIGTERM)
    wait_until(lambda: "event=waiting" in away.gateway.log())
    told = away.gateway.log()
    assert re.search(rf"event=waiting receives={USERS} seconds=3600", told), told
    away.stack.start("redis")
    away.begin_anew()
    assert "event=waited" in away.gateway.log()
    assert "event=receives_lost" not in away.gateway.log()
    away.all_settled(coupon)


def lost_named(gateway, replies):
    told = set(re.findall(r"event=receive_lost receive=\"?([^\s\"]+)", gateway.log()))
    return told == {reply["receive"] for reply in replies}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_third_signal_ends_the_wait_and_names_what_is_lost(processes, away):
    away.gateway_start(COUPON_PROCESSES=processes)
    coupon = away.stack.coupon_make(USERS + 1)
    replies = away.accept(coupon)
    away.stack.stop("redis")
    away.gateway.signal(signal.SIGTERM)
    wait_until(lambda: "event=waiting" in away.gateway.log())
    for _ in range(2):
        assert not away.ended()
        away.gateway.signal(signal.SIGTERM)
        wait_until(lambda: not pending(away.gateway.child.pid))
    wait_until(away.ended)
    assert lost_named(away.gateway, replies)


def pending(pid):
    """Whether a signal was sent that the process has not taken."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        told = status.read()
    return any(int(bits, 16) for bits in re.findall(r"(?:SigPnd|ShdPnd):\s+(\w+)", told))


def test_the_wait_has_a_limit(away):
    away.gateway_start(COUPON_STOP_WAIT_S=0)
    coupon = away.stack.coupon_make(USERS + 1)
    replies = away.accept(coupon)
    away.stack.stop("redis")
    away.gateway.signal(signal.SIGTERM)
    wait_until(away.ended)
    assert lost_named(away.gateway, replies)
    assert 'why="the time COUPON_STOP_WAIT_S has passed"' in away.gateway.log()


def test_gateways_that_may_have_receives_alone_are_named(away):
    away.gateway_start()
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    away.gateway.signal(signal.SIGSTOP)
    away.redis.flushall()
    place = away.gateway.settings["COUPON_LISTEN"]
    away.silent(place, others=True)  # those that other tests have killed
    named = rf"{place} 0 \(not reported, last heard of \d+ s ago\)"
    wait_until(lambda: re.search(named, away.stack.ctl_run("show", coupon).stdout))
    wait_until(lambda: away.lacking() == 1)
    wait_until(lambda: away.redis.hget(f"coupon:{{{coupon}}}", "run_id"))
    refused = away.stack.ctl_run("rebuild", coupon, "--give-up-lost", "--older-than-s", 0)
    assert refused.returncode == 1 and place in refused.stderr, refused
    away.gateway.signal(signal.SIGCONT)
    away.restored(coupon)
    wait_until(lambda: place not in away.stack.ctl("show", coupon))
    wait_until(lambda: away.lacking() == 0)
    away.relay.heal()
    away.all_settled(coupon)


def test_a_gateway_that_was_killed_is_named_for_ten_minutes(away):
    away.gateway_start()
    coupon = away.stack.coupon_make(1)
    place = away.gateway.settings["COUPON_LISTEN"]
    away.gateway.kill9()
    away.silent(place, others=True)
    away.redis.flushall()
    wait_until(lambda: place in away.stack.ctl_run("show", coupon).stdout)
    wait_until(lambda: away.lacking() == 1)
    away.silent(place)
    wait_until(lambda: away.lacking() == 0)
    wait_until(lambda: away.redis.hget(f"coupon:{{{coupon}}}", "run_id"))
    assert place not in away.stack.ctl("show", coupon)


def test_redis_without_memory_gets_them_later(away):
    away.gateway_start()
    away.redis.config_set("maxmemory", 1)
    change = "redis.call('HDEL', KEYS[1], 'none') return redis.call('HINCRBY', KEYS[1], 'news', 1)"
    news = str(away.redis.eval(change, 1, "couponmq:gateways"))
    wait_until(lambda: news in str(away.redis.hvals("couponmq:knows")))
    away.redis.config_set("maxmemory", 0)
    coupon = away.stack.coupon_make(USERS + 1)
    away.accept(coupon)
    with_memory = before_it_is_restored(away, coupon)
    wait_until(lambda: "event=outbox_restore" in away.gateway.log())
    assert away.outbox(coupon) == 0
    assert away.gateway.metrics()["couponmq_receives_uncopied"] == USERS
    with_memory()
    away.restored(coupon)
    wait_until(lambda: away.gateway.metrics()["couponmq_receives_uncopied"] == 0)
    away.relay.heal()
    away.all_settled(coupon)


def test_what_redis_has_alone_does_not_count(away, tmp_path):
    """With COUPON_REDIS_REPLICAS: it is written at once, and counts when the replica has it."""
    away.stack.restart("worker-1", COUPON_RESEND_AFTER_MS=600_000)  # sends nothing
    with replica_of(port_of(away.stack.env["REDIS_URL"]), tmp_path) as replica:
        away.gateway_start(COUPON_REDIS_REPLICAS=1)
        coupon = away.stack.coupon_make(USERS + 1)
        away.accept(coupon)
        replica.send_signal(signal.SIGSTOP)
        away.redis.flushall()
        away.restored(coupon)
        wait_until(lambda: away.gateway.metrics()["couponmq_receives_uncopied"] == USERS)
        away.gateway.signal(signal.SIGTERM)
        wait_until(lambda: "event=waiting" in away.gateway.log())
        assert not away.ended()
        replica.send_signal(signal.SIGCONT)
        away.begin_anew()
    assert "event=waited" in away.gateway.log()
    away.stack.restart("worker-1", **SOON)
    away.all_settled(coupon)


def test_a_worker_writes_what_it_cannot_settle(rough, rough_redis, rough_pg):
    """PostgreSQL is away, Redis loses the outbox, then RabbitMQ its messages."""
    rough.restart("worker-1", **SOON)
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, "first", ack="issued")["status"] == "issued")
        rough_pg.close()
        rough.sigstop("postgres")
        replies = [client.issue(coupon, f"user-{n}", ack="queued") for n in range(5)]
        assert {reply["status"] for reply in replies} == {"queued"}
        key = f"coupon:{{{coupon}}}"
        rough_redis.delete(f"{key}:outbox")
        rough_redis.hset(key, "seq", 1)
        wait_until(lambda: rough_redis.hlen(f"{key}:outbox") > 0)
        wait_until(
            lambda: sum(body.count('"user-') for body in rough_redis.hvals(f"{key}:outbox")) == 5
        )
        rough.sigcont("postgres")
        for reply in replies:
            wait_until(
                lambda: client.call("status", receive=reply["receive"])["status"] == "issued"
            )
    wait_until(lambda: rough_redis.hlen(f"{key}:outbox") == 0)
    rough.restart("worker-1")
