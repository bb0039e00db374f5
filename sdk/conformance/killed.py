"""Issues, holds and uses while the gateway is killed again and again: each is done once."""

import asyncio
import secrets

from client_driver import Driver
from real_stack import wait_until

AT_ONCE = 64
KILLS = 8
OPERATIONS = ("issue", "hold", "use")
LEVELS = ("accepted", "queued", "issued")
# One failed call is repeated with its key as long as its outcome is unknown, as a shop does.
DEADLINE_MS = 20000


class Load:
    def __init__(self, stack, driver, coupon, users):
        self.stack, self.driver, self.coupon, self.users = stack, driver, coupon, users
        self.name = secrets.token_hex(4)
        self.receives = {}  # of each user
        self.answered = self.repeated = self.replayed = 0
        self.wrong = []

    async def call(self, op, user, members):
        """Until it has an answer."""
        key = f"{self.name}/{user}/{op}"
        while True:
            _, answer = self.driver.call(op, members, key=key, deadline_ms=DEADLINE_MS)
            told = await answer
            if told.get("error") not in ("unknown", "unavailable"):
                break
            self.repeated += 1
        self.answered += 1
        if "answer" not in told or not told["answer"]["ok"]:
            self.wrong.append(f"{op} of {user}: {told}")
            return None
        self.replayed += told["answer"]["replayed"]
        return told["answer"]

    async def user(self, number):
        user, order = f"u{number}", f"{self.name}-{number}"
        # An order can hold what PostgreSQL has: what is only accepted is asked for again, with its
        # key.
        for level in LEVELS[number % len(LEVELS) :]:
            members = {"coupon": self.coupon, "user": user, "ack": level}
            issued = await self.call("issue", user, members)
            if not issued:
                return
            if self.receives.setdefault(user, issued["receive"]) != issued["receive"]:
                self.wrong.append(f"{user} has two receives: {issued}, {self.receives[user]}")
        receive = self.receives[user]
        for op in OPERATIONS[1:]:
            if not await self.call(op, user, {"order": order, "receive": receive}):
                return

    async def run(self):
        numbers = iter(range(self.users))

        async def one_after_the_other():
            for number in numbers:
                await self.user(number)

        kills = asyncio.create_task(self.kill())
        load = asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))
        await asyncio.wait({kills, load}, return_when=asyncio.FIRST_COMPLETED)
        if kills.done() and kills.exception():
            load.cancel()  # without a gateway it would not end
            await kills
        await load
        if not kills.done():
            kills.cancel()
            self.wrong.append("the load has ended before the last kill")

    async def kill(self):
        """Each time another part of all calls is answered. The last part is long enough for the
        gateway to be back."""
        loop, total = asyncio.get_running_loop(), self.users * len(OPERATIONS)
        for number in range(1, KILLS + 1):
            while self.answered < total * number // (KILLS + 1):
                await asyncio.sleep(0.001)
            await loop.run_in_executor(None, self.stack.kill, "gateway")

    def judge(self):
        """By PostgreSQL: each user has the one receive that was answered, and its order has used
        it, once."""
        if not wait_until(lambda: self.stack.is_settled(self.coupon)):
            self.wrong.append("receives have no outcome")
        wanted = {"issued": self.users, "held": 0, "used": self.users, "operations": 2 * self.users}
        found = self.stack.rows(self.coupon)
        if found != wanted:
            self.wrong.append(f"PostgreSQL has {found}, wanted is {wanted}")
        used = self.stack.db.execute(
            "SELECT user_id, order_id, batch, idx FROM receive_use"
            " WHERE coupon_id = %s AND state = 'used'",
            [self.coupon],
        ).fetchall()
        for user, order, batch, idx in used:
            receive = f"{self.coupon}.{user}.{ulid(batch)}.{idx}"
            if self.receives.get(user) != receive or order != f"{self.name}-{user[1:]}":
                self.wrong.append(
                    f"{order} has used {receive}; answered: {self.receives.get(user)}"
                )


def ulid(uuid):
    digits, number = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", uuid.int
    return "".join(digits[number >> 5 * place & 31] for place in reversed(range(26)))


async def run(stack, command, users):
    """What is wrong."""
    coupon = stack.coupon_make({"total": 3 * users, "limit": 3})
    driver = await Driver.start(command)
    await driver.do(do="open", gateways=[stack.url], **({"ca": stack.ca} if stack.ca else {}))
    load = Load(stack, driver, coupon, users)
    await load.run()
    await driver.end()
    load.judge()
    print(
        f"{users} users, {load.answered} calls, {KILLS} kills: {load.replayed} replayed,"
        f" {load.repeated} repeated after the deadline"
    )
    for one in load.wrong[:10]:
        print(f"FAILED  {one}")
    return load.wrong
