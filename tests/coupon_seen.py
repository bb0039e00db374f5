"""The state of one coupon in Redis and PostgreSQL, and of the keeper, as a test reads it."""

from process import metrics_read
from stack import Stack, wait_until

KEEPER_LOCK = "couponmq:lock:{keeper}"


class Seen:
    def __init__(self, coupon, redis_client, pg):
        self.coupon, self.redis, self.pg = coupon, redis_client, pg
        self.key = f"coupon:{{{coupon}}}"

    def field(self, name):
        return self.redis.hget(self.key, name)

    def row(self, *names):
        return self.pg.execute(
            f"SELECT {', '.join(names)} FROM coupon WHERE id = %s", (self.coupon,)
        ).fetchone()

    def all(self):
        rows = self.pg.execute(
            "SELECT coupon::text FROM coupon WHERE id = %s", (self.coupon,)
        ).fetchone()
        return rows, {key: (self.redis.dump(key), self.redis.pttl(key) > 0) for key in self.keys()}

    def keys(self):
        return sorted(self.redis.keys(f"{self.key}*"))

    def is_settled(self):
        return self.row("settled_at IS NOT NULL AND expires_at IS NOT NULL") == (True,)


def keeper_fence(pg):
    return pg.execute("SELECT fence FROM keeper").fetchone()[0]


def keeper_holders(cache):
    """The holders of the keeper's lock whose lease has not ended."""
    seconds, microseconds = cache.time()
    now_ms = seconds * 1000 + microseconds // 1000
    return [
        holder
        for holder, lease in cache.hgetall(KEEPER_LOCK).items()
        if ":" in holder and int(lease.split()[0]) > now_ms
    ]


def elections_ended(log):
    """How often a worker has found that it is no longer the keeper: by the lock, or by the fence
    of the next one."""
    return log.count("event=keeper_lost") + log.count("event=keeper_fenced")


def keeper_usurp(cache):
    """Somebody else holds the keeper's lock, from when it is free until it is deleted."""
    wait_until(lambda: not keeper_holders(cache))
    lease_ms = 600_000
    until_ms = cache.time()[0] * 1000 + lease_ms
    cache.hset(KEEPER_LOCK, "x:somebody.1", f"{until_ms} 1 {lease_ms}")


def rounds_pass(worker, count=5):
    """Waits until the keeper of that worker, or of a stack's workers, has finished so many rounds:
    for what a keeper has promised for a time, which a busy machine cannot measure."""

    def rounds():
        urls = [worker.http("/metrics")]
        if isinstance(worker, Stack):
            numbers = [n for n in (1, 2) if worker.runs(f"worker-{n}")]
            urls = [worker.worker_http(n, "/metrics") for n in numbers]
        return sum(metrics_read(url)["couponmq_keeper_rounds_total"] for url in urls)

    before = rounds()
    wait_until(lambda: rounds() > before + count)


def copied_before(monitor, coupon, total):
    """The numbers that were copied to Redis before the coupon got that total."""
    copied = {}
    for told in monitor.listen():
        words = told["command"].split()
        fields = dict(zip(words[2::2], words[3::2]))
        if words[:2] == ["HSET", "couponmq:changes"]:
            copied |= fields
        elif words[:2] == ["HSET", f"coupon:{{{coupon}}}"] and fields.get("total") == total:
            return copied
