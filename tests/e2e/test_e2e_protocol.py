"""The members of requests, as docs/reference/protocol.md defines them: what is taken, and what is
refused."""

import json

import pytest

from replies import ask, refused, still_talks


# Ids


@pytest.mark.parametrize(
    "text",
    [
        '"9223372036854775807"',
        '"1234567890123456789"',
        "9007199254740991",
        '"1"',
        "1",
        '"9007199254740993"',
    ],
)
def test_ids_that_are_taken(gateway, make_coupon, text):
    coupon = make_coupon(1)
    reply = ask(
        gateway, b'{"op":"issue","coupon":"%s","user":%s}' % (coupon.encode(), text.encode())
    )
    assert reply["code"] == 0
    assert reply["receive"].split(".")[1] == text.strip('"'), "to the last digit"
    status = ask(
        gateway, b'{"op":"status","coupon":"%s","user":%s}' % (coupon.encode(), text.encode())
    )
    assert status["user"] == text.strip('"')


REFUSED = "-1 1.0 1e3 null true [1] {} 042 +1 .5 1. NaN Infinity --1".split(" ")
NO_COUPONS = [
    '"042"', '"+1"', '"0"', "0", '"-1"', '"1.0"', '"1e3"', '""', '" 1"', '"1\\n"',
    '"12345678901234567890"', '"9223372036854775808"', '"0x1"', '"１"',
]  # fmt: skip
NO_USERS = ['""', '" 1"', '"1 "', '"1\\n"', '"\\u007f"', '"é"', '"１"', '"%s"' % ("x" * 65)]


@pytest.mark.parametrize(
    "member, text",
    [
        *(("coupon", text) for text in REFUSED + NO_COUPONS),
        *(("user", text) for text in REFUSED + NO_USERS),
    ],
)
def test_ids_that_are_refused(gateway, member, text):
    members = {"coupon": '"1"', "user": '"1"', member: text}
    line = f'{{"op":"issue","coupon":{members["coupon"]},"user":{members["user"]}}}'
    refused(ask(gateway, line.encode()), member if text[0] == '"' else "")
    assert still_talks(gateway)


@pytest.mark.parametrize(
    "text", ["9007199254740992", "9007199254740993", "9223372036854775807", "1" + "0" * 30]
)
def test_a_number_that_readers_would_change_is_to_be_a_string(gateway, text):
    reply = ask(gateway, b'{"op":"issue","coupon":"1","user":%s}' % text.encode())
    refused(reply, "send it as a string")
    assert reply["message"].startswith("user is ")


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "9007199254740991",
        "-9007199254740991",
        '""',
        '"a b"',
        '"\\"\\\\"',
        '"é\u20ac\U0001f600"',
        '"%s"' % ("x" * 64),
    ],
)
def test_the_requests_id_comes_back_as_it_was(gateway, text):
    line = b'{"id":%s,"op":"ping"}' % text.encode()
    gateway.send_bytes(line + b"\n")
    raw = gateway.read_line()
    assert json.loads(raw)["id"] == json.loads(text)
    assert raw.startswith('{"id":' + text), raw
    missing = ask(gateway, b'{"id":%s,"op":"issue","coupon":"1"}' % text.encode())
    assert refused(missing, "user") and missing["id"] == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740992",
        "-9007199254740992",
        "1.5",
        "null",
        "true",
        "[]",
        "{}",
        '"%s"' % ("x" * 65),
        '"%s"' % ("é" * 33),
    ],
)
def test_a_requests_id_that_is_refused(gateway, text):
    reply = ask(gateway, b'{"id":%s,"op":"ping"}' % text.encode())
    refused(reply, "64 bytes" if text[0] != "1" else "")
    assert "id" not in reply


# Malformed requests


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"{",
        b"}",
        b"{}",
        b"[]",
        b"null",
        b"42",
        b'"ping"',
        b'{"op":"ping"',
        b'{"op":"ping",}',
        b"{'op':'ping'}",
        b'{op:"ping"}',
        b'{"op":"ping"} x',
        b'{"op":"ping"}{"op":"ping"}',
        b'{"op":"ping"}\x00',
        b'{"op":"ping","id":"a\x00b"}',
        b'{"op":"ping","id":"a\\u0000b"}',
        b'{"op":"pi\\u0000ng"}',
        b'{"op\\u0000":"ping"}',
        b"\x00",
        b'{"op":"ping","id":"\xff"}',
        b'{"op":"ping","id":"\xc3"}',
        b'{"op":"ping","id":"\xc0\x80"}',
        b'{"op":"ping","id":"\xed\xa0\x80"}',
        b'{"op":"ping","id":"\xf5\x80\x80\x80"}',
        b'{"op":"ping","id":"\\ud800"}',
        b'{"op":"ping","id":"\\x41"}',
        b'{"op":"ping","id":"a\tb"}',
        b'\xef\xbb\xbf\xef\xbb\xbf{"op":"ping"}',
        b"\x16\x03\x01\x02\x00\x01",
        b'{"op":"ping","id":1,"id":2}',
        b'{"op":"ping","op":"ping"}',
        b'{"op":"ping","o\\u0070":"stats"}',
        b'{"op":"ping","coupon":"1"}',
        b'{"op":"ping","":1}',
        b'{"op":"ping","Id":1}',
        b'{"OP":"ping"}',
        b'{"op":"issue","coupon":"1","user":"1","slot":1}',
        b'{"op":"coupon","coupon":"1","user":"1"}',
        b'{"op":"ping","id":01}',
        b'{"op":tru}',
    ],
)
def test_lines_that_are_refused(gateway, line):
    refused(ask(gateway, line))
    assert still_talks(gateway)


def test_valid_utf8_is_taken(gateway):
    assert (
        ask(gateway, '{"op":"ping","id":"ünï\u0800\U0010ffff"}'.encode())["id"]
        == "ünï\u0800\U0010ffff"
    )
    assert ask(gateway, b'{"op":"ping","id":"\\ud83d\\ude00"}')["id"] == "\U0001f600"


UNKNOWN, TOO_DEEP = "no such member of ping", "arrays or objects nested deeper than 16 levels"


@pytest.mark.parametrize("depth", [15, 16, 10000])
@pytest.mark.parametrize("begin, end", [(b"[", b"]"), (b'{"x":', b"}")])
def test_deep_nesting(gateway, depth, begin, end):
    """The request itself is the first of sixteen."""
    line = b'{"op":"ping","x":' + begin * depth + b"1" + end * depth + b"}"
    refused(ask(gateway, line), UNKNOWN if depth == 15 else TOO_DEEP)
    assert still_talks(gateway)


@pytest.mark.parametrize("members", [64, 65, 2000])
def test_many_members(gateway, members):
    line = json.dumps({f"member {n}": n for n in range(members)}).encode()
    refused(ask(gateway, line), "op: is missing" if members == 64 else "more than 64 members")
    assert still_talks(gateway)


@pytest.mark.parametrize("op", ["claims", "auths", "Coupons", "", "ISSUE", "issue ", "x" * 10000])
def test_unknown_operations(gateway, op):
    refused(gateway.call(op), "op is ")


@pytest.mark.parametrize("op", ["null", "1", "[]", '["ping"]'])
def test_an_operation_is_a_string(gateway, op):
    refused(ask(gateway, b'{"op":%s}' % op.encode()), "op is ")


@pytest.mark.parametrize(
    "request_, word",
    [
        ({"op": "issue"}, "coupon"),
        ({"op": "issue", "coupon": "1"}, "user"),
        ({"op": "issue", "user": "1"}, "coupon"),
        ({"op": "coupon"}, "coupon"),
        ({"op": "status"}, "receive"),
        ({"op": "status", "coupon": "1"}, "receive"),
        ({"op": "status", "receive": "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0", "user": "1"}, "receive"),
    ],
)
def test_missing_members(gateway, request_, word):
    gateway.send_line(request_)
    refused(gateway.read_reply(), word)


@pytest.mark.parametrize(
    "receive",
    [
        "",
        "1",
        "1.1",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.00",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0.0",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.-1",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.256",
        "1.1.01jd8z6q4t1m0v5k9x3b7c2n8r.0",
        "1.1.01JD8Z6Q4T1M0V5K9X3B7C2N8U.0",
        "1.1.81JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "01.1.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "1..01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "1.a b.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        "1.é.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        f"1.{'x' * 65}.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0",
        1,
        None,
    ],
)
def test_receives_that_are_refused(gateway, receive):
    refused(gateway.call("status", receive=receive), "receive is ")


# key and ack


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "x" * 64,
        "a b:c",
        "\"quoted\" \\ 'x'",
        "~!@#$%^&*(){}[]<>?/|,.;+-=_`",
        "%s%n%d",
        "1:01:0:k",
    ],
)
def test_keys_that_are_taken(gateway, make_coupon, pg, key):
    coupon = make_coupon(5, limit=5)
    reply = gateway.issue(coupon, 1, key=key, ack="issued")
    assert reply["status"] == "issued"
    assert gateway.issue(coupon, 1, key=key)["receive"] == reply["receive"]
    assert pg.execute("SELECT key FROM user_coupon WHERE coupon_id = %s", (coupon,)).fetchall() == [
        (key,)
    ]
    assert (
        gateway.call("status", coupon=coupon, user=1)["receives"][0]["receive"] == reply["receive"]
    )


@pytest.mark.parametrize(
    "key", ["", "x" * 256, "é", "\u20ac", "a\tb", "a\nb", "\x7f", "\x1f", 1, None, True, ["k"]]
)
def test_keys_that_are_refused(gateway, key):
    refused(gateway.issue(1, 1, key=key), "key is ")


@pytest.mark.parametrize("ack", ["", "Accepted", "issued ", "committed", 1, None, []])
def test_acks_that_are_refused(gateway, ack):
    refused(gateway.issue(1, 1, ack=ack), "must be accepted, queued or issued")
