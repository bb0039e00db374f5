"""The client for Python, beyond what the conformance suite asks of every client."""

import asyncio
import base64
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asyncapi import PAGE as ASYNCAPI
from asyncapi import members_of
from certificates import Authority
from endpoint import Endpoint
from process import ISSUER, Worker, gateway_process, guarded_process, jwks_write
from relay import Relay, port_of
from seed import SEED
from stack import ROOT, wait_until
from webhooks import SOON, Webhooks

SDK = ROOT / "sdk/python"
sys.path.insert(0, str(SDK))
from couponmq import AsyncClient, Client, Money, TokenSigner, Unavailable, Unknown  # noqa: E402
from couponmq import Webhook, calls, client, errors, events, values  # noqa: E402
from couponmq.wire import Broken, Reply, reply_read  # noqa: E402

DEAD = "127.0.0.2"  # where nobody answers
LONG_S = 60  # generous: only what never comes takes so long
OPENAPI = json.loads((ROOT / "docs/reference/openapi.json").read_text("utf-8"))


# The answers of docs/reference/errors.md: the status of each code
ANSWERS = {
    int(code): statuses.split("`")[1]
    for code, statuses in re.findall(
        r"^\| (\d+) \| (`.*?) \| \d{3} \|",
        (ROOT / "docs/reference/errors.md").read_text("utf-8"),
        re.M,
    )
}


# Attempts and waits, with a clock of their own


class Clocked:
    """A call whose client does what the test says, at times that the test makes."""

    def __init__(self, members, deadline_s=30.0, chance=None):
        self.core = calls.Core("http://gateway", deadline_s=deadline_s)
        self.now = 0.0
        self.core.clock = lambda: self.now
        self.core.chance = chance or random.Random(SEED).random
        self.call = calls.Call(self.core, "issue", values.IssueAnswer, members)
        self.call.prepare()

    def refused(self, code, status=429, headers=None, **members):
        """Sends, and gets such an answer; returns how long the client waits then."""
        body = {"code": code, "status": ANSWERS.get(code, "x"), **members}
        return self.got(status, body, headers)

    def got(self, status, body, headers=None):
        self.call.begun = True
        return self.waits(Reply(status, headers or {}, body, False))

    def failed(self, error, after_s=0.0):
        """No reply came, after this time."""
        self.now += after_s
        return self.waits(error)

    def waits(self, came):
        pause_s = self.call.judge(came)
        self.now += pause_s
        self.call.prepare()
        return pause_s


def test_a_told_wait_is_kept_and_spread():
    waits = []
    for _ in range(50):
        one = Clocked(calls.issue(1, 2), chance=random.random)
        waits.append(one.refused(23, retry_after_ms=200, headers={"retry-after": "9"}))
    assert all(0.2 <= wait <= 0.25 for wait in waits)
    assert len({round(wait, 6) for wait in waits}) > 10, "each client waits equally long"


def test_waits_that_nobody_told_grow_to_two_seconds():
    one = Clocked(calls.issue(1, 2), deadline_s=1000, chance=lambda: 1.0)
    waits = [one.refused(21, status=503) for _ in range(8)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    one = Clocked(calls.issue(1, 2), deadline_s=1000, chance=lambda: 0.0)
    assert one.refused(21, status=503) == 0.025


def test_neither_waits_nor_attempts_go_beyond_the_deadline():
    one = Clocked(calls.issue(1, 2), deadline_s=12.0)
    assert one.call.within_s == 10.0
    with pytest.raises(Unavailable, match="not done"):
        while True:
            one.refused(20, retry_after_ms=1500)
            assert one.now < 12.0 and one.call.within_s <= 12.0 - one.now
    assert one.now > 7.0


def test_an_attempt_that_the_deadline_shortens_does_not_hide_why_the_others_failed():
    one = Clocked(calls.issue(1, 2), deadline_s=12.0)
    assert one.call.within_s == 10.0
    one.failed(TimeoutError())
    one.failed(OSError("certificate verify failed"))
    one.now = 11.0
    one.call.prepare()
    with pytest.raises(Unavailable, match="no reply: certificate verify failed; 3 attempts"):
        one.failed(TimeoutError(), after_s=1.0)
    one = Clocked(calls.issue(1, 2), deadline_s=1.0)
    with pytest.raises(Unavailable, match="no reply: timed out; 1 attempts"):
        one.failed(TimeoutError(), after_s=1.0)
    one = Clocked(calls.issue(1, 2), deadline_s=10.1, chance=lambda: 1.0)
    with pytest.raises(Unavailable, match="no reply: timed out; 2 attempts"):
        one.failed(OSError("refused"))
        one.call.within_s = 10.0
        one.failed(TimeoutError(), after_s=10.0)


def test_a_wait_of_nothing_is_a_pause():
    one = Clocked(calls.issue(1, 2), chance=lambda: 0.0)
    for told in ({"headers": {"retry-after": "0"}}, {"retry_after_ms": 0}, {"retry_after_ms": 1}):
        assert one.refused(20, **told) >= 0.025


@pytest.mark.parametrize("last", [20, 21, 23, 41])
def test_an_unknown_attempt_is_not_forgotten(last):
    one = Clocked(calls.use("order-1", "1.2.3.4", key="mine"))
    one.refused(22, status=504)
    with pytest.raises(Unknown) as unknown:
        one.refused(last, status=401 if last == 41 else 429, retry_after_ms=99000)
    assert unknown.value.key == "mine"


def test_a_call_says_what_it_has_done_itself():
    one = Clocked(calls.issue(1, 2, key="mine"))
    with pytest.raises(Unavailable, match="^issue was not done by this call: "):
        one.refused(21, status=503, headers={"retry-after": "99"})


def test_a_bad_request_that_is_repeated_is_the_answer():
    one = Clocked(calls.rollback("order-1", "1.2.3.4", key="mine"))
    one.refused(22, status=504)
    with pytest.raises(errors.BadRequest, match="use release"):
        one.refused(40, status=400, replayed=True, message="use release to end a hold")


def test_a_request_that_has_not_arrived_in_time_is_sent_again():
    one = Clocked(calls.issue(1, 2))
    assert one.refused(40, status=408) > 0
    assert one.got(408, {}) > 0


PROXYS = [
    *({"code": code, "status": "error"} for code in (-1, 18.0, "0", True, None, 45, 20, 21, 40)),
    *({"code": code, "status": 502} for code in (0, 2, 20, 21)),
    {"code": 0},
    {"code": 18, "status": None},
]


@pytest.mark.parametrize("body", PROXYS, ids=str)
def test_the_code_of_a_proxy_is_no_answer(body):
    for status in (502, 503, 504):
        one = Clocked(calls.issue(1, 2, key="mine"))
        one.got(status, body)
        with pytest.raises(Unknown) as unknown:
            one.refused(21, status=503, headers={"retry-after": "99"})
        assert unknown.value.key == "mine"
    with pytest.raises(errors.HttpError):
        Clocked(calls.issue(1, 2)).got(403, body)


# Replies, as bytes


def reply_of(*parts, request_id="mine-1"):
    *earlier, last = itertools.accumulate(parts)
    assert not any(reply_read(data, request_id) for data in earlier)
    return reply_read(last, request_id)


def head_of(body, status=200, **headers):
    named = {"Content-Length": len(body), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode("latin-1")


def answer_of(http_status, headers=(), /, **body):
    text = json.dumps(body).encode()
    return reply_of(head_of(text, http_status, **dict(headers)) + text)


def test_each_answer_of_the_protocol_is_one():
    assert len(ANSWERS) >= 26
    for code, status in ANSWERS.items():
        reply = answer_of(200, id="mine-1", code=code, status=status)
        assert (reply.code, reply.is_last) == (code, False)
        with pytest.raises(Broken):
            answer_of(200, id="mine-2", code=code, status=status)


@pytest.mark.parametrize("code", sorted(ANSWERS))
def test_only_a_request_that_was_not_parsed_is_answered_without_its_id(code):
    """Proxies replace X-Request-Id."""
    told = {"code": code, "status": ANSWERS[code]}
    if code < 20 or code in (22, 44):
        with pytest.raises(Broken):
            answer_of(409, **told)
        return
    reply = answer_of(401, {"X-Request-Id": "a-proxys"}, **told)
    assert (reply.code, reply.is_last) == (code, True)


def test_bytes_behind_a_reply_end_the_connection():
    """They are of no request, and must not be read as the reply to the next one."""
    text = json.dumps({"id": "mine-1", "code": 0, "status": "ok"}).encode()
    whole = head_of(text) + text
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
    for data in (whole, head_of(b"", Transfer_Encoding="chunked") + chunks):
        for behind, is_last in ((b"", False), (b"H", True), (whole, True)):
            reply = reply_read(data + behind, "mine-1")
            assert (reply.code, reply.is_last) == (0, is_last)


def test_a_proxys_reply_needs_no_id():
    for body in (b"<html>", b"[]", b'{"id":"other","code":502}', b"[" * 100000, b"9" * 5000):
        reply = reply_of(head_of(body, 502) + body)
        assert (reply.code, reply.http_status, reply.is_last) == (None, 502, True)


BROKEN = [
    *(head_of(b"", Content_Length=size) for size in ("-1", "²", "9" * 5000, "99999999999", "")),
    *(
        head_of(b"", Transfer_Encoding="chunked") + size + b"\r\nxxxxxx"
        for size in (b"-6", b"\xb2", b"+6", b"0x6", b"1_0", b"", b"6\n", b"9" * 500)
    ),
    head_of(b"", Transfer_Encoding="chunked") + b"3\r\nxxxxxx\r\n",
    *(b"HTTP/1.1 %b Said\r\n\r\n" % status for status in (b"\xb2\xb2\xb2", b"2000", b"20", b"-20")),
    b"HTTP/1x1 200 Said\r\nContent-Length: 0\r\n\r\n",
]


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: repr(data[-24:]))
def test_bytes_that_are_no_reply_are_refused(data):
    with pytest.raises(Broken):
        reply_of(data)


def test_a_reply_in_chunks_may_have_extensions_and_trailers():
    chunks = b'2;name="x"\r\n{}\r\n0\r\nTrailer: 1\r\n', b"\r\n"
    assert reply_of(head_of(b"", 503, Transfer_Encoding="chunked"), *chunks).body == {}


# The README and the documents


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_sample_of_the_readme(stack, make_coupon, capsys):
    coupon = make_coupon(10, amount_off="5.00", currency="EUR")
    sample, second = blocks((SDK / "README.md").read_text("utf-8"))
    sample = sample.replace("http://127.0.0.1:7480", stack.http("")).replace("1001", coupon)
    sample = sample.replace("order-77", f"order-{coupon}")  # each run has keys of its own
    names = {}
    exec(compile(sample, "README.md", "exec"), names)
    assert capsys.readouterr().out == "to pay: 15.00 EUR\n"
    assert names["used"].stands
    shown = names["client"].status(names["held"].receive)
    assert (shown.status, shown.use) == ("issued", None), "it was rolled back"
    names["client"].close()
    pem = ec_key()[0]
    exec(compile(second, "README.md", "exec"), {"private_pem": pem})


def test_types_are_right_and_checked(tmp_path):
    """The client's own, and those of its calls: both kinds of clients have the same list."""
    right = [
        "from couponmq import AsyncClient, Client, Money, values",
        "def issue(one: Client) -> values.IssueAnswer:",
        "    return one.issue(1, '2', ack='issued', key='x', deadline_s=1.0)",
        "async def use(one: AsyncClient) -> values.OrderAnswer:",
        "    return await one.use('1', '2', amount=Money(1, 'EUR'), by='me')",
        "async def wrong(one: Client, other: AsyncClient) -> None:",
    ]
    wrong = [
        *("one.issue(1, None)", "one.issue(1)", "one.issue(1, 2, colour='red')", "one.isue(1, 2)"),
        *("one.quote(1, 2.5)", "one.ping().slot", "one.coupon(1, key='x')", "other.ping().ok"),
        "(await other.ping()).slot",
    ]
    program = tmp_path / "program.py"
    program.write_text("\n".join([*right, *(f"    {call}" for call in wrong)]))
    done = subprocess.run(
        ["mypy", "--cache-dir", os.devnull, "couponmq", program],
        cwd=SDK,
        env={**os.environ, "MYPYPATH": str(SDK)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    told = set(re.findall(r"(\w+\.py):(\d+): error", done.stdout))
    lines = range(len(right) + 1, len(right) + len(wrong) + 1)
    assert told == {(program.name, str(line)) for line in lines}, done.stdout


def test_the_version_is_that_of_the_programs():
    header = (ROOT / "common/program/program.h").read_text("ascii")
    version = re.search('PROGRAM_VERSION "(.*)"', header)[1]
    project = tomllib.loads((SDK / "pyproject.toml").read_text("ascii"))["project"]
    assert project["version"] == version.replace("-dev", ".dev0")


def properties(schema):
    """The members that a reply by this schema may have."""
    if "$ref" in schema:
        schema = OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    each = [properties(one) for one in schema.get("oneOf", [])]
    return set(schema.get("properties", {})).union(*each)


@pytest.mark.parametrize("op", [path[4:] for path in OPENAPI["paths"] if path[:4] == "/v1/"])
def test_each_member_of_an_answer_is_read(op):
    """But those that were in the request, and currency, which is in the amounts."""
    if op in ("stats", "users/{user}/coupons"):
        assert not hasattr(Client, op)
        return
    needed = {
        "status": ("1.2.3.4",),
        "coupon": (1,),
        "coupons": (1,),
        "quote": (1, Money(1, "EUR")),
        "offers": (),
    }
    arguments = needed.get(op, () if op in ("ping", "status") else ("1", "2"))
    named = {"coupon": 1, "user": 2} if op == "status" else {}
    members = getattr(calls, op)(*arguments, **named)
    answer = vars(client.Methods)[f"{op}_page" if op in ("coupons", "offers") else op].answer
    path = OPENAPI["paths"][f"/v1/{op}"]
    replies = (path.get("post") or path["get"])["responses"]
    content = [replies[status].get("content", {}) for status in ("200", "404", "409")
               if status in replies]  # fmt: skip
    schemas = [one["application/json"]["schema"] for one in content if one]
    found = set().union(*map(properties, schemas))
    known = {one.name for one in dataclasses.fields(answer)}
    of_others = {"user"} if op == "quote" else set()  # of the quote of a user
    assert found - known <= {"id", "currency", *members} | of_others


def test_the_parts_of_answers_are_read():
    for name, cls in {
        "Discount": values.Discount,
        "Use": values.Use,
        "ReceiveNow": values.Now,
        "IssuedReceive": values.Receive,
        "RejectedReceive": values.Receive,
        "UsedReceive": values.OrderReceive,
        "UserCoupon": values.UserCoupon,
    }.items():
        known = {one.name for one in dataclasses.fields(cls)}
        assert properties({"$ref": f"#/{name}"}) - known <= {"currency"}, name


def test_each_member_of_an_event_is_read():
    for message in ASYNCAPI["components"]["messages"].values():
        cls = events._DATA[message["name"]]
        known = {one.name for one in dataclasses.fields(cls)}
        assert members_of(message["name"]) - known <= {"currency", "from"}, message["name"]


def test_the_examples_of_events_are_read():
    found = 0
    for message in ASYNCAPI["components"]["messages"].values():
        for example in message.get("examples", []):
            (event, *_) = events.events_read(json.dumps(example["payload"]).encode())
            assert event.type == message["name"] and event.time.tzinfo
            assert isinstance(event.data, events._DATA[event.type])
            found += 1
    assert found >= 8


# Money


def test_amounts_are_exact():
    price = Money.parse("12.50", "EUR")
    assert price == Money(1250, "EUR") == price + Money(7, "EUR") - Money(7, "EUR")
    assert (str(Money(7, "KWD")), str(Money(0, "EUR") - price)) == ("0.007 KWD", "-12.50 EUR")
    for wrong in (12.5, True, "12"):
        with pytest.raises(TypeError):
            Money(wrong, "EUR")
    with pytest.raises(ValueError, match="different currencies"):
        Money(1, "EUR") - Money(1, "JPY")


# Tokens


def b64(number):
    return base64.urlsafe_b64encode(number).rstrip(b"=").decode()


def ec_key():
    """The PEM of a private key of P-256, and its public part for the gateway."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    numbers = private.public_key().public_numbers()
    x, y = (b64(one.to_bytes(32, "big")) for one in (numbers.x, numbers.y))
    return pem_of(private, serialization), {"kty": "EC", "crv": "P-256", "x": x, "y": y}


def ed_key():
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    private = ed25519.Ed25519PrivateKey.generate()
    raw = private.public_key().public_bytes(
        serialization.Encoding.Raw, serialization.PublicFormat.Raw
    )
    return pem_of(private, serialization), {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}


def pem_of(private, serialization):
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def hmac_key():
    secret = secrets.token_hex(16).encode()
    return secret, {"kty": "oct", "k": b64(secret)}


def test_the_gateway_takes_tokens(stack, make_coupon, tmp_path):
    keys = {"es": ec_key(), "ed": ed_key(), "hs": hmac_key()}
    jwks = [{**public, "kid": kid} for kid, (_, public) in keys.items()]
    path = jwks_write(tmp_path, {"keys": jwks})
    coupon, other = make_coupon(10, limit=5), make_coupon(10)
    gateway = guarded_process(stack, "gateway-sdk", path)
    try:
        for kid, (private, _) in keys.items():
            signer = TokenSigner(private, kid, issuer=ISSUER)
            with Client(gateway.http(""), signer.token("42", coupons=[coupon])) as one:
                assert one.issue(coupon, 42).ok
                assert [coupon] == [of.coupon for of in wait_until(lambda: list(one.coupons(42)))][
                    :1
                ]
                for wrong in ((coupon, 43), (other, 42)):
                    with pytest.raises(errors.Forbidden):
                        one.issue(*wrong)
            with Client(gateway.http(""), signer.token("42", key="press-1")) as one:
                receives = {one.issue(coupon, 42, key="press-1").receive for _ in range(2)}
                assert len(receives) == 1
                with pytest.raises(errors.BadRequest, match="the key of the token"):
                    one.issue(coupon, 42)
        strange = TokenSigner(ec_key()[0], "es", issuer=ISSUER)
        with Client(gateway.http(""), strange.token("42")) as one:
            with pytest.raises(errors.Unauthorized):
                one.issue(coupon, 42)
    finally:
        gateway.end()
    with pytest.raises(ValueError):
        TokenSigner(b"short", "hs", issuer=ISSUER)


@pytest.mark.parametrize(
    "error, named",
    [
        (TypeError, {"user": None}),
        (TypeError, {"user": True}),
        (ValueError, {"user": ""}),
        (ValueError, {"coupons": []}),
        (TypeError, {"coupons": "1001"}),
        (TypeError, {"coupons": [None]}),
        (TypeError, {"coupons": 1001}),
        (ValueError, {"coupons": range(1, 66)}),
        (ValueError, {"key": ""}),
    ],
    ids=str,
)
def test_a_token_is_not_made_of_wrong_arguments(error, named):
    """What would be a token for all coupons, or for another user."""
    (name,) = named
    with pytest.raises(error, match=f"^{name} "):
        TokenSigner(hmac_key()[0], "hs", issuer=ISSUER).token(**{"user": "42", **named})


# Webhooks


def test_webhooks_of_a_worker_are_verified_and_read(own_stack):
    hooks, endpoint, client = Webhooks(own_stack), Endpoint(), Client(own_stack.http(""))
    worker = Worker(own_stack, "worker-sdk", SOON)
    try:
        hook, secret = hooks.add(endpoint.url())
        coupon = own_stack.coupon_make(10, amount_off="5.00", currency="EUR", events="on")
        issued = client.issue(coupon, 42, ack="issued", key="press-1")
        order = {"receive": issued.receive, "amount": Money(2000, "EUR")}
        held, used = client.hold("order-1", **order), client.use("order-1", **order)
        client.rollback("order-1", issued.receive, reason="sent back")
        own_stack.ctl("void", issued.receive, "--why", "fraud")
        webhook = Webhook([secret])

        def told():
            """By type; each body is verified."""
            read = [webhook.read(one.headers, one.body) for one in endpoint.requests]
            return {e.type: e.data for each in read for e in each if e.subject == coupon}

        wanted = {"issued", "held", "used", "rolled_back", "voided"}
        wait_until(lambda: {f"coupon.{one}" for one in wanted} <= told().keys())
        by_type = told()
        assert by_type["coupon.issued"].key == "press-1"
        assert by_type["coupon.held"].until == held.until
        assert by_type["coupon.used"].amount_off == used.amount_off == Money(500, "EUR")
        assert by_type["coupon.rolled_back"].reason == "sent back"
        assert by_type["coupon.voided"].receive == issued.receive
        hooks("test", hook)
        (tested,) = webhook.read(endpoint.requests[-1].headers, endpoint.requests[-1].body)
        assert (tested.type, tested.subject) == ("webhook.test", None)
        assert tested.data == {"webhook": str(hook)} and tested.time.tzinfo
        request = endpoint.requests[0]
        with pytest.raises(errors.BadSignature):
            webhook.read(request.headers, request.body + b" ")
    finally:
        worker.end()
        hooks.close()
        endpoint.close()
        client.close()


@pytest.mark.parametrize("size", [0, 23, 65])
def test_a_secret_of_another_length_is_refused(size):
    good = f"whsec_{base64.b64encode(bytes(32)).decode()}"
    wrong = f"whsec_{base64.b64encode(bytes(size)).decode()}"
    for given in ("", [], wrong, [good, wrong]):
        with pytest.raises(ValueError, match="24 to 64 bytes"):
            Webhook(given)


@pytest.mark.parametrize(
    "name, value",
    [
        ("timestamp", "9" * 400),
        ("timestamp", "-1"),
        ("timestamp", "１７９５"),
        ("timestamp", ""),
        ("signature", "v1,é"),
        ("signature", "v1,a"),
        ("signature", ""),
        ("id", "\udcff"),
    ],
)
def test_a_malformed_header_of_a_webhook_is_a_bad_signature(name, value):
    headers = {
        "id": "msg_1",
        "timestamp": str(int(time.time())),
        "signature": "v1,AAAA",
        name: value,
    }
    with pytest.raises(errors.BadSignature):
        Webhook("whsec_" + "A" * 44).read(
            {f"Webhook-{part}": headers[part] for part in headers}, b"[]"
        )


# What became of an order


def test_a_repeated_answer_stands_while_the_order_has_the_receive(stack, make_coupon):
    with Client(stack.http("")) as one:
        receive = one.issue(make_coupon(10), 42, ack="issued").receive
        hold = functools.partial(one.hold, "order-1", receive)
        use = functools.partial(one.use, "order-1", receive)
        assert hold(key=f"{receive}/1/hold").stands and use(key=f"{receive}/1/use").stands
        assert (
            hold(key=f"{receive}/1/hold").stands and use(key=f"{receive}/1/use").stands
        ), "held, and then used"
        assert not one.use("order-2", receive).stands
        assert one.rollback("order-1", receive).ok
        assert not hold(key=f"{receive}/1/hold").stands and not use(key=f"{receive}/1/use").stands
        assert one.hold("order-1", receive, key=f"{receive}/2/hold").stands
        assert hold(key=f"{receive}/1/hold").stands
        again = use(key=f"{receive}/1/use")
        assert (again.status, again.now.state, again.now.order) == ("used", "held", "order-1")
        assert not again.stands, "it has no discount: it is only held"
        released = one.release("order-1", [receive])
        assert released.ok and not released.stands


# Connections


def test_a_call_that_is_cancelled_before_it_is_sent(stack, make_coupon):
    coupon = make_coupon(10)

    async def main():
        async with AsyncClient("http://127.0.0.1:1") as one:
            task = asyncio.create_task(one.issue(coupon, 1))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert isinstance(cancelled.value.__cause__, Unavailable)
        with pytest.raises(Unavailable):
            await one.issue(coupon, 1)

    asyncio.run(main())


@pytest.fixture(params=["threads", "asyncio"])
def connect(request):
    """connect(url, **options): a client of this kind, whose calls give futures; it is closed at the
    end."""
    made = []

    def make(url, **options):
        made.append(Running(url, request.param == "asyncio", options))
        return made[-1]

    yield make
    for one in made:
        one.end()


class Running:
    """A client of either kind: start(op, …) is the future of a call."""

    def __init__(self, url, is_async, options):
        self.is_async = is_async
        self.client = (AsyncClient if is_async else Client)(url, **options)
        if is_async:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        else:
            self.pool = ThreadPoolExecutor(64)

    def start(self, op, *arguments, **named):
        method = getattr(self.client, op)
        if not self.is_async:
            return self.pool.submit(method, *arguments, **named)

        async def call():
            return await method(*arguments, **named)

        return asyncio.run_coroutine_threadsafe(call(), self.loop)

    def call(self, op, *arguments, **named):
        return self.start(op, *arguments, **named).result(LONG_S)

    def end(self):
        self.call("close")
        if self.is_async:
            self.loop.call_soon_threadsafe(self.loop.stop)
        else:
            self.pool.shutdown()


@pytest.fixture
def dead():
    """The port of an address that answers nothing: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((DEAD, 0))
        listener.listen(0)
        while True:
            one = socket.socket()
            one.settimeout(0.5)
            try:
                one.connect(listener.getsockname())
            except TimeoutError:
                one.close()
                break
            stack.enter_context(one)
        yield listener.getsockname()[1]


def connecting(port):
    """Connections to this port of DEAD that are being made."""
    place = f"{socket.inet_aton(DEAD)[::-1].hex().upper()}:{port:04X}"
    lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    return sum(line.split()[2:4] == [place, "02"] for line in lines)


@pytest.mark.plain
def test_the_next_address_of_a_host_is_tried(stack, make_coupon, connect, dead, monkeypatch):
    coupon, real = make_coupon(10), socket.getaddrinfo

    def two(host, port, *arguments, **named):
        hosts = [DEAD, "127.0.0.3"] if host == "shop.test" else [host]
        return [one for each in hosts for one in real(each, port, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    listen = {"COUPON_HTTP_LISTEN": f"127.0.0.3:{dead}", "COUPON_HTTP_HOSTS": "shop.test"}
    gateway = gateway_process(stack, "gateway-sdk-two", **listen)
    try:
        one = connect(f"http://shop.test:{dead}", attempt_s=LONG_S, deadline_s=LONG_S)
        assert one.call("issue", coupon, 1).ok
        assert next(one.client.numbers) == 2, "one attempt"
    finally:
        gateway.end()


def test_closing_ends_a_call_that_still_connects(connect, dead):
    one = connect(f"http://{DEAD}:{dead}", attempt_s=10 * LONG_S, deadline_s=10 * LONG_S)
    call = one.start("issue", 1, 2)
    wait_until(lambda: connecting(dead))
    one.call("close")
    with pytest.raises(Unavailable, match="the client is closed"):
        call.result(LONG_S)
    wait_until(lambda: not connecting(dead))


def test_old_connections_are_closed_by_the_next_call(stack, connect, monkeypatch):
    one = connect(stack.http(""))
    for call in [one.start("ping") for _ in range(8)]:
        call.result(LONG_S)
    kept = [used for _, _, used in one.client._idle._kept]
    assert kept
    monkeypatch.setattr(client, "IDLE_S", 0.0)
    assert one.call("ping").ok
    is_closed = {True: lambda used: used.transport.is_closing(), False: lambda used: used._closed}
    assert all(map(is_closed[one.is_async], kept)) and len(one.client._idle._kept) == 1


def test_a_child_after_fork_has_connections_of_its_own(stack, make_coupon):
    coupon = make_coupon(10)

    def in_child(work):
        """Whether work() is true in a child, in which it ends."""
        has_lock, has_forked = threading.Event(), threading.Event()

        def lock():
            with one._changed:
                has_lock.set()
                has_forked.wait()

        threading.Thread(target=lock, daemon=True).start()
        has_lock.wait()
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(LONG_S)
                os._exit(0 if work() else 1)
            finally:
                os._exit(2)
        has_forked.set()
        return os.waitpid(pid, 0)[1] == 0

    def ports():
        return {used.getsockname()[1] for _, _, used in one._idle._kept}

    def child():
        return one.issue(coupon, 2).ok and ports() and not ports() & mine and one.close() is None

    with Relay(port_of(stack.http(""))) as relay, ThreadPoolExecutor(1) as pool:
        with Client(relay.url(stack.http("")), attempt_s=LONG_S, deadline_s=LONG_S) as one:
            assert one.issue(coupon, 1).ok
            mine = ports()
            assert in_child(child) and ports() == mine and one.issue(coupon, 3).ok
            relay.hold()
            held = pool.submit(one.issue, coupon, 4)
            wait_until(lambda: one._busy)
            assert in_child(lambda: one.close() is None)
            relay.heal()
            assert held.result(LONG_S).ok and ports() == mine
            assert next(one.numbers) == 4, "each of three calls was sent once"
            one.close()
            assert in_child(lambda: pytest.raises(Unavailable, one.issue, coupon, 5))


def test_a_wait_for_a_connection_is_no_attempt(stack, make_coupon):
    coupon = make_coupon(10)

    async def main():
        one = AsyncClient(stack.http(""), attempt_s=0.01)
        for _ in range(client.CONNECTIONS_MAX):
            await one._turns.acquire()
        with pytest.raises(Unavailable, match="all connections were in use"):
            await one.issue(coupon, 1, deadline_s=0.1)
        call = asyncio.create_task(one.issue(coupon, 1))
        await asyncio.sleep(0.1)
        assert next(one.numbers) == 1, "nothing was tried yet"
        one.attempt_s = 10.0
        one._turns.release()
        assert (await call).ok and next(one.numbers) == 3
        await one._turns.acquire()
        call = asyncio.create_task(one.issue(coupon, 1))
        await asyncio.sleep(0)
        await one.close()
        with pytest.raises(Unavailable, match="the client is closed"):
            await call

    asyncio.run(main())


def test_many_tasks_share_the_connections(stack, make_coupon):
    coupon = make_coupon(500)

    async def main():
        async with AsyncClient(stack.http("")) as one:
            answers = await asyncio.gather(*(one.issue(coupon, user) for user in range(500)))
            assert 0 < len(one._idle._kept) <= 64
            assert len({answer.receive for answer in answers if answer.ok}) == 500

    asyncio.run(main())


def test_a_certificate_of_the_client_stands_for_its_key(stack, make_coupon, tmp_path):
    coupon, authority = make_coupon(10), Authority(tmp_path, "ca")
    certificate, key = authority.issue("IP:127.0.0.1")
    gateway = gateway_process(
        stack,
        "gateway-sdk-tls",
        ready=None,
        COUPON_AUTH="required",
        COUPON_TLS_CERT=certificate,
        COUPON_TLS_KEY=key,
        COUPON_TLS_CLIENT_CA=authority.path,
    )
    made = stack.ctl("key", "create", "--name", "sdk", "--role", "issue").split("_")[1]
    mine = tuple(map(str, authority.issue("DNS:shop", name=made)))
    try:
        wait_until(lambda: "event=gateway_known" in gateway.log())
        url, ca = f"https://{gateway.settings['COUPON_HTTP_LISTEN']}", str(authority.path)
        with Client(url, ca=ca, certificate=mine) as one:
            assert one.issue(coupon, 1).ok
        with Client(url, ca=ca) as one, pytest.raises(errors.Unauthorized):
            one.issue(coupon, 1)
        with Client(url, deadline_s=1.0) as one, pytest.raises(Unavailable, match="certificate"):
            one.issue(coupon, 1)
    finally:
        gateway.end()


def test_wrong_arguments_are_refused_before_anything_is_sent():
    with pytest.raises(ValueError):
        Client("127.0.0.1:7480")
    with pytest.raises(ValueError):
        Client("http://127.0.0.1:7480", "a\r\nX: y")
    with pytest.raises(TypeError, match="colour"):
        calls.issue(1, 2, colour="red")
    for call, wrong in {
        "coupon": lambda: calls.issue(None, 42),
        "user": lambda: calls.issue(1, None),
        "code": lambda: calls.claim(None, 42),
    }.items():
        with pytest.raises(TypeError, match=f"^{call} "):
            wrong()
    for wrong in (calls.coupon, calls.coupons):
        with pytest.raises(TypeError, match=" is None: must be a str or an int"):
            wrong(None)
    for op in (calls.issue, calls.use):
        with pytest.raises(ValueError, match="^key is empty"):
            op("1", "42", key="")
