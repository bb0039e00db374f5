"""hold, use, release, rollback and quote from outside: what each answers, what a retry with the
same key gets, and what happens while RabbitMQ, Redis or the workers are away."""

import concurrent.futures
import json
import signal

import psycopg
import pytest
import requests

from replies import refused
from stack import wait_until

ORDER = "order-77"


@pytest.fixture
def shop(gateway, make_coupon):
    """Issues coupons, and asks for what orders do with them."""

    class Shop:
        def __init__(self):
            self.coupon = make_coupon(1000, limit=3, amount_off="5.00", currency="EUR")

        def receive(self, user=42):
            return gateway.issue(self.coupon, user, ack="issued")["receive"]

        def ask(self, op, order=ORDER, **members):
            return gateway.call(op, order=order, **members)

    return Shop()


def done(reply, status):
    return (reply["code"], reply["status"]) == (0, status)


def refusal(reply):
    assert reply["code"] != 0 and reply["message"], reply
    return reply["status"]


def reused(reply):
    assert (reply["code"], reply["status"]) == (44, "key_reused"), reply
    assert reply["message"].startswith('key is "'), reply


def test_the_life_of_a_receive(shop):
    one = shop.receive()
    held = shop.ask("hold", receive=one)
    assert done(held, "held") and held["receive"] == one and held["until"] > "2026"
    assert refusal(shop.ask("hold", "order-78", receive=one)) == "held_by_other"
    assert refusal(shop.ask("use", "order-78", receive=one)) == "held_by_other"
    wrong = shop.ask("rollback", receive=one)
    assert (wrong["code"], wrong["status"]) == (40, "bad_request")
    assert wrong["message"].endswith("use release to end a hold")
    used = shop.ask("use", receive=one)
    told = {"receive": one, "amount_off": 500, "currency": "EUR"}
    assert used == {"code": 0, "status": "used", **told}
    assert done(shop.ask("use", receive=one), "used")  # its own
    refused_use = shop.ask("use", "order-78", receive=one)
    assert (refused_use["code"], refused_use["receive"]) == (11, one)
    assert ORDER not in json.dumps(refused_use)
    assert refusal(shop.ask("release", receive=one)) == "already_used"
    assert done(shop.ask("rollback", receive=one, reason="sent back"), "rolled_back")
    assert done(shop.ask("rollback", receive=one), "rolled_back")
    assert done(shop.ask("hold", "order-78", receive=one), "held")
    assert done(shop.ask("release", "order-78", receive=one), "released")
    assert done(shop.ask("use", "order-79", receive=one), "used")


def test_a_hold_ends(shop):
    one = shop.receive()
    assert done(shop.ask("hold", receive=one, ttl_s=1), "held")
    wait_until(lambda: shop.ask("use", "order-78", receive=one)["code"] == 0, timeout=3)


def test_all_of_several_or_none(shop):
    first, second = shop.receive(), shop.receive()
    assert done(shop.ask("use", "order-78", receive=second), "used")
    reply = shop.ask("use", receives=[first, second])
    assert (reply["code"], reply["receive"]) == (11, second)
    assert done(shop.ask("rollback", "order-78", receive=second), "rolled_back")
    reply = shop.ask("use", receives=[first, second], amount=700, currency="EUR")
    assert done(reply, "used")
    assert reply["receives"] == [
        {"receive": one, "amount_off": 500, "currency": "EUR"} for one in (first, second)
    ]


def test_any_receive_of_a_user(shop):
    receives = {shop.receive() for _ in range(3)}
    found = [shop.ask("use", f"order-{n}", coupon=shop.coupon, user="42") for n in range(4)]
    assert [reply["code"] for reply in found] == [0, 0, 0, 11]
    assert {reply["receive"] for reply in found[:3]} == receives
    nobody = shop.ask("use", coupon=shop.coupon, user="43")
    assert refusal(nobody) == "not_found" and "receive" not in nobody


def test_of_another_user(shop):
    """A receive that is forged or guessed, where the request names its user."""
    one = shop.receive()
    forged = one.replace(".42.", ".43.")
    for members in ({"receive": one, "user": "43"}, {"receive": forged}, {"receives": [forged]}):
        assert refusal(shop.ask("use", **members)) == "not_found", members
    assert done(shop.ask("use", receive=one, user="42"), "used")


def test_a_copy_after_the_use_was_taken_back_does_nothing(shop):
    """It is answered as the first time, and tells that it is no longer true."""
    one, asked = shop.receive(), {"key": f"{shop.coupon}/1/use"}
    first = shop.ask("use", receive=one, **asked)
    assert done(first, "used") and "replayed" not in first and "now" not in first
    own = {"state": "used", "order": ORDER}
    assert shop.ask("use", receive=one, **asked) == {**first, "replayed": True, "now": own}
    assert done(shop.ask("rollback", receive=one), "rolled_back")
    told = {**first, "replayed": True, "now": {"state": "free"}}
    assert shop.ask("use", receive=one, **asked) == told
    assert done(shop.ask("use", "order-78", receive=one), "used")
    again = shop.ask("use", receive=one, **asked)
    assert again == {**told, "now": {"state": "used"}} and "order-78" not in json.dumps(again)
    refusal_ = shop.ask("hold", receive=one, key="h" + shop.coupon)
    assert (refusal_["code"], "replayed" in refusal_) == (11, False)
    shop.ask("rollback", "order-78", receive=one)
    again = shop.ask("hold", receive=one, key="h" + shop.coupon)
    assert again == {**refusal_, "replayed": True, "now": {"state": "free"}}


def test_a_copy_of_a_hold_that_has_ended(shop):
    one, asked = shop.receive(), {"key": f"{shop.coupon}/1/hold", "ttl_s": 1}
    first = shop.ask("hold", receive=one, **asked)
    wait_until(lambda: shop.ask("hold", receive=one, **asked)["now"] == {"state": "free"}, 5)
    again = shop.ask("hold", receive=one, **asked)
    assert again == {**first, "replayed": True, "now": {"state": "free"}}
    held = shop.ask("hold", receive=one)
    again = shop.ask("hold", receive=one, **asked)
    assert again["until"] == first["until"] and again["now"] == {
        "state": "held",
        "order": ORDER,
        "until": held["until"],
    }


def test_a_copy_of_several_receives(shop):
    receives, asked = [shop.receive(), shop.receive()], {"key": f"{shop.coupon}/1/use"}
    first = shop.ask("use", receives=receives, **asked)
    shop.ask("rollback", receive=receives[0])
    again = shop.ask("use", receives=receives, **asked)
    assert again.pop("replayed") is True
    assert [one.pop("now")["state"] for one in again["receives"]] == ["free", "used"]
    assert again == first


def test_a_key_of_another_request(stack, shop, make_coupon):
    """Another order, other receives, another amount or currency."""
    one, other = shop.receive(), shop.receive()
    of_another = stack.coupon_make(10)
    key = f"{shop.coupon}/1/use"
    asked = {"receive": one, "key": key, "amount": 1000, "currency": "EUR"}
    first = shop.ask("use", **asked)
    assert done(first, "used")
    reused(shop.ask("use", "order-78", **asked))
    for members in (
        {"receive": other},
        {"amount": 999},
        {"currency": "USD"},
        {"amount": None, "currency": None},
        {"receive": None, "receives": [one, other]},
        {"receive": None, "receives": [other]},
        {"receive": None, "coupon": of_another, "user": "42"},
    ):
        changed = {name: value for name, value in {**asked, **members}.items() if value}
        reused(shop.ask("use", **changed))
    response = requests.post(
        stack.http("/v1/use"),
        json={"receive": other, "order": "order-78"},
        headers={"Idempotency-Key": key},
        timeout=30,
    )
    assert (response.status_code, response.json()["code"]) == (422, 44)
    told = stack.ctl_run("receive", "use", other, "--order", "order-78", "--key", key)
    assert told.returncode == 4 and "was used for another request" in told.stderr, told
    assert shop.ask("use", **asked)["replayed"] is True
    assert done(shop.ask("hold", "order-78", receive=other, key=key), "held"), "for another op"


@pytest.mark.parametrize("over", ["lines", "http"])
def test_a_key_of_255_bytes(stack, shop, over):
    """As the longest that issue and claim have; one byte more is refused."""
    key = f"{shop.coupon}/" + '"\\' * 200
    key = key[:255]

    def ask(op, key, **members):
        if over == "lines":
            with stack.client() as client:
                return client.call(op, key=key, **members)
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        header = {"Idempotency-Key": f'"{escaped}"'}
        return requests.post(
            stack.http("/v1/" + op), json=members, headers=header, timeout=30
        ).json()

    issue = {"coupon": shop.coupon, "user": "43", "ack": "issued"}
    receive = ask("issue", key, **issue)["receive"]
    assert ask("issue", key, **issue)["receive"] == receive
    use = {"receive": receive, "order": ORDER}
    assert done(ask("use", key, **use), "used") and ask("use", key, **use)["replayed"]
    reused(ask("use", key, **{**use, "order": "order-78"}))
    for op, members in (("issue", issue), ("use", use)):
        reply = ask(op, key + "x", **members)
        assert reply["code"] == 40 and "1 to 255" in reply["message"], reply
    shown = json.loads(stack.ctl("receive", "show", receive, "--json"))
    assert [one["key"] for one in shown["uses"]] == [key]


def test_a_key_of_some_coupons(stack, shop, make_coupon, pg):
    """It is for all receives that a request names; and the history has who asked."""
    one, other = shop.receive(), make_coupon(10)
    with stack.client() as client:
        other = client.issue(other, 42, ack="issued")["receive"]
        key = stack.ctl(
            "key", "create", "--name", "shop", "--role", "use", "--coupons", shop.coupon
        )
        wait_until(lambda: client.call("auth", token=key)["code"] == 0)
        for receives in ([one, other], [other]):
            assert refusal(client.call("use", receives=receives, order=ORDER)) == "forbidden"
        assert done(client.call("use", receives=[one], order=ORDER), "used")
    by = pg.execute("SELECT by_key FROM use_operation WHERE coupon_id = %s", (int(shop.coupon),))
    assert by.fetchall() == [(key.split("_")[1],)]


def test_racers_for_one_receive(stack, shop):
    one = shop.receive()

    def race(number):
        with stack.client() as client:
            requests_ = [
                {"op": "use", "receive": one, "order": f"{number}-{n}"} for n in range(125)
            ]
            return [reply["code"] for reply in client.pipeline(requests_)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = [code for codes in pool.map(race, range(8)) for code in codes]
    assert sorted(codes) == [0] + [11] * 999


def test_amounts(shop, gateway):
    one = shop.receive()
    reply = shop.ask("use", receive=one, amount=300, currency="EUR")
    assert (reply["amount_off"], reply["currency"]) == (300, "EUR")
    shop.ask("rollback", receive=one)
    refused(
        shop.ask("use", receive=one, amount=300, currency="USD"),
        f'currency is "USD": must be that of coupon {shop.coupon}',
    )


def test_a_part_of_the_discount_is_given_back(stack, gateway, make_coupon):
    coupon = make_coupon(10, amount_off="5.00", currency="EUR")
    one, other = (gateway.issue(coupon, user, ack="issued")["receive"] for user in (42, 43))
    part = {"receive": one, "order": ORDER, "amount": 200, "currency": "EUR"}
    refused(gateway.call("rollback", **part), "the order has not used the receive")
    used = gateway.call("use", **{**part, "amount": 12900})
    assert done(used, "used") and used["amount_off"] == 500
    for left in (300, 100):
        reply = gateway.call("rollback", **part)
        assert done(reply, "rolled_back") and (reply["amount_off"], reply["currency"]) == (
            left,
            "EUR",
        )
    over = requests.post(stack.http("/v1/rollback"), json=part, timeout=30)
    assert (over.status_code, over.json()["code"]) == (409, 18)
    assert over.json()["receive"] == one and over.json()["status"] == "amount_exceeded"
    refused(gateway.call("rollback", **{**part, "currency": "USD"}), 'currency is "USD"')
    many = {"receives": [one, other], "order": ORDER, "amount": 1, "currency": "EUR"}
    refused(gateway.call("rollback", **many), "amount: is a part of the discount of one receive")
    refused(gateway.call("rollback", receive=one, order=ORDER, amount=1), "currency: is missing")
    refused(gateway.call("release", **part), "amount: no such member of release")
    assert gateway.call("status", receive=one)["use"] == {"state": "used", "order": ORDER}

    words = ("--order", ORDER, "--amount", "0.40", "--currency", "EUR", "--reason", "one shoe")
    assert "amount_off 0.60" in stack.ctl("receive", "rollback", one, *words)
    told = stack.ctl_run("receive", "rollback", one, "--order", ORDER, "--amount", "1")
    assert told.returncode == 2 and "needs --currency" in told.stderr, told
    shown = stack.ctl("receive", "show", one).splitlines()
    (line,) = [line for line in shown if "one shoe" in line]
    assert "rolled_back   used -> used" in line
    assert ", 0.40 EUR back, 0.60 EUR off" in line
    again = gateway.call("use", **{**part, "amount": 400})
    assert done(again, "used") and again["amount_off"] == 400
    assert stack.ctl_run("audit", coupon).returncode == 0
    assert done(gateway.call("rollback", receive=one, order=ORDER), "rolled_back")
    assert "use" not in gateway.call("status", receive=one)


def test_below_the_threshold_nothing_is_used(stack, gateway, make_coupon):
    """9.00 EUR where the coupon is for purchases from 20.00 EUR on."""
    coupon = make_coupon(10, amount_off="5.00", threshold="20.00", currency="EUR")
    one = gateway.issue(coupon, 42, ack="issued")["receive"]
    small = {"receive": one, "order": ORDER, "amount": 900, "currency": "EUR"}
    quoted = gateway.call("quote", coupon=coupon, amount=900, currency="EUR")
    assert (quoted["amount_off"], quoted["usable"]) == (0, False)
    for op in ("hold", "use"):
        refused_use = gateway.call(op, **small)
        assert (refused_use["code"], refused_use["status"]) == (17, "below_threshold")
        assert refused_use["receive"] == one and "too small" in refused_use["message"]
        assert "use" not in gateway.call("status", receive=one)
    held = gateway.call("hold", receive=one, order=ORDER)
    assert done(held, "held")
    response = requests.post(stack.http("/v1/use"), json=small, timeout=30)
    assert (response.status_code, response.json()["code"]) == (409, 17)
    use = gateway.call("status", receive=one)["use"]
    assert use == {"state": "held", "order": ORDER, "until": held["until"]}
    refused(gateway.call("use", receive=one, order=ORDER), "amount: is missing: the discount")
    told = stack.ctl_run("receive", "use", one, "--order", ORDER)
    assert told.returncode == 2 and "amount: is missing" in told.stderr, told
    words = ("--order", ORDER, "--amount", "9.00", "--currency", "EUR")
    told = stack.ctl_run("receive", "use", one, *words)
    assert told.returncode == 1 and "below_threshold" in told.stdout, told
    used = gateway.call("use", **{**small, "amount": 2000})
    assert done(used, "used") and used["amount_off"] == 500


@pytest.mark.parametrize(
    "terms, amount, off, usable",
    [
        ({}, 12900, 0, True),
        ({}, 0, 0, True),
        ({"amount_off": "5.00", "currency": "EUR"}, 12900, 500, True),
        ({"amount_off": "5.00", "currency": "EUR"}, 300, 300, True),
        ({"amount_off": "5.00", "currency": "EUR"}, 0, 0, False),
        ({"amount_off": "5.00", "threshold": "10.00", "currency": "EUR"}, 999, 0, False),
        ({"percent_off": "12.5"}, 999, 124, True),
        ({"percent_off": "12.5"}, 7, 0, False),
        ({"percent_off": 50, "cap": "4.00", "currency": "EUR"}, 12900, 400, True),
        ({"percent_off": 100}, 2**53 - 1, 2**53 - 1, True),
    ],
)
def test_quote(gateway, make_coupon, terms, amount, off, usable):
    """And a use of the amount is refused where it says that it is not usable."""
    coupon = make_coupon(1, **terms)
    reply = gateway.call("quote", coupon=coupon, amount=amount, currency="EUR")
    assert reply == {
        "code": 0,
        "status": "ok",
        "coupon": coupon,
        "amount": amount,
        "amount_off": off,
        "currency": "EUR",
        "usable": usable,
    }
    one = gateway.issue(coupon, 42, ack="issued")["receive"]
    used = gateway.call("use", receive=one, order=ORDER, amount=amount, currency="EUR")
    assert used["code"] == (0 if usable else 17), used


def test_quotes_that_are_refused(stack, gateway, make_coupon):
    coupon = make_coupon(1, amount_off="5.00", currency="EUR")
    refused(
        gateway.call("quote", coupon=coupon, amount=1, currency="USD"),
        f'currency is "USD": must be that of coupon {coupon}, EUR',
    )
    draft = stack.coupon_make(1, publish=False)
    for absent in (draft, 987654321):
        reply = gateway.call("quote", coupon=str(absent), amount=1, currency="EUR")
        assert refusal(reply) == "not_found"


def test_over_http(stack, shop):
    one = shop.receive()
    with requests.Session() as session:
        for key in (f'"{shop.coupon}"', shop.coupon):
            response = session.post(
                stack.http("/v1/use"),
                json={"receive": one, "order": ORDER},
                headers={"Idempotency-Key": key},
            )
            assert response.status_code == 200 and response.json()["status"] == "used"
        response = session.post(stack.http("/v1/use"), json={"receive": one, "order": "order-78"})
        assert response.status_code == 409 and response.json()["code"] == 11
        assert session.get(stack.http("/v1/use"), params={"receive": one}).status_code == 405
        query = {"coupon": shop.coupon, "amount": 700, "currency": "EUR"}
        assert session.get(stack.http("/v1/quote"), params=query).json()["amount_off"] == 500


def test_without_rabbitmq_or_redis_nothing_is_done(rough):
    coupon = rough.coupon_make(10)
    with rough.client() as client:
        one = client.issue(coupon, 42, ack="issued")["receive"]
        for service in ("rabbitmq", "redis"):
            rough.kill9(service)
            wait_until(lambda: client.call("use", receive=one, order="o")["code"] == 21)
            told = rough.ctl_run("receive", "use", one, "--order", "o")
            assert told.returncode == 10 and "nothing was done" in told.stderr, told
            rough.start(service)
            wait_until(lambda: client.call("hold", receive=one, order="o")["code"] == 0, timeout=60)
            client.call("release", receive=one, order="o")


def test_a_gateway_that_ends_answers_what_waits(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=30_000)
    with gateway.client() as client:
        one = client.issue(coupon, 42, ack="issued")["receive"]
        rough.sigstop("worker-1")
        client.send_line({"op": "use", "receive": one, "order": "o"})
        wait_until(lambda: gateway.metrics()["couponmq_requests_inflight"] == 1)
        gateway.signal(signal.SIGTERM)
        wait_until(lambda: "event=stopping" in gateway.log())
        rough.sigcont("worker-1")
        assert client.read_reply()["status"] == "used"


def test_without_workers_it_is_unknown_and_the_retry_tells(rough, gateway_make):
    coupon = rough.coupon_make(10)
    gateway = gateway_make(rough, COUPON_ISSUED_TIMEOUT_MS=200)
    with gateway.client() as client:
        one = client.issue(coupon, 42, ack="issued")["receive"]
        rough.stop("worker-1")
        use = {"receive": one, "order": "o", "key": "k"}
        for _ in range(2):
            assert client.call("use", **use)["status"] == "unknown"
        words = ("--order", "o", "--key", "k", "--json")
        words += ("--listen", gateway.settings["COUPON_LISTEN"])
        told = rough.ctl_run("receive", "use", one, *words)
        assert (told.returncode, json.loads(told.stdout)["status"]) == (12, "unknown"), told
        rough.start("worker-1")
        wait_until(lambda: client.call("use", **use)["status"] == "used")
    with psycopg.connect(rough.env["DATABASE_ADMIN_URL"]) as db:
        (count,) = db.execute(
            "SELECT count(*) FROM use_operation WHERE coupon_id = %s", (int(coupon),)
        ).fetchone()
    assert count == 1
