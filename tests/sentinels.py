"""A stack's Redis with a replica and three Sentinels."""

import re
import shutil
import subprocess

import redis

from redis_server import server_find
from stack import port_free, wait_until

NAME, PASSWORD = "shop", "of the sentinels"
SENTINELS_N, QUORUM = 3, 2
DOWN_AFTER_MS = 700


class Sentinels:
    """Masters and replicas are told apart by their ports: `first` is that of the stack's Redis."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.first = int(re.search(r":(\d+)/", stack.env["REDIS_URL"])[1])
        self.second = port_free()
        self.children = {}
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
        for name in ("redis.conf", "users.conf"):
            shutil.copy(self.stack.run_dir / "redis" / name, folder)
        self.spawn(
            *(self.second, "redis.conf", "--port", self.second),
            *("--replicaof", f"127.0.0.1 {self.first}", "--repl-diskless-sync-delay", 0),
        )
        wait_until(lambda: self.role(self.second) == ("slave", "up"))

    def sentinel_start(self, port):
        folder = self.folder / str(port)
        folder.mkdir(exist_ok=True)
        conf = folder / "sentinel.conf"
        if not conf.exists():
            conf.write_text(
                f"port {port}\nbind 127.0.0.1\nrequirepass {PASSWORD!r}\n"
                f"sentinel sentinel-pass {PASSWORD!r}\n"
                f"sentinel monitor {NAME} 127.0.0.1 {self.first} {QUORUM}\n"
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

    def masters(self):
        """The ports that the Sentinels name."""
        named = set()
        for port in self.sentinels:
            with self.connect(port, password=PASSWORD) as client:
                named.add(int(client.sentinel_get_master_addr_by_name(NAME)[1]))
        return named

    def failover(self):
        """As an operator does it."""
        with self.connect(self.sentinels[0], password=PASSWORD) as client:
            client.execute_command("SENTINEL", "FAILOVER", NAME)

    def end(self):
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
