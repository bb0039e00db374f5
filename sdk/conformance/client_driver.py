"""The suite's side of a client's driver: calls as lines of JSON, answers in any order."""

import asyncio
import itertools
import json


class Driver:
    """hello: what the driver has said about itself."""

    @classmethod
    async def start(cls, command):
        self = cls()
        self.child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        self.hello = json.loads(await self.child.stdout.readline())
        self.numbers, self.waiting = itertools.count(1), {}
        self.reading = asyncio.create_task(self._read())
        return self

    def send(self, **order):
        """The number of the order, and the future of its answer."""
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.child.stdin.write(json.dumps({"id": number, **order}).encode() + b"\n")
        return number, self.waiting[number]

    def call(self, op, members, **options):
        return self.send(do="call", op=op, members=members, options=options)

    async def do(self, **order):
        return await self.send(**order)[1]

    async def end(self):
        self.child.stdin.close()
        await self.child.wait()
        await self.reading

    async def _read(self):
        while line := await self.child.stdout.readline():
            answer = json.loads(line)
            self.waiting.pop(answer.pop("id")).set_result(answer)
        for future in self.waiting.values():
            future.set_exception(RuntimeError("the driver has ended"))
