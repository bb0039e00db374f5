"""PostgreSQL with a standby that is promoted: a synchronous one, one that lacks the tail, and one
whose old primary lives on. COMMITs that are cancelled while they wait for a standby."""

import re
import subprocess

import pytest
import requests

from history import QUEUE, queue_length
from standby import Standby
from stack import wait_until, with_faults

USERS = 30
COUNT = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
LAST_RECOVERY = (
    "SELECT how, made_by, server, former, transactions FROM recovery ORDER BY id DESC LIMIT 1"
)
OLD = "this PostgreSQL is an old primary"
IN_DOUBT = "was cancelled while it waited for a synchronous standby"
SETTLED_IN_DOUBT = re.compile(f"event=database_lost .*{IN_DOUBT}")
SYNCHRONOUS = {"COUPON_DATABASE_SYNCHRONOUS": "yes"}
UNSHOWN = "whether the COMMIT is on a synchronous standby"
EMPTY = "synchronous_standby_names is empty"
LOADED = "the server has read its settings again meanwhile"


@pytest.fixture
def standby(rough, rough_redis):
    """Started. Afterwards the stack's own PostgreSQL takes its place again."""
    # The timeline of the next promotion is that of the last one: it did not come from there.
    names = rough_redis.hkeys("couponmq:changes")
    rough_redis.hdel(
        "couponmq:changes", "timeline", *(name for name in names if name.startswith("followed:"))
    )
    one = Standby(rough)
    one.start()
    yield one
    if not rough.runs("postgres"):
        rough.start("postgres")
    one.synchronous("")
    one.remove()
    back = rough.ctl_run("recover", "--all", "--this-server")
    assert back.returncode == 0, back


def rows(pg, coupon):
    return pg.execute(COUNT, (coupon,)).fetchone()[0]


def issue_all(stack, coupon, users, ack="issued"):
    with stack.client() as client:
        return client.pipeline(
            [
                {"op": "issue", "coupon": str(coupon), "user": str(user), "ack": ack}
                for user in users
            ]
        )


def statuses(replies):
    return {reply["status"] for reply in replies}


def issued_again(stack, coupon, user):
    """Once a client gets a new coupon: all parts agree, and PostgreSQL is written."""

    def issued():
        with stack.client() as client:
            return client.issue(coupon, user, ack="issued", key="again")["status"] == "issued"

    wait_until(issued)


def ready(worker):
    try:
        return requests.get(worker.http("/readyz"), timeout=3)
    except requests.RequestException:
        return None


def is_refused(worker):
    told = ready(worker)
    return told is not None and told.status_code == 503 and OLD in told.json()["postgresql"]


def is_ready(worker):
    told = ready(worker)
    return told is not None and told.status_code == 200


def followed(rough_redis):
    return int(rough_redis.hget("couponmq:changes", "timeline"))


def at_rest(standby, worker):
    """Ten rounds of the keeper have changed nothing that is counted: no COMMIT of it keeps a coupon
    locked."""

    def state():
        with standby.on_primary() as pg:
            counted = pg.execute("SELECT sum(num) FROM change_count").fetchone()
        return counted, worker.metrics()["couponmq_keeper_rounds_total"]

    def is_unchanged():
        counted, rounds = state()
        wait_until(lambda: state()[1] > rounds + 10)
        return state()[0] == counted

    wait_until(is_unchanged)


@pytest.mark.always
def test_a_synchronous_standby_is_promoted(rough, rough_redis, rough_coupon, standby, worker_make):
    standby.synchronous()
    rough.stop("worker-1")
    worker = worker_make(rough, **standby.both())
    coupon = rough_coupon(4 * USERS).coupon
    issued_again(rough, coupon, 0)
    assert statuses(issue_all(rough, coupon, range(1, USERS))) == {"issued"}
    timeline = followed(rough_redis)
    rough.kill9("postgres")
    later = issue_all(rough, coupon, range(USERS, 2 * USERS), ack="accepted")
    assert statuses(later) == {"accepted"}
    standby.promote()
    wait_until(lambda: followed(rough_redis) > timeline)
    with standby.superuser() as pg:
        wait_until(lambda: rows(pg, coupon) == 2 * USERS)
    assert "postgresql_behind" not in worker.log()
    wait_until(lambda: is_ready(worker))
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    issued_again(rough, coupon, 2 * USERS)


def test_a_wait_for_the_standby_is_cancelled(
    rough, rough_redis, rough_pg, rough_coupon, standby, worker_make, gateway_make
):
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000)
    rough.stop("worker-1")
    worker = worker_make(rough)
    coupon = rough_coupon().coupon
    issued_again(rough, coupon, 0)
    at_rest(standby, worker)
    standby.synchronous()
    standby.stop()
    with gateway.client() as client, gateway.client() as other:
        client.send_line({"op": "issue", "coupon": str(coupon), "user": "1", "ack": "issued"})
        first = wait_until(standby.waiting)[0]
        assert rows(rough_pg, coupon) == 1, "it is not visible yet"
        standby.cancel(first)
        # Settled again, which changes nothing, and waits for the same standby.
        wait_until(lambda: SETTLED_IN_DOUBT.search(worker.log()))
        second = wait_until(lambda: set(standby.waiting()) - {first}).pop()
        assert rows(rough_pg, coupon) == 2, "this server has it"
        assert client.read_reply()["status"] == "unknown", "the gateway's look-up waits, too"
        assert rough_redis.hlen(f"coupon:{{{coupon}}}:outbox") == 1
        assert worker.metrics()["couponmq_worker_held"] > 0, "it is not acked"
        standby.cancel(second)
        wait_until(lambda: set(standby.waiting()) - {first, second})
        assert rough_redis.hlen(f"coupon:{{{coupon}}}:outbox") == 1
        other.send_line({"op": "issue", "coupon": str(coupon), "user": "2", "ack": "queued"})
        assert other.read_reply()["status"] == "queued"
        standby.start()
        wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
        wait_until(lambda: rows(rough_pg, coupon) == 3)
    standby.synchronous("")


def command_begin(stack, *arguments, **settings):
    return subprocess.Popen(
        [stack.build_dir / "couponctl", *arguments],
        env={**stack.env_of("operator"), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_change_of_an_operator_is_cancelled(rough, standby):
    standby.synchronous()
    standby.stop()
    with command_begin(rough, "create", "--name", "x", "--total", "1") as child:
        standby.cancel(wait_until(lambda: standby.waiting("couponctl"))[0])
        out, told = child.communicate(timeout=60)
    assert (child.returncode, out) == (12, ""), told
    assert IN_DOUBT in told and "whether it survives the loss of this server is unknown" in told


def test_the_names_are_cleared_while_a_commit_waits(
    rough, rough_redis, rough_pg, rough_coupon, standby, worker_make, gateway_make
):
    """What waits is released without a warning, and nothing begins until they are back."""
    standby.synchronous()
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000, **SYNCHRONOUS)
    rough.stop("worker-1")
    worker = worker_make(rough, **SYNCHRONOUS)
    coupon = rough_coupon().coupon
    issued_again(rough, coupon, 0)
    at_rest(standby, worker)
    standby.stop()
    first = {"op": "issue", "coupon": str(coupon), "user": "1", "ack": "issued", "key": "k"}
    with gateway.client() as client:
        client.send_line(first)
        wait_until(standby.waiting)
        standby.cleared()
        wait_until(lambda: rows(rough_pg, coupon) == 2)  # this server has it
        log = wait_until(lambda: UNSHOWN in worker.log() and worker.log())
        assert not SETTLED_IN_DOUBT.search(log), "PostgreSQL did not warn"
        assert client.read_reply()["status"] == "unknown"
        assert client.call(**first)["status"] == "unknown", "by the look-up, which finds the row"
        assert UNSHOWN in gateway.log()
        wait_until(lambda: f'event=database_unreachable why="{EMPTY}' in worker.log())
        wait_until(lambda: f'event=keeper_database_unreachable why="{EMPTY}' in worker.log())
        assert not is_ready(worker)
        second = {**first, "user": "2", "ack": "queued", "key": "l"}
        assert client.call(**second)["status"] == "queued"
        wait_until(lambda: worker.metrics()["couponmq_worker_held"] == 2)
        assert rough_redis.hlen(f"coupon:{{{coupon}}}:outbox") == 2
        assert rows(rough_pg, coupon) == 2, "nothing begins"
        standby.start()
        standby.synchronous()
        wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
        assert rows(rough_pg, coupon) == 3
        assert client.call(**first)["status"] == "issued"


def test_a_look_up_on_a_standby(rough, rough_coupon, standby, gateway_make):
    """It may have what its primary has, and no synchronous standby."""
    coupon = rough_coupon().coupon
    issued_again(rough, coupon, 0)
    standby.caught_up()
    known = {"op": "issue", "coupon": str(coupon), "user": "0", "ack": "issued", "key": "again"}
    urls = standby.urls(standby.port, program="gateway")
    told = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000, **urls)
    judging = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000, **urls, **SYNCHRONOUS)
    with told.client() as client, judging.client() as other:
        wait_until(lambda: client.call(**known)["status"] == "issued")
        assert other.call(**known)["status"] == "unknown"
        wait_until(lambda: "this server is a standby" in judging.log())


SESSIONS = {
    "settle": "coupon-worker 0%",
    "use": "coupon-worker uses%",
    "keeper": "coupon-keeper",
    "look-up": "coupon-gateway 0%",
    "couponctl": "couponctl",
}


@pytest.mark.parametrize("what", SESSIONS)
def test_the_names_are_cleared_and_restored_while_a_commit_waits(
    rough, rough_redis, rough_pg, rough_coupon, standby, worker_make, gateway_make, what
):
    """Before it and after it there is a standby that must be waited for."""
    standby.synchronous()
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=1000, **SYNCHRONOUS)
    rough.stop("worker-1")
    worker = worker_make(rough, **SYNCHRONOUS)
    coupon = rough_coupon().coupon
    issued_again(rough, coupon, 0)
    with gateway.client() as client:
        one = client.issue(coupon, 0, ack="issued", key="again")["receive"]
        asked = {"op": "issue", "coupon": str(coupon), "user": "1", "ack": "issued", "key": "k"}
        if what == "use":
            asked = {"op": "hold", "receive": one, "order": "o", "key": "k"}
        at_rest(standby, worker)
        standby.stop()
        if what == "look-up":
            asked = {**asked, "user": "0", "key": "again"}
        if what == "keeper":
            # What it reads may be on no standby either.
            worker.end()
            worker = worker_make(rough, ready=False, **SYNCHRONOUS)
        elif what == "couponctl":
            command = command_begin(rough, "create", "--name", "x", "--total", "1", **SYNCHRONOUS)
        else:
            client.send_line(asked)

        def cleared_and_restored():
            with standby.frozen(*wait_until(lambda: waiting(SESSIONS[what]))):
                standby.cleared()
                standby.names_set()

        waiting = standby.sessions if what == "keeper" else standby.waiting
        cleared_and_restored()
        if what == "couponctl":
            out, told = command.communicate(timeout=60)
            assert (command.returncode, out) == (12, ""), told
            assert UNSHOWN in told and LOADED in told
            return
        if what == "keeper":
            told = "event=keeper_database_lost"
            wait_until(lambda: told in worker.log() or cleared_and_restored())
            assert UNSHOWN in worker.log() and LOADED in worker.log()
        else:
            log = gateway.log if what == "look-up" else worker.log
            wait_until(lambda: UNSHOWN in log() and LOADED in log())
            assert client.read_reply()["status"] == "unknown"
        # Done again, which waits for the standby.
        standby.start()
        wait_until(lambda: standby.state("sync_state") == "sync")
        if what != "keeper":
            wait_until(lambda: client.call(**asked)["status"] in ("issued", "held"))
        wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
        wait_until(lambda: is_ready(worker))


def test_the_names_are_set_before_commits_wait(
    rough, rough_redis, rough_pg, rough_coupon, standby, worker_make
):
    """A session has them before the checkpointer has told all to wait: its settings are right, and
    its COMMIT is on no standby."""
    standby.synchronous()
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_SETTLE_TIMEOUT_MS=1000, **SYNCHRONOUS)
    coupon = rough_coupon().coupon
    issued_again(rough, coupon, 0)
    standby.cleared()
    with standby.frozen(standby.checkpointer()):
        standby.stop()
        standby.names_set()
        assert statuses(issue_all(rough, coupon, [1], ack="queued")) == {"queued"}
        wait_until(lambda: rows(rough_pg, coupon) == 2)
        wait_until(lambda: UNSHOWN in worker.log() and "flush_lsn" in worker.log())
        assert not standby.waiting("%")
        assert rough_redis.hlen(f"coupon:{{{coupon}}}:outbox") == 1
    standby.start()
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))


def test_no_command_changes_anything_while_no_standby_is_waited_for(rough, standby):
    create = ("create", "--name", "x", "--total", "1")
    env = {**rough.env_of("operator"), **SYNCHRONOUS}
    refused = standby.ctl(*create, **env)
    assert refused.returncode == 10 and EMPTY in refused.stderr, refused
    assert "nothing was changed" in refused.stderr
    migrate = standby.ctl("migrate", **{**env, **rough.env})
    assert migrate.returncode == 10 and EMPTY in migrate.stderr, migrate
    assert standby.ctl("list", **env).returncode == 0
    standby.synchronous()
    assert standby.ctl(*create, **env).returncode == 0
    assert standby.ctl("migrate", **{**env, **rough.env}).returncode == 0
    with standby.on_primary() as pg:
        for setting in ("local", "remote_write", "off"):
            pg.execute(f"ALTER ROLE couponmq_operator SET synchronous_commit = {setting}")
            refused = standby.ctl(*create, **env)
            assert refused.returncode == 10, refused
            assert f"synchronous_commit is {setting}, and with" in refused.stderr
        pg.execute("ALTER ROLE couponmq_operator SET synchronous_commit = remote_apply")
        assert standby.ctl(*create, **env).returncode == 0
        pg.execute("ALTER ROLE couponmq_operator RESET synchronous_commit")
        pg.execute("REVOKE pg_read_all_stats FROM couponmq_operator")
        refused = standby.ctl(*create, **env)
        assert refused.returncode == 10 and "lacks pg_read_all_stats" in refused.stderr, refused
        pg.execute("GRANT pg_read_all_stats TO couponmq_operator")
        pg.execute("ALTER SYSTEM SET max_wal_senders = 0")
    rough.restart("postgres")
    refused = standby.ctl(*create, **env)
    with standby.on_primary() as pg:
        pg.execute("ALTER SYSTEM RESET max_wal_senders")
    rough.restart("postgres")
    assert refused.returncode == 10 and "max_wal_senders is 0" in refused.stderr, refused
    wrong = standby.ctl(*create, **{**env, "COUPON_DATABASE_SYNCHRONOUS": "on"})
    assert wrong.returncode == 1, wrong
    assert 'COUPON_DATABASE_SYNCHRONOUS is "on": allowed are yes and no' in wrong.stderr


def test_an_old_primary_changes_nothing(
    rough, rough_redis, rough_pg, rough_coupon, standby, worker_make
):
    coupon = rough_coupon(4 * USERS).coupon
    issued_again(rough, coupon, 0)
    rough.stop("worker-1")
    old = worker_make(rough, **standby.urls(standby.primary))
    assert statuses(issue_all(rough, coupon, range(1, USERS))) == {"issued"}
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    standby.caught_up()
    standby.promote()
    new = worker_make(rough, **standby.urls(standby.port))
    wait_until(lambda: is_refused(old))
    log = wait_until(lambda: "event=postgresql_old" in old.log() and old.log())
    assert "couponctl recover --all --this-server" in log
    assert old.metrics()["couponmq_worker_postgresql_old"] == 1
    wait_until(lambda: old.metrics()["couponmq_worker_consumer_up"] == 0)
    before = rows(rough_pg, coupon)
    later = range(USERS, 2 * USERS)
    # Also what it may have settled before it read in Redis that another is followed.
    assert statuses(issue_all(rough, coupon, later, ack="queued")) == {"queued"}
    with standby.superuser() as pg:
        wait_until(lambda: rows(pg, coupon) == 2 * USERS)
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    assert rows(rough_pg, coupon) == before
    assert is_ready(new) and is_refused(old)
    assert queue_length(rough, QUEUE) == 0
    for command in (["show", coupon], ["create", "--name", "x", "--total", "1"], ["recover"]):
        arguments = [*command, "--all"] if command == ["recover"] else command
        refused = rough.ctl_run(*arguments)
        assert refused.returncode == 1 and OLD in refused.stderr, refused
    # It takes the place of the other after all, with what only that one has.
    new.end()
    standby.stop()
    back = rough.ctl_run("recover", "--all", "--this-server")
    assert back.returncode == 0, back
    wait_until(lambda: is_ready(old))
    assert rows(rough_pg, coupon) == 2 * USERS
    issued_again(rough, coupon, 2 * USERS)


def test_a_standby_without_the_tail_is_promoted(
    rough, rough_redis, rough_coupon, standby, worker_make
):
    rough.stop("worker-1")
    worker = worker_make(rough, **standby.both())
    coupon = rough_coupon(4 * USERS).coupon
    issued_again(rough, coupon, 0)
    standby.caught_up()
    standby.stop()
    assert statuses(issue_all(rough, coupon, range(1, USERS))) == {"issued"}
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    timeline = followed(rough_redis)
    rough.kill9("postgres")
    standby.start()
    standby.promote()
    wait_until(lambda: "event=postgresql_behind" in worker.log())
    assert followed(rough_redis) > timeline, "the old one is refused from here on"
    with standby.superuser() as pg:
        assert rows(pg, coupon) == 1
        rough.start("postgres")
        old = worker_make(rough, ready=False, **standby.urls(standby.primary))
        wait_until(lambda: is_refused(old))
        # A command that is given both servers, the old one first, leaves the old one.
        told = standby.ctl("recover", "--all", **standby.both("operator"))
        assert told.returncode == 0, told
        assert rows(pg, coupon) == USERS
        wait_until(lambda: is_ready(worker))
        assert is_ready(worker_make(rough, **standby.both()))
        assert is_refused(old)
        old.end()
        rough.stop("postgres")
        issued_again(rough, coupon, USERS)


def promoted_without(rough, rough_redis, standby, worker, coupon, *commands):
    """A standby that lacks the receives of users 1 to USERS, and what the commands changed. Returns
    the server that was followed before."""
    issued_again(rough, coupon, 0)
    at_rest(standby, worker)
    standby.caught_up()
    standby.stop()
    for command in commands:
        rough.ctl(*command)
    for users in (range(1, 2), range(2, USERS)):
        assert statuses(issue_all(rough, coupon, users)) == {"issued"}
    wait_until(lambda: not rough_redis.hlen(f"coupon:{{{coupon}}}:outbox"))
    former = ":".join(rough_redis.hmget("couponmq:changes", "system", "timeline"))
    rough.kill9("postgres")
    standby.start()
    standby.promote()
    wait_until(lambda: "event=postgresql_behind" in worker.log())
    rough.start("postgres")  # an old primary, which programs reach first
    return former


def recovered(rough, standby, worker, coupon, voided=0):
    """Each accepted receive has its outcome, and clients get coupons. Returns what is recorded."""
    wait_until(lambda: is_ready(worker))
    issued_again(rough, coupon, USERS)
    with standby.superuser() as pg:
        assert rows(pg, coupon) == USERS + 1 - voided
        found = pg.execute(LAST_RECOVERY).fetchone()
    assert standby.ctl("audit", coupon, "--grace", 0).returncode == 0
    return found


def test_the_keeper_brings_the_tail_back(rough, rough_redis, rough_coupon, standby, worker_make):
    rough.stop("worker-1")
    worker = worker_make(rough, COUPON_RECOVER="auto", **standby.both())
    coupon = rough_coupon(4 * USERS).coupon
    former = promoted_without(rough, rough_redis, standby, worker, coupon)
    how, made_by, server, before, transactions = recovered(rough, standby, worker, coupon)
    assert (how, before) == ("tail", former) and made_by.startswith("keeper@")
    assert server == ":".join(rough_redis.hmget("couponmq:changes", "system", "timeline"))
    assert 1 < transactions < USERS and server != former
    (receives,) = re.findall(r"event=recovery_done receives=(\d+) rejected=0 ", worker.log())
    assert int(receives) >= USERS - 1, "others were in flight"
    assert worker.metrics()["couponmq_keeper_recoveries_total"] == 1
    assert worker.metrics()["couponmq_keeper_recovery_waits"] == 0


@pytest.mark.parametrize("point", ["held", "fenced", "settling", "opened", "before_end"])
def test_the_recovery_is_killed(
    rough, rough_redis, rough_coupon, standby, worker_make, monkeypatch, point
):
    """First the command alone, then the worker, too."""
    rough.stop("worker-1")
    monkeypatch.setattr(rough, "build_dir", with_faults(rough, "coupon-worker").parent)
    settings = {"COUPON_RECOVER": "auto", **standby.both()}
    worker = worker_make(rough, COUPON_FAULT=f"recover_{point}:1:kill", **settings)
    coupon = rough_coupon(4 * USERS).coupon
    promoted_without(rough, rough_redis, standby, worker, coupon)
    wait_until(lambda: 'event=recovery_failed why="couponctl recover was killed"' in worker.log())
    wait_until(lambda: worker.log().count("event=recovery_begun") > 1)
    worker.kill9()
    worker = worker_make(rough, ready=False, **settings)
    assert recovered(rough, standby, worker, coupon)[0] == "tail"


WAITS = {
    "all that is missing": ({"COUPON_RECOVER_MAX": 1}, ()),
    "terms": ({}, ("stock", "--total", 5 * USERS)),
    "a void": ({}, ("void", "--user", "0")),
    "an API key": ({}, ("key", "create", "--name", "x", "--role", "issue")),
}


@pytest.mark.parametrize("what", WAITS)
def test_the_keeper_waits_for_the_operator(
    rough, rough_redis, rough_coupon, standby, worker_make, what
):
    settings, command = WAITS[what]
    rough.stop("worker-1")
    worker = worker_make(rough, **{"COUPON_RECOVER": "auto", **settings, **standby.both()})
    coupon = rough_coupon(4 * USERS).coupon
    with standby.on_primary() as pg:
        before = pg.execute("SELECT count(*) FROM recovery").fetchone()
    if command[:1] in (("stock",), ("void",)):
        command = (command[0], *(["--coupon"] if "void" in command else []), coupon, *command[1:])
    promoted_without(rough, rough_redis, standby, worker, coupon, *filter(None, [command]))
    wait_until(lambda: "event=recovery_waits" in worker.log())
    assert "run couponctl recover" in ready(worker).json()["postgresql"]
    assert worker.metrics()["couponmq_keeper_recovery_waits"] == 1
    assert worker.log().count("event=recovery_waits") == 1
    tail = standby.ctl("recover", "--tail", settings.get("COUPON_RECOVER_MAX", 1000))
    assert tail.returncode == 11 and "missing" in tail.stderr, tail
    with standby.superuser() as pg:
        assert rows(pg, coupon) == 1
        assert pg.execute("SELECT count(*) FROM recovery").fetchone() == before
    told = standby.ctl("recover", "--all")
    assert told.returncode == 0, told
    assert recovered(rough, standby, worker, coupon, what == "a void")[0] == "all"


def test_a_standby_is_not_settled_on(rough, rough_coupon, standby, worker_make):
    """A session to it outlives the promotion, and was compared before."""
    rough.stop("worker-1")
    worker = worker_make(rough, ready=False, **standby.urls(standby.port))
    wait_until(lambda: "PostgreSQL is a standby, which cannot be changed" in worker.log())
    coupon = rough_coupon(loaded=False).coupon
    standby.caught_up()
    rough.stop("postgres")
    standby.promote()
    wait_until(lambda: is_ready(worker))
    issued_again(rough, coupon, 1)
