"""RabbitMQ as a cluster: its nodes are killed, frozen, restarted, wiped and joined under load, and
each accepted receive ends as exactly one user coupon."""

import json
import re

import pytest
import requests

from broker_cluster import Cluster
from history import QUEUE, History
from stack import wait_until
from verdict import Allowed

TOTAL = 1_000_000
SOME = 200  # accepted requests of each load
CONNECTED = re.compile(r"event=amqp_connected connection=(\S+) host=(\S+)")
MEMBERS = "couponmq_worker_queue_members"
LED = re.compile(r'couponmq_worker_queues_led\{node="([^"]*)"\} (\d+)')
# These take a minute or two; the first test alone is brief.


@pytest.fixture
def cluster_make(rough):
    """cluster_make(number): nodes that all programs of `rough` are led to. Its own gateway, worker
    and RabbitMQ are stopped meanwhile."""
    made = []

    def make(number, **options):
        rough.stop("gateway", "worker-1", "rabbitmq")
        made.append(Cluster(rough, number, **options).start())
        rough.cluster = made[-1]
        return made[-1]

    yield make
    rough.cluster = None
    for cluster in made:
        cluster.end()


class Trial:
    """A gateway and two workers on a cluster, with a load that waits for RabbitMQ, and one that
    waits for PostgreSQL."""

    def __init__(self, stack, cluster, gateway_make, worker_make):
        self.stack, self.cluster = stack, cluster
        self.workers = [worker_make(stack) for _ in range(2)]
        self.gateway = gateway_make(stack, COUPON_ISSUED_TIMEOUT_MS=3000)
        self.loads = []

    def start(self):
        listen = self.gateway.settings["COUPON_LISTEN"]
        for ack in ("queued", "issued"):
            allowed = Allowed(("unavailable", "busy"), unknown=1.0)
            coupon = self.stack.coupon_make(TOTAL)
            with self.gateway.client() as client:
                wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
            load = History(self.stack, coupon, TOTAL, ack=ack, listen=listen, allowed=allowed)
            self.loads.append(load.start(connections=1))
        self.goes_on()
        return self

    def goes_on(self):
        """Requests are accepted, confirmed and issued."""
        for load in self.loads:
            load.wait_accepted(SOME)

    def unknown_n(self):
        """How many answers were not certain."""
        return sum(load.codes()[22] for load in self.loads)

    def judge(self):
        for load in self.loads:
            load.stop()
        for load in self.loads:
            assert load.judge() > SOME

    def members_told(self, *numbers):
        """Whether a worker tells wanted members, members, and how many of them are online."""
        told = self.workers[0].metrics()
        names = (f"{MEMBERS}_wanted", MEMBERS, f"{MEMBERS}_online")
        return tuple(int(told[name]) for name in names) == numbers

    def leaders_told(self):
        """How many queues each node leads, by its name, of those that lead any."""
        told = LED.findall(requests.get(self.workers[0].http("/metrics"), timeout=60).text)
        return {node: int(number) for node, number in told if int(number) > 0}

    def warnings(self):
        return requests.get(self.workers[0].http("/readyz"), timeout=60).json()["warnings"]


@pytest.fixture
def trial_make(rough, cluster_make, gateway_make, worker_make):
    def make(number, **options):
        cluster = cluster_make(number, **options)
        return Trial(rough, cluster, gateway_make, worker_make)

    return make


@pytest.fixture
def trial(trial_make):
    return trial_make(3).start()


@pytest.mark.always
def test_one_of_two_nodes_is_killed(trial_make):
    """Two nodes have a majority only together: what is accepted meanwhile waits."""
    trial = trial_make(2).start()
    killed = trial.cluster.leader(QUEUE)
    killed.kill9()
    unknown = trial.unknown_n()
    wait_until(lambda: trial.unknown_n() > unknown)
    killed.start(wait=False)
    (other,) = [one for one in trial.cluster.nodes if one is not killed]
    wait_until(lambda: "startup complete" in killed.log() or other.has_given_up())
    if other.has_given_up():
        other.kill9()
        other.start(wait=False)
    killed.wait_started()
    trial.goes_on()
    trial.judge()


@pytest.mark.long
def test_the_leader_is_killed(trial):
    leader = trial.cluster.leader(QUEUE)
    leader.kill9()
    trial.goes_on()
    assert trial.cluster.leader(QUEUE) is not leader
    wait_until(lambda: trial.members_told(3, 3, 2))
    assert any(f"start RabbitMQ on {leader.name}" in text for text in trial.warnings())
    wait_until(lambda: leader.name not in trial.leaders_told())
    wait_until(lambda: trial.cluster.leader(QUEUE).name in trial.leaders_told())
    leader.start()
    wait_until(lambda: trial.members_told(3, 3, 3))
    assert not trial.warnings()
    trial.judge()


def of_gateway(trial):
    """The node that the gateway publishes to."""
    host = CONNECTED.findall(trial.gateway.log())[-1][1]
    return next(node for node in trial.cluster.nodes if host.endswith(f":{node.amqp}"))


@pytest.mark.long
@pytest.mark.parametrize("which", ["leader", "of_gateway"])
def test_a_node_is_frozen(trial, which):
    """Connections to it end by their heartbeats; new ones need nothing of it."""
    node = trial.cluster.leader(QUEUE) if which == "leader" else of_gateway(trial)
    node.freeze()
    trial.goes_on()
    node.thaw()
    wait_until(lambda: trial.cluster.online(QUEUE) == 3)
    trial.goes_on()
    trial.judge()


@pytest.mark.long
def test_a_minority(trial):
    """Two of three are gone, and the third one pauses: nothing is confirmed, and nothing lost."""
    gone = trial.cluster.nodes[:2]
    for node in gone:
        node.kill9()
    unknown = trial.unknown_n()
    wait_until(lambda: trial.unknown_n() > unknown + SOME)
    with trial.gateway.client() as client:
        assert trial.loads[0].ask(client, "another")["status"] == "accepted"
        late = trial.loads[0].ask(client, "yet-another", ack="queued")
        assert late["status"] == "unknown" and late["receive"]
    for node in gone:
        node.start(wait=False)
    trial.goes_on()
    trial.judge()


@pytest.mark.long
def test_all_are_restarted_in_turn(trial):
    for node in trial.cluster.nodes:
        node.stop()
        trial.goes_on()
        node.start()
        wait_until(lambda: trial.cluster.online(QUEUE) == 3)
    trial.judge()


@pytest.mark.long
def test_a_node_is_wiped_and_joins_again(trial):
    wiped = trial.cluster.leader(QUEUE)
    other = next(node for node in trial.cluster.nodes if node is not wiped)
    wiped.kill9()
    wiped.wipe()
    trial.goes_on()
    other.run("rabbitmqctl", "-q", "forget_cluster_node", wiped.name)
    wiped.start()
    wait_until(lambda: trial.members_told(3, 2, 2))
    command = f"rabbitmq-queues grow {wiped.name} all"
    assert any(f"{QUEUE} has 2 of 3" in text and command in text for text in trial.warnings())
    other.run(*command.split())
    wait_until(lambda: trial.members_told(3, 3, 3))
    assert not trial.warnings()
    other.kill9()
    trial.goes_on()
    other.start()
    trial.judge()


@pytest.mark.long
def test_a_node_becomes_a_cluster(trial_make):
    """Queues that were declared on one node have no other member until they grow. While it is down
    they are not empty, although RabbitMQ counts nothing in them."""
    trial = trial_make(3, forms=False)
    first, *others = trial.cluster.nodes
    wait_until(lambda: trial.workers[0].metrics()[f"{MEMBERS}_wanted"] == 1)
    for node in others:
        node.join(first)
    trial.start()
    wait_until(lambda: trial.members_told(3, 1, 1))
    shown = json.loads(trial.stack.ctl("show", trial.loads[0].coupon, "--json"))["rabbitmq"]
    queue = next(one for one in shown["queues"] if one["name"] == QUEUE)
    assert queue["members"] == queue["online"] == [first.name] and queue["leader"] == first.name
    first.kill9()
    wait_until(lambda: trial.members_told(3, 1, 0))
    freed = trial.stack.ctl_run("rebuild", trial.loads[0].coupon, "--give-up-lost")
    assert freed.returncode == 10 and "cannot be queried" in freed.stderr
    first.start()
    trial.goes_on()
    commands = [f"rabbitmq-queues grow {node.name} all" for node in others]
    assert shown["nodes"] == sorted(node.name for node in trial.cluster.nodes)
    assert any(all(command in text for command in commands) for text in shown["warnings"])
    for command in commands:
        first.run(*command.split())
    wait_until(lambda: trial.members_told(3, 3, 3))
    assert f"led by {first.name}; 3 of 3 members online" in trial.stack.ctl(
        "show", trial.loads[0].coupon
    )
    first.kill9()
    trial.goes_on()
    first.start()
    trial.judge()


@pytest.mark.long
def test_connections_are_spread(rough, cluster_make, gateway_make):
    """Each of many processes begins with another node."""
    cluster = cluster_make(3)
    gateway = gateway_make(rough, COUPON_PROCESSES=16)
    wait_until(lambda: len(CONNECTED.findall(gateway.log())) >= 16)
    hosts = {host for _, host in CONNECTED.findall(gateway.log())}
    assert hosts == {f"127.0.0.1:{node.amqp}" for node in cluster.nodes}  # else one of 200 runs


@pytest.mark.long
def test_the_management_api_does_not_answer(trial_make):
    """Nothing is known, which is told with a sentence and without the password."""
    trial = trial_make(1)
    wait_until(lambda: trial.members_told(1, 1, 1))
    only = trial.cluster.nodes[0]
    only.run("rabbitmq-plugins", "-q", "disable", "rabbitmq_management")
    wait_until(lambda: trial.members_told(0, 0, 0))
    (warning,) = trial.warnings()
    assert f"127.0.0.1:{only.api}: " in warning and "watches" not in warning
    shown = trial.stack.ctl_run("show", trial.stack.coupon_make(1), "--json")
    error = json.loads(shown.stdout)["rabbitmq"]["error"]
    assert shown.returncode == 10 and f":{only.api}" in error
