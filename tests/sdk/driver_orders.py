"""Orders for the driver of a client, one after the other: see sdk/conformance/README.md."""

import asyncio
import sys

from stack import ROOT

sys.path.append(str(ROOT / "sdk/conformance"))
from client_driver import Driver  # noqa: E402


def asked(command, *orders):
    """The answers to these orders, one after the other."""

    async def run():
        driver = await Driver.start(command)
        answers = [await driver.do(**order) for order in orders]
        await driver.end()
        return answers

    return asyncio.run(run())


def call(op, members, **options):
    return {"do": "call", "op": op, "members": members, "options": options}
