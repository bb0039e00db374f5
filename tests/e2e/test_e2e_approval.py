"""A second person agrees before coupon-admin closes a campaign or voids a receive."""

import json
import subprocess
import uuid

import psycopg
import pytest

from stack import wait_until
from admin_client import API, Admin, key_id, key_maker, known, ok, problem


@pytest.fixture(scope="module")
def admin(stack):
    one = Admin(stack, COUPON_ADMIN_APPROVAL="close,void")
    yield one
    one.end()


@pytest.fixture(scope="module")
def people(stack, admin):
    """Two who run campaigns, and one who looks."""
    return [known(admin, key_maker(stack)(role)) for role in ("campaign", "campaign", "monitor")]


@pytest.fixture
def owner(stack):
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as one:
        yield one


def status_of(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["status"]


def asked(caller, path, body=None, **headers):
    told = caller("POST", path, body, **headers)
    approval = ok(told, 202)
    assert told.headers["Location"] == f"{API}/approvals/{approval['approval']}"
    assert (approval["state"], approval["asked_by"]) == ("waiting", key_id(caller))
    return f"/approvals/{approval['approval']}"


def closings(stack, coupon):
    entries = [json.loads(line) for line in stack.ctl("history", coupon, "--json").splitlines()]
    return [entry["by"] for entry in entries if entry["action"] == "close"]


def test_another_person_gives_it(stack, people, make_coupon):
    ben, ann, zoe = people
    coupon = make_coupon(5)
    path = asked(ben, f"/campaigns/{coupon}/close")
    assert status_of(stack, coupon) == "published"
    told = ok(zoe("GET", path))
    assert told["request"] == {"command": "close", "arguments": [coupon]}
    assert told in ok(zoe("GET", "/approvals"))["approvals"]
    refused = problem(ben("POST", f"{path}/give"), 409)
    assert refused.endswith(f"was asked for by {key_id(ben)}: another person has to give it")
    problem(zoe("POST", f"{path}/give"), 403)
    assert status_of(stack, coupon) == "published"
    (result,) = ok(ann("POST", f"{path}/give"))["results"]
    assert (result["coupon"], result["status"]) == (coupon, "closed")
    assert status_of(stack, coupon) == "closed"
    told = ok(zoe("GET", path))
    assert (told["state"], told["decided_by"]) == ("done", key_id(ann))
    assert closings(stack, coupon) == [key_id(ben)], "in the name of the one who has asked"
    assert ok(ann("POST", f"{path}/give"))["results"] == [result], "once"
    assert closings(stack, coupon) == [key_id(ben)]


def test_a_receive_is_voided(stack, people, gateway, make_coupon):
    ben, ann, _ = people
    coupon = make_coupon(5)
    receives = [gateway.issue(coupon, user, ack="issued")["receive"] for user in ("u", "v", "v2")]
    why = {"why": "a test"}
    for path in (f"/receives/{receives[0]}/void", f"/campaigns/{coupon}/users/v/void"):
        asking = asked(ben, path, why)
        assert ok(ann("GET", asking))["request"]["why"] == "a test"
        (result,) = ok(ann("POST", f"{asking}/give"))["results"]
        assert result["voided"] is True, result
    assert gateway.call("status", receive=receives[2])["status"] == "issued"


def test_refused_withdrawn_and_expired(stack, people, owner, make_coupon):
    ben, ann, zoe = people
    coupon = make_coupon(5)
    for who in (ann, ben):
        path = asked(ben, f"/campaigns/{coupon}/close")
        problem(zoe("POST", f"{path}/refuse"), 403)
        assert ok(who("POST", f"{path}/refuse"))["state"] == "refused"
        assert "is refused" in problem(ann("POST", f"{path}/give"), 409)
    path = asked(ben, f"/campaigns/{coupon}/close")
    owner.execute("UPDATE approval SET expires_at = now() WHERE id = %s", (path.split("/")[2],))
    assert ok(ann("GET", path))["state"] == "expired"
    for step in ("give", "refuse"):
        assert "is expired" in problem(ann("POST", f"{path}/{step}"), 409)
    problem(ann("POST", "/approvals/999999/give"), 404)
    assert status_of(stack, coupon) == "published"


def test_it_expires_after_a_day(people, owner, make_coupon):
    path = asked(people[0], f"/campaigns/{make_coupon(5)}/close")
    (hours,) = owner.execute(
        "SELECT extract(epoch FROM expires_at - asked_at) / 3600 FROM approval WHERE id = %s",
        (path.split("/")[2],),
    ).fetchone()
    assert round(hours) == 24


def test_a_request_that_comes_again_asks_once(people, make_coupon):
    ben, path, key = people[0], f"/campaigns/{make_coupon(5)}/close", uuid.uuid4().hex
    assert asked(ben, path, Idempotency_Key=key) == asked(ben, path, Idempotency_Key=key)
    assert asked(ben, path) != asked(ben, path)


def test_nobody_else_takes_the_key_of_an_approval(stack, people, make_coupon):
    """With it the approved command would be one that was done before, or another one."""
    ben, ann, _ = people
    coupon, other = make_coupon(5), make_coupon(5)
    path = asked(ben, f"/campaigns/{coupon}/close")
    key = f"approval {path.split('/')[2]}"
    for step, member in (("pause", {}), ("close", {}), ("codes", {"codes": ["A"]})):
        told = ben("POST", f"/campaigns/{other}/{step}", member, Idempotency_Key=key)
        assert "keys that begin with" in problem(told, 400)
    done = stack.ctl_run("pause", other, "--key", key)
    assert (done.returncode, "keys that begin with" in done.stderr) == (2, True)
    assert status_of(stack, other) == "published"
    ok(ann("POST", f"{path}/give"))
    assert status_of(stack, coupon) == "closed"


@pytest.mark.parametrize("has_run", [False, True])
def test_the_process_dies_behind_the_decision(stack, people, owner, make_coupon, has_run):
    """Before the command, or between it and the record that it was run."""
    ben, ann, _ = people
    coupon = make_coupon(5)
    path = asked(ben, f"/campaigns/{coupon}/close")
    if has_run:
        ok(ann("POST", f"{path}/give"))
    owner.execute(
        "UPDATE approval SET state = 'given', decided_by = %s, decided_at = now() WHERE id = %s",
        (key_id(ann), path.split("/")[2]),
    )
    assert status_of(stack, coupon) == ("closed" if has_run else "published")
    (result,) = ok(ann("POST", f"{path}/give"))["results"]
    assert result["status"] == "closed"
    assert ok(ann("GET", path))["state"] == "done"
    assert closings(stack, coupon) == [key_id(ben)]


def test_a_command_that_fails_can_be_given_again(stack, people, make_coupon):
    """The campaign has another version by then: nothing is done, and the decision stays."""
    ben, ann, _ = people
    coupon = make_coupon(5)
    path = asked(ben, f"/campaigns/{coupon}/close", If_Match='"99"')
    for _ in range(2):
        assert "has version" in problem(ann("POST", f"{path}/give"), 412)
        assert ok(ann("GET", path))["state"] == "given"
    assert status_of(stack, coupon) == "published"


def test_nothing_else_waits_and_couponctl_does_not(stack, people, make_coupon):
    ben = people[0]
    coupon = make_coupon(5)
    for step in ("pause", "resume"):
        ok(ben("POST", f"/campaigns/{coupon}/{step}"))
    stack.ctl("close", coupon)
    assert status_of(stack, coupon) == "closed"
    told = stack.ctl_run("approval", "ask", "--request", '{"command":"rebuild"}')
    assert told.returncode == 2 and "allowed are close and void" in told.stderr


def test_on_a_terminal(stack, people, make_coupon):
    coupon = make_coupon(5)
    asked(people[0], f"/campaigns/{coupon}/close")
    (line,) = [one for one in stack.ctl("approval", "list").splitlines() if f'"{coupon}"' in one]
    number = line.split()[0]
    assert "asked    by " + key_id(people[0]) in stack.ctl("approval", "show", number)
    assert stack.ctl("approval", "give", number, "--by", "ann") == f"coupon {coupon} is closed"
    wait_until(lambda: status_of(stack, coupon) == "closed")


@pytest.mark.parametrize("value", ["edit", "close,", "close;void", "close, void"])
def test_settings_that_are_refused(stack, value):
    env = {**stack.env_of("admin"), "COUPON_ADMIN_APPROVAL": value}
    told = subprocess.run(
        [stack.build_dir / "coupon-admin", "-n"], env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert told.returncode == 1 and "allowed are close and void" in told.stderr
