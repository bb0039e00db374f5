"""One coupon and its environment: gateways with their memory of seen numbers, a queue, Redis and
PostgreSQL (both real), and keepers. Keepers are generators: other steps may run between any two of
theirs, and they may end there."""

import json
import uuid

from backup import CHANGES, numbers_of
from script_coupon import Coupon, fence_of
from sql_db import Receive
from ulid import ulid_make, ulid_of, ulid_uuid

ROWS_EACH = 3  # rows of a page, where the keeper uses 512
LASTS_MS = 60000
NOBODY = "0" * 40


def receives_of(body):
    """The receives of a message; `key` with a tab and the code if one was claimed."""
    m = json.loads(body)
    return [
        Receive(
            int(m["coupon"]),
            user,
            ulid_uuid(m["batch"]),
            i,
            slot=slot,
            generation=m["generation"],
            seq=m["seq"] + i,
            key="\t".join(tail),
            at_ms=m["at"],
        )
        for i, (user, slot, *tail) in enumerate(m["receives"])
    ]


class Gateway:
    """As gateway/admit/admission.c: the highest seq seen, and the messages that are not
    confirmed."""

    def __init__(self, world):
        self.world = world
        self.generation = self.seq = 0
        self.unconfirmed = {}
        self.replies = []  # in flight

    def report(self):
        if self.generation and self.seq:
            self.world.report(self.generation, self.seq)

    def issue(self, requests, late=False):
        batch = ulid_make(self.world.rng)
        reply = self.world.coupon.issue_raw(
            *requests, batch=batch, run_id=self.world.run_id, seen=(self.generation, self.seq)
        )
        if reply[0] == "ok" and reply[6]:
            self.world.bodies[batch] = reply[6]
        if late:
            self.replies.append((batch, reply))
        else:
            self.replied(batch, reply)

    def replied(self, batch, reply):
        state, generation, seq = reply[:3]
        if state != "ok":
            self.report()
            return
        if generation > self.generation:
            self.generation, self.seq = generation, seq
        elif generation < self.generation:
            if seq:
                self.world.report(generation, seq)
        else:
            self.seq = max(self.seq, seq)
        if reply[6]:
            self.unconfirmed[batch] = reply[6]
            self.world.accepted.update(receives_of(reply[6]))


class Fenced(Exception):
    pass


class Gone(Exception):
    """The filled keys are gone."""


class Keeper:
    """keeper/coupon.c, rebuild.c and slot_free.c, with the scripts and the statements that
    they use."""

    def __init__(self, world, db):
        self.world, self.db, self.coupon = world, db, world.coupon
        self.rebuilds = 0
        self.elect()

    def elect(self):
        self.run_id = self.world.run_id
        self.fence = int(self.db.query("keeper_fence", self.run_id)[0]["fence"])
        self.is_fenced = False

    def word(self, name, *args, keys=None):
        reply = self.coupon.run(name, *args, keys=keys)
        word = reply[0] if isinstance(reply, list) else reply
        if word == "fenced":
            raise Fenced
        return word

    def round(self):
        """One turn; True if there was nothing to do."""
        if self.run_id != self.world.run_id:
            self.elect()
        try:
            self.world.numbers_copy(numbers_of(self.db))
            idle = yield from self.late()
            rows = self.db.query("coupon_page", self.world.id - 1, 1, "{%d}" % self.world.id)
            yield
            row = {
                name: value if name == "status" else int(value)
                for name, value in rows[0].items()
                if name[:3] != "is_"
            }
            action = self.judge(row, self.look(row))
            yield
            self.keep(row)
            yield
            if self.coupon.get("fence") and int(self.coupon.get("fence")) < self.fence:
                self.word("fence", self.fence)
            if action:
                yield from getattr(self, action)(row, self.cache)
            elif self.cache["reserved"]:
                self.seen_keep()
                yield
            freed = yield from slot_free(self.world, self.db)
            return idle and not action and not freed
        except Gone:
            return False
        except Fenced:
            self.is_fenced = True
            return False
        finally:
            self.db.execute("ROLLBACK")

    def keep(self, row):
        """page_keep(): before Redis gets terms that are new since, the numbers are copied."""
        if row["version"] > self.world.kept_version:
            self.world.numbers_copy(numbers_of(self.db))
            self.world.kept_version = row["version"]

    def look(self, row):
        fields = self.coupon.redis.hgetall(self.coupon.keys[0])
        self.cache = {
            name: int(value) for name, value in fields.items() if name not in ("status", "run_id")
        }
        self.cache.update(present="generation" in fields, run_id=fields.get("run_id"))
        self.cache["users"] = self.coupon.redis.exists(
            self.coupon.keys[1]
        ) or self.coupon.redis.hlen(self.coupon.keys[2])
        self.cache["told"] = int(self.coupon.redis.hget(self.coupon.seen, row["generation"]) or 0)
        return self.cache

    def judge(self, row, cache):
        """keeper/coupon_state.c"""
        if not cache["present"]:
            is_known = row["generation"] or row["issued_num"] or cache["users"]
            return "rebuild" if is_known else "load"
        if "placeholder" in cache and row["generation"] == 0:
            return "rebuild"
        is_asked = row["rebuild_asked"] > row["rebuild_done"]
        if cache["generation"] > row["generation"]:
            return "rebuild" if is_asked else "foreign"
        if (
            cache["generation"] < row["generation"]
            or "placeholder" in cache
            or "rebuild" in cache
            or cache["told"] > cache["seq"]
            or is_asked
        ):
            return "rebuild"
        if cache["run_id"] != self.world.run_id:
            return "verify"
        return "terms" if row["version"] > cache["version"] else None

    def foreign(self, _row, _cache):
        """The row was read before another keeper rebuilt."""
        yield

    def load(self, row, _cache):
        assert self.word("hold", self.fence, 1) == "held"
        yield
        got = self.db.query(
            "coupon_generation_open", self.world.id, row["generation"], 0, self.fence
        )
        yield
        if got:
            generation = int(got[0]["generation"])
            self.word(
                "place",
                *self.placed_args(row, generation),
                0,
                0,
                row["revocation_num"],
                keys=self.place_keys(generation),
            )

    def placed_args(self, row, generation):
        terms = row["version"], "open", row["total_num"], 0, 0, row["user_limit"]
        return self.fence, self.world.run_id, generation, *terms

    def fill_keys_of(self, generation):
        return self.coupon.fill_keys(generation)

    def place_keys(self, generation):
        known = [self.coupon.known, self.coupon.seen, self.coupon.codes]
        return self.coupon.keys + known + self.fill_keys_of(generation)

    def terms(self, row, _cache):
        self.word(
            "terms", row["version"], "open", row["total_num"], 0, 0, row["user_limit"], self.fence
        )
        yield

    def verify(self, row, cache):
        if row["version"] > cache["version"]:
            yield from self.terms(row, cache)
        least = self.db.query("slot_free_again", "{%d}" % self.world.id, self.fence)[0][
            "late_least"
        ]
        yield
        keys = self.coupon.keys + [self.coupon.seen]
        word = self.word(
            "verify",
            self.fence,
            self.world.run_id,
            row["generation"],
            row["seq_seen"],
            least,
            row["revocation_num"],
            keys=keys,
        )
        if word == "behind":
            yield
            yield from self.rebuild(row, cache)

    def rebuild(self, row, cache):
        assert self.word("hold", self.fence, max(row["generation"], 1)) == "held"
        yield
        got = self.db.query(
            "coupon_generation_open",
            self.world.id,
            row["generation"],
            cache.get("generation", 0),
            self.fence,
        )
        if not got:
            return
        generation = int(got[0]["generation"])
        self.fill_keys, self.added = self.fill_keys_of(generation), 0
        self.rebuilds += 1
        yield
        self.seen_keep()
        yield
        for name in ("rebuild_begin", "rebuild_patience"):
            self.db.query(name)
        now = self.db.query("rebuild_coupon", "{%d}" % self.world.id)[0]
        older = {
            int(g["generation"]): [int(g["seq_seen"]), int(g["settled_num"])]
            for g in self.db.query("coupon_generation_page", self.world.id)
        }
        if int(now["version"]) > row["version"]:
            return  # these terms are not kept yet
        self.db.query("rebuild_rows", self.world.id)
        yield
        yield from self.rows_fill()
        issued = self.added
        yield from self.flight_fill(older, int(now["total_num"]) - int(now["issued_num"]))
        self.db.query("rebuild_end")
        yield
        triples = [n for number in sorted(older) for n in (number, *older[number])]
        word = self.word(
            "place",
            *self.placed_args(now, generation),
            issued,
            now["late_num"],
            now["revocation_num"],
            *triples,
            keys=self.place_keys(generation),
        )
        if word == "placed":
            yield
            self.db.query(
                "rebuild_answer", self.world.id, row["rebuild_asked"], "rebuilt", self.fence
            )

    def seen_keep(self):
        """keeper/rebuild/place.c"""
        c = self.coupon.redis.hgetall(self.coupon.keys[0])
        seen = [(name[5:], value) for name, value in c.items() if name.startswith("high:")]
        seen += [(c["generation"], c["seq"])] if c else []
        seen += self.coupon.redis.hgetall(self.coupon.seen).items()
        if seen:
            self.db.query(
                "rebuild_seen",
                "{%s}" % ",".join([str(self.world.id)] * len(seen)),
                *("{%s}" % ",".join(column) for column in zip(*seen, strict=True)),
                self.fence,
            )

    def fill(self, what, room, pairs):
        added = self.coupon.run(
            "fill",
            fence_of(self.fence),
            what,
            room,
            LASTS_MS,
            self.added,
            *pairs,
            keys=self.fill_keys,
        )
        if added < 0:
            raise Gone
        self.added += added
        return added

    def rows_fill(self):
        while rows := self.db.execute(f"FETCH {ROWS_EACH} FROM rebuild_rows"):
            pairs = [
                v
                for user, slot, batch, idx, key in rows
                for v in (user, f"{slot}:{ulid_of(batch)}:{idx}:{key}")
            ]
            self.fill("issued", 2**53 - 1, pairs)
            yield

    def flight_fill(self, older, room):
        for batch, body in self.coupon.outbox().items():
            receives = receives_of(body)
            seen = older.get(receives[0].generation)
            if seen:
                seen[0] = max(seen[0], receives[-1].seq)
            rejected = {
                int(r["idx"])
                for r in self.db.query("rebuild_rejected", self.world.id, "{%s}" % ulid_uuid(batch))
            }
            pairs = [
                v
                for r in receives
                if r.idx not in rejected
                for v in (r.user, f"{r.slot}:{batch}:{r.idx}:{r.key}")
            ]
            if pairs:
                room -= self.fill("flight", room, pairs)
            yield

    def late(self):
        """slot_free.c; True if there was nothing to do."""
        page = self.db.query("late_page", self.world.id - 1, 2**62, 5)
        page = [one for one in page if int(one["coupon_id"]) == self.world.id]
        yield
        if not page:
            return True
        args = []
        for one in page:
            outcome = {"": "issued", "out_of_stock": "drop"}.get(one["reason"], "free")
            args += [
                one["num"],
                one["generation"],
                one["seq"],
                one["user_id"],
                one["slot"],
                ulid_of(one["batch"]),
                one["idx"],
                one["key"],
                outcome,
            ]
        word = self.word("late", fence_of(self.fence), *args)
        if word == "ok":
            yield
            self.db.query("late_counted", self.world.id, page[-1]["num"], self.fence)
        return False


def slot_free(world, db):
    """slot_free.c, which needs no keeper; how many were pending."""
    run_id = world.run_id
    page = [
        t
        for t in db.query("slot_free_pending", world.id - 1, uuid.UUID(int=2**128 - 1), 255, 100)
        if int(t["coupon_id"]) == world.id
    ]
    yield
    if not page:
        return 0
    args = []
    for t in page:
        if t["holder_batch"]:
            what = (
                f"give {t['slot']}:{ulid_of(t['holder_batch'])}:{t['holder_idx']}:{t['holder_key']}"
            )
        elif t["reason"] == "voided":
            world.numbers_copy(numbers_of(db))
            what = "void"
        else:
            what = "drop" if t["reason"] in ("out_of_stock", "slot_taken") else "free"
        args += [t["user_id"], t["slot"], ulid_of(t["batch"]), t["idx"], what]
    reply = world.coupon.run("slot_free", *args)
    yield
    if reply[0] == "ok":
        assert "malformed" not in reply[3:]
        columns = [
            "{%s}" % ",".join(t[name] for t in page) for name in ("coupon_id", "batch", "idx")
        ]
        db.query("slot_free_done", *columns, run_id)
    return len(page)


class World:
    def __init__(self, rng, client, coupon_id, dbs):
        self.rng, self.id = rng, coupon_id
        self.db, *self.keeper_dbs = dbs
        self.coupon = Coupon(client, rng)
        base = "coupon:{%d}" % coupon_id
        self.coupon.id, self.coupon.keys = str(coupon_id), [base, base + ":users", base + ":outbox"]
        self.coupon.known, self.coupon.seen = base + ":known", base + ":seen"
        self.coupon.rejected, self.coupon.codes = base + ":rejected", base + ":codes"
        self.run_id = "%040x" % rng.getrandbits(160)
        self.gateways = [Gateway(self) for _ in range(3)]
        self.bodies, self.accepted = {}, set()
        self.queue, self.delivered = [], []
        self.states, self.outcomes = [], {}
        self.actors = []  # generators: keepers' rounds and frees
        self.kept_version = 0  # of the terms that Redis keeps; it may have lost them

    def report(self, generation, seq):
        self.coupon.run("report", generation, seq, "", keys=[self.coupon.keys[0], self.coupon.seen])

    def numbers_copy(self, numbers):
        """By a worker before it removes what it has settled, and by the keeper."""
        pairs = [text for pair in numbers.items() for text in pair]
        own = self.db.query("change_counts")[0]["installation"]
        assert self.coupon.run("changes", own, "none", "", "newer", *pairs, keys=[CHANGES]) == "ok"

    def settle(self, bodies):
        receives = [r for body in bodies for r in receives_of(body)]
        for receive, outcome in zip(receives, self.db.settle_retrying(*receives), strict=True):
            outcome = "issued" if outcome == "repeated" else outcome
            assert (
                self.outcomes.setdefault(receive, outcome) == outcome
            ), f"{receive} has two outcomes"

    # The whole world

    def keys(self):
        return list(self.coupon.redis.scan_iter(match="coupon:{%d}*" % self.id, count=1000))

    def state_keep(self):
        self.states.append({key: self.coupon.redis.dump(key) for key in self.keys()})

    def wipe(self, state=()):
        keys = self.keys()
        if keys:
            self.coupon.redis.delete(*keys)
        self.kept_version = 0
        for key in state:
            self.coupon.redis.restore(key, 0, state[key])

    def restart(self):
        """Redis is restarted: every connection is lost, with the data in flight."""
        self.run_id = "%040x" % self.rng.getrandbits(160)
        for actor in self.actors:
            actor.close()
        self.actors = []
        for gateway in self.gateways:
            gateway.replies = []
            gateway.report()

    def counts(self):
        c = self.coupon.redis.hgetall(self.coupon.keys[0])
        return c, {name: int(c.get(name, 0)) for name in ("total", "stock", "reserved", "lost")}

    def check(self):
        c, n = self.counts()
        if c and "placeholder" not in c:
            taken = self.coupon.taken()
            given = n["stock"] + taken + n["reserved"] + n["lost"]
            # Until a rebuild that is due, a raised total adds nothing to the stock, and Redis may
            # have given out a slot twice because no report reached it in time.
            assert given == n["total"] or (
                "rebuild" in c and (given < n["total"] or not self.careful and not n["stock"])
            ), (n, taken)
            assert min(n.values()) >= 0, n
