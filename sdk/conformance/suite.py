#!/usr/bin/python3
"""The conformance suite: suite.py [OPTIONS] COMMAND…, COMMAND being the driver of a client.

Each scenario of scenarios/*.json is run against a real stack, through a gateway that misbehaves as
the scenario says; then the gateway is killed under load (killed.py). See README.md.
"""

import argparse
import asyncio
import base64
import functools
import hmac
import json
import re
import secrets
import sys
import time
from pathlib import Path

import killed
from client_driver import Driver
from faulty import Faulty
from real_stack import WAIT_S, RealStack, wait_until

HERE = Path(__file__).resolve().parent
ATTEMPT_MS = 10000
LANES = 4  # scenarios at the same time: they mostly wait
STEPS = {"call", "cancel", "close", "faults", "function", "late", "open", "rows", "seen", "signed"}
STEPS |= {"start", "until_held", "wait"}


class Wrong(AssertionError):
    """The client, or what it left in PostgreSQL, is not as the scenario says."""


def expect(condition, text):
    if not condition:
        raise Wrong(text)


def scenarios_read(chosen):
    return [
        {"file": path.stem, **scenario}
        for path in sorted((HERE / "scenarios").glob("*.json"))
        for scenario in json.loads(path.read_text("utf-8"))
        if chosen in f"{path.stem}: {scenario['name']}"
    ]


def filled(value, names):
    """The value, with the variables in its texts replaced."""
    if isinstance(value, str):
        if value.startswith("$") and value[1:] in names:
            return names[value[1:]]
        return re.sub(r"\$\{(\w+)\}", lambda found: str(names[found[1]]), value)
    if isinstance(value, list):
        return [filled(one, names) for one in value]
    if isinstance(value, dict):
        return {name: filled(one, names) for name, one in value.items()}
    return value


def differs(found, wanted, path="the answer"):
    """What differs from what is wanted, or None. Members that are not wanted may be there; "*" is
    any value but null, and "!TEXT" any but this and null."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return f"{path} is {found!r}, not an object"
        each = (differs(found.get(name), one, f"{path}.{name}") for name, one in wanted.items())
        return next(filter(None, each), None)
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{path} is {found!r}, wanted are {len(wanted)} of {wanted!r}"
        each = (
            differs(one, want, f"{path}[{n}]") for n, (one, want) in enumerate(zip(found, wanted))
        )
        return next(filter(None, each), None)
    if wanted == "*":
        return None if found is not None else f"{path} is missing"
    if isinstance(wanted, str) and wanted.startswith("!"):
        return None if found not in (None, wanted[1:]) else f"{path} is {found!r}"
    return None if found == wanted else f"{path} is {found!r}, wanted is {wanted!r}"


class Scene:
    """One scenario: its variables, and its steps by name."""

    def __init__(self, stack, faulty, driver, scenario):
        self.stack, self.faulty, self.driver, self.scenario = stack, faulty, driver, scenario
        self.started = {}  # calls that are not awaited yet
        self.names = {
            "gateway": stack.url,
            "faulty": faulty.url,
            "dead": "http://127.0.0.1:1",
            "user": f"u{secrets.token_hex(4)}",
            "order": f"o{secrets.token_hex(4)}",
            "key": f"k{secrets.token_hex(4)}",
        }

    async def run(self):
        self.faulty.clear()
        if "terms" in self.scenario:
            terms, codes = filled(self.scenario["terms"], self.names), []
            for number in range(1, self.scenario.get("codes", 0) + 1):
                codes.append(f"C{secrets.token_hex(8)}".upper())
                self.names[f"code{number}"] = codes[-1]
            make = self.stack.coupon_make
            self.names["coupon"] = await asyncio.to_thread(make, terms, codes)
        await self.open({})
        for number, step in enumerate(self.scenario["steps"], 1):
            try:
                await self.step(filled(step, self.names))
            except Wrong as wrong:
                raise Wrong(f"step {number}, {json.dumps(step)}: {wrong}") from None
        await self.driver.do(do="close")

    async def step(self, step):
        (name,) = STEPS & step.keys()
        more = {key: value for key, value in step.items() if key != name}
        await getattr(self, name)(step[name], **more)

    # The steps

    async def faults(self, faults):
        self.faulty.faults = [*faults]

    async def open(self, options):
        options = {"gateways": [self.faulty.url], "attempt_ms": ATTEMPT_MS, **options}
        if self.stack.ca:
            options["ca"] = self.stack.ca
        await self.driver.do(do="open", **options)

    async def call(self, op, members=None, want=None, save=None, times=1, **options):
        for _ in range(times):
            _, answer = self.driver.call(op, members or {}, **options)
            self.compare(await in_time(answer, op), want, save)

    async def start(self, name, op, members=None, **options):
        self.started[name] = self.driver.call(op, members or {}, **options)

    async def until_held(self, count):
        """Until the misbehaving gateway has so many requests to which no reply comes."""
        for _ in range(WAIT_S * 50):
            if self.faulty.held >= count:
                return
            await asyncio.sleep(0.02)
        raise Wrong(f"{self.faulty.held} requests are held")

    async def late(self, kind):
        """`copy`: the late copy comes now; `end`: what came on idle connections has arrived. A
        client that watches them has ended them."""
        if kind == "copy":
            await self.faulty.say_late()
        watches = "watch" in self.driver.hello["can"]
        for _ in range(WAIT_S * 50):
            if self.faulty.are_over() if watches else self.faulty.ends_arrived():
                return
            await asyncio.sleep(0.02)
        raise Wrong("the client does not get the end of its connections")

    async def cancel(self, name):
        await self.driver.do(do="cancel", call=self.started[name][0])

    async def close(self, _):
        await self.driver.do(do="close")

    async def wait(self, name, want=None, save=None):
        self.compare(await in_time(self.started.pop(name)[1], name), want, save)

    async def function(self, name, want=None, save=None, **arguments):
        self.compare(await in_time(self.driver.send(do=name, **arguments)[1], name), want, save)

    async def signed(self, body, by, age_s=0):
        """A request to a webhook: `$headers` and `$body`."""
        at, keys = int(time.time()) - age_s, [base64.b64decode(one[6:]) for one in by]
        text = f"msg_1.{at}.{body}".encode()
        digests = (base64.b64encode(hmac.digest(key, text, "sha256")).decode() for key in keys)
        self.names["body"] = body
        self.names["headers"] = {
            "Webhook-Id": "msg_1",
            "Webhook-Timestamp": str(at),
            "Webhook-Signature": " ".join(f"v1,{one}" for one in digests),
        }

    async def seen(self, wanted):
        """The requests that the misbehaving gateway has got since the last such step."""
        requests = self.faulty.requests
        found = {
            "requests": len(requests),
            "keys": len({one.key for one in requests}),
            "without_key": sum(one.key is None for one in requests),
            "ids": len({one.members.get("id") for one in requests}),
            "connections": len({one.connection for one in requests}),
            "late": self.faulty.late,
        }
        wrong = differs(found, {name: one for name, one in wanted.items() if name != "gaps_ms"})
        expect(not wrong, f"{wrong}, of {found}")
        gaps = [(b.at - a.at) * 1000 for a, b in zip(requests, requests[1:])]
        expect(
            all(gap >= least for gap, least in zip(gaps, wanted.get("gaps_ms", []))),
            f"between the requests were {gaps} ms",
        )
        self.faulty.requests, self.faulty.late = [], 0

    async def rows(self, wanted):
        coupon = self.names["coupon"]
        is_settled = functools.partial(self.stack.is_settled, coupon)
        expect(await asyncio.to_thread(wait_until, is_settled), "receives have no outcome")
        wrong = differs(self.stack.rows(coupon), wanted, "PostgreSQL")
        expect(not wrong, wrong)

    def compare(self, found, want, save):
        if "coupons" in found:
            found["count"] = len(found["coupons"])
        wrong = differs(found, want or {})
        expect(not wrong, f"{wrong}; all of it: {found}")
        for name, path in (save or {}).items():
            value = found
            for part in path.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]
            self.names[name] = value


async def in_time(answer, name):
    try:
        return await asyncio.wait_for(answer, WAIT_S)
    except asyncio.TimeoutError:
        raise Wrong(f"{name} has no answer after {WAIT_S} s") from None


async def lane_run(stack, command, scenarios, failed):
    """Scenarios one after the other, with a driver and a misbehaving gateway of the lane."""
    faulty = Faulty(stack)
    await faulty.start()
    driver = await Driver.start(command)
    for scenario in scenarios:
        name = f"{scenario['file']}: {scenario['name']}"
        if scenario.get("needs", "") not in ["", *driver.hello["can"]]:
            continue
        try:
            await Scene(stack, faulty, driver, scenario).run()
            print(f"ok      {name}", flush=True)
        except Wrong as wrong:
            failed.append(name)
            print(f"FAILED  {name}\n        {wrong}", flush=True)
    await driver.end()


async def scenarios_run(stack, command, chosen):
    """The names of those that have failed."""
    failed, scenarios = [], iter(scenarios_read(chosen))
    await asyncio.gather(*(lane_run(stack, command, scenarios, failed) for _ in range(LANES)))
    return failed


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run-dir", default=".run", help="the folder of the stack (.run)")
    parser.add_argument("--only", default="", help="the scenarios whose names contain this")
    parser.add_argument("--kill", type=int, default=0, metavar="USERS", help="under kill -9")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the driver of a client")
    given = parser.parse_args()
    stack = RealStack(given.run_dir)
    if given.kill:
        failed = await killed.run(stack, given.command, given.kill)
    else:
        failed = await scenarios_run(stack, given.command, given.only)
    print(f"{' '.join(given.command)}: {'FAILED' if failed else 'PASS'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    asyncio.run(main())
