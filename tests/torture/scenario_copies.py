"""RabbitMQ hangs, Redis loses its data, and the gateways are restarted, in every order: what was
accepted is never in one of them alone when the next one loses it."""

import itertools
import shutil

from services import say

from scenario import REDIS_LOSES, scenario

# The key and the batch of each message in an outbox.
MESSAGES = """
local messages = {}
for _, key in ipairs(redis.call('KEYS', 'coupon:*:outbox')) do
    for _, batch in ipairs(redis.call('HKEYS', key)) do
        messages[#messages + 1] = key .. ' ' .. batch
    end
end
"""
TOLD = "return messages"
WIPED = "redis.call('FLUSHALL') return messages"
PAUSE_MS = 5000


class Copies:
    def __init__(self, rig, chance):
        self.rig, self.chance = rig, chance
        self.hangs = False
        self.orphans = set()  # messages of gateways that have ended, which Redis alone may have
        self.lost = set()  # by Redis, and RabbitMQ has none of them
        self.before = set()  # RabbitMQ may have these
        self.coupons = set()  # of what Redis has lost

    def messages(self):
        with self.rig.redis() as cache:
            return set(cache.eval_ro(MESSAGES + TOLD, 0))

    def hang(self):
        """RabbitMQ confirms nothing."""
        self.orphans_wait()
        say("SIGSTOP of RabbitMQ")
        self.rig.stack.sigstop("rabbitmq")
        self.hangs = True
        self.before = self.messages()
        self.rig.wait_accepted(self.chance.randint(20, 80))

    def resume(self):
        if self.hangs:
            say("SIGCONT of RabbitMQ")
            self.rig.stack.sigcont("rabbitmq")
        self.hangs = False

    def orphans_wait(self):
        """Until the keeper has sent them again, and they are settled."""
        self.rig.wait(lambda: not self.orphans & self.messages())
        self.orphans = set()

    def lose(self):
        if self.orphans and self.hangs:
            self.resume()
            self.hang()
        self.orphans_wait()
        there = self.chance.choice((self.flush, self.wipe))()
        self.lost = there - self.before if self.hangs else set()
        self.coupons = {message.partition(":outbox ")[0] for message in there}
        self.rig.pause(self.chance, 0.0, 3.0)

    def flush(self):
        with self.rig.redis() as cache:
            there = set(cache.eval(MESSAGES + WIPED, 0))
        say(f"FLUSHALL, with {len(there)} messages in the outboxes")
        return there

    def wipe(self):
        with self.rig.redis() as cache:
            cache.execute_command("CLIENT", "PAUSE", PAUSE_MS, "WRITE")
        there = self.messages()
        say(f"kill -9 of Redis, and its files gone, with {len(there)} messages in the outboxes")
        self.rig.stack.kill9("redis")
        shutil.rmtree(self.rig.stack.run_dir / "redis" / "appendonlydir")
        self.rig.stack.start("redis")
        return there

    def are_restored(self):
        """Whether Redis has again what it lost: coupons are there, each gateway has reported and
        then looked for its messages, and lacks none."""
        with self.rig.redis() as cache:
            return (
                all(cache.hexists(coupon, "run_id") for coupon in self.coupons)
                and cache.hlen("couponmq:gateways") >= len(self.rig.gateways)
                and all(
                    part.metrics()["couponmq_receives_uncopied"] == 0 for part in self.rig.gateways
                )
                and self.lost <= self.messages()
            )

    def restart(self):
        """All of them, so that no process has messages of before. A gateway that gets SIGTERM waits
        by itself; before the other signal Redis has everything again."""
        if self.chance.random() < 0.5:
            say("SIGTERM of the gateways")
            sizes = [part.log_size() for part in self.rig.gateways]
            for part in self.rig.gateways:
                part.tell_to_end()
            self.rig.wait(lambda: not any(part.alive() for part in self.rig.gateways))
            for part, size in zip(self.rig.gateways, sizes):
                assert "event=receives_lost" not in part.log_since(size), part.name
        else:
            self.rig.wait(self.are_restored)
            say(f"kill -9 of the gateways; {len(self.lost)} messages were restored")
            for part in self.rig.gateways:
                part.kill9()
        self.orphans = self.messages()
        self.lost = set()
        for part in self.rig.gateways:
            part.start()
        self.rig.wait_answers(self.chance.randint(50, 200))


STEPS = {"rabbitmq": Copies.hang, "redis": Copies.lose, "gateway": Copies.restart}


def copies_scenario(order):
    def run(rig, chance):
        copies = Copies(rig, chance)
        rig.wait_answers(chance.randint(50, 300))
        for name in order:
            STEPS[name](copies)
        copies.resume()
        rig.wait_answers(200)

    run.__name__ = f"copies_{'_'.join(order)}"
    run.__doc__ = (
        "RabbitMQ hangs, Redis loses its data, the gateways are restarted: "
        f"{', then '.join(order)}."
    )
    scenario(**{**REDIS_LOSES, "unknown": 0.6})(run)


for _order in itertools.permutations(STEPS):
    copies_scenario(_order)
