"""Several gateways behind HAProxy, with the configuration in deploy/."""

import collections
import http.client
import itertools
import json
import select
import signal
import subprocess
import threading

import pytest
import requests

from balancer import ADDRESS, CONFIG, HAPROXY, Balancer
from history import History
from process import gateway_process
from relay import Relay, port_of
from stack import TRUST, Client, has_tls, url_of, wait_until
from ulid import ulid_uuid

pytestmark = pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed")

LONG = 600
TOTAL = 10**6
CLIENTS = 4  # of each port
ACKS = ("accepted", "queued", "issued")


def test_haproxy_takes_the_file():
    done = subprocess.run(
        [HAPROXY, "-c", "-f", CONFIG], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr


class Pair:
    """Two gateways, and HAProxy before them."""

    def __init__(self, stack, folder, check="60s", **settings):
        self.stack = stack
        self.settings = {"COUPON_PROXY_FROM": ADDRESS, "COUPON_DRAIN_S": LONG, **settings}
        self.gateways = []
        for number in (1, 2):
            name = f"gateway-balanced-{number}"
            self.gateways.append(gateway_process(stack, name, **self.settings))
        self.balancer = Balancer(folder, self.gateways, check)
        for number in (1, 2):
            self.balancer.wait(number, "UP")

    def client(self, timeout=60.0):
        return Client(self.balancer.address("COUPON_LISTEN"), timeout)

    def http(self, path):
        return url_of(self.balancer.address("COUPON_HTTP_LISTEN"), path)

    def start(self, number):
        """Again, on the same ports, after it has ended."""
        before = self.gateways[number - 1]
        name = before.log_path.stem
        self.gateways[number - 1] = gateway_process(self.stack, name, **before.settings)
        self.balancer.wait(number, "UP")

    def drain(self, number):
        """Until it gets no new connections."""
        self.gateways[number - 1].signal(signal.SIGTERM)
        self.balancer.wait(number, "NOLB")

    def end(self):
        self.balancer.end()
        for gateway in self.gateways:
            if gateway.child.poll() is None:
                gateway.signal(signal.SIGCONT)
                gateway.signal(signal.SIGTERM)
                wait_until(lambda gateway=gateway: "event=draining" in gateway.log())
            gateway.end()


@pytest.fixture
def pair_make(tmp_path):
    made = []

    def make(stack, **options):
        made.append(Pair(stack, tmp_path, **options))
        return made[-1]

    yield make
    for pair in made:
        pair.end()


def served_by(gateway, pair, count=10):
    """How many of so many new connections come to this one."""
    before = gateway.metrics()["couponmq_connections_total"]
    for _ in range(count):
        with pair.client() as client:
            assert client.call("ping")["code"] == 0
    return gateway.metrics()["couponmq_connections_total"] - before


def test_one_that_drains_keeps_its_connections_and_gets_no_new_ones(stack, pair_make):
    pair = pair_make(stack)
    clients = [pair.client() for _ in range(4)]
    assert [client.call("ping")["code"] for client in clients] == [0] * 4
    held = [gateway.metrics()["couponmq_connections"] for gateway in pair.gateways]
    assert held == [2, 2], "each has as many as the other"
    pair.drain(1)
    assert served_by(pair.gateways[1], pair) == 10
    assert [client.call("ping")["code"] for client in clients] == [0] * 4
    assert pair.gateways[0].metrics()["couponmq_connections"] == 2
    for client in clients:
        client.close()


def answers(client):
    try:
        client.send_line({"op": "ping"})
        return client.read_line() is not None
    except ConnectionError:
        return False


@pytest.mark.long
def test_connections_of_one_that_does_not_answer_are_ended(stack, pair_make):
    """So their clients do not wait for their own time-outs."""
    pair = pair_make(stack, check="5s")
    clients = [pair.client() for _ in range(4)]
    assert all(answers(client) for client in clients)
    pair.gateways[0].signal(signal.SIGSTOP)
    assert sorted(answers(client) for client in clients) == [False, False, True, True]
    pair.balancer.wait(1, "DOWN")
    assert served_by(pair.gateways[1], pair) == 10
    pair.gateways[0].signal(signal.SIGCONT)
    pair.balancer.wait(1, "UP")
    for client in clients:
        client.close()


def test_when_none_is_ready_they_still_answer(stack, pair_make, make_coupon):
    """As while PostgreSQL is away, when issuing goes on."""
    coupon = make_coupon(10)
    pair = pair_make(stack)
    for number in (1, 2):
        pair.drain(number)
    with pair.client() as client:
        assert client.issue(coupon, 1)["code"] == 0
    body = {"coupon": coupon, "user": "2"}
    assert requests.post(pair.http("/v1/issue"), json=body, timeout=60).json()["code"] == 0


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL"])
def test_one_that_is_cut_off_is_not_preferred(stack, gateway_make, tmp_path, make_coupon, name):
    """From PostgreSQL: it still answers 200, and gets clients when the other one is gone, too. From
    Redis: it answers 503."""
    coupon, url = make_coupon(100), stack.env_of("gateway")[name]
    with Relay(port_of(url)) as gate:
        settings = {"COUPON_PROXY_FROM": ADDRESS}
        cut = gateway_make(stack, **{name: gate.url(url)}, **settings)
        drain_s = LONG if name == "DATABASE_URL" else 0  # it is told to end below
        whole = gateway_make(stack, COUPON_DRAIN_S=drain_s, **settings)
        balancer = Balancer(tmp_path, [cut, whole], "5s")
        try:
            balancer.wait(1, "UP")
            balancer.wait(2, "UP")
            gate.close()
            balancer.wait(1, "NOLB")
            part = "postgresql" if name == "DATABASE_URL" else "redis"

            def told():
                answer = requests.get(cut.http("/readyz"), timeout=60)
                return answer.status_code, part in answer.json()["degraded"]

            wait_until(lambda: told() == (200 if name == "DATABASE_URL" else 503, True))
            before = cut.metrics()["couponmq_connections_total"]
            for user in range(10):
                with Client(balancer.address("COUPON_LISTEN")) as client:
                    assert client.issue(coupon, user)["code"] == 0
            assert cut.metrics()["couponmq_connections_total"] == before
            if name == "DATABASE_URL":
                whole.signal(signal.SIGTERM)  # it drains
                balancer.wait(2, "NOLB")
                with Client(balancer.address("COUPON_LISTEN")) as client:
                    assert client.issue(coupon, 50)["code"] == 0
                assert cut.metrics()["couponmq_connections_total"] == before + 1
        finally:
            balancer.end()


# A rolling restart


class Caller(threading.Thread):
    """A client by docs/reference/protocol.md: each request has a key, with which it is sent again,
    over a new connection, when its answer is lost, or is none. It counts how often each was
    sent."""

    def __init__(self, pair, coupon, number):
        super().__init__(daemon=True)
        self.pair, self.coupon, self.number = pair, coupon, number
        self.stopping = threading.Event()
        self.sent = collections.Counter()  # by user
        self.accepted = {}  # receive by user
        self.others = []  # what else was answered
        self.error = None
        self.connection = None

    def run(self):
        users = (f"{self.number}-{i}" for i in itertools.count())
        waiting = []
        try:
            while waiting or not self.stopping.is_set():
                if not self.stopping.is_set():
                    waiting += itertools.islice(users, self.window - len(waiting))
                waiting = self.turn(waiting)
        except Exception as error:  # raised by stop()
            self.error = error

    def turn(self, users):
        """Returns those without an answer."""
        for user in users:
            self.sent[user] += 1
        answered = {}
        try:
            self.ask(users, answered)
        except (OSError, EOFError, http.client.HTTPException):
            self.hang_up()
        for user, reply in answered.items():
            if reply["code"] == 0:
                self.accepted[user] = reply["receive"]
            else:
                self.others.append(reply)
        return [user for user in users if user not in self.accepted]

    def request(self, user):
        ack = ACKS[hash(user) % len(ACKS)]
        return {"coupon": self.coupon, "user": user, "key": f"order {user}", "ack": ack}

    def hang_up(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def stop(self):
        self.stopping.set()
        self.join(120)
        assert not self.is_alive() and not self.error, self.error
        self.hang_up()


class LineCaller(Caller):
    window = 8

    def ask(self, users, answered):
        if self.connection and self.has_ended():
            self.hang_up()
        self.connection = self.connection or self.pair.client()
        requests_ = [{"id": u, "op": "issue", **self.request(u)} for u in users]
        self.connection.send_bytes("".join(json.dumps(r) + "\n" for r in requests_).encode())
        for _ in users:
            line = self.connection.reader.readline()
            if not line.endswith(b"\n"):
                raise EOFError
            reply = json.loads(line)
            answered[reply["id"]] = reply

    def has_ended(self):
        """Without replies to come, there is nothing else to read."""
        return bool(select.select([self.connection.socket], [], [], 0)[0])


class HttpCaller(Caller):
    window = 1

    def ask(self, users, answered):
        if not self.connection:
            self.connection = self.connect()
        (user,) = users
        headers = {"Content-Type": "application/json"}
        self.connection.request("POST", "/v1/issue", json.dumps(self.request(user)), headers)
        reply = self.connection.getresponse()
        answered[user] = json.loads(reply.read())
        if reply.will_close:
            self.hang_up()

    def connect(self):
        address = self.pair.balancer.address("COUPON_HTTP_LISTEN")
        if has_tls():
            return http.client.HTTPSConnection(address, timeout=60, context=TRUST.context())
        return http.client.HTTPConnection(address, timeout=60)


@pytest.fixture
def callers_make():
    made = []

    def make(pair, coupon):
        for number in range(CLIENTS):
            made.append(LineCaller(pair, coupon, f"line-{number}"))
            made.append(HttpCaller(pair, coupon, f"http-{number}"))
        for caller in made:
            caller.start()
        return made

    yield make
    for caller in made:
        caller.stopping.set()


def progress(callers, times=10):
    """Until each has got so many more answers."""
    before = [len(caller.accepted) for caller in callers]
    wait_until(
        lambda: all(
            caller.error or len(caller.accepted) >= count + times
            for caller, count in zip(callers, before, strict=True)
        )
    )


@pytest.mark.long
def test_a_rolling_restart_of_everything(rough, pair_make, worker_make, callers_make):
    """Under load over both ports: nobody sends a request more than twice."""
    coupon = rough.coupon_make(TOTAL)
    rough.stop("worker-1")
    workers = [worker_make(rough) for _ in range(2)]
    pair = pair_make(rough, COUPON_CALL_TIMEOUT_MS=60000, COUPON_ISSUED_TIMEOUT_MS=60000)
    callers = callers_make(pair, coupon)
    progress(callers)
    for number in (1, 2):
        pair.drain(number)
        wait_until(lambda number=number: pair.balancer.stats("http", f"gateway-{number}")[1] == 0)
        pair.gateways[number - 1].signal(signal.SIGTERM)
        assert pair.gateways[number - 1].child.wait(120) == 0
        progress(callers)
        pair.start(number)
        progress(callers)
    for worker in workers:
        assert worker.terminate() == 0
        progress(callers)
        worker_make(rough)
        progress(callers)
    for caller in callers:
        caller.stop()
    judge(rough, coupon, callers)


def judge(stack, coupon, callers):
    times = collections.Counter()
    accepted = {}
    for caller in callers:
        assert not caller.others, caller.others[:5]
        assert caller.sent.keys() == caller.accepted.keys()
        accepted.update(caller.accepted)
        times.update((type(caller).__name__, sent) for sent in caller.sent.values())
    print(f"how often requests were sent, by port: {dict(times)}")
    assert all(sent <= 2 for _, sent in times), times
    assert ("HttpCaller", 2) not in times, "those of HTTP were told to leave before"
    assert times["LineCaller", 2] <= CLIENTS * LineCaller.window * 2, "what was under way, twice"
    history = History(stack, coupon, TOTAL)
    history.settle()
    stored = history.stored()
    issued = {row.user: f"{row.batch} {row.index}" for row in stored.rows}
    assert len(issued) == len(stored.rows), "nobody has two"
    assert issued == {user: receive_stored(receive) for user, receive in accepted.items()}
    stack.ctl("audit", coupon)


def receive_stored(receive):
    """As PostgreSQL has it. The users here have no dots."""
    _, _, batch, index = receive.split(".")
    return f"{ulid_uuid(batch)} {index}"
