"""couponctl setup on a machine with Debian's services: see machine.py."""

import json
import os
import pty
import random
import re
import subprocess
from pathlib import Path

import pytest

from machine import ETC, FOLDERS, PREFIX, Machine
from seed import SEED
from skips import NO_MACHINE
from stack import Stack, wait_until

pytestmark = pytest.mark.skipif(NO_MACHINE, reason="no machine of namespaces can be made here")

NOTHING = "Everything is set up, and nothing was changed."
CONSOLE = "http://127.0.0.1:7490"
KEY = re.compile(r"cmq_\w{10}_[\w-]+")
LOGINS = ("gateway", "operator", "worker")
STOPPED = 7
# Ends the script before the BREAK_AT-th command of a step, as a power cut does.
BREAK_OFF = """
[[ $0 == */setup.sh && ${1:-} == "$BREAK_IN" ]] || return 0
break_off() {
    [[ " ${FUNCNAME[*]} " == *"_do "* || $BREAK_IN == remove && -n ${STEP:-} ]] || return 0
    [[ ${BROKEN_STEP:-} == "$STEP" ]] || BROKEN_STEP=$STEP BROKEN_N=0
    BROKEN_N=$((BROKEN_N + 1))
    [[ $BROKEN_N -lt $BREAK_AT ]] || kill -KILL $$
}
set -T
trap break_off DEBUG
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """With its services running, and couponmq installed; nothing is set up."""
    one = Machine(tmp_path_factory.mktemp("machine"), Stack("").build_dir)
    try:
        version = max(path.name for path in Path("/usr/lib/postgresql").iterdir())
        one.out("pg_createcluster", version, "main")
        one.out("systemctl", "start", "postgresql.service", "rabbitmq-server.service")
        yield one
    finally:
        one.close()


@pytest.fixture
def bare(machine):
    """The machine with nothing set up, before and after the test."""
    yield machine
    forget_receives(machine)
    done = setup_run(machine, "--remove")
    assert done.returncode == 0, done.stderr


def setup_run(machine, *words, **env):
    return machine.run("couponctl", "setup", *words, **env)


def secret(machine, name):
    return machine.out("cat", ETC / "secrets" / name).strip()


def redis_cli(machine, *words):
    url = secret(machine, "default-redis-url")
    password, port = re.match(r"redis://default:(\w+)@127.0.0.1:(\d+)/0", url).groups()
    return machine.run("redis-cli", "-p", port, *words, REDISCLI_AUTH=password).stdout


def forget_receives(machine):
    """As the sentence of a removal that is refused says."""
    machine.sql("postgres", "DROP DATABASE IF EXISTS couponmq WITH (FORCE)")
    if machine.run("test", "-e", ETC / "secrets/default-redis-url").returncode == 0:
        redis_cli(machine, "FLUSHALL")
    machine.run("rabbitmqctl", "-q", "delete_vhost", "couponmq")


def files_of(machine):
    """Every file that setup may write, with its owner, mode, time and text."""
    found = machine.out(
        "find", "/etc", "-type", "f", "!", "-name", "*.aof", "!", "-name", ".pwd.lock",
        "-printf", "%p %u:%g %m %T@ ", "-exec", "sha256sum", "{}", ";",
    )  # fmt: skip
    return found.splitlines()


def stores_of(machine):
    """What the stores keep, but for what programs that run write by themselves."""
    dump = machine.run_as("postgres", "pg_dumpall", "--globals-only").stdout
    tables = machine.sql(
        "couponmq",
        """SELECT format('SELECT %L, count(*), md5(string_agg(t::text, '','' ORDER BY t::text))'
            ' FROM %I t', relname, relname) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            AND relname NOT IN ('gateway', 'keeper', 'coupon_curve', 'coupon_refusal')
        ORDER BY relname \\gexec""",
    )
    definitions = json.loads(machine.out("rabbitmqctl", "-q", "export_definitions", "-"))
    names = ("users", "vhosts", "permissions")
    return [
        [line for line in dump.splitlines() if not line.startswith(("--", "\\"))],
        tables.splitlines(),
        [sorted(map(str, definitions[name])) for name in names],
        redis_cli(machine, "ACL", "LIST"),
        redis_cli(machine, "CONFIG", "GET", "*"),
    ]


def installed_check(machine):
    """Everything is there, and works."""
    for login in LOGINS:
        for store in ("redis", "rabbitmq", "postgresql"):
            name = ETC / "secrets" / f"{login}-{store}-url"
            assert machine.out("stat", "-c", "%a %U:%G", name) == "640 root:couponmq\n"
    assert machine.out("stat", "-c", "%a %U:%G", ETC / "secrets") == "750 root:couponmq\n"
    owner = machine.out("stat", "-c", "%a %U:%G", ETC / "secrets/owner-postgresql-url")
    assert owner == "600 root:root\n"
    assert machine.run_as("postgres", "ls", ETC / "secrets").returncode != 0

    durable = redis_cli(machine, "CONFIG", "GET", "append*") + redis_cli(
        machine, "CONFIG", "GET", "maxmemory-policy"
    )
    words = durable.split()
    for name, value in (("appendonly", "yes"), ("appendfsync", "always"),
                        ("maxmemory-policy", "noeviction")):  # fmt: skip
        assert words[words.index(name) + 1] == value
    assert machine.run("redis-cli", "-p", "6380", "PING").stdout.startswith("NOAUTH")

    ready = json.loads(machine.out("curl", "-s", "http://127.0.0.1:7480/readyz"))
    assert (ready["ready"], ready["degraded"], ready["warnings"]) == (True, [], [])
    for port in (7481, 7482):
        machine.out("curl", "-sf", f"http://127.0.0.1:{port}/readyz")
    # One coupon, issued and taken back, once.
    counts = "SELECT count(*), (SELECT count(*) FROM coupon_void) FROM coupon"
    assert machine.sql("couponmq", counts) == "1|1\n"
    assert machine.sql("couponmq", "SELECT status FROM coupon") == "closed\n"
    assert machine.sql("couponmq", "SELECT count(*) FROM user_coupon") == "0\n"


def key_works(machine, told):
    (key,) = KEY.findall(told)
    authorization = f"Authorization: Bearer {key}"
    campaigns = machine.out("curl", "-sf", "-H", authorization, f"{CONSOLE}/admin/v1/campaigns")
    assert "couponctl setup on machine" in campaigns


def test_it_makes_a_service_once(bare):
    """Also undoes it: what setup has not made is as before."""
    before = files_of(bare)
    done = setup_run(bare, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"Console: {CONSOLE}/" in done.stdout
    key_works(bare, done.stdout)
    installed_check(bare)

    files, stores = files_of(bare), stores_of(bare)
    calls = bare.out("cat", "/run/units/calls")
    again = setup_run(bare, "--yes")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines() == [NOTHING, f"Console: {CONSOLE}/"]
    assert files_of(bare) == files
    assert stores_of(bare) == stores
    asked = bare.out("cat", "/run/units/calls").removeprefix(calls).splitlines()
    assert asked and all(line.startswith("-q is-") for line in asked)

    removed = setup_run(bare, "--remove", "--yes")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    left = bare.sql("postgres", "SELECT rolname FROM pg_roles WHERE rolname LIKE 'couponmq%'")
    assert left == ""
    assert bare.sql("postgres", "SELECT 1 FROM pg_database WHERE datname = 'couponmq'") == ""
    assert bare.out("rabbitmqctl", "-s", "list_vhosts") == "/\n"
    assert "couponmq" not in bare.out("rabbitmqctl", "-s", "list_users")
    assert bare.run("ls", "/var/lib/redis/couponmq").returncode != 0
    # The user of the programs stays, as after a package is removed.
    accounts = re.compile(r"^/etc/(passwd|shadow|group|gshadow)-? ")
    left = [line for line in files_of(bare) if not accounts.match(line)]
    assert left == [line for line in before if not accounts.match(line)]

    nothing = setup_run(bare, "--remove")
    assert nothing.returncode == 0 and "has made nothing on this machine" in nothing.stdout


def terminal_answer(machine, answer, *words):
    """What setup says on a terminal where somebody answers so, and its exit status."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        machine.words("couponctl", "setup", *words), stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    os.write(ours, f"{answer}\n".encode())
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(ours)
    return said.decode(), process.wait(timeout=60)


def test_it_says_what_it_will_do_and_asks(bare):
    before = files_of(bare)
    said, status = terminal_answer(bare, "no")
    assert status == 1
    for words in ("redis-server@couponmq.service on 127.0.0.1:6380", "the database couponmq",
                  "the vhost couponmq", "an API key", "Nothing was changed yet.",
                  "Go on? (yes/no)", "nothing was changed: the answer was not yes"):  # fmt: skip
        assert words in said, said
    assert files_of(bare) == before
    assert bare.sql("postgres", "SELECT 1 FROM pg_roles WHERE rolname LIKE 'couponmq%'") == ""


def test_only_root_may(bare):
    done = bare.run_as("postgres", PREFIX / "bin/couponctl", "setup", "--yes")
    assert done.returncode == 1 and "setup must be run by root" in done.stderr
    asked = bare.run("couponctl", "--api", stdin='{"command":"setup"}')
    assert "setup runs another program: it has a command line only" in asked.stdout


def broken_off(machine, word):
    """Runs the script until it ends by itself, and breaks it off in every step before that: at the
    first command of the step, and at later ones. Returns what it said at last, and how often it
    was broken off."""
    rng = random.Random(f"{SEED} {word}")
    machine.out("tee", "/run/break_off", stdin=BREAK_OFF)
    script = PREFIX / "lib/couponmq/setup/setup.sh"
    env = {"COUPONCTL": PREFIX / "bin/couponctl", "BASH_ENV": "/run/break_off", "BREAK_IN": word}
    at, step, broken = 1, None, 0
    while True:
        done = machine.run(script, word, BREAK_AT=at, **env)
        if done.returncode == 0:
            return done.stdout, broken
        assert done.returncode in (-9, 137), done
        broken += 1
        assert broken < 1000
        last = done.stdout.splitlines()[-1:]
        further = at + (1 if os.environ.get("ALL") else rng.randint(1, at + 3))
        # A removal begins anew; of a setup each step that is done is left out.
        at, step = further if word == "remove" or last == step else 1, last


@pytest.mark.long
def test_a_run_that_is_broken_off_goes_on(bare):
    told, broken = broken_off(bare, "apply")
    assert broken > 20
    # The last run has printed a key, unless an earlier one has.
    wait_until(lambda: bare.run("curl", "-sf", "http://127.0.0.1:7480/readyz").returncode == 0)
    installed_check(bare)
    keys = bare.sql("couponmq", "SELECT count(*) FROM api_key WHERE revoked_at IS NULL")
    assert keys == "1\n"
    files, stores = files_of(bare), stores_of(bare)
    assert NOTHING in setup_run(bare).stdout
    assert (files_of(bare), stores_of(bare)) == (files, stores)

    _, broken = broken_off(bare, "remove")
    assert broken > 5
    assert "has made nothing on this machine" in setup_run(bare, "--remove").stdout
    assert bare.run("ls", ETC / "secrets").returncode != 0
    assert bare.sql("postgres", "SELECT 1 FROM pg_roles WHERE rolname LIKE 'couponmq%'") == ""


def test_receives_of_others_are_not_removed(bare):
    assert setup_run(bare, "--yes").returncode == 0
    operator = {
        f"{setting}_FILE": ETC / f"secrets/operator-{store}-url"
        for setting, store in (("REDIS_URL", "redis"), ("AMQP_URL", "rabbitmq"),
                               ("DATABASE_URL", "postgresql"))
    }  # fmt: skip
    coupon = bare.out("couponctl", "create", "--name", "Noon", "--total", "2", **operator).strip()
    bare.out("couponctl", "publish", coupon, "--wait-s", "60", **operator)
    bare.out("couponctl", "issue", "--coupon", coupon, "--user", "ann", "--ack", "issued")
    files = files_of(bare)
    refused = setup_run(bare, "--remove", "--yes")
    assert refused.returncode == 1
    assert "nothing was removed: PostgreSQL has 1 receives" in refused.stderr
    assert files_of(bare) == files
    assert bare.run("curl", "-sf", "http://127.0.0.1:7480/readyz").returncode == 0

    # Redis alone knows of one that is not settled.
    bare.sql("couponmq", "TRUNCATE user_coupon, receive_rejected")
    refused = setup_run(bare, "--remove", "--yes")
    assert refused.returncode == 1
    assert "nothing was removed: Redis has receives" in refused.stderr

    forget_receives(bare)
    removed = setup_run(bare, "--remove", "--yes")
    assert removed.returncode == 0, removed.stderr


def test_what_an_operator_has_set_stays(bare):
    bare.out("install", "-d", ETC)
    own = "# ours\nCOUPON_PROCESSES=2\nCOUPON_ADMIN_METRICS=127.0.0.1:7480\n"
    bare.out("tee", ETC / "admin.conf", stdin=own)
    assert setup_run(bare, "--yes").returncode == 0
    text = bare.out("cat", ETC / "admin.conf")
    assert text.startswith(own) and text.count("COUPON_ADMIN_METRICS=") == 1
    assert "\nDATABASE_URL_FILE=/etc/couponmq/secrets/operator-postgresql-url\n" in text
    # An upgrade brings another right in Redis: the users are written again, Redis keeps running.
    pid = bare.out("cat", "/run/units/redis-server@couponmq.service.pid")
    bare.out("sed", "-i", "s/ +hlen / +hlen +hkeys /", PREFIX / "lib/couponmq/redis-users.conf")
    assert setup_run(bare, "--yes").returncode == 0
    assert "+hkeys" in redis_cli(bare, "ACL", "GETUSER", "couponmq_gateway")
    assert bare.out("cat", "/run/units/redis-server@couponmq.service.pid") == pid
    bare.out("sed", "-i", "s/ +hlen +hkeys / +hlen /", PREFIX / "lib/couponmq/redis-users.conf")
    assert setup_run(bare, "--remove", "--yes").returncode == 0
    assert bare.out("cat", ETC / "admin.conf").rstrip("\n") + "\n" == own
    bare.out("rm", ETC / "admin.conf")


def test_stores_that_there_are(bare):
    """By their URLs: they get tables, and keep them when setup is undone."""
    bare.out("systemctl", "start", "redis-server.service")
    bare.sql(
        "postgres",
        """CREATE ROLE shop_owner LOGIN CREATEROLE PASSWORD 'owner';
        GRANT pg_monitor, pg_signal_backend TO shop_owner;
        GRANT pg_read_all_stats TO shop_owner WITH ADMIN OPTION;
        CREATE ROLE shop LOGIN PASSWORD 'shop'; CREATE DATABASE shop OWNER shop_owner""",
    )
    urls = {
        "REDIS_URL": "redis://localhost:6379/0",
        "AMQP_URL": "amqp://guest:guest@localhost:5672/%2f",
        "DATABASE_URL": "postgresql://shop:shop@127.0.0.1/shop",
        "DATABASE_ADMIN_URL": "postgresql://shop_owner:owner@127.0.0.1/shop",
    }
    done = setup_run(bare, "--yes", **urls)
    assert done.returncode == STOPPED and "GRANT couponmq_app TO" in done.stderr
    bare.sql("shop", "GRANT couponmq_app TO shop")
    done = setup_run(bare, "--yes", **urls)
    assert done.returncode == 0, done.stderr
    key_works(bare, done.stdout)
    assert NOTHING in setup_run(bare, "--yes").stdout
    assert NOTHING in setup_run(bare, "--yes", **urls).stdout
    other = setup_run(bare, "--yes", REDIS_URL="redis://localhost:6400/0")
    assert other.returncode == 1 and "REDIS_URL names another store" in other.stderr
    assert "couponmq" not in bare.out("rabbitmqctl", "-s", "list_vhosts")

    removed = setup_run(bare, "--remove", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert "Stores whose URLs were given keep what they have." in removed.stdout
    assert bare.sql("shop", "SELECT count(*) FROM coupon") == "1\n"
    left = bare.out("find", ETC, "-type", "f").splitlines()
    assert left == [str(ETC / "secrets/code-keys")]
    bare.out("rm", "-r", ETC / "secrets")


def test_the_folders_are_those_of_debian():
    assert all(Path(folder).is_dir() for folder in FOLDERS)
