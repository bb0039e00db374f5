"""Operations and faults on the three services of the rig's stack."""

import psycopg
from load import Ask, now


def say(text):
    """The steps of a scenario: printed below the seed, to explain a failure."""
    print(f"    {text}", flush=True)


def pg_superuser(stack, database="couponmq"):
    settings = stack.kept()
    return psycopg.connect(
        host="127.0.0.1", port=int(settings["STACK_PORT_BASE"]) + 32, user="postgres",
        dbname=database, password=settings["STACK_PG_PASSWORD"], autocommit=True, connect_timeout=5,
        application_name="torture",
    )  # fmt: skip


def rabbitmqctl(stack, *arguments):
    return stack.rabbitmqctl(*arguments)


def rabbitmq_eval(stack, expression):
    """Evaluates an Erlang expression in the broker."""
    return stack.rabbitmq_eval(expression)


def ask(rig, campaign, user, part=None, **members):
    """One additional request to this gateway, recorded in the load's history; returns the reply."""
    part = part or rig.gateways[0]
    one = Ask("issue", user, **members)
    one.client, one.gateway, one.at = "scenario", part.name, now()
    campaign.note(one)
    with part.process.client() as client:
        client.send_bytes(one.line(0, campaign.coupon).encode())
        return one.answer(client.read_reply())
