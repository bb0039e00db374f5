"""What an operator, or an accident, can do to the three services of the rig's stack."""

import os
import shlex
import subprocess

import psycopg
from load import Ask

NODE = "couponmq@localhost"
RABBITMQ_BIN = os.environ.get("RABBITMQ_BIN", "/usr/lib/rabbitmq/bin")


def say(text):
    """What is done to whom: printed under the seed, so that a failure can be read."""
    print(f"    {text}", flush=True)


def settings_read(stack):
    """The secrets and the port base that scripts/stack.sh keeps."""
    lines = (stack.run_dir / "settings").read_text().splitlines()
    return dict(shlex.split(line)[0].split("=", 1) for line in lines if "=" in line)


def pg_superuser(stack, database="couponmq"):
    settings = settings_read(stack)
    return psycopg.connect(
        host="127.0.0.1", port=int(settings["STACK_PORT_BASE"]) + 32, user="postgres", dbname=database,
        password=settings["STACK_PG_PASSWORD"], autocommit=True, connect_timeout=5, application_name="torture",
    )  # fmt: skip


def rabbitmqctl(stack, *arguments):
    """Its output; what it refuses is a failure of the scenario."""
    home = stack.run_dir / "rabbitmq"
    base = int(settings_read(stack)["STACK_PORT_BASE"])
    result = subprocess.run(
        [f"{RABBITMQ_BIN}/rabbitmqctl", "-q", *map(str, arguments)],
        env={
            **os.environ, "HOME": str(home), "LANG": "C.UTF-8", "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(base + 69), "RABBITMQ_NODENAME": NODE, "RABBITMQ_DIST_PORT": str(base + 25),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null", "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
        },
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, f"rabbitmqctl {shlex.join(map(str, arguments))}: {result.stdout}{result.stderr}"
    return result.stdout


def rabbitmq_eval(stack, expression):
    """An expression of Erlang's, in the broker."""
    return rabbitmqctl(stack, "eval", expression)


def ask(rig, campaign, user, part=None, **members):
    """One request more than the load's, at this gateway, and in its history; returns the reply."""
    part = part or rig.gateways[0]
    one = Ask("issue", user, **members)
    one.client, one.gateway, one.at = "scenario", part.name, rig.load.now()
    campaign.note(one)
    with part.process.client() as client:
        client.send_bytes(one.line(0, campaign.coupon).encode())
        one.reply = client.read_reply()
    one.answered_at = rig.load.now()
    return one.reply
