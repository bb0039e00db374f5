"""coupon-admin behind a proxy that signs people in: whom it names, and who may name them."""

import http.client
import json
import subprocess
import uuid
from collections import namedtuple

import pytest

from stack import dial
from admin_client import API, Admin, key_id, key_maker, known, problem

PROXY, HEADER = "127.0.0.9", "X-Forwarded-User"
USERS = "ann@shop.example:admin,ben:campaign,c:d:monitor,*:monitor"
LONGEST = "n" * 64

Reply = namedtuple("Reply", "status_code, text, headers")
Reply.json = lambda reply: json.loads(reply.text)


def settings(**others):
    return {
        "COUPON_ADMIN_USER_HEADER": HEADER,
        "COUPON_ADMIN_PROXY_NETWORKS": f"127.0.0.8,{PROXY}/32",
        "COUPON_ADMIN_USERS": USERS,
        **others,
    }


@pytest.fixture(scope="module")
def admin(stack):
    one = Admin(stack, **settings())
    yield one
    one.end()


def send(admin, method, path, *names, body=None, source=PROXY, **headers):
    """One request from an address, with a header for each name."""
    one = http.client.HTTPConnection(admin.address)
    one.sock = dial(admin.address, source=source)
    one.putrequest(method, path)
    for name in names:
        one.putheader(HEADER.lower(), name)
    for name, value in headers.items():
        one.putheader(name.replace("_", "-"), value)
    text = b"" if body is None else json.dumps(body).encode()
    if method != "GET":
        one.putheader("Content-Length", len(text))
        one.putheader("Content-Type", "application/json")
    one.endheaders(text or None)
    answer = one.getresponse()
    has_end = answer.getheader("Content-Type") != "text/event-stream"
    reply = Reply(answer.status, answer.read().decode() if has_end else "", answer.headers)
    one.close()
    return reply


def ok(reply, status=200):
    assert reply.status_code == status, reply.text
    return json.loads(reply.text) if reply.text else None


class User:
    """Whom the proxy names, in a browser that has asked who it is."""

    def __init__(self, admin, name):
        self.admin, self.name = admin, name
        self.session = ok(send(admin, "GET", "/admin/session", name))

    def __call__(self, method, path, body=None, **headers):
        if method != "GET":
            headers = {"X_CSRF_Token": self.session["csrf_token"], **headers}
        reply = send(self.admin, method, API + path, self.name, body=body, **headers)
        self.admin.described.check(method, API + path, Answer(reply))
        return reply


class Answer:
    """As a description looks at it."""

    def __init__(self, reply):
        self.status_code, self.text, self.headers = reply.status_code, reply.text, reply.headers
        self.ok, self.content = reply.status_code < 400, reply.text
        self.json = reply.json


def test_the_name_is_who_changed_something(admin, stack):
    ann, ben, zoe = (User(admin, name) for name in ("ann@shop.example", "ben", "zoe"))
    for user, role in ((ann, "admin"), (ben, "campaign"), (zoe, "monitor")):
        told = user.session
        assert (told["key"], told["user"], told["role"]) == (None, user.name, role)
        assert told["ends_at"] is None
    assert User(admin, "c:d").session["role"] == "monitor"
    coupon = ok(ben("POST", "/campaigns", {"name": "x", "total": 1}), 201)["coupon"]
    ok(ann("POST", f"/campaigns/{coupon}/publish"))
    entries = ok(zoe("GET", f"/campaigns/{coupon}/history"))["history"]
    assert {entry["by"] for entry in entries} == {"ben", "ann@shop.example"}
    made = ok(ann("POST", "/keys", {"name": "x", "role": ["read"]}), 201)["key"]
    assert ok(zoe("GET", f"/keys/{made}"))["by"] == "ann@shop.example"
    job = ok(zoe("POST", f"/campaigns/{coupon}/audit"), 202)
    assert job["by"] == "zoe"
    assert ok(ben("GET", f"/jobs/{job['job']}"))["by"] == "zoe"
    for user in (ben, zoe):
        refused = user("POST", "/keys", {"name": "x", "role": ["read"]})
        assert problem(refused, 403).startswith("the role of this user in COUPON_ADMIN_USERS")
    problem(zoe("POST", f"/campaigns/{coupon}/pause"), 403)
    assert f"key={ben.name}" in admin.log()


@pytest.mark.parametrize("path", ["/admin/session", f"{API}/campaigns", f"{API}/live"])
def test_from_elsewhere_the_header_is_refused(admin, stack, path):
    """Even beside a good key: who sends it is not where the operators think."""
    key = known(admin, key_maker(stack)("admin")).key
    for headers in ({}, {"Authorization": f"Bearer {key}"}):
        told = send(admin, "GET", path, "ann@shop.example", source="127.0.0.7", **headers)
        assert "only from COUPON_ADMIN_PROXY_NETWORKS" in problem(told, 403)
    told = send(admin, "GET", "/readyz", "ann@shop.example", source="127.0.0.7")
    assert ok(told) == {"ready": True}


@pytest.mark.parametrize(
    "names",
    [
        ("ben", "ben"), ("ben", "ann@shop.example"), ("",), ("", "ben"), ("be n",), ("ben,ann",),
        ("b\xe9n".encode(),), ("b\xe9n".encode("latin-1"),), (b"b\xff",), (b"be\tn",),
        (LONGEST + "n",),
    ],
)  # fmt: skip
def test_what_names_nobody(admin, names):
    told = send(admin, "GET", f"{API}/campaigns?count=1", *names)
    assert "names nobody" in problem(told, 401)


def test_the_longest_name(admin):
    user = User(admin, LONGEST)
    assert (user.session["user"], user.session["role"]) == (LONGEST, "monitor")
    problem(user("POST", "/campaigns", {"name": "x", "total": 1}), 403)


def test_a_change_needs_the_token_of_its_user(admin):
    ben, ann = User(admin, "ben"), User(admin, "ann@shop.example")
    assert ben.session["csrf_token"] == User(admin, "ben").session["csrf_token"]
    name = "token " + uuid.uuid4().hex
    tokens = [ann.session["csrf_token"], "", "x", ben.session["csrf_token"] + "x"]
    for headers in ({}, *({"X_CSRF_Token": token} for token in tokens)):
        body = {"name": name, "total": 1}
        told = send(admin, "POST", f"{API}/campaigns", "ben", body=body, **headers)
        assert problem(told, 403) == "X-CSRF-Token is not that of this session"
    assert name not in ben("GET", "/campaigns?count=1000").text
    ok(ben("POST", "/campaigns", {"name": name, "total": 1}), 201)
    assert send(admin, "DELETE", "/admin/session", "ben").status_code == 403


def test_the_name_counts_before_a_key_and_a_session(admin, stack):
    """With the rights of both, a monitor could make changes in the name of a key."""
    key = known(admin, key_maker(stack)("admin")).key
    begun = admin.call("POST", "/admin/session", {"key": key})
    token = {"X_CSRF_Token": begun.json()["csrf_token"]}
    session = {"Cookie": f"couponmq_admin={begun.cookies['couponmq_admin']}", **token}
    body = {"name": "x", "total": 1}
    for headers in ({"Authorization": f"Bearer {key}"}, session):
        problem(send(admin, "POST", f"{API}/campaigns", "zoe", body=body, **headers), 403)
        ok(send(admin, "POST", f"{API}/campaigns", body=body, **headers), 201)
        told = ok(send(admin, "GET", "/admin/session", "zoe", **headers))
        assert (told["user"], told["role"]) == ("zoe", "monitor")
    told = send(admin, "POST", "/admin/session", "zoe", body={"key": key})
    assert problem(told, 403).startswith("a proxy names the user of this request")
    assert "Set-Cookie" not in told.headers


def test_who_is_not_listed_may_do_nothing(stack):
    admin = Admin(stack, **settings(COUPON_ADMIN_USERS="ben:monitor"))
    for method, path in (
        ("GET", "/admin/session"),
        ("GET", f"{API}/campaigns"),
        ("GET", "/metrics"),
    ):
        told = send(admin, method, path, "zoe")
        assert problem(told, 403).startswith("the role of this user in COUPON_ADMIN_USERS")
        assert send(admin, method, path, "ben").status_code == 200
    admin.end()


def test_without_the_settings_the_header_means_nothing(stack):
    admin = Admin(stack)
    caller = known(admin, key_maker(stack)("monitor"))
    headers = {"Authorization": f"Bearer {caller.key}"}
    told = send(admin, "GET", "/admin/session", "ann@shop.example", **headers)
    assert (ok(told)["key"], ok(told)["user"]) == (key_id(caller), None)
    problem(send(admin, "GET", "/admin/session", "ann@shop.example"), 401)
    admin.end()


@pytest.mark.parametrize(
    "others, why",
    [
        ({"COUPON_ADMIN_USER_HEADER": ""}, "set all of them, or none"),
        ({"COUPON_ADMIN_PROXY_NETWORKS": ""}, "set all of them, or none"),
        ({"COUPON_ADMIN_USERS": ""}, "set all of them, or none"),
        ({"COUPON_ADMIN_USER_HEADER": "X User"}, "allowed is the name of a header"),
        ({"COUPON_ADMIN_USER_HEADER": "authorization"}, "allowed is the name of a header"),
        ({"COUPON_ADMIN_PROXY_NETWORKS": "10.0.0.1/8"}, "is not a network"),
        ({"COUPON_ADMIN_PROXY_NETWORKS": "10.1.0.0/16,0.0.0.0/0"}, "has every address"),
        ({"COUPON_ADMIN_USERS": "ben"}, 'COUPON_ADMIN_USERS has "ben"'),
        ({"COUPON_ADMIN_USERS": "ben:root"}, 'COUPON_ADMIN_USERS has "ben:root"'),
        ({"COUPON_ADMIN_USERS": ":admin"}, 'COUPON_ADMIN_USERS has ":admin"'),
        ({"COUPON_ADMIN_USERS": "ben:admin,ben:monitor"}, 'has "ben:monitor"'),
        ({"COUPON_ADMIN_USERS": "*:admin,*:monitor"}, 'has "*:monitor"'),
        ({"COUPON_ADMIN_USERS": LONGEST + "n:admin"}, "allowed are 1000 pairs NAME:ROLE"),
        ({"COUPON_ADMIN_USERS": "ben:admin,"}, 'COUPON_ADMIN_USERS has ""'),
    ],
)
def test_settings_that_are_refused(stack, others, why):
    env = {**stack.env_of("admin"), **settings(**others)}
    told = subprocess.run(
        [stack.build_dir / "coupon-admin", "-n"], env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert told.returncode == 1 and why in told.stderr, told
