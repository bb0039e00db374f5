"""coupon-admin: couponctl's commands over HTTP, for those who have a key for that."""

import collections
import gzip
import json
import re
import time
import uuid
from urllib.parse import quote

import pytest
import requests
from jsonschema import Draft202012Validator

from admin_client import API, Admin, job_of, key_id, key_maker, known, ok, problem
import openapi
from stack import dial, port_free, wait_until
from unstorable import nothing_storable
from webhooks import ALLOWED


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
    edited = ok(api("PATCH", f"/sets/{word['set']}", {"valid_to": "2098-12-24T00:00:00Z"}))
    assert (edited["set"], edited["valid_to"]) == (word["set"], "2098-12-24T00:00:00.000Z")
    assert ok(api("GET", f"/codes/noon{coupon}"))["valid_to"] == edited["valid_to"]
    problem(api("PATCH", f"/sets/{word['set']}", {"valid_to": "soon"}), 400)
    assert ok(api("PATCH", f"/sets/{word['set']}", {"valid_to": None}))["valid_to"] is None
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
    user = "/users/u%2F1/quote"
    quoted = ok(api("GET", user + "?amount=300&currency=EUR"))
    assert [one["receive"] for one in quoted["receives"]].count(receive) == 1
    assert problem(api("GET", user), 400) == "amount: is missing"
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
