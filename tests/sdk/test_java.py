"""The client for Java, beyond what the conformance suite asks of every client."""

import asyncio
import base64
import hmac
import json
import re
import textwrap
import time

import pytest

from asyncapi import PAGE as ASYNCAPI
from asyncapi import members_of
from driver_orders import Driver, asked, call
from process import ISSUER
from stack import ROOT
from test_python import OPENAPI, ec_key, ed_key, properties

pytestmark = pytest.mark.whole
SDK = ROOT / "sdk/java"
SECRET = "0123456789abcdef0123456789abcdef"


def components(path, record):
    """What a record has, by the names in JSON."""
    text = (SDK / "src/couponmq" / path).read_text("utf-8")
    text = text.replace('@SerializedName("final") Boolean isFinal', "Boolean final")
    found = re.search(rf"record {record}\(([^)]*)\)", text)[1]
    found = re.sub("<[^>]*>", "", found)
    return {re.sub("([A-Z])", r"_\1", one.split()[-1]).lower() for one in found.split(",")}


def test_the_sample_is_that_of_the_readme():
    sample = (SDK / "Sample.java").read_text("utf-8")
    blocks = re.findall("```java\n(.*?)```", (SDK / "README.md").read_text("utf-8"), re.S)
    assert len(blocks) == 2
    for block in blocks:
        for part in block.replace("import couponmq.*;\n\n", "").split("\n\n"):
            assert textwrap.indent(part.rstrip(), " " * 8) in sample


def test_each_member_of_an_answer_is_read():
    """But those that were in the request, and currency, which is in the amounts."""
    answers = {"issue": "Issue", "claim": "Issue", "status": "Status", "coupon": "Coupon"}
    answers |= {"code": "Code", "coupons": "Coupons", "offers": "Offers", "quote": "Quote"}
    answers |= {op: "Order" for op in ("hold", "use", "release", "rollback")}
    asked_for = {"id", "currency", "coupon", "user", "order"}
    for op, name in answers.items():
        path = OPENAPI["paths"][f"/v1/{op}"]
        replies = (path.get("post") or path["get"])["responses"]
        content = [replies[status].get("content") for status in ("200", "404", "409")
                   if status in replies]  # fmt: skip
        schemas = [one["application/json"]["schema"] for one in content if one]
        found = set().union(*map(properties, schemas))
        known = components(f"{name}Answer.java", f"{name}Answer")
        assert len(known) > 5 and found - known <= asked_for, op


def test_each_event_is_read(java):
    """Each member of the examples, by a webhook."""
    secret, at = "whsec_" + base64.b64encode(SECRET.encode()).decode(), int(time.time())
    messages = ASYNCAPI["components"]["messages"].values()
    examples = [(one["name"], each["payload"]) for one in messages for each in one["examples"]]
    assert len(examples) >= 8
    orders = []
    for _, payload in examples:
        body = json.dumps(payload)
        digest = hmac.digest(SECRET.encode(), f"msg_1.{at}.{body}".encode(), "sha256")
        signature = f"v1a,x v1,{base64.b64encode(digest).decode()}"
        names = {"webhook-id": "msg_1", "webhook-timestamp": str(at)}
        headers = {**names, "webhook-signature": signature}
        orders.append({"do": "webhook", "secrets": [secret], "headers": headers, "body": body})
    for (name, payload), answer in zip(examples, asked(java, *orders)):
        assert answer["events"][0]["type"] == name, answer
        told, read = payload[0]["data"], answer["events"][0]["data"]
        assert {one for one in told if one != "currency" and read.get(one) is None} == set()
        assert members_of(name) - read.keys() <= {"currency"}


def test_an_event_of_a_later_version_is_read(java):
    secret, at = "whsec_" + base64.b64encode(SECRET.encode()).decode(), int(time.time())
    data = {"coupon": "1001", "later": [1.50, None]}
    event = {"id": "1", "source": "/couponmq", "type": "coupon.later", "data": data}
    body = json.dumps({**event, "time": "2026-11-21T12:00:00.130Z"})
    digest = hmac.digest(SECRET.encode(), f"msg_1.{at}.{body}".encode(), "sha256")
    headers = {"WEBHOOK-ID": "msg_1", "Webhook-Timestamp": str(at)}
    headers["Webhook-Signature"] = f"v1,{base64.b64encode(digest).decode()}"
    order = {"do": "webhook", "secrets": [secret], "headers": headers, "body": body}
    (answer,) = asked(java, order)
    read = answer["events"][0]["data"]
    assert (read["coupon"], read["members"]["later"]) == ("1001", ["1.5", None])


def test_wrong_arguments_are_refused_before_anything_is_sent(java):
    token = {"do": "token", "private": SECRET, "kid": "hs", "issuer": ISSUER, "user": "42"}
    foreign = ec_key()[0].decode().replace("PRIVATE KEY", "EC PRIVATE KEY")
    wrong = {
        "coupon is null": call("issue", {"user": "42"}),
        "user is empty": call("issue", {"coupon": "1", "user": ""}),
        "user has half a character": call("issue", {"coupon": "1", "user": "\ud800"}),
        "key is empty": call("issue", {"coupon": "1", "user": "42"}, key=""),
        "32 bytes or more": {**token, "private": SECRET[1:]},
        "not PKCS #8": {**token, "private": foreign},
        "neither of P-256": {**token, "private": ed_key()[0].decode().replace("MC4", "MC5")},
        "coupons has 0 ids": {**token, "coupons": []},
        "no URL of a gateway": {"do": "open", "gateways": ["127.0.0.1:7480"]},
        "not printable ASCII": {"do": "open", "gateways": ["http://a"], "token": "a\r\nX: y"},
        "there is no gateway": {"do": "open", "gateways": []},
        "24 to 64 bytes": {"do": "webhook", "secrets": ["whsec_AA=="], "headers": {}, "body": ""},
    }
    opened = {"do": "open", "gateways": ["http://127.0.0.1:1"]}
    for message, answer in zip(wrong, asked(java, opened, *wrong.values())[1:]):
        assert answer["error"] == "invalid" and message in answer["message"], answer


def test_a_call_that_is_interrupted_before_it_is_sent_was_not_done(java):
    async def run():
        driver = await Driver.start(java)
        await driver.do(do="open", gateways=["http://127.0.0.1:1"])
        number, answer = driver.call("issue", {"coupon": "1", "user": "42"})
        await driver.do(do="cancel", call=number)
        told = await answer
        await driver.end()
        return told

    told = asyncio.run(run())
    assert told["error"] == "unavailable" and "interrupted" in told["message"]
