"""What readers see of what orders do with a receive."""

import csv
import io
import json
import time

import pytest


@pytest.fixture
def receive(stack, gateway):
    coupon = stack.coupon_make(10)
    return gateway.issue(coupon, "u", ack="issued")["receive"]


def uses_of(reply):
    """Without the end of a hold: the keeper writes it between two readings."""
    return [one for one in reply["uses"] if one["action"] != "expire"]


def told(stack, gateway, receive):
    """The member `use` in each answer that has it; they agree."""
    coupon, user, *_ = receive.split(".")
    (of_user,) = gateway.call("status", coupon=coupon, user=user)["receives"]
    (listed,) = [
        one for one in gateway.call("coupons", user=user)["coupons"] if one["coupon"] == coupon
    ]
    shown = json.loads(stack.ctl("receive", "show", receive, "--json"))
    traced = json.loads(stack.ctl("trace", receive, "--json"))
    uses = [one.get("use") for one in (gateway.call("status", receive=receive), of_user, listed)]
    assert uses[1:] == uses[:1] * 2 and uses[0] == shown["use"], uses
    assert {key: text for key, text in traced["use"].items() if text} == (uses[0] or {})
    assert uses_of(traced) == uses_of(shown)
    (row,) = csv.DictReader(io.StringIO(stack.ctl("export", coupon), newline=""))
    exported = {"state": row["use"], "order": row["use_order"], "until": row["use_until"]}
    assert {key: text for key, text in exported.items() if text} == (uses[0] or {})
    return uses[0], [(one["action"], one["result"]) for one in uses_of(shown)]


def test_held_used_and_given_back(stack, gateway, use, pg_owner, receive):
    assert told(stack, gateway, receive) == (None, [])
    coupon, user, *_ = receive.split(".")

    def is_usable():
        page = gateway.call("coupons", user=user, usable=True)["coupons"]
        return coupon in [one["coupon"] for one in page]

    assert is_usable()
    use("hold", receive)
    assert not is_usable()
    held, uses = told(stack, gateway, receive)
    assert held.pop("until")[-1] == "Z" and held == {"state": "held", "order": "a"}
    pg_owner.execute("UPDATE receive_use SET until = now() WHERE coupon_id = %s", (coupon,))
    assert told(stack, gateway, receive)[0] is None, "an expired hold has no effect"
    use("use", receive)
    used, uses = told(stack, gateway, receive)
    assert used == {"state": "used", "order": "a"}
    assert uses == [("hold", "held"), ("use", "used")]
    text = stack.ctl("receive", "show", receive)
    assert "used by order a\n" in text and "  use    used          free -> used  order a" in text
    assert "  use          used by order a\n" in stack.ctl("trace", receive)
    use("rollback", receive)
    assert told(stack, gateway, receive)[0] is None


def test_usable_is_true_or_false(gateway):
    refused = gateway.call("coupons", user="u", usable="yes")
    assert refused["status"] == "bad_request" and "usable" in refused["message"]
    assert gateway.call("coupons", user="u", usable="false")["code"] == 0


def test_what_is_not_there(stack, receive):
    told = stack.ctl_run("receive", "show", receive[:-1] + "9")
    assert told.returncode == 9 and "PostgreSQL has no outcome of it" in told.stderr
    told = stack.ctl_run("receive", "show", "1001.u")
    assert told.returncode == 2 and 'RECEIVE is "1001.u": allowed is <coupon>' in told.stderr


def test_by_command(stack, gateway):
    coupon = stack.coupon_make(10, amount_off="3.00", currency="EUR")
    receive = gateway.issue(coupon, "u", ack="issued")["receive"]

    def run(action, *options):
        told = stack.ctl_run("receive", action, receive, *options, "--json")
        reply = json.loads(told.stdout)
        assert told.returncode == (reply["code"] != 0)
        return reply

    assert run("quote", "--amount", "10.00", "--currency", "EUR")["amount_off"] == 300
    assert run("hold", "--order", "a", "--ttl-s", "60", "--key", coupon)["status"] == "held"
    assert run("use", "--order", "b")["status"] == "held_by_other"
    used = run("use", "--order", "a", "--amount", "2.00", "--currency", "EUR")
    assert (used["status"], used["amount_off"]) == ("used", 200)
    assert run("release", "--order", "a")["status"] == "already_used"
    assert run("rollback", "--order", "a", "--reason", "cancelled")["code"] == 0
    shown = json.loads(stack.ctl("receive", "show", receive, "--json"))
    assert [(one["action"], one["result"]) for one in shown["uses"]] == [
        ("hold", "held"),
        ("use", "held_by_other"),
        ("use", "used"),
        ("release", "already_used"),
        ("rollback", "rolled_back"),
    ]
    assert (shown["uses"][0]["key"], shown["uses"][-1]["reason"]) == (coupon, "cancelled")
    assert stack.ctl("audit", coupon).endswith("PASS: 1 coupon audited, 0 wrong")
    told = stack.ctl_run("receive", "use", receive)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "couponctl: order: is missing\n"
    told = stack.ctl_run("receive", "use", receive, "--order", "")
    assert (told.returncode, told.stderr[:32]) == (2, 'couponctl: order is "": must be ')
    told = stack.ctl_run("receive", "use", receive, "--json")
    assert told.returncode == 2 and json.loads(told.stdout)["status"] == "bad_request"


def test_what_a_user_has_of_all_campaigns(stack, gateway):
    """Without knowing one; as /v1/coupons has it, over several pages."""
    user = f"everywhere-{time.time_ns()}"
    first, second = stack.coupon_make(600, limit=100, name="First"), stack.coupon_make(10)
    for _ in range(3):
        gateway.issue(first, user, ack="issued")
    last = gateway.issue(second, user, ack="issued")["receive"]
    gateway.call("use", receive=last, order="o1")
    voided = gateway.call("coupons", user=user)["coupons"][1]["receive"]
    stack.ctl("void", voided)

    def listed(*options):
        lines = stack.ctl("receive", "list", "--user", user, "--json", *options).splitlines()
        return [json.loads(line) for line in lines]

    shown = {one["receive"]: one for one in gateway.call("coupons", user=user)["coupons"]}
    rows = listed()
    assert [row["receive"] for row in rows] == list(shown)
    assert {row["coupon"] for row in rows} == {first, second}
    for row in rows:
        assert {key: row[key] for key in ("received_at", "valid_from", "valid_to", "use")} == {
            key: shown[row["receive"]].get(key)
            for key in ("received_at", "valid_from", "valid_to", "use")
        }
    assert rows[0]["use"] == {"state": "used", "order": "o1"} and rows[1]["name"] == "First"
    assert [row["receive"] for row in listed("--count", "2")] == list(shown)[:2]
    told = stack.ctl("receive", "list", "--user", user).splitlines()
    assert len(told) == len(rows) and ": issued, used by order o1, received " in told[0]
    assert stack.ctl("receive", "list", "--user", "nobody") == "user nobody has no coupon"
    wrong = stack.ctl_run("receive", "list", "--user", "a b")
    assert wrong.returncode == 2 and "--user" in wrong.stderr and "byte 2 is not" in wrong.stderr
    assert stack.ctl_run("receive", "list").returncode == 2
