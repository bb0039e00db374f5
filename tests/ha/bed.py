"""The three machines of `make run-ha`: which of them leads what, and what can happen to them."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
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
DISK_LEFT = 192 << 20
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

    def port(self, offset):
        return int(self.kept()["STACK_PORT_BASE"]) + offset

    def _ask(self, offset, path, **options):
        """What each machine that answers says there."""
        for machine, host in self.hosts().items():
            try:
                yield machine, requests.get(
                    f"http://{host}:{self.port(offset)}{path}", timeout=ASK_S, **options
                ).json()
            except (requests.RequestException, ValueError):
                continue

    def postgresql_leads(self):
        for _, told in self._ask(8, "/cluster"):
            for member in told["members"]:
                if member["role"] == "leader":
                    return member["name"]
        return None

    def rabbitmq_leads(self):
        """The queue of the receives."""
        login = ("couponmq", self.kept()["STACK_AMQP_PASSWORD"])
        for _, told in self._ask(73, "/api/queues/%2f/coupon.receive.queue", auth=login):
            if "leader" in told:
                return told["leader"].split("@")[0]
        return None

    def etcd_leads(self):
        for machine, told in self._ask(23, "/v2/stats/self"):
            if told["state"] == "StateLeader":
                return machine
        return None

    def keeper(self):
        """The machine whose worker was elected last, and the number of the election."""
        elections = []
        for machine in MACHINES:
            for fence in re.findall(
                r"event=keeper_elected fence=(\d+)", self.log(f"{machine}-worker")
            ):
                elections.append((int(fence), machine))
        fence, machine = max(elections)
        return machine, fence

    def is_whole(self):
        """Whether both others follow the leader, of Redis and of PostgreSQL, and no node of
        RabbitMQ pauses, which then does not listen."""
        try:
            for host in self.hosts().values():
                socket.create_connection((host, self.port(72)), ASK_S).close()
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

    def superuser(self, machine=None):
        """The URL of this machine, or of what leads PostgreSQL now: psycopg would wait for a host
        that is gone, and then not try the others. What is gone says nothing on connections that
        were there."""
        password = self.kept()["STACK_PG_PASSWORD"]
        host = self.hosts().get(machine or self.postgresql_leads(), "127.0.0.1")
        silent = "tcp_user_timeout=2000&keepalives_idle=1&keepalives_interval=1&keepalives_count=2"
        leads = "&target_session_attrs=read-write"  # a primary that was, and is back, does not
        return f"postgresql://postgres:{password}@{host}:{self.port(32)}/couponmq?{silent}{leads}"

    def wait_whole(self):
        wait_until(self.is_whole, 180)

    def leads(self, store):
        return getattr(self, f"{store}_leads")()

    def leaders(self):
        led = [
            f"{store} {self.leads(store)}" for store in ("redis", "postgresql", "rabbitmq", "etcd")
        ]
        return ", ".join([*led, f"keeper {self.keeper()[0]}"])

    def postgresql_apart(self, machine):
        """PostgreSQL is led by another one."""
        if self.postgresql_leads() == machine:
            self.switch_over()

    def primary(self):
        """The URL of what leads PostgreSQL by its own word: of the primaries that answer, the one
        with the highest timeline, since an old one may live on. None: none answers."""
        found = []
        for machine in MACHINES:
            with (
                contextlib.suppress(psycopg.Error),
                psycopg.connect(self.superuser(machine), connect_timeout=ASK_S) as pg,
            ):
                file = pg.execute("SELECT pg_walfile_name(pg_current_wal_lsn())").fetchone()[0]
                found.append((int(file[:8], 16), self.superuser(machine)))
        return max(found)[1] if found else None

    def behind(self):
        """What workers and keepers have logged when PostgreSQL lacked what it had committed."""
        return [
            line
            for machine in MACHINES
            for line in self.log(f"{machine}-worker").splitlines()
            if re.search("event=(postgresql_behind|recovery_done)", line)
        ]

    def switch_over(self):
        """PostgreSQL is led by its synchronous standby."""
        leader = self.postgresql_leads()
        for _, told in self._ask(8, "/cluster"):
            (standby,) = [one["name"] for one in told["members"] if one["role"] == "sync_standby"]
            break
        url = f"http://{self.hosts()[leader]}:{self.port(8)}/switchover"
        told = requests.post(url, json={"leader": leader, "candidate": standby}, timeout=60)
        assert told.ok, told.text
        self.wait_whole()

    def redis_priority_set(self, machine, priority):
        login = urlsplit(self.env["REDIS_URL"]).password
        with redis.Redis(self.hosts()[machine], self.port(79), password=login) as one:
            one.config_set("replica-priority", priority)

    def redis_priorities(self, machine):
        """As the Sentinels know them, which ask every ten seconds."""
        for host, port in self.sentinels():
            with redis.Redis(host, int(port), decode_responses=True) as sentinel:
                for replica in sentinel.sentinel_slaves("couponmq"):
                    if replica["ip"] == self.hosts()[machine]:
                        yield replica["slave-priority"]

    def redis_lead_by(self, machine):
        """As the replica with the least priority."""
        if self.redis_leads() == machine:
            return
        self.redis_priority_set(machine, 1)
        wait_until(lambda: {*self.redis_priorities(machine)} == {1}, 60)
        self.redis_fail_over()
        wait_until(lambda: self.redis_leads() == machine, 60)
        self.redis_priority_set(machine, 100)

    def redis_fail_over(self):
        """As an operator does it."""
        host, port = self.sentinels()[0]
        before = self.redis_leads()
        with redis.Redis(host, int(port)) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", "couponmq")
        wait_until(lambda: self.redis_leads() != before, 60)

    def postgresql_lead_by(self, machine):
        """As far as it can be chosen: the standby that is synchronous follows the leader."""
        if self.postgresql_leads() == machine:
            return
        (other,) = {*MACHINES} - {machine, self.postgresql_leads()}
        self.stop(f"{other}-patroni")
        self.start(f"{other}-patroni")
        self.wait_whole()
        self.switch_over()

    def is_balanced(self, machine):
        """Whether HAProxy leads clients to its gateway."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.run_dir / "haproxy/admin.sock"))
            admin.sendall(b"show stat\n")
            rows = admin.makefile("r").read()
        return re.search(f"^ready,gateway-{machine[1:]},.*,UP,", rows, re.MULTILINE)

    # What can happen to a machine, and to one of its processes

    def pid(self, name):
        """The first line of the file: that of PostgreSQL has more lines."""
        return int((self.run_dir / f"{name}.pid").read_text().split()[0])

    def cut(self, machine, *way):
        self.script("cut", machine, *way)

    def mend(self, machine):
        self.script("mend", machine)

    def kill(self, machine):
        """As by a loss of power."""
        self.script("kill", machine)

    def kill_at_once(self, machine):
        """As kill(), without the second that the script takes before it."""
        if (self.run_dir / "machines").read_text() == "namespaces\n":
            port = f"cmq{self.port(0)}{machine}"
            subprocess.run(["ip", "link", "set", port, "down"], check=True)
        self._signal([self.pid(name) for name in self.names(machine)], signal.SIGKILL)
        self.kill(machine)

    def respawn(self, name):
        """Kills a process, and starts it again at once: the script takes seconds for it."""
        pid = self.pid(name)
        of = Path(f"/proc/{pid}")
        command, environment = (
            (of / file).read_bytes().split(b"\0")[:-1] for file in ("cmdline", "environ")
        )
        user, folder = of.stat(), os.readlink(of / "cwd")
        ids = [f"--reuid={user.st_uid}", f"--regid={user.st_gid}", "--clear-groups"]
        with open(of / "ns/net", "rb") as network, open(self.run_dir / f"{name}.log", "ab") as log:
            enter = ["nsenter", f"--net=/proc/self/fd/{network.fileno()}", "setpriv", *ids, "--"]
            self.kill9(name)
            child = subprocess.Popen(
                [*enter, *command], env=dict(pair.split(b"=", 1) for pair in environment),
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[network.fileno()], start_new_session=True,
            )  # fmt: skip
        (self.run_dir / f"{name}.pid").write_text(f"{child.pid}\n")

    def senders_freeze(self, pg):
        """No standby of this server gets anything more; until thaw()."""
        for (pid,) in pg.execute("SELECT pid FROM pg_stat_replication").fetchall():
            self.frozen.add(pid)
            self._signal([pid], signal.SIGSTOP)

    def freeze(self, machine):
        for name in self.names(machine):
            self.sigstop(name)

    def folder(self, name):
        return (self.run_dir / name).resolve()

    def disk_small(self, name, service):
        """The folder of a service, which is stopped meanwhile, is a disk of its own, with some
        space left."""
        folder = self.folder(name)
        self.stop(service)
        used = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        whole = folder.with_name(f"{folder.name}.whole")
        folder.rename(whole)
        folder.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={used + DISK_LEFT}", "tmpfs", folder], check=True
        )
        subprocess.run(["cp", "-a", f"{whole}/.", folder], check=True)
        shutil.rmtree(whole)
        self.start(service)

    def disk_fill(self, name):
        with contextlib.suppress(OSError), open(self.folder(name) / "fill", "wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()

    def disk_free(self, name):
        (self.folder(name) / "fill").unlink(missing_ok=True)

    def disk_back(self, name, service):
        folder = self.folder(name)
        if not folder.is_mount():
            return
        self.stop(service)
        whole = folder.with_name(f"{folder.name}.whole")
        subprocess.run(["cp", "-a", folder, whole], check=True)
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()
        whole.rename(folder)
        self.start(service)

    def names(self, machine):
        return [path.stem for path in self.run_dir.glob(f"{machine}-*.pid") if self.runs(path.stem)]
