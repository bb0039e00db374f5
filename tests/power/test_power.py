"""Power cuts: what a store or couponctl acknowledged before is on the disk afterwards. With the
settings that are wrong it is not, and a control that finds no loss fails. A run has two in turn;
ALL=1 has all."""

import contextlib
import itertools
import os
import random
import subprocess
import threading

import pika
import psycopg
import pytest
import redis

from codes import Codes, column
from disk import KEEP, Disk, Machine, NoDisk, power_cut, told
from seed import SEED
from selection import of_turn
from stack import PORT_BASE, RUN_DIR, Stack, port_base_free, wait_until

CHOSEN_N = 2
FILES_MIB = 128
REFUSED = 6  # the exit status of `couponctl distribute` when some users were refused
QUEUE = {"queue": "power", "durable": True, "arguments": {"x-queue-type": "quorum"}}


class Acknowledged:
    """Counts what a writer in a thread of its own was told is done, until its server is gone:
    write(n) returns when number n is acknowledged."""

    def __init__(self, write, errors):
        self.write, self.errors = write, errors
        self.count = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with contextlib.suppress(*self.errors):
            while True:
                self.write(self.count)
                self.count += 1

    def wait(self, count):
        wait_until(lambda: self.count >= count)

    def ended(self):
        """All that were acknowledged."""
        self.thread.join()
        return set(range(self.count))


class Store:
    """One service of a stack on a disk that can be cut."""

    name = ""
    errors = ()

    def __init__(self, stack, setting, is_synced=False):
        """is_synced: each write, before it is acknowledged."""
        self.stack = stack
        self.setting, self.is_synced = setting, is_synced
        stack.start(self.name)
        self.machine = Machine(stack, self.name)

    def cut(self, chance):
        """Writes, and cuts while it writes. Returns the numbers that were acknowledged, and those
        that are there afterwards: none if it does not start from what is left."""
        writer = Acknowledged(self.writer(), self.errors)
        writer.wait(chance.randint(200, 400))
        self.settle(writer)
        writer.wait(writer.count + chance.randint(100, 200))
        at = chance.randint(1, 30) if self.is_synced else 0
        print(*power_cut([self.machine], chance, at))
        return writer.ended(), self.read()

    def settle(self, writer):
        """Until what was written so far has to be there, if that takes time."""

    def read(self):
        try:
            self.stack.start(self.name)
        except AssertionError as why:
            print(why)
            return set()
        return self.numbers()

    def close(self):
        self.machine.close(keeps=False)


class Redis(Store):
    name, errors = "redis", (redis.RedisError,)

    def connect(self):
        return redis.Redis.from_url(self.stack.env["REDIS_URL"], decode_responses=True)

    def writer(self):
        cache = self.connect()
        cache.config_set("appendfsync", self.setting)
        return lambda number: cache.rpush("numbers", number)

    def settle(self, writer):
        """With `everysec`: the file was synced after these. Redis begins that in a second that is
        later than that of the last sync."""
        self.synced = writer.count
        if self.setting == "everysec":
            with self.connect() as cache:
                begun = cache.time()[0]
                wait_until(lambda: cache.time()[0] >= begun + 3)
                wait_until(lambda: cache.info("persistence")["aof_pending_bio_fsync"] == 0)

    def numbers(self):
        with self.connect() as cache:
            return set(map(int, cache.lrange("numbers", 0, -1)))


class PostgreSQL(Store):
    name, errors = "postgres", (psycopg.OperationalError,)

    def connect(self):
        settings = self.stack.kept()
        return psycopg.connect(
            host="127.0.0.1", port=int(settings["STACK_PORT_BASE"]) + 32, user="postgres",
            dbname="postgres", password=settings["STACK_PG_PASSWORD"], autocommit=True,
        )  # fmt: skip

    def writer(self):
        pg = self.connect()
        pg.execute("CREATE TABLE number (number integer)")
        pg.execute("CHECKPOINT")
        pg.execute(f"ALTER SYSTEM SET fsync = {self.setting}")
        pg.execute("SELECT pg_reload_conf()")
        return lambda number: pg.execute("INSERT INTO number VALUES (%s)", (number,))

    def numbers(self):
        with self.connect() as pg:
            try:
                return {number for (number,) in pg.execute("SELECT number FROM number")}
            except psycopg.Error as why:
                print(why)
                return set()


class RabbitMQ(Store):
    name, errors = "rabbitmq", (pika.exceptions.AMQPError, OSError)

    def connect(self):
        return pika.BlockingConnection(pika.URLParameters(self.stack.env["AMQP_URL"]))

    def writer(self):
        channel = self.connect().channel()
        channel.queue_declare(**QUEUE)
        channel.confirm_delivery()
        self.stack.queues_register()
        kept = pika.BasicProperties(delivery_mode=2)
        return lambda number: channel.basic_publish("", "power", str(number).encode(), kept, True)

    def numbers(self):
        with self.connect() as connection:
            channel = connection.channel()
            wait_until(lambda: channel.queue_declare(**QUEUE).method.message_count)
            return {int(body) for body in iter(lambda: channel.basic_get("power")[2], None)}


@pytest.fixture
def store_make():
    """store_make(Kind, setting): on a disk of its own."""
    stack = Stack(f"{RUN_DIR}-power", port_base_free(PORT_BASE + 200))
    with contextlib.ExitStack() as made:
        made.callback(stack.remove)

        def make(kind, *setting):
            try:
                store = kind(make if kind is Files else stack, *setting)
            except NoDisk as why:
                pytest.skip(f"no disk for power cuts: {why}")
            made.callback(store.close)
            return store

        make.stack = stack
        yield make


def chance_of(name):
    print(f"again: ALL=1 SEED={SEED} make test TESTS=tests/power/test_power.py")
    return random.Random(f"{SEED} {name}")


def nothing_lost(store_make, kind, setting):
    there, read = store_make(kind, setting, True).cut(chance_of(f"{kind.name} {setting}"))
    assert there <= read, f"lost: {sorted(there - read)}"


def something_lost(store_make, kind, setting):
    there, read = store_make(kind, setting).cut(chance_of(f"{kind.name} {setting}"))
    assert there - read, "the power cut has lost nothing: this control is worth nothing"


def redis_everysec(store_make):
    store = store_make(Redis, "everysec")
    there, read = store.cut(chance_of("redis"))
    assert there - read, "the power cut has lost nothing: this control is worth nothing"
    assert set(range(store.synced)) <= read, f"lost: {sorted(set(range(store.synced)) - read)}"


class Files:
    """A file that couponctl makes, on a disk whose power is cut at each of its writes and
    flushes."""

    def __init__(self, make):
        make.stack.services()
        self.folder = make.stack.run_dir / "files"
        self.folder.mkdir()
        self.disk = Disk(make.stack.run_dir, self.folder, FILES_MIB)

    def close(self):
        self.disk.close()

    def cuts(self, chance, command, done=0):
        """For each of them: command(), which returns a process, is cut there. Yields whether it
        had ended with the status `done`, when the disk is back. The last time there was no cut."""
        for number in itertools.count(1):
            told("sync", "--file-system", self.folder)
            self.disk.cut_at(number)
            process = command()
            wait_until(lambda: process.poll() is not None or self.disk.is_cut())  # noqa: B023
            is_last = process.poll() is not None
            self.disk.cut()
            process.kill()
            self.disk.fail()
            process.wait()
            self.disk.back(chance.choice(KEEP), chance.randrange(1 << 30))
            yield process.returncode == done
            if is_last:
                break
        assert process.returncode == done and number > 1, "the command did nothing"
        print(f"{number - 1} writes and flushes")


def files_of_export(make):
    """The whole old file, or the whole new one, which is there once the command has ended."""
    files, stack = make(Files), make.stack
    stack.start("gateway", "worker-1")
    coupon = stack.coupon_make(1000)
    path, users = files.folder / "export.csv", iter(range(1000))
    ctl = [stack.build_dir / "couponctl", "export", coupon, "--out", path]
    env = {**os.environ, **stack.env_of("operator")}
    old = None

    def begin():
        nonlocal old
        old = path.read_bytes() if path.exists() else None
        with stack.client() as client:
            wait_until(lambda: client.issue(coupon, next(users), ack="issued")["code"] == 0)
        return subprocess.Popen(list(map(str, ctl)), env=env, stdout=subprocess.DEVNULL)

    for has_ended in files.cuts(chance_of("export"), begin):
        new = path.read_bytes() if path.exists() else None
        if has_ended:
            assert new != old
        if new != old:
            subprocess.run(
                [*map(str, ctl[:-1]), files.folder.with_name("whole.csv")], env=env, check=True
            )
            assert new == files.folder.with_name("whole.csv").read_bytes()


def files_of_keys(make):
    """Key of codes: the file has the keys of before, or one more."""
    files, stack = make(Files), make.stack
    path = files.folder / "keys"
    words = [stack.build_dir / "couponctl", "codes", "key", "--code-keys", path]
    env = {**os.environ, **stack.env_of("operator")}
    old = ""

    def begin():
        nonlocal old
        old = path.read_text() if path.exists() else ""
        return subprocess.Popen(list(map(str, words)), env=env, stdout=subprocess.DEVNULL)

    for has_ended in files.cuts(chance_of("keys"), begin):
        new = path.read_text() if path.exists() else ""
        assert new.startswith(old) and new[len(old) :].count("\n") <= (1 if old else 2), (old, new)
        assert not new or new.endswith("\n")
        assert new != old or not has_ended


def files_of_refused(make):
    """The users that `couponctl distribute` was refused for: those of the last run, or of the one
    before."""
    files, stack = make(Files), make.stack
    stack.start("gateway", "worker-1")
    coupon = stack.coupon_make(1, publish=True)
    path, users = files.folder / "refused.csv", files.folder.with_name("users")
    words = ["distribute", coupon, "--users", users, "--refused", path]
    env = {**os.environ, **stack.env_of("operator")}
    asked, known = 0, None

    def begin():
        nonlocal asked
        asked += 1
        users.write_text("".join(f"{asked}-{user}\n" for user in range(asked)))
        return subprocess.Popen(
            list(map(str, [stack.build_dir / "couponctl", *words])), env=env,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

    with stack.client() as client:
        wait_until(lambda: client.issue(coupon, "first", ack="issued")["code"] == 0)
    for has_ended in files.cuts(chance_of("refused"), begin, REFUSED):
        lines = path.read_text().splitlines() if path.exists() else []
        run = int(lines[1].partition("-")[0]) if lines else None
        assert len(lines) == (run + 1 if run else 0), lines
        assert run in ((asked,) if has_ended else (asked, known)), (run, asked, known)
        known = run


def files_of_codes(make):
    """Codes: no file or all of them, and the command that is run again has the same set."""
    files, stack = make(Files), make.stack
    codes = Codes(stack, files.folder.with_name("codes-keys"))
    codes("key")
    coupon = stack.coupon_make(1000, publish=False)
    count, sets = 100, 0
    path = files.folder / "codes.csv"
    words = ("generate", coupon, "--count", count, "--out", path)
    for has_ended in files.cuts(chance_of("codes"), lambda: codes.start(*words)):
        assert path.exists() or not has_ended
        if not path.exists() or path.with_name("codes.csv.request").exists():
            codes(*words)
        made = column(path)
        assert len(set(made)) == count
        for code in (made[0], made[-1]):
            assert codes.show(code)["code"] == code
        sets += 1
        told = codes.stats(coupon)["sets"]
        assert len(told) == sets and all(one["complete"] for one in told), told
        path.unlink()


CUTS = {
    "files_of_export": files_of_export,
    "files_of_keys": files_of_keys,
    "files_of_refused": files_of_refused,
    "files_of_codes": files_of_codes,
    "redis_always": lambda make: nothing_lost(make, Redis, "always"),
    "redis_no": lambda make: something_lost(make, Redis, "no"),
    "redis_everysec": redis_everysec,
    "postgresql_fsync": lambda make: nothing_lost(make, PostgreSQL, "on"),
    "postgresql_no_fsync": lambda make: something_lost(make, PostgreSQL, "off"),
    "rabbitmq_quorum": lambda make: nothing_lost(make, RabbitMQ, "quorum"),
}


@pytest.mark.parametrize("name", of_turn(sorted(CUTS), CHOSEN_N))
def test_power_cut(store_make, name):
    CUTS[name](store_make)
