"""The three stores of a stack, which also listen with TLS."""

import os
import re
import shutil
import subprocess

import psycopg
import redis

from certificates import Authority
from redis_server import server_find
from stack import port_free, wait_until

ADVANCED = """[{{rabbit, [
    {{ssl_listeners, [{{"127.0.0.1", {port}}}]}},
    {{ssl_options, [{{certfile, "{certificate}"}}, {{keyfile, "{key}"}},
                    {{versions, ['tlsv1.3', 'tlsv1.2']}}]}}
]}}].
"""


def elsewhere(url, host, port=None, scheme=None):
    """The URL with its login at another place."""
    old = re.search(r"127\.0\.0\.1:(\d+)", url)
    url = url.replace(old[0], f"{host}:{port or old[1]}")
    return re.sub(r"^\w+", scheme, url) if scheme else url


class TlsStores:
    """Each shows the certificate that it was given last."""

    def __init__(self, stack, folder):
        self.stack, self.folder = stack, folder
        self.authority = Authority(folder, "authority")
        self.stranger = Authority(folder, "stranger")
        self.good = self.authority.issue("DNS:localhost", "IP:127.0.0.1")
        self.amqps_port, self.rediss_port = port_free(), port_free()
        self.rabbitmq_paths = (folder / "rabbitmq.pem", folder / "rabbitmq.key")
        self._rabbitmq_begin()
        self._redis_begin()
        self.postgresql_show(self.good)

    # Which certificate

    def show(self, store, pair):
        getattr(self, f"{store}_show")(pair)

    def _rabbitmq_begin(self):
        for path, shown in zip(self.good, self.rabbitmq_paths):
            shutil.copy(path, shown)
        certificate, key = self.rabbitmq_paths
        text = ADVANCED.format(port=self.amqps_port, certificate=certificate, key=key)
        (self.stack.run_dir / "rabbitmq/advanced.config").write_text(text, encoding="ascii")
        self.stack.restart("rabbitmq")

    def rabbitmq_show(self, pair):
        for path, shown in zip(pair, self.rabbitmq_paths):
            shutil.copy(path, shown)
        self.stack.rabbitmq_eval("ssl:clear_pem_cache()")

    def redis_flags(self, port):
        certificate, key = self.good
        return (
            f"--tls-port {port} --tls-cert-file {certificate} --tls-key-file {key}"
            f" --tls-ca-cert-file {self.authority.path} --tls-auth-clients no"
        )

    def _redis_begin(self):
        flags = self.redis_flags(self.rediss_port)
        self.stack.settings = {**self.stack.settings, "REDIS_FLAGS": flags}
        self.stack.restart("redis")

    def redis_show(self, pair):
        certificate, key = map(str, pair)
        with redis.Redis.from_url(self.stack.env["REDIS_URL"]) as client:
            client.execute_command(
                *("CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key)
            )
            # Connections that are open keep the old one.
            client.client_kill_filter(_type="normal", skipme=True)

    def superuser(self):
        password = self.stack.kept()["STACK_PG_PASSWORD"]
        owner = self.stack.env["DATABASE_ADMIN_URL"]
        url = re.sub(r"//[^@]*@", f"//postgres:{password}@", owner)
        return psycopg.connect(url, autocommit=True)

    def postgresql_show(self, pair):
        """PostgreSQL takes a key only of its own user, and may not enter the folders of others."""
        data = (self.stack.run_dir / "postgres/data").resolve()
        owner = data.stat()
        paths = [data / path.name for path in pair]
        for path, shown in zip(pair, paths):
            shutil.copy(path, shown)
            os.chmod(shown, 0o600)
            os.chown(shown, owner.st_uid, owner.st_gid)
        with self.superuser() as connection:
            connection.execute(f"ALTER SYSTEM SET ssl_cert_file = '{paths[0]}'")
            connection.execute(f"ALTER SYSTEM SET ssl_key_file = '{paths[1]}'")
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        wait_until(lambda: self._shown() == (str(paths[0]),))

    def _shown(self):
        with self.superuser() as connection:
            connection.execute("SELECT 1")
            return connection.execute("SHOW ssl_cert_file").fetchone()

    # Where they are

    def amqp(self, program, host="localhost"):
        url = self.stack.env_of(program)["AMQP_URL"]
        return {
            "AMQP_URL": elsewhere(url, host, self.amqps_port, "amqps"),
            "COUPON_AMQP_CA": self.authority.path,
        }

    def redis(self, program, host="localhost"):
        url = self.stack.env_of(program)["REDIS_URL"]
        return {
            "REDIS_URL": elsewhere(url, host, self.rediss_port, "rediss"),
            "COUPON_REDIS_CA": self.authority.path,
        }

    def postgresql(self, program, host="localhost"):
        url = elsewhere(self.stack.env_of(program)["DATABASE_URL"], host)
        return {
            "DATABASE_URL": f"{url}?sslmode=verify-full&sslrootcert={self.authority.path}",
        }


class TlsSentinels:
    """Three Sentinels, Redis with TLS and a replica, between which nothing is in the clear."""

    NAME = "shop"

    def __init__(self, stores):
        self.stores, self.children = stores, []
        self.first, self.second = stores.rediss_port, port_free()
        self.sentinels = [port_free() for _ in range(3)]

    def __enter__(self):
        with self.stack_redis() as first:
            first.config_set("tls-replication", "yes")
        conf = self.stores.stack.run_dir / "redis"
        folder = self.folder_make("replica")
        for name in ("redis.conf", "users.conf"):
            shutil.copy(conf / name, folder)
        self.spawn(folder, "redis.conf", self.second, "--replicaof", "127.0.0.1", self.first)
        for port in self.sentinels:
            folder = self.folder_make(f"sentinel-{port}")
            (folder / "sentinel.conf").write_text(
                f"sentinel monitor {self.NAME} 127.0.0.1 {self.first} 2\n"
                f"sentinel down-after-milliseconds {self.NAME} 3000\n"
            )
            self.spawn(folder, "sentinel.conf", port, "--sentinel")
        wait_until(lambda: all(self.knows_all(port) for port in self.sentinels))
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        with self.stack_redis() as first:
            first.slaveof()
            first.config_set("tls-replication", "no")

    def folder_make(self, name):
        folder = self.stores.folder / name
        folder.mkdir()
        return folder

    def spawn(self, folder, conf, port, *words):
        flags = (*self.stores.redis_flags(port).split(), "--tls-replication", "yes")
        words = (server_find(), conf, "--port", "0", *flags, *words)
        with open(folder / "log", "ab") as log:
            self.children.append(
                subprocess.Popen([*map(str, words)], cwd=folder, stdout=log, stderr=log)
            )

    def stack_redis(self):
        return redis.Redis.from_url(self.stores.stack.env["REDIS_URL"])

    def connect(self, port):
        authority = str(self.stores.authority.path)
        return redis.Redis(
            "localhost", port, ssl=True, ssl_ca_certs=authority, decode_responses=True
        )  # fmt: skip

    def knows_all(self, port):
        try:
            with self.connect(port) as sentinel:
                told = sentinel.sentinel_master(self.NAME)
        except redis.RedisError:
            return False
        return (told["num-other-sentinels"], told["num-slaves"]) == (2, 1)

    def failover(self):
        """As an operator does it."""
        with self.connect(self.sentinels[0]) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", self.NAME)

    def masters(self):
        """The ports that the Sentinels name."""
        named = set()
        for port in self.sentinels:
            with self.connect(port) as sentinel:
                named.add(int(sentinel.sentinel_get_master_addr_by_name(self.NAME)[1]))
        return named

    def settings(self, program):
        url = self.stores.stack.env_of(program)["REDIS_URL"]
        hosts = ",".join(f"localhost:{port}" for port in self.sentinels)
        url = re.sub(r"127\.0\.0\.1:\d+/", f"{hosts}/{self.NAME}/", url)
        return {
            "REDIS_URL": url.replace("redis:", "rediss+sentinel:"),
            "COUPON_REDIS_CA": self.stores.authority.path,
        }
