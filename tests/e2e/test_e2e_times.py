"""Times as people write them: days, local times, and the time zone of a campaign."""

import json
import os

import pytest

BERLIN, UTC = "Europe/Berlin", "UTC"


def show(stack, coupon):
    return json.loads(stack.ctl("show", coupon, "--json"))


def create(stack, *options, **settings):
    result = stack.ctl_run("create", "--name", "n", "--total", 5, *options, settings=settings)
    assert result.returncode == 0, result
    return result.stdout.strip(), result.stderr


@pytest.mark.parametrize(
    "zone, option, text, instant",
    [
        (BERLIN, "begin", "2026-12-24", "2026-12-23T23:00:00.000Z"),
        (BERLIN, "end", "2098-12-24", "2098-12-24T23:00:00.000Z"),  # the whole day
        (BERLIN, "begin", "2026-12-24T18:00", "2026-12-24T17:00:00.000Z"),
        (BERLIN, "begin", "2026-07-24 18:00:30.5", "2026-07-24T16:00:30.500Z"),
        (BERLIN, "begin", "2026-12-24T18:00Z", "2026-12-24T18:00:00.000Z"),
        (BERLIN, "begin", "2026-12-24T18:00-05:00", "2026-12-24T23:00:00.000Z"),
        ("europe/berlin", "begin", "2026-12-24t18:00", "2026-12-24T17:00:00.000Z"),
        ("America/New_York", "begin", "2027-07-01T09:30", "2027-07-01T13:30:00.000Z"),
        ("Asia/Kathmandu", "begin", "2027-01-01", "2026-12-31T18:15:00.000Z"),
        ("Pacific/Kiritimati", "begin", "2027-01-01", "2026-12-31T10:00:00.000Z"),
        (UTC, "end", "2098-02-28", "2098-03-01T00:00:00.000Z"),
        # A day of 25 hours and one of 23.
        (BERLIN, "begin", "2026-10-26", "2026-10-25T23:00:00.000Z"),
        (BERLIN, "begin", "2027-03-29", "2027-03-28T22:00:00.000Z"),
        # Days without midnight, with two, and one that is no day there.
        ("America/Sao_Paulo", "begin", "2018-11-04", "2018-11-04T03:00:00.000Z"),
        ("America/Havana", "begin", "2026-11-01", "2026-11-01T04:00:00.000Z"),
        ("Pacific/Apia", "begin", "2011-12-30", "2011-12-30T10:00:00.000Z"),
        # Beside the hours that are skipped or come twice.
        (BERLIN, "begin", "2027-03-28T01:59", "2027-03-28T00:59:00.000Z"),
        (BERLIN, "begin", "2027-03-28T03:00", "2027-03-28T01:00:00.000Z"),
        (BERLIN, "begin", "2027-10-31T01:59:59", "2027-10-30T23:59:59.000Z"),
        (BERLIN, "begin", "2027-10-31T03:00", "2027-10-31T02:00:00.000Z"),
        ("Australia/Lord_Howe", "begin", "2027-04-04T01:29", "2027-04-03T14:29:00.000Z"),
    ],
)
def test_a_local_time_is_of_the_zone(zone, option, text, instant, stack):
    coupon, told = create(stack, "--zone", zone, f"--{option}", text)
    assert show(stack, coupon)[option] == instant and not told


@pytest.mark.parametrize("option", ["valid-from", "valid-to"])
def test_a_validity_has_days(option, stack):
    span = {"valid-from": "2098-01-01", "valid-to": "2098-12-31"}
    coupon, _ = create(
        stack,
        "--zone",
        BERLIN,
        *(word for name, day in span.items() for word in (f"--{name}", day)),
    )
    bounds = {"valid-from": "2097-12-31T23:00:00.000Z", "valid-to": "2098-12-31T23:00:00.000Z"}
    assert show(stack, coupon)[option.replace("-", "_")] == bounds[option]


@pytest.mark.parametrize(
    "zone, text, what, readings",
    [
        (BERLIN, "2027-10-31T02:30", "twice", ("02:30:00+02:00", "02:30:00+01:00")),
        (BERLIN, "2027-10-31T02:00", "twice", ("02:00:00+02:00", "02:00:00+01:00")),
        (BERLIN, "2027-03-28T02:30", "never", ("01:30:00+01:00", "03:30:00+02:00")),
        (BERLIN, "2027-03-28 02:00:00", "never", ("01:00:00+01:00", "03:00:00+02:00")),
        ("Australia/Lord_Howe", "2027-04-04T01:45", "twice", ("01:45:00+11:00", "01:45:00+10:30")),
        ("America/Havana", "2026-11-01T00:00", "twice", ("00:00:00-04:00", "00:00:00-05:00")),
    ],
)
def test_a_time_that_is_none_or_two_is_refused_with_both_readings(
    zone, text, what, readings, stack
):
    result = stack.ctl_run("create", "--name", "n", "--total", 1, "--zone", zone, "--begin", text)
    assert result.returncode == 2 and f'--begin is "{text}"' in result.stderr, result
    assert f"in {zone} clocks" in result.stderr and what in result.stderr
    for reading in (f"{text[:10]}T{clock}" for clock in readings):
        assert reading in result.stderr
        create(stack, "--zone", zone, "--begin", reading)


@pytest.mark.parametrize(
    "zone, shown",
    [
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Mars/Olympus", "Europe/Berlin"),
        ("", "Europe/Berlin"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("MEZ-1", "Europe/Berlin"),
        ("+01:00", "Europe/Berlin"),
    ],
)
def test_an_unknown_zone_is_refused(zone, shown, stack):
    for command in (
        ["create", "--name", "n", "--total", 1],
        ["edit", stack.coupon_make(1), "--version", 2],
    ):
        result = stack.ctl_run(*command, "--zone", zone)
        assert result.returncode == 2 and f'--zone is "{zone}"' in result.stderr, result
        assert shown in result.stderr


def test_without_a_zone_it_is_utc_and_told(stack):
    coupon, told = create(stack, "--begin", "2026-12-24", "--end", "2098-12-24T18:00")
    shown = show(stack, coupon)
    assert shown["begin"] == "2026-12-24T00:00:00.000Z" and shown["zone"] == "UTC"
    assert "--begin is read in UTC" in told and "--end is read in UTC" in told
    assert not create(stack, "--begin", "2026-12-24T00:00:00Z")[1]
    assert not create(stack, "--begin", "2026-12-24", "--zone", "UTC")[1]


def test_the_zone_of_the_installation(stack):
    coupon, told = create(stack, "--begin", "2026-12-24", COUPON_ZONE=BERLIN)
    shown = show(stack, coupon)
    assert (shown["zone"], shown["begin"]) == (BERLIN, "2026-12-23T23:00:00.000Z") and not told
    coupon, _ = create(stack, "--begin", "2026-12-24", "--zone", "UTC", COUPON_ZONE=BERLIN)
    assert show(stack, coupon)["zone"] == "UTC"
    result = stack.ctl_run(
        "create", "--name", "n", "--total", 1, settings={"COUPON_ZONE": "Berlin"}
    )
    assert result.returncode == 2 and 'COUPON_ZONE is "Berlin"' in result.stderr, result


def test_an_edit_reads_in_the_zone_of_the_campaign(stack):
    coupon = stack.coupon_make(5, zone=BERLIN, begin="2026-12-24")
    told = stack.coupon_edit(coupon, "--end", "2098-12-24")
    assert told.endswith(
        "from 2026-12-24T00:00:00+01:00 until 2098-12-25T00:00:00+01:00 (Europe/Berlin)"
    )
    assert show(stack, coupon)["end"] == "2098-12-24T23:00:00.000Z"
    # Another zone alone changes no instant, with a time it is that of the time.
    stack.coupon_edit(coupon, "--zone", "America/New_York")
    shown = show(stack, coupon)
    assert (shown["zone"], shown["end"]) == ("America/New_York", "2098-12-24T23:00:00.000Z")
    assert "2098-12-24T18:00:00-05:00" in stack.ctl("show", coupon)
    stack.coupon_edit(coupon, "--zone", "Asia/Tokyo", "--begin", "2026-12-24T09:00")
    assert show(stack, coupon)["begin"] == "2026-12-24T00:00:00.000Z"
    changes = [
        json.loads(line)["changes"] for line in stack.ctl("history", coupon, "--json").splitlines()
    ]
    assert changes[-1]["zone"] == ["America/New_York", "Asia/Tokyo"]
    assert changes[-2] == {"zone": [BERLIN, "America/New_York"]}


def test_an_edit_names_both_readings_and_changes_nothing(stack):
    coupon = stack.coupon_make(5, zone=BERLIN)
    before, changes = show(stack, coupon), stack.ctl("history", coupon)
    result = stack.ctl_run(
        "edit", coupon, "--version", before["postgresql"]["version"], "--begin", "2027-10-31T02:30",
        "--limit", 7,
    )  # fmt: skip
    assert result.returncode == 2 and "twice" in result.stderr, result
    shown = show(stack, coupon)
    assert (shown["postgresql"], shown["limit"]) == (before["postgresql"], before["limit"])
    assert (shown["begin"], stack.ctl("history", coupon)) == (before["begin"], changes)


def test_lists_and_keys_read_days_too(stack):
    settings = {"COUPON_ZONE": BERLIN}
    name = f"day {os.urandom(4).hex()}"
    coupon = stack.ctl(
        "create", "--name", name, "--total", 1, "--begin", "2051-05-05T23:30:00+02:00"
    )

    def listed(*span):
        found = stack.ctl_run("list", "--name", name, "--json", *span, settings=dict(settings))
        assert found.returncode == 0, found
        return [json.loads(line)["coupon"] for line in found.stdout.splitlines()]

    assert listed("--to", "2051-05-05") == [coupon] and listed("--to", "2051-05-04") == []
    assert listed("--to", "2051-05-05T23:00") == []
    key = f"key-{os.urandom(4).hex()}"
    made = stack.ctl_run(
        "key", "create", "--name", key, "--role", "issue", "--expires", "2051-05-05",
        settings=dict(settings),
    )  # fmt: skip
    assert made.returncode == 0, made
    shown = json.loads(stack.ctl("key", "show", made.stdout.split("_")[1], "--json"))
    assert shown["expires_at"] == "2051-05-05T22:00:00.000Z"
    for command in (
        ["list", "--from"],
        ["history", "--to"],
        ["key", "create", "--name", key, "--role", "issue", "--expires"],
    ):
        result = stack.ctl_run(*command, "24.12.2026")
        assert result.returncode == 2 and '"24.12.2026"' in result.stderr, result
        assert "2026-12-24" in result.stderr
