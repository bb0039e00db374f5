"""A campaign's life: its states, the record of its changes, and edits in mid-sale."""

import datetime
import itertools
import json
import threading
import uuid

import psycopg
import pytest

from stack import wait_until


PAST, LATER = "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


def moment(seconds):
    """A time so many seconds from now, by RFC 3339."""
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))


def version(stack, coupon):
    return show(stack, coupon)["postgresql"]["version"]


def history(stack, coupon):
    return [json.loads(line) for line in stack.ctl("history", coupon, "--json").splitlines()]


# States


def test_the_states_of_a_campaign(stack, gateway):
    coupon = stack.coupon_make(10, publish=False, begin=moment(600))
    assert show(stack, coupon)["state"] == "draft"
    assert gateway.issue(coupon, 1)["status"] == "not_found"
    stack.ctl("publish", coupon)
    assert show(stack, coupon)["state"] == "scheduled"
    # Not found is remembered for a moment.
    wait_until(lambda: gateway.issue(coupon, 1)["status"] == "not_started")
    stack.coupon_edit(coupon, "--begin", moment(1))
    wait_until(lambda: gateway.issue(coupon, 1)["status"] == "accepted")
    assert show(stack, coupon)["state"] == "issuing"
    stack.ctl("pause", coupon)
    assert show(stack, coupon)["state"] == "paused"
    stack.ctl("resume", coupon)
    stack.ctl("close", coupon)
    assert show(stack, coupon)["state"] == "ended"
    moves = [(entry["action"], entry["from"], entry["to"]) for entry in history(stack, coupon)]
    assert moves[2:-3] in (
        [("edit", "scheduled", "scheduled"), ("open", "scheduled", "issuing")],
        [("edit", "scheduled", "issuing")],  # the second was over already
    )
    assert moves[:2] + moves[-3:] == [
        ("create", None, "draft"),
        ("publish", "draft", "scheduled"),
        ("pause", "issuing", "paused"),
        ("resume", "paused", "issuing"),
        ("close", "issuing", "ended"),
    ]


def test_a_campaign_opens_at_its_second_at_every_gateway(stack, gateway, gateway_make):
    """By the clock of Redis, which no gateway shares: no process has to act at that moment."""
    coupon = stack.coupon_make(1000, begin=moment(3))
    with gateway_make(stack).client() as other:
        opened = {}

        def ask(name, client):
            user = 0
            while name not in opened:
                user += 1
                reply = client.issue(coupon, f"{name}{user}", ack="accepted")
                if reply["status"] == "accepted":
                    opened[name] = datetime.datetime.now(datetime.timezone.utc)

        threads = [
            threading.Thread(target=ask, args=pair) for pair in (("a", gateway), ("b", other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    begin = datetime.datetime.fromisoformat(show(stack, coupon)["begin"].replace("Z", "+00:00"))
    assert len(opened) == 2 and min(opened.values()) >= begin


@pytest.mark.parametrize(
    "old, wanted", [("draft", "paused"), ("draft", "closed"), ("closed", "published")]
)
def test_postgresql_refuses_other_changes_of_the_status(stack, pg, old, wanted):
    coupon = stack.coupon_make(1, publish=old != "draft")
    if old == "closed":
        stack.ctl("close", coupon)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"is {old}: it cannot become {wanted}"):
        pg.execute("UPDATE coupon SET status = %s WHERE id = %s", (wanted, coupon))


# The record


def test_every_change_is_recorded_with_its_author(stack, pg):
    coupon = stack.ctl("create", "--name", "n", "--total", 5, "--by", "ann")
    stack.ctl("publish", coupon, "--by", "bob")
    stack.ctl("stock", coupon, "--total", 9)
    pg.execute("UPDATE coupon SET name = 'by hand' WHERE id = %s", (coupon,))
    entries = history(stack, coupon)
    assert [entry["action"] for entry in entries] == ["create", "publish", "edit", "edit"]
    assert [entry["by"] for entry in entries[:2]] == ["ann", "bob"]
    assert "@" in entries[2]["by"] and entries[3]["by"] not in ("", None)
    assert [entry["changes"] for entry in entries] == [
        None,
        None,
        {"total_num": [5, 9]},
        {"name": ["n", "by hand"]},
    ]
    assert [entry["version"] for entry in entries] == [1, 2, 3, 3]
    text = stack.ctl("history", coupon)
    assert "draft -> issuing, by bob" in text and "total_num: 5 -> 9" in text


def test_what_changes_nothing_is_not_recorded(stack):
    coupon = stack.coupon_make(5)
    stack.ctl("stock", coupon, "--total", 5)
    stack.ctl("publish", coupon)
    stack.coupon_edit(coupon, "--limit", 1)
    assert [entry["action"] for entry in history(stack, coupon)] == ["create", "publish"]


def test_history_of_an_unknown_coupon(stack):
    result = stack.ctl_run("history", 4)
    assert (result.returncode, result.stderr) == (9, "couponctl: there is no coupon 4\n")


# Edits


def test_an_edit_in_mid_sale(stack, gateway, redis_client):
    coupon = stack.coupon_make(10)
    assert gateway.issue(coupon, 1, ack="issued")["slot"] == 1
    assert gateway.issue(coupon, 1)["status"] == "limit_reached"
    stack.coupon_edit(coupon, "--limit", 2, "--name", "new", "--end", "2099-01-01T00:00:00Z")
    assert gateway.issue(coupon, 1, ack="issued")["slot"] == 2
    assert redis_client.hget(f"coupon:{{{coupon}}}", "end") == "4070908800000"
    shown = show(stack, coupon)
    assert (shown["name"], shown["end"]) == ("new", "2099-01-01T00:00:00.000Z")
    stack.coupon_edit(coupon, "--end", "none")
    assert show(stack, coupon)["end"] is None
    stack.coupon_edit(coupon, "--begin", moment(3600))
    assert gateway.issue(coupon, 2)["status"] == "not_started"
    stack.coupon_edit(coupon, "--begin", "none", "--end", "now")
    wait_until(lambda: gateway.issue(coupon, 3)["status"] == "ended")


def test_an_edit_on_an_older_version_is_refused(stack):
    coupon = stack.coupon_make(10)
    seen = version(stack, coupon)
    stack.ctl("edit", coupon, "--version", seen, "--limit", 2)
    for words in (
        ("edit", coupon, "--limit", 3),
        ("stock", coupon, "--total", 11),
        ("pause", coupon),
    ):
        result = stack.ctl_run(*words, "--version", seen)
        assert result.returncode == 8, result
        assert f"--version is {seen}, but coupon {coupon} has version {seen + 1}" in result.stderr
    # What holds already is no edit.
    stack.ctl("edit", coupon, "--version", seen, "--limit", 2)
    assert version(stack, coupon) == seen + 1
    assert show(stack, coupon)["redis"]["version"] == seen + 1


def test_of_edits_at_once_one_wins(stack):
    coupon = stack.coupon_make(10)
    seen = version(stack, coupon)
    results = []

    def run(limit):
        results.append(stack.ctl_run("edit", coupon, "--version", seen, "--limit", limit))

    threads = [threading.Thread(target=run, args=(limit,)) for limit in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.returncode for result in results) == [0, 8, 8, 8, 8, 8]


def test_the_limit_is_lowered_only_while_nothing_is_taken(stack, gateway, redis_client):
    coupon = stack.coupon_make(10, limit=3)
    stack.coupon_edit(coupon, "--limit", 2, "--name", "lower")
    assert redis_client.hget(f"coupon:{{{coupon}}}", "limit") == "2"
    shown = show(stack, coupon)
    assert shown["redis"]["version"] == shown["postgresql"]["version"]
    gateway.issue(coupon, 1)
    result = stack.ctl_run("edit", coupon, "--version", version(stack, coupon), "--limit", 1)
    assert result.returncode == 1 and "1 coupons are taken; nothing was changed" in result.stderr
    assert show(stack, coupon)["limit"] == 2
    assert redis_client.hget(f"coupon:{{{coupon}}}", "limit") == "2"


def test_discount_validity_and_metadata(stack):
    coupon = stack.ctl(
        "create", "--name", "n", "--total", 1, "--percent-off", "12.5", "--cap", "20.00",
        "--threshold", 50, "--currency", "EUR", "--metadata", '{"shop":"north","rate":0.5}',
        "--void-returns", "no", "--valid-days", 3,
    )  # fmt: skip
    shown = show(stack, coupon)
    assert shown["discount"] == {
        "amount_off": None,
        "percent_off": 12.5,
        "cap": 2000,
        "threshold": 5000,
        "currency": "EUR",
    }
    assert (shown["metadata"], shown["void_returns"]) == ({"shop": "north", "rate": 0.5}, False)
    stack.coupon_edit(coupon, "--amount-off", "5.00", "--currency", "USD", "--metadata", "none")
    stack.coupon_edit(
        coupon, "--valid-from", "2030-01-01T00:00:00Z", "--valid-to=2031-01-01T00:00:00Z"
    )
    shown = show(stack, coupon)
    assert (shown["discount"]["amount_off"], shown["discount"]["percent_off"]) == (500, None)
    assert (shown["metadata"], shown["valid_days"]) == (None, None)
    assert shown["valid_to"] == "2031-01-01T00:00:00.000Z"
    stack.coupon_edit(coupon, "--amount-off", "none")
    assert set(show(stack, coupon)["discount"].values()) == {None}


@pytest.mark.parametrize(
    "options, words",
    [
        (("--limit", "0"), '--limit is "0": allowed is an integer from 1 to 100'),
        (("--begin", "soon"), '--begin is "soon": allowed is a day'),
        (("--end", PAST), f'--end is "{PAST}": allowed is a time after now'),
        (("--end", "now"), '--end is "now": allowed is a time after now'),
        (("--percent-off", "100.5"), '--percent-off is "100.5": allowed is 0.01 to 100'),
        (("--percent-off", "1.234"), "at most two digits"),
        (("--percent-off", "1."), "allowed is 0.01 to 100"),
        (("--percent-off", "0"), "allowed is 0.01 to 100"),
        (("--amount-off", "5"), "--amount-off, --cap and --threshold need --currency"),
        (("--amount-off", "5", "--percent-off", "5"), "not allowed together with --amount-off"),
        (("--cap", "5"), "allowed only together with --percent-off"),
        (("--percent-off", "5", "--currency", "euro"), "three capital letters"),
        (("--metadata", "[]"), "allowed is a JSON object of at most 4096 bytes (found: another"),
        (("--metadata", '{"a":"' + "x" * 4096 + '"}'), "at most 4096 bytes"),
        (("--void-returns", "maybe"), "allowed are yes and no"),
        (("--by", "x" * 101), "allowed are 1 to 100 bytes"),
        ((), "edit needs something to change"),
    ],
)
def test_bad_edits(stack, options, words):
    coupon = stack.coupon_make(1, publish=False)
    if options[:1] == ("--by",):
        options += ("--limit", "2")
    result = stack.ctl_run("edit", coupon, "--version", 1, *options)
    assert result.returncode == 2 and words in result.stderr, result


def test_edits_that_the_coupon_does_not_allow(stack):
    coupon = stack.coupon_make(1, end="2099-01-01T00:00:00Z")
    seen = version(stack, coupon)
    result = stack.ctl_run("edit", coupon, "--version", seen, "--begin", "2099-01-02T00:00:00Z")
    assert result.returncode == 1 and "would end before it begins" in result.stderr
    assert stack.ctl_run("edit", coupon, "--limit", 2).returncode == 2  # no --version
    stack.ctl("close", coupon)
    result = stack.ctl_run("edit", coupon, "--version", seen + 1, "--limit", 2)
    assert result.returncode == 1 and "its terms are final" in result.stderr


# A coupon that nobody could use is not issued


VALIDITY_PAST = ("--valid-from", "2000-01-01T00:00:00Z", "--valid-to", PAST)


@pytest.mark.parametrize(
    "options, words",
    [
        (("--end", PAST), f'--end is "{PAST}": allowed is a time after now; now it is 20'),
        (("--end", "now"), '--end is "now": allowed is a time after now'),
        (("--begin", "2000-01-01T00:00:00Z", "--end", PAST), f'--end is "{PAST}"'),
        (VALIDITY_PAST, f'--valid-to is "{PAST}": allowed is a time after now; now it is 20'),
        (("--valid-from", "2000-01-01T00:00:00Z", "--valid-to", "now"), '--valid-to is "now"'),
        (
            ("--begin", LATER, "--valid-from", "2000-01-01T00:00:00Z", "--valid-to", LATER),
            f'--valid-to is "{LATER}": allowed is a time after --begin, "{LATER}"',
        ),
    ],
)
def test_create_refuses_what_nobody_could_use(stack, pg, options, words):
    name = str(uuid.uuid4())
    result = stack.ctl_run("create", "--name", name, "--total", 1, *options)
    assert (result.returncode, result.stdout) == (2, "") and words in result.stderr, result
    assert pg.execute("SELECT FROM coupon WHERE name = %s", (name,)).fetchall() == []


def test_edit_in_mid_sale_refuses_what_nobody_could_use(stack, gateway):
    coupon = stack.coupon_make(10, end=LATER)
    seen = version(stack, coupon)
    gateway.issue(coupon, 1, ack="issued")

    def edit(status, words, *options):
        result = stack.ctl_run("edit", coupon, "--version", seen, *options)
        assert result.returncode == status and words in result.stderr, result

    edit(2, "allowed is a time that is not past, or now", "--end", PAST)
    edit(2, f'--valid-to is "{PAST}": allowed is a time after now', *VALIDITY_PAST)
    assert version(stack, coupon) == seen
    assert gateway.issue(coupon, 2, ack="issued")["status"] == "issued"

    # The validity that it has, and the begin that it gets; and the other way round.
    options = ("--valid-from", "2000-01-01T00:00:00Z", "--valid-to", moment(3600))
    stack.coupon_edit(coupon, *options)
    seen = version(stack, coupon)
    words = f"the validity of coupon {coupon} would end before the campaign begins"
    edit(1, words, "--begin", moment(7200))
    stack.coupon_edit(coupon, "--begin", moment(7200), "--valid-days", 1)
    seen = version(stack, coupon)
    edit(1, words, *options)
    assert version(stack, coupon) == seen
    # What is left as it is may be renamed.
    stack.coupon_edit(coupon, "--name", "renamed")


@pytest.mark.parametrize(
    "terms, words",
    [
        ("end_at = now() - interval '1 s'", "couponctl: coupon {} has ended at 20"),
        (
            "valid_days = NULL, valid_from = '2000-01-01', valid_to = now() - interval '1 s'",
            "couponctl: the validity of coupon {} has ended at 20",
        ),
        (
            "valid_days = NULL, valid_from = '2000-01-01', valid_to = now() + interval '1 h',"
            " begin_at = now() + interval '1 h'",
            "the validity of coupon {} ends at 20",
        ),
    ],
)
@pytest.mark.parametrize("old", ["draft", "paused"])
def test_what_nobody_could_use_is_not_opened(rough, rough_pg, old, terms, words):
    """The time has passed since the campaign was created."""
    state = "ended" if old == "paused" else "draft"
    rough.stop("worker-1")  # its keeper would close it
    coupon = rough.coupon_make(1, publish=False)
    if old == "paused":
        rough.ctl("publish", coupon, "--wait-s", 0)
        rough.ctl("pause", coupon)
    rough_pg.execute(f"UPDATE coupon SET {terms} WHERE id = %s", (coupon,))
    result = rough.ctl_run("publish" if old == "draft" else "resume", coupon)
    assert (result.returncode, result.stdout) == (1, ""), result
    assert words.format(coupon) in result.stderr and "nothing was changed" in result.stderr
    assert show(rough, coupon)["postgresql"]["status"] == old
    reasons = json.loads(rough.ctl_run("check", coupon, "--json").stdout)["checks"][0]["reason"]
    if "begin_at" in terms:
        assert "its validity ends at 20" in reasons and "before it begins" in reasons
    else:
        assert reasons == f"it is {state}: allowed is scheduled or issuing"


def test_a_campaign_that_ends_before_it_is_loaded(rough):
    """Publishing waits for its end at most, and does not say that it will open."""
    rough.stop("worker-1")
    coupon = rough.coupon_make(1, publish=False, end=moment(3))
    result = rough.ctl_run("publish", coupon, "--wait-s", 600)
    assert f"coupon {coupon} has ended at 20" in result.stderr, result
    assert "opens as soon as" not in result.stderr
    again = rough.ctl_run("publish", coupon)
    assert again.returncode == 1
    assert f"couponctl: coupon {coupon} has ended at 20" in again.stderr


def test_issuing_ends_with_the_validity(stack, gateway, pg, redis_client):
    """From then on a receive could never be valid. The campaign has ended, as by its own end."""
    coupon = stack.coupon_make(10**6, end=LATER)
    end = moment(2)
    stack.coupon_edit(coupon, "--valid-from", "2000-01-01T00:00:00Z", "--valid-to", end)
    at = datetime.datetime.fromisoformat(end.replace("Z", "+00:00"))
    field = redis_client.hget(f"coupon:{{{coupon}}}", "end")
    assert field == str(round(at.timestamp() * 1000))
    assert stack.ctl("audit", coupon).splitlines()[-1].startswith("PASS")
    users = itertools.count()
    wait_until(lambda: gateway.issue(coupon, next(users))["status"] == "ended")
    assert (
        gateway.issue(coupon, "late")["code"],
        gateway.call("coupon", coupon=coupon)["state"],
    ) == (3, "ended")
    useless = "SELECT FROM user_coupon WHERE coupon_id = %s AND received_at >= valid_to"
    assert pg.execute(useless, (coupon,)).fetchall() == []
    wait_until(lambda: show(stack, coupon)["postgresql"]["status"] == "closed")
    moves = [(entry["action"], entry["from"], entry["to"]) for entry in history(stack, coupon)]
    assert moves[-2:] == [("edit", "issuing", "issuing"), ("close", "ended", "ended")]


def test_a_gateway_answers_ended_for_a_validity_that_redis_does_not_know(rough, rough_pg):
    rough.stop("worker-1")
    coupon = rough.coupon_make(10, publish=False)
    rough.ctl("publish", coupon, "--wait-s", 0)
    rough_pg.execute(
        "UPDATE coupon SET valid_days = NULL, valid_from = '2000-01-01', valid_to = now()"
        " WHERE id = %s",
        (coupon,),
    )
    with rough.client() as client:
        wait_until(lambda: client.issue(coupon, 1)["status"] == "ended")


def test_an_edit_that_died_between_the_stores_is_completed(stack, redis_client, pg):
    """Redis has the lower limit, and PostgreSQL does not: the next change gives both the same."""
    coupon = stack.coupon_make(10, limit=3)
    redis_client.hset(f"coupon:{{{coupon}}}", mapping={"limit": 2, "version": 3})
    stack.coupon_edit(coupon, "--name", "next")
    shown = show(stack, coupon)
    assert redis_client.hget(f"coupon:{{{coupon}}}", "limit") == "3"
    assert shown["redis"]["version"] == shown["postgresql"]["version"] > 3


def test_a_lower_total_is_one_version_in_both_stores(stack):
    coupon = stack.coupon_make(10)
    seen = version(stack, coupon)
    stack.ctl("stock", coupon, "--total", 8)
    shown = show(stack, coupon)
    assert shown["redis"]["version"] == shown["postgresql"]["version"] == seen + 1
    assert history(stack, coupon)[-1]["version"] == seen + 1


def test_other_terms_under_the_same_version_are_given_again(stack, redis_client):
    """By a command that changes nothing: PostgreSQL counted up after an edit that had died."""
    coupon = stack.coupon_make(10, limit=3)
    redis_client.hset(f"coupon:{{{coupon}}}", "limit", 2)
    stack.ctl("stock", coupon, "--total", 10)
    shown = show(stack, coupon)
    assert redis_client.hget(f"coupon:{{{coupon}}}", "limit") == "3"
    assert shown["redis"]["version"] == shown["postgresql"]["version"]


# Tags


def test_campaigns_are_found_by_their_tags(stack):
    tag = "t" + uuid.uuid4().hex[:8]
    coupon = stack.coupon_make(5, tags=f"{tag},noon.sale")
    other = stack.coupon_make(5, tags="noon.sale")
    listed = [json.loads(line) for line in stack.ctl("list", "--tag", tag, "--json").splitlines()]
    assert [(one["coupon"], one["tags"]) for one in listed] == [(coupon, [tag, "noon.sale"])]
    stack.coupon_edit(other, "--tags", tag)
    assert show(stack, other)["tags"] == [tag] and history(stack, other)[-1]["changes"] == {
        "tags": [["noon.sale"], [tag]]
    }
    stack.coupon_edit(coupon, "--tags", "none")
    assert show(stack, coupon)["tags"] == []
    assert [
        json.loads(line)["coupon"]
        for line in stack.ctl("list", "--tag", tag, "--json").splitlines()
    ] == [other]
    assert f"tags         {tag}" in stack.ctl("show", other)


@pytest.mark.parametrize(
    "tags", ["Noon", "a,", ",a", "a,,b", "a b", "é", "x" * 33, ",".join(map(str, range(17)))]
)
def test_a_tag_is_a_short_word(tags, stack):
    result = stack.ctl_run("create", "--name", "n", "--total", 1, "--tags", tags)
    assert result.returncode == 2 and f'--tags is "{tags}"' in result.stderr, result
    assert "16 words of 1 to 32 lower-case" in result.stderr
