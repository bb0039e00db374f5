"""Redis evicts keys, loses some of a coupon, has no room on its disk, and does not start from what
is left of its log."""

import re
import subprocess

from services import on_small_disk, say

from scenario import REDIS_LOSES, scenario

MB = 1 << 20
KINDS = ("", ":users", ":outbox", ":codes", ":rejected")


# A slot that is given out twice is taken from the stock twice, until the coupon is rebuilt.
PARTLY = {**REDIS_LOSES, "answers": (*REDIS_LOSES["answers"], "stock too low")}


def rebuild_all(rig):
    """As docs/guides/backup.md has it: whatever of a coupon was lost without the rest, comes
    back."""
    around = rig.around
    coupons = [campaign.coupon for campaign in rig.load.campaigns]
    for coupon in (*coupons, around.claimers.coupon, *around.shoppers.coupons):
        rig.stack.ctl("rebuild", coupon)


def policy_reset(rig):
    with rig.redis() as cache:
        cache.config_set("maxmemory", 0)
        cache.config_set("maxmemory-policy", "noeviction")


@scenario(**PARTLY)
def redis_evicts(rig, chance):
    """maxmemory below the used memory under a policy that evicts any key, twice; then `couponctl
    rebuild`, since codes may be among them."""
    rig.on_heal(lambda: policy_reset(rig))
    for _ in range(2):
        rig.wait_answers(chance.randint(50, 300))
        policy = chance.choice(("allkeys-lru", "allkeys-lfu", "allkeys-random"))
        with rig.redis() as cache:
            evicted = cache.info("stats")["evicted_keys"]
            cache.config_set("maxmemory-policy", policy)
            cache.config_set("maxmemory", int(cache.info("memory")["used_memory"] * 0.9))
            rig.wait(lambda: cache.info("stats")["evicted_keys"] > evicted)  # noqa: B023
            rig.pause(chance, 0.0, 2.0)
            gone = cache.info("stats")["evicted_keys"] - evicted
        policy_reset(rig)
        say(f"{policy}: {gone} keys evicted")
        rebuild_all(rig)
        rig.wait_answers(200)


@scenario(**PARTLY)
def redis_keys_gone(rig, chance):
    """Some of the keys of each coupon are deleted, again and again; then `couponctl rebuild`."""
    for _ in range(4):
        rig.wait_answers(chance.randint(50, 200))
        with rig.redis() as cache:
            for campaign in rig.load.campaigns:
                kinds = chance.sample(KINDS, chance.randint(1, 2))
                say(f"coupon {campaign.coupon}: {', '.join(kind or 'hash' for kind in kinds)}")
                cache.delete(*(f"coupon:{{{campaign.coupon}}}{kind}" for kind in kinds))
        rig.wait_answers(100)
        rebuild_all(rig)
        rig.wait_answers(200)


@scenario(**PARTLY)
def redis_users_gone(rig, chance):
    """The users of each coupon with a limit of 1 are deleted, again and again: the keeper rebuilds
    it by itself."""
    single = [campaign for campaign in rig.load.campaigns if campaign.limit == 1]
    for _ in range(4):
        rig.wait_answers(chance.randint(50, 200))
        with rig.redis() as cache:
            for campaign in single:
                cache.delete(f"coupon:{{{campaign.coupon}}}:users")
        rig.wait_answers(chance.randint(50, 300))


def log_files(rig):
    """The parts of the log that are appended to, the newest last."""
    folder = rig.stack.run_dir / "redis" / "appendonlydir"
    return sorted(
        folder.glob("*.incr.aof"), key=lambda path: int(re.search(r"\.(\d+)\.", path.name)[1])
    )


def starts(rig):
    try:
        rig.stack.start("redis")
    except AssertionError:
        return False
    return True


@scenario(**REDIS_LOSES)
def redis_log_truncated(rig, chance):
    """Redis killed, and the end of its log gone: it starts, and what is missing is noticed."""
    rig.wait_answers(chance.randint(50, 300))
    rig.stack.kill9("redis")
    log = log_files(rig)[-1]
    size = log.stat().st_size
    left = size - chance.randint(1, min(size, 200_000))
    say(f"{log.name}: {size} bytes, and {left} left")
    with log.open("r+b") as file:
        file.truncate(left)
    rig.stack.start("redis")
    rig.wait_answers(200)


@scenario(**REDIS_LOSES)
def redis_log_flipped(rig, chance):
    """Redis killed, and a byte of its log flipped: it refuses to start and says why. The operator
    repairs the log by redis-check-aof, as docs/guides/backup.md has it."""
    rig.wait_answers(chance.randint(50, 300))
    rig.stack.kill9("redis")
    log = log_files(rig)[-1]
    text = log.read_bytes()
    heads = [match.start() for match in re.finditer(rb"\r\n\*\d", text)]
    place = chance.choice(heads) + 2
    with log.open("r+b") as file:
        file.seek(place)
        file.write(bytes([text[place] ^ 1]))
    say(f"{log.name}: a byte flipped at {place} of {len(text)}")
    refused = rig.stack.log("redis").count("Bad file format")
    assert not starts(rig)
    assert rig.stack.log("redis").count("Bad file format") > refused
    manifest = next(log.parent.glob("*.manifest"))
    subprocess.run(
        ["redis-check-aof", "--fix", manifest], input=b"y\n", check=True, stdout=subprocess.DEVNULL
    )
    rig.stack.start("redis")
    rig.wait_answers(200)


@scenario(
    prepare=lambda rig, _chance: on_small_disk(rig, "redis", 300 * MB), crowd=False, **REDIS_LOSES
)
def redis_disk_full(rig, chance):
    """The disk with Redis' log is full: Redis ends, and starts when there is room."""
    rig.on_heal(rig.disk.free)
    rig.wait_answers(chance.randint(50, 300))
    say("the disk of Redis filled")
    rig.disk.fill()
    rig.wait(lambda: not rig.stack.runs("redis"))
    rig.pause(chance, 0.5, 2.0)
    rig.disk.free()
    rig.stack.start("redis")
    rig.wait_answers(200)
