"""Rights in coupon-admin: roles, scopes, origins, sessions, and keys that are made and revoked."""

import json
import re
import select
import time
import uuid

import pytest
import requests

from admin_client import API, Admin, Caller, key_id, known, ok, problem
from relay import Relay, port_of
from stack import dial, wait_until


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
    *("zone", "tags", "hidden", "tell_before", "user"),
    *("total", "wait_s", "older_than_s", "give_up_lost", "grace", "stalled_after_s", "after"),
    *("count", "prefix", "length", "alphabet", "pattern", "codes", "word", "why", "key"),
    *("users", "repeats", "rate", "delay_ms", "connections", "patience_s"),  # of distribute
    *("who", "what", "from", "to", "result"),  # of its history, whatever they ask for
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
