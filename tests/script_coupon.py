"""One coupon in Redis, seen through the scripts, with a random id of its own."""
import functools
import json
import pathlib
import random
import subprocess

import redis

from ulid import ulid_make

LUA = pathlib.Path(__file__).resolve().parents[1] / "lua"
# Where each script of the keeper takes its fence; tests give its number.
FENCE_AT = {name: 0 for name in ("place", "verify", "fence", "hold", "expire", "keep_terms")} | {
    "terms": 6
}
STATES_NOT_OK = ("missing", "unverified", "behind")
OUT_OF_STOCK, ENDED, LIMIT_REACHED, NOT_STARTED, PAUSED, BUSY = -2, -3, -4, -5, -6, -20
CODE_INVALID, CODE_USED, CODE_EXPIRED, KEY_REUSED = -7, -8, -16, -44
UNBOUNDED = 2**53 - 1


def client_new(url):
    # latin-1: each byte is one character, so DUMPs and hostile arguments pass unchanged
    return redis.Redis.from_url(url, encoding="latin-1", decode_responses=True)


@functools.cache
def script_text(name):
    """As the programs get it, after the definitions of the prelude that it uses."""
    command = [
        "awk",
        "-f",
        LUA.parent / "scripts/lua.awk",
        LUA / "prelude.lua",
        LUA / f"{name}.lua",
    ]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def fence_of(number):
    """The fence of a keeper whose lock is held at any time."""
    return f"{number}:0:{2**53 - 1}"


class Answer:
    """An 'ok' reply of issue.lua by name."""

    def __init__(self, reply):
        (
            self.state,
            self.generation,
            self.seq,
            self.stock,
            self.now_ms,
            self.begin_ms,
            self.body,
        ) = reply[:7]
        self.verdicts = reply[7:]
        self.message = json.loads(self.body) if self.body else None


def run_id_of(client):
    """As coupons have it: of this process, and of its replication history."""
    process, history = client.info("server"), client.info("replication")
    return process["run_id"][:16] + history["master_replid"][:16] + "0" * 8


class Coupon:
    def __init__(self, client, rng=random):
        self.redis = client
        self.id = str(rng.randrange(10**17, 9 * 10**18))
        base = "coupon:{%s}" % self.id
        self.keys = [base, base + ":users", base + ":outbox"]
        self.known, self.seen, self.dead = base + ":known", base + ":seen", base + ":dead"
        self.settled, self.rejected = base + ":settled", base + ":rejected"
        self.terms, self.codes = base + ":terms", base + ":codes"
        self.run_id = run_id_of(client)
        self.scripts = {}

    def delete(self):
        more = (self.known, self.seen, self.dead, self.settled, self.rejected, self.terms)
        self.redis.delete(*self.keys, *more, self.codes)

    def put(self, **fields):
        """Writes the coupon's hash directly: open, verified, stock = total unless fields are
        given."""
        c = {
            "status": "open",
            "total": 100,
            "stock": fields.get("total", 100),
            "reserved": 0,
            "begin": 0,
            "end": 0,
            "limit": 1,
            "generation": 1,
            "seq": 0,
            "fence": 1,
            "run_id": self.run_id,
            "version": 1,
            **fields,
        }
        self.redis.delete(*self.keys)
        self.redis.hset(self.keys[0], mapping=c)
        return self

    def set(self, **fields):
        self.redis.hset(self.keys[0], mapping=fields)

    def get(self, field):
        return self.redis.hget(self.keys[0], field)

    def users(self):
        return self.redis.hgetall(self.keys[1])

    def claimed(self):
        return self.redis.hgetall(self.codes)

    def outbox(self):
        return self.redis.hgetall(self.keys[2])

    def fill_keys(self, generation):
        return [f"{self.keys[0]}:fill:{generation}:{name}" for name in ("users", "known", "codes")]

    def keys_of(self, name):
        if name == "slot_free":
            return [*self.keys, self.rejected, self.codes]
        if name == "late":
            return [*self.keys[:2], self.known, self.codes]
        if name == "revoke":
            return [self.keys[0], self.codes]
        return self.keys

    def run(self, name, *args, keys=None):
        if name not in self.scripts:
            self.scripts[name] = self.redis.script_load(script_text(name))
        if keys is None:
            keys = self.keys_of(name)
        at = FENCE_AT.get(name, len(args))
        if at < len(args) and ":" not in str(args[at]):
            args = (*args[:at], fence_of(args[at]), *args[at + 1 :])
        return self.redis.evalsha(self.scripts[name], len(keys), *keys, *args)

    def issue_raw(
        self,
        *requests,
        batch=None,
        run_id=None,
        coupon=None,
        seen=(0, 0),
        unsettled_max=UNBOUNDED,
        keys=None,
        count=None,
    ):
        """A call with one part. Each request is a user, or has a key, a code and a trace behind
        it."""
        if keys is None and "c" in self.part(*requests)[4]:
            keys = [*self.keys, self.codes]
        (reply,) = self.run(
            "issue",
            self.run_id if run_id is None else run_id,
            unsettled_max,
            *self.part(*requests, batch=batch, coupon=coupon, seen=seen, count=count),
            keys=keys,
        )
        if isinstance(reply, Exception):
            raise reply
        return reply

    def part(self, *requests, batch=None, coupon=None, seen=(0, 0), count=None):
        """The arguments of one part of a call."""
        words = [(r,) if isinstance(r, (str, int)) else tuple(r) for r in requests]
        has_keys = any(len(w) > 1 and w[1] != "" for w in words)
        has_codes = any(len(w) == 3 or len(w) == 4 and w[2] for w in words)
        has_traces = any(len(w) == 4 for w in words)
        flat = []
        for user, key, code, trace in ((*w, "", "", "")[:4] for w in words):
            flat += [user, *[key] * has_keys, *[code] * has_codes, *[trace] * has_traces]
        n = f"{len(words)}{'k' * has_keys}{'c' * has_codes}{'t' * has_traces}"
        return (
            self.id if coupon is None else coupon,
            batch or ulid_make(),
            *seen,
            n if count is None else count,
            *flat,
        )

    def issue(self, *requests, **options):
        reply = self.issue_raw(*requests, **options)
        assert reply[0] == "ok", reply
        answer = Answer(reply)
        assert len(answer.verdicts) == len(requests)
        return answer

    def time_ms(self):
        s, us = self.redis.time()
        return s * 1000 + us // 1000

    def taken(self):
        return sum(len(records.split("\n")) for records in self.users().values())

    def snapshot(self):
        """All keys of this coupon with their exact contents."""
        names = sorted(self.redis.scan_iter(match="*%s*" % self.id, count=1000))
        return {n: (self.redis.dump(n), self.redis.pttl(n)) for n in names}
