"""coupon-admin: couponctl's commands over HTTP, for those who have a key for that."""

import collections
import contextlib
import gzip
import json
import os
import re
import select
import shutil
import socket
import time
import signal
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import requests
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

import openapi
from process import Process
from relay import Relay, port_of
from stack import dial, port_free, process_gone, url_of, wait_until
from unstorable import nothing_storable
from webhooks import ALLOWED

API = "/admin/v1"


class Admin(Process):
    """A coupon-admin of its own, beside those of the stack."""

    def __init__(self, stack, folder="", descriptors_max=None, **settings):
        address = f"127.0.0.1:{port_free()}"
        settings = {"COUPON_ADMIN_LISTEN": address, **settings}
        program = f"{folder}coupon-admin"
        super().__init__(stack, program, "admin-test", settings, descriptors_max)
        self.address, self.url = address, url_of(address)
        self.api = None
        wait_until(self.is_ready)
        self.described = Description(self.call("GET", f"{API}/openapi.json").json())

    def is_ready(self):
        try:
            return requests.get(self.url + "/readyz", timeout=60).status_code == 200
        except requests.RequestException:
            return False

    def metric(self, name):
        page = self.call("GET", "/metrics", key=self.api.key).text
        return int(re.search(f"^{re.escape(name)} (.*)$", page, re.M)[1])

    def call(self, method, path, body=None, key=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return requests.request(method, self.url + path, json=body, headers=headers, timeout=60)

    def stream(self, path, key):
        headers = {"Authorization": f"Bearer {key}"}
        return requests.get(self.url + path, headers=headers, stream=True, timeout=60)


class Description(openapi.Description):
    """What the program says of itself."""

    is_forged = False  # couponctl does not print what it should

    def operation(self, method, path):
        """The operation of a request; None: there is none."""
        for form, item in self.document["paths"].items():
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", form), path.split("?")[0]):
                if method.lower() in item:
                    return item[method.lower()]
        return None

    def check(self, method, path, response):
        """The status is listed, and the body is of its schema."""
        operation = self.operation(method, path)
        if not operation:
            assert response.status_code in (404, 405), response.text
            return
        told = f"{method} {path}: {response.status_code} {response.text[:300]}"
        assert str(response.status_code) in operation["responses"], told
        answer = self.resolve(operation["responses"][str(response.status_code)])
        assert ("content" in answer) == bool(response.content), told
        if self.is_forged and response.ok:
            return
        for type_, media in answer.get("content", {}).items():
            assert response.headers["Content-Type"] == type_, told
            assert self.errors(media["schema"], response.json()) == [], told


class Caller:
    """With one key. Each answer is as the program describes it."""

    def __init__(self, admin, key):
        self.admin, self.key = admin, key

    def __call__(self, method, path, body=None, **headers):
        response = self.admin.call(method, API + path, body, self.key, **headers)
        self.admin.described.check(method, API + path, response)
        return response


@pytest.fixture(scope="module")
def admin(stack):
    one = Admin(stack)
    yield one
    one.end()


def key_maker(stack):
    def make(*roles, **options):
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        role = ",".join(roles)
        return stack.ctl("key", "create", "--name", "test", "--role", role, *flags)

    return make


@pytest.fixture(scope="module")
def key_make(stack):
    return key_maker(stack)


def known(admin, key):
    """Once the program knows the key."""
    wait_until(lambda: admin.call("GET", f"{API}/jobs", key=key).status_code != 401)
    return Caller(admin, key)


@pytest.fixture(scope="module")
def api(admin, key_make):
    return known(admin, key_make("admin"))


def key_id(caller):
    return caller.key.split("_")[1]


def ok(response, status=200):
    assert response.status_code == status, response.text
    return response.json() if response.content else None


def problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    told = response.json()
    assert (told["status"], told["type"]) == (status, "about:blank")
    return told["detail"]


def test_the_life_of_a_campaign(stack, api):
    terms = {"name": "Noon", "total": 10, "valid_days": 3, "metadata": {"a": 0.5}, "events": True}
    made = api("POST", "/campaigns", terms)
    path = "/campaigns/" + ok(made, 201)["coupon"]
    assert made.headers["Location"] == API + path
    shown = api("GET", path)
    assert shown.headers["ETag"] == '"1"'
    assert ok(shown)["metadata"] == {"a": 0.5} and ok(shown)["events"] is True
    edit = {"valid_days": None, "percent_off": 12.5, "void_returns": False}
    edited = api("PATCH", path, edit, If_Match='"1"')
    assert ok(edited)["version"] == 2 and edited.headers["ETag"] == '"2"'
    assert "has version 2" in problem(api("PATCH", path, {"name": "x"}, If_Match='"1"'), 412)
    assert "If-Match" in problem(api("POST", path + "/publish", If_Match='W/"2"'), 412)
    assert ok(api("POST", path + "/publish", If_Match='"2"'))["status"] == "published"
    assert ok(api("PUT", path + "/stock", {"total": 12}, If_Match='"3"'))["total"] == 12
    assert ok(api("PUT", path + "/stock", {"total": 12}, If_Match="*"))["total"] == 12
    for step, status in (("pause", "paused"), ("resume", "published"), ("close", "closed")):
        assert ok(api("POST", f"{path}/{step}"))["status"] == status
    assert "allowed when it is" in problem(api("POST", path + "/pause"), 409)
    shown = ok(api("GET", path))
    assert (shown["valid_days"], shown["discount"]["percent_off"]) == (None, 12.5)
    assert shown == json.loads(stack.ctl("show", path.split("/")[2], "--json"))
    entries = ok(api("GET", path + "/history"))["history"]
    assert len(entries) == 7 and {entry["by"] for entry in entries} == {key_id(api)}
    listed = ok(api("GET", f"/campaigns?after={int(shown['coupon']) - 1}&count=1"))["campaigns"]
    assert [one["coupon"] for one in listed] == [shown["coupon"]]


MADE_ONCE = {
    "/campaigns": ({"name": "x", "total": 5}, "coupon"),
    "/budgets": ({"budget": None, "amount": 7, "currency": "EUR"}, "name"),
    "/webhooks": ({"url": "https://shop.example/once"}, "webhook"),
    "/keys": ({"name": "shop", "role": ["read"]}, "key"),
}


@pytest.mark.parametrize("path", MADE_ONCE)
def test_a_post_that_comes_again_makes_nothing_more(api, path):
    body, member = MADE_ONCE[path]
    if "budget" in body:
        body = {**body, "name": "b" + uuid.uuid4().hex[:12]}
        del body["budget"]
    key = uuid.uuid4().hex
    made = ok(api("POST", path, body, Idempotency_Key=key), 201)
    again = api("POST", path, body, Idempotency_Key=f'"{key}"')
    assert ok(again, 201)[member] == made[member]
    assert again.headers["Location"] == f"{API}{path}/{made[member]}"
    if "secret" in made:
        assert made["secret"] and again.json()["secret"] is None
    other = {"total": 6, "amount": 8, "batch": 9, "rate": 9}
    changed = {**body, **{name: other[name] for name in body.keys() & other.keys()}}
    if changed == body:
        changed["batch" if path == "/webhooks" else "rate"] = 9
    reused = api("POST", path, changed, Idempotency_Key=key)
    assert problem(reused, 422).startswith(f'Idempotency-Key is "{key}": it was given before')
    assert reused.json()["code"] == 44
    if path == "/webhooks":
        ok(api("DELETE", f"{path}/{made[member]}"))


def test_a_step_that_comes_again_is_not_taken_again(api, make_coupon):
    path, key = f"/campaigns/{make_coupon(5)}", "k " + uuid.uuid4().hex
    paused = ok(api("POST", f"{path}/pause", Idempotency_Key=key))
    ok(api("POST", f"{path}/resume", Idempotency_Key=key + "2"))
    assert ok(api("POST", f"{path}/pause", Idempotency_Key=key)) == paused
    assert ok(api("GET", path))["postgresql"]["status"] == "published"
    problem(api("POST", f"{path}/close", Idempotency_Key=key), 422)


def test_codes_and_jobs_that_come_again(admin, key_make, api, make_coupon):
    path, key = f"/campaigns/{make_coupon(5)}", uuid.uuid4().hex
    codes = {"codes": [f"{key[:12]}-{n}" for n in "ab"]}
    first = ok(api("POST", f"{path}/codes", codes, Idempotency_Key=key))
    assert ok(api("POST", f"{path}/codes", codes, Idempotency_Key=key))["set"] == first["set"]
    codes = {"codes": [f"{key[:12]}-c"]}
    problem(api("POST", f"{path}/codes", codes, Idempotency_Key=key), 422)
    job = ok(api("POST", f"{path}/audit", Idempotency_Key=key), 202)["job"]
    assert ok(api("POST", f"{path}/audit", Idempotency_Key=key), 202)["job"] == job
    assert problem(api("POST", "/audit", Idempotency_Key=key), 422).startswith("Idempotency-Key")
    members = {"grace": 5, "stalled_after_s": 60}
    told = [
        ok(api("POST", f"{path}/audit", dict(order), Idempotency_Key=f"{key}-2"), 202)["job"]
        for order in (members.items(), reversed(members.items()))
    ]
    assert told[0] == told[1], "its members have no order"
    assert ok(api("POST", f"{path}/audit"), 202)["job"] != job
    other = known(admin, key_make("admin"))
    assert ok(other("POST", f"{path}/audit", Idempotency_Key=key), 202)["job"] != job


@pytest.mark.parametrize("key", ["", '""', "x" * 256, '"x', "\xe4", '"a\\b"'])
def test_what_is_no_idempotency_key(api, key):
    told = api("POST", "/campaigns", {"name": "x", "total": 5}, Idempotency_Key=key)
    assert problem(told, 400).startswith("Idempotency-Key is wrong: allowed is one key of 1 to 255")


def test_each_post_has_idempotency_key(admin):
    document = admin.described.document
    wanted = {"$ref": "#/components/parameters/IdempotencyKey"}
    for path, operations in document["paths"].items():
        if path.startswith(API):
            for method in operations.keys() & {"get", "post", "put", "patch", "delete"}:
                has = wanted in operations[method].get("parameters", [])
                assert has == (method == "post"), f"{method} {path}"


def test_what_is_wrong_with_a_request(api, make_coupon):
    path = f"/campaigns/{make_coupon(1)}"

    def wrong(*arguments, status=400, **headers):
        return problem(api(*arguments, **headers), status)

    assert wrong("POST", "/campaigns", {"name": "x", "totl": 1}) == "totl: there is no such member"
    assert wrong("POST", "/campaigns", {"name": "x"}) == "create needs total"
    assert wrong("POST", "/campaigns", {"name": "x", "total": 1, "valid_from": "now"}) == (
        "valid_from and valid_to must be given together"
    )
    assert "limit is" in wrong("POST", "/campaigns", {"name": "x", "total": 1, "limit": 0})
    for member in ("json", "by", "version", "valid-days", "redis_url"):
        assert member in wrong("PATCH", path, {member: "1"}, If_Match='"2"')
    for name in (None, True, 7, ["x"], {"x": 1}):
        assert wrong("PATCH", path, {"name": name}, If_Match='"2"').startswith("name: allowed")
    assert "2^53" in wrong("POST", "/campaigns", {"name": "x", "total": 2**53})
    for number in (" 1", "+1", "1 ", "01"):
        told = wrong("POST", "/campaigns", {"name": "x", "total": number})
        assert told.startswith(f'total is "{number}": allowed is an integer')
    for budget in ("", "none"):
        told = wrong("POST", "/campaigns", {"name": "x", "total": 1, "budget": budget})
        assert told == f'budget is "{budget}": this text is reserved; null means none'
    for name in ("a\nb", "a\x1b[2J", "a\x9b"):
        told = wrong("POST", "/campaigns", {"name": name, "total": 1})
        assert "without control characters" in told and not set("\n\x1b\x9b") & set(told)
    assert "control characters" in wrong(
        "POST", "/campaigns", {"name": "x", "total": 1, "metadata": {"a": "\x1b"}}
    )
    assert "If-Match" in wrong("PATCH", path, {"name": "x"}, status=428)
    for value in ("2", '"2', '"2",', '"2", "3"', "*, *", "W/2", ""):
        assert "If-Match" in wrong("PATCH", path, {"name": "x"}, If_Match=value), value
    for value in ('"x"', 'W/"1"', 'W/"2"', 'W/"1", "x"', '""'):
        assert "If-Match" in wrong("PATCH", path, {"name": "x"}, status=412, If_Match=value), value
    assert wrong("GET", "/campaigns?cuont=1") == "cuont: there is no such parameter"
    assert "twice" in wrong("GET", "/campaigns?count=1&count=2")
    assert "count" in wrong("GET", "/campaigns?count=x")
    wrong("GET", "/campaigns?count=1%00")
    for name, told in (("ä" * 40, "ä" * 30), ("x" + "ä" * 40, "x" + "ä" * 29 + "?")):
        assert wrong("POST", "/campaigns", {name: 1}) == f"{told}: there is no such member"
    assert "count" in wrong("GET", "/campaigns?count=%ff")
    wrong("POST", path + "/pause?version=2")
    wrong("GET", "/campaigns/0")
    for part in ("--help", "-h", "--json", "%2D%2Dhelp"):
        name = part.replace("%2D", "-")
        assert wrong("GET", f"/campaigns/{part}").startswith(f'ID is "{name}": allowed is')
    assert wrong("GET", "/campaigns/9999", status=404) == "there is no coupon 9999"
    for gone in ("/nothing", "/campaigns/", "/campaigns/1/2", "/campaigns/%00", "/jobs/9"):
        wrong("GET", gone, status=404)
    for gone in ("/campaigns/", "/jobs/", "/now/"):
        assert "paths do not end with /" in wrong("GET", gone, status=404)
    for n in (17_000, 60_000):
        assert "16384 bytes" in wrong("GET", "/campaigns?count=" + n * "1", status=414)
    told = api("DELETE", path)
    assert problem(told, 405) and told.headers["Allow"] == "GET, HEAD, PATCH"


NOTHING = b"Content-Length: 0\r\n"


def test_bodies(admin, api):
    def send(body, **headers):
        headers = {"Authorization": f"Bearer {api.key}", **headers}
        return requests.post(
            f"{admin.url}{API}/campaigns", data=body, headers=headers, timeout=60
        ).status_code

    of_json = {"Content-Type": "application/json"}
    assert send(b"{}") == 415
    assert send(b"{}", **{"Content-Type": "text/plain"}) == 415
    made = b'\xef\xbb\xbf{"name":"x","total":1}'
    for coding in ("gzip", "br", "identity, gzip"):
        assert send(made, **of_json, **{"Content-Encoding": coding}) == 415
        assert send(gzip.compress(made), **of_json, **{"Content-Encoding": coding}) == 415
        assert send(b"", **of_json, **{"Content-Encoding": coding}) == 415
    assert send(made, **of_json, **{"Content-Encoding": "identity"}) == 201
    assert send(made, **of_json) == 201
    for body in (b"[]", b"{", b'{"a":1,"a":1}', b'{"name":"\\u0000"}', b"{}x", b"\xff"):
        assert send(body, **of_json) == 400, body
    assert send(iter([b"{}"]), **of_json) == 411, "chunks"
    head = f"POST {API}/campaigns HTTP/1.1\r\nHost: localhost\r\n".encode()
    for length, status in ((b"Content-Length: 70000\r\n", b"413"), (2 * NOTHING, b"411")):
        with dial(admin.address) as connection, connection.makefile("rb") as answer:
            connection.sendall(head + length + b"\r\n")
            assert answer.readline().split()[1] == status, length


def roles_of(stack, admin, key_make):
    return {
        "admin": known(admin, key_make("admin")),
        "campaign": known(admin, key_make("campaign")),
        "monitor": known(admin, key_make("monitor")),
        "issue": known(admin, key_make("issue", "read")),
        "none": Caller(admin, None),
    }


# What concerns the whole installation; the other changes run campaigns.
OF_ADMINS = {
    *("rebuildCampaign", "createKey", "rotateKey", "revokeKey", "stopJob"),
    *("requeueDeadLetters", "requeueDeadLetter", "removeDeadLetter"),
}
RANKS = ["monitor", "campaign", "admin"]


def test_each_route_and_each_role(stack, admin, key_make):
    """What is refused is refused before anything runs; what is not has another answer."""
    callers = roles_of(stack, admin, key_make)
    described = [
        (operation["operationId"], operation["tags"])
        for item in admin.described.document["paths"].values()
        for operation in (item[method] for method in item.keys() - {"parameters"})
    ]
    assert {name for name, tags in described if tags == ["admin"]} == OF_ADMINS
    assert {tuple(tags) for name, tags in described if tags} == {(role,) for role in RANKS}
    tried = 0
    for path, item in admin.described.document["paths"].items():
        if not path.startswith(API) or re.search("/(jobs|now|live)", path):
            continue
        path = path.removeprefix(API)
        for place in ("{coupon}", "{webhook}", "{set}", "{letter}", "{approval}"):
            path = path.replace(place, "8999")
        path = path.replace("{api_key}", "0" * 10).replace("{user}", "u").replace("{code}", "x")
        path = path.replace("{receive}", f"8999.u.{'0' * 26}.0")
        for method, operation in item.items():
            for role, caller in callers.items():
                # An unknown member is refused behind the gate.
                body = {"nonsense": 1} if method != "get" else None
                query = "?nonsense=1" if method == "get" else ""
                told = caller(method.upper(), path + query, body, If_Match='"1"')
                (least,) = operation["tags"]
                allowed = role in RANKS and RANKS.index(role) >= RANKS.index(least)
                wanted = 400 if allowed else 401 if role == "none" else 403
                assert told.status_code == wanted, (method, path, role, told.text)
                problem(told, wanted)
                tried += 1
    assert tried > 4 * 40
    for role, status in (("campaign", 403), ("monitor", 403), ("issue", 403), ("none", 401)):
        problem(callers[role]("DELETE", "/jobs/1"), status)
    for role, status in (("issue", 403), ("none", 401)):
        for path in ("/jobs", "/jobs/1", "/now", "/live"):
            problem(callers[role]("GET", path), status)
    bad = Caller(admin, callers["admin"].key[:-1] + "x")
    assert problem(bad("GET", "/campaigns"), 401)


def test_who_runs_campaigns(stack, admin, key_make, api):
    """From the draft to the end, with codes, a budget and webhooks; but not for all campaigns."""
    caller, budget = known(admin, key_make("campaign")), "b" + uuid.uuid4().hex[:12]
    begun = admin.call("POST", "/admin/session", {"key": caller.key})
    assert ok(begun)["role"] == "campaign"
    ok(caller("POST", "/budgets", {"name": budget, "amount": 7000, "currency": "EUR"}), 201)
    terms = {"name": "x", "total": 5, "amount_off": 700, "currency": "EUR", "budget": budget}
    coupon = ok(caller("POST", "/campaigns", terms), 201)["coupon"]
    path, word = f"/campaigns/{coupon}", "GIFT" + uuid.uuid4().hex[:12].upper()
    for step in ("publish", "pause", "resume"):
        ok(caller("POST", f"{path}/{step}"))
    made = ok(caller("POST", f"{path}/sets", {"count": 3}))["set"]
    ok(caller("POST", f"{path}/words", {"word": word}))
    assert word in caller("GET", f"{path}/codes").text
    assert len(ok(caller("GET", f"/sets/{made}/codes?all=true"))["codes"]) == 3
    url = {"url": "https://shop.example"}
    assert "needs the role admin" in problem(caller("POST", "/webhooks", url), 400)
    every = ok(api("POST", "/webhooks", url), 201)["webhook"]
    own = ok(caller("POST", "/webhooks", {**url, "coupon": coupon}), 201)["webhook"]
    state = {"state": "disabled"}
    for method, rest, body in (
        ("PATCH", "", state), ("POST", "/rotate", None), ("POST", "/resend", None),
        ("DELETE", "", None),
    ):  # fmt: skip
        told = problem(caller(method, f"/webhooks/{every}{rest}", body), 409)
        assert told == (
            f"webhook {every} gets the events of every campaign: this needs the role admin"
        )
        ok(caller(method, f"/webhooks/{own}{rest}", body))
    problem(caller("POST", f"/webhooks/{every}/test"), 409)
    assert ok(api("GET", f"/webhooks/{every}"))["state"] == "enabled"
    ok(api("DELETE", f"/webhooks/{every}"))
    problem(caller("POST", f"{path}/rebuild"), 403)
    problem(caller("POST", "/keys", {"name": "x", "role": ["admin"]}), 403)
    ok(caller("POST", f"{path}/close"))
    entries = ok(caller("GET", path + "/history"))["history"]
    assert {entry["by"] for entry in entries} == {key_id(caller)}


def test_a_key_of_some_coupons(stack, admin, key_make):
    own, other = stack.coupon_make(1), stack.coupon_make(1)
    caller = known(admin, key_make("admin", coupons=own))
    assert ok(caller("POST", f"/campaigns/{own}/pause"))["status"] == "paused"
    problem(caller("POST", f"/campaigns/{other}/pause"), 403)
    job = ok(caller("POST", f"/campaigns/{own}/audit"), 202)["job"]
    assert ok(caller("GET", f"/jobs/{job}"))["coupon"] == own
    for path in ("/campaigns", "/keys", f"/receives/{other}.u.x.0", "/campaigns/x", "/jobs"):
        problem(caller("GET", path), 403)


# The members of requests about one campaign that name something else, which the key may not have.
NAMES_OTHERS = {"budget"}
# The other members of such requests: none of them names anything that is not the campaign's.
OF_THE_CAMPAIGN = {
    *("name", "limit", "begin", "end", "valid_days", "valid_from", "valid_to", "amount_off"),
    *("percent_off", "cap", "threshold", "currency", "metadata", "void_returns", "events"),
    *("total", "wait_s", "older_than_s", "give_up_lost", "grace", "stalled_after_s", "after"),
    *("count", "prefix", "length", "alphabet", "pattern", "codes", "word", "why", "key"),
    *("users", "repeats", "rate", "delay_ms", "connections", "patience_s"),  # of distribute
    *("who", "what", "from", "to", "result"),  # of its history, whatever they ask for
    "all",  # with a campaign in the path the command refuses it
}


def members_of(described, method, operation):
    if method == "get":
        told = [described.resolve(one) for one in operation.get("parameters", [])]
        return {one["name"] for one in told if one["in"] == "query"}
    if "requestBody" not in operation:
        return set()
    body = described.resolve(operation["requestBody"])["content"]["application/json"]
    return set(described.resolve(body["schema"])["properties"])


def test_each_name_and_each_scope(stack, admin, key_make):
    """What a request names, in its path or beside it, must be of the key."""
    coupons = {"own": stack.coupon_make(5), "other": stack.coupon_make(5)}
    budgets = {whose: f"{whose}-{uuid.uuid4().hex[:12]}" for whose in ("own", "other")}
    for name in budgets.values():
        stack.ctl("budget", "create", name, "--amount", "70.00", "--currency", "EUR")
    of_coupon = {"coupons": coupons["own"]}
    scopes = {
        "every": known(admin, key_make("admin")),
        "coupon": known(admin, key_make("admin", **of_coupon)),
        "budget": known(admin, key_make("admin", **of_coupon, budgets=budgets["own"])),
    }
    tried = 0

    def refused(scope, method, path, body, is_allowed):
        nonlocal tried
        told = scopes[scope](method.upper(), path, body, If_Match='"999"')
        assert (told.status_code == 403) == (not is_allowed), (scope, method, path, told.text)
        tried += 1

    for path, item in admin.described.document["paths"].items():
        path, given = path.removeprefix(API), re.findall(r"{(\w+)}", path)
        if "/jobs" in path or path.startswith("/admin") or not path.startswith("/"):
            continue
        for method, operation in item.items():
            members = members_of(admin.described, method, operation)
            query, body = ("?nonsense=1", None) if method == "get" else ("", {"nonsense": 1})
            for scope in scopes:
                if not set(given[:1]) & {"coupon", "budget"}:
                    if scope != "every" and path not in ("/openapi.json", "/healthz", "/readyz"):
                        filled = re.sub(r"{\w+}", "0" * 10, path)
                        refused(scope, method, filled + query, body, False)
                    continue
                for whose in ("own", "other"):
                    filled = path.replace("{coupon}", coupons[whose])
                    filled = filled.replace("{budget}", budgets[whose]).replace("{user}", "u")
                    is_own = whose == "own" and (given[0] == "coupon" or scope == "budget")
                    refused(scope, method, filled + query, body, is_own or scope == "every")
            if given[:1] != ["coupon"]:
                continue
            assert members <= NAMES_OTHERS | OF_THE_CAMPAIGN, members
            for name in members & NAMES_OTHERS:
                for scope in scopes:
                    for value in (*budgets.values(), "no-such-budget", None):
                        allowed = scope == "every" or (scope, value) == ("budget", budgets["own"])
                        filled = path.replace("{coupon}", coupons["own"])
                        refused(scope, method, filled, {name: value}, allowed)
    assert tried > 150


def test_a_key_of_some_coupons_spends_no_other_budget(stack, admin, key_make):
    own, mine, other = stack.coupon_make(5), *(f"b{uuid.uuid4().hex[:12]}" for _ in range(2))
    for name in (mine, other):
        stack.ctl("budget", "create", name, "--amount", "70.00", "--currency", "EUR")
    terms = {"amount_off": 700, "currency": "EUR"}
    caller = known(admin, key_make("admin", coupons=own))
    for budget in (other, None):
        edit = {**terms, "budget": budget}
        told = caller("PATCH", f"/campaigns/{own}", edit, If_Match='"2"')
        assert problem(told, 403) == "this key does not allow that"
    problem(caller("GET", f"/budgets/{other}"), 403)
    assert json.loads(stack.ctl("show", own, "--json"))["postgresql"]["version"] == 2
    ok(caller("PATCH", f"/campaigns/{own}", terms, If_Match='"2"'))
    caller = known(admin, key_make("admin", coupons=own, budgets=mine))
    ok(caller("PATCH", f"/campaigns/{own}", {**terms, "budget": mine}, If_Match='"3"'))
    problem(caller("PATCH", f"/campaigns/{own}", {"budget": None}, If_Match='"4"'), 403)
    assert ok(caller("GET", f"/budgets/{mine}"))["campaigns"] == [own]
    assert ok(caller("PATCH", f"/budgets/{mine}", {"amount": 7100}))["amount"] == 7100
    for path in ("/budgets", f"/budgets/{other}", "/keys", "/history"):
        problem(caller("GET", path), 403)


@pytest.mark.parametrize(
    "options, why",
    [
        ({"budgets": "b"}, "allowed only together with --coupons"),
        ({"coupons": "1001", "budgets": "none"}, "allowed are 1 to 64 names"),
        ({"coupons": "1001", "budgets": "a,,b"}, "allowed are 1 to 64 names"),
        ({"coupons": "1001", "budgets": ",".join(map(str, range(65)))}, "allowed are 1 to 64"),
    ],
)
def test_budgets_that_a_key_cannot_have(stack, options, why):
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    told = stack.ctl_run("key", "create", "--name", "x", "--role", "admin", *flags)
    assert told.returncode == 2 and why in told.stderr


def flood(admin, n, source="127.0.0.1"):
    """So many connections with half a head each, which nobody ends."""
    host, port = admin.address.split(":")
    sockets = []
    for _ in range(n):
        one = socket.create_connection((host, int(port)), source_address=(source, 0))
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        sockets.append(one)
    return sockets


def have_ended(sockets):
    """How many of them the program has closed."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return len(poll.poll(0))


@pytest.mark.plain
def test_strangers_do_not_block_it(stack, key_make):
    """1,200 connections that send half a head, from an address that has no bound."""
    admin = Admin(stack)
    operator = known(admin, key_make("monitor"))
    sockets = flood(admin, 1200)
    try:
        # None of these waits until the others have had their time.
        for _ in range(20):
            assert admin.call("GET", "/healthz").status_code == 200
            ok(operator("GET", "/jobs"))
        assert 0 < have_ended(sockets) < 1200
        wait_until(lambda: have_ended(sockets) == 1200)
    finally:
        for one in sockets:
            one.close()
        admin.end()


@pytest.mark.plain
def test_a_request_must_arrive_in_time(admin):
    """Also if it goes on arriving, byte by byte, so that the connection is never idle."""
    (slow,) = flood(admin, 1)

    def is_closed():
        with contextlib.suppress(ConnectionError):
            slow.send(b"x")
        return have_ended([slow])

    wait_until(is_closed)
    slow.close()


@pytest.mark.plain
def test_an_address_has_a_bound(stack):
    admin = Admin(stack, COUPON_CONNECTIONS_NETWORKS="127.0.0.1")
    strangers = flood(admin, 70, "127.0.0.2")
    own = flood(admin, 70)
    try:
        wait_until(lambda: have_ended(strangers) >= 6)
        # Each has had its 5 seconds at most, which the others had, too.
        assert have_ended(own) == 0 or have_ended(strangers) == 70
        told = stack.log("admin-test").count("event=connections_of_address address=127.0.0.2")
        assert told == 1
        assert admin.call("GET", "/healthz").status_code == 200
    finally:
        for one in strangers + own:
            one.close()
        admin.end()


def test_places_are_kept_for_health(stack, key_make):
    """Each place has a client that is being answered: only what is monitored has an answer."""
    admin = Admin(stack, descriptors_max=256)  # 85 places
    callers = [known(admin, key_make("monitor")) for _ in range(6)]
    streams = []
    try:
        for caller in callers * 15:
            one = admin.stream(f"{API}/live", caller.key)
            if one.status_code == 200:
                streams.append(one)
        assert len(streams) == 85
        detail = problem(admin.call("GET", f"{API}/jobs", key=callers[0].key), 503)
        assert detail == "too many connections: nothing was done"
        for path in ("/healthz", "/readyz"):
            assert admin.call("GET", path).status_code == 200
    finally:
        for one in streams:
            one.close()
        admin.end()


@pytest.mark.parametrize(
    "name", ["rebound.example", "localhost.evil.example", "[::1", "127.0.0.1:x"]
)
def test_a_host_that_is_not_of_the_program(admin, name):
    told = admin.call("GET", f"{API}/campaigns", Host=name)
    detail = f'Host is "{name}": allowed are addresses, localhost and the names of'
    assert problem(told, 421).startswith(detail)
    assert admin.call("GET", "/", Host=name).status_code == 421
    assert admin.call("GET", "/healthz", Host=name).status_code == 200


def test_origins(stack, key_make):
    admin = Admin(stack, COUPON_HTTP_HOSTS="console.example")
    caller = known(admin, key_make("admin"))
    body, host = {"key": caller.key}, admin.address
    for origin in ("http://evil.example", "null", f"http://{host}.evil.example"):
        told = admin.call("POST", "/admin/session", body, Origin=origin)
        assert problem(told, 403).startswith(f'Origin is "{origin}": allowed are the host itself')
    for origin in (f"http://{host}", "https://console.example"):
        assert admin.call("POST", "/admin/session", body, Origin=origin).status_code == 200
    ok(caller("GET", "/jobs", Host="console.example:7490"))
    admin.end()


def test_sessions_have_a_share_per_key(stack, key_make):
    """One that begins more ends its own, and none of others."""
    admin = Admin(stack)
    operator, monitor = known(admin, key_make("admin")), known(admin, key_make("monitor"))

    def begin(caller):
        return admin.call("POST", "/admin/session", {"key": caller.key})

    def is_good(begun):
        cookie = begun.headers["Set-Cookie"].split(";")[0]
        return admin.call("GET", "/admin/session", Cookie=cookie).status_code == 200

    of_operator, first = begin(operator), begin(monitor)
    others = [begin(monitor) for _ in range(50)]
    assert is_good(of_operator) and not is_good(first)
    assert all(is_good(one) for one in others)
    admin.api = operator
    assert admin.metric("couponmq_admin_sessions") == 51
    admin.end()


def test_a_session_ends_by_time(stack, key_make):
    """Though it is used."""
    admin = Admin(stack, COUPON_ADMIN_SESSION_S=1)
    try:
        key = known(admin, key_make("monitor")).key
        begun = admin.call("POST", "/admin/session", {"key": key})
        cookie = begun.headers["Set-Cookie"].split(";")[0]
        wait_until(lambda: admin.call("GET", "/admin/session", Cookie=cookie).status_code == 401)
    finally:
        admin.end()


def test_streams_have_a_share_per_key(stack, key_make):
    admin = Admin(stack)
    operator, monitor = known(admin, key_make("admin")), known(admin, key_make("monitor"))
    streams = [admin.stream(f"{API}/live", monitor.key) for _ in range(20)]
    assert all(one.status_code == 200 for one in streams)
    refused = admin.stream(f"{API}/live", monitor.key)
    assert refused.status_code == 503, "or the body has no end"
    assert problem(refused, 503) == "too many clients watch with this key: end other streams"
    streams.append(admin.stream(f"{API}/live", operator.key))
    assert streams[-1].status_code == 200
    for one in streams:
        one.close()
    # The ids that are asked for have a share, too.
    ids = [",".join(str(8000 + 100 * n + i) for i in range(100)) for n in range(3)]
    streams = [admin.stream(f"{API}/live?coupons={text}", monitor.key) for text in ids]
    assert [one.status_code for one in streams] == [200, 200, 503]
    streams.append(admin.stream(f"{API}/live?coupons={ids[2]}", operator.key))
    assert streams[-1].status_code == 200
    for one in streams:
        one.close()
    admin.end()


def test_words_are_for_those_who_may_have_codes(stack, admin, key_make, api):
    """A word is a code for everybody: who only looks cannot read it."""
    monitor = known(admin, key_make("monitor"))
    coupon, word = stack.coupon_make(5), "GIFT" + uuid.uuid4().hex[:12].upper()
    path = f"/campaigns/{coupon}"
    ok(api("POST", f"{path}/words", {"word": word}))
    for caller, form in ((api, word), (monitor, None)):
        told = ok(caller("GET", f"{path}/codes"))
        assert [(one["kind"], one["form"]) for one in told["sets"]] == [("word", form)]
    for one in ("/history", f"{path}/history", f"{path}/codes", path):
        assert word not in monitor("GET", one).text, one
    changes = ok(monitor("GET", "/history"))["history"]
    words = [one["words"] for one in changes if one["command"] == "codes generate"]
    assert f" {coupon} --word=…" in words


def test_a_key_that_is_revoked(admin, key_make, pg):
    """The next request is refused, with the key and in a session of it."""
    path = f"{admin.url}{API}/campaigns?count=1"
    for n in range(8):  # a program that only looks by itself is late in most of them
        caller, browser = known(admin, key_make("monitor")), requests.Session()
        began = browser.post(f"{admin.url}/admin/session", json={"key": caller.key}, timeout=60)
        assert began.json()["role"] == "monitor"
        ask = [lambda: browser.get(path, timeout=60), lambda: caller("GET", "/campaigns?count=1")]
        assert [one().status_code for one in ask] == [200, 200]
        pg.execute("SELECT api_key_revoke(%s)", (key_id(caller),))  # couponctl would take longer
        assert [one().status_code for one in ask[:: 1 if n % 2 else -1]] == [401, 401]
        problem(admin.call("POST", "/admin/session", {"key": caller.key}), 401)


def test_a_session(admin, key_make):
    caller = known(admin, key_make("admin"))
    browser = requests.Session()
    url = f"{admin.url}/admin/session"
    assert browser.get(url, timeout=60).status_code == 401
    issue = known(admin, key_make("issue"))
    assert browser.post(url, json={"key": issue.key}, timeout=60).status_code == 403
    begun = browser.post(url, json={"key": caller.key}, timeout=60)
    cookie = begun.headers["Set-Cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    assert ("; Secure" in cookie) == url.startswith("https")
    token = begun.json()["csrf_token"]
    told = browser.get(url, timeout=60).json()
    assert told == begun.json() and (told["role"], told["key"]) == ("admin", key_id(caller))
    path = f"{admin.url}{API}/campaigns"
    assert browser.get(path, timeout=60).status_code == 200
    body = {"name": "x", "total": 1}
    for wrong in ({}, {"X-CSRF-Token": "x"}, {"X-CSRF-Token": token + "x"}):
        assert browser.post(path, json=body, headers=wrong, timeout=60).status_code == 403
    headers = {"X-CSRF-Token": token}
    assert browser.post(path, json=body, headers=headers, timeout=60).status_code == 201
    stolen = {"Cookie": f"couponmq_admin={browser.cookies['couponmq_admin']}"}
    assert browser.delete(url, timeout=60).status_code == 403
    assert browser.delete(url, headers=headers, timeout=60).status_code == 204
    assert requests.get(path, headers=stolen, timeout=60).status_code == 401


def test_what_watches_the_program(stack, key_make):
    """Strangers are told whether it is ready, and nothing else; what is refused is logged."""
    admin = Admin(stack)
    monitor, issue = known(admin, key_make("monitor")), known(admin, key_make("issue"))
    assert admin.call("GET", "/readyz").json() == {"ready": True}
    assert admin.call("GET", "/readyz", key=issue.key).json() == {"ready": True}
    told = admin.call("GET", "/readyz", key=monitor.key).json()
    assert (told["keys"], told["couponctl"], told["warnings"]) == ("ok", "ok", [])
    problem(admin.call("GET", "/metrics"), 401)
    problem(admin.call("GET", "/metrics", key=issue.key), 403)

    def metrics():
        page = admin.call("GET", "/metrics", key=monitor.key).text
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    before = metrics()
    problem(admin.call("POST", "/admin/session", {"key": "cmq_0000000000_x"}), 401)
    ok(monitor("GET", "/campaigns?count=1"))
    problem(monitor("GET", "/campaigns/9999"), 404)
    problem(monitor("POST", "/campaigns/9999/pause"), 403)
    after = metrics()
    for name, more in (
        (("couponmq_admin_keys_refused_total",), 1),
        (("couponmq_admin_commands_total", "done"), 1),
        (("couponmq_admin_commands_total", "refused"), 1),
        (("couponmq_admin_commands_total", "failed"), 0),
    ):
        assert after[name] - before[name] == more, name
    (line,) = [line for line in admin.log().splitlines() if f"key={key_id(monitor)}" in line]
    assert "event=admin_refused" in line and "path=/admin/v1/campaigns/9999/pause" in line
    assert "http=403" in line and 'error="this key does not allow that"' in line

    def stranger_is_logged():
        admin.call("POST", "/admin/session", {"key": "x"})
        line = "event=admin_unauthorized path=/admin/session address=127.0.0.1 http=401"
        return line in admin.log()

    wait_until(stranger_is_logged)
    admin.end()


def test_what_has_come_to_be(stack, admin, api, gateway, make_coupon):
    """Receives, codes, webhooks and keys, each from its beginning to its end."""
    coupon = make_coupon(10)
    receive = gateway.issue(coupon, "u/1", ack="issued")["receive"]
    user = f"/campaigns/{coupon}/users/u%2F1"
    assert ok(api("GET", user))["receives"][0]["receive"] == receive
    seen = ok(api("GET", "/receives/" + receive.replace("/", "%2F")))
    assert seen["status"] == "issued"
    (traced,) = ok(api("GET", user + "/trace"))["receives"]
    alone = ok(api("GET", f"/receives/{receive.replace('/', '%2F')}/trace"))
    assert traced["receive"] == alone["receive"] == receive
    assert isinstance(ok(api("GET", f"/campaigns/{coupon}/curve"))["curve"], list)
    (voided,) = ok(api("POST", user + "/void", {"why": "fraud"}))["receives"]
    assert (voided["receive"], voided["voided"]) == (receive, True)
    again = ok(api("POST", f"/receives/{receive.replace('/', '%2F')}/void"))
    assert (again["result"], again["voided"]) == ("again", True)
    problem(api("POST", user + "x/void"), 404)

    word = ok(api("POST", f"/campaigns/{coupon}/words", {"word": f"NOON{coupon}"}))
    assert ok(api("GET", f"/codes/noon{coupon}"))["set"] == word["set"]
    assert ok(api("GET", f"/campaigns/{coupon}/codes"))["codes"] == 1
    refused = ok(api("POST", "/codes/revoke", {"codes": ["NOSUCHCODE"]}))
    assert refused["refused"] == 1 and "NOSUCHCODE" in refused["warnings"][0]
    assert ok(api("POST", f"/sets/{word['set']}/revoke"))["set"] == word["set"]
    problem(api("GET", "/codes/NOSUCHCODE"), 404)

    hook = {"url": "https://hooks.example/x", "types": ["coupon.issued"], "coupon": coupon}
    made = ok(api("POST", "/webhooks", hook), 201)
    path = f"/webhooks/{made['webhook']}"
    assert made["secret"].startswith("whsec_")
    assert ok(api("PATCH", path, {"state": "disabled", "why": "test"}))["state"] == "disabled"
    assert (ok(api("GET", path))["state"], ok(api("GET", path))["why"]) == ("disabled", "test")
    assert ok(api("PATCH", path, {"state": "enabled"}))["why"] is None
    assert ok(api("GET", path + "/deliveries?failed=true"))["deliveries"] == []
    assert ok(api("POST", path + "/rotate", {"overlap": "0s"}))["secret"] != made["secret"]
    assert made["webhook"] in [one["webhook"] for one in ok(api("GET", "/webhooks"))["webhooks"]]
    assert ok(api("DELETE", path)) == {"webhook": made["webhook"]}
    problem(api("GET", path), 404)

    made = api("POST", "/keys", {"name": "shop", "role": ["issue", "read"], "coupons": [coupon]})
    path = made.headers["Location"].removeprefix(API)
    assert ok(made, 201)["secret"].startswith(f"cmq_{made.json()['key']}_")
    shown = ok(api("GET", path))
    assert (shown["roles"], shown["coupons"]) == (["issue", "read"], [coupon])
    assert (shown["created_by"], shown["last_used_at"]) == (key_id(api), None)
    wait_until(lambda: ok(api("GET", f"/keys/{key_id(api)}"))["last_used_at"])
    assert ok(api("POST", path + "/rotate"))["key"] == made.json()["key"]
    assert ok(api("POST", path + "/revoke"))["state"] == "revoked"
    assert (ok(api("GET", path))["state"], ok(api("GET", path))["by"]) == ("revoked", key_id(api))
    for path in ("/keys", "/dead", "/events", "/installation", f"/campaigns/{coupon}/check"):
        ok(api("GET", path))
    assert ok(api("POST", "/dead/requeue", {"count": 1})) == {"requeued": 0}
    problem(api("POST", f"/dead/{'0' * 31}1/remove", {"yes": True}), 404)
    assert admin.log().count("admin_request") > 5


def test_a_user_without_a_campaign(api, gateway, make_coupon):
    user = f"anywhere-{time.time_ns()}"
    receives = [gateway.issue(make_coupon(1), user, ack="issued")["receive"] for _ in range(2)]
    listed = ok(api("GET", f"/users/{user}/receives"))["receives"]
    assert [one["receive"] for one in listed] == receives[::-1]
    assert ok(api("GET", f"/users/{user}x/receives")) == {"receives": []}
    assert "user" in problem(api("GET", "/users/a%20b/receives"), 400)


def test_sets_of_codes(stack, admin, api, make_coupon):
    """Made and imported, and read again; no code is in the log, or among the words of a command."""
    coupon = make_coupon(10)
    path = f"/campaigns/{coupon}"
    made = ok(api("POST", path + "/sets", {"count": 30, "prefix": "SUN"}))
    assert (made["coupon"], made["count"], made["file"]) == (coupon, 30, None)
    codes = ok(api("GET", f"/sets/{made['set']}/codes?all=true"))["codes"]
    texts = [one["code"] for one in codes]
    assert len(set(texts)) == 30 and all(text.startswith("SUN-") for text in texts)
    assert ok(api("GET", f"/codes/{texts[0]}"))["set"] == made["set"]
    assert ok(api("GET", f"/sets/{made['set']}/codes"))["codes"] == []
    problem(api("GET", "/sets/1/codes"), 404)
    assert "count" in problem(api("POST", path + "/sets"), 400)

    others = [f"other-{coupon}-{n}" for n in range(2000)]
    told = ok(api("POST", path + "/codes", {"codes": [*others, texts[0], 'a"é,b']}))
    assert (told["stored"], told["refused"]) == (2000, 2), told
    assert [one.partition(":")[0] for one in told["warnings"]] == ["line 2001", "line 2002"]
    again = ok(api("POST", path + "/codes", {"codes": [*others, texts[0], 'a"é,b']}))
    assert (again["set"], again["stored"], again["present"]) == (told["set"], 0, 2000)
    listed = ok(api("GET", f"/sets/{told['set']}/codes?all=true"))["codes"]
    assert [one["code"] for one in listed] == others
    sets = ok(api("GET", path + "/codes"))["sets"]
    assert [(one["kind"], one["complete"], one["unused"]) for one in sets] == [
        ("generated", True, 30),
        ("imported", True, 2000),
    ]
    assert sets[1]["file"] is None
    assert problem(api("POST", path + "/codes"), 400) == "codes is missing"
    for wrong in ("x", [1], {"code": "x"}, []):
        assert "codes: allowed" in problem(api("POST", path + "/codes", {"codes": wrong}), 400)
    log = admin.log()
    assert f"{path}/codes" in log and texts[0] not in log and others[0] not in log
    changes = stack.ctl("history", "--count", 100)
    assert f"codes import {coupon}" in changes and others[0] not in changes


def test_a_coupon_for_each_listed_user(api, gateway, make_coupon, pg):
    coupon = make_coupon(2000)
    path = f"/campaigns/{coupon}/distribute"
    assert gateway.issue(coupon, "u7", ack="issued")["code"] == 0
    users = [f"u{n}" for n in range(1000)]
    told = ok(api("POST", path, {"users": [*users, "u1", "a b", 'x"\n1', ""], "name": "May"}))
    counts = [told[name] for name in ("listed", "settled", "issued", "issued_before")]
    assert (counts, told["finished"]) == ([1004, 1004, 999, 0], True)
    assert told["refused"] == {"limit_reached": 1, "duplicate": 1, "invalid": 3}
    assert [(one["user"], one["line"], one["status"]) for one in told["refused_users"]] == [
        ("u7", 8, "limit_reached"),
        ("u1", 1001, "duplicate"),
        ("a b", 1002, "invalid"),
        ('x"\\x0a1', 1003, "invalid"),
        ("", 1004, "invalid"),
    ]
    again = ok(api("POST", path, {"users": users, "name": "May"}))
    assert (again["issued"], again["issued_before"]) == (999, 999)
    query = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    assert pg.execute(query, (coupon,)).fetchone() == (1000,)
    assert problem(api("POST", path), 400) == "users is missing"
    for body, text in (
        ({"users": "u1"}, "users: allowed is a list"),
        ({"users": [1]}, "users: allowed are texts"),
        ({"users": ["1"], "name": "a/b"}, 'name is "a/b"'),
        ({"users": ["1"], "refused": "/tmp/x"}, "refused: there is no such member"),
        ({"users": ["1"], "no_heading": True}, "no_heading: there is no such member"),
    ):
        assert text in problem(api("POST", path, body), 400), body
    draft = ok(api("POST", "/campaigns", {"name": "x", "total": 1}), 201)["coupon"]
    told = problem(api("POST", f"/campaigns/{draft}/distribute", {"users": ["1"]}), 409)
    assert "is a draft" in told


def test_what_orders_do(api, gateway, make_coupon):
    """In the name of who asks, whatever the key of the program's own requests."""
    budget = f"b{uuid.uuid4().hex}"
    terms = {"name": budget, "amount": 1000, "currency": "EUR"}
    made = api("POST", "/budgets", terms)
    assert (ok(made, 201)["left"], made.headers["Location"]) == (1000, f"{API}/budgets/{budget}")
    coupon = make_coupon(10, amount_off="4.00", currency="EUR", budget=budget)
    receive = gateway.issue(coupon, "u/1", ack="issued")["receive"]
    path = "/receives/" + receive.replace("/", "%2F")
    assert ok(api("GET", path + "/quote?amount=300&currency=EUR"))["amount_off"] == 300
    assert problem(api("GET", path + "/quote"), 400) == "amount: is missing"
    held = ok(api("POST", path + "/hold", {"order": "a", "ttl_s": 60}))
    assert held["status"] == "held", held
    refused = ok(api("POST", path + "/use", {"order": "b", "key": coupon}))
    assert (refused["code"], refused["status"]) == (10, "held_by_other")
    taken = {"order": "c", "key": coupon}
    assert problem(api("POST", path + "/use", taken), 422).startswith("key ")
    other = {"order": "a", "amount": 300, "currency": "USD"}
    assert problem(api("POST", path + "/use", other), 400).startswith("currency ")
    assert ok(api("GET", f"/budgets/{budget}"))["held"] == 400
    assert ok(api("POST", path + "/use", {"order": "a"}))["code"] == 0
    assert ok(api("POST", path + "/release", {"order": "a"}))["status"] == "already_used"
    shown = ok(api("GET", path + "/uses"))
    assert shown["use"] == {"state": "used", "order": "a"}
    assert [(one["action"], one["result"], one["by"]) for one in shown["uses"]] == [
        (action, result, key_id(api))
        for action, result in (
            ("hold", "held"),
            ("use", "held_by_other"),
            ("use", "currency_wrong"),
            ("use", "used"),
            ("release", "already_used"),
        )
    ]
    ok(api("POST", path + "/rollback", {"order": "a", "reason": "cancelled"}))
    assert ok(api("GET", path + "/uses"))["use"] is None
    problem(api("GET", f"/receives/{receive[:-1].replace('/', '%2F')}9/uses"), 404)
    assert ok(api("PATCH", f"/budgets/{budget}", {"amount": "300"}))["left"] == 300
    (listed,) = [one for one in ok(api("GET", "/budgets"))["budgets"] if one["name"] == budget]
    assert listed["campaigns"] == [coupon]
    problem(api("GET", f"/budgets/{budget}x"), 404)


def job_of(caller, path):
    """One that was started, once it has ended."""
    job = ok(caller("POST", path), 202)["job"]
    return wait_until(lambda: (told := ok(caller("GET", f"/jobs/{job}")))["ended_at"] and told)


def test_jobs(api, make_coupon):
    coupon = make_coupon(1)
    for path in (f"/campaigns/{coupon}/audit", f"/campaigns/{coupon}/rebuild", "/audit"):
        started = api("POST", path, {"grace": 0} if path == "/audit" else None)
        ok(started, 202)
        place = started.headers["Location"].removeprefix(API)
        job = wait_until(lambda: (job := ok(api("GET", place)))["state"] == "done" and job)
        assert job["coupon"] == (None if path == "/audit" else coupon)
        assert job["by"] == key_id(api) and job["ended_at"]
    wrong = {one["coupon"] for one in job["result"]["wrong"]}  # what other tests have planted
    assert coupon not in wrong and job["result"]["passed"] is not bool(wrong)
    assert [one["job"] for one in ok(api("GET", "/jobs"))["jobs"]][0] == job["job"]
    absent = job_of(api, "/campaigns/9999/audit")["problem"]
    assert (absent["status"], absent["detail"]) == (404, "there is no coupon 9999")
    failed = job_of(api, "/campaigns/9999/rebuild")
    assert failed["state"] == "failed" and "nothing to rebuild" in failed["problem"]["detail"]
    assert ok(api("DELETE", f"/jobs/{failed['job']}"))["state"] == "failed"


FAKE = """#!/bin/sh
echo "$$ $(cat)" >>FOLDER/started
# answer STATUS [MEMBERS [DETAIL [WARNINGS]]]: as couponctl --api does, the last three as JSON
answer() {
    printf '{"members":[\\n%s],"status":%s,"detail":%s,"warnings":[%s]}\\n' "${2:+$2
}" "$1" "${3:-null}" "$4"
    exit "$1"
}
. FOLDER/does
"""


@pytest.fixture
def fake(stack, key_make, tmp_path):
    """
    A coupon-admin whose couponctl does what the test says: fake.does(SHELL), or fake.hold() until
    fake.release().
    """
    shutil.copy(stack.build_dir / "coupon-admin", tmp_path)
    program = tmp_path / "couponctl"
    program.write_text(FAKE.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    one = Admin(stack, f"{tmp_path}/", COUPON_ADMIN_TIMEOUT_MS=100000)
    one.described.is_forged = True
    one.does = (tmp_path / "does").write_text
    one.program = program
    one.api = known(one, key_make("admin"))
    (tmp_path / "started").write_text("")
    one.started = lambda: [
        line.split(maxsplit=1) for line in (tmp_path / "started").read_text().splitlines()
    ]
    one.requests = lambda: [json.loads(request) for _, request in one.started()]
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    one.hold = lambda: one.does(f"{wait}; answer 0 '{{}}'")
    one.release = (tmp_path / "go").touch
    one.waiting = lambda: one.metric("couponmq_admin_commands_waiting")
    yield one
    one.release()
    one.end()


def test_a_command_that_dies_or_says_nothing(fake):
    for does, status in (
        ("kill -9 $$", 500),
        ("kill -SEGV $$", 500),
        ("exit 1", 409),
        ("exit 77", 500),
        ("echo nonsense", 500),
        ("echo '{'", 500),
        ("echo '{}'", 500),
        ("answer 0 '{'", 500),
        ("answer 0", 500),
        ("yes", 400),
    ):
        fake.does(does)
        problem(fake.api("GET", "/campaigns/1"), status)
    fake.does("yes")
    assert "is unknown" in problem(fake.api("POST", "/campaigns/1/pause"), 500)
    fake.does("""answer 3 '{}' null '"late"'""")
    assert ok(fake.api("POST", "/campaigns/1/pause")) == {"warnings": ["late"]}
    fake.program.unlink()
    assert "cannot be started" in problem(fake.api("GET", "/campaigns/1"), 503)
    assert fake.call("GET", "/readyz").status_code == 503


def test_exit_statuses(fake):
    """What each means, also of a job; a verdict is an answer where there is one to give."""
    for code, status in (
        (1, 409),
        (2, 400),
        (3, 500),
        (4, 422),
        (6, 409),
        (7, 503),
        (8, 412),
        (9, 404),
        (10, 503),
        (12, 500),
    ):
        fake.does(f"""answer {code} "" '"why"' """)
        assert problem(fake.api("POST", "/campaigns/1/pause"), status) == "why"
        for path in ("/campaigns/1/audit", "/campaigns/1/rebuild"):
            assert job_of(fake.api, path)["problem"]["status"] == status
    for code, paths in (
        (1, ("/campaigns/1/audit",)),
        (10, ("/campaigns/1/audit", "/audit")),
        (5, ("/campaigns/1/audit",)),
        (3, ("/campaigns/1/rebuild",)),
    ):
        fake.does(f"answer {code} '{{}}'")
        assert [job_of(fake.api, path)["state"] for path in paths] == ["done"] * len(paths)
    fake.does("""answer 1 '{"receive":"x"}' """)
    assert job_of(fake.api, "/campaigns/1/rebuild")["problem"]["status"] == 409
    assert ok(fake.api("POST", "/receives/x/void")) == {"receive": "x"}
    problem(fake.api("POST", "/campaigns/1/pause"), 409)
    fake.does("""answer 10 '{"code":20,"status":"busy"}' '"busy"' """)
    assert problem(fake.api("GET", "/receives/x"), 503) == "busy", "this is no partial answer"


def test_no_exchange_code_is_logged(fake):
    fake.does("""answer 10 "" '"away"' """)
    problem(fake.api("GET", "/codes/NOONCODE"), 503)
    wait_until(lambda: "path=/codes/{code} " in fake.log())
    for path, status in (
        ("/codes/NOONCODE", 405),
        ("/codes/NOONCODE/", 404),
        ("/codes/NOONCODE/x", 404),
        (f"/keys/{fake.api.key}", 405),
    ):
        problem(fake.api("POST", path), status)
    problem(fake.call("GET", f"{API}/codes/NOONCODE", Origin="http://evil.example"), 403)
    wait_until(lambda: "path=? address=127.0.0.1 http=403" in fake.log())
    assert "NOONCODE" not in fake.log() and fake.api.key not in fake.log()


@pytest.mark.parametrize("method, path", (("GET", ""), ("POST", "/revoke"), ("POST", "/rotate")))
def test_no_whole_key_is_logged_or_passed_on(fake, method, path):
    started = len(fake.started())
    detail = problem(fake.api(method, f"/keys/{fake.api.key}{path}"), 400)
    assert "the path has no key id" in str(detail)
    wait_until(lambda: not path or f"path=/keys/{{api_key}}{path} " in fake.log())
    assert fake.api.key not in fake.log()
    assert len(fake.started()) == started


def test_the_request_of_a_command(fake):
    fake.does("answer 0 '{}'")
    terms = {"name": 'a $(b) "c"', "end": None, "valid_days": 7}
    fake.api("PATCH", "/campaigns/1", terms, If_Match='"7"')
    head = {"command": "edit", "arguments": ["1"], "by": key_id(fake.api), "version": "7"}
    assert fake.requests()[-1] == {**head, **terms}


def sent(fake, path):
    """A connection by which it was posted."""
    connection = dial(fake.address)
    head = f"POST {API}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    connection.sendall(f"{head}Authorization: Bearer {fake.api.key}\r\n\r\n".encode())
    return connection


def test_a_command_that_hangs(fake):
    """It goes on without its client; a job ends when it is told to."""
    fake.does("exec sleep 1000")
    connection = sent(fake, "/campaigns/1/pause")
    wait_until(fake.started)
    changes = int(fake.started()[0][0])
    connection.close()
    job = ok(fake.api("POST", "/audit"), 202)["job"]
    wait_until(lambda: ok(fake.api("GET", f"/jobs/{job}"))["state"] == "running")
    wait_until(lambda: len(fake.started()) == 2)
    audits = int(fake.started()[-1][0])
    assert ok(fake.api("DELETE", f"/jobs/{job}"))["state"] == "ended"
    wait_until(lambda: process_gone(audits))
    assert not process_gone(changes)
    subprocess.run(["kill", str(changes)], check=True)


def test_a_child_that_outlives_its_command(fake):
    """What a command has started holds its output: it is waited for no longer than the command."""
    late = Admin(fake.stack, f"{fake.program.parent}/", COUPON_ADMIN_TIMEOUT_MS=300)
    fake.does("sleep 5 & exit 0")
    problem(known(late, fake.api.key)("GET", "/campaigns/1"), 504)
    late.end()


def test_the_end_waits_for_changes(fake):
    """What looks is ended, what waits is refused, and what changes something is answered."""
    fake.hold()
    with ThreadPoolExecutor(20) as pool:
        changes = [pool.submit(fake.api, "POST", f"/campaigns/{n}/pause") for n in range(1, 10)]
        wait_until(lambda: fake.waiting() == 1)
        ok(fake.api("POST", "/campaigns/1/rebuild"), 202)
        looks = pool.submit(fake.api, "GET", "/campaigns/1")
        wait_until(lambda: fake.waiting() == 2)
        fake.signal(signal.SIGTERM)
        assert "is stopping" in problem(looks.result(), 503)
        wait_until(lambda: any(one.done() for one in changes))
        assert "is stopping" in problem(fake.api("POST", "/campaigns/1/close"), 503)
        assert fake.call("GET", "/readyz").json() == {"ready": False}
        assert fake.child.poll() is None
        wait_until(lambda: [one["command"] for one in fake.requests()].count("rebuild") == 1)
        fake.release()
        assert sorted(one.result().status_code for one in changes) == [200] * 8 + [503]
    assert fake.child.wait(10) == 0


def test_a_key_that_is_revoked_while_its_command_waits(stack, fake, key_make):
    keys = {name: known(fake, key_make("admin")) for name in ("key", "session", "job", "good")}
    browser = requests.Session()
    url = f"{fake.url}/admin/session"
    token = browser.post(url, json={"key": keys["session"].key}, timeout=60).json()["csrf_token"]
    headers = {"X-CSRF-Token": token}
    fake.hold()
    with ThreadPoolExecutor(20) as pool:
        path = f"{fake.url}{API}/campaigns/2/close"
        first = [pool.submit(keys["good"], "POST", "/campaigns/1/pause") for _ in range(8)]
        wait_until(lambda: len(fake.started()) == 8)
        late = [
            pool.submit(keys["key"], "POST", "/campaigns/2/close"),
            pool.submit(browser.post, path, headers=headers, timeout=60),
            pool.submit(keys["good"], "POST", "/campaigns/3/close"),
        ]
        jobs = [ok(keys["job"]("POST", "/campaigns/1/rebuild"), 202)["job"] for _ in range(5)]
        path = f"{fake.url}{API}/campaigns/1/rebuild"
        jobs.insert(0, browser.post(path, headers=headers, timeout=60).json()["job"])
        gone = sent(fake, "/campaigns/4/close")
        wait_until(lambda: fake.waiting() == 6)
        gone.close()
        for name in ("key", "job"):
            stack.ctl("key", "revoke", key_id(keys[name]))
            wait_until(lambda: keys[name]("GET", "/jobs").status_code == 401)
        left = requests.delete(url, headers=headers, cookies=browser.cookies, timeout=60)
        assert left.status_code == 204
        fake.release()
        assert [one.result().status_code for one in first] == [200] * 8
        assert [one.result().status_code for one in late] == [401, 401, 200]
        assert "nothing was done" in problem(late[0].result(), 401)
        ended = [
            wait_until(lambda: (job := ok(fake.api("GET", f"/jobs/{id_}")))["ended_at"] and job)
            for id_ in jobs
        ]
    assert [job["state"] for job in ended] == ["done"] * 5 + ["failed"]
    assert ended[-1]["problem"]["status"] == 401
    done = fake.requests()
    assert len(done) == 14
    assert [one["arguments"] for one in done if one["command"] == "close"] == [["3"]]


def test_a_command_that_takes_too_long(stack, fake, key_make):
    """It ends with what it has started."""
    folder = fake.program.parent
    fake.does(f'sleep 100 & echo "$! sleep" >>{folder}/started; wait')
    late = Admin(stack, f"{folder}/", COUPON_ADMIN_TIMEOUT_MS=2000)
    caller = known(late, fake.api.key)
    assert "unknown" in problem(caller("POST", "/campaigns/1/close"), 504)
    late.end()
    (own, _), (below, _) = fake.started()
    assert process_gone(int(own))
    wait_until(lambda: process_gone(int(below)))


def test_more_than_it_may_run_at_once(fake, key_make):
    """Six that look run, 64 wait, 32 of one key; a change starts at once."""
    keys = [known(fake, key_make("monitor")) for _ in range(3)]
    fake.hold()

    def look(key, n):
        return [pool.submit(key, "GET", "/campaigns/1") for _ in range(n)]

    with ThreadPoolExecutor(90) as pool:
        told = look(keys[0], 40)
        wait_until(lambda: sum(one.done() for one in told) == 2)
        told += look(keys[1], 34)
        wait_until(lambda: sum(one.done() for one in told) == 4)
        assert (len(fake.started()), fake.waiting()) == (6, 64)
        assert "too many" in problem(keys[2]("GET", "/campaigns/1"), 503)
        changes = pool.submit(fake.api, "POST", "/campaigns/1/pause")
        wait_until(lambda: len(fake.started()) == 7)
        fake.release()
        assert changes.result().status_code == 200
        statuses = sorted(one.result().status_code for one in told)
    assert statuses == [200] * 70 + [503] * 4


@pytest.mark.plain
def test_many_connections(admin, api):
    """They wait until there is room, and nobody else is kept from his answer."""
    idle = [dial(admin.address) for _ in range(300)]
    assert ok(api("GET", "/campaigns?count=1"))
    for one in idle:
        one.close()


@pytest.mark.plain
def test_connections_that_take_all_descriptors(stack, key_make):
    """Commands have theirs."""
    one = Admin(stack, descriptors_max=128)
    api = known(one, key_make("admin"))
    assert "event=kernel_limit" in one.log()
    with requests.Session() as kept:
        headers = {"Authorization": f"Bearer {api.key}"}
        path = f"{one.url}{API}/campaigns?count=1"
        assert kept.get(path, headers=headers, timeout=60).status_code == 200
        one.signal(signal.SIGSTOP)  # else it may close the first before the last have come
        idle = [dial(one.address) for _ in range(200)]
        one.signal(signal.SIGCONT)
        wait_until(lambda: "event=accept_pause" in one.log())
        assert kept.get(path, headers=headers, timeout=60).status_code == 200
    for connection in idle:
        connection.close()
    one.end()


@pytest.mark.skipif(
    re.search("address|thread", os.environ.get("BUILD_DIR", "")) is not None,
    reason="sanitizers have their own malloc",
)
def test_connections_leave_nothing_behind(admin):
    def some():
        for _ in range(150):
            assert admin.call("GET", "/healthz").status_code == 200

    some()
    before = admin.memory()
    some()
    assert admin.memory() - before < 1 << 20, "a session of TLS is some 14 KiB"


def test_a_terminal_that_ends(stack):
    """SIGHUP does not end it."""
    one = Admin(stack)
    for _ in range(3):
        one.signal(signal.SIGHUP)
        assert one.is_ready()
    assert one.terminate() == 0 and "event=stopping signal=15" in one.log()


def test_settings_that_are_refused(stack):
    def start(**settings):
        plain = dict.fromkeys(("COUPON_TLS_CERT", "COUPON_TLS_KEY", "COUPON_TLS_CA"), "")
        env = {**stack.env_of("admin"), **plain, **settings}
        return subprocess.run(
            [stack.build_dir / "coupon-admin", "-n"], env=env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    assert start().returncode == 0
    for settings, message in (
        ({"COUPON_ADMIN_LISTEN": "off"}, 'COUPON_ADMIN_LISTEN is "off": allowed is host:port'),
        ({"COUPON_ADMIN_LISTEN": "0.0.0.0:7490"}, "needs COUPON_TLS_CERT and COUPON_TLS_KEY, or"),
        (
            {"COUPON_GATEWAY_KEY": "x", "COUPON_ADMIN_METRICS": "127.0.0.1:1,[::2]:7480"},
            'COUPON_ADMIN_METRICS has "[::2]:7480", which is another machine: set',
        ),
        ({"COUPON_ADMIN_TIMEOUT_MS": "1"}, "allowed is an integer from 100 to 600000"),
    ):
        told = start(**settings)
        assert told.returncode == 1 and message in told.stderr, told
    assert start(COUPON_ADMIN_LISTEN="0.0.0.0:7490", COUPON_INSECURE="yes").returncode == 0
    elsewhere = {"COUPON_GATEWAY_KEY": "x", "COUPON_ADMIN_METRICS": "gateway.example:7480"}
    assert start(**elsewhere, COUPON_INSECURE="yes").returncode == 0
    for scheme, code in (("http://", 0), ("https://", 0), ("ftp://", 1), ("", 1)):
        elsewhere["COUPON_ADMIN_METRICS"] = f"{scheme}gateway.example:7480"
        assert start(**elsewhere).returncode == code, scheme


def test_its_description(admin):
    """The description has the form of OpenAPI 3.1: each reference leads somewhere, and names are
    used once."""
    document = admin.described.document
    assert document["openapi"] == "3.1.0"
    names, used = [], set()

    def walk(value):
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            if isinstance(one, (dict, list)):
                yield from walk(one)

    for value in walk(document):
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            assert admin.described.resolve(value)
            used.add(value["$ref"])
        if isinstance(value, dict) and "schema" in value:
            Draft202012Validator.check_schema(value["schema"])
        if isinstance(value, dict) and "array" in str(value.get("type")):
            assert "items" in value, value
        if isinstance(value, dict) and "operationId" in value:
            names.append(value["operationId"])
    assert len(names) == len(set(names)) > 45
    for kind in ("schemas", "responses", "parameters"):
        for name in document["components"][kind]:
            assert f"#/components/{kind}/{name}" in used
    create = document["paths"][f"{API}/campaigns"]["post"]["requestBody"]["content"]
    members = create["application/json"]["schema"]["properties"]
    assert members["valid_days"]["type"] == ["string", "number", "null"]
    assert members["events"]["type"] == "boolean"
    assert not {"json", "by", "version"} & set(members)
    export = json.dumps(document["paths"])
    assert '"secret_file"' not in export and '"file"' not in export


def objects_make(form, stack, api):
    """What the path names, of this operation alone: NAME: a value."""

    def made(name, path, body):
        return str(api("POST", path, body).json()[name])

    coupon = stack.coupon_make(5) if {"coupon", "receive", "set"} & set(names_in(form)) else None

    def issued():
        with stack.client() as gateway:
            wait_until(lambda: gateway.call("coupon", coupon=coupon)["code"] == 0)
            return gateway.issue(coupon, "u", ack="issued")["receive"]

    makers = {
        "coupon": lambda: coupon,
        "receive": issued,
        "set": lambda: made("set", f"/campaigns/{coupon}/sets", {"count": 1}),
        "webhook": lambda: made("webhook", "/webhooks", {"url": "https://shop.example"}),
        "budget": lambda: made(
            "name",
            "/budgets",
            {"name": f"b-{uuid.uuid4().hex[:12]}", "amount": 7, "currency": "EUR"},
        ),
        "api_key": lambda: made("key", "/keys", {"name": "x", "role": ["read"]}),
    }
    return {name: makers.get(name, lambda: "1")() for name in names_in(form)}


def is_job(operation):
    return operation["responses"].get("202") == {"$ref": "#/components/responses/Job"}


def names_in(form):
    return re.findall(r"{(\w+)}", form)


@pytest.mark.long
def test_each_operation_up_to_each_bound_and_beyond(stack, admin, api):
    """Each parameter and each member, of every type: what the description does not allow is
    refused, and no answer is one that it does not have, or an error of the program."""
    described, tried = admin.described, collections.Counter()

    def send(method, path, name, schema, value, body=None, **headers):
        wrong = described.errors(schema, value)
        told = admin.call(method, path, body, api.key, **headers)
        described.check(method, path, told)
        assert told.status_code < 500, (method, path, name, value, told.text)
        assert not wrong or told.status_code >= 400, (method, path, name, value, told.text)
        tried[bool(wrong)] += 1

    for form, item in described.document["paths"].items():
        for method, operation in item.items():
            if method == "parameters" or form in (f"{API}/live", "/healthz", "/readyz", "/metrics"):
                continue
            objects = objects_make(form, stack, api)
            path, runs = form.format(**objects), not is_job(operation)
            needed = {} if method == "get" else {"If_Match": "*"}
            for parameter in item.get("parameters", []) + operation.get("parameters", []):
                parameter = described.resolve(parameter)
                name, schema = parameter["name"], parameter["schema"]
                for value in described.values(schema):
                    if not isinstance(value, str) or (not runs and parameter["in"] == "header"):
                        continue
                    text = quote(value, safe="")
                    if parameter["in"] == "query":
                        of_text = {} if "array" in schema.get("type", ()) else schema
                        known_as = {"true": True, "false": False}.get(value, value)
                        send(method, f"{path}?{name}={text}", name, of_text, known_as, **needed)
                    elif parameter["in"] == "path" and value:
                        other = form.format(**{**objects, name: text})
                        send(method, other, name, {}, value, **needed)
                    elif value.isprintable() and value == value.strip():
                        headers = {**needed, name.replace("-", "_"): value.encode("latin-1")}
                        send(method, path, name, schema, value, {}, **headers)
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for value in openapi.OF_EVERY_TYPE:
                if value is not None and described.errors(schema, value):  # None would be no body
                    send(method, path, "the body", schema, value, value, **needed)
            for name, member in schema["properties"].items():
                for value in described.values(member):
                    if runs or described.errors(member, value):
                        send(method, path, name, member, value, {name: value}, **needed)
    assert min(tried[False], tried[True]) > 1000, tried


def test_answers_while_something_is_wrong(rough):
    """Their description holds for them, too."""
    one = Admin(rough, **ALLOWED)
    api = known(one, key_maker(rough)("admin"))
    coupon = rough.coupon_make(5, events="on")
    hook = {"url": f"http://127.0.0.1:{port_free()}/", "coupon": coupon}
    hook = f"/webhooks/{ok(api('POST', '/webhooks', hook), 201)['webhook']}"
    assert ok(api("POST", f"{hook}/test"))["delivered"] is False
    with rough.client() as client:
        client.issue(coupon, 1, ack="issued")
        with nothing_storable(rough):
            dead = client.issue(coupon, 2)["receive"]
            wait_until(lambda: ok(api("GET", "/dead"))["count"] == 1)
    assert ok(api("GET", f"/receives/{dead}/trace"))["dead_letter"]["number"] == 1
    shown = ok(api("GET", "/dead/1"))
    assert shown["headers"] and shown["properties"] and shown["body"]
    for path, name in (
        (f"{hook}/deliveries", "deliveries"),
        (f"/campaigns/{coupon}/curve", "curve"),
    ):
        wait_until(lambda path=path, name=name: ok(api("GET", path))[name])
    (recent,) = ok(api("GET", f"/campaigns/{coupon}/recent"))["recent"]
    assert recent["user"] == "1"
    assert job_of(api, f"/campaigns/{coupon}/audit")["result"]["coupons"][0]["coupon"] == coupon
    assert len(job_of(api, f"/campaigns/{coupon}/rebuild")["result"]["rebuild"]) == 1
    (unsure,) = ok(api("POST", f"/dead/{shown['digest']}/remove"))["messages"]
    assert (unsure["removed"], unsure["owed"]) == (False, [dead])
    assert ok(api("POST", "/dead/1/requeue")) == {"requeued": 1}
    ok(api("POST", f"{hook}/resend"))
    rough.stop("redis", "rabbitmq")
    assert ok(api("GET", f"/campaigns/{coupon}"))["redis"]["error"]
    told = ok(api("GET", f"/receives/{dead}/trace"))
    assert told["redis"]["error"] and told["queue"]["error"]
    rough.start("redis", "rabbitmq")
    ok(api("DELETE", hook))
    one.end()


def test_a_store_that_is_away(rough):
    """The other one judges keys; what needs it is answered 503, and nothing hangs."""
    one = Admin(rough)
    caller = known(one, key_maker(rough)("admin"))
    rough.stop("redis")
    assert "Redis" in problem(caller("POST", "/campaigns", {"name": "x", "total": 1}), 503)
    rough.start("redis")
    rough.stop("postgres")
    assert "PostgreSQL" in problem(caller("GET", "/campaigns"), 503)
    rough.start("postgres")
    wait_until(lambda: caller("GET", "/campaigns").status_code == 200)
    one.end()


def test_a_new_key_is_good_at_once(stack, admin, key_make):
    """A program that only looks twice a second would refuse most of these."""
    for _ in range(4):
        text = key_make("monitor")
        assert admin.call("GET", f"{API}/campaigns", key=text).status_code == 200
        other = stack.ctl("key", "rotate", text.split("_")[1], "--overlap", "0s")
        assert admin.call("POST", "/admin/session", {"key": other}).status_code == 200
        text = key_make("monitor")
        assert "keys" in admin.call("GET", "/readyz", key=text).json()


def test_a_stranger_asks_the_stores_ten_times_a_second_at_most(admin):
    began = time.monotonic()
    for n in range(20):
        stranger = f"cmq_{n:010d}_" + "A" * 43
        assert admin.call("GET", "/admin/session", key=stranger).status_code == 401
    assert time.monotonic() - began >= 1.8


@pytest.mark.plain
def test_a_stranger_delays_nobody_while_the_stores_hang(stack, key_make):
    """Nobody can say whether his key is new. Another one has left before it is said."""
    urls = {name: stack.env_of("admin")[name] for name in ("REDIS_URL", "DATABASE_URL")}
    with Relay(port_of(urls["REDIS_URL"])) as cache, Relay(port_of(urls["DATABASE_URL"])) as db:
        gates = dict(zip(urls, (cache, db), strict=True))
        admin = Admin(stack, **{name: gate.url(urls[name]) for name, gate in gates.items()})
        try:
            text, stranger = key_make("monitor"), "cmq_0000000000_" + "A" * 43
            assert admin.call("GET", "/admin/session", key=text).status_code == 200
            head = (
                "GET /admin/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Authorization: Bearer {stranger}\r\n\r\n"
            )
            for gate in gates.values():
                gate.mode("hold")
            with dial(admin.address) as gone:
                gone.sendall(head.encode())
            with dial(admin.address) as waits:
                waits.sendall(head.encode())
                assert admin.call("GET", "/admin/session", key=text).status_code == 200
                assert select.select([waits], [], [], 0)[0] == []
                with waits.makefile("rb") as answer:
                    assert answer.readline().split()[1] == b"503"
            for gate in gates.values():
                gate.mode("pass")
            wait_until(lambda: admin.call("GET", "/admin/session", key=stranger).status_code == 401)
        finally:
            admin.end()
