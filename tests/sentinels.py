"""A stack's Redis with a replica and three Sentinels."""

import re
import subprocess

import redis

from redis_server import server_find
from stack import port_free, wait_until

NAME, PASSWORD = "shop", "of-the-sentinels"  # they write it into their files without quotes
SENTINEL, REPLICA, TEST = "sentinel", "replica", "test"  # users of Redis, and their passwords
SENTINELS_N, QUORUM = 3, 2
DOWN_AFTER_MS = 700


class Sentinels:
    """Masters and replicas are told apart by their ports: `first` is that of the stack's Redis."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.first = int(re.search(r":(\d+)/", stack.env["REDIS_URL"])[1])
        self.second = port_free()
        self.children = {}
        self.users_make(self.first)
        self.replica_start()
        self.sentinels = [port_free() for _ in range(SENTINELS_N)]
        for port in self.sentinels:
            self.sentinel_start(port)
        wait_until(lambda: all(self.known(port) for port in self.sentinels))

    def spawn(self, port, *words):
        folder = self.folder / str(port)
        with open(folder / "log", "ab") as log:
            self.children[port] = subprocess.Popen(
                [server_find(), *map(str, words)], cwd=folder, stdout=log, stderr=log
            )

    def replica_start(self):
        folder = self.folder / str(self.second)
        folder.mkdir(exist_ok=True)
        theirs = self.stack.run_dir / "redis"
        users = (theirs / "users.conf").read_text().splitlines()
        # not included: Sentinels let it rewrite redis.conf, which would then have them twice
        (folder / "users.acl").write_text(
            "".join(f"{line}\n" for line in users if line.startswith("user "))
        )
        conf = (theirs / "redis.conf").read_text()
        (folder / "redis.conf").write_text(
            conf.replace("include ./users.conf", "aclfile ./users.acl")
        )
        self.spawn(
            *(self.second, "redis.conf", "--port", self.second),
            *("--replicaof", f"127.0.0.1 {self.first}", "--repl-diskless-sync-delay", 0),
        )
        wait_until(lambda: self.role(self.second)[0] == "slave")
        self.users_make(self.second)
        wait_until(lambda: self.role(self.second) == ("slave", "up"))

    def users_make(self, port):
        """Makes the users of the Sentinels and of replicas, so that they can be locked out."""
        with self.connect(port) as client:
            for user in (SENTINEL, REPLICA, TEST):
                client.execute_command(
                    *("ACL", "SETUSER", user, "on", f">{user}", "allkeys", "allchannels", "+@all")
                )
            if port != self.first:
                client.execute_command("ACL", "SAVE")
            client.config_set("masteruser", REPLICA)
            client.config_set("masterauth", REPLICA)

    def cut_off(self, port):
        """From the Sentinels and its replica; clients reach it."""
        self.doors(port, "off")
        with self.connect(port, username=TEST, password=TEST) as client:
            for user in (SENTINEL, REPLICA, "default"):
                client.execute_command("CLIENT", "KILL", "USER", user)

    def replica_shut_out(self, master):
        """The replica gets nothing more; it is known, and may be promoted."""
        with self.connect(master, username=TEST, password=TEST) as client:
            for user in (REPLICA, "default"):
                client.execute_command("ACL", "SETUSER", user, "off")
                client.execute_command("CLIENT", "KILL", "USER", user)
        wait_until(lambda: self.role(self.other(master)) == ("slave", "down"))

    def let_in(self, port):
        self.doors(port, "on")

    def doors(self, port, state):
        """A failed login leaves a client as the default user, which must be locked out as well."""
        with self.connect(port, username=TEST, password=TEST) as client:
            for user in (SENTINEL, REPLICA, "default"):
                client.execute_command("ACL", "SETUSER", user, state)

    def pid(self, port):
        return self.stack.pid("redis") if port == self.first else self.children[port].pid

    def other(self, port):
        return self.first + self.second - port

    def kill(self, port):
        if port == self.first:
            self.stack.kill9("redis")
        else:
            self.children[port].kill()
            self.children[port].wait()

    def start(self, port):
        """One that was killed, as a replica."""
        if port == self.first:
            self.stack.start("redis")
        else:
            self.spawn(port, "redis.conf", "--port", port)
        wait_until(lambda: self.role(port)[0], 60)
        self.users_make(port)
        wait_until(lambda: self.role(port) == ("slave", "up"), 60)

    def sentinel_start(self, port):
        folder = self.folder / str(port)
        folder.mkdir(exist_ok=True)
        conf = folder / "sentinel.conf"
        if not conf.exists():
            conf.write_text(
                f"port {port}\nbind 127.0.0.1\nrequirepass {PASSWORD!r}\n"
                f"sentinel sentinel-pass {PASSWORD!r}\n"
                f"sentinel monitor {NAME} 127.0.0.1 {self.first} {QUORUM}\n"
                f"sentinel auth-user {NAME} {SENTINEL}\nsentinel auth-pass {NAME} {SENTINEL}\n"
                f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {NAME} 3000\n"
            )
        self.spawn(port, conf, "--sentinel")

    def settings(self, program):
        """For a program of the stack."""
        login = re.match(r"redis://(.*@)?", self.stack.env_of(program)["REDIS_URL"])[1] or ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return {
            "REDIS_URL": f"redis+sentinel://{login}{hosts}/{NAME}/0",
            "REDIS_SENTINEL_PASSWORD": PASSWORD,
        }

    # What they say

    def connect(self, port, **options):
        return redis.Redis(
            "127.0.0.1", port, decode_responses=True, socket_timeout=2, **options
        )  # fmt: skip

    def role(self, port):
        """(role, the state of its link to the master)"""
        try:
            with self.connect(port) as client:
                told = client.info("replication")
        except redis.RedisError:
            return None, None
        return told["role"], told.get("master_link_status")

    def known(self, port):
        """Whether this Sentinel knows the others and the replica."""
        try:
            with self.connect(port, password=PASSWORD) as client:
                told = client.sentinel_master(NAME)
        except redis.RedisError:
            return False
        return (
            told["num-other-sentinels"] == SENTINELS_N - 1 and told["num-slaves"] >= 1
        )  # fmt: skip

    def down_by_all(self, port):
        """Whether every Sentinel calls this replica down."""
        for sentinel in self.sentinels:
            with self.connect(sentinel, password=PASSWORD) as client:
                flags = {one["port"]: one["flags"] for one in client.sentinel_slaves(NAME)}
            if "s_down" not in flags.get(port, ""):
                return False
        return True

    def masters(self):
        """The ports that the Sentinels name."""
        named = set()
        for port in self.sentinels:
            with self.connect(port, password=PASSWORD) as client:
                named.add(int(client.sentinel_get_master_addr_by_name(NAME)[1]))
        return named

    def master_is(self, port):
        """Every Sentinel names it, and it has a replica."""
        with self.connect(port) as client:
            told = client.info("replication")
        return (
            told["role"] == "master" and told["connected_slaves"] == 1 and self.masters() == {port}
        )  # fmt: skip

    def failover(self):
        """As an operator does it, once the Sentinels have seen the replica follow."""

        def is_begun():
            try:
                return client.execute_command("SENTINEL", "FAILOVER", NAME)
            except redis.ResponseError as error:
                assert "NOGOODSLAVE" in str(error), error
                return False

        with self.connect(self.sentinels[0], password=PASSWORD) as client:
            wait_until(is_begun)

    def end(self):
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
