"""A database for these tests, in a PostgreSQL of their own."""

import random
import threading

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fresh import Fresh, database_empty, database_migrated
from sql_db import Db


USES = ("receive_use", "use_operation")


@pytest.fixture(scope="session")
def stack(stack_make):
    """A stack of which only PostgreSQL runs."""
    alone = stack_make()
    alone.start("postgres")
    return alone


@pytest.fixture(scope="session")
def database(stack):
    """(the programs' conninfo, the owner's)"""
    with database_migrated(stack) as urls:
        yield urls


class Pool:
    """Connections of the owner, which tests have one after the other: to open one costs more than
    most tests."""

    def __init__(self, url):
        self.url, self.idle = url, []

    def take(self):
        return self.idle.pop() if self.idle else Db(self.url)

    def close(self):
        for one in self.idle:
            one.close()

    def put(self, one):
        try:
            one.reset()
            self.idle.append(one)
        except psycopg.Error:  # the test has closed it
            one.close()


@pytest.fixture(scope="module")
def pool(database):
    made = Pool(database[1])
    yield made
    made.close()


@pytest.fixture
def ids_given(pool):
    """The coupons of this test. Their rows are deleted when it ends, after its connections are
    reset."""
    given = []
    yield given
    if given:
        owner = pool.take()
        owner.execute("SET lock_timeout = '10s'")
        owner.execute("DELETE FROM coupon WHERE id = ANY (%s)", given)
        for table in ("user_coupon", "receive_rejected", "coupon_generation", *USES):
            owner.execute(f"DELETE FROM {table} WHERE coupon_id = ANY (%s)", given)
        pool.put(owner)


@pytest.fixture
def connections(ids_given):
    """Connections to other databases, and of other kinds; they are closed when the test ends."""
    opened = []
    yield opened
    for one in opened:
        one.close()


@pytest.fixture
def pooled(pool, connections):
    taken = []
    yield taken
    for one in taken:
        pool.put(one)


@pytest.fixture
def db_new(pool, pooled):
    """db_new(): one more connection of the owner."""

    def make():
        pooled.append(pool.take())
        return pooled[-1]

    return make


@pytest.fixture
def db(db_new):
    return db_new()


@pytest.fixture
def owner(db_new):
    return db_new()


@pytest.fixture
def coupon_id(ids_given):
    """coupon_id(): an unused id of 19 digits."""

    def make():
        ids_given.append(random.SystemRandom().randrange(9 * 10**18, 2**63 - 1))
        return ids_given[-1]

    return make


@pytest.fixture
def coupon_new(db, coupon_id):
    """coupon_new(total, limit): the id of a draft."""

    def make(total=100, limit=1, begin=None, end=None, days=None, **terms):
        wanted = coupon_id()
        made = db.coupon_create(
            wanted, total, limit, begin_at=begin, end_at=end, valid_days=days, **terms
        )
        assert made == [{"id": str(wanted)}]
        return wanted

    return make


class Running:
    """A call in a thread of its own; result() returns its result or raises its exception."""

    def __init__(self, call, *args):
        self.value = self.error = None
        self.thread = threading.Thread(target=self.run, args=(call, args), daemon=True)
        self.thread.start()

    def run(self, call, args):
        try:
            self.value = call(*args)
        except BaseException as error:
            self.error = error

    def result(self, timeout=60):
        self.thread.join(timeout)
        assert not self.thread.is_alive(), f"still running after {timeout} s"
        if self.error:
            raise self.error
        return self.value


@pytest.fixture
def background(connections, pooled):
    """background(call, *args): a Running, which is cancelled if it still runs when the test
    ends."""
    started = []

    def start(call, *args):
        started.append(Running(call, *args))
        return started[-1]

    yield start
    while any(running.thread.is_alive() for running in started):
        for one in [*connections, *pooled]:
            one.connection.cancel()
        for running in started:
            running.thread.join(0.1)


@pytest.fixture
def empty(stack):
    """An empty database of the owner, as Fresh."""
    with database_empty(stack) as name:
        made = Fresh(stack, make_conninfo(stack.env["DATABASE_ADMIN_URL"], dbname=name))
        try:
            yield made
        finally:
            made.connection.close()


@pytest.fixture
def budget(db):
    """budget(amount): the name of a new budget."""
    made = []

    def make(amount):
        made.append(f"b{db.pid}.{len(made)}")
        db.execute(
            "INSERT INTO budget (name, currency, amount) VALUES (%s, 'EUR', %s)",
            made[-1],
            amount,
        )
        return made[-1]

    yield make
    db.execute("ROLLBACK")
    db.execute("UPDATE coupon SET budget = NULL WHERE budget = ANY (%s)", made)
    db.execute("DELETE FROM budget WHERE name = ANY (%s)", made)
    db.execute("DELETE FROM budget_history WHERE name = ANY (%s)", made)
