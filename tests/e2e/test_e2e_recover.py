"""PostgreSQL is put back to an earlier moment: couponctl refuses changes, and recovers from Redis
what was lost, or gives it up by name."""

import json
import os
import random
import re
import shutil
import subprocess

import psycopg
import pytest
import redis

from events import Subscriber
from kill import killed
from seed import SEED
from stack import wait_until
from uses import USES, Shop, receive_of
from ulid import ulid_make, ulid_of, ulid_uuid
from user_ids import HOSTILE

ROWS = (
    "SELECT coupon_id, user_id, slot, batch, idx, key, received_at, valid_from, valid_to"
    " FROM user_coupon ORDER BY coupon_id, user_id, slot"
)
REJECTED = (
    "SELECT coupon_id, batch, idx, user_id, slot, reason, received_at FROM receive_rejected"
    " ORDER BY coupon_id, batch, idx"
)
TERMS = (
    "SELECT id, name, total_num, user_limit, begin_at, end_at, valid_days, valid_from, valid_to,"
    " zone, currency, amount_off, percent_off, threshold, cap, metadata, void_returns, events_on,"
    " tell_before, tags, hidden, status, version FROM coupon ORDER BY id"
)
ALL = (
    ROWS,
    REJECTED,
    "SELECT * FROM coupon ORDER BY id",
    "SELECT * FROM coupon_generation ORDER BY coupon_id, generation",
    "SELECT * FROM change_count ORDER BY stripe",
    "SELECT fence FROM keeper",
    "SELECT last_value FROM coupon_id_seq",
)


class World:
    """A stack, the backup of its PostgreSQL, and what PostgreSQL had before it was put back."""

    def __init__(self, stack):
        self.stack = stack
        self.data = (stack.run_dir / "postgres").resolve() / "data"
        self.before = {}

    def pg(self):
        return psycopg.connect(self.stack.env["DATABASE_ADMIN_URL"], autocommit=True)

    def redis(self):
        return redis.Redis.from_url(self.stack.env["REDIS_URL"], decode_responses=True)

    def read(self, *queries):
        with self.pg() as pg:
            return [pg.execute(query).fetchall() for query in queries]

    def cache(self):
        """Everything in Redis that belongs to coupons, by its value."""
        with self.redis() as cache:
            return {key: cache.dump(key) for key in sorted(cache.keys("coupon*:*"))}

    def backup(self):
        shutil.rmtree(self.data.with_name("backup"), ignore_errors=True)
        self.stack.stop("postgres")
        subprocess.run(["cp", "-a", self.data, self.data.with_name("backup")], check=True)
        self.stack.start("postgres")

    def restore(self):
        """Everything that programs tell Redis of PostgreSQL has reached it; then PostgreSQL goes
        back to the backup."""
        self.before = dict(zip((ROWS, REJECTED, TERMS), self.read(ROWS, REJECTED, TERMS)))
        self.remember()
        self.stack.stop("worker-1", "postgres")
        shutil.rmtree(self.data)
        subprocess.run(["cp", "-a", self.data.with_name("backup"), self.data], check=True)
        self.stack.start("postgres")

    def remember(self):
        with self.pg() as pg, self.redis() as cache:
            copy = dict(pg.execute("SELECT stripe, num FROM change_count").fetchall())
            cache.hset("couponmq:changes", mapping=copy)
            for coupon, version, row in pg.execute(
                "SELECT id, version, to_jsonb(coupon)::text FROM coupon"
            ):
                cache.set(f"coupon:{{{coupon}}}:terms", f"{version} {row}")
            for coupon, batch, at in pg.execute(
                "SELECT DISTINCT coupon_id, batch, (extract(epoch FROM received_at) * 1000)::bigint"
                " FROM (SELECT coupon_id, batch, received_at FROM user_coupon UNION ALL"
                " SELECT coupon_id, batch, received_at FROM receive_rejected) AS outcome"
            ):
                cache.rpush(f"coupon:{{{coupon}}}:settled", f"{ulid_of(batch)}:{at}")
            for coupon, batch, idx, slot, reason, user in pg.execute(
                "SELECT coupon_id, batch, idx, slot, reason, user_id FROM receive_rejected"
            ):
                entry = f"{ulid_of(batch)}:{idx}:{slot}:{reason}:{user}"
                cache.rpush(f"coupon:{{{coupon}}}:rejected", entry)

    def issue(self, coupon, user, ack="issued", **members):
        with self.stack.client() as client:
            reply = wait_until(
                lambda: (
                    (told := client.issue(coupon, user, ack=ack, **members))["status"]
                    != "unavailable"
                    and told
                )
            )
        return reply

    def issue_all(self, coupon, users, **members):
        """Issues for several users; each is asked until the gateway is available."""
        first = self.issue(coupon, users[0], **members)
        request = {"op": "issue", "coupon": coupon, "ack": "issued", **members}
        with self.stack.client() as client:
            replies = client.pipeline([{"user": user, **request} for user in users[1:]])
        return [first] + [
            self.issue(coupon, user, **members) if reply["status"] == "unavailable" else reply
            for user, reply in zip(users[1:], replies)
        ]

    def recover(self, *arguments, program="operator"):
        settings = self.stack.env_of(program)
        told = self.stack.ctl_run("recover", *arguments, "--json", settings=settings)
        assert told.returncode == 0, told
        shown = re.findall(r"^couponctl: users: (\d+) %$", told.stderr, re.MULTILINE)
        assert len(shown) == len(set(shown)), told.stderr
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        assert lines[-1]["what"] == "end"
        return lines[:-1], lines[-1]


@pytest.fixture(scope="module")
def own_stack(stack_make):
    own = stack_make()
    own.settings = {"COUPON_KEEPER_LEASE_MS": 1000, "COUPON_KEEPER_ROUND_MS": 100}
    own.services()
    own.start("gateway", "worker-1")
    yield own
    own.down()


@pytest.fixture
def world(own_stack):
    for name in ("redis", "rabbitmq", "postgres", "gateway", "worker-1"):
        if not own_stack.runs(name):
            own_stack.start(name)
    own = World(own_stack)
    yield own
    own_stack.ctl_run("recover", "--all")


def reject(world, coupon, users):
    """Receives that PostgreSQL has no stock for; their slots are freed."""
    with world.pg() as pg:
        total = "UPDATE coupon SET total_num = %s WHERE id = %s"
        before = "SELECT total_num FROM coupon WHERE id = %s"
        (num,) = pg.execute(before, (coupon,)).fetchone()
        pg.execute(total, (1, coupon))
        replies = world.issue_all(coupon, users)
        assert {reply["status"] for reply in replies} == {"rejected"}
        freed = (
            "SELECT count(*) FROM receive_rejected WHERE coupon_id = %s AND freed_at IS NOT NULL"
        )
        wait_until(lambda: pg.execute(freed, (coupon,)).fetchone() == (len(users),))
        pg.execute(total, (num, coupon))


def campaigns(world):
    """Coupons before and after the backup, with receives in each state. Returns those that are open
    at the end."""
    ctl, make, issue = world.stack.ctl, world.stack.coupon_make, world.issue
    many = make(100, limit=3, name="many")
    larger = make(
        2, name="larger", valid_from="2026-01-01T00:00:00Z", valid_to="2036-01-01T00:00:00Z"
    )
    paused, closed = make(10, name="paused"), make(10, name="closed")
    draft = make(10, name="draft", publish=False)
    rejecting = make(100, name="rejecting")
    assert issue(many, "early", key="k1")["status"] == "issued"
    assert issue(larger, "early")["status"] == "issued"
    # One that was there before is not to be checked, also if nobody may spend it.
    ctl("budget", "create", f"frozen.{many}", "--amount", "0.00", "--currency", "EUR")
    world.backup()
    for user in ("early", "late"):
        for key in ("k1", "k2", "k3"):
            assert issue(many, user, key=key)["status"] == "issued"
    assert issue(rejecting, "other")["status"] == "issued"
    reject(world, rejecting, ["rejected:user"])
    ctl("stock", larger, "--total", 5)
    for user in range(4):
        assert issue(larger, user)["status"] == "issued"
    for coupon, command in ((paused, "pause"), (closed, "close")):
        assert issue(coupon, 1)["status"] == "issued"
        ctl(command, coupon)
    ctl("publish", draft)
    assert issue(draft, "auth0|x")["status"] == "issued"
    new = make(50, limit=2, name='new "name"', valid_days=7)
    assert issue(new, 1, key="a:b")["status"] == "issued"
    budget = f"late.{new}"
    ctl("budget", "create", budget, "--amount", "50.00", "--currency", "EUR")
    terms = {"amount_off": "5.00", "currency": "EUR", "budget": budget}
    make(5, name="second draft", publish=False, **terms)
    return many, rejecting, draft, new


def test_nothing_to_recover(world):
    assert "nothing to recover" in world.stack.ctl("recover", "--all")
    assert "nothing to recover" in world.stack.ctl("recover", "--accept-loss")
    assert world.recover("--all")[1]["receives"] == 0
    for wrong in ((), ("--all", "--accept-loss")):
        told = world.stack.ctl_run("recover", *wrong)
        assert told.returncode == 2 and "--accept-loss" in told.stderr


def test_changes_are_refused(world):
    stack = world.stack
    coupon, draft = stack.coupon_make(10), stack.coupon_make(10, publish=False)
    world.backup()
    stack.coupon_make(10)
    world.restore()
    behind = "PostgreSQL is behind Redis by at least"
    for command in (
        ("create", "--name", "x", "--total", 1),
        ("publish", draft),
        ("pause", coupon),
        ("resume", coupon),
        ("close", coupon),
        ("stock", coupon, "--total", 20),
        ("rebuild", coupon),
        ("rebuild", coupon, "--give-up-lost"),
    ):
        told = stack.ctl_run(*command)
        assert told.returncode == 10 and behind in told.stderr, told
    assert behind in stack.ctl("show", coupon)
    assert json.loads(stack.ctl("show", coupon, "--json"))["behind"] > 0
    told = stack.ctl_run("audit", coupon, "--json")
    assert told.returncode != 0 and json.loads(told.stdout)["behind"] > 0
    assert behind in stack.ctl_run("audit", coupon).stdout
    assert stack.ctl("list") and stack.ctl("migrate")
    stack.ctl("recover", "--all")
    stack.start("worker-1")
    stack.ctl("stock", coupon, "--total", 20)
    assert json.loads(stack.ctl("show", coupon, "--json"))["behind"] == 0


def test_changes_need_redis(world):
    stack = world.stack
    coupon = stack.coupon_make(10)
    stack.stop("redis")
    for command in (
        ("create", "--name", "x", "--total", 1),
        ("close", coupon),
        ("rebuild", coupon),
    ):
        told = stack.ctl_run(*command)
        assert told.returncode == 10 and "Redis" in told.stderr, told
    assert json.loads(stack.ctl_run("show", coupon, "--json").stdout)["behind"] is None
    stack.start("redis")


def in_flight(world, coupon, users):
    """Accepted, and settled by no worker."""
    world.stack.stop("worker-1")
    replies = world.issue_all(coupon, users, ack="queued")
    assert {reply["status"] for reply in replies} == {"queued"}


def assert_open(world, coupons):
    world.stack.start("worker-1")
    for coupon in coupons:
        assert world.issue(coupon, "after", key="new")["status"] == "issued"
    wait_until(lambda: world.stack.ctl_run("audit", "--all", "--grace", 0).returncode == 0)


def assert_recovered(world, coupons, users):
    rows, rejected, terms = world.read(ROWS, REJECTED, TERMS)
    assert terms == world.before[TERMS] and rejected == world.before[REJECTED]
    extra = [(coupons[0], user) for user in users]
    assert [row for row in rows if (str(row[0]), row[1]) not in extra] == world.before[ROWS]
    assert len(rows) == len(world.before[ROWS]) + len(users)
    assert "nothing to recover" in world.stack.ctl("recover", "--all")
    assert_open(world, coupons)
    with world.pg() as pg:
        flight = "SELECT count(*) FROM coupon_generation WHERE settled_num <> seq_seen"
        assert pg.execute(flight).fetchone() == (0,)


@pytest.mark.always
def test_everything_comes_back(world):
    coupons = campaigns(world)
    in_flight(world, coupons[0], ["flight1", "flight2"])
    world.restore()
    states = world.read(*ALL), world.cache()
    named, dry = world.recover("--all", "--dry-run")
    assert (world.read(*ALL), world.cache()) == states
    named_then, done = world.recover("--all")
    assert named_then == [*named, {"what": "check", "budget": f"late.{coupons[-1]}"}]
    assert "frozen." not in str(named)
    assert {**done, "ms": 0} == {**dry, "ms": 0, "dry_run": False}
    assert done["receives"] == len(world.before[ROWS]) - len(states[0][0]) + 2
    assert done["rejections"] == 1 and done["receives_rejected"] == 0 == done["unreadable"]
    assert done["created"] == 2 and done["changed"] == 4, named
    assert_recovered(world, coupons, ["flight1", "flight2"])
    with world.pg() as pg:
        ids = pg.execute("SELECT last_value, (SELECT max(id) FROM coupon) FROM coupon_id_seq")
        assert len(set(ids.fetchone())) == 1


# What orders have done


USED = (
    "SELECT coupon_id, batch, idx, state, order_id, until, amount_off, budget FROM receive_use"
    " ORDER BY coupon_id, batch, idx",
    "SELECT * FROM use_operation WHERE to_state IS NOT NULL ORDER BY num",
    "SELECT name, held, spent FROM budget ORDER BY name",
)


def budget_make(world, coupon, amount):
    """A budget for this coupon, each of whose uses takes 100."""
    with world.pg() as pg:
        name = f"b{coupon}"
        insert = "INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', %s)"
        pg.execute(insert, (name, amount))
        terms = "UPDATE coupon SET currency = 'EUR', amount_off = 100, budget = %s WHERE id = %s"
        pg.execute(terms, (name, coupon))


def uses_make(world, shop):
    """Uses of one coupon, before and after the backup: its receives, and its id."""
    coupon = world.stack.coupon_make(10)
    budget_make(world, coupon, 1000)
    receives = [receive_of(world.stack, coupon, str(user)) for user in range(4)]
    assert shop.use(("use", "a", receives[0]), ("hold", "a", receives[1])) == ["used", "held"]
    at_rest(world)
    world.backup()
    assert shop.use(("rollback", "a", receives[0]), ("use", "b", receives[2])) == [
        "rolled_back",
        "used",
    ]
    assert shop.use(("use", "a", receives[1]), ("hold", "c", receives[0])) == ["used", "held"]
    assert shop.use(("use", "d", receives[1])) == ["already_used"]
    return receives


@pytest.mark.long
@pytest.mark.parametrize("how", [("--all",), ("--tail", 1000)])
def test_uses_come_back(world, how):
    """In their order; nobody else can have a receive whose use was answered."""
    shop = Shop(world.stack)
    receives = uses_make(world, shop)
    before = world.read(*USED)
    world.restore()
    assert world.read(*USED) != before
    program = {"program": "worker"} if how[0] == "--tail" else {}
    with world.redis() as cache:
        cache.rpush(USES, "[1]")
        dry = world.recover(*how, "--dry-run", **program)[1]
        done = world.recover(*how, **program)[1]
        cache.lrem(USES, 0, "[1]")
    assert dry["uses"] == done["uses"] == 4 and done["uses_lost"] == 0
    assert done["unreadable"] == 1
    assert world.read(*USED) == before
    world.stack.start("worker-1")
    told = shop.use(*(("use", "e", one) for one in receives))
    assert told == ["held_by_other", "already_used", "already_used", "used"]
    nums = world.read("SELECT count(*) - count(DISTINCT num) FROM use_operation")
    assert nums == [[(0,)]], "the numbers go on"


@pytest.mark.long
def test_uses_are_given_up(world):
    shop = Shop(world.stack)
    receives = uses_make(world, shop)
    world.restore()
    states = world.read(*USED)
    done = world.recover("--accept-loss", "--yes")[1]
    assert (done["uses"], done["uses_lost"]) == (0, 4)
    assert world.read(*USED) == states
    with world.redis() as cache:
        assert not cache.exists(USES)
    world.stack.start("worker-1")
    assert shop.use(("use", "a", receives[0]), ("use", "e", receives[3])) == ["used", "used"]


# Codes, and users


@pytest.mark.long
def test_codes_come_back(world, tmp_path):
    """Claimed after the backup, two of them not settled: with a key, without, and a word."""
    coupon = world.stack.coupon_make(9, limit=2)
    path = tmp_path / "codes.csv"
    path.write_text("code\n" + "".join(f"RECOVER-{n}\n" for n in range(4)))
    world.stack.ctl("codes", "import", coupon, path)
    world.stack.ctl("codes", "generate", coupon, "--word", "RECOVERED")
    with world.pg() as pg, world.stack.client() as client:
        ((sets,),) = pg.execute("SELECT count(*) FROM code_set")
        wait_until(lambda: client.call("stats")["stats"].get("code_sets", 0) >= sets)
    world.backup()

    def claim(code, user, ack="issued", **members):
        with world.stack.client() as client:
            return client.call("claim", code=code, user=user, ack=ack, **members)

    # Until the gateway has connected to PostgreSQL again, and the worker.
    wait_until(lambda: claim("RECOVER-0", "a")["status"] == "issued")
    wait_until(lambda: claim("RECOVER-1", "b", key="order-7")["status"] == "issued")
    wait_until(lambda: claim("RECOVERED", "b", key="order-8")["status"] == "issued")
    world.stack.stop("worker-1")
    assert claim("RECOVER-2", "c", ack="accepted")["status"] == "accepted"
    world.stack.start("worker-1")
    rows = (
        "SELECT user_id, slot, batch, idx, key, code FROM user_coupon"
        f" WHERE coupon_id = {coupon} ORDER BY user_id, slot",
        "SELECT set_id, serial, state, user_id, batch, idx FROM code"
        f" WHERE coupon_id = {coupon} ORDER BY set_id, serial",
    )
    wait_until(lambda: len(world.read(rows[0])[0]) == 4)
    before = world.read(*rows)
    assert [row[4] for row in before[0]] == [None, "order-7", "order-8", None]
    world.restore()
    assert world.read(*rows)[0] == []
    world.recover("--all")
    assert world.read(*rows) == before
    world.stack.start("worker-1")
    wait_until(lambda: world.stack.ctl_run("audit", coupon).returncode == 0)
    assert claim("RECOVER-1", "c")["status"] == "code_used"
    assert claim("RECOVER-1", "b")["status"] == "issued"


@pytest.mark.long
def test_any_user_comes_back(world):
    n = len(HOSTILE)
    flight, issued, rejecting = (world.stack.coupon_make(n + 10) for _ in range(3))
    assert world.issue(rejecting, "other")["status"] == "issued"
    world.backup()
    replies = world.issue_all(issued, HOSTILE, key='k:"\\')
    assert {reply["status"] for reply in replies} == {"issued"}
    reject(world, rejecting, HOSTILE)
    in_flight(world, flight, HOSTILE)
    world.restore()
    dry = world.recover("--all", "--dry-run")[1]
    done = world.recover("--all")[1]
    assert {**done, "ms": 0} == {**dry, "ms": 0, "dry_run": False}
    assert (done["receives"], done["rejections"]) == (2 * n, n)
    assert (done["receives_rejected"], done["unreadable"]) == (0, 0)
    assert_recovered(world, [flight, issued, rejecting], HOSTILE)


@pytest.mark.long
def test_corrupt_records_stop_no_others(world):
    coupon = world.stack.coupon_make(20)
    world.backup()
    replies = world.issue_all(coupon, HOSTILE[:10])
    world.restore()
    keys = ("k\x7f", "k\udcff", "k" * 256)
    batch = ulid_make()
    rejections = ("x", f"{batch}:0:1:newer_reason:u", f"{batch}:0:1:lost:a b", f"{batch}:0:1:")
    users, rejected = (f"coupon:{{{coupon}}}:{part}" for part in ("users", "rejected"))
    url = world.stack.env["REDIS_URL"]
    with redis.Redis.from_url(url, encoding_errors="surrogateescape") as cache:
        for n, key in enumerate(keys):
            cache.hset(users, f"corrupt{n}", f"1:{ulid_make()}:0:{key}")
        cache.rpush(rejected, *rejections)
        named, done = world.recover("--all")
        corrupt = len(keys) + len(rejections)
        assert done["receives"] == len(replies) and done["unreadable"] == corrupt, named
        assert [line["what"] for line in named].count("unreadable") == corrupt
        cache.hdel(users, *(f"corrupt{n}" for n in range(len(keys))))
        cache.ltrim(rejected, 0, -1 - len(rejections))
    assert_open(world, [coupon])


def at_rest(world):
    """The keeper has loaded, rebuilt and settled everything, which is counted."""
    wait_until(lambda: world.stack.ctl_run("audit", "--all", "--grace", 0).returncode == 0)
    unsettled = "SELECT count(*) FROM coupon WHERE status = 'closed' AND settled_at IS NULL"
    wait_until(lambda: world.read(unsettled) == [[(0,)]])


def slot_take(world, coupon, user):
    """By a receive that Redis does not know."""
    with world.pg() as pg:
        pg.execute(
            "INSERT INTO user_coupon (user_id, coupon_id, slot, batch, idx, received_at,"
            " valid_from) VALUES (%s, %s, 1, %s, 0, now(), now())",
            (user, coupon, ulid_uuid(ulid_make())),
        )
        pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))


def tail_refused(world, why, most=1000):
    """It changes nothing."""
    commands = "SELECT count(*) FROM command_history"  # which `couponctl history` lists
    states = world.read(*ALL, commands), world.cache()
    told = world.stack.ctl_run("recover", "--tail", most)
    assert told.returncode == 11 and why in told.stderr, told
    assert (world.read(*ALL, commands), world.cache()) == states


def test_the_tail_comes_back(world):
    """By the rights of a worker, whose keeper does it."""
    coupon, rejecting = world.stack.coupon_make(100, limit=2), world.stack.coupon_make(100)
    assert world.issue(coupon, "early", key="k1")["status"] == "issued"
    at_rest(world)
    slot_take(world, rejecting, "taken")
    world.backup()
    for user, key in (("early", "k1"), ("early", "k2"), ("late", "k1"), ("later", "k1")):
        assert world.issue(coupon, user, key=key)["status"] == "issued"
    assert world.issue(rejecting, "taken")["status"] == "rejected"
    freed = f"SELECT count(freed_at) FROM receive_rejected WHERE coupon_id = {rejecting}"
    wait_until(lambda: world.read(freed) == [[(1,)]])
    in_flight(world, coupon, ["flight"])
    world.restore()
    tail_refused(world, "transactions are missing, more than 1", most=1)
    states = world.read(*ALL), world.cache()
    dry = world.recover("--tail", 1000, "--dry-run", program="worker")[1]
    assert (world.read(*ALL), world.cache()) == states
    named, done = world.recover("--tail", 1000, "--by", "me", program="worker")
    assert {**done, "ms": 0} == {**dry, "ms": 0, "dry_run": False}
    assert named == [] and done["rejections"] == 1 and done["receives"] == 4
    assert_recovered(world, [coupon, rejecting], ["flight"])
    assert world.read("SELECT made_by, how FROM recovery ORDER BY id DESC LIMIT 1") == [
        [("me", "tail")]
    ]


def test_a_void_is_not_of_the_tail(world):
    coupon = world.stack.coupon_make(10)
    receive = world.issue(coupon, "early")["receive"]
    at_rest(world)
    world.backup()
    assert world.issue(coupon, "late")["status"] == "issued"
    world.stack.ctl("void", receive)
    world.restore()
    tail_refused(world, "did not settle receives")
    world.recover("--all")
    assert_recovered(world, [coupon], [])


def test_an_api_key_is_not_of_the_tail(world):
    coupon = world.stack.coupon_make(10)
    at_rest(world)
    world.backup()
    assert world.issue(coupon, "late")["status"] == "issued"
    world.stack.ctl("key", "create", "--name", "late", "--role", "issue")
    world.restore()
    tail_refused(world, "1 changes of API keys are missing")
    assert world.recover("--all")[1]["keys_created"] == 1


def test_what_was_not_counted_is_not_of_the_tail(world):
    """Terms: there was no row of change_count to take, for the keeper neither."""
    coupon = world.stack.coupon_make(10)
    at_rest(world)
    world.stack.stop("worker-1")
    world.backup()
    with world.pg() as pg:
        pg.execute("SELECT pg_advisory_lock('change_count'::regclass::int, generate_series(0, 63))")
        world.stack.start("worker-1")
        assert world.issue(coupon, "late")["status"] == "issued"
        world.stack.ctl("stock", coupon, "--total", 20)
    world.restore()
    tail_refused(world, f"of coupon {coupon} more is missing than receives: its terms")
    assert world.recover("--all")[1]["changed"] == 1


def recover(world, *options):
    return subprocess.Popen(
        [str(world.stack.build_dir / "couponctl"), "recover", *options],
        env={**os.environ, **world.stack.env_of("operator")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.long
def test_killed_at_any_moment(world):
    coupons = campaigns(world)
    in_flight(world, coupons[0], ["flight1"])
    world.restore()
    for _ in killed(lambda: recover(world, "--all"), random.Random(SEED), 8, 0.15):
        pass
    world.stack.ctl("recover", "--all")
    assert_recovered(world, coupons, ["flight1"])


def test_two_at_once(world):
    coupon = world.stack.coupon_make(10)
    with world.pg() as pg:
        pg.execute("SELECT pg_advisory_lock(hashtext('couponmq'), hashtext('recover'))")
        told = world.stack.ctl_run("recover", "--all")
    assert told.returncode == 10 and "another couponctl recover is running" in told.stderr, coupon


@pytest.mark.long
def test_accept_loss_names_each(world):
    stack = world.stack
    known = stack.coupon_make(100, limit=2)
    assert world.issue(known, "early", key="k")["status"] == "issued"
    world.backup()
    lost = [world.issue(known, user)["receive"] for user in ("early", "a.b", "c")]
    unknown = stack.coupon_make(10)
    lost.append(world.issue(unknown, 5)["receive"])
    in_flight(world, known, ["flight"])
    world.restore()
    states = world.read(*ALL), world.cache()
    told = stack.ctl_run("recover", "--accept-loss")
    assert told.returncode == 1 and "--yes" in told.stderr
    assert sorted(re.findall(r"^lost: receive (\S+),", told.stdout, re.MULTILINE)) == sorted(lost)
    assert world.recover("--accept-loss", "--dry-run")[1]["receives_lost"] == 4
    assert (world.read(*ALL), world.cache()) == states
    named, done = world.recover("--accept-loss", "--yes")
    assert sorted(line["receive"] for line in named if line["what"] == "lost") == sorted(lost)
    assert done["receives_lost"] == 4 and done["deleted"] == 1
    with world.redis() as cache:
        assert not cache.keys(f"coupon:{{{unknown}}}*")
    stack.start("worker-1")
    with stack.client() as client:
        wait_until(lambda: client.call("status", receive=lost[0])["status"] == "rejected")
    users = f"SELECT user_id FROM user_coupon WHERE coupon_id = {known} ORDER BY user_id"
    wait_until(lambda: world.read(users) == [[("early",), ("flight",)]])
    assert world.issue(known, "c")["status"] == "issued", "its coupon is free again"
    assert_open(world, [known])


@pytest.mark.long
def test_accept_loss_killed_at_any_moment(world):
    """Each lost receive is named by some run, and recorded once."""
    stack = world.stack
    known = stack.coupon_make(1000)
    assert world.issue(known, "early")["status"] == "issued"
    world.backup()
    lost = {world.issue(known, f"late{user}")["receive"] for user in range(40)}
    unknown = stack.coupon_make(10)
    lost.add(world.issue(unknown, 5)["receive"])
    world.restore()
    told = ""
    accept = ("--accept-loss", "--yes")
    for text in killed(lambda: recover(world, *accept), random.Random(SEED), 8, 0.15):
        told += text
    told += stack.ctl("recover", "--accept-loss", "--yes")
    assert set(re.findall(r"^lost: receive (\S+),", told, re.MULTILINE)) == lost
    ids = "coupon_id || '.' || user_id || '.' || batch || '.' || idx"
    rows, rejected = world.read(
        f"SELECT user_id FROM user_coupon WHERE coupon_id = {known}",
        f"SELECT count(*), count(DISTINCT {ids}) FROM receive_rejected"
        f" WHERE coupon_id = {known} AND reason = 'lost'",
    )
    assert rows == [("early",)] and rejected == [(40, 40)]
    assert_open(world, [known])


@pytest.mark.long
def test_what_settling_rejects_is_named(world):
    """PostgreSQL has another receive in the slot: it was put back, and then used."""
    coupon = world.stack.coupon_make(10)
    world.issue(coupon, 1)
    world.backup()
    reply = world.issue(coupon, 2)
    world.stack.coupon_make(1)
    world.restore()
    slot_take(world, coupon, "2")
    named, done = world.recover("--all")
    assert done["receives_rejected"] == 1
    rejected = [line for line in named if line["what"] == "rejected"]
    assert [(line["receive"], line["reason"]) for line in rejected] == [
        (reply["receive"], "slot_taken")
    ]
    assert_open(world, [coupon])


def assert_named(what, replies, text, named, reason=None):
    """Each user's receive, in text and in --json, and no other."""
    receives = {reply["receive"]: user for user, reply in zip(HOSTILE, replies)}
    end = f": {reason}" if reason else ""
    assert sorted(line for line in text.splitlines() if line.startswith(f"{what}: ")) == sorted(
        f"{what}: receive {receive}, user {user}, slot 1{end}" for receive, user in receives.items()
    )
    told = [line for line in named if line["what"] == what]
    assert {line["receive"]: line["user"] for line in told} == receives
    assert len(told) == len(receives) == len(HOSTILE)
    assert {(line["slot"], line["reason"]) for line in told} == {(1, reason)}


def rejected_users(world, coupon, reason):
    query = "SELECT user_id FROM receive_rejected WHERE coupon_id = %s AND reason = %s"
    with world.pg() as pg:
        return sorted(user for (user,) in pg.execute(query, (coupon, reason)))


@pytest.mark.long
def test_any_user_that_settling_rejects_is_named(world):
    coupon = world.stack.coupon_make(2 * len(HOSTILE))
    world.backup()
    replies = world.issue_all(coupon, HOSTILE)
    world.stack.coupon_make(1)
    world.restore()
    with world.pg() as pg:
        for user in HOSTILE:
            pg.execute(
                "INSERT INTO user_coupon (user_id, coupon_id, slot, batch, idx, received_at,"
                " valid_from) VALUES (%s, %s, 1, %s, 0, now(), now())",
                (user, coupon, ulid_uuid(ulid_make())),
            )
        issued = "UPDATE coupon SET issued_num = issued_num + %s WHERE id = %s"
        pg.execute(issued, (len(HOSTILE), coupon))
    text = world.stack.ctl("recover", "--all", "--dry-run")
    named, done = world.recover("--all")
    assert_named("rejected", replies, text, named, "slot_taken")
    assert done["receives_rejected"] == len(HOSTILE) and done["unreadable"] == 0
    assert rejected_users(world, coupon, "slot_taken") == sorted(HOSTILE)
    assert_open(world, [coupon])


@pytest.mark.long
def test_any_user_that_is_lost_is_named(world):
    coupon = world.stack.coupon_make(2 * len(HOSTILE))
    world.backup()
    replies = world.issue_all(coupon, HOSTILE)
    world.restore()
    text = world.stack.ctl("recover", "--accept-loss", "--dry-run")
    named, done = world.recover("--accept-loss", "--yes")
    assert_named("lost", replies, text, named)
    assert done["receives_lost"] == len(HOSTILE) and done["unreadable"] == 0
    assert rejected_users(world, coupon, "lost") == sorted(HOSTILE)
    assert_open(world, [coupon])


@pytest.mark.long
def test_ids_far_away_do_not_move_the_sequence(world):
    stack = world.stack
    world.backup()
    far = stack.coupon_make(10, id=7_000_000_000_000_000_001)
    near = stack.coupon_make(10)
    world.restore()
    world.stack.ctl("recover", "--all")
    stack.start("worker-1")
    assert int(stack.coupon_make(1)) == int(near) + 1, far


def test_a_voided_receive_is_not_brought_back(world):
    """Issued before the backup or after it, voided after it; the slot of one has another owner."""
    ctl, issue = world.stack.ctl, world.issue
    returning = world.stack.coupon_make(9, limit=2)
    keeping = world.stack.coupon_make(9, void_returns="no")
    early = [issue(coupon, "early")["receive"] for coupon in (returning, keeping)]
    world.backup()
    late = [issue(coupon, "late")["receive"] for coupon in (returning, keeping)]
    for receive in early + late:
        ctl("void", receive)
    wait_until(lambda: issue(returning, "early")["status"] == "issued")
    voids = (
        "SELECT coupon_id, batch, idx, user_id, slot, is_returned FROM coupon_void ORDER BY 1, 2"
    )
    before = world.read(ROWS, voids)
    # Only what the programs have told Redis by themselves.
    world.stack.stop("worker-1", "postgres")
    shutil.rmtree(world.data)
    subprocess.run(["cp", "-a", world.data.with_name("backup"), world.data], check=True)
    world.stack.start("postgres")
    world.recover("--all")
    assert world.read(ROWS, voids) == before
    world.stack.start("worker-1")
    with world.stack.client() as client:
        for receive in early + late:
            wait_until(lambda: client.call("status", receive=receive).get("reason") == "voided")
    for coupon in (returning, keeping):
        wait_until(lambda: world.stack.ctl_run("audit", coupon).returncode == 0)


@pytest.mark.long
def test_what_is_recovered_is_told_again(world):
    """PostgreSQL loses events with the facts that they tell: both come back."""
    coupon = world.stack.coupon_make(9, limit=2, events="on")
    events = Subscriber(world.stack, f"event.{coupon}.#", name="recovered")
    world.backup()
    issued, voided = (world.issue(coupon, user)["receive"] for user in ("late", "voided"))
    world.stack.ctl("void", voided)
    told = {
        f"{'.'.join(receive.rsplit('.', 2)[1:])}/{what}"
        for receive, what in ((issued, "issued"), (voided, "voided"))
    }
    wait_until(lambda: told <= set(events.ids()))
    events.events.clear()
    world.restore()
    world.recover("--all")
    world.stack.start("worker-1")
    wait_until(lambda: told <= set(events.ids()))
    events.close()
