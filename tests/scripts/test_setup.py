"""couponctl setup on a machine with Debian's services: see machine.py."""

import json
import os
import pty
import random
import re
import subprocess
from pathlib import Path

import pytest

from machine import ETC, FOLDERS, PREFIX, UNITS, Machine
from seed import SEED
from skips import NO_MACHINE
from stack import ROOT, Stack, wait_until

pytestmark = pytest.mark.skipif(NO_MACHINE, reason="no machine of namespaces can be made here")

NOTHING = "Everything is set up, and nothing was changed."
CONSOLE = "http://127.0.0.1:7490"
KEY = re.compile(r"cmq_\w{10}_[\w-]+")
LOGINS = ("gateway", "operator", "worker")
STOPPED = 7
KILLED = (-9, 137)
# Breaks it off at each place: some hundred. Else at some, which the seed chooses.
EACH = bool(os.environ.get("ALL")) and "SELECTION" not in os.environ
# Kills the script before a command that matches BREAK_ONLY, as a power cut would: at each place of
# which /run/broken does not have the first occurrences, or at one of BREAK_SHARE of them. Commands
# that only look, or print, change nothing: there it would be the same as before the next one.
BREAK_OFF = r"""
[[ $0 == */setup.sh && ${1:-} == "$BREAK_IN" ]] || return 0
declare -A BREAK_SEEN=() BREAK_N=()
while read -r BREAK_PLACE; do
    BREAK_SEEN[$BREAK_PLACE]=1
done </run/broken
RANDOM=$BREAK_SEED
BREAK_NOT='^(\[\[|\(\(|(local|echo|return|break|for|case|read|cat|sed|grep|cut|tr|head|awk|od) )'
break_off() {
    local place="${FUNCNAME[*]} ${BASH_LINENO[*]}" n
    [[ " ${FUNCNAME[*]} " == *"_do "* || $BREAK_IN == remove && -n ${STEP:-} ]] || return 0
    [[ $BASH_COMMAND =~ $BREAK_ONLY && ! "$BASH_COMMAND " =~ $BREAK_NOT ]] || return 0
    n=$((${BREAK_N[$place]:-0} + 1))
    BREAK_N[$place]=$n
    place+=" $n"
    [[ $n -le 3 && -z ${BREAK_SEEN[$place]:-} ]] || return 0
    BREAK_SEEN[$place]=1
    echo "$place" >>/run/broken
    [[ $((RANDOM % BREAK_SHARE)) -ne 0 ]] || kill -KILL $$ "$BASHPID"
}
set -T
trap break_off DEBUG
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """With its services running, and couponmq installed; nothing is set up. Nearly all the time
    that these tests take is rabbitmqctl's, which starts a machine of Erlang for each word. So tests
    share what is set up, and what they do not need of RabbitMQ they give to setup by a URL."""
    one = Machine(tmp_path_factory.mktemp("machine"), Stack("").build_dir)
    try:
        one.services_start()
        one.files_before = files_of(one)
        yield one
    finally:
        one.close()


def is_set_up(machine):
    return machine.run("test", "-e", ETC / "setup.record").returncode == 0


@pytest.fixture
def bare(machine):
    """The machine with nothing set up."""
    if is_set_up(machine):
        forget_receives(machine)
        done = setup_run(machine, "--remove")
        assert done.returncode == 0, done.stderr
    machine.run("rm", "-r", ETC / "secrets")
    return machine


@pytest.fixture
def ready(machine):
    """The machine, set up, by an earlier test if there was one."""
    if not is_set_up(machine):
        done = setup_run(machine)
        assert done.returncode == 0, done.stderr
    return machine


def setup_run(machine, *words, **env):
    return machine.run("couponctl", "setup", *words, **env)


def script_run(machine, word, **env):
    env = {"COUPONCTL": PREFIX / "bin/couponctl", **env}
    return machine.run(PREFIX / "lib/couponmq/setup/setup.sh", word, **env)


def secret(machine, name):
    return machine.out("cat", ETC / "secrets" / name).strip()


def redis_cli(machine, *words):
    url = secret(machine, "default-redis-url")
    password, port = re.match(r"redis://default:(\w+)@127.0.0.1:(\d+)/0", url).groups()
    return machine.run("redis-cli", "-p", port, *words, REDISCLI_AUTH=password).stdout


def forget_receives(machine):
    """As the sentence of a removal that is refused says."""
    units = ("couponmq.target", "redis-server@couponmq.service")
    machine.out("systemctl", "stop", *units)
    machine.run_as("postgres", "dropdb", "--force", "couponmq")
    machine.run("rabbitmqctl", "-q", "delete_vhost", "couponmq")
    machine.run("rm", "-r", "/var/lib/redis/couponmq")


def files_of(machine):
    """Every file that setup may write, with its owner, mode, time and text."""
    wanted = ("/etc", "-type", "f", "!", "-name", ".pwd.lock")
    found = machine.out("find", *wanted, "-printf", "%p %u:%g %m %T@\n")
    texts = machine.out("find", *wanted, "-exec", "sha256sum", "{}", "+")
    return sorted(found.splitlines()) + sorted(texts.splitlines())


def stores_of(machine):
    """What the stores keep, but for what programs that run write by themselves. The keeper may
    still have to do with a coupon that has just been closed."""
    unsettled = "SELECT FROM coupon WHERE settled_at IS NULL OR expires_at IS NULL"
    wait_until(lambda: machine.sql("couponmq", f"SELECT EXISTS ({unsettled})") == "f\n")
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


def result_of(machine):
    """What setup has made, without what is random in it, or a time."""
    paths = (ETC, "/etc/redis", "/var/lib/redis", "-maxdepth", "2")
    acl = redis_cli(machine, "ACL", "LIST")
    dump = machine.run_as("postgres", "pg_dumpall", "--globals-only").stdout
    definitions = json.loads(machine.out("rabbitmqctl", "-q", "export_definitions", "-"))
    definitions = [definitions[name] for name in ("users", "vhosts", "permissions")]
    counts = """SELECT (SELECT count(*) FROM coupon WHERE status = 'closed'),
        (SELECT count(*) FROM coupon), (SELECT count(*) FROM coupon_void),
        (SELECT count(*) FROM user_coupon),
        (SELECT count(*) FROM api_key WHERE revoked_at IS NULL), (SELECT count(*) FROM api_key)"""
    texts = [
        machine.out("find", *paths, "!", "-path", "*/appendonlydir/*", "-printf", "%p %u:%g %m\n"),
        machine.out("sh", "-c", f"grep '' {ETC}/*.conf /etc/redis/redis-couponmq.conf"),
        machine.out("grep", "-r", "", ETC / "secrets"),
        machine.out("sed", "s/ .*//", ETC / "setup.record"),
        machine.out("ls", UNITS),
        re.sub("#[0-9a-f]{64}", "#", acl),
        re.sub("PASSWORD '[^']*'|[\\\\](un)?restrict .*", "", dump),
        re.sub("'password_hash': '[^']*'", "", str(definitions)),
        machine.sql("couponmq", counts),
    ]
    return [sorted(re.sub("[0-9a-f]{48,64}", "RANDOM", text).splitlines()) for text in texts]


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
    # One coupon, issued and taken back, once: it keeps its slot.
    counts = "SELECT count(*), (SELECT count(*) FROM coupon_void) FROM coupon"
    assert machine.sql("couponmq", counts) == "1|1\n"
    assert machine.sql("couponmq", "SELECT status FROM coupon") == "closed\n"
    assert machine.sql("couponmq", "SELECT count(*) FROM user_coupon") == "1\n"


def key_works(machine, told):
    (key,) = KEY.findall(told)
    authorization = f"Authorization: Bearer {key}"
    campaigns = machine.out("curl", "-sf", "-H", authorization, f"{CONSOLE}/admin/v1/campaigns")
    assert "couponctl setup on machine" in campaigns


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


def test_valkey_in_the_place_of_redis(bare):
    bare.out("touch", "/run/shims/valkey-server")
    bare.out("chmod", "755", "/run/shims/valkey-server")
    bare.out("mount", "--bind", "/dev/null", "/usr/bin/redis-server")
    try:
        refused = setup_run(bare, "--yes")
        assert refused.returncode == 1
        assert "not installed on this machine: redis-server. " in refused.stderr
        assert "Valkey is installed: setup does not configure it. " in refused.stderr
        (section,) = re.findall('docs/guides/deploy.md says under "(.*?)"', refused.stderr)
        assert f"\n## {section}\n" in (ROOT / "docs/guides/deploy.md").read_text("utf-8")
        assert "--redis-url redis://" in refused.stderr
    finally:
        bare.out("umount", "/usr/bin/redis-server")
        bare.out("rm", "/run/shims/valkey-server")


def sql_make(statement):
    return lambda machine: machine.sql("postgres", statement)


def rabbitmq_make(*words):
    return lambda machine: machine.out("rabbitmqctl", "-q", *words)


def text_make(path, text):
    return lambda machine: machine.out("tee", path, stdin=text)


def remove(*paths):
    return lambda machine: machine.out("rm", "-r", *paths)


def link_make(machine):
    """As the user redis may, who owns the folder: setup must not change what it leads to."""
    machine.out("install", "-d", "-m", "700", "/run/secret")
    made = machine.run_as("redis", "ln", "-s", "/run/secret", "/var/lib/redis/couponmq")
    assert made.returncode == 0, made.stderr


# What others have made in a store: how, how it is removed, and how setup names it.
OTHERS = {
    "redis": (
        (
            text_make("/etc/redis/redis-couponmq.conf", "port 6390\n"),
            remove("/etc/redis/redis-couponmq.conf"),
            "Redis has /etc/redis/redis-couponmq.conf",
        ),
        (
            text_make("/etc/redis/couponmq.acl", "user default on nopass ~* &* +@all\n"),
            remove("/etc/redis/couponmq.acl"),
            "Redis has /etc/redis/couponmq.acl",
        ),
        (
            link_make,
            remove("/var/lib/redis/couponmq", "/run/secret"),
            "Redis has /var/lib/redis/couponmq",
        ),
    ),
    "rabbitmq": (
        (
            rabbitmq_make("add_vhost", "couponmq"),
            rabbitmq_make("delete_vhost", "couponmq"),
            "RabbitMQ has a vhost couponmq",
        ),
        (
            rabbitmq_make("add_user", "couponmq_worker", "theirs"),
            rabbitmq_make("delete_user", "couponmq_worker"),
            "RabbitMQ has the users couponmq_worker",
        ),
    ),
    "postgresql": (
        (
            sql_make("CREATE ROLE couponmq_gateway LOGIN PASSWORD 'theirs'"),
            sql_make("DROP ROLE couponmq_gateway"),
            "PostgreSQL has a login couponmq_gateway",
        ),
        (
            sql_make("CREATE ROLE couponmq_owner"),
            sql_make("DROP ROLE couponmq_owner"),
            "PostgreSQL has a login couponmq_owner",
        ),
        (
            sql_make("CREATE DATABASE couponmq"),
            sql_make("DROP DATABASE couponmq"),
            "PostgreSQL has a database couponmq",
        ),
    ),
}


def owned(machine, store):
    """What there is in the store, without data."""
    if store == "redis":
        folders = ("/etc/redis", "/var/lib/redis", "/run/secret")
        return [
            machine.run("find", *folders, "-printf", "%p %u:%g %m %l\n").stdout,
            machine.out("find", "/etc/redis", "-type", "f", "-exec", "cat", "{}", "+"),
        ]
    if store == "rabbitmq":
        definitions = json.loads(machine.out("rabbitmqctl", "-q", "export_definitions", "-"))
        return [definitions[name] for name in ("users", "vhosts", "permissions")]
    return [
        machine.sql("postgres", "SELECT datname, datdba FROM pg_database ORDER BY 1"),
        machine.sql(
            "postgres", "SELECT rolname, rolcanlogin, rolpassword FROM pg_authid ORDER BY 1"
        ),
        machine.sql("postgres", "SELECT * FROM pg_auth_members ORDER BY roleid, member"),
    ]


# So that the steps of the other stores have nothing to do.
URLS = {
    "redis": {"REDIS_URL": "redis://127.0.0.1:6999/0"},
    "rabbitmq": {"AMQP_URL": "amqp://shop:shop@127.0.0.1:5999/shop"},
    "postgresql": {
        "DATABASE_URL": "postgresql://shop@127.0.0.1:5999/shop",
        "DATABASE_ADMIN_URL": "postgresql://owner@127.0.0.1:5999/shop",
    },
}


# Every run tests these.
OFTEN = (("redis", 0), ("postgresql", 2))


def urls_but(store):
    return {name: url for other in URLS if other != store for name, url in URLS[other].items()}


@pytest.mark.parametrize("store", OTHERS)
def test_what_others_have_made_is_refused(bare, store):
    """Before anything is made."""
    for make, undo, told in OTHERS[store]:
        make(bare)
        before = files_of(bare)
        refused = setup_run(bare, "--yes", **urls_but(store))
        assert refused.returncode == 1 and refused.stdout == "", refused
        assert f"{told} that couponctl setup has not made" in refused.stderr
        assert files_of(bare) == before
        undo(bare)


@pytest.mark.parametrize(
    "store, number",
    [
        pytest.param(store, n, marks=() if (store, n) in OFTEN else pytest.mark.long)
        for store, others in OTHERS.items()
        for n in range(len(others))
    ],
)
def test_what_others_have_made_stays(bare, store, number):
    """If it appears after that, in the step that would change it; and --remove leaves it alone."""
    make, undo, told = OTHERS[store][number]
    make(bare)
    before = owned(bare, store)
    urls = {f"SETUP_{name}": url for name, url in urls_but(store).items()}
    stopped = script_run(bare, "apply", **urls)
    assert stopped.returncode == STOPPED, stopped
    assert f"{told} that couponctl setup has not made" in stopped.stderr

    removed = setup_run(bare, "--remove", "--yes")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    for name in ("Redis", "RabbitMQ", "PostgreSQL"):
        assert name not in removed.stdout
    assert owned(bare, store) == before
    undo(bare)


@pytest.mark.long
def test_a_role_that_another_database_uses_stays(bare):
    """Without the login that setup has given it. RabbitMQ and Redis are not asked."""
    bare.out("tee", "/run/break_off", stdin=BREAK_OFF)
    bare.out("tee", "/run/broken", stdin="")
    stopped = script_run(
        bare, "apply", BASH_ENV="/run/break_off", BREAK_IN="apply", BREAK_SHARE="1",
        BREAK_ONLY="^systemctl daemon-reload", BREAK_SEED="1",
        **{f"SETUP_{name}": url for name, url in urls_but("postgresql").items()},
    )  # fmt: skip
    assert stopped.returncode in KILLED, stopped
    bare.sql("postgres", "CREATE DATABASE other; GRANT CREATE ON DATABASE other TO couponmq_worker")
    removed = setup_run(bare, "--remove", "--yes")
    assert removed.returncode == 0, removed
    assert "one that another database uses only loses its login" in removed.stdout
    assert "PostgreSQL: the database couponmq is removed\n" in removed.stdout
    told = re.findall("PostgreSQL: the role couponmq_(.*)", removed.stdout)
    assert sorted(told) == [
        *(f"{name} is removed" for name in ("app", "gateway", "operator", "owner")),
        "worker stays, without a login",
    ]
    assert "privileges for database other" in removed.stderr
    for name in ("Redis: ", "RabbitMQ: "):
        assert name not in removed.stdout
    roles = "SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname LIKE 'couponmq%'"
    assert bare.sql("postgres", roles) == "couponmq_worker|f\n"
    bare.sql("postgres", "DROP DATABASE other; DROP ROLE couponmq_worker")


def test_it_makes_a_service_once(bare):
    done = setup_run(bare, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"Console: {CONSOLE}/" in done.stdout
    # A machine that was just set up has nothing wrong; a kernel of its own has no namespace.
    findings = re.findall(r"^(warning|wrong) +(\S+)", done.stdout, re.MULTILINE)
    assert all(state == "warning" and name.startswith("machine.") for state, name in findings)
    assert " 0 wrong, " in done.stdout
    unknown = re.findall(r"^unknown +(\S+)", bare.out("couponctl", "doctor"), re.MULTILINE)
    assert unknown == ["rabbitmq.disk", "rabbitmq.descriptors", "rabbitmq.members"]
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


def pid_of(machine, unit):
    return machine.out("cat", f"/run/units/{unit}.service.pid")


def test_what_is_wrong_is_shown_with_its_mend(ready):
    """It does not fail setup: what an operator has set stays. And it is not waited for."""
    wait_until(lambda: re.search("keeper +elected", ready.run("couponctl", "doctor").stdout))
    counted = f'#!/bin/sh\necho "$1" >>/run/commands\nexec {PREFIX}/bin/couponctl "$@"\n'
    ready.out("tee", "/run/counted", stdin=counted)
    ready.out("chmod", "755", "/run/counted")
    ready.sql("postgres", "ALTER SYSTEM SET full_page_writes = off; SELECT pg_reload_conf()")
    try:
        done = script_run(ready, "apply", COUPONCTL="/run/counted")
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search("^wrong +postgresql.full_page_writes +off, wanted on", done.stdout, re.M)
        assert "mend: ALTER SYSTEM SET full_page_writes = on; " in done.stdout
        assert ready.out("cat", "/run/commands").split().count("doctor") == 1
    finally:
        ready.sql("postgres", "ALTER SYSTEM RESET full_page_writes; SELECT pg_reload_conf()")


def test_a_store_that_cannot_be_asked_is_named_with_the_reason(ready):
    refused = setup_run(ready, "--remove", "--yes", RABBITMQ_NODENAME="nobody@machine")
    assert refused.returncode == 1
    told = "nothing was removed: RabbitMQ could not be asked whether it has receives: "
    assert told in refused.stderr and "nobody@machine" in refused.stderr.partition(told)[2]


@pytest.fixture
def record(ready):
    """Keeps setup.record as it is."""
    text = ready.out("cat", ETC / "setup.record")
    yield
    ready.out("tee", ETC / "setup.record", stdin=text)


@pytest.mark.long
@pytest.mark.parametrize("setting", ["COUPON_AUTH=required", "COUPON_PROXY_FROM=127.0.0.0/8"])
def test_a_gateway_that_would_refuse_the_test(ready, record, setting):
    """Setup leaves the test out, and says why."""
    settings = ready.out("cat", ETC / "gateway.conf")
    ready.out("tee", "-a", ETC / "gateway.conf", stdin=f"{setting}\n")
    ready.out("systemctl", "restart", "coupon-gateway.service")
    ready.out("sed", "-i", "/^coupon/d", ETC / "setup.record")
    try:
        done = setup_run(ready, "--yes")
        assert (done.returncode, done.stderr) == (0, ""), done
        why = setting.partition("=")[0]
        assert f"the test is left out, because the gateway has {why}: " in done.stdout
    finally:
        ready.out("tee", ETC / "gateway.conf", stdin=settings)
        ready.out("systemctl", "restart", "coupon-gateway.service")


@pytest.mark.long
def test_a_first_key_that_was_revoked(ready, record):
    """The next one is another key. Redis, which cannot be told of it, is no reason to stop, and
    setup says so."""
    before = ready.out("sed", "-n", "s/^key //p", ETC / "setup.record").strip()
    ready.out("sed", "-i", "/^key /d", ETC / "setup.record")
    workers = [pid_of(ready, f"coupon-worker@{n}") for n in (1, 2)]
    ready.out("kill", "-STOP", *workers)  # one of them would tell Redis
    redis_cli(ready, "ACL", "SETUSER", "couponmq_operator", "-hset")
    try:
        revoked = ready.run("couponctl", "key", "revoke", before, "--yes")
        assert revoked.returncode == 3, revoked
        done = setup_run(ready, "--yes")
    finally:
        ready.out("kill", "-CONT", *workers)
        redis_cli(ready, "ACL", "LOAD")
    assert done.returncode == 0, done
    assert done.stderr.count("PostgreSQL has the change, but Redis could not be told") >= 1
    (key,) = KEY.findall(done.stdout)
    assert key not in done.stderr and before not in key
    wait_until(lambda: key_is_known(ready, key))


def key_is_known(machine, key):
    authorization = f"Authorization: Bearer {key}"
    return machine.run("curl", "-sf", "-H", authorization, f"{CONSOLE}/admin/v1/campaigns").stdout


@pytest.mark.long
def test_an_instance_of_redis_whose_file_is_gone_comes_back(ready):
    """It is setup's own all the same: the record says so."""
    conf = "/etc/redis/redis-couponmq.conf"
    text = ready.out("cat", conf)
    ready.out("rm", conf)
    assert script_run(ready, "fits").returncode == 1
    planned = script_run(ready, "plan-remove")
    assert "Redis: redis-server@couponmq.service with its data" in planned.stdout, planned
    done = setup_run(ready, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert ready.out("cat", conf) == text


def test_an_upgrade_starts_what_runs_with_older_settings(ready):
    """A login that is gone comes back. Programs that run with the password of before are started
    again, all workers before the gateway, also one that setup has not made."""
    ready.out("systemctl", "start", "coupon-worker@3")
    ready.out("systemctl", "stop", "coupon-admin.service")
    fits = script_run(ready, "fits")
    assert (fits.returncode, fits.stdout, fits.stderr) == (0, "", "")
    ready.out("rm", ETC / "secrets/worker-redis-url")
    fits = script_run(ready, "fits")
    assert fits.returncode == 1 and fits.stderr == ""
    assert fits.stdout.splitlines()[0].startswith("This version of couponmq needs the following")
    assert "  - passwords in /etc/couponmq/secrets" in fits.stdout

    names = ("coupon-worker@1", "coupon-worker@2", "coupon-worker@3", "coupon-gateway")
    before = {pid_of(ready, name) for name in names}
    calls = ready.out("cat", "/run/units/calls")
    done = setup_run(ready, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert not before & {pid_of(ready, name) for name in names}
    calls = ready.out("cat", "/run/units/calls").removeprefix(calls).splitlines()
    assert [call for call in calls if "restart" in call] == [
        "try-restart coupon-worker@*.service",
        "try-restart coupon-gateway.service coupon-admin.service",
    ]
    assert NOTHING in setup_run(ready).stdout
    ready.out("systemctl", "stop", "coupon-worker@3")


def test_what_others_have_issued_is_not_removed(ready):
    """Receives, and what cannot be made again: user coupons that were taken back, whose users must
    not get another, and exchange codes."""
    operator = {
        f"{setting}_FILE": ETC / f"secrets/operator-{store}-url"
        for setting, store in (("REDIS_URL", "redis"), ("AMQP_URL", "rabbitmq"),
                               ("DATABASE_URL", "postgresql"))
    }  # fmt: skip

    def ctl(*words):
        return ready.out("couponctl", *words, **operator)

    def is_refused(told):
        refused = setup_run(ready, "--remove", "--yes")
        assert refused.returncode == 1 and refused.stdout == ""
        assert f"nothing was removed: {told} that couponctl setup has not made" in refused.stderr
        assert "To remove them anyway, first save what you need" in refused.stderr

    coupon = ctl("create", "--name", "Noon", "--total", "2").strip()
    ctl("publish", coupon, "--wait-s", "60")
    issue = ("couponctl", "issue", "--coupon", coupon, "--ack", "issued", "--json", "--user")
    issued = ready.out(*issue, "ann")
    files = files_of(ready)
    is_refused("PostgreSQL has 1 receives")
    assert files_of(ready) == files
    assert ready.run("curl", "-sf", "http://127.0.0.1:7480/readyz").returncode == 0

    ctl("void", json.loads(issued)["receive"])
    for forgotten in ("user_coupon", "receive_rejected"):
        ready.sql("couponmq", f"TRUNCATE {forgotten}")
        is_refused("PostgreSQL has 1 receives")
    # Redis alone knows of one that is not settled.
    ready.out(*issue, "bob")
    ready.sql("couponmq", "TRUNCATE user_coupon, receive_rejected, coupon_void")
    is_refused("Redis has receives")

    coupon = ctl("create", "--name", "Codes", "--total", "2").strip()
    ctl("codes", "generate", coupon, "--count", "2", "--out", "/run/codes.csv")
    is_refused("PostgreSQL has 1 sets of exchange codes")
    ready.sql("couponmq", "TRUNCATE code_set CASCADE")
    redis_cli(ready, "FLUSHALL")


def test_it_can_be_undone(ready):
    """What setup has not made is as before."""
    code_keys = secret(ready, "code-keys")
    removed = setup_run(ready, "--remove", "--yes")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    said = [line.removeprefix("setup: ") for line in removed.stdout.splitlines()]
    assert said[said.index("the programs are stopped") + 1 :] == [
        *(f"RabbitMQ: the user couponmq_{login} is removed" for login in sorted(LOGINS)),
        "RabbitMQ: the vhost couponmq is removed",
        "Redis: redis-server@couponmq.service and its data are removed",
        "PostgreSQL: the database couponmq is removed",
        *(f"PostgreSQL: the role couponmq_{role} is removed" for role in ("app", *LOGINS, "owner")),
        f"{ETC}/secrets/code-keys stays: exchange codes of a backup cannot be read without it",
        "the settings and passwords that setup has made are removed",
    ]
    assert secret(ready, "code-keys") == code_keys
    ready.out("rm", "-r", ETC / "secrets")
    left = ready.sql("postgres", "SELECT rolname FROM pg_roles WHERE rolname LIKE 'couponmq%'")
    assert left == ""
    assert ready.sql("postgres", "SELECT 1 FROM pg_database WHERE datname = 'couponmq'") == ""
    assert ready.out("rabbitmqctl", "-s", "list_vhosts") == "/\n"
    assert "couponmq" not in ready.out("rabbitmqctl", "-s", "list_users")
    assert ready.run("ls", "/var/lib/redis/couponmq").returncode != 0
    # The user of the programs stays, as after a package is removed.
    accounts = re.compile(r"[\da-f ]*/etc/(passwd|shadow|group|gshadow)-?( |$)")
    left = [line for line in files_of(ready) if not accounts.match(line)]
    assert left == [line for line in ready.files_before if not accounts.match(line)]

    nothing = setup_run(ready, "--remove")
    assert nothing.returncode == 0 and "has made nothing on this machine" in nothing.stdout


def broken_off(machine, word, only=""):
    """Runs the script until it ends by itself, and breaks it off before that at every command: in a
    run that the seed has chosen, at some of them. Returns how often. On a busy machine a run may
    stop by itself, because a store does not answer in time: it says to run it again."""
    rng = random.Random(f"{SEED} {word}")
    machine.out("tee", "/run/break_off", stdin=BREAK_OFF)
    machine.out("tee", "/run/broken", stdin="")
    env = {"BASH_ENV": "/run/break_off", "BREAK_IN": word, "BREAK_ONLY": only,
           "BREAK_SHARE": "1" if only or EACH else "24" if word == "apply" else "8"}  # fmt: skip
    broken = stopped = 0
    while True:
        done = script_run(machine, word, BREAK_SEED=rng.randrange(32768), **env)
        if done.returncode == 0:
            places = machine.out("cat", "/run/broken").splitlines()
            print(f"{word}: broken off {broken} times, at {len(places)} places")
            # Two subshells may come to one place before the first is killed.
            assert len(set(places)) >= broken or not EACH, "each time further"
            return broken
        if done.returncode == STOPPED:
            print(done.stderr)
            stopped += 1
            assert stopped < 5, done.stderr
            continue
        assert done.returncode in KILLED, done.stdout + done.stderr
        broken += 1
        assert broken < 1000
        # The user redis, who owns these, could put a link in the place of a temporary file.
        assert ".setup" not in machine.out("ls", "-R", "/etc/redis", "/var/lib/redis")


@pytest.mark.long
def test_a_run_that_is_broken_off_goes_on(bare):
    """To what a run that is not broken off has made."""
    assert setup_run(bare).returncode == 0
    whole = result_of(bare)
    assert setup_run(bare, "--remove").returncode == 0
    bare.out("rm", "-r", ETC / "secrets")

    assert broken_off(bare, "apply") > (80 if EACH else 5)
    # The last run has printed a key, unless an earlier one has.
    wait_until(lambda: bare.run("curl", "-sf", "http://127.0.0.1:7480/readyz").returncode == 0)
    installed_check(bare)
    assert result_of(bare) == whole
    files, stores = files_of(bare), stores_of(bare)
    assert NOTHING in setup_run(bare).stdout
    assert (files_of(bare), stores_of(bare)) == (files, stores)

    assert broken_off(bare, "remove") > (20 if EACH else 1)
    assert "has made nothing on this machine" in setup_run(bare, "--remove").stdout
    assert bare.out("ls", ETC / "secrets") == "code-keys\n"
    assert bare.sql("postgres", "SELECT 1 FROM pg_roles WHERE rolname LIKE 'couponmq%'") == ""
    assert "couponmq" not in bare.out("rabbitmqctl", "-s", "list_vhosts")


@pytest.mark.long
def test_it_is_broken_off_while_it_takes_the_test_coupon_back(bare):
    """The next run finds it voided, and goes on."""
    assert broken_off(bare, "apply", only="^ctl (void|close) ") >= 2
    assert NOTHING in setup_run(bare).stdout


@pytest.mark.long
def test_an_upgrade_that_is_broken_off_has_its_effect(bare):
    """Wherever it is broken off: Redis has loaded the rights, and a worker that was started before
    its file had all settings is started again."""
    assert setup_run(bare, "--yes").returncode == 0
    pid = pid_of(bare, "coupon-worker@1")
    redis_users = PREFIX / "lib/couponmq/redis-users.conf"
    bare.out("sed", "-i", "s/ +hlen / +hlen +hkeys /", redis_users)
    try:
        bare.out("sed", "-i", "/^AMQP_URL_FILE=/d", ETC / "worker.conf")
        broken = broken_off(bare, "apply", only="^(mv|systemctl|loaded=|record_set) ?")
        assert broken > 8
        assert NOTHING in setup_run(bare).stdout
        assert "+hkeys" in redis_cli(bare, "ACL", "GETUSER", "couponmq_gateway")
        assert "\nAMQP_URL_FILE=" in "\n" + bare.out("cat", ETC / "worker.conf")
        assert pid_of(bare, "coupon-worker@1") != pid
    finally:
        bare.out("sed", "-i", "s/ +hlen +hkeys / +hlen /", redis_users)


@pytest.mark.long
def test_setup_after_a_purge(bare):
    """Stores and the key of codes are there; settings, record and passwords are gone."""
    assert setup_run(bare, "--yes").returncode == 0
    code_keys = secret(bare, "code-keys")
    bare.out("systemctl", "stop", "couponmq.target")  # as the prerm does
    bare.out("touch", ETC / "gateway.conf.setup")  # of a run that was killed
    bare.out("sh", ROOT / "debian/couponmq-server.postrm", "purge")
    assert bare.out("find", ETC, "-type", "f") == f"{ETC}/secrets/code-keys\n"

    done = setup_run(bare, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    key_works(bare, done.stdout)
    installed_check(bare)
    assert secret(bare, "code-keys") == code_keys
    assert NOTHING in setup_run(bare).stdout


@pytest.mark.long
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


@pytest.mark.long
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
    # As Debian has it, that Redis loses what is accepted.
    assert re.search("^wrong +redis.appendonly +no, wanted yes", done.stdout, re.MULTILINE)
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


@pytest.mark.long
def test_a_gateway_that_was_set_before(bare):
    settings = "COUPON_LISTEN=127.0.0.1:7511\n"
    bare.out("install", "-d", ETC)
    bare.out("tee", ETC / "gateway.conf", stdin=settings)
    done = setup_run(bare, "--yes")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "issued, and taken back" in done.stdout
    assert NOTHING in setup_run(bare).stdout
    assert setup_run(bare, "--remove", "--yes").returncode == 0
    assert bare.out("cat", ETC / "gateway.conf").strip() == settings.strip()
    bare.out("rm", ETC / "gateway.conf")


def test_the_folders_are_those_of_debian():
    assert all(Path(folder).is_dir() for folder in FOLDERS)
