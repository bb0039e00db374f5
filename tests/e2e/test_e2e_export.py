"""`couponctl export`: the user coupons, against the rows that psycopg reads."""

import csv
import datetime
import io
import json
import os
import subprocess

import pytest

from stack import wait_until
from ulid import ulid_of
from user_ids import HOSTILE

USE = ["code", "use", "use_order", "use_at", "use_until", "amount_off", "currency"]
COLUMNS = ["user", "receive", "slot", "received_at", "valid_from", "valid_to", "key", *USE]


def rows_of(pg, coupon):
    def text(moment):
        moment = moment and moment.astimezone(datetime.timezone.utc)
        return (
            moment and moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
        )

    return sorted(
        [user, f"{coupon}.{user}.{ulid_of(batch)}.{idx}", slot, *map(text, times), key]
        + [None] * len(USE)
        for user, slot, batch, idx, key, *times in pg.execute(
            """SELECT user_id, slot, batch, idx, key, received_at, valid_from, valid_to
            FROM user_coupon WHERE coupon_id = %s""",
            (coupon,),
        )
    )


def sorted_rows(rows):
    return sorted(rows, key=lambda row: (row[0], row[2]))


def csv_rows(text):
    heading, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert heading == COLUMNS
    return sorted_rows([*row[:2], int(row[2]), *(cell or None for cell in row[3:])] for row in rows)


def jsonl_rows(text):
    rows = [json.loads(line) for line in text.splitlines()]
    assert all(list(row) == COLUMNS for row in rows)
    return sorted_rows(list(row.values()) for row in rows)


@pytest.mark.parametrize("validity", [("--valid-days", 7), ()])
def test_every_row(stack, pg, tmp_path, validity):
    coupon = stack.ctl("create", "--name", "n", "--total", 1000, "--limit", 2, *validity)
    stack.ctl("publish", coupon)
    with stack.client() as client:
        wait_until(lambda: client.call("coupon", coupon=coupon)["code"] == 0)
        requests = [
            {"op": "issue", "coupon": coupon, "user": user, "ack": "issued", **key}
            for user in HOSTILE
            for key in ({}, {"key": f'k "{user[:20]}",\\ '})
        ]
        assert {answer["code"] for answer in client.pipeline(requests)} == {0}
    wanted = sorted_rows(rows_of(pg, coupon))
    assert len(wanted) == 2 * len(HOSTILE)
    assert csv_rows(stack.ctl("export", coupon) + "\n") == wanted
    for format_, read in (("csv", csv_rows), ("jsonl", jsonl_rows)):
        path = tmp_path / format_
        assert stack.ctl("export", coupon, "--format", format_, "--out", path) == ""
        text = path.read_bytes().decode("ascii")
        assert read(text) == wanted
        assert text.count("\n") == len(wanted) + (format_ == "csv")
        assert (text.count("\r\n") > 0) == (format_ == "csv")
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["csv", "jsonl"]


def test_a_spreadsheet_takes_no_user_for_a_formula(stack, make_coupon, gateway):
    coupon = make_coupon(100)
    users = ["=1+1", "+1", "-1", "@SUM(1)", "'=1", "1=1"]
    for user in users:
        assert gateway.issue(coupon, user, key=user, ack="issued")["code"] == 0
    plain = csv_rows(stack.ctl("export", coupon) + "\n")
    assert {row[0] for row in plain} == set(users)
    guarded = csv_rows(stack.ctl("export", coupon, "--spreadsheet") + "\n")
    wanted = {"'=1+1", "'+1", "'-1", "'@SUM(1)", "'=1", "1=1"}
    assert {row[0] for row in guarded} == {row[6] for row in guarded} == wanted


def test_nothing_was_issued(stack, make_coupon, tmp_path):
    coupon = make_coupon(10)
    assert stack.ctl("export", coupon) == ",".join(COLUMNS)
    assert stack.ctl("export", coupon, "--format", "jsonl") == ""
    stack.ctl("export", coupon, "--out", tmp_path / "x")
    assert (tmp_path / "x").read_text() == ",".join(COLUMNS) + "\n"


@pytest.mark.parametrize(
    "status, words, message",
    [
        (2, (), "export needs ID"),
        (2, ("x",), 'ID is "x": allowed is an integer from 1'),
        (9, ("999999999",), "there is no coupon 999999999"),
        (2, ("{coupon}", "--format", "xml"), '--format is "xml": allowed are csv and jsonl'),
        (2, ("{coupon}", "--out", ""), '--out is "": allowed is the path of a file'),
        (2, ("{coupon}", "--format", "jsonl", "--spreadsheet"), "allowed is csv"),
        (1, ("{coupon}", "--out", "/nowhere/x"), '"/nowhere/x" cannot be written: No such file'),
        (1, ("{coupon}", "--out", "{folder}"), "cannot be written: Is a directory"),
        (1, ("{coupon}", "--out", "/dev/null"), "cannot be written: it is not a regular file"),
    ],
)
def test_what_it_refuses(stack, make_coupon, tmp_path, status, words, message):
    coupon = make_coupon(10)
    folder = tmp_path / "folder"
    folder.mkdir()
    words = [word.format(coupon=coupon, folder=folder) for word in words]
    result = stack.ctl_run("export", *words)
    assert (result.returncode, result.stdout) == (status, ""), result
    assert message in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert [*tmp_path.iterdir()] == [folder]


def test_a_full_disk(stack, make_coupon):
    coupon = make_coupon(10)
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [stack.build_dir / "couponctl", "export", coupon],
            env={**os.environ, **stack.env_of("operator")},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert (
        result.stderr == "couponctl: standard output cannot be written: No space left on device\n"
    )


def test_the_file_before_stays_until_it_is_complete(stack, make_coupon, tmp_path):
    """A killed export leaves the part, and the next one replaces it."""
    coupon = make_coupon(200_000)
    stack.rush("--coupon", coupon, "--users", 100_000, "--settle-timeout-s", 100)
    path = tmp_path / "winners"
    path.write_text("before")
    part = tmp_path / "winners.part"
    command = [stack.build_dir / "couponctl", "export", coupon, "--out", path]
    with subprocess.Popen(command, env={**os.environ, **stack.env_of("operator")}) as process:
        wait_until(lambda: part.exists() and part.stat().st_size > 0, interval=0.001)
        process.kill()
    assert path.read_text() == "before" and part.exists()
    stack.ctl("export", coupon, "--out", path)
    assert len(path.read_text().splitlines()) == 100_001 and not part.exists()


def test_one_moment_of_a_running_sale(stack, make_coupon, pg):
    """The rows are those of one snapshot: whole batches, as transactions have committed them."""
    coupon = make_coupon(200_000)
    rush = subprocess.Popen(
        [stack.build_dir / "coupon-rush", "--coupon", coupon, "--users", "60000", "--rate",
         "6000", "--no-verify"],
        env={**os.environ, **stack.env_of("operator")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    exported = []
    while rush.poll() is None:
        low = pg.execute("SELECT issued_num FROM coupon WHERE id = %s", (coupon,)).fetchone()[0]
        rows = csv_rows(stack.ctl("export", coupon) + "\n")
        high = pg.execute("SELECT issued_num FROM coupon WHERE id = %s", (coupon,)).fetchone()[0]
        assert low <= len(rows) <= high
        assert len({row[0] for row in rows}) == len(rows)
        exported.append({row[1] for row in rows})
    assert rush.returncode == 0 and len(exported) > 1
    assert all(before <= after for before, after in zip(exported, exported[1:]))
