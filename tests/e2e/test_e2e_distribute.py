"""`couponctl distribute`: each listed user gets the coupon once, and who does not is named."""

import json
import random
import signal
import socketserver
import threading
import time
from contextlib import contextmanager

import pytest

from giving import (
    DONE,
    AWAY,
    FAILED,
    KEY,
    REFUSED,
    STOPPED,
    WRONG,
    Giving,
    ended,
    given,
    list_write,
)
from kill import killed
from seed import SEED
from stack import wait_until
from user_ids import BAD, HOSTILE

MANY = [str(user) for user in range(1, 30_001)]
LINES = ("--format", "lines")  # ids with commas and semicolons


@pytest.fixture
def users(tmp_path):
    """users(IDS, end="\\n", name="users"): the path of a list."""
    return lambda ids, end="\n", name="users": list_write(tmp_path / name, ids, end)


def test_each_listed_user_gets_one(stack, make_coupon, pg, users):
    coupon = make_coupon(1000, limit=3)
    giving = Giving(
        stack, coupon, users(["\xef\xbb\xbf7", "", *HOSTILE, "", "8"], end="\r\n"), *LINES
    )
    told = giving.run()
    n = len(HOSTILE) + 2
    assert (told["listed"], told["issued"], told["issued_before"]) == (n, n, 0)
    assert told["finished"] and told["refused"] == {} and giving.refused() == []
    assert given(pg, coupon) == {user: [KEY] for user in ("7", *HOSTILE, "8")}
    # Again: it has ended, and asks for nothing.
    giving.env["COUPON_LISTEN"] = "127.0.0.1:1"
    again = giving.run()
    assert (again["issued"], again["issued_before"]) == (n, n)


def test_the_report(stack, make_coupon, users):
    giving = Giving(stack, make_coupon(2), users(["1", "2", "3", "3", "\x01"]))
    out, err, code = ended(giving.start())
    assert code == REFUSED and "distributing: 100 %" in err
    counts = [line.split() for line in out.splitlines()[1:6]]
    assert counts == [["listed", "5"], ["issued", "2"], ["out_of_stock", "1"], ["invalid", "1"],
                      ["duplicate", "1"]]  # fmt: skip
    assert f"are in {giving.file('refused.csv')}" in out and "users/s" in out


def test_refused_users_are_named_with_the_reason(stack, make_coupon, gateway, pg, users):
    coupon = make_coupon(1000)
    assert gateway.issue(coupon, "5", ack="issued")["code"] == 0
    ids = ["4", "5", "", "a b", "4", "=1+1", "x" * 65, 'a"b,', "é".encode().decode("latin-1"), "6",
           "\xe9"]  # fmt: skip
    giving = Giving(stack, coupon, users(ids), *LINES)
    told = giving.run(status=REFUSED)
    assert told["refused"] == {"limit_reached": 1, "invalid": 4, "duplicate": 1}
    assert giving.refused() == [
        ["5", "2", "limit_reached", "the user already has the maximum number of this coupon"],
        ["a b", "4", "invalid",
         "byte 2 is not allowed: must be 1 to 64 bytes of printable ASCII without spaces"],
        ["4", "5", "duplicate", "the user is listed before"],
        ["x" * 65, "7", "invalid",
         "has 65 bytes: must be 1 to 64 bytes of printable ASCII without spaces"],
        ["é", "9", "invalid",
         "byte 1 is not allowed: must be 1 to 64 bytes of printable ASCII without spaces"],
        ["\\xe9", "11", "invalid",
         "byte 1 is not allowed: must be 1 to 64 bytes of printable ASCII without spaces"],
    ]  # fmt: skip
    assert set(given(pg, coupon)) == {"4", "5", "=1+1", 'a"b,', "6"}


def test_no_bad_line_stops_the_others(stack, make_coupon, pg, users):
    bad = [user for user, _ in BAD if "\n" not in user and "\r" not in user and user]
    coupon = make_coupon(1000)
    giving = Giving(
        stack, coupon, users([part for user in bad for part in (user, hash(user))]), *LINES
    )
    assert giving.run(status=REFUSED)["refused"] == {"invalid": len(bad)}
    assert [int(line) for _, line, *_ in giving.refused()] == list(range(1, 2 * len(bad), 2))
    assert len(given(pg, coupon)) == len(bad)


def test_a_rejected_receive_is_refused(stack, make_coupon, pg, users):
    """PostgreSQL has a row that Redis does not have."""
    coupon = make_coupon(100)
    with pg.transaction():
        pg.execute(
            """INSERT INTO user_coupon
                (user_id, coupon_id, slot, batch, idx, received_at, valid_from)
            VALUES ('2', %s, 1, gen_random_uuid(), 0, now(), now())""",
            (coupon,),
        )
        pg.execute("UPDATE coupon SET issued_num = 1 WHERE id = %s", (coupon,))
    giving = Giving(stack, coupon, users(["1", "2", "3"]))
    assert giving.run(status=REFUSED)["refused"] == {"rejected": 1}
    assert giving.refused() == [["2", "2", "rejected", "slot_taken"]]


# Lists


def test_the_column_of_the_users(stack, make_coupon, pg, users):
    coupon = make_coupon(100)
    rows = ["User_ID,name", '1,"two\r\nlines, and ""quotes"""', '"a,b",x', '"""q""",', "2,;",
            ",none", "", "3 ,x", "user,x", ",", '";c",x']  # fmt: skip
    giving = Giving(stack, coupon, users(rows, end="\r\n", name="users.csv"))
    assert giving.run(status=REFUSED)["refused"] == {"invalid": 2}
    assert set(given(pg, coupon)) == {"1", "a,b", '"q"', "2", "user", ";c"}
    assert [(user, line) for user, line, *_ in giving.refused()] == [("", "7"), ("3 ", "9")]


@pytest.mark.parametrize(
    "name, rows, options",
    [
        ("x.csv", ["name,user", "Miller,1", "Smith,2"], ()),
        ("x.csv", ["user;name", "1;Smith, A.", '2;"x;y"'], ("--delimiter", "semicolon")),
        ("x.csv", ["name;USER_ID;", "x;1;", "x;2;", ";;"], ("--delimiter", ";")),
        ("x.csv", ["sep=;", "n;user", "x;1", "x;2"], ("--delimiter", "semicolon")),
        ("x.txt", ["name\t user ", "x\t1", "x\t2"], ("--delimiter", "tab")),
        ("x.tsv", ["name\tuser", "x,y\t1", "x;y\t2"], ()),
        ("x.CSV", ["user", "1", "2"], ()),
        ("x.csv", ["Customer-ID,user", "1,a", "2,b"], ("--column", "customer-id")),
        ("x.csv", ["1", "2"], ("--no-heading",)),
        ("x.csv", ["a,1", "b,2"], ("--no-heading", "--column", "2")),
        ("x", ["User_id", "1", "2"], ()),
        ("x", ["User", "1", "2"], ()),
        ("x", ["customer_id", "1", "2"], ("--column", "Customer_ID")),
        ("x", ["user", "1", "2"], ("--format", "csv")),
        ("x.jsonl", ['\xef\xbb\xbf{"user":"1","name":"a,b","x":1.5}', "", '{"user_id":2}'], ()),
        ("x", ['{"id":"1"}', ' {"id":"2","user":"3"}'], ("--format", "jsonl", "--column", "id")),
    ],
)
def test_each_way_to_list_two_users(stack, make_coupon, pg, users, name, rows, options):
    coupon = make_coupon(10)
    giving = Giving(stack, coupon, users(rows, name=name), *options)
    assert giving.run()["listed"] == 2
    assert set(given(pg, coupon)) == {"1", "2"}


def test_users_that_look_like_a_heading(stack, make_coupon, pg, users):
    coupon = make_coupon(100)
    lists = (["user", "1"], ["E-Mail", "a@x.org"], ["Kunde", "2"], ["user;name"], ["sep=;"],
             ["customer_id"])  # fmt: skip
    for n, ids in enumerate(lists):
        path = users(ids, name=str(n))
        Giving(stack, coupon, path, "--no-heading", *LINES).run("--name", n)
    assert set(given(pg, coupon)) == {user for ids in lists for user in ids}


NO_HEADING = "add --column NAME if it is one, or --no-heading if it lists a user; nothing was begun"


@pytest.mark.parametrize(
    "name, rows, options, told",
    [
        ("x.csv", ["user;name", "1001;Smith"], (),
         '"{path}", line 1 "user;name": it has a semicolon, and a comma is expected between'
         " columns: add --delimiter semicolon"),
        ("x.csv", ["user,name", "1,x"], ("--delimiter", "semicolon"), "it has a comma, and a semi"),
        ("x.csv", ["user\tname", "1\tx"], (), 'line 1 "user\\x09name": it has a tab'),
        ("x.csv", ["user", "1", "2;x"], (), 'line 3 "2;x": it has a semicolon'),
        ("x.csv", ["1;x"], ("--no-heading",), 'line 1 "1;x": it has a semicolon'),
        ("x.csv", ["name;a,b;user", "x;y,z;1"], (),
         'line 1: the columns are "name;a", "b;user", and none is user or user_id: add --column'
         " NAME if this is a heading, or --no-heading if it lists a user, or another --delimiter:"
         " the line has a semicolon"),
        ("x.csv", ["customer_id,name", "1,x"], (),
         'line 1: the columns are "customer_id", "name", and none is user or user_id'),
        ("x.csv", ["Email", "a@x.org"], (), 'the columns are "Email", and none is user'),
        ("x.csv", ["1001", "1002"], (), 'the columns are "1001", and none is user'),
        ("x.csv", ["user,user_id", "x,1"], (),
         'the columns are "user", "user_id": more than one of them is user or user_id; name one'),
        ("x.csv", ["user,x", "1,y"], ("--column", "y"), 'columns are "user", "x", and none is y'),
        ("x.csv", ["a,a", "1,2"], ("--column", "a"), "more than one of them is a"),
        ("x.csv", ["1,x", "2,y"], ("--no-heading",), "2 columns were read: with --no-heading name"),
        ("x.csv", ["1,x"], ("--no-heading", "--column", "3"), "by its number, --column 1 to 2"),
        ("x.csv", ["sep=;", "user;x", "1;2"], (),
         'line 1 "sep=;": it says that a semicolon is between columns, and a comma is expected: add'
         " --delimiter semicolon"),
        ("x.csv", ["user,name", "1,x", "2,Smith, J."], (),
         'line 3 "2,Smith, J.": 3 columns were read, separated by a comma, and 2 in line 1'),
        ("x.csv", ["user,name", "1,x", "2"], (), 'line 3 "2": 1 columns were read'),
        ("x", ["user;name", "1001;Smith"], (),
         'line 1 "user;name": it has a semicolon: add --delimiter semicolon if that is between'
         " columns, or --format lines if it belongs to the user"),
        ("x", ["1,x"], (), 'line 1 "1,x": it has a comma'),
        ("x", ["1", "2\tx"], (), 'line 2 "2\\x09x": it has a tab'),
        ("x", ["sep=;", "1"], (), 'line 1 "sep=;": it has a semicolon'),
        ("x", ["customer_id", "a", "b"], (), 'line 1 "customer_id": this looks like a heading: '),
        ("x", ["Email", "a@x.org"], LINES, 'line 1 "Email": this looks like a heading: '),
        ("x", ["E-Mail", "a"], (), 'line 1 "E-Mail": this looks like a heading: ' + NO_HEADING),
        ("x", ["", "Kundennummer", "1", "a2"], (),
         'line 2: "Kundennummer" has no digit, and all other lines have one: it looks like a'
         " heading: " + NO_HEADING),
        ("x", ["Post1", "a@x.org", "b@x.org"], (), '"Post1" has no @, and all other lines have'),
        ("x", ["a", "1"], ("--column", "user"), 'line 1 "a": --column is "user", which it is not'),
        ("x", ["user"], (), "which has no users"),
        ("x", ["1"], ("--delimiter", "|"), '--delimiter is "|": allowed are comma, semicolon and'),
        ("x", ["1"], ("--delimiter", "tab", *LINES), "--delimiter is given with --format lines"),
        ("x.jsonl", ['{"user":"1"}', '{"id":"2"}'], (),
         'line 2 "{{"id":"2"}}": allowed is an object with one user or user_id, a text or an'),
        ("x.jsonl", ['{"user":"1","user_id":"2"}'], (), "an object with one user or user_id, a"),
        ("x.jsonl", ['{"user":1,"user_id":2}'], (), "an object with one user or user_id"),
        ("x.jsonl", ['{"user":"1"}', '{"user":2.5}'], (), "allowed is an object with one user or"),
        ("x.jsonl", ['{"user":9007199254740993}'], (), "allowed is an object with one user or"),
        ("x.jsonl", ['{"user":true}'], (), "allowed is an object with one user or user_id"),
        ("x.jsonl", ['["1"]'], (), "allowed is an object with one user or user_id, a text"),
        ("x.jsonl", ['{"user":"1"}', '{"user":"2"'], (), 'line 2 "{{"user":"2"": '),
        ("x.jsonl", ['{"user":"1"}'], ("--column", "id"), "an object with one id, a text"),
        ("x.jsonl", ['{"user":"1"}'], ("--no-heading",), "allowed are lines and csv"),
        ("x.jsonl", ['{"user":"1"}'], ("--delimiter", "tab", "--format", "jsonl"),
         "--delimiter is given with --format jsonl: allowed is csv"),
    ],
)  # fmt: skip
def test_a_list_that_is_not_what_it_is_taken_for(
    stack, make_coupon, users, name, rows, options, told
):
    """Nobody gets a coupon, also of the users that are listed rightly."""
    path = users(rows, name=name)
    giving = Giving(stack, make_coupon(10), path, *options)
    assert told.format(path=path) in giving.run(status=WRONG)
    assert giving.issued() == 0 and not giving.file("refused.csv").exists()


@pytest.mark.parametrize("name", ["x", "x.csv", "x.jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_named(stack, make_coupon, tmp_path, name, encoding):
    path = tmp_path / name
    path.write_bytes("user\r\n1001\r\n".encode(encoding))
    giving = Giving(stack, make_coupon(10), path)
    assert "the file is in UTF-16: save it as UTF-8; nothing was begun" in giving.run(status=WRONG)
    assert giving.issued() == 0


@pytest.mark.long
def test_repeats(stack, make_coupon, pg, users):
    coupon = make_coupon(1000, limit=3)
    giving = Giving(stack, coupon, users(["a", "b", "a", "a", "a", "b"]), "--repeats")
    assert giving.run(status=REFUSED)["refused"] == {"limit_reached": 1}
    keys = [f"distribute/1/{repeat}" for repeat in range(1, 5)]
    rows = given(pg, coupon)
    assert len(rows["a"]) == 3 and set(rows["a"]) < set(keys)
    assert sorted(rows["b"]) == keys[:2]
    # Again, with the same keys.
    assert giving.run(status=REFUSED)["issued_before"] == 5
    assert given(pg, coupon) == rows
    often = Giving(
        stack, make_coupon(500, limit=100), users(["x"] * 102, name="often"), "--repeats"
    )
    assert often.run(status=REFUSED)["refused"] == {"duplicate": 2}


def test_another_name_gives_another_coupon(stack, make_coupon, pg, users):
    coupon = make_coupon(1000, limit=2)
    giving = Giving(stack, coupon, users(["1", "2"]))
    giving.run()
    other = users(["2", "1", "3"], name="other")  # by the key, not by the list
    assert Giving(stack, coupon, other).run()["issued_before"] == 2
    giving.run("--name", "May_2.round-x")
    assert given(pg, coupon) == {"1": [KEY, "distribute/May_2.round-x/1"],
                                 "2": [KEY, "distribute/May_2.round-x/1"], "3": [KEY]}  # fmt: skip
    assert giving.run("--name", "3", status=REFUSED)["refused"] == {"limit_reached": 2}
    assert len(giving.refused(name=3)) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "options, message",
    [
        ((), "--users; see couponctl distribute --help"),
        (("--users", "/nowhere/x"), '"/nowhere/x", which cannot be read: No such file'),
        (("--users", "/"), 'is "/", which'),
        (("--users", "/dev/null"), '"/dev/null", which is no file: allowed is the path of a file'),
        (("--users", "{empty}"), "which has no users"),
        (("--users", "{quote}"), "line 2: a quoted cell does not end before the end of the file;"),
        (("--users", "{after}"), 'line 2 ""1"2": a quote is neither at the end of its cell'),
        (("--users", "{good}", "--format", "xml"), '"xml": allowed are lines, csv and jsonl'),
        (("--users", "{good}", "--name", ""), '--name is "": allowed are 1 to 40 letters'),
        (("--users", "{good}", "--name", "a/b"), '--name is "a/b": allowed are 1 to 40 letters'),
        (("--users", "{good}", "--name", "n" * 41), "allowed are 1 to 40 letters"),
        (("--users", "{good}", "--refused", ""), '--refused is "": allowed is the path'),
        (("--users", "{good}", "--refused", "-"), "path of a file, and - with --json"),
        (("--users", "{good}", "--rate", "0"), "allowed is an integer from 1 to 10000000"),
        (("--users", "{good}", "--delay-ms", "0"), "allowed is an integer from 1 to 60000"),
        (("--users", "{good}", "--connections", "65"), "allowed is an integer from 1 to 64"),
        (("--users", "{good}", "--patience-s", "x"), "allowed is an integer from 1 to 2592000"),
    ],
)
def test_wrong_options_and_lists(stack, make_coupon, users, options, message):
    lists = {
        "empty": users(["", ""], name="empty"),
        "quote": users(["user", '"2', "3"], name="quote.csv"),
        "after": users(["user", '"1"2'], name="after.csv"),
        "good": users(["1"], name="good"),
    }
    words = [option.format(**lists) for option in options]
    result = stack.ctl_run("distribute", make_coupon(10), *words)
    assert (result.returncode, result.stdout) == (WRONG, ""), result
    assert result.stderr.startswith("couponctl: ") and message in result.stderr, result.stderr


def test_wrong_coupons(stack, users):
    path = users(["1"])
    draft = stack.coupon_make(10, publish=False)
    for coupon, status, message in (
        ("0", WRONG, 'ID is "0": allowed is an integer'),
        ("999999999", 9, "there is no coupon 999999999"),
        (draft, FAILED, "is a draft: publish it first"),
    ):
        giving = Giving(stack, coupon, path)
        assert message in giving.run(status=status)
        assert not giving.file("refused.csv.part").exists()


def test_a_coupon_that_is_over(stack, make_coupon, users):
    coupon = make_coupon(10)
    stack.ctl("close", coupon)
    assert Giving(stack, coupon, users(["1", "2"])).run(status=REFUSED)["refused"] == {"ended": 2}


# The file of a run


def test_only_a_file_of_refused_users_is_replaced(stack, make_coupon, users, tmp_path):
    giving = Giving(stack, make_coupon(10), users(["1", "2", "2"]))
    for path, message, status in (
        (giving.path, "exists but is not a file of refused users", WRONG),
        ("/no/n", "cannot be written: No such file", 1),
        ("/dev/full", "cannot be written: it is not a regular file", 1),
    ):
        assert message in giving.run("--refused", path, status=status)
    assert giving.path.read_text() == "1\n2\n2\n" and giving.issued() == 0
    refused = tmp_path / "refused"
    refused.touch()
    for _ in range(2):
        assert giving.run("--refused", refused, status=REFUSED)["issued"] == 2
    assert refused.read_text() == (
        "user,line,status,message\n2,3,duplicate,the user is listed before\n"
    )
    again = Giving(stack, giving.coupon, refused, "--format", "csv")
    assert "is the list: name another file" in again.run("--refused", refused, status=WRONG)
    assert refused.read_text().endswith("2,3,duplicate,the user is listed before\n")


def test_a_spreadsheet_takes_no_refused_user_for_a_formula(stack, make_coupon, users):
    giving = Giving(
        stack, make_coupon(10), users(["=1+1", "-1", '=X("a",1) b', "1=1", "=1+1"]), *LINES
    )
    assert giving.run(status=REFUSED)["issued"] == 3
    assert [row[0] for row in giving.refused()] == ['=X("a",1) b', "=1+1"]
    giving.run("--spreadsheet", status=REFUSED)
    assert [row[0] for row in giving.refused()] == ['\'=X("a",1) b', "'=1+1"]


@pytest.mark.long
def test_two_runs_at_once(stack, make_coupon, pg, users, tmp_path):
    """With one file of refused users in common they exclude each other; otherwise keys do."""
    giving = Giving(stack, make_coupon(50_000, limit=2), users(MANY), "--rate", 5000)
    process = giving.start()
    wait_until(lambda: giving.issued() > 0)
    assert "another couponctl is writing it" in giving.run(status=AWAY)
    Giving(stack, giving.coupon, giving.path).run("--refused", tmp_path / "other")
    assert ended(process)[2] == DONE
    assert given(pg, giving.coupon) == {user: [KEY] for user in MANY}


# Again


@pytest.mark.long
def test_killed_at_any_moment(stack, make_coupon, pg, users):
    coupon = make_coupon(100_000, limit=3)
    ids = [*MANY, "not valid"] + MANY[:5]
    giving = Giving(stack, coupon, users(ids), "--rate", 15_000)
    for _ in killed(giving.start, random.Random(SEED), 5, 1.2):
        pass
    told = giving.run(status=REFUSED)
    assert (told["issued"], told["finished"]) == (len(MANY), True)
    assert [row[1:3] for row in giving.refused()] == [["30001", "invalid"]] + [
        [str(30_002 + i), "duplicate"] for i in range(5)
    ]
    assert given(pg, coupon) == {user: [KEY] for user in MANY}


def test_what_was_taken_back_is_not_given_again(stack, make_coupon, pg, users):
    for returns in ("yes", "no"):
        coupon = make_coupon(10, void_returns=returns)
        giving = Giving(stack, coupon, users(["1", "2"]))
        giving.run()
        stack.ctl("void", "--coupon", coupon, "--user", 1)
        users(["1", "2", "3"])
        told = giving.run()
        assert (told["issued"], told["issued_before"]) == (3, 2)
        assert set(given(pg, coupon)) == {"2", "3"} | ({"1"} if returns == "no" else set())
        assert giving.run("--name", 2, status=REFUSED)["issued"] == (1 if returns == "yes" else 0)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(stack, make_coupon, pg, users, number):
    coupon = make_coupon(50_000, limit=2)
    giving = Giving(stack, coupon, users(MANY), "--rate", 5000)
    process = giving.start()
    wait_until(lambda: giving.issued() > 0)
    process.send_signal(number)
    out, err, code = ended(process)
    assert code == STOPPED and "run the same command again to go on" in err
    # What was in flight is settled.
    settled = len(given(pg, coupon))
    assert 0 < settled < len(MANY)
    assert ["left", f"{len(MANY) - settled:,}"] in [line.split() for line in out.splitlines()]
    giving.options = ()
    assert giving.run()["issued_before"] == settled
    assert given(pg, coupon) == {user: [KEY] for user in MANY}


def test_no_faster_than_the_rate(stack, make_coupon, users):
    told = Giving(stack, make_coupon(50_000), users(MANY[:3000]), "--rate", 3000).run()
    assert told["issued"] == 3000 and told["rate"] <= 3150


@pytest.mark.long
def test_sold_out_on_the_way(stack, make_coupon, pg, users):
    coupon = make_coupon(10_000, limit=2)
    giving = Giving(stack, coupon, users(MANY))
    assert giving.run(status=REFUSED)["refused"] == {"out_of_stock": 20_000}
    rows = given(pg, coupon)
    assert len(rows) == 10_000
    assert [row[0] for row in giving.refused()] == [user for user in MANY if user not in rows]
    # More stock: the file of refused users is a list, too.
    stack.ctl("stock", coupon, "--total", 40_000)
    rest = Giving(stack, coupon, giving.file("refused.csv")).run()
    assert (rest["listed"], rest["issued"], rest["issued_before"]) == (20_000, 20_000, 0)
    assert given(pg, coupon) == {user: [KEY] for user in MANY}


@pytest.mark.long
def test_a_pause_makes_it_wait(stack, make_coupon, users):
    coupon = make_coupon(50_000)
    giving = Giving(stack, coupon, users(MANY), "--rate", 15_000)
    process = giving.start()
    wait_until(lambda: giving.issued() > 0)
    stack.ctl("pause", coupon)
    assert "waiting: the gateway answers paused" in next(
        line for line in process.stderr if "waiting" in line
    )
    impatient = Giving(stack, coupon, users(["x"], name="x"), "--patience-s", 1)
    out, err, code = ended(impatient.start())
    assert code == STOPPED and "for --patience-s: the gateway answers paused: the campaign" in err
    assert ["left", "1"] in [line.split() for line in out.splitlines()]
    stack.ctl("resume", coupon)
    assert ended(process)[2] == DONE
    impatient.run()


# Gateways that are none


@contextmanager
def gateway_of(answer):
    """A server that answers each line with answer(request). Yields its address."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(answer(json.loads(line)).encode() + b"\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "answer, message",
    [
        ('{{"id":{id},"code":1,"status":"not_found","message":"no"}}',
         "stopped: the gateway answers not_found: no such coupon or receive"),
        ('{{"id":{id},"code":40,"status":"bad_request","message":"no"}}',
         "stopped: the gateway answers bad_request"),
        ('{{"id":{id},"code":77,"status":"new","message":"no"}}',
         "stopped: the gateway answers with code 77, which is not known"),
        ('{{"id":99999,"code":0,"status":"ok"}}', "stopped: the gateway sends what is no answer"),
        ("HTTP/1.1 400 Bad Request", "stopped: the gateway sends what is no answer: HTTP/1.1 400"),
    ],
)  # fmt: skip
@pytest.mark.plain
def test_answers_that_end_it(stack, make_coupon, users, answer, message):
    with gateway_of(lambda request: answer.format(**request)) as address:
        giving = Giving(stack, make_coupon(10), users(["1"]), "--connections", 1, listen=address)
        out, err, code = ended(giving.start())
    assert code == FAILED and message in err, err
    assert ["left", "1"] in [line.split() for line in out.splitlines()]
    assert giving.issued() == 0


@pytest.mark.long
@pytest.mark.plain
def test_each_request_has_its_key(stack, make_coupon, users):
    """A request is repeated unchanged after each answer that decides nothing."""
    seen, undecided = {}, [("busy", 20), ("unavailable", 21), ("unknown", 22), ("not_started", 5),
                           ("rate_limited", 23)]  # fmt: skip

    def answer(request):
        asked = seen.setdefault(request["user"], [])
        asked.append({name: request[name] for name in request if name != "id"})
        status, code = (undecided + [("issued", 0)])[len(asked) - 1]
        return json.dumps({"id": request["id"], "code": code, "status": status, "receive": "x",
                           "slot": 1}, separators=(",", ":"))  # fmt: skip

    coupon, ids = make_coupon(10), ["1", 'a"\\b', "9" * 64]
    with gateway_of(answer) as address:
        giving = Giving(stack, coupon, users(ids), "--name", "n" * 40, listen=address)
        assert giving.run("--connections", 2)["issued"] == 3
    for user in ids:
        wanted = {"op": "issue", "coupon": coupon, "user": user, "ack": "issued"}
        assert seen[user] == [{**wanted, "key": f"distribute/{'n' * 40}/1"}] * 6


@pytest.mark.plain
def test_it_waits_as_long_as_it_is_told(stack, make_coupon, users):
    """By `retry_after_ms`, which is longer than its own first waits."""
    times = []

    def answer(request):
        times.append(time.monotonic())
        said = {"id": request["id"], "code": 0, "status": "issued", "receive": "x", "slot": 1}
        if len(times) == 1:
            said = {"id": request["id"], "code": 23, "status": "rate_limited",
                    "retry_after_ms": 1500, "message": "x"}  # fmt: skip
        return json.dumps(said, separators=(",", ":"))

    with gateway_of(answer) as address:
        giving = Giving(stack, make_coupon(10), users(["1"]), listen=address)
        assert giving.run("--connections", 1)["issued"] == 1
    assert len(times) == 2 and times[1] - times[0] >= 1.5


@pytest.mark.plain
def test_a_key_that_redis_had_lost(stack, make_coupon, users):
    """PostgreSQL rejects the second receive of the key: the user has the first."""
    text = '{{"id":{id},"code":9,"status":"rejected","receive":"x","slot":1,"reason":"{reason}"}}'
    reasons = iter(("key_taken", "lost", "new_reason"))
    with gateway_of(lambda request: text.format(reason=next(reasons), **request)) as address:
        giving = Giving(stack, make_coupon(10), users(["1", "2", "3"]), listen=address)
        told = giving.run("--connections", 1, status=REFUSED)
    assert (told["issued"], told["refused"]) == (1, {"rejected": 2})
    assert sorted(row[3] for row in giving.refused()) == [
        "lost", "the accepted receive could not be issued"
    ]  # fmt: skip
