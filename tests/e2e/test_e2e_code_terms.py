"""Codes for one user alone, codes with an end of their own, and `code`, which tells what a code
would give."""

import datetime
import functools
import json
import random
import urllib.error
import urllib.parse
import urllib.request

import pytest

from codes import Claim, column, user_new
from stack import wait_until

INVALID = {"code": 7, "status": "code_invalid", "message": "no such exchange code"}
TIMES = "allowed is a day as 2026-12-24, a local time as"


@pytest.fixture
def claim(stack, tmp_path):
    return Claim(stack, tmp_path)


def mark():
    return f"M{random.randrange(10**15)}"


def later(seconds):
    """A time with its offset."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds")


def ms_of(text):
    return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def file_of(folder, *lines):
    path = folder / f"{mark()}.csv"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def imported(claim, coupon, path, *options):
    made = json.loads(claim("import", coupon, path, "--json", *options))
    claim.known(made["set"])
    return made


def of_each_kind(claim, coupon, folder, *options):
    """A code that was generated, a word, and one that was imported, with these options."""
    word, text = mark(), mark()
    claim.word(coupon, word, *options)
    imported(claim, coupon, file_of(folder, "code", text), *options)
    return [*claim.made(coupon, 1, *options), word, text]


def call(client, op, code, user, **members):
    return client.call(op, code=code, user=user, **members)


def test_a_code_for_one_user_is_none_for_others(stack, claim, tmp_path):
    coupon, user = stack.coupon_make(10, limit=3), user_new()
    with stack.client() as client:
        for code in of_each_kind(claim, coupon, tmp_path, "--user", user):
            for op in ("claim", "code"):
                assert call(client, op, code, user_new()) == INVALID
            assert call(client, "code", code, user)["claimable"]
            reply = call(client, "claim", code, user, ack="issued")
            assert (reply["status"], reply["coupon"]) == ("issued", coupon)
            assert call(client, "claim", code, user_new()) == INVALID, "and not code_used"
            assert claim.show(code)["for_user"] == user
    assert stack.ctl_run("audit", coupon).returncode == 0


def test_a_guess_of_a_code_of_another_user_costs_what_each_costs(stack, claim):
    coupon, owner = stack.coupon_make(10), user_new()
    (code,) = claim.made(coupon, 1, "--user", owner)
    for op in ("claim", "code"):
        user = user_new()
        with stack.client() as client:
            told = [call(client, op, code, user)["status"] for _ in range(8)]
            assert told[:6] == ["code_invalid"] * 6 and set(told[6:]) == {"busy"}
            assert call(client, "code", code, owner)["claimable"], "the owner's are others"


def test_a_revoked_code_counts_as_a_wrong_one(stack, claim):
    coupon, user = stack.coupon_make(10), user_new()
    code, good = claim.made(coupon, 2)
    claim("revoke", code)
    with stack.client() as client:
        told = [call(client, "code", code, user)["status"] for _ in range(8)]
        assert told[:6] == ["code_invalid"] * 6 and set(told[6:]) == {"busy"}
        assert call(client, "claim", good, user)["status"] == "busy", "a claim waits, too"


def test_rows_of_a_file_are_for_their_users(stack, claim, tmp_path):
    coupon, alice, bob = stack.coupon_make(10, limit=2), user_new(), user_new()
    one, two, three, four = (mark() for _ in range(4))
    path = file_of(
        tmp_path,
        "code,user,state",
        f"{one},{alice},",
        f"{two},,unused",
        f"{three},{bob},used",
        f"{four},{alice},revoked",
    )
    imported(claim, coupon, path, "--user", bob)
    with stack.client() as client:
        assert call(client, "claim", one, bob) == INVALID, "the row's own user counts"
        assert call(client, "claim", two, alice) == INVALID, "else that of the option"
        assert call(client, "claim", one, alice)["code"] == 0
        assert call(client, "claim", two, bob)["code"] == 0
        assert call(client, "claim", three, bob)["status"] == "code_used"
        assert call(client, "claim", four, alice) == INVALID
        assert call(client, "code", three, bob)["why"] == "code_used"
    shown = [claim.show(code) for code in (one, two, three, four)]
    assert [(one["for_user"], one["user"]) for one in shown][2:] == [(bob, bob), (alice, None)]


def test_the_end_of_a_code_is_redis_clock_against_the_claim(stack, claim, tmp_path):
    coupon, user = stack.coupon_make(10, limit=9), user_new()
    with stack.client() as client:
        for code in of_each_kind(claim, coupon, tmp_path, "--valid-to", later(3600)):
            told = call(client, "code", code, user)
            assert told["claimable"] and 3500_000 < ms_of(told["code_end"]) - ms_of(later(0))
            assert call(client, "claim", code, user)["code"] == 0
        ended, own = of_each_kind(claim, coupon, tmp_path, "--valid-to", later(4)), user_new()
        kept = claim.made(coupon, 1, "--valid-to", later(4))[0]
        receive = call(client, "claim", kept, own, ack="issued")
        assert receive["status"] == "issued"
        for code in ended:
            wait_until(
                lambda code=code: call(client, "code", code, user).get("why") == "code_expired"
            )
        for code in ended:
            reply = call(client, "claim", code, user)
            assert (reply["code"], reply["status"]) == (16, "code_expired")
            assert (reply["coupon"], "receive" in reply) == (coupon, False)
        again = call(client, "claim", kept, own)
        assert (again["receive"], again["replayed"]) == (receive["receive"], True)
        assert call(client, "claim", kept, user)["status"] == "code_used", "before its end"
        assert client.issue(coupon, user_new())["code"] == 0, "nobody else is refused"
    shown = functools.partial(stack.ctl, "show", coupon, "--json")
    wait_until(lambda: (json.loads(shown())["refused"] or {}).get("code_expired") == 3)


def test_the_end_of_a_set_can_be_changed(stack, claim, tmp_path):
    """What the command has answered is true for the next request."""
    coupon, user = stack.coupon_make(10, limit=9, zone="Europe/Berlin"), user_new()

    def edited(code, end):
        words = ("edit", "--set", claim.show(code)["set"], "--valid-to", end)
        told = json.loads(claim(*words, "--json"))
        assert claim.show(code)["valid_to"] == told["valid_to"]
        return told["valid_to"]

    with stack.client() as client:
        for code in of_each_kind(claim, coupon, tmp_path, "--valid-to", later(3600)):
            edited(code, "now")
            assert call(client, "code", code, user)["why"] == "code_expired"
            assert call(client, "claim", code, user)["status"] == "code_expired"
            assert edited(code, "2098-12-24") == "2098-12-24T23:00:00.000Z", "in its zone"
            told = call(client, "code", code, user)
            assert told["claimable"] and told["code_end"] == "2098-12-24T23:00:00.000Z"
            assert edited(code, "none") is None
            assert "code_end" not in call(client, "code", code, user)
            assert call(client, "claim", code, user, ack="issued")["status"] == "issued"
            edited(code, "now")
            again = call(client, "claim", code, user)
            if claim.show(code)["kind"] == "word":  # claimed once more
                assert again["status"] == "code_expired"
            else:
                assert again["replayed"], "it was claimed before"
    own, other = mark(), mark()
    path = file_of(tmp_path, "code,valid_to", f"{own},2097-01-01", f"{other},")
    code_set = imported(claim, coupon, path)["set"]
    claim("edit", "--set", code_set, "--valid-to", "2098-01-01")
    ends = [claim.show(code)["valid_to"] for code in (own, other)]
    assert claim.show(claim.made(coupon, 1)[0])["valid_to"] is None, "another set"
    assert ends == ["2097-01-01T23:00:00.000Z", "2098-01-01T23:00:00.000Z"]


def test_a_repeated_command_does_not_undo_a_later_one(stack, claim):
    coupon = stack.coupon_make(10)
    code = claim.made(coupon, 1)[0]
    words = ("edit", "--set", claim.show(code)["set"], "--valid-to")
    first = claim(*words, "2098-12-24", "--key", mark_of := mark(), "--json")
    claim(*words, "2099-12-24")
    assert claim(*words, "2098-12-24", "--key", mark_of, "--json") == first
    assert claim.show(code)["valid_to"] == "2099-12-25T00:00:00.000Z"
    told = claim.run(*words, "2097-12-24", "--key", mark_of)
    assert told.returncode == 4 and "--key" in told.stderr


def test_an_end_that_cannot_be_changed(stack, claim):
    coupon = stack.coupon_make(10)
    code = claim.made(coupon, 1, "--valid-to", "2098-12-24")[0]
    shown = claim.show(code)
    for words, status, told in (
        (("--set", shown["set"]), 2, "codes edit needs --valid-to"),
        (("--valid-to", "none"), 2, "codes edit needs --set"),
        (("--set", shown["set"], "--valid-to", "tomorrow"), 2, f'"tomorrow": {TIMES}'),
        (("--set", shown["set"], "--valid-to", ""), 2, f'--valid-to is "": {TIMES}'),
        (("--set", "x", "--valid-to", "none"), 2, '--set is "x"'),
        (("--set", 2**63 - 1, "--valid-to", "none"), 9, f"there is no set {2**63 - 1}"),
    ):
        result = claim.run("edit", *words)
        assert (result.returncode, told in result.stderr) == (status, True), result
    assert claim.show(code) == shown
    claim("revoke", "--set", shown["set"], "--yes")
    result = claim.run("edit", "--set", shown["set"], "--valid-to", "none")
    assert result.returncode == 1 and "is revoked: its end cannot be changed" in result.stderr


def test_times_of_a_file_are_of_the_campaigns_zone(stack, claim, tmp_path):
    coupon = stack.coupon_make(10, zone="Europe/Berlin", end="2099-12-31")
    codes = [mark() for _ in range(6)]
    ends = ("2098-12-24", "2098-07-01T18:00", "2098-07-01T18:00:00Z", "", "2098-12-24", "tomorrow")
    path = file_of(tmp_path, "code,valid_to", *map(",".join, zip(codes, ends)))
    result = claim.run("import", coupon, path, "--json", "--valid-to", "2098-01-01")
    assert (result.returncode, json.loads(result.stdout)["refused"]) == (6, 1)
    assert f'7: its valid_to is "tomorrow": {TIMES}' in result.stderr
    assert [claim.show(code)["valid_to"] for code in codes[:5]] == [
        "2098-12-24T23:00:00.000Z",
        "2098-07-01T16:00:00.000Z",
        "2098-07-01T18:00:00.000Z",
        "2098-01-01T23:00:00.000Z",
        "2098-12-24T23:00:00.000Z",
    ]
    path = tmp_path / "all.csv"
    claim("export", coupon, "--all", "--out", path)
    text = path.read_text("utf-8").splitlines()
    assert text[0] == "code,coupon,set,state,user,receive,used_at,valid_to,metadata"
    assert text[1].endswith(",unused,,,,2098-12-24T23:00:00.000Z,")
    path = file_of(tmp_path, "code,state,used_at", f"{mark()},used,2026-02-30")
    assert 'its used_at is "2026-02-30"' in claim.run("import", coupon, path).stderr
    path = file_of(tmp_path, "code,valid_to", f"{mark()},2098-03-30T02:30")
    told = claim.run("import", coupon, path).stderr
    assert "never show this time" in told and "write 2098-03-30T" in told


@pytest.mark.parametrize(
    "options, told",
    [
        (("--user", "a b"), '--user is "a b": byte 2 is not allowed'),
        (("--user", ""), '--user is "": '),
        (("--valid-to", "tomorrow"), '--valid-to is "tomorrow": allowed is a day as'),
        (("--valid-to", "none"), '--valid-to is "none": allowed is a day as'),
        (("--valid-to", "2020-01-01"), '"2020-01-01": allowed is a time that is not past'),
    ],
)
def test_bad_options_make_no_set(stack, claim, tmp_path, options, told):
    coupon = stack.coupon_make(10)
    path = file_of(tmp_path, "code", mark())
    for words in (
        ("generate", coupon, "--count", 1),
        ("generate", coupon, "--word", mark()),
        ("import", coupon, path),
    ):
        result = claim.run(*words, *options)
        assert result.returncode == 2 and told in result.stderr, result
    assert claim.stats(coupon)["sets"] == []


def test_a_command_that_is_run_again_wants_the_same_terms(stack, claim, tmp_path):
    coupon, path = stack.coupon_make(10), tmp_path / "codes.csv"
    part = tmp_path / "codes.csv.part"
    part.mkdir()  # so the set is made, and its file is not
    words = ("generate", coupon, "--count", 3, "--out", path, "--user", "alice")
    assert claim.run(*words).returncode != 0
    part.rmdir()
    told = claim.run(*words[:-1], "bob").stderr
    assert '"user alice", and this one has "user bob"' in told
    assert claim.run(*words).returncode == 0
    assert [claim.show(code)["for_user"] for code in column(path)] == ["alice"] * 3
    assert len(claim.stats(coupon)["sets"]) == 1


def test_lists_say_whose_codes_are_and_until_when(stack, claim, tmp_path):
    coupon = stack.coupon_make(10)
    code = claim.made(coupon, 1, "--user", "alice", "--valid-to", "2098-12-24")[0]
    (made,) = claim.stats(coupon)["sets"]
    assert (made["for_user"], made["valid_to"]) == ("alice", "2098-12-25T00:00:00.000Z")
    assert ", for alice, until 2098-12-25T00:00:00.000Z" in claim("list", coupon)
    shown = claim("show", code).splitlines()
    assert shown[2:] == ["  for      alice alone", "  until    2098-12-25T00:00:00.000Z"]
    path = tmp_path / "all.jsonl"
    claim("export", coupon, "--all", "--out", path)
    row = json.loads(path.read_text("utf-8"))
    assert (row["user"], row["valid_to"]) == ("alice", "2098-12-25T00:00:00.000Z")


def test_what_a_code_would_give(stack, claim):
    terms = {"amount-off": "5.00", "currency": "EUR", "hidden": "yes"}
    coupon, user = stack.coupon_make(2, limit=2, **terms), user_new()
    first, second, third, fourth = claim.made(coupon, 4)
    wanted = {
        **{"code": 0, "status": "ok", "coupon": coupon, "state": "open", "total": 2, "stock": 2},
        **{"limit": 2, "taken": 0, "left": 2, "claimable": True},
        "discount": {"amount_off": 500, "currency": "EUR"},
    }
    with stack.client() as client:
        told = call(client, "code", first.lower().replace("-", " "), user)
        told.pop("begin", None)
        assert told == wanted
        receive = call(client, "claim", first, user, ack="issued")["receive"]
        told = call(client, "code", first, user)
        assert (told["taken"], told["left"], told["why"]) == (1, 1, "code_used")
        assert (told["receive"], told["slot"]) == (receive, 1)
        told = call(client, "code", first, user_new())
        assert (told["taken"], told["why"], "receive" in told) == (0, "code_used", False)
        told = call(client, "code", second, user)
        assert (told["claimable"], told["left"], "why" in told) == (True, 1, False)
        assert call(client, "claim", second, user)["code"] == 0
        assert call(client, "code", third, user)["why"] == "out_of_stock", "as issue says"
        claim("revoke", third)
        assert call(client, "code", third, user) == INVALID
        stack.ctl("stock", coupon, "--total", 9)
        wait_until(lambda: call(client, "code", fourth, user).get("why") == "limit_reached")
        stack.ctl("pause", coupon)
        wait_until(lambda: call(client, "code", fourth, user_new()).get("why") == "paused")
        assert call(client, "code", fourth, user_new())["state"] == "paused"
        assert claim.show(fourth)["state"] == "unused", "nothing was claimed"


def test_a_word_that_the_user_has_claimed_can_be_claimed_again(stack, claim):
    coupon, user, word = stack.coupon_make(10, limit=2), user_new(), mark()
    claim.word(coupon, word)
    with stack.client() as client:
        assert call(client, "claim", word, user)["code"] == 0
        told = call(client, "code", word, user)
        assert (told["taken"], told["claimable"], "receive" in told) == (1, True, False)
        assert call(client, "claim", word, user)["code"] == 0
        assert call(client, "code", word, user)["why"] == "limit_reached"


def get(stack, path):
    try:
        with urllib.request.urlopen(stack.http(path)) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_over_http(stack, claim, tmp_path):
    coupon, user, odd = stack.coupon_make(10), user_new(), f"{mark()}/%?é"[:-1]
    (code,) = claim.made(coupon, 1)
    imported(claim, coupon, file_of(tmp_path, "code", odd))
    for text in (code, code.lower().replace("-", " "), odd):
        path = urllib.parse.quote(text, safe="")
        status, told = get(stack, f"/v1/codes/{path}?user={user}")
        assert (status, told["coupon"], told["claimable"]) == (200, coupon, True), text
        assert get(stack, f"/v1/code?user={user}&code={path}")[1] == told
    assert get(stack, f"/v1/codes/nothing?user={user_new()}") == (422, INVALID)
    for path, status, message in (
        (f"/v1/codes/{code}", 400, "user: is missing"),
        (f"/v1/codes/{code}?user={user}&code=x", 400, "a member that occurs twice"),
        (f"/v1/codes/{'x' * 129}?user={user}", 400, "must be "),
        (f"/v1/codes/a%0?user={user}", 400, "code: must be percent-encoded"),
        (f"/v1/codes/a%00?user={user}", 400, "code: must be percent-encoded"),
        ("/v1/codes/", 404, "no such path"),
        (f"/v1/codes/{code}/?user={user}", 404, "without the / at its end"),
        (f"/v1/codes/{code}/x?user={user}", 404, "no such path"),
    ):
        found, told = get(stack, path)
        assert found == status and message in told["message"], (path, found, told)
    request = urllib.request.Request(stack.http(f"/v1/codes/{code}"), b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request)
