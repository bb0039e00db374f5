"""RabbitMQ killed, out of memory, out of disk, refusing; its connections, channels, consumers,
exchanges and queues closed or deleted."""

import contextlib
import re
import shutil

import pika
from history import QUEUE
from services import on_small_disk, rabbitmq_eval, rabbitmqctl, say
from verdict import place_of

from scenario import GATEWAY_STARTS, OUTCOMES_LATE, scenario

EXCHANGES = ("coupon.topic", "coupon.dlx", "coupon.event")
POLICY = "torture"
SMALL_DISK = 160 << 20


@contextlib.contextmanager
def channel_open(rig):
    with pika.BlockingConnection(pika.URLParameters(rig.stack.env["AMQP_URL"])) as connection:
        yield connection.channel()


def queue_state(rig):
    """(ready messages, consumers), or None when there is no such queue."""
    with channel_open(rig) as channel:
        try:
            method = channel.queue_declare(QUEUE, passive=True).method
        except pika.exceptions.ChannelClosedByBroker:
            return None
    return method.message_count, method.consumer_count


def gateways_log(rig, text):
    return sum(part.log().count(text) for part in rig.gateways)


@scenario(**OUTCOMES_LATE)
def rabbitmq_killed(rig, chance):
    """RabbitMQ killed with kill -9 under load, and restarted: requests are not affected."""
    rig.wait_answers(chance.randint(1, 300))
    say("kill -9 of RabbitMQ")
    rig.stack.kill9("rabbitmq")
    rig.wait_accepted(chance.randint(20, 80))
    rig.stack.start("rabbitmq")
    rig.wait_answers(200)


@scenario(**OUTCOMES_LATE)
def rabbitmq_frozen(rig, chance):
    """RabbitMQ hangs for longer than two heartbeats, connections open."""
    rig.wait_answers(chance.randint(1, 300))
    say("SIGSTOP of RabbitMQ")
    rig.stack.sigstop("rabbitmq")
    rig.pause(chance, 9, 11)
    rig.stack.sigcont("rabbitmq")
    rig.wait_answers(200)


def alarmed(rig, chance, begin, end):
    rig.on_heal(end)
    rig.wait_answers(chance.randint(1, 300))
    before = gateways_log(rig, "event=amqp_blocked")
    begin()
    rig.wait(lambda: gateways_log(rig, "event=amqp_blocked") > before)
    rig.wait_accepted(chance.randint(20, 80))  # few requests, because most clients wait for a
    # confirm
    end()
    rig.wait_answers(100)


@scenario(**OUTCOMES_LATE)
def rabbitmq_memory_alarm(rig, chance):
    """RabbitMQ gets a memory alarm: publishers are blocked, and continue when it ends."""

    def begin():
        say("vm_memory_high_watermark 1 MB")
        rabbitmqctl(rig.stack, "set_vm_memory_high_watermark", "absolute", "1MB")

    alarmed(
        rig, chance, begin, lambda: rabbitmqctl(rig.stack, "set_vm_memory_high_watermark", "0.4")
    )


@scenario(**OUTCOMES_LATE)
def rabbitmq_disk_alarm(rig, chance):
    """As rabbitmq_memory_alarm(), with a disk alarm."""

    def begin():
        say("disk_free_limit 900000 GB")
        rabbitmqctl(rig.stack, "set_disk_free_limit", "900000GB")

    alarmed(rig, chance, begin, lambda: rabbitmqctl(rig.stack, "set_disk_free_limit", "50MB"))


def broker_on_small_disk(rig, _chance):
    rig.stack.queues_register()
    on_small_disk(rig, "rabbitmq", SMALL_DISK)
    rabbitmqctl(rig.stack, "set_disk_free_limit", "1MB")  # so that no alarm comes before


@scenario(prepare=broker_on_small_disk, crowd=False, events="lost", **OUTCOMES_LATE)
def rabbitmq_disk_full(rig, chance):
    """The disk of RabbitMQ is full, with no alarm before. It may not start from what is left, so it
    is started without its data."""
    rig.on_heal(rig.disk.free)
    rig.wait_answers(chance.randint(1, 300))
    say("the disk of RabbitMQ filled")
    rig.disk.fill()
    rig.wait_accepted(chance.randint(20, 80))
    rig.pause(chance, 1.0, 4.0)
    rig.disk.free()
    rig.stack.kill9("rabbitmq", registers=False)
    shutil.rmtree(rig.stack.run_dir / "rabbitmq" / "mnesia")
    rig.stack.start("rabbitmq")
    rig.wait_answers(200)


@scenario(**OUTCOMES_LATE)
def rabbitmq_flow(rig, chance):
    """RabbitMQ lets every publisher wait again and again, its connections in `flow`."""

    def credit(text):
        rabbitmq_eval(rig.stack, f"application:set_env(rabbit, credit_flow_default_credit, {text})")
        rabbitmqctl(rig.stack, "close_all_connections", "torture")

    rig.on_heal(lambda: credit("{400, 200}"))
    rig.wait_answers(chance.randint(1, 300))
    say("credit_flow_default_credit {2, 1}")
    credit("{2, 1}")
    rig.wait(lambda: "flow" in rabbitmqctl(rig.stack, "list_connections", "state"))
    rig.wait_answers(200)
    rig.pause(chance, 1.0, 4.0)
    rig.wait_answers(100)


@scenario(**OUTCOMES_LATE)
def rabbitmq_refuses(rig, chance):
    """A policy limits the queue to less than its length, with reject-publish: publishes are refused
    until it is removed."""
    arguments = '{"max-length":0,"overflow":"reject-publish"}'

    def metric():
        return sum(part.metrics()["couponmq_messages_failed_total"] for part in rig.gateways)

    rig.on_heal(lambda: rig.stack.policy_clear(POLICY))
    rig.wait_answers(chance.randint(1, 300))
    before = metric()
    say(f"policy {arguments}")
    for part in rig.workers:
        part.stop()  # so that there are messages in it
    rig.stack.policy_set(POLICY, f"^{QUEUE}$", arguments)
    rig.wait(lambda: metric() > before + 2)
    for part in rig.workers:
        part.cont()
    rig.pause(chance, 0.5, 1.5)
    rig.stack.policy_clear(POLICY)
    rig.wait_answers(200)


@scenario(**OUTCOMES_LATE)
def rabbitmq_connections_closed(rig, chance):
    """Every connection closed by the operator, again and again."""
    for _ in range(3):
        rig.wait_answers(chance.randint(50, 300))
        say("close_all_connections")
        rabbitmqctl(rig.stack, "close_all_connections", "torture")
    rig.wait_answers(200)


@scenario(**OUTCOMES_LATE)
def rabbitmq_one_connection_closed(rig, chance):
    """One connection after the other closed by the operator, of any program."""
    for _ in range(4):
        rig.wait_answers(chance.randint(20, 100))
        found = rabbitmqctl(rig.stack, "list_connections", "pid", "state").splitlines()[1:]
        running = [line.split("\t")[0] for line in found if "running" in line]
        if running:
            pid = chance.choice(running)
            say(f"close_connection {pid}")
            with contextlib.suppress(AssertionError):  # it may have ended meanwhile
                rabbitmqctl(rig.stack, "close_connection", pid, "torture")
    rig.wait_answers(200)


@scenario(**OUTCOMES_LATE)
def rabbitmq_channels_killed(rig, chance):
    """The broker's channel processes killed: each connection gets an internal error."""
    for _ in range(3):
        rig.wait_answers(chance.randint(50, 300))
        say("every channel's process killed in the broker")
        rabbitmq_eval(rig.stack, "[exit(Pid, kill) || Pid <- rabbit_channel:list()], ok")
    rig.wait_answers(200)


@scenario(events="lost", **OUTCOMES_LATE)
def rabbitmq_exchanges_deleted(rig, chance):
    """Exchanges deleted: the next publish gets its channel closed (404); they are declared
    again."""
    for _ in range(3):
        rig.wait_answers(chance.randint(50, 300))
        name = chance.choice(EXCHANGES)
        say(f"exchange {name} deleted")
        with channel_open(rig) as channel:
            channel.exchange_delete(name)
        rig.wait_answers(200)
    # No process publishes to the dead letters' exchange now, so its loss is not detected: a new
    # channel declares it.
    rabbitmqctl(rig.stack, "close_all_connections", "torture")


@scenario(**GATEWAY_STARTS)
def rabbitmq_consumers_cancelled(rig, chance):
    """The queue deleted while it is empty and nothing is sent: consumers are cancelled, and consume
    a new queue."""
    rig.wait_answers(chance.randint(1, 300))
    with idle(rig):
        say(f"{QUEUE} deleted, empty")
        with channel_open(rig) as channel:
            channel.queue_delete(QUEUE, if_empty=False)
        rig.wait(lambda: (queue_state(rig) or (0, 0))[1] == len(rig.workers))
    rig.wait_answers(200)


@contextlib.contextmanager
def idle(rig):
    """Clients reach no gateway meanwhile, and every accepted receive has its outcome."""
    for part in rig.gateways:
        part.stop()
    rig.wait(lambda: queue_state(rig)[0] == 0)
    rig.wait(lambda: rig.outbox_length() == 0)
    yield
    for part in rig.gateways:
        part.cont()


# Receives that only the queue and the outbox held are lost: counted, listed, and given up by the
# operator


# A client that waits for the outcome of a lost receive, and retries, waits until its deadline each
# time.
@scenario(rate=False, answers=("unavailable",), reasons=("lost",), unknown=0.5)
def rabbitmq_and_outbox_lost(rig, chance):
    """The queue deleted or purged with confirmed messages in it, and the outboxes too: each lost
    receive is listed, given up, and a rejection."""
    rig.on_stop(lambda: give_up_lost(rig))
    rig.wait_answers(chance.randint(1, 300))
    for part in rig.workers:
        part.kill9()  # so that there are messages in it that no consumer has read
    rig.wait(lambda: queue_state(rig)[0] >= chance.randint(2, 20))
    way = chance.choice(("queue_delete", "queue_purge"))
    say(f"{way} of {QUEUE} with {queue_state(rig)[0]} messages, and every outbox deleted")
    with channel_open(rig) as channel, rig.redis() as cache:
        getattr(channel, way)(QUEUE)
        cache.delete(*(f"coupon:{{{one.coupon}}}:outbox" for one in rig.load.campaigns))
    for part in rig.workers:
        part.start()
    rig.wait_answers(200)


def unconfirmed(rig):
    return sum(part.metrics()["couponmq_receives_unconfirmed"] for part in rig.gateways)


def give_up_lost(rig):
    rig.wait(lambda: unconfirmed(rig) == 0)
    rig.wait(lambda: queue_unsettled(rig) == 0)
    rig.wait(lambda: rig.outbox_length() == 0)
    told = 0
    for campaign in rig.load.campaigns:
        wanted = without_outcome(campaign)
        audited = set(re.findall(r"receive (\S+): .*\(receive_lost\)", audit_text(rig, campaign)))
        assert wanted <= audited, f"couponctl audit does not name {wanted - audited}"
        output = rig.stack.ctl("rebuild", campaign.coupon, "--give-up-lost", "--older-than-s", 1)
        named = set(re.findall(r"^lost: receive (\S+),", output, re.MULTILINE))
        assert wanted <= named, f"not named: {wanted - named}"
        told += len(named)
    say(f"{told} receives listed and given up")
    assert told


def queue_unsettled(rig, queue=QUEUE):
    """Messages in the workers' queue, including un-acked ones."""
    lines = rabbitmqctl(rig.stack, "list_queues", "name", "messages").splitlines()
    return next(int(line.split("\t")[1]) for line in lines if line.split("\t")[0] == queue)


def without_outcome(campaign):
    """Receives that clients were answered with, and that PostgreSQL does not hold."""
    stored = campaign.stored()
    known = stored.issued.keys() | stored.rejected.keys()
    return {
        one.receive for one in campaign.asked if one.receive and place_of(one.receive) not in known
    }


def audit_text(rig, campaign):
    result = rig.stack.ctl_run("audit", campaign.coupon, "--grace", 1)
    return result.stdout + result.stderr
