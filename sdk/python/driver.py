"""Python's driver of the conformance suite, for threads or with --asyncio.

sdk/conformance/README.md tells what it reads and writes.
"""

import asyncio
import dataclasses
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from couponmq import AsyncClient, Client, Money, TokenSigner, Webhook, errors  # noqa: E402

NAMES = {
    errors.BadRequest: "bad_request",
    errors.Unauthorized: "unauthorized",
    errors.Forbidden: "forbidden",
    errors.TooLarge: "too_large",
    errors.KeyReused: "key_reused",
    errors.HttpError: "http",
    errors.Unavailable: "unavailable",
    errors.Unknown: "unknown",
    errors.BadSignature: "bad_signature",
}
LISTS = ("coupons", "offers")
THREADS = 64
OUT = threading.Lock()


def say(**told):
    with OUT:
        print(json.dumps(told, default=plain), flush=True)


def plain(value):
    """What JSON does not have, as the suite compares it."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    if isinstance(value, Decimal):
        return str(value)
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


def failed(error):
    if isinstance(error, errors.CouponError):
        told = {name: getattr(error, name, None) for name in ("key", "receive", "http_status")}
        return {"error": NAMES[type(error)], "message": str(error), **told}
    return {"error": "invalid", "message": f"{type(error).__name__}: {error}"}


def call_of(client, op, members, options):
    """The method and its arguments."""
    named = {**members, **options}
    if "currency" in named:
        named["amount"] = Money(named["amount"], named.pop("currency"))
    if "ttl_s" in named:
        named["ttl"] = timedelta(seconds=named.pop("ttl_s"))
    if op == "quote":
        named.setdefault("coupon", None)
    if "within" in named:
        named["within"] = timedelta(seconds=named["within"])
    if "receives" in named:
        named["receive"] = named.pop("receives")
    if "deadline_ms" in named:
        named["deadline_s"] = named.pop("deadline_ms") / 1000
    return getattr(client, op), named


def client_options(order):
    named = {name: order[name] for name in ("token", "ca") if name in order}
    named |= {
        f"{name}_s": order[f"{name}_ms"] / 1000
        for name in ("deadline", "attempt")
        if f"{name}_ms" in order
    }
    return order["gateways"], named


def function(order):
    """What needs no client."""
    if order["do"] == "money":
        return {"minor": Money.parse(order["text"], order["currency"]).minor}
    if order["do"] == "money_text":
        return {"text": Money(order["minor"], order["currency"]).text}
    if order["do"] == "token":
        signer = TokenSigner(order["private"].encode(), order["kid"], issuer=order["issuer"])
        named = {name: order[name] for name in ("coupons", "key") if name in order}
        return {"token": signer.token(order["user"], **named)}
    assert order["do"] == "webhook", order
    read = Webhook(order["secrets"]).read(order["headers"], order["body"].encode())
    return {"events": read}


def told(order, work):
    try:
        say(id=order["id"], **work())
    except Exception as error:  # whatever it is, the suite compares it
        say(id=order["id"], **failed(error))


def run_threads():
    client = None
    with ThreadPoolExecutor(THREADS) as pool:

        def work(client, order):
            method, named = call_of(client, order["op"], order["members"], order["options"])
            answer = method(**named)
            if order["op"] in LISTS:
                return {order["op"]: list(answer)}
            return {"answer": {"ok": answer.ok, **plain(answer)}}

        for order in map(json.loads, sys.stdin):
            if order["do"] == "call":
                pool.submit(told, order, lambda client=client, order=order: work(client, order))
            elif order["do"] in ("open", "close", "cancel"):
                if client:
                    client.close()
                if order["do"] == "open":
                    gateways, named = client_options(order)
                if order["do"] != "close":  # threads cancel a call by closing its client
                    client = Client(gateways, **named)
                say(id=order["id"])
            else:
                told(order, lambda order=order: function(order))


async def run_tasks():
    loop, client, tasks = asyncio.get_running_loop(), None, {}
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def work(client, order):
        try:
            method, named = call_of(client, order["op"], order["members"], order["options"])
            if order["op"] in LISTS:
                say(id=order["id"], **{order["op"]: [one async for one in method(**named)]})
                return
            answer = await method(**named)
            say(id=order["id"], answer={"ok": answer.ok, **plain(answer)})
        except asyncio.CancelledError as cancelled:
            say(id=order["id"], **failed(cancelled.__cause__))
        except Exception as error:
            say(id=order["id"], **failed(error))
        finally:
            tasks.pop(order["id"])

    while line := await reader.readline():
        order = json.loads(line)
        if order["do"] == "call":
            tasks[order["id"]] = loop.create_task(work(client, order))
        elif order["do"] == "cancel":
            tasks[order["call"]].cancel()
            say(id=order["id"])
        elif order["do"] in ("open", "close"):
            if client:
                await client.close()
            if order["do"] == "open":
                gateways, named = client_options(order)
                client = AsyncClient(gateways, **named)
            say(id=order["id"])
        else:
            told(order, lambda order=order: function(order))


if sys.argv[1:] == ["--asyncio"]:
    say(driver="python, asyncio", can=["cancel"])
    asyncio.run(run_tasks())
else:
    say(driver="python, threads", can=["cancel"])
    run_threads()
