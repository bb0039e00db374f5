"""Redis with a replica and Sentinels: masters change, and two are there at once."""

import contextlib
import itertools
import os
import re
import signal
import socket
import threading
import time

import psycopg
import pytest

from process import Worker, gateway_process
from redis_server import replica_of
from relay import Relay, port_of
from script_coupon import run_id_of
from sentinels import NAME, TEST, Sentinels
from stack import wait_until

ACCEPTED, LIMIT_REACHED, UNAVAILABLE, UNKNOWN = 0, 4, 21, 22
AWAY_ASKS = 1000
KEEPER = {"COUPON_KEEPER_ROUND_MS": 100, "COUPON_KEEPER_LEASE_MS": 1000}


@pytest.fixture(scope="module")
def group(stack_make, tmp_path_factory):
    """Sentinels of a stack of services, with a worker."""
    stack = stack_make()
    stack.services()
    group = Sentinels(stack, tmp_path_factory.mktemp("sentinels"))
    worker = Worker(stack, "worker-s", {**KEEPER, **group.settings("worker")})
    group.worker = worker
    yield group
    worker.end()
    group.end()


@pytest.fixture
def gateway_of(group):
    made = []

    def make(**settings):
        settings = {**group.settings("gateway"), **settings}
        made.append(gateway_process(group.stack, f"gateway-s{len(made)}", ready=False, **settings))
        return made[-1]

    yield make
    for gateway in made:
        gateway.end()


class Asker:
    """Asks in a thread for one user after the other, and keeps (user, sent at, answered at,
    code)."""

    def __init__(self, gateway, coupon, name):
        self.asked = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(gateway, coupon, name))
        self.thread.start()

    def run(self, gateway, coupon, name):
        with contextlib.suppress(OSError, AssertionError), gateway.client() as client:
            for number in itertools.count():
                if self.ends.is_set():
                    return
                user, at = f"{name}-{number}", time.monotonic()
                code = client.issue(coupon, user)["code"]
                self.asked.append((user, at, time.monotonic(), code))
                time.sleep(0.005)

    def accepted(self):
        return [ask for ask in self.asked if ask[3] == ACCEPTED]

    def end(self):
        self.ends.set()
        self.thread.join()


def verified_on(group, port, coupon):
    with group.connect(port) as client:
        return client.hget(f"coupon:{{{coupon}}}", "run_id")


def owner_open(group):
    return psycopg.connect(group.stack.env["DATABASE_ADMIN_URL"], autocommit=True)


def audit_passes(group, *coupons):
    settings = group.settings("operator")

    def passes():
        told = group.stack.ctl_run("audit", *coupons, settings=settings)
        print(told.stdout, told.stderr)
        return told.returncode == 0

    wait_until(passes, 60)


@pytest.mark.long
def test_a_master_again_without_a_restart(group, gateway_of):
    """First, second, first: the coupon is compared each time, though no process is another one."""
    coupon = group.stack.coupon_make(10_000)
    gateway, users = gateway_of(), map(str, itertools.count())
    seen = []
    with gateway.client() as client:

        def issued():
            return client.issue(coupon, next(users), ack="issued")["code"] == ACCEPTED

        wait_until(issued)
        for port in (group.second, group.first):
            group.failover()
            wait_until(lambda: group.master_is(port), 60)  # noqa: B023
            wait_until(issued, 60)
            seen.append(verified_on(group, port, coupon))
    assert seen[0] != seen[1] and len(set(seen)) == 2
    audit_passes(group, coupon)


@pytest.mark.long
def test_two_masters(group, gateway_of):
    """The Sentinels lose the first one, and a gateway that only a minority of them reaches, which
    names it for ever, goes on with it: it has stopped before the second one opens."""
    coupon = group.stack.coupon_make(1_000_000)
    relays, minority = [Relay(port) for port in group.sentinels], Liar(group.first)
    url = group.settings("gateway")["REDIS_URL"]
    for port, relay in zip(group.sentinels, relays):
        url = re.sub(f":{port}\\b", f":{relay.port}", url)
    url = url.replace(f"/{NAME}/", f",127.0.0.1:{minority.port}/{NAME}/")
    old, new = gateway_of(REDIS_URL=url), gateway_of()
    with old.client() as one, new.client() as other:
        wait_until(lambda: one.issue(coupon, "a")["code"] == ACCEPTED, 60)
        wait_until(lambda: other.issue(coupon, "b")["code"] == ACCEPTED, 60)
    asks = [Asker(old, coupon, "old"), Asker(new, coupon, "new")]
    try:
        wait_until(lambda: all(len(ask.accepted()) > 20 for ask in asks))
        for relay in relays:
            relay.mode("hold")
        group.cut_off(group.first)
        wait_until(lambda: group.masters() == {group.second}, 60)
        cut = len(asks[1].asked)
        # the second one is open when a request after a refusal is accepted
        wait_until(
            lambda: [code for *_, code in asks[1].asked[cut - 1 :]].count(UNAVAILABLE) > 0, 60
        )
        refused = next(i for i in itertools.count(cut - 1) if asks[1].asked[i][3] == UNAVAILABLE)
        wait_until(lambda: any(code == ACCEPTED for *_, code in asks[1].asked[refused:]), 60)
        opened = next(at for _, at, _, code in asks[1].asked[refused:] if code == ACCEPTED)
        wait_until(lambda: asks[0].asked[-1][1] > opened + 1)
    finally:
        for ask in asks:
            ask.end()
    assert "not verified" in old.log()
    late = [ask for ask in asks[0].accepted() if ask[2] >= opened]
    assert late == [], f"the second one opened at {opened}"
    assert asks[0].asked[-1][3] == UNAVAILABLE
    group.let_in(group.first)
    for relay in relays:
        relay.heal()
    wait_until(lambda: group.master_is(group.second), 60)
    with old.client() as client:
        wait_until(lambda: client.issue(coupon, "c", ack="issued")["code"] == ACCEPTED, 60)
    audit_passes(group, coupon)
    for relay in relays:
        relay.close()
    minority.end()


@pytest.mark.long
def test_a_worker_that_no_sentinel_reaches(group, gateway_of):
    """It reaches PostgreSQL, and the old master, whose keeper it was: that of the next master is
    alone."""
    coupon = group.stack.coupon_make(10_000)
    settings, relays = group.settings("worker"), [Relay(port) for port in group.sentinels]
    for port, relay in zip(group.sentinels, relays):
        settings["REDIS_URL"] = re.sub(f":{port}\\b", f":{relay.port}", settings["REDIS_URL"])
    (master,) = group.masters()
    wait_until(lambda: group.master_is(master), 60)
    gateway, cut = gateway_of(), Worker(group.stack, "worker-cut", {**KEEPER, **settings})
    try:
        with gateway.client() as client:
            wait_until(lambda: client.issue(coupon, "a", ack="issued")["code"] == ACCEPTED, 60)
            group.worker.signal(signal.SIGSTOP)
            wait_until(lambda: "keeper_elected" in cut.log(), 60)
            for relay in relays:
                relay.mode("hold")
            group.cut_off(master)
            wait_until(lambda: group.masters() == {group.other(master)}, 60)
            group.worker.signal(signal.SIGCONT)
            wait_until(lambda: client.issue(coupon, "b")["code"] == UNAVAILABLE, 60)
            wait_until(lambda: client.issue(coupon, "c", ack="issued")["code"] == ACCEPTED, 60)
        assert cut.log().count("keeper_elected") == 1
    finally:
        group.worker.signal(signal.SIGCONT)
        group.let_in(master)
        for relay in relays:
            relay.heal()
        cut.end()
        for relay in relays:
            relay.close()
    wait_until(lambda: group.master_is(group.other(master)), 60)
    audit_passes(group, coupon)


def issued_users(group, coupon):
    with owner_open(group) as pg:
        query = "SELECT user_id FROM user_coupon WHERE coupon_id = %s"
        return {user for (user,) in pg.execute(query, (coupon,))}


@pytest.mark.long
def test_accepted_waits_for_the_replica(group, gateway_of):
    coupon = group.stack.coupon_make(1_000_000)
    gateway = gateway_of(COUPON_REDIS_REPLICAS=1, COUPON_CALL_TIMEOUT_MS=1000)
    (master,) = group.masters()
    replica = group.pid(group.other(master))
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, "a", key="k")["code"] == ACCEPTED, 60)
        os.kill(replica, signal.SIGSTOP)
        try:
            # it is still online: the WAIT ends in vain, and then nothing is asked any more
            first = client.issue(coupon, "b", key="k")
            while first["code"] == UNAVAILABLE:  # that was noticed before
                os.kill(replica, signal.SIGCONT)
                wait_until(lambda: client.issue(coupon, "a", key="k")["code"] == ACCEPTED, 60)
                os.kill(replica, signal.SIGSTOP)
                first = client.issue(coupon, "b", key="k")
            assert first["code"] == UNKNOWN and "receive" in first
            wait_until(lambda: client.issue(coupon, "c")["code"] == UNAVAILABLE)
            assert client.issue(coupon, "a", key="k")["code"] == UNAVAILABLE
            assert gateway.trouble("replicas") != "ok"
        finally:
            os.kill(replica, signal.SIGCONT)
        again = wait_until(
            lambda: (reply := client.issue(coupon, "b", key="k"))["code"] == ACCEPTED and reply, 60
        )
        assert again["receive"] == first["receive"]
        assert gateway.trouble("replicas") == "ok"
        told = client.call("status", receive=first["receive"])
        assert told["status"] in ("accepted", "issued")
    audit_passes(group, coupon)


@pytest.mark.long
def test_a_write_that_is_refused_covers_nothing(group, gateway_of):
    """WAIT returns all the same: for what was there before it."""
    coupon = group.stack.coupon_make(1_000_000)
    gateway = gateway_of(COUPON_REDIS_REPLICAS=1)
    (master,) = group.masters()
    with gateway.client() as client, group.connect(master) as redis:
        wait_until(lambda: client.issue(coupon, "a", key="k")["code"] == ACCEPTED, 60)
        redis.config_set("min-replicas-to-write", 2)
        try:
            # unavailable: it was noticed before
            assert client.issue(coupon, "a", key="k")["code"] in (UNKNOWN, UNAVAILABLE)
            assert "SET" in gateway.trouble("replicas")
        finally:
            redis.config_set("min-replicas-to-write", 0)
        wait_until(lambda: client.issue(coupon, "a", key="k")["code"] == ACCEPTED, 60)
    audit_passes(group, coupon)


@pytest.mark.long
def test_what_a_replica_has_is_not_lost_with_the_gateway(group, gateway_of):
    """Master and gateway are lost at once: no accepted receive is."""
    coupon = group.stack.coupon_make(1_000_000)
    gateway = gateway_of(COUPON_REDIS_REPLICAS=1)
    (master,) = group.masters()
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, "a")["code"] == ACCEPTED, 60)
    asker = Asker(gateway, coupon, "user")
    wait_until(lambda: len(asker.accepted()) > 200)
    gateway.kill9()
    group.kill(master)
    asker.end()
    accepted = {user for user, *_ in asker.accepted()}
    after = gateway_of()
    with after.client() as client:
        wait_until(lambda: client.issue(coupon, "b", ack="issued")["code"] == ACCEPTED, 60)
    wait_until(lambda: accepted <= issued_users(group, coupon), 60)
    audit_passes(group, coupon)
    group.start(master)


@pytest.mark.long
def test_a_replica_without_the_tail_is_promoted(group, gateway_of):
    """RabbitMQ is away. What only the lost master had, the gateway writes to the next one, and may
    then be lost, too."""
    users = [f"user-{n}" for n in range(30)]
    coupon = group.stack.coupon_make(len(users) + 1)
    (master,) = group.masters()
    wait_until(lambda: group.master_is(master), 60)
    with Relay(port_of(group.stack.env["AMQP_URL"])) as relay:
        gateway = gateway_of(AMQP_URL=relay.url(group.stack.env_of("gateway")["AMQP_URL"]))
        with gateway.client() as client:
            wait_until(
                lambda: client.issue(coupon, "first", key="k", ack="issued")["code"] == ACCEPTED, 60
            )
            relay.mode("lose", "up")
            group.replica_shut_out(master)
            assert {client.issue(coupon, user)["code"] for user in users} == {ACCEPTED}
        group.kill(master)
        wait_until(lambda: group.masters() == {group.other(master)}, 60)

        def restored():
            with group.connect(group.other(master)) as redis:
                bodies = redis.hvals(f"coupon:{{{coupon}}}:outbox")
            return sum(body.count('"user-') for body in bodies) == len(users)

        wait_until(restored, 60)
        gateway.kill9()
        relay.cut()
    gateway_of()
    wait_until(lambda: issued_users(group, coupon) == {"first", *users}, 60)
    audit_passes(group, coupon)
    group.start(master)


@pytest.mark.long
def test_a_first_replica_without_sentinels(rough, rough_redis, gateway_make, tmp_path):
    """It gives the master another replication history, and connections stay: those of a gateway
    that is only asked for the coupon, too."""
    coupon = rough.coupon_make(1_000_000)
    gateway = gateway_make(rough, ready=False, COUPON_REDIS_REPLICAS=1)
    users = itertools.count()
    with gateway.client() as client:
        assert client.issue(coupon, next(users))["code"] == UNAVAILABLE
        with replica_of(port_of(rough.env["REDIS_URL"]), tmp_path):
            wait_until(lambda: client.issue(coupon, next(users))["code"] == ACCEPTED, 60)
            key = f"coupon:{{{coupon}}}"
            wait_until(lambda: rough_redis.hget(key, "run_id") == run_id_of(rough_redis), 60)
            wait_until(lambda: client.issue(coupon, next(users))["code"] == ACCEPTED, 60)
            with rough.client() as other:
                wait_until(lambda: other.call("coupon", coupon=coupon)["code"] == 0, 60)


@pytest.mark.long
def test_a_replica_is_waited_for_once_it_has_what_was_answered(
    rough, rough_redis, gateway_make, tmp_path
):
    """One of two is away; then it is heard of again, and still lacks what was answered."""
    coupon, users = rough.coupon_make(1_000_000), itertools.count()
    gateway = gateway_make(rough, ready=False, COUPON_REDIS_REPLICAS=1)
    port = port_of(rough.env["REDIS_URL"])

    def replicas():
        """(seconds since it was heard of, the offset that it has) of each"""
        told = rough_redis.info("replication")
        return [(told[f"slave{n}"]["lag"], told[f"slave{n}"]["offset"]) for n in range(2)]

    def is_back():
        return max(lag for lag, _ in replicas()) <= 1

    def accepted():
        return client.issue(coupon, next(users))["code"] == ACCEPTED

    with (
        Relay(port) as relay,
        gateway.client() as client,
        replica_of(port, tmp_path),
        replica_of(relay.port, tmp_path),
    ):
        wait_until(lambda: rough_redis.info("replication")["connected_slaves"] == 2, 60)
        wait_until(accepted, 60)
        relay.mode("hold")
        assert client.issue(coupon, next(users))["code"] in (UNKNOWN, UNAVAILABLE)
        wait_until(accepted, 60)
        relay.mode("pass", "up")
        wait_until(is_back)
        assert all(accepted() for _ in range(100))
        assert replicas()[0][1] != replicas()[1][1], "it has it all"
        relay.mode("pass", "down")
        wait_until(lambda: len({offset for _, offset in replicas()}) == 1)
        assert accepted()
        relay.mode("hold", "down")
        assert client.issue(coupon, next(users))["code"] in (UNKNOWN, UNAVAILABLE)


@pytest.mark.always
def test_the_master_is_lost(group, gateway_of):
    coupon = group.stack.coupon_make(10_000)
    gateway = gateway_of()
    (master,) = group.masters()
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, "first", ack="issued")["code"] == ACCEPTED, 60)
        group.kill(master)
        wait_until(lambda: client.issue(coupon, "second", ack="issued")["code"] == ACCEPTED, 60)
        assert group.masters() == {group.other(master)}
        assert client.issue(coupon, "first", ack="issued")["code"] == LIMIT_REACHED
    audit_passes(group, coupon)
    group.start(master)


@pytest.mark.long
def test_a_replica_that_is_not_promoted_does_not_count(group, gateway_of):
    """Nor while the Sentinels cannot reach it."""
    coupon = group.stack.coupon_make(1_000_000)
    gateway, users = gateway_of(COUPON_REDIS_REPLICAS=1), map(str, itertools.count())
    (master,) = group.masters()
    replica = group.other(master)
    test = {"username": TEST, "password": TEST}
    with gateway.client() as client, group.connect(replica, **test) as redis:
        wait_until(lambda: client.issue(coupon, next(users))["code"] == ACCEPTED, 60)
        redis.config_set("replica-priority", 0)
        try:
            wait_until(lambda: client.issue(coupon, next(users))["code"] == UNAVAILABLE, 60)
            assert f"{replica} may not be promoted" in gateway.trouble("replicas")
            group.cut_off(replica)
            wait_until(lambda: group.down_by_all(replica))
            replies = [client.issue(coupon, next(users)) for _ in range(100)]
            assert {reply["code"] for reply in replies} == {UNAVAILABLE}
        finally:
            redis.config_set("replica-priority", 100)
            group.let_in(replica)
        wait_until(lambda: client.issue(coupon, next(users))["code"] == ACCEPTED, 60)
    audit_passes(group, coupon)


@pytest.mark.long
def test_processes_and_replicas(group, gateway_of):
    """Each process has its own connections, and follows."""
    coupon = group.stack.coupon_make(1_000_000)
    gateway = gateway_of(COUPON_REDIS_REPLICAS=1, COUPON_PROCESSES=4)
    (master,) = group.masters()
    wait_until(gateway.ready, 60)
    askers = [Asker(gateway, coupon, f"user-{number}") for number in range(16)]
    try:
        wait_until(lambda: all(len(asker.accepted()) > 20 for asker in askers), 60)
        group.kill(master)
        lost_at = time.monotonic()

        def again(asker):
            return any(at > lost_at and code == ACCEPTED for _, at, _, code in asker.asked[-20:])

        wait_until(lambda: group.masters() == {group.other(master)}, 60)
        # two copies of what is accepted are wanted, and there is one
        wait_until(lambda: gateway.trouble("redis") == "ok", 60)
        wait_until(lambda: gateway.trouble("replicas") != "ok", 60)
        group.start(master)
        wait_until(lambda: all(map(again, askers)), 60)
    finally:
        for asker in askers:
            asker.end()
    accepted = {user for asker in askers for user, *_ in asker.accepted()}
    wait_until(lambda: accepted <= issued_users(group, coupon), 60)
    audit_passes(group, coupon)


@pytest.mark.long
def test_the_sentinels_hang(group, gateway_of):
    """What they name is believed for as long as the lease lasts; then nothing is issued, and the
    gateway says so. They start anew, and it goes on."""
    coupon = group.stack.coupon_make(1_000_000)
    gateway = gateway_of(COUPON_REDIS_REPLICAS=1)
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, "first")["code"] == ACCEPTED, 60)
    wait_until(gateway.ready)
    asker = Asker(gateway, coupon, "user")
    try:
        wait_until(lambda: len(asker.accepted()) > 100)
        for port in group.sentinels:
            os.kill(group.pid(port), signal.SIGSTOP)
        wait_until(lambda: "lease" in gateway.trouble("redis"))
        refused = len(asker.asked) + 1
        wait_until(lambda: len(asker.asked) > refused + AWAY_ASKS, 120)
        assert {code for *_, code in asker.asked[refused:]} == {UNAVAILABLE}
        for port in group.sentinels:
            group.kill(port)
            group.sentinel_start(port)
        wait_until(lambda: asker.asked[-1][3] == ACCEPTED, 60)
        wait_until(gateway.ready)
    finally:
        asker.end()
    accepted = {user for user, *_ in asker.accepted()}
    wait_until(lambda: accepted <= issued_users(group, coupon), 60)
    audit_passes(group, coupon)


class Liar(threading.Thread):
    """A Sentinel that answers each request with something else, or never; or names this master."""

    REPLIES = (
        b"*-1\r\n",
        b"$-1\r\n",
        b":17\r\n",
        b"+OK\r\n",
        b"-ERR unknown command\r\n",
        b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n",
        b"*2\r\n$9\r\n127.0.0.1\r\n$20\r\n99999999999999999999\r\n",
        b"*2\r\n$-1\r\n$-1\r\n",
        b"*2\r\n*0\r\n*0\r\n",
        b"*2\r\n$300\r\n" + b"h" * 300 + b"\r\n$4\r\n6379\r\n",
        b"*1\r\n" * 40,
        b"*1000000\r\n",
        b"$2147483647\r\n",
        b"*2\r\n$9\r\n127.0.0.1",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(range(256)),
        b"",
        None,  # closes
        b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n",  # another master
        b"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n" + b"*1\r\n*1\r\n$2\r\nip\r\n",
    )

    def __init__(self, master=None):
        super().__init__(daemon=True)
        self.master = master
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.told = 0
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        with contextlib.suppress(OSError), client:
            while request := client.recv(65536):
                reply = self.REPLIES[self.told % len(self.REPLIES)]
                if self.master:
                    port = str(self.master)
                    named = f"*2\r\n$9\r\n127.0.0.1\r\n${len(port)}\r\n{port}\r\n".encode()
                    others = b"*0\r\n" if b"replicas" in request else b"+OK\r\n"
                    reply = named if b"get-master" in request else others
                self.told += 1
                if reply is None:
                    return
                client.sendall(reply)

    def end(self):
        self.listener.close()


@pytest.mark.long
def test_garbage_of_a_minority_of_the_sentinels(group, gateway_of):
    coupon = group.stack.coupon_make(1_000_000)
    liars = [Liar(), Liar()]
    settings = group.settings("gateway")
    url = settings["REDIS_URL"]
    more = "".join(f",127.0.0.1:{liar.port}" for liar in liars)
    gateway = gateway_of(REDIS_URL=url.replace(f"/{NAME}/", f"{more}/{NAME}/"))
    with gateway.client() as client:
        wait_until(lambda: client.issue(coupon, "first")["code"] == ACCEPTED, 60)
    asker = Asker(gateway, coupon, "user")
    try:
        wait_until(lambda: min(liar.told for liar in liars) > len(Liar.REPLIES), 120)
    finally:
        asker.end()
        for liar in liars:
            liar.end()
    assert {code for *_, code in asker.asked} == {ACCEPTED}
    audit_passes(group, coupon)


@pytest.mark.long
def test_a_thousand_coupons_at_a_failover(group, gateway_of):
    with owner_open(group) as pg:
        made = pg.execute(
            "INSERT INTO coupon (id, name, total_num, valid_days, status)"
            " SELECT coupon_id_next(), 'many', 1000, 30, 'published'"
            " FROM generate_series(1, 1000) RETURNING id"
        )
        coupons = [str(coupon) for (coupon,) in made]
    gateway, users = gateway_of(COUPON_REDIS_REPLICAS=1), map(str, itertools.count())
    (master,) = group.masters()
    wait_until(lambda: group.master_is(master), 60)
    told = dict.fromkeys(coupons, 0)

    def all_issued(number, **members):
        user = next(users)
        left = [coupon for coupon in coupons if told[coupon] < number]
        with gateway.client() as client:
            replies = client.pipeline(
                [{"op": "issue", "coupon": coupon, "user": user, **members} for coupon in left]
            )
        for coupon, reply in zip(left, replies):
            told[coupon] += reply["code"] == ACCEPTED
        return min(told.values()) >= number

    wait_until(lambda: all_issued(1), 120)
    group.failover()
    wait_until(lambda: group.master_is(group.other(master)), 60)
    begun = time.monotonic()
    wait_until(lambda: all_issued(2), 120)
    print(f"1000 coupons issue again {time.monotonic() - begun:.1f} s after the other is master")
    with owner_open(group) as pg:
        query = "SELECT count(*) FROM coupon WHERE id = ANY(%s) AND issued_num >= 2"
        wait_until(lambda: pg.execute(query, (coupons,)).fetchone() == (1000,), 60)
    audit_passes(group, "--all")


@pytest.mark.long
def test_what_an_old_master_has_freed(group, gateway_of):
    """It is marked in PostgreSQL, and the next master never got it: there the slot is still that of
    the rejected receive, until the keeper has compared the coupon."""
    coupon = group.stack.coupon_make(10)
    gateway = gateway_of()
    (master,) = group.masters()
    wait_until(lambda: group.master_is(master), 60)
    replica = group.other(master)
    with gateway.client() as client, owner_open(group) as pg:
        wait_until(lambda: client.issue(coupon, "a", ack="issued")["code"] == ACCEPTED, 60)
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at,"
            " valid_from) VALUES ('b', %s, 1, 0, gen_random_uuid(), now(), now())",
            (coupon,),
        )
        pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))
        pg.execute("INSERT INTO coupon_generation VALUES (%s, 0, 1, 1)", (coupon,))
        group.worker.signal(signal.SIGSTOP)
        try:
            receive = client.issue(coupon, "b")["receive"]
            key = f"coupon:{{{coupon}}}:users"
            with group.connect(replica) as redis:
                wait_until(lambda: redis.hget(key, "b"))
            os.kill(group.pid(replica), signal.SIGSTOP)
        finally:
            group.worker.signal(signal.SIGCONT)
        try:
            query = "SELECT freed_at FROM receive_rejected WHERE coupon_id = %s"
            wait_until(lambda: (row := pg.execute(query, (coupon,)).fetchone()) and row[0], 60)
            group.kill(master)
        finally:
            os.kill(group.pid(replica), signal.SIGCONT)
        wait_until(lambda: client.issue(coupon, "c", ack="issued")["code"] == ACCEPTED, 60)
        assert group.masters() == {replica}
        assert client.issue(coupon, "b")["code"] == LIMIT_REACHED
        told = client.call("status", receive=receive)
        assert told["status"] == "rejected"
    audit_passes(group, coupon)
    group.start(master)
