"""docs/reference/openapi.json against a running gateway: every answer is one that the file lists,
with a body of its schema, and the gateway accepts exactly those requests that the file allows."""

import http.client
import json
import random
import types
import urllib.parse

import pytest
import requests

from openapi import (
    DOCUMENT,
    FILE,
    OF_CODE,
    OF_USER,
    WHOLE,
    answer_check,
    body_schema,
    errors,
    operation_of,
    operations,
    parameters_of,
    query_errors,
    resolve,
    values,
)
from process import gateway_process
from stack import dial, port_free, wait_until

OPERATIONS = [(path, method) for path, method, _ in operations(WHOLE)]
BODIES = [(path, method) for path, method in OPERATIONS if method == "POST"]
QUERIES = [(path, "GET") for path, _ in BODIES if (path, "GET") in OPERATIONS]
PAGES = [(path, method) for path, method in OPERATIONS if not path.startswith("/v1/")]
BIG = 2**53  # the first integer that is refused as a number
ULID = "01JD8Z6Q4T1M0V5K9X3B7C2N8R"
CURSOR = DOCUMENT["components"]["schemas"]["Cursor"]["examples"][0]  # of user 42


def each(which):
    return pytest.mark.parametrize("path, method", which, ids=[" ".join(one) for one in which])


@pytest.fixture(scope="module")
def session():
    with requests.Session() as one:
        one.headers["Content-Type"] = "application/json"
        yield one


@pytest.fixture(scope="module")
def api(stack, session):
    """api(PATH, METHOD, …): sends a request to the shared gateway and checks the answer."""

    def ask(path, method="POST", on=stack, form=None, **options):
        response = session.request(method, on.http(path), timeout=60, **options)
        return answer_check(form or path, method, response)

    return ask


@pytest.fixture
def coupon(make_coupon):
    return make_coupon(10000, limit=100)


def query_of(members):
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in members.items()
    }


def examples_of(schema, coupon):
    """The examples of a request, with a coupon that exists."""
    for example in resolve(schema)["examples"]:
        yield json.loads(json.dumps(example).replace('"1001"', f'"{coupon}"'))


# What the gateway has


def test_serves_the_file(api):
    response = api("/openapi.json", "GET")
    assert response.status_code == 200 and response.content == FILE.read_bytes()
    tag = response.headers["ETag"]
    for known in (tag, f"W/{tag}", "*"):
        again = api("/openapi.json", "GET", headers={"If-None-Match": known})
        assert (again.status_code, again.headers["ETag"]) == (304, tag)
    for other in ('"0123456789ab"', f'{tag}, "x"', tag[1:-1], f"{tag}x", "x" * 100):
        assert api("/openapi.json", "GET", headers={"If-None-Match": other}).status_code == 200
    assert api("/openapi.json", "HEAD").headers["Content-Length"] == str(FILE.stat().st_size)


@pytest.mark.parametrize("path", WHOLE["paths"])
def test_a_path_takes_the_methods_of_the_file(stack, session, path):
    """And OPTIONS, which the description of the file has."""
    listed = {method for one, method in OPERATIONS if one == path}
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        response = session.request(method, stack.http(path), timeout=60)
        assert (response.status_code == 204) == (method == "OPTIONS"), method
        assert (response.status_code == 405) == (method not in {*listed, "OPTIONS"}), method
        if method not in listed:
            assert set(response.headers["Allow"].split(", ")) == {*listed, "OPTIONS"}
        if response.status_code == 405 and method != "HEAD":
            assert response.json()["message"] == f"this path takes {response.headers['Allow']}"
    assert session.request("BREW", stack.http(path), timeout=60).status_code == 501


@pytest.mark.parametrize("path", WHOLE["paths"])
def test_paths_beside_those_of_the_file(stack, session, path):
    beside = [path + "/", path.upper(), "/v2" + path, "/v1" + path]
    if path != OF_CODE:  # whose end is any text
        beside += [path + "x", path[:-1]]
    for other in beside:
        if other not in WHOLE["paths"]:
            for method in ("GET", "HEAD", "POST"):
                assert (
                    session.request(method, stack.http(other), timeout=60).status_code == 404
                ), other


# Requests


@each(BODIES)
def test_examples_of_requests_are_accepted(api, coupon, path, method):
    for example in examples_of(body_schema(operation_of(path, method)), coupon):
        assert api(path, json=example).status_code != 400, example


@each(QUERIES)
def test_examples_of_queries_are_accepted(api, coupon, path, method):
    for example in examples_of(body_schema(operation_of(path, "POST")), coupon):
        query = query_of(example)
        assert query_errors(operation_of(path, method), query) == []
        assert api(path, method, params=query).status_code != 400, query


def words_errors(values):
    """What only the words of the file say: a cursor is of one user, and receives that differ in
    nothing but the user are the same."""
    found, receives = [], values.get("receives")
    if values.get("cursor", CURSOR) != CURSOR or (
        "cursor" in values and values.get("user") != "42"
    ):
        found.append("cursor: of another user")
    if isinstance(receives, list) and all("." in str(one) for one in receives):
        places = {(one.split(".")[0], *one.split(".")[-2:]) for one in receives}
        found += ["receives: twice"] * (len(places) < len(receives))
    return found


def body_check(api, path, body):
    """It is refused exactly where the file does not allow it."""
    wrong = errors(body_schema(operation_of(path, "POST")), body)
    wrong = wrong or (isinstance(body, dict) and words_errors(body)) or []
    text = json.dumps(body)
    response = api(path, data=text)
    assert (response.status_code == 400) == (wrong != []), (body, wrong, response.text)
    is_read = isinstance(body, dict) and "\\u0000" not in text
    is_read = is_read and not any(isinstance(value, float) for value in body.values())
    if is_read and "id" in body and "id" not in " ".join(wrong):
        assert response.json()["id"] == body["id"]
    return not wrong


def members_of(schema):
    """(member, its schema, a request with it) for each member of a request."""
    schema = resolve(schema)
    for name, member in schema["properties"].items():
        having = [one for one in schema["examples"] if name in one]
        yield name, member, (having or schema["examples"])[0]


@pytest.mark.long
@each(BODIES)
def test_bodies_up_to_each_bound_and_beyond(api, coupon, path, method):
    for name, schema, example in members_of(body_schema(operation_of(path, method))):
        base = json.loads(json.dumps(example).replace('"1001"', f'"{coupon}"'))
        if name == "user":
            base.pop("cursor", None)  # of another user
        # The campaign 1001 is another test's, whose terms may need more of a request.
        given = [coupon if value in ("1001", 1001) else value for value in values(schema)]
        taken = [body_check(api, path, {**base, name: value}) for value in given]
        assert set(taken) == {True, False}, name


@each(BODIES)
def test_bodies_without_a_member_or_with_another(api, coupon, path, method):
    for example in examples_of(body_schema(operation_of(path, method)), coupon):
        assert body_check(api, path, example)
        for name in example:
            body_check(api, path, {one: example[one] for one in example if one != name})
        for name in ("x", "op", "Coupon", "", "coupons"):
            assert not body_check(api, path, {**example, name: "1"})
    for body in ([], "x", 1, None, True):
        assert not body_check(api, path, body)
    is_needed = operation_of(path, method)["requestBody"].get("required", False)
    assert body_check(api, path, {}) != is_needed


@each(BODIES)
def test_no_body_is_an_empty_one(api, path, method):
    is_needed = operation_of(path, method)["requestBody"].get("required", False)
    assert (api(path).status_code == 400) == is_needed
    for body in (b"{", b"\xff", b"{}{}", b'{"id":1,"id":2}'):
        assert api(path, data=body).status_code == 400
    assert api(path, data=b"{" + b" " * 65535 + b"}").status_code == 413


def query_check(api, path, query):
    wrong = query_errors(operation_of(path, "GET"), query) or words_errors(query)
    response = api(path, "GET", params=query)
    assert (response.status_code == 400) == (wrong != []), (query, wrong, response.text)
    return not wrong


@each(QUERIES)
def test_queries_up_to_each_bound_and_beyond(api, coupon, path, method):
    first, *others = map(query_of, examples_of(body_schema(operation_of(path, "POST")), coupon))
    for name, parameter in parameters_of(operation_of(path, method)).items():
        base = {"coupon": coupon, "user": "42"} if path == "/v1/status" else first
        base = {} if name == "receive" else base
        if path == "/v1/quote" and name in others[0].keys() - first.keys():
            base = others[0]  # of a user
        given = [value for value in values(parameter["schema"]) if isinstance(value, str)]
        assert {query_check(api, path, {**base, name: value}) for value in given} == {True, False}
        if parameter.get("required"):
            assert not query_check(api, path, {k: v for k, v in first.items() if k != name})
    assert not query_check(api, path, {**first, "x": "1"})


def test_users_in_the_path_up_to_each_bound_and_beyond(api):
    schema = DOCUMENT["components"]["parameters"]["User"]["schema"]
    for user in values(schema):
        if isinstance(user, str) and user not in ("", ".", ".."):  # those are other paths
            path = OF_USER.replace("{user}", urllib.parse.quote(user, safe=""))
            response = api(path, "GET", form=OF_USER)
            assert (response.status_code == 400) == (errors(schema, user) != []), user


@each(OPERATIONS)
def test_headers_up_to_each_bound_and_beyond(api, coupon, path, method):
    """The values are texts that HTTP lets pass, and does not trim."""
    item, operation = WHOLE["paths"][path], operation_of(path, method)
    given = {"params": {"user": "42"}}
    if method == "POST":
        given = {"json": next(examples_of(body_schema(operation), coupon))}
    for parameter in map(resolve, operation.get("parameters", []) + item["parameters"]):
        if parameter["in"] != "header":
            continue
        name, schema = parameter["name"], parameter["schema"]
        for value in values(schema):
            if isinstance(value, str) and value.isprintable() and value == value.strip():
                headers = {name: value.encode("latin-1")}
                response = api(path, method, headers=headers, **given)
                if name == "Idempotency-Key":
                    assert (response.status_code == 400) == (errors(schema, value) != []), value


def test_status_by_query_takes_one_of_two_forms(api, coupon):
    """Which the list of its parameters cannot say."""
    receive = f"{coupon}.42.{ULID}.0"
    for query in (
        {},
        {"coupon": coupon},
        {"user": "42"},
        {"receive": receive, "user": "42"},
        {"receive": receive, "coupon": coupon, "user": "42"},
    ):
        assert api("/v1/status", "GET", params=query).status_code == 400
        assert api("/v1/status", json=query).status_code == 400
        assert errors(body_schema(operation_of("/v1/status", "POST")), query) != []


# Answers of issue


def statuses(api, coupon, *users, **members):
    return [
        api("/v1/issue", json={"coupon": coupon, "user": user, **members}).json()["status"]
        for user in users
    ]


def test_issue_done_and_refused(stack, api, make_coupon):
    coupon = make_coupon(3)
    for ack in ("accepted", "queued", "issued"):
        assert statuses(api, coupon, ack, ack=ack) == [ack]
    assert statuses(api, coupon, "d") == ["out_of_stock"]
    coupon = make_coupon(3)
    assert statuses(api, coupon, "a", "a") == ["accepted", "limit_reached"]
    stack.ctl("pause", coupon)
    assert statuses(api, coupon, "b") == ["paused"]
    stack.ctl("close", coupon)
    wait_until(lambda: statuses(api, coupon, "b") == ["ended"])
    coming = stack.coupon_make(3, begin="2999-01-01T00:00:00Z", valid_days=1)
    wait_until(lambda: statuses(api, coming, "a") == ["not_started"])
    assert statuses(api, "4611686018427387904", "a") == ["not_found"]


def slot_plant(pg, coupon, user):
    """A user coupon that no message of this coupon made."""
    pg.execute(
        "INSERT INTO user_coupon (user_id, coupon_id, slot, idx, batch, received_at, valid_from)"
        " VALUES (%s, %s, 1, 0, gen_random_uuid(), now(), now())",
        (user, coupon),
    )
    pg.execute("UPDATE coupon SET issued_num = issued_num + 1 WHERE id = %s", (coupon,))


def test_claim_done_and_refused(stack, api, make_coupon, tmp_path):
    coupon, out = make_coupon(2), tmp_path / "codes.csv"
    stack.ctl("codes", "generate", coupon, "--count", 4, "--out", out)
    codes = [line.split(",")[0] for line in out.read_text().splitlines()[1:]]

    def claim(code, user, **members):
        return api("/v1/claim", json={"code": code, "user": user, **members})

    wait_until(lambda: claim(codes[0], "a", ack="issued").status_code == 200)
    assert claim(codes[0], "b").json()["status"] == "code_used"
    assert claim(codes[1], "a").json()["status"] == "limit_reached"
    assert claim(codes[1], "b", ack="queued").status_code == 200
    assert claim(codes[2], "c").json()["status"] == "out_of_stock"
    stack.ctl("pause", coupon)
    wait_until(lambda: claim(codes[2], "c").json()["status"] == "paused")
    stack.ctl("close", coupon)
    wait_until(lambda: claim(codes[2], "c").json()["status"] == "ended")
    for _ in range(6):
        assert claim("wrong", "d").status_code == 422
    assert claim("wrong", "d").json()["retry_after_ms"] > 0


def test_rejected(api, make_coupon, pg):
    coupon = make_coupon(3)
    slot_plant(pg, coupon, "42")
    reply = api(
        "/v1/issue", json={"coupon": coupon, "user": "42", "ack": "issued", "id": "a"}
    ).json()
    assert (reply["id"], reply["status"], reply["reason"]) == ("a", "rejected", "slot_taken")
    for form in ({"receive": reply["receive"]}, {"coupon": coupon, "user": "42"}):
        by_body = api("/v1/status", json={**form, "id": 7}).json()
        by_query = api("/v1/status", "GET", params={**form, "id": "7"}).json()
        assert {**by_query, "id": 7} == by_body
        assert by_body["status"] == ("rejected" if "receive" in form else "ok")


# The headers that ask for something


def test_problems(stack, api, make_coupon):
    """Each is the reply that it would be otherwise; api() checks it against the schema of that."""
    asking = {"Accept": "application/problem+json"}
    coupon, seen = make_coupon(1), set()

    def problem(path, **options):
        response = api(path, headers=asking, **options)
        seen.add((response.status_code, response.json()["type"]))
        return response.json()

    one = {"coupon": coupon, "user": "a", "id": BIG - 1}
    issued = api("/v1/issue", headers=asking, json={**one, "ack": "issued"})
    assert issued.headers["Content-Type"] == "application/json" and issued.json()["id"] == BIG - 1
    assert problem("/v1/issue", json=one)["id"] == BIG - 1
    problem("/v1/issue", json={"coupon": "4611686018427387904", "user": "a"})
    problem("/v1/issue", json={"user": "a"})
    problem("/v1/claim", json={"code": "x", "user": "problems"})
    problem("/v1/status", json={"receive": f"{coupon}.42.{ULID}.0"})
    problem("/v1/issue", data=b"{" + b" " * 65535 + b"}")
    response = requests.post(stack.http("/v1/issue"), data="{}", headers=asking, timeout=60)
    answer_check("/v1/issue", "POST", response)
    seen.add((response.status_code, response.json()["type"]))
    names = ("out_of_stock", "not_found", "bad_request", "code_invalid", "too_large")
    assert seen == {
        *zip((409, 404, 400, 422, 413), (f"/openapi.json#{name}" for name in names)),
        (415, "about:blank"),
    }


def test_each_reply_repeats_the_id_of_its_request(api):
    for path, method in OPERATIONS:
        response = api(path, method, headers={"X-Request-Id": "r-1", "traceparent": "x"})
        assert response.headers["X-Request-Id"] == "r-1"
        assert api(path, method).headers["X-Request-Id"] != "r-1"


@pytest.mark.parametrize("path", ["/v1/issue", "/v1/claim"])
def test_a_key_in_the_header_and_in_the_body(api, coupon, path):
    (first, *_) = examples_of(body_schema(operation_of(path, "POST")), coupon)
    for key, is_good in (("k", True), ("K", False)):
        response = api(path, json={**first, "key": "k"}, headers={"Idempotency-Key": f'"{key}"'})
        assert (response.status_code != 400) == is_good


@each(QUERIES)
def test_head_is_get_without_the_body(api, coupon, path, method):
    for example in examples_of(body_schema(operation_of(path, "POST")), coupon):
        query = query_of(example)
        if path == "/v1/code":  # after some wrong codes of a user the answer is another
            query["user"] = f"head-{random.randrange(10**12)}"
        head = api(path, "HEAD", params=query)
        assert head.status_code == api(path, method, params=query).status_code
        assert int(head.headers["Content-Length"]) > 0


# Answers of the operations that read


def test_status_of_each_state(stack, api, make_coupon):
    for terms in ({"void_returns": "yes"}, {"void_returns": "no"}):
        coupon = make_coupon(
            5, valid_from="2026-01-01T00:00:00Z", valid_to="2999-01-01T00:00:00Z", **terms
        )
        user = {"coupon": coupon, "user": "u"}
        assert api("/v1/status", "GET", params=user).json()["receives"] == []
        receive = api("/v1/issue", json={**user, "ack": "issued"}).json()["receive"]
        assert api("/v1/status", "GET", params={"receive": receive}).json()["status"] == "issued"
        assert api("/v1/coupons", "GET", params={"user": "u"}).json()["coupons"]
        stack.ctl("void", receive)
        assert api("/v1/status", "GET", params={"receive": receive}).status_code == 409
        (one,) = api("/v1/status", "GET", params=user).json()["receives"]
        assert (one["state"], one["reason"]) == ("rejected", "voided")
        api("/v1/coupons", "GET", params={"user": "u"})
    absent = api("/v1/status", "GET", params={"receive": f"{coupon}.42.{ULID}.0"})
    assert absent.status_code == 404


def test_coupon_of_each_state(stack, api, make_coupon):
    def state(coupon):
        return api("/v1/coupon", json={"coupon": coupon}).json().get("state")

    bounds = {"begin": "2026-01-01T00:00:00Z", "end": "2999-01-01T00:00:00Z", "valid_days": 1}
    coupon = make_coupon(1, limit=100, **bounds)
    stack.ctl("stock", coupon, "--total", 0)
    assert state(coupon) == "open"
    stack.ctl("pause", coupon)
    assert state(coupon) == "paused"
    stack.ctl("close", coupon)
    assert state(coupon) == "ended"
    coming = stack.coupon_make(2**53 - 1, begin="2999-01-01T00:00:00Z", valid_days=1)
    wait_until(lambda: state(coming) == "not_started")
    assert api("/v1/coupon", "GET", params={"coupon": "4611686018427387904"}).status_code == 404


def test_coupon_that_redis_does_not_have(api, rough, rough_coupon, rough_redis):
    """The keeper is away, so that it stays so."""
    coupon = rough_coupon(5)
    rough.stop("worker-1")
    for command, status in (("pause", "paused"), ("close", "ended")):
        rough.ctl(command, coupon.coupon)
        if coupon.keys():
            rough_redis.delete(*coupon.keys())
        response = api("/v1/coupon", on=rough, json={"coupon": coupon.coupon})
        assert (response.status_code, response.json()["status"]) == (409, status)


def test_pages_of_coupons(stack, api, make_coupon):
    for _ in range(3):
        statuses(api, make_coupon(1), "pages", ack="issued")
    query, n = {"user": "pages", "limit": "2"}, 0
    while True:
        page = api("/v1/coupons", "GET", params=query).json()
        n += len(page["coupons"])
        if "cursor" not in page:
            break
        query["cursor"] = page["cursor"]
    assert n == 3
    query = {"limit": "2"}
    for user in ("pages", "a/b"):
        by_query = api("/v1/coupons", "GET", params={"user": user, **query})
        path = f"/v1/users/{user.replace('/', '%2F')}/coupons"
        by_path = requests.get(stack.http(path), query, timeout=60)
        assert answer_check(OF_USER, "GET", by_path).json() == by_query.json()


# Services that are away


@pytest.fixture
def alone(stack, gateway_make):
    """A gateway without services."""
    nowhere = f"127.0.0.1:{port_free()}"
    return gateway_make(
        stack,
        ready=False,
        REDIS_URL=f"redis://{nowhere}/0",
        AMQP_URL=f"amqp://a:b@{nowhere}/%2f",
        DATABASE_URL=f"postgresql://a:b@{nowhere}/c",
    )


def test_unavailable(api, alone):
    for path, method in OPERATIONS:
        if method != "POST" and path in ("/v1/ping", "/v1/stats", *dict(PAGES)):
            status = 503 if path == "/readyz" else 200
            assert api(path, method, on=alone).status_code == status
    receive = {"receive": f"1.42.{ULID}.0"}
    for path, members in (
        ("/v1/issue", {"coupon": "1", "user": "42"}),
        ("/v1/claim", {"code": "x", "user": "42"}),
        ("/v1/status", {"coupon": "1", "user": "42"}),
        ("/v1/status", receive),
        ("/v1/coupon", {"coupon": "1"}),
        ("/v1/coupons", {"user": "42"}),
    ):
        assert api(path, on=alone, json=members).status_code == 503


def test_unknown(stack, api, coupon, gateway_make):
    away = gateway_make(
        stack,
        ready=False,
        AMQP_URL=f"amqp://a:b@127.0.0.1:{port_free()}/%2f",
        COUPON_ISSUED_TIMEOUT_MS=100,
    )
    member = {"coupon": coupon, "user": "unknown"}
    wait_until(lambda: api("/v1/coupon", on=away, json={"coupon": coupon}).status_code == 200)
    replies = []

    def issued():  # unavailable, with nothing done, until the keeper has opened the coupon
        replies.append(api("/v1/issue", on=away, json={**member, "ack": "queued"}))
        return replies[-1].status_code != 503

    wait_until(issued)
    assert replies[-1].status_code == 504 and replies[-1].json()["receive"]
    assert api("/v1/status", on=away, json=member).json()["receives"]
    away.kill9()  # it would wait for RabbitMQ


# Requests that cannot be read


@pytest.fixture(scope="module")
def narrow(stack):
    """A gateway with small limits."""
    one = gateway_process(
        stack, "gateway-narrow", COUPON_IDLE_TIMEOUT_MS=300, COUPON_BUFFER_BYTES=131072
    )
    yield one
    one.end()


def unreadable(narrow, path, method, headers=(), body=b""):
    connection = http.client.HTTPConnection(narrow.settings["COUPON_HTTP_LISTEN"])
    connection.sock = dial(narrow.settings["COUPON_HTTP_LISTEN"])
    has_host = any(name == "Host" for name, _ in headers)
    connection.putrequest(method, path, skip_host=has_host, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders(body or None)
    reply = connection.getresponse()
    response = types.SimpleNamespace(
        status_code=reply.status, headers=reply.headers, content=reply.read()
    )
    response.text = response.content.decode()
    response.json = lambda: json.loads(response.text)
    connection.close()
    return answer_check(path, method, response).status_code


@each(OPERATIONS)
def test_requests_that_cannot_be_read(narrow, path, method):
    def status(*headers, body=b""):
        return unreadable(narrow, path, method, headers, body)

    assert status(("X ", "y")) == 400
    assert status(("Origin", "https://evil.example")) == 403
    if path.startswith("/v1/"):
        assert status(("Accept", "text/html")) == 406
    is_monitoring = path in ("/healthz", "/readyz", "/metrics")
    assert (status(("Host", "evil.example")) == 421) != is_monitoring
    if method == "POST":
        assert status(("Content-Length", "2"), body=b"{}") == 415
    assert status(("Content-Length", "8"), body=b"{") == 408
    assert status(("Content-Length", "200000")) == 413
    assert status(("Content-Length", "2"), ("Expect", "x")) == 417
    assert status(("Content-Length", "131072"), body=b" " * 131071) == 429
    assert status(*(("X", "y") for _ in range(101))) == 431
