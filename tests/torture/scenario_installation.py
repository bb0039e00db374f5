"""A worker whose DATABASE_URL names the database of another installation joins under load."""

from installation import another_installation
from process import Worker
from services import say

from scenario import REDIS_LOSES, scenario


@scenario(**REDIS_LOSES)
def worker_of_another_database(rig, chance):
    """A worker of another, busier database; then Redis loses its data beside it."""
    with rig.pg() as pg, another_installation(rig.stack) as other:
        (own,) = pg.execute("SELECT id::text FROM installation").fetchone()
        before = other.rows()
        rig.wait_answers(chance.randint(50, 300))
        wrong = Worker(rig.stack, "worker-wrong", {**rig.settings, **other.env})
        rig.on_end(wrong.end)
        rig.wait(lambda: "event=installation_differs" in wrong.log())
        say("the worker is there")
        rig.wait_answers(200)
        with rig.redis() as cache:
            cache.flushall()
            say("FLUSHALL")
            rig.wait(lambda: cache.hget("couponmq:changes", "installation") == own)
        rig.wait_answers(200)
        log = wrong.log()
        assert wrong.metrics()["couponmq_worker_consumer_up"] == 0
        assert "event=ready" not in log and "keeper_elected" not in log
        wrong.end()
        assert other.rows() == before, "it has changed its own PostgreSQL"
