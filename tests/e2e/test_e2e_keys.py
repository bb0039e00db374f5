"""couponctl key: API keys in both stores, whatever of them is away, lost or put back."""

import hashlib
import json
import os
import re
import signal
import subprocess
import time

import psycopg
import pytest

from installation import another_installation
from process import metrics_read
from stack import wait_until, with_faults

KEYS, VERSION = "couponmq:keys", "version"
TEXT = re.compile(r"cmq_([0-9a-hjkmnp-tv-z]{10})_[A-Za-z0-9_-]{43}")
LATER = "2100-01-01T00:00:00Z"


class Keys:
    def __init__(self, stack, redis, pg):
        self.stack, self.redis, self.pg = stack, redis, pg

    def run(self, *arguments):
        return self.stack.ctl_run("key", *arguments)

    def create(self, *options, name="shop", role="issue"):
        """The text, and the id in it."""
        return self.made("create", "--name", name, "--role", role, *options)

    def made(self, *arguments):
        told = self.run(*arguments)
        assert told.returncode == 0 and told.stderr == "", told
        return told.stdout[:-1], TEXT.fullmatch(told.stdout[:-1])[1]

    def shown(self, key):
        return json.loads(self.stack.ctl("key", "show", key, "--json"))

    def own(self):
        """What PostgreSQL has, by id; and its number."""
        rows = self.pg.execute("SELECT record FROM api_key_records(0, 1000000)").fetchall()
        (number,) = self.pg.execute("SELECT num FROM api_key_version").fetchone()
        return {(one := json.loads(text))["id"]: one for (text,) in rows}, number

    def copied(self):
        """The records in Redis, and their number."""
        there = self.redis.hgetall(KEYS)
        number = int(there.pop(VERSION, 0))
        return {key: json.loads(text) for key, text in there.items()}, number

    def agree(self):
        return self.own() == self.copied()

    def metric(self, name):
        return metrics_read(self.stack.worker_http(1, "/metrics"))[f"couponmq_keeper_{name}"]

    def backup(self):
        rows = self.pg.execute("SELECT * FROM api_key").fetchall()
        (number,) = self.pg.execute("SELECT num FROM api_key_version").fetchone()
        return rows, number

    def put_back(self, backup):
        """As of an earlier moment, without the changes of keys since."""
        rows, number = backup
        with self.pg.transaction():
            self.pg.execute("DELETE FROM api_key")
            for row in rows:
                values = ", ".join(["%s"] * len(row))
                self.pg.execute(f"INSERT INTO api_key VALUES ({values})", row)
            self.pg.execute("UPDATE api_key_version SET num = %s", (number,))


@pytest.fixture
def keys(rough, rough_redis, rough_pg):
    """Without any key that another test left, in one of the stores or in both."""
    made = Keys(rough, rough_redis, rough_pg)
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as pg:
        pg.execute("DELETE FROM api_key")
    rough_redis.delete(KEYS)

    def is_ready():
        if made.copied()[0]:  # the keeper was copying them when they were deleted
            rough_redis.delete(KEYS)
        return made.metric("elected") == 1 and made.agree()

    wait_until(is_ready)
    return made


def test_create(keys):
    before = int(time.time() * 1000)
    text, key = keys.create(
        "--coupons",
        "1002,1001",
        "--expires",
        LATER,
        "--rate",
        500,
        "--by",
        "ann",
        role="read,issue",
    )
    assert keys.agree()
    record = keys.copied()[0][key]
    version = record["version"]
    assert record == {
        "id": key,
        "name": "shop",
        "version": version,
        "roles": ["issue", "read"],
        "coupons": ["1001", "1002"],
        "budgets": None,
        "expires_ms": 4102444800000,
        "rate": 500,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "previous": None,
        "revoked": False,
    }
    shown = keys.shown(key)
    assert (shown["key"], shown["state"], shown["by"]) == (key, "active", "ann")
    assert (shown["created_by"], shown["last_used_at"]) == ("ann", None)
    assert shown["coupons"] == ["1001", "1002"] and shown["rate"] == 500
    assert shown["created_at"] >= time.strftime("%Y-%m-%d", time.gmtime(before / 1000))
    assert text not in keys.stack.ctl("key", "show", key) + keys.stack.ctl("key", "list")


def test_list_and_show(keys):
    first, second = keys.create()[1], keys.create("--coupons", 7, name="till", role="monitor")[1]
    keys.run("revoke", first)
    rows = [json.loads(line) for line in keys.stack.ctl("key", "list", "--json").splitlines()]
    assert [(row["key"], row["state"]) for row in rows] == [(second, "active"), (first, "revoked")]
    lines = keys.stack.ctl("key", "list").splitlines()
    assert lines[1].split() == [second, "active", "monitor", "never", "-", "7", "till"]
    assert lines[2].split() == [first, "revoked", "issue", "never", "-", "every", "shop"]
    text = keys.stack.ctl("key", "show", second)
    assert "key " + second in text and "no limit" in text and "never" in text


@pytest.mark.parametrize(
    "options, why",
    [
        ((), "--name"),
        (("--name", "shop"), "--role"),
        (("--name", "", "--role", "issue"), "--name"),
        (("--name", "a b", "--role", "issue"), "--name"),
        (("--name", "x" * 65, "--role", "issue"), "--name"),
        (("--name", "shop", "--role", "claim"), "--role"),
        (("--name", "shop", "--role", ""), "--role"),
        (("--name", "shop", "--role", "issue,issue"), "--role"),
        (("--name", "shop", "--role", "issue", "--coupons", ""), "--coupons"),
        (("--name", "shop", "--role", "issue", "--coupons", "0"), "--coupons"),
        (("--name", "shop", "--role", "issue", "--coupons", "1,,2"), "--coupons"),
        (("--name", "shop", "--role", "issue", "--coupons", "1," * 256 + "1"), "--coupons"),
        (("--name", "shop", "--role", "issue", "--expires", "tomorrow"), "--expires"),
        (("--name", "shop", "--role", "issue", "--expires", "2020-01-01T00:00:00Z"), "--expires"),
        (("--name", "shop", "--role", "issue", "--rate", "0"), "--rate"),
        (("--name", "shop", "--role", "issue", "--rate", "1000001"), "--rate"),
    ],
)
def test_what_create_refuses(keys, options, why):
    told = keys.run("create", *options)
    assert (told.returncode, told.stdout) == (2, "") and why in told.stderr
    assert keys.own()[0] == {}


def test_a_text_that_is_given_as_an_id_is_not_printed(keys):
    text, _ = keys.create()
    for command in ("show", "rotate", "revoke"):
        told = keys.run(command, text)
        assert told.returncode == 2 and "ID" in told.stderr
        assert text[-43:] not in told.stderr + told.stdout


def test_standard_output_that_is_full(keys):
    """The change is there, and the command says what to do."""
    command = [keys.stack.build_dir / "couponctl", "key", "create", "--name", "x", "--role", "read"]
    env = {**os.environ, **keys.stack.env_of("operator")}
    with open("/dev/full", "w", encoding="ascii") as full:
        told = subprocess.run(
            command,
            env=env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    [key] = keys.own()[0]
    assert told.returncode == 12 and key in told.stderr and "revoke" in told.stderr


def test_rotate(keys):
    first, key = keys.create()
    second, same = keys.made("rotate", key, "--overlap", "1h")
    assert same == key and second != first and keys.agree()
    record = keys.copied()[0][key]
    assert record["sha256"] == hashlib.sha256(second.encode()).hexdigest()
    assert record["previous"]["sha256"] == hashlib.sha256(first.encode()).hexdigest()
    assert abs(record["previous"]["until_ms"] - time.time() * 1000 - 3600000) < 60000
    assert keys.shown(key)["previous_until"]
    keys.made("rotate", key)
    record = keys.copied()[0][key]
    assert record["previous"]["sha256"] == hashlib.sha256(second.encode()).hexdigest()
    assert abs(record["previous"]["until_ms"] - time.time() * 1000 - 86400000) < 60000
    keys.made("rotate", key, "--overlap", "0s")
    assert keys.copied()[0][key]["previous"] is None
    assert keys.run("rotate", key, "--overlap", "31d").returncode == 2


def test_revoke(keys):
    _, key = keys.create("--by", "ann")
    told = keys.run("revoke", key, "--by", "bob")
    assert (told.returncode, told.stdout, told.stderr) == (0, f"key {key} is revoked\n", "")
    assert keys.agree() and keys.copied()[0][key]["revoked"] is True
    assert (keys.shown(key)["created_by"], keys.shown(key)["by"]) == ("ann", "bob")
    record = keys.own()[0][key]
    assert keys.run("revoke", key).returncode == 0
    assert keys.own()[0][key] == record
    told = keys.run("rotate", key)
    assert (told.returncode, told.stdout) == (1, "") and "revoked" in told.stderr


def test_a_key_that_is_not_there(keys):
    for command in ("show", "rotate", "revoke"):
        told = keys.run(command, "0000000000")
        assert (told.returncode, told.stdout) == (9, "")
        assert "there is no key 0000000000" in told.stderr


def test_redis_away(keys):
    """A revocation does not wait for it, and the keeper tells it later."""
    _, key = keys.create()
    keys.stack.stop("redis")
    told = keys.run("revoke", key)
    assert told.returncode == 3 and "keeper" in told.stderr
    assert keys.own()[0][key]["revoked"] is True
    for command in (("create", "--name", "x", "--role", "read"), ("rotate", key)):
        told = keys.run(*command)
        assert (told.returncode, told.stdout) == (10, "") and "Redis" in told.stderr
    assert len(keys.own()[0]) == 1
    told = keys.run("revoke", "0000000000")
    assert told.returncode == 10 and "Redis cannot be read" in told.stderr
    keys.stack.start("redis")
    wait_until(keys.agree)
    assert keys.copied()[0][key]["revoked"] is True


def test_postgresql_away(keys):
    _, key = keys.create()
    keys.stack.stop("postgres")
    for command in (("create", "--name", "x", "--role", "read"), ("rotate", key), ("revoke", key)):
        told = keys.run(*command)
        assert (told.returncode, told.stdout) == (10, "") and "DATABASE_URL" in told.stderr
    assert keys.copied()[0][key]["revoked"] is False
    keys.stack.start("postgres")


def test_a_change_that_its_command_did_not_tell_redis(keys):
    """It was killed after COMMIT."""
    _, key = keys.create()
    copied = keys.metric("keys_copied_total")
    keys.pg.execute("SELECT api_key_revoke(%s)", (key,))
    wait_until(keys.agree)
    assert keys.copied()[0][key]["revoked"] is True
    assert keys.metric("keys_copied_total") == copied + 1


def killed(keys, point, *command):
    """Returns what it has printed."""
    told = subprocess.run(
        [with_faults(keys.stack, "couponctl"), "key", *command],
        env={
            **os.environ,
            **keys.stack.env_of("operator"),
            "COUPON_FAULT": f"{point}:1:kill",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == -signal.SIGKILL
    return told.stdout


def test_killed_between_the_stores(keys):
    """PostgreSQL has the change, and the keeper tells Redis; a secret is printed or is not."""
    create = ("create", "--name", "shop", "--role", "read")
    for point, is_printed in (("key_before_print", False), ("key_before_redis", True)):
        before = keys.own()[0]
        assert bool(TEXT.fullmatch(killed(keys, point, *create)[:-1])) == is_printed
        (key,) = keys.own()[0].keys() - before.keys()
        wait_until(keys.agree)
        text = killed(keys, point, "rotate", key, "--overlap", "0s")[:-1]
        wait_until(keys.agree)
        record = keys.copied()[0][key]
        assert record["version"] == keys.own()[1] and bool(text) == is_printed
        if is_printed:
            assert record["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    killed(keys, "key_before_redis", "revoke", key)
    assert keys.own()[0][key]["revoked"] is True
    wait_until(keys.agree)


def test_redis_has_lost_all_keys(keys):
    """In several pages."""
    made = keys.create()[1]
    keys.pg.execute(
        "SELECT api_key_create(lpad(n::text, 10, '0'), 'x', '{read}', NULL, NULL, NULL, NULL,"
        " decode(repeat('ab', 32), 'hex')) FROM generate_series(1, 250) AS n"
    )
    wait_until(keys.agree)
    keys.redis.delete(KEYS)
    wait_until(keys.agree)
    assert len(keys.copied()[0]) == 251 and made in keys.copied()[0]
    # A command fills it, too.
    keys.redis.delete(KEYS)
    keys.create()
    wait_until(keys.agree)


def test_postgresql_put_back(keys):
    """The keeper leaves Redis, create and rotate are refused, and recover brings all back."""
    rotated, revoked, kept = (keys.create()[1] for _ in range(3))
    backup = keys.backup()
    _, created = keys.create(role="read")
    keys.made("rotate", rotated)
    assert keys.run("revoke", revoked).returncode == 0
    there = keys.copied()
    keys.put_back(backup)
    wait_until(lambda: keys.metric("keys_ahead") == 1)
    assert keys.copied() == there
    assert keys.stack.log_has("worker-1", "keys_ahead")
    for command in (("create", "--name", "x", "--role", "read"), ("rotate", kept)):
        told = keys.run(*command)
        assert (told.returncode, told.stdout) == (10, "")
        assert "couponctl recover" in told.stderr
    told = json.loads(keys.stack.ctl_run("audit", "--all", "--json").stdout)
    assert told["keys_behind"] == there[1] - backup[1] and not told["passed"]

    before = keys.own()
    lines = keys.stack.ctl("recover", "--all", "--dry-run", "--json").splitlines()
    named = [json.loads(line) for line in lines]
    assert {(one["what"], one["key"]) for one in named[:-1]} == {
        ("created", created), ("changed", rotated), ("revoked", revoked)
    }  # fmt: skip
    assert keys.own() == before and keys.copied() == there
    assert json.loads(keys.stack.ctl("recover", "--all", "--json").splitlines()[-1]) == {
        **named[-1], "dry_run": False
    }  # fmt: skip
    assert keys.own()[1] > there[1]
    wait_until(lambda: keys.agree() and keys.metric("keys_ahead") == 0)
    for key, record in keys.copied()[0].items():
        assert {**record, "version": 0} == {**there[0][key], "version": 0}
    assert "nothing to recover" in keys.stack.ctl("recover", "--all")
    assert json.loads(keys.stack.ctl_run("audit", "--all", "--json").stdout)["keys_behind"] == 0
    keys.create()


def test_postgresql_put_back_revives_no_revoked_key(keys):
    _, key = keys.create()
    backup = keys.backup()
    keys.run("revoke", key)
    keys.put_back(backup)
    assert keys.own()[0][key]["revoked"] is False
    wait_until(lambda: keys.metric("keys_ahead") == 1)
    assert keys.copied()[0][key]["revoked"] is True
    keys.stack.ctl("recover", "--accept-loss", "--yes")
    assert keys.own()[0][key]["revoked"] is True
    wait_until(keys.agree)


def test_revoke_while_postgresql_is_behind(keys):
    """Also a key that only Redis has; the changes that were lost do not stay hidden by it."""
    old = keys.create()[1]
    backup = keys.backup()
    new, other = keys.create()[1], keys.create()[1]
    keys.put_back(backup)
    told = keys.run("revoke", new)
    assert told.returncode == 0 and "couponctl recover" in told.stderr
    keys.put_back(backup)
    assert keys.run("revoke", old).returncode == 0
    wait_until(keys.agree)
    records = keys.own()[0]
    assert records.keys() == {old, new, other}
    assert [records[key]["revoked"] for key in (old, new, other)] == [True, True, False]


def test_revoke_while_postgresql_is_behind_and_redis_away(keys):
    """Redis knows the number from before, as that of another change."""
    old = keys.create()[1]
    backup = keys.backup()
    new = keys.create()[1]
    keys.put_back(backup)
    keys.stack.stop("redis")
    assert keys.run("revoke", old).returncode == 3
    keys.stack.start("redis")
    wait_until(lambda: keys.metric("redis_up") == 1)
    assert keys.copied()[0][old]["revoked"] is False
    keys.stack.ctl("recover", "--all")
    wait_until(keys.agree)
    assert [keys.own()[0][key]["revoked"] for key in (old, new)] == [True, False]


def test_records_that_nobody_can_read(keys):
    """They stop neither the others nor a command."""
    key = keys.create()[1]
    junk = {"x\n": "{}", "0000000000": "{", "0000000001": "\x00", "0000000002": "\xff"}
    keys.redis.hset(KEYS, mapping=junk)
    told = keys.stack.ctl_run("recover", "--all", "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert told.returncode == 0 and lines[-1]["unreadable"] == 4
    assert {one["key"] for one in lines[:-1]} == {"?", "0000000000", "0000000001", "0000000002"}
    assert keys.run("revoke", key).returncode == 0
    assert keys.own()[0].keys() == {key}


def test_redis_of_another_installation(keys):
    """Nothing is written there, nor here."""
    _, key = keys.create()
    with another_installation(keys.stack) as other:
        before, there = other.rows(), keys.redis.hgetall(KEYS)
        for command in (
            ("create", "--name", "x", "--role", "read"), ("rotate", key), ("revoke", key)
        ):  # fmt: skip
            told = other.ctl("key", *command)
            assert (told.returncode, told.stdout) == (1, "")
            assert "couponctl installation" in told.stderr
        assert (other.rows(), keys.redis.hgetall(KEYS)) == (before, there)
