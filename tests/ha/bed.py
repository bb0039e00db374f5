"""The three machines of `make run-ha`: which of them leads what, and what can happen to them."""

import re
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis
import requests

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "torture")]

from stack import Stack, wait_until  # noqa: E402

MACHINES = ("m1", "m2", "m3")
ASK_S = 2  # of questions to machines that may be gone


class Bed(Stack):
    """A stack whose settings lead to what is the master now."""

    SCRIPT = "ha.sh"

    @property
    def env(self):
        """For clients that know no Sentinels: the master of Redis itself. The programs have the
        URL of env.PROGRAM."""
        env = super().env
        password = urlsplit(env["REDIS_URL"].split(",")[0]).password
        host, port = self.redis_master()
        return {**env, "REDIS_URL": f"redis://default:{password}@{host}:{port}/0"}

    # Where

    def sentinels(self):
        hosts = re.search("@(.*?)/", self._env_read("env")["REDIS_URL"])[1].split(",")
        return [host.rsplit(":", 1) for host in hosts]

    def hosts(self):
        """The address of each machine."""
        return {
            machine: host for machine, (host, _) in zip(MACHINES, self.sentinels())
        }  # fmt: skip

    def machine_at(self, host):
        return next(machine for machine, own in self.hosts().items() if own == host)

    def redis_master(self):
        """Its host and port, as the Sentinels name it by majority."""
        named = []
        for host, port in self.sentinels():
            try:
                with redis.Redis(
                    host, int(port), decode_responses=True, socket_timeout=ASK_S
                ) as sentinel:
                    named.append(sentinel.sentinel_get_master_addr_by_name("couponmq"))
            except redis.RedisError:
                continue
        return max(named, key=named.count)

    def redis_leads(self):
        return self.machine_at(self.redis_master()[0])

    def postgresql_leads(self):
        base = int(self.kept()["STACK_PORT_BASE"])
        for host in self.hosts().values():
            try:
                told = requests.get(f"http://{host}:{base + 8}/cluster", timeout=ASK_S).json()
            except (requests.RequestException, ValueError):
                continue
            for member in told["members"]:
                if member["role"] == "leader":
                    return member["name"]
        return None

    def is_whole(self):
        """Whether both others follow the leader, of Redis and of PostgreSQL, and no node of
        RabbitMQ pauses, which then does not listen."""
        port = int(self.kept()["STACK_PORT_BASE"]) + 72
        try:
            for host in self.hosts().values():
                socket.create_connection((host, port), ASK_S).close()
            with redis.Redis.from_url(self.env["REDIS_URL"], socket_timeout=ASK_S) as master:
                if master.info("replication").get("connected_slaves") != len(MACHINES) - 1:
                    return False
            with psycopg.connect(self.superuser(), connect_timeout=ASK_S) as pg:
                rows = pg.execute(
                    "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
                ).fetchall()
        except (OSError, redis.RedisError, psycopg.Error):
            return False
        return sorted(state for state, in rows) == ["async", "sync"]

    def superuser(self):
        """The URL of what leads PostgreSQL now: psycopg would wait for a host that is gone, and
        then not try the others. What is gone says nothing on connections that were there."""
        base = int(self.kept()["STACK_PORT_BASE"])
        password = self.kept()["STACK_PG_PASSWORD"]
        host = self.hosts().get(self.postgresql_leads(), "127.0.0.1")
        silent = "tcp_user_timeout=2000&keepalives_idle=1&keepalives_interval=1&keepalives_count=2"
        leads = "&target_session_attrs=read-write"  # a primary that was, and is back, does not
        return f"postgresql://postgres:{password}@{host}:{base + 32}/couponmq?{silent}{leads}"

    def wait_whole(self):
        wait_until(self.is_whole, 180)

    # What can happen to a machine

    def cut(self, machine):
        self.script("cut", machine)

    def mend(self, machine):
        self.script("mend", machine)

    def kill(self, machine):
        """As by a loss of power."""
        self.script("kill", machine)
