"""Names, reasons and metadata: what is refused at the door, and what a terminal gets of what is
there all the same."""

import json

import pytest

CONTROLS = ["\n", "\r", "\t", "\x1b[2J", "\x7f", "\x9b31m"]


@pytest.fixture
def draft(stack):
    return stack.coupon_make(10, publish=False)


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize(
    "words, option",
    [
        (("create", "--total", 1, "--name"), "--name"),
        (("create", "--total", 1, "--name", "x", "--by"), "--by"),
        (("void", "1.u.01ARZ3NDEKTSV4RRFFQ69G5FAV.0", "--why"), "--why"),
        (("webhook", "edit", "1", "--why"), "--why"),
        (("budget", "show"), "NAME"),
    ],
    ids=["name", "by", "why", "webhook why", "argument"],
)
def test_control_characters_are_refused_at_the_door(stack, words, option, control):
    told = stack.ctl_run(*words, f"a{control}b")
    assert told.returncode == 2 and told.stdout == ""
    assert told.stderr.count("\n") == 1 and "\x1b" not in told.stderr and "\x9b" not in told.stderr
    assert told.stderr.startswith(f'couponctl: {option} is "a\\x')
    assert told.stderr.endswith("allowed is text in UTF-8 without control characters\n")


def test_bytes_that_are_no_utf8_are_refused(stack):
    told = stack.ctl_run(
        "create",
        "--total",
        1,
        "--name",
        b"Gr\xf6\xdfe".decode(errors="surrogateescape"),
        errors="replace",
    )
    assert told.returncode == 2 and "--name is" in told.stderr and "UTF-8" in told.stderr


@pytest.mark.parametrize(
    "text, why",
    [
        ('{"a":01}', "--metadata is"),
        ('{"a":1,"a":2}', "--metadata is"),
        ('{"a":+1}', "--metadata is"),
        ('{"a":.5}', "--metadata is"),
        ('{"a":1e999999}', "exponent"),
        ('{"a":1e-20000}', "exponent"),
        ('{"a":NaN}', "--metadata is"),
        ('{"a":1} x', "--metadata is"),
        ('{"a":"\\\\u0000"}', "--metadata is"),
        ('{"a":"\\\\ud800"}', "--metadata is"),
        ('{"a":"x\\\\ny"}', "without control characters"),
        ('{"a":["\\\\u001b[2J"]}', "without control characters"),
        ('{"a\\\\u009b":1}', "without control characters"),
        ("[]", "allowed is a JSON object"),
        ("", "allowed is a JSON object"),
    ],
)
def test_metadata_that_is_refused(stack, draft, text, why):
    text = text.replace("\\\\", "\\")
    for words in (("create", "--name", "x", "--total", 1), ("edit", draft, "--version", 1)):
        told = stack.ctl_run(*words, "--metadata", text)
        assert told.returncode == 2, told.stderr
        assert why in told.stderr and "PostgreSQL" not in told.stderr


@pytest.mark.parametrize(
    "text", ['{"a": 12345678901234567890.000000000000000001}', '{\n\t"e": "1e999",\n\t"b": 1E+5}']
)
def test_metadata_that_is_stored(stack, pg_owner, text):
    coupon = stack.ctl("create", "--name", "x", "--total", 1, "--metadata", text)
    assert pg_owner.execute(
        "SELECT metadata = %s::jsonb FROM coupon WHERE id = %s", (text, coupon)
    ).fetchone() == (True,)


def test_what_is_there_is_escaped_on_the_way_out(stack, pg_owner, draft):
    """Stored by other means, or before it was refused."""
    pg_owner.execute(
        "UPDATE coupon SET name = %s, metadata = %s::jsonb WHERE id = %s",
        ("a\nissuing\x1b[2J\x9b31m", json.dumps({"k": "\x7f\x9b"}), draft),
    )
    for words in (("list", "--after", int(draft) - 1, "--count", 1), ("show", draft)):
        text = stack.ctl(*words)
        assert "a\\x0aissuing\\x1b[2J\\xc2\\x9b31m" in text
        assert not set("\x1b\x7f\x9b") & set(text)
        assert not set("\x1b\x7f\x9b") & set(stack.ctl(*words, "--json"))
    shown = json.loads(stack.ctl("show", draft, "--json"))
    assert (shown["name"], shown["metadata"]) == ("a\nissuing\x1b[2J\x9b31m", {"k": "\x7f\x9b"})


@pytest.mark.parametrize("option", ["--end", "--begin"])
def test_a_time_beyond_the_year_9999(stack, option):
    words = ("create", "--name", "x", "--total", 1)
    told = stack.ctl_run(*words, option, "9999-12-31T23:59:59-01:00")
    assert told.returncode == 2 and f"{option} is" in told.stderr and "up to 9999" in told.stderr
    coupon = stack.ctl(*words, option, "9999-12-31T23:59:59Z")
    shown = json.loads(stack.ctl("show", coupon, "--json"))
    assert shown[option[2:]] == "9999-12-31T23:59:59.000Z"


@pytest.mark.parametrize("name", ["none", "None", "NULL"])
def test_reserved_words_are_no_budgets(stack, pg_owner, name):
    told = stack.ctl_run("budget", "create", name, "--amount", "5", "--currency", "EUR")
    assert told.returncode == 2 and f'NAME is "{name}"' in told.stderr
    assert pg_owner.execute("SELECT FROM budget WHERE lower(name) = 'none'").fetchall() == []


def test_an_empty_budget_is_no_budget(stack, draft):
    told = stack.ctl_run("create", "--name", "x", "--total", 1, "--budget", "")
    assert told.returncode == 2 and '--budget is ""' in told.stderr
    told = stack.ctl_run("edit", draft, "--version", 1, "--budget", "")
    assert told.returncode == 2 and '--budget is ""' in told.stderr


@pytest.mark.parametrize("number", [" 1", "+1", "1 ", "01", "", "0x1", "1.0", "-01"])
def test_numbers_are_written_in_one_way(stack, number):
    told = stack.ctl_run("create", "--name", "x", "--total", number)
    assert told.returncode == 2 and f'--total is "{number}"' in told.stderr
