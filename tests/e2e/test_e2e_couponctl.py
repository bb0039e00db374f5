"""couponctl: what it prints, what it refuses and why, and its exit codes."""

import datetime
import json
import os
import pty
import re
import subprocess

import psycopg
import pytest
import redis

from stack import wait_until

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
BEGIN = 4068270000  # 2098-12-01T12:00:00+01:00


def moment(text):
    """Seconds since the epoch of a time by RFC 3339."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def refused(stack, *arguments):
    """Returns its error message. The command line was wrong: exit code 2, nothing on stdout, one
    line on stderr."""
    result = stack.ctl_run(*arguments)
    assert (result.returncode, result.stdout) == (2, ""), result
    assert result.stderr.startswith("couponctl: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def show(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))


def status_in_redis(redis_client, coupon):
    return redis_client.hget(f"coupon:{{{coupon}}}", "status")


# create


def test_create_prints_the_id_alone(stack):
    first, second = (stack.ctl("create", "--name", "n", "--total", 5) for _ in range(2))
    assert first.isdecimal() and second.isdecimal() and int(second) > int(first)
    assert json.loads(stack.ctl("create", "--name", "n", "--total", 5, "--json"))[
        "coupon"
    ].isdecimal()


def test_create_keeps_what_it_was_told(stack, pg):
    coupon = stack.ctl(
        "create", "--name", 'Noon "rush" é\u20ac', "--total", 12345, "--limit=3", "--begin",
        "2098-12-01T12:00:00+01:00", "--end", "2098-12-02T00:00:00.5Z", "--valid-days", 7,
    )  # fmt: skip
    shown = show(stack, coupon)
    assert (shown["name"], shown["limit"], shown["valid_days"]) == ('Noon "rush" é\u20ac', 3, 7)
    assert shown["postgresql"]["total"] == 12345 and shown["postgresql"]["status"] == "draft"
    assert TIME.match(shown["begin"]) and TIME.match(shown["end"])
    assert [moment(shown[name]) for name in ("begin", "end")] == [BEGIN, BEGIN + 13 * 3600 + 0.5]
    assert shown["valid_from"] is None and shown["redis"]["loaded"] is False
    row = pg.execute(
        "SELECT extract(epoch FROM begin_at), extract(epoch FROM end_at) FROM coupon WHERE id = %s",
        (coupon,),
    )
    assert [float(value) for value in row.fetchone()] == [BEGIN, BEGIN + 13 * 3600 + 0.5]


def test_create_with_validity_dates_gives_them_to_the_user(stack, gateway, make_coupon):
    coupon = make_coupon(1, valid_from="2026-01-01T00:00:00Z", valid_to="2097-01-01T00:00:00Z")
    receive = gateway.issue(coupon, 1, ack="issued")["receive"]
    status = gateway.call("status", receive=receive)
    assert (moment(status["valid_from"]), moment(status["valid_to"])) == (1767225600, 4007836800)


def test_create_with_an_id_of_19_digits(stack, gateway, pg_owner):
    coupon = "9223372036854770001"
    pg_owner.execute("DELETE FROM coupon WHERE id = %s", (coupon,))
    assert stack.ctl("create", "--name", "n", "--total", 1, "--id", coupon) == coupon
    again = stack.ctl_run("create", "--name", "n", "--total", 1, "--id", coupon)
    assert again.returncode == 1 and coupon in again.stderr


@pytest.mark.parametrize(
    "arguments, field, value, allowed",
    [
        (["--total", "0"], "--total", "0", "1 to"),
        (["--total", "-1"], "--total", "-1", "1 to"),
        (["--total", "1.5"], "--total", "1.5", "integer"),
        (["--total", "x"], "--total", "x", "integer"),
        (["--total", ""], "--total", "", "integer"),
        (["--total", "9007199254740992"], "--total", "9007199254740992", "9007199254740991"),
        (["--limit", "0"], "--limit", "0", "1 to 100"),
        (["--limit", "101"], "--limit", "101", "1 to 100"),
        (["--begin", "tomorrow"], "--begin", "tomorrow", "2026-12-24T18:00"),
        (["--begin", "2026-12-01 12"], "--begin", "2026-12-01 12", "T18:00"),
        (["--begin", "12/01/2026"], "--begin", "12/01/2026", "a day as 2026-12-24"),
        (["--begin", "2026-02-30T12:00:00Z"], "--begin", "2026-02-30T12:00:00Z", "time"),
        (["--begin", "2026-12-01T24:00:00Z"], "--begin", "2026-12-01T24:00:00Z", "time"),
        (["--begin", "2026-12-02T00:00:00Z", "--end", "2026-12-01T00:00:00Z"],
         "--end", "2026-12-01T00:00:00Z", "after --begin"),
        (["--end", "1960-01-01T00:00:00Z"], "--end", "1960-01-01T00:00:00Z", "1970"),
        (["--valid-days", "0"], "--valid-days", "0", "1 to"),
        (["--valid-days", "1", "--valid-from", "2026-12-01T00:00:00Z",
          "--valid-to", "2026-12-02T00:00:00Z"], "--valid-days", "1", "not allowed together"),
        (["--id", "042"], "--id", "042", "9223372036854775807"),
        (["--id", "9223372036854775808"], "--id", "9223372036854775808", "9223372036854775807"),
        (["--name", "x" * 201], "--name", "x" * 201, "1 to 200"),
        (["--name", ""], "--name", "", "1 to 200"),
    ],
)  # fmt: skip
def test_create_names_the_field_the_value_and_what_is_allowed(
    stack, arguments, field, value, allowed
):
    given = {"--name": "n", "--total": "1"}
    given.update(zip(arguments[::2], arguments[1::2]))
    complaint = refused(stack, "create", *(part for pair in given.items() for part in pair))
    assert f'{field} is "{value}"' in complaint and allowed in complaint


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["create"], "--name"),
        (["create", "--name", "n"], "--total"),
        (["create", "--name", "n", "--total"], "--total needs a value"),
        (["create", "--name", "n", "--total", "1", "--total", "2"], "--total is given twice"),
        (["create", "--name", "n", "--total", "1", "--colour", "red"], "no option --colour"),
        (["create", "--name", "n", "--total", "1", "extra"], '"extra"'),
        (
            ["create", "--name", "n", "--total", "1", "--valid-from", "2026-12-01T00:00:00Z"],
            "--valid-to",
        ),
        (["publish"], "publish needs ID"),
        (["publish", "042"], 'ID is "042"'),
        (["publish", "1", "2"], "one argument"),
        (["stock", "1"], "--total"),
        (
            ["rebuild", "1", "--older-than-s", "5"],
            '--older-than-s is "5": allowed only with --give-up-lost',
        ),
        (["nonsense"], '"nonsense"'),
    ],
)
def test_wrong_command_lines(stack, arguments, words):
    assert words in refused(stack, *arguments)


@pytest.mark.parametrize("command", ["publish", "pause", "resume", "close", "show"])
def test_a_coupon_that_is_not_there(stack, command):
    result = stack.ctl_run(command, 987654321)
    assert (
        result.returncode == 9
        and "there is no coupon 987654321" in result.stderr
        and result.stdout == ""
    )


def test_help(stack):
    everything = stack.ctl("--help")
    assert stack.ctl("help") == everything
    for command in (
        "migrate",
        "create",
        "publish",
        "pause",
        "resume",
        "close",
        "stock",
        "show",
        "list",
        "issue",
        "status",
        "audit",
    ):
        assert re.search(rf"^  {command} ", everything, re.M), command
        page = stack.ctl(command, "--help")
        assert page.startswith(f"Usage: couponctl {command}")
        assert stack.ctl("--help", command) == page
    assert stack.ctl_run().returncode == 2


def test_a_setting_that_is_wrong(stack):
    result = stack.ctl_run("list", "--log-level", "loud")
    assert result.returncode != 0 and "loud" in result.stderr


# A campaign's life


def test_the_life_of_a_campaign(stack, redis_client, make_coupon, gateway):
    coupon = make_coupon(10, publish=False)
    assert stack.ctl_run("pause", coupon).returncode == 1, "a draft cannot be paused"
    assert "published" in stack.ctl("publish", coupon)
    wait_until(lambda: status_in_redis(redis_client, coupon) == "open")
    assert stack.ctl_run("publish", coupon).returncode == 0, "again changes nothing"
    for command, status, in_redis in (
        ("pause", "paused", "paused"),
        ("resume", "published", "open"),
        ("close", "closed", "closed"),
    ):
        for _ in range(2):
            assert coupon in stack.ctl(command, coupon)
        assert show(stack, coupon)["postgresql"]["status"] == status
        assert status_in_redis(redis_client, coupon) == in_redis
    for command in ("publish", "pause", "resume"):
        result = stack.ctl_run(command, coupon)
        assert result.returncode == 1 and "is closed" in result.stderr, "closed is final"
    assert gateway.issue(coupon, 1)["code"] == 3


def test_stock_raises_and_lowers_but_not_below_what_is_taken(stack, gateway, make_coupon, pg):
    coupon = make_coupon(3)
    assert [gateway.issue(coupon, user, ack="issued")["code"] for user in (1, 2, 3, 4)] == [
        0,
        0,
        0,
        2,
    ]
    for _ in range(2):
        stack.ctl("stock", coupon, "--total", 4)
    assert [gateway.issue(coupon, user, key="k")["code"] for user in (4, 5)] == [0, 2]
    below = stack.ctl_run("stock", coupon, "--total", 3)
    assert below.returncode == 1 and "--total is 3: allowed is at least the 4" in below.stderr
    stack.ctl("stock", coupon, "--total", 10)
    stack.ctl("stock", coupon, "--total", 5)
    assert gateway.call("coupon", coupon=coupon)["total"] == 5
    assert gateway.call("coupon", coupon=coupon)["stock"] == 1
    assert [gateway.issue(coupon, user, key="k")["code"] for user in (5, 6)] == [0, 2]
    wait_until(
        lambda: pg.execute(
            "SELECT issued_num, total_num FROM coupon WHERE id = %s", (coupon,)
        ).fetchone()
        == (5, 5)
    )


def test_publishing_again_never_refills(stack, gateway, make_coupon):
    coupon = make_coupon(2)
    assert [gateway.issue(coupon, user, ack="issued")["code"] for user in (1, 2, 3)] == [0, 0, 2]
    stack.ctl("publish", coupon)
    assert gateway.issue(coupon, 3, key="k")["code"] == 2
    stack.ctl("pause", coupon)
    stack.ctl("resume", coupon)
    assert gateway.issue(coupon, 3, key="k")["code"] == 2
    assert show(stack, coupon)["redis"]["stock"] == 0


# show, list


def test_show_holds_postgresql_and_redis_side_by_side(stack, gateway, make_coupon):
    coupon = make_coupon(10)
    for user in (1, 2, 3):
        gateway.issue(coupon, user, ack="issued")
    wait_until(lambda: show(stack, coupon)["redis"]["outbox"] == 0)
    shown = show(stack, coupon)
    postgresql, redis = shown["postgresql"], shown["redis"]
    assert (postgresql["status"], postgresql["issued"], postgresql["rejected"]) == (
        "published",
        3,
        0,
    )
    assert (postgresql["seq"], postgresql["settled"], shown["in_flight"]) == (3, 3, 0)
    assert (redis["status"], redis["total"], redis["stock"], redis["taken"]) == ("open", 10, 7, 3)
    assert redis["verified"] is True and redis["generation"] == postgresql["generation"] == 1
    assert TIME.match(shown["created_at"]) and shown["begin"] is None
    text = stack.ctl("show", coupon)
    assert (
        "PostgreSQL" in text
        and re.search(r"^  stock +7$", text, re.M)
        and re.search(r"^  issued +3", text, re.M)
    )


def test_list(stack):
    coupons = [stack.ctl("create", "--name", f"list {n}", "--total", n) for n in (1, 2, 3)]
    lines = [
        json.loads(line)
        for line in stack.ctl(
            "list", "--json", "--after", int(coupons[0]) - 1, "--count", 3
        ).splitlines()
    ]
    assert [(line["coupon"], line["name"], line["total"], line["status"]) for line in lines] == [
        (coupon, f"list {n}", n, "draft") for n, coupon in enumerate(coupons, 1)
    ]
    text = stack.ctl("list", "--after", coupons[0], "--count", 2)
    assert coupons[1] in text and "list 3" in text and "list 1" not in text


# issue, status: over the gateway


def test_issue_and_status(stack, make_coupon):
    coupon = make_coupon(1)
    answer = json.loads(
        stack.ctl(
            "issue", "--coupon", coupon, "--user", 7, "--key", "k 1", "--ack", "issued", "--json"
        )
    )
    assert (answer["code"], answer["status"], answer["slot"]) == (0, "issued", 1)
    assert json.loads(stack.ctl("status", answer["receive"], "--json"))["status"] == "issued"
    of_user = json.loads(stack.ctl("status", "--coupon", coupon, "--user", 7, "--json"))
    assert [item["receive"] for item in of_user["receives"]] == [answer["receive"]]
    text = stack.ctl("status", answer["receive"])
    assert re.search(r"^status +issued$", text, re.M) and answer["receive"] in text
    lost = stack.ctl_run("issue", "--coupon", coupon, "--user", 8, "--json")
    assert lost.returncode == 1 and json.loads(lost.stdout)["status"] == "out_of_stock"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["issue", "--coupon", "1"], "--user"),
        (["issue", "--coupon", "042", "--user", "1"], '--coupon is "042"'),
        (
            ["issue", "--coupon", "1", "--user", "1", "--ack", "done"],
            '--ack is "done": allowed are accepted, queued and issued',
        ),
        (["issue", "--coupon", "1", "--user", "1", "--key", "é"], "--key is"),
        (["status", "1.2.3"], 'RECEIVE is "1.2.3"'),
        (["status"], "--coupon"),
    ],
)
def test_issue_and_status_refuse_what_the_gateway_would(stack, arguments, words):
    assert words in refused(stack, *arguments)


def test_without_a_gateway(stack):
    result = stack.ctl_run("issue", "--coupon", 1, "--user", 1, "--listen", "127.0.0.1:1")
    assert result.returncode == 10 and "127.0.0.1:1" in result.stderr and result.stdout == ""


# audit


def audit(stack, *arguments):
    """Its exit code and its result."""
    result = stack.ctl_run("audit", *arguments, "--json")
    return result.returncode, json.loads(result.stdout)


def test_audit_of_a_right_coupon(stack, gateway, make_coupon):
    coupon = make_coupon(10, limit=2)
    for user in (1, 2, 2):
        gateway.issue(coupon, user, ack="issued")
    wait_until(lambda: show(stack, coupon)["redis"]["outbox"] == 0)
    code, verdict = audit(stack, coupon)
    assert (code, verdict["passed"], verdict["audited"], verdict["wrong"]) == (0, True, 1, [])
    (found,) = verdict["coupons"]
    assert (
        found["total"],
        found["stock"],
        found["taken"],
        found["in_flight"],
        found["settled"],
    ) == (10, 7, 3, 0, True)
    assert stack.ctl("audit", coupon).splitlines()[-1] == "PASS: 1 coupon audited, 0 wrong"


def test_audit_takes_one_coupon_or_all(stack):
    assert "--all" in refused(stack, "audit")
    assert "--all" in refused(stack, "audit", "1001", "--all")
    assert stack.ctl_run("audit", 987654321).returncode == 9


# With Redis unreachable


def test_recorded_although_redis_could_not_be_told(rough, rough_pg, rough_redis):
    coupon = rough.coupon_make(10)
    rough_redis.config_set("maxmemory", 1)
    result = rough.ctl_run("pause", coupon)
    assert result.returncode == 3 and "Redis could not be updated" in result.stderr
    assert rough_pg.execute("SELECT status FROM coupon WHERE id = %s", (coupon,)).fetchone() == (
        "paused",
    )
    rough.stop("redis")
    lower = rough.ctl_run("stock", coupon, "--total", 5)
    assert (
        lower.returncode == 10 and "nothing was changed" in lower.stderr
    ), "only Redis holds the taken slots"
    rough.start("redis")
    with rough.client() as client:
        told = wait_until_told(client, coupon)
    assert told <= {"unavailable", "paused"}, "it must not open for a moment when Redis is back"


def test_a_total_is_not_lowered_by_what_an_unverified_redis_tells(rough):
    coupon = rough.coupon_make(10)
    rough.stop("worker-1")
    with redis.Redis.from_url(rough.env["REDIS_URL"], decode_responses=True) as client:
        client.hset("coupon:{%s}" % coupon, "run_id", "0" * 40)
        lower = rough.ctl_run("stock", coupon, "--total", 5)
        assert lower.returncode == 1 and "nothing was changed" in lower.stderr
        assert client.hget("coupon:{%s}" % coupon, "total") == "10"
    rough.start("worker-1")
    wait_until(lambda: rough.ctl_run("stock", coupon, "--total", 5).returncode == 0)


def wait_until_told(client, coupon):
    """With Redis unreachable until the end of the block."""
    told = set()
    wait_until(
        lambda: told.add(client.issue(coupon, len(told) + 1)["status"]) or told - {"unavailable"},
        interval=0.001,
    )
    return told


def test_a_change_is_counted_in_redis_before_redis_acts_on_it(rough, rough_redis, rough_pg):
    """Without a keeper: a PostgreSQL put back to before the change is noticed at once."""
    coupon = rough.coupon_make(3)
    wait_until(lambda: rough_redis.hget(f"coupon:{{{coupon}}}", "total") == "3")
    rough.stop("worker-1")
    rough.ctl("stock", coupon, "--total", 5)
    assert rough_redis.hget(f"coupon:{{{coupon}}}", "total") == "5"
    counts = rough_pg.execute("SELECT stripe, num FROM change_count").fetchall()
    copy = rough_redis.hgetall("couponmq:changes")
    timeline = copy.pop("timeline")  # another test may have promoted this server
    assert copy.pop("installation") and timeline.isdecimal()
    assert copy.pop(f"followed:{copy.pop('system')}") == timeline
    numbers = {stripe: num for stripe, num in copy.items() if stripe.isdecimal()}
    assert numbers == {str(stripe): str(num) for stripe, num in counts if num > 0}


# What cannot be undone


def asked(stack, answer, *words):
    """(exit status, output) of a command on a terminal, where this is typed when it asks."""
    pid, terminal = pty.fork()
    if pid == 0:
        program = str(stack.build_dir / "couponctl")
        os.execve(program, [program, *map(str, words)], {**os.environ, **stack.env})
    text = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # it has ended
            part = b""
        if not part:
            break
        text += part
        if answer is not None and text.endswith(b"(yes/no) "):
            os.write(terminal, answer)
            answer = None
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode()


def test_what_cannot_be_undone_is_asked_on_a_terminal(stack, make_coupon, tmp_path):
    """Scripts are not asked: all other tests are such."""

    def status(coupon):
        return json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["status"]

    def key_state():
        return json.loads(stack.ctl("key", "show", key, "--json"))["state"]

    def unused():
        return json.loads(stack.ctl("codes", "list", coupon, "--json"))["unused"]

    coupon = make_coupon(10)
    key = stack.ctl("key", "create", "--name", "asked", "--role", "issue").split("_")[1]
    path = tmp_path / "codes.csv"
    path.write_text(f"code\nASKED-{coupon}\n")
    made = json.loads(stack.ctl("codes", "import", coupon, path, "--json"))["set"]
    for words, question, state, before in (
        (("close", coupon), f"Coupon {coupon} will be closed for ever", lambda: status(coupon),
         "published"),
        (("key", "revoke", key), f"Key {key} will be revoked for ever", key_state, "active"),
        (("codes", "revoke", "--set", made), f"All codes of set {made} that are not used", unused,
         1),
    ):  # fmt: skip
        for answer in (b"no\n", b"\n", b"\x04", b"yesterday\n"):
            ended, told = asked(stack, answer, *words)
            assert ended == 1 and question in told, told
            assert "nothing was changed: the answer was not yes" in told
            assert state() == before
        ended, told = asked(stack, b"yes\n", *words)
        # 12: gateways that another test has killed may not know it
        assert ended in (0, 12) and question in told and state() != before, told
    other = make_coupon(10)
    ended, told = asked(stack, None, "close", other, "--yes")
    assert ended == 0 and "Go on?" not in told and status(other) == "closed"
    assert f"close {other}" in stack.ctl("history", "--count", 5)


@pytest.mark.parametrize("command, status", [("history", 10), ("pause", 12)])
def test_a_session_that_is_lost(stack, make_coupon, command, status):
    """What only reads has changed nothing, whenever its session with PostgreSQL is lost."""
    coupon = make_coupon(1)
    waiting = """SELECT pid FROM pg_stat_activity
        WHERE application_name = 'couponctl' AND wait_event_type = 'Lock'"""
    words = [str(stack.build_dir / "couponctl"), command, str(coupon)]
    with (
        psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as session,
        psycopg.connect(stack.env["DATABASE_ADMIN_URL"], autocommit=True) as other,
    ):
        session.execute("SELECT FROM coupon WHERE id = %s FOR UPDATE", (coupon,))
        session.execute("LOCK TABLE campaign_history IN ACCESS EXCLUSIVE MODE")
        with subprocess.Popen(
            words, env={**os.environ, **stack.env_of("operator")}, stderr=subprocess.PIPE, text=True
        ) as asked:
            wait_until(lambda: other.execute(waiting).fetchone())
            other.execute(waiting.replace("pid", "pg_terminate_backend(pid)", 1))
            told = asked.communicate(timeout=60)[1]
    assert asked.returncode == status and told.startswith("couponctl: PostgreSQL"), told


def test_an_option_chooses_what_a_command_does(stack, make_coupon):
    """It is found wherever it stands, but not where it is the value of another option."""
    coupon = make_coupon(1)
    for words in (("show", "--curve", coupon), ("show", coupon, "--curve", "--count=1")):
        assert "refused" in stack.ctl(*words).splitlines()[0]
    for words, told in (
        (("show", coupon, "--curve", "--recent"), "show --curve has no option --recent"),
        (("show", coupon, "--csv"), "show has no option --csv"),
        (("show", "--recent", coupon, "--after", 1), "show --recent has no option --after"),
        (("codes", "generate", coupon, "--word"), "--word needs a value"),
        (("codes", "generate", coupon, "--word", "a", "--count", 1), "has no option --count"),
        (("webhook", "show", 1, "--resend", "--deliveries"), "has no option --deliveries"),
        (("webhook", "show", 1, "--resend", "--delivery", "--deliveries"), '"--deliveries"'),
        (("webhook", "edit", 1, "--state", "enabled", "--why", "x"), '--why is "x"'),
        (("webhook", "edit", 1), "webhook edit needs --state"),
    ):
        assert told in refused(stack, *words), words


def test_pages(stack, gateway):
    """Each list goes on after the last one of a page, by what names it."""
    user, mark = f"pages-{os.getpid()}", os.urandom(6).hex()
    coupons = [stack.coupon_make(5) for _ in "ab"]
    for n, coupon in enumerate(coupons):
        gateway.issue(coupon, user, ack="issued")
        stack.ctl("codes", "generate", coupons[0], "--word", f"{mark}{n}")
        stack.ctl("key", "create", "--name", "x", "--role", "read")
        stack.ctl("budget", "create", f"{mark}.{n}", "--amount", 1, "--currency", "JPY")
    hooks = [stack.ctl("webhook", "create", "https://shop.example/").split()[1] for _ in "ab"]
    for words, member in (
        (("list",), "coupon"),
        (("history",), "id"),
        (("history", coupons[0]), "id"),
        (("receive", "list", "--user", user), "receive"),
        (("key", "list"), "key"),
        (("budget", "list"), "name"),
        (("webhook", "list"), "webhook"),
        (("codes", "list", coupons[0]), "set"),
    ):

        def listed(*options, words=words):
            told = [json.loads(line) for line in stack.ctl(*words, "--json", *options).splitlines()]
            return told[0]["sets"] if words[0] == "codes" else told

        whole = [one[member] for one in listed()]
        first = listed("--count", 1)[0][member]
        (second,) = listed("--count", 1, "--after", first)
        assert len(whole) >= 2 and whole[:2] == [first, second[member]], words
    for hook in hooks:
        stack.ctl("webhook", "remove", hook)
    assert "allowed is a receive of the user" in refused(
        stack, "receive", "list", "--user", user, "--after", "1.x.y.0"
    )
