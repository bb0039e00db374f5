"""Rebuilds and recoveries in random histories: see rebuild_world.py. After every step nothing is
lost or duplicated in Redis; at the end each receive has one outcome, and Redis and PostgreSQL
agree. SEED=n repeats the history whose seed was n; RUNS is the number of histories."""

import random

import pytest
from backup import CHANGES, Backup, numbers_of, recover
from fresh import database_migrated
from rebuild_world import Gateway, Keeper, World, receives_of, slot_free
from redis_server import server_start
from seed import seeds
from sql_db import Db, array_text
from ulid import ulid_of
from user_ids import user_ids_random

STEPS = 120
ROUNDS_MAX = 12  # of the keeper, until it has nothing left to do


@pytest.fixture(scope="module")
def redis_private(tmp_path_factory):
    process, client = server_start(tmp_path_factory.mktemp("redis"))
    yield client
    client.close()
    process.terminate()
    process.wait(timeout=120)


@pytest.fixture(scope="module")
def databases(stack):
    """Three connections of the programs' role, then the owner's, to a database without another
    keeper."""
    with database_migrated(stack) as (app_url, owner_url):
        opened = [Db(url) for url in (owner_url, app_url, app_url, app_url)]
        try:
            for one in opened:
                one.execute("SET synchronous_commit = off")
            yield (*opened[1:], opened[0])
        finally:
            for one in opened:
                one.close()


class Story(World):
    """The random steps. In a careful history gateways report what they have seen before the keeper
    continues, and no gateway dies: then no accepted user gets the answer that he has no receive."""

    def __init__(self, rng, client, coupon_id, dbs, limit, careful, program):
        *dbs, self.owner = dbs
        super().__init__(rng, client, coupon_id, dbs)
        self.limit, self.careful, self.program = limit, careful, program
        self.backups = []
        self.people = user_ids_random(rng, self.rng.choice([3, 11, 24]))
        self.published = set()
        self.keepers = []

    STEP_WEIGHTS = {
        "issue": 40, "reply": 10, "publish": 25, "confirm": 10, "resend": 2, "deliver": 12,
        "redeliver": 3, "act": 60, "turn": 10, "round": 20, "elect": 2, "kill": 2, "slot_free": 4,
        "state_keep": 4, "restart": 1, "lose": 3, "gateway_dies": 1, "gateway_new": 1, "total": 3,
        "ask": 1, "purge": 2, "back_up": 4, "put_back": 2, "void": 4,
    }  # fmt: skip

    def step(self):
        name = self.rng.choices(list(self.STEP_WEIGHTS), list(self.STEP_WEIGHTS.values()))[0]
        getattr(self, "step_" + name)()
        return name

    def step_issue(self):
        requests = [
            (self.rng.choice(self.people), self.rng.choice(["", "", "a", "b"]))
            for _ in range(self.rng.randrange(1, 5))
        ]
        if self.rng.random() < 0.5:
            requests = [(user, key, self.code_choose()) for user, key in requests]
        late = not self.careful and self.rng.random() < 0.2
        self.rng.choice(self.gateways).issue(requests, late)

    def code_choose(self):
        """Few, so that they are claimed by several users; one is a word."""
        return self.rng.choice(["", str(self.id), *(f"{self.id}.{n}" for n in range(9))])

    def step_reply(self):
        gateway = self.rng.choice(self.gateways)
        if gateway.replies:
            gateway.replied(*gateway.replies.pop(self.rng.randrange(len(gateway.replies))))

    def step_publish(self):
        gateway = self.rng.choice(self.gateways)
        if gateway.unconfirmed:
            batch = self.rng.choice(sorted(gateway.unconfirmed))
            self.queue.append(gateway.unconfirmed[batch])
            self.published.add(batch)

    def step_confirm(self):
        gateway = self.rng.choice(self.gateways)
        ready = sorted(self.published & set(gateway.unconfirmed))
        if ready:
            del gateway.unconfirmed[self.rng.choice(ready)]

    def step_resend(self):
        self.queue += [body for _, body in sorted(self.coupon.outbox().items())[:2]]

    def step_purge(self):
        """RabbitMQ loses all it has. In a careful history not what Redis has lost before, and the
        keeper publishes it again before Redis loses it as well."""
        outbox = list(self.coupon.outbox().values())
        if not self.careful:
            self.queue = []
        elif set(self.queue) <= {*outbox, *self.delivered}:
            self.queue = outbox

    def step_deliver(self):
        self.rng.shuffle(self.queue)
        bodies, kept = self.queue[:3], self.queue[3:]
        if not bodies:
            return
        self.settle(bodies)
        if self.rng.random() < 0.8:  # otherwise the worker forgets to remove them
            self.settled_remove(bodies)
        self.delivered += bodies
        self.queue = kept if self.rng.random() < 0.8 else bodies + kept

    def settled_remove(self, bodies):
        stripe, number = self.db.change.split(":")
        self.numbers_copy({stripe: number})
        for body in bodies:
            self.coupon.run("settled", *self.settled_args(body), keys=self.settled_keys())

    def settled_keys(self):
        return [self.coupon.keys[2], self.coupon.keys[0] + ":settled", self.rejected_key()]

    def rejected_key(self):
        return self.coupon.keys[0] + ":rejected"

    def settled_args(self, body):
        receives = receives_of(body)
        yield f"{ulid_of(receives[0].batch)}:{receives[0].at_ms}"
        for one in receives:
            if self.outcomes[one] != "issued":
                yield self.rejected_text(one)

    def rejected_text(self, one):
        return f"{ulid_of(one.batch)}:{one.idx}:{one.slot}:{self.outcomes[one]}:{one.user}"

    def step_redeliver(self):
        if self.delivered:
            self.queue.append(self.rng.choice(self.delivered))

    def step_act(self):
        if self.actors:
            actor = self.rng.choice(self.actors)
            if next(actor, "end") == "end":
                self.actors.remove(actor)

    def step_turn(self):
        """Runs one of them without interruption."""
        if self.actors:
            for _ in self.actors.pop(self.rng.randrange(len(self.actors))):
                self.check()

    def step_kill(self):
        if self.actors:
            actor = self.rng.choice(self.actors)
            actor.close()
            self.actors.remove(actor)

    def step_elect(self):
        used = [keeper.db for keeper in self.keepers]
        free = [db for db in self.keeper_dbs if db not in used]
        if not free:
            gone = self.keepers.pop(0)
            for actor in [
                a
                for a in self.actors
                if getattr(a, "gi_frame", None) and a.gi_frame.f_locals.get("self") is gone
            ]:
                actor.close()
                self.actors.remove(actor)
            free = [gone.db]
        self.keepers.append(Keeper(self, free[0]))

    def step_round(self):
        if not self.keepers:
            self.step_elect()
        keeper = self.rng.choices(self.keepers, [1, 5][-len(self.keepers) :])[0]
        if not any(a.gi_frame and a.gi_frame.f_locals.get("self") is keeper for a in self.actors):
            self.actors.append(keeper.round())

    def step_slot_free(self):
        self.actors.append(slot_free(self, self.db))

    def step_state_keep(self):
        self.state_keep()

    def step_restart(self):
        self.restart()

    def step_lose(self):
        """What PostgreSQL was put back to before is in the outbox alone, once a worker has taken it
        from the queue. If Redis loses it before it is settled again, two stores have lost it. In a
        careful history the keeper publishes it again before."""
        rejected = "SELECT batch, idx FROM receive_rejected WHERE coupon_id = %s"
        issued = "SELECT batch, idx FROM user_coupon WHERE coupon_id = %s"
        known = {*self.db.execute(rejected, self.id), *self.db.execute(issued, self.id)}
        if self.careful:
            self.queue += [
                body
                for body in self.coupon.outbox().values()
                if body in self.delivered
                and body not in self.queue
                and not {(one.batch, one.idx) for one in receives_of(body)} <= known
            ]
        self.outcomes = {
            one: outcome for one, outcome in self.outcomes.items() if (one.batch, one.idx) in known
        }
        self.wipe(self.rng.choice(self.states) if self.states and self.rng.random() < 0.5 else ())
        self.backups = []
        if self.careful or self.rng.random() < 0.5:
            self.restart()

    def step_back_up(self):
        self.backups.append(Backup(self.owner, self.id))

    def step_put_back(self):
        """PostgreSQL is put back to a moment since which Redis has lost nothing. Redis has counted
        what was in flight when it lost something before."""
        if not self.backups or not self.held() <= self.stored():
            return
        for actor in self.actors:
            actor.close()
        self.actors, self.keepers = [], []
        self.rng.choice(self.backups).put_back(self.owner)
        self.backups = []
        copied = self.coupon.redis.hgetall(CHANGES)
        copied.pop("installation", None)
        numbers = numbers_of(self.db)
        if any(int(number) > numbers[stripe] for stripe, number in copied.items()):
            self.recover()
        else:
            self.voids_forget()
            self.step_ask()  # nothing noticed that it was put back

    def voids_forget(self):
        """Forgets the voids of which the tool died before it told Redis: they may not have
        happened."""
        told = self.coupon.redis.lrange(self.rejected_key(), 0, -1)
        sql = "SELECT batch, idx FROM receive_rejected WHERE coupon_id = %s"
        kept = set(self.db.execute(sql, self.id))
        for one, outcome in list(self.outcomes.items()):
            is_kept = (one.batch, one.idx) in kept or self.rejected_text(one) in told
            if outcome == "voided" and not is_kept:
                del self.outcomes[one]
        for user, record in self.held():
            _, batch, idx, _ = record.split(":", 3)
            self.outcomes.setdefault(receives_of(self.bodies[batch])[int(idx)], "issued")

    def held(self):
        """For each user coupon in PostgreSQL: (user, its record in Redis)."""
        rows = self.db.execute(
            "SELECT user_id, slot, batch, idx, coalesce(key, '') || coalesce(E'\\t' || code, '')"
            " FROM user_coupon WHERE coupon_id = %s",
            self.id,
        )
        return {
            (user, f"{slot}:{ulid_of(batch)}:{idx}:{key}") for user, slot, batch, idx, key in rows
        }

    def stored(self):
        """For each slot in Redis: its user and its record."""
        users = self.coupon.users().items()
        return {(user, line) for user, text in users for line in text.split("\n")}

    def codes_used(self):
        """In PostgreSQL: of each used code its user."""
        return dict(
            self.db.execute(
                "SELECT set_id || '.' || serial, user_id FROM code"
                " WHERE coupon_id = %s AND state = 'used'",
                self.id,
            )
        )

    def recover(self):
        told = recover(self.program, self.coupon.redis, self.db)
        assert told["unreadable"] == 0, told
        held = self.coupon.redis.lrange(self.rejected_key(), 0, -1)
        for one, outcome in list(self.outcomes.items()):
            # Its message is still in the outbox, and is settled once more.
            if outcome != "issued" and self.rejected_text(one) not in held:
                del self.outcomes[one]
        # Receives whose messages are lost were settled from their slots.
        for user, record in self.held():
            _, batch, idx, _ = record.split(":", 3)
            one = receives_of(self.bodies[batch])[int(idx)]
            assert one.user == user and self.outcomes.setdefault(one, "issued") == "issued"

    def step_gateway_dies(self):
        if not self.careful:
            self.gateways[self.rng.randrange(len(self.gateways))] = Gateway(self)

    def step_gateway_new(self):
        if len(self.gateways) < 6:
            self.gateways.append(Gateway(self))

    def step_ask(self):
        self.db.query("rebuild_ask", self.id)

    def step_void(self):
        """An operator takes an issued receive back. The tool may die before it tells Redis."""
        issued = [one for one, outcome in self.outcomes.items() if outcome == "issued"]
        if not issued:
            return
        one = self.rng.choice(issued)
        row = self.db.query("coupon_void", self.id, one.batch, one.idx, one.user, None)[0]
        if row["result"] != "voided":
            return  # Redis is to learn its outcome first; or it was put back, unnoticed
        self.outcomes[one] = "voided"
        if self.rng.random() < 0.5:
            self.numbers_copy(numbers_of(self.db))
            self.coupon.run("slot_free", one.user, one.slot, ulid_of(one.batch), one.idx, "void")

    def step_total(self):
        row = self.db.query("coupon_lock", self.id)[0]
        total, version = int(row["total_num"]), int(row["version"])
        wanted = max(0, total + self.rng.randrange(-6, 8))
        c, n = self.counts()
        in_redis = int(c.get("version", 0))
        if wanted < total and (not c or (self.careful and c["run_id"] != self.run_id)):
            return
        self.db.execute("BEGIN")
        if in_redis > version or (in_redis == version and n["total"] != total):
            self.db.query("coupon_version_raise", self.id, in_redis)
        set_to = self.db.query("coupon_total_set", self.id, wanted)[0]
        is_set = int(set_to["total_num"]) == wanted and (
            wanted >= total or self.terms(set_to["version"], wanted) == "applied"
        )
        # The tool may die before the COMMIT.
        if not is_set or (wanted < total and self.rng.random() < 0.1):
            self.db.execute("ROLLBACK")
            return
        self.db.execute("COMMIT")
        if self.rng.random() < 0.5:
            self.numbers_copy(numbers_of(self.db))
            self.terms(set_to["version"], set_to["total_num"])

    def terms(self, version, total):
        reply = self.coupon.run("terms", version, "open", total, 0, 0, self.limit)
        return reply[0] if isinstance(reply, list) else reply

    # The end

    def rounds(self):
        """An undisturbed keeper finishes while gateways send requests."""
        keeper = Keeper(self, self.keeper_dbs[0])
        for _ in range(ROUNDS_MAX):
            round_ = keeper.round()
            while True:
                try:
                    next(round_)
                except StopIteration as end:
                    idle = end.value
                    break
                self.check()
            if idle and self.coupon.get("run_id") == self.run_id:
                return
            if keeper.is_fenced:
                keeper.elect()
            for gateway in self.gateways:
                gateway.report()
        raise AssertionError(f"the keeper has not finished in {ROUNDS_MAX} rounds")

    def finish(self):
        for actor in self.actors:
            actor.close()
        self.actors = []
        for gateway in self.gateways:
            while gateway.replies:
                gateway.replied(*gateway.replies.pop())
            self.queue += gateway.unconfirmed.values()
        self.rounds()
        self.drain()
        self.rounds()

    def drain(self):
        self.queue += self.coupon.outbox().values()
        while self.queue:
            body = self.queue.pop(self.rng.randrange(len(self.queue)))
            self.settle([body])
            self.settled_remove([body])
            self.check()

    def lost_give_up(self):
        """Receives that only Redis and a gateway held, and both lost: an operator gives them up."""
        self.db.query("rebuild_ask", self.id)
        self.rounds()
        for member in sorted(self.coupon.redis.smembers(self.coupon.known)):
            batch, idx = member.split(":")
            (r,) = [r for r in receives_of(self.bodies[batch]) if r.idx == int(idx)]
            arrays = [
                array_text([v]) for v in (r.generation, r.batch, r.idx, r.user, r.slot, r.at_ms)
            ]
            self.db.query("receive_lost", self.id, *arrays)
        self.rounds()
        for g in self.db.query("coupon_generation_page", self.id):
            high = self.coupon.get("high:" + g["generation"]) or 0
            self.db.query("generation_lost", self.id, g["generation"], high, 0)
        self.db.query("rebuild_ask", self.id)
        self.rounds()

    def end_check(self):
        reasons = set(self.outcomes.values()) - {"issued"}
        assert reasons <= (
            {"slot_taken", "key_taken", "code_used", "voided"}
            if self.careful
            else {"slot_taken", "key_taken", "code_used", "out_of_stock", "voided"}
        ), reasons
        if self.careful:
            assert self.accepted <= set(self.outcomes), "accepted, and without an outcome"
        held = self.held()
        assert held == {
            (one.user, f"{one.slot}:{ulid_of(one.batch)}:{one.idx}:{one.key}")
            for one, outcome in self.outcomes.items()
            if outcome == "issued"
        }
        assert held == self.stored()
        c, n = self.counts()
        assert (n["reserved"], self.coupon.redis.scard(self.coupon.known)) == (0, 0), n
        assert n["stock"] + n["lost"] == n["total"] - len(held)
        records = [(user, record.split(":", 3)[3]) for user, record in held]
        keyed = [(user, key) for user, tail in records if (key := tail.split("\t")[0])]
        codes = [(tail.split("\t")[1], user) for user, tail in records if "." in tail]
        assert len(dict(codes)) == len(codes), "a code has two coupons"
        assert self.coupon.claimed() == dict(codes) == self.codes_used()
        if self.careful or int(c["generation"]) > 1:
            assert len(keyed) == len(set(keyed)), "a key has two coupons"
        assert self.db.audit(self.id) == []


@pytest.mark.parametrize("seed", seeds(12))
def test_history(redis_private, databases, stack, seed):
    rng = random.Random(seed)
    careful, limit = seed % 2 == 0, rng.randrange(1, 4)
    *dbs, owner = databases
    coupon = 1 + len(owner.execute("SELECT id FROM coupon"))
    dbs[0].coupon_create(coupon, rng.choice([3, 10, 30]), limit)
    owner.execute("UPDATE coupon SET status = 'published' WHERE id = %s", coupon)
    program = stack.build_dir / "couponctl"
    story = Story(rng, redis_private, coupon, databases, limit, careful, program)
    try:
        story.rounds()
        for _ in range(STEPS):
            story.step()
            story.check()
        story.finish()
        if not careful:
            story.lost_give_up()
        story.end_check()
    finally:
        story.wipe()
        redis_private.delete(CHANGES)
