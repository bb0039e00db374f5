"""couponctl codes import and word: codes that others made."""

import json
import signal
import time

import pytest

from stack import wait_until


TIMES = (
    "a day as 2026-12-24, a local time as 2026-12-24T18:00, or a time with its offset as "
    "2026-12-24T18:00:00+01:00 or 2026-12-24T17:00:00Z, after 1970 and up to 9999-12-31"
)


@pytest.fixture
def coupon(codes_coupon):
    return codes_coupon


@pytest.fixture
def mark(request):
    """In front of codes: no other test has it."""
    return f"T{time.time_ns()}"


def written(path, *lines):
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def imported(codes, coupon, path, *options):
    """(exit status, counts, what was told of the lines)"""
    result = codes.run("import", coupon, path, "--json", *options)
    told = [
        line.removeprefix(f"couponctl: {path}:")
        for line in result.stderr.splitlines()
        if f"{path}:" in line
    ]
    return result.returncode, json.loads(result.stdout), told


@pytest.mark.long
def test_csv(codes, coupon, tmp_path, mark):
    path = written(
        tmp_path / "c.csv",
        b"\xef\xbb\xbfnote,CODE,Price\r\n",
        f'"two\nlines",{mark}-a,5\r\n',
        f",{mark}-b,\r\n",
        f'"x ""y"" é",{mark} c,7',
    )
    status, counts, told = imported(codes, coupon, path, "--metadata", "NOTE,Price")
    assert (status, told) == (0, [])
    assert (counts["coupon"], counts["stored"], counts["present"], counts["refused"]) == (
        coupon,
        3,
        0,
        0,
    )
    shown = codes.show(f"{mark}A".lower())
    assert shown == {
        "code": f"{mark}-a",
        "kind": "imported",
        "set": counts["set"],
        "coupon": coupon,
        "state": "unused",
        "claimed": None,
        "for_user": None,
        "valid_to": None,
        "user": None,
        "receive": None,
        "used_at": None,
        "revoked_at": None,
        "revoked_by": None,
        "metadata": {"note": "two\nlines", "Price": "5"},
    }
    assert codes.show(f"{mark}-B")["metadata"] is None
    assert codes.show(f"{mark}-C")["metadata"] == {"note": 'x "y" é', "Price": "7"}
    numbers = codes.stats(coupon)
    assert (numbers["codes"], numbers["unused"]) == (3, 3)
    assert [(one["kind"], one["complete"], one["file"]) for one in numbers["sets"]] == [
        ("imported", True, str(path))
    ]


def test_json_lines(codes, coupon, tmp_path, mark):
    path = written(
        tmp_path / "c.jsonl",
        json.dumps({"code": f"{mark}-a", "n": 9007199254740991, "x": [1, {"y": None}]}) + "\n\n",
        json.dumps({"code": f"{mark}-b"}),
    )
    status, counts, told = imported(codes, coupon, path, "--metadata", "n,x")
    assert (status, counts["stored"], told) == (0, 2, [])
    assert codes.show(f"{mark}a")["metadata"] == {"n": 9007199254740991, "x": [1, {"y": None}]}
    assert codes.show(f"{mark}b")["metadata"] is None


def test_bad_rows_of_csv_do_not_stop_the_others(codes, coupon, tmp_path, mark):
    codes.generate(coupon, 1, tmp_path / "g.csv")
    generated = (tmp_path / "g.csv").read_text().splitlines()[1].split(",")[0]
    codes("generate", coupon, "--word", f"{mark}-WORD")
    path = written(
        tmp_path / "c.csv",
        "code,note\n",
        f"{mark}1,\n",
        f"{mark}-1,\n",
        "é,\n",
        "a\x01b,\n",
        ",x\n",
        f"{'x' * 65},\n",
        f"{mark}2,".encode() + b"\xff\n",
        f"{mark}2,".encode() + b"\0\n",
        f"{mark}2,{'y' * 5000}\n",
        f"{generated},\n",
        f"{mark}word,\n",
        f"{mark}3,\n",
    )
    status, counts, told = imported(codes, coupon, path, "--metadata", "note")
    assert (status, counts["stored"], counts["present"], counts["refused"]) == (6, 2, 0, 10)
    allowed = "allowed are 1 to 64 bytes of printable ASCII, not counting spaces and dashes"
    sets = {one["kind"]: one["set"] for one in codes.stats(coupon)["sets"]}
    assert told == [
        "3: the code is that of line 2",
        f'4: the code is "é": {allowed}',
        f'5: the code is "a\\x01b": {allowed}',
        f'6: the code is "": {allowed}',
        f'7: the code is "{"x" * 65}": {allowed}',
        "8: its metadata has a name twice, or is not UTF-8 without NUL characters",
        "9: its metadata has a name twice, or is not UTF-8 without NUL characters",
        "10: its metadata has more than 4096 bytes as JSON",
        f"11: the code is a generated one, of set {sets['generated']}",
        f"12: the code exists in set {sets['word']} of coupon {coupon}",
    ]


@pytest.mark.parametrize(
    "text, told",
    [
        (
            "code,user\nA1,\nA2\n",
            'line 3 "A2": 1 columns were read, separated by a comma, and 2 in',
        ),
        ("code,user\nA1,\nA2,a,b\n", 'line 3 "A2,a,b": 3 columns were read'),
        ('code,user\nA1,"a"b\n', 'line 2 "A1,"a"b": a quote is neither at the end of its cell'),
        ("code,user\nA1,a\rb\n", "a carriage return is in the middle of the line; nothing"),
        pytest.param(
            f"code,user\nA1,{'y' * 70000}\n", "the row is longer than 65536 bytes", id="long"
        ),
        ('code,user\nA1,\nA2,"open\n', "a quoted cell does not end before the end of the file"),
        ("code;n\nA1;x\n", 'line 1 "code;n": it has a semicolon, and a comma is expected'),
        ("code\nA1;x\n", 'line 2 "A1;x": it has a semicolon, and a comma is expected'),
        ("sep=;\ncode;n\nA1;x\n", "a semicolon is between columns, and a comma is expected: add"),
    ],
)
def test_of_csv_with_other_columns_nothing_is_stored(codes, coupon, tmp_path, text, told):
    path = written(tmp_path / "c.csv", text)
    said = codes.refused("import", coupon, path, status=2)
    assert told in said and "; nothing was begun" in said
    assert codes.stats(coupon)["sets"] == []
    assert told in codes.refused("revoke", "--file", path, status=2)


def test_each_delimiter_and_column(codes, coupon, tmp_path, mark):
    for n, (name, text, options) in enumerate(
        (
            ("a.csv", "code;user\n{};\n;\n", ("--delimiter", "semicolon")),
            ("b.csv", "sep=;\ncode;user\n{};\n", ("--delimiter", "semicolon")),
            ("c.tsv", "user\tcode\n\t{}\n", ()),
            ("d.csv", "Voucher-No.,user\n{},\n", ("--column", "voucher-no.")),
            ("e.jsonl", '{{"voucher":"{}"}}\n', ("--column", "voucher")),
        )
    ):
        path = written(tmp_path / name, text.format(f"{mark}-{n}"))
        status, counts, told = imported(codes, coupon, path, *options)
        assert (status, counts["stored"], told) == (0, 1, []), name
        assert codes.show(f"{mark}-{n}")["state"] == "unused"
        done = codes("revoke", "--file", path, *options)
        assert done == "1 revoked, 0 revoked before, 0 refused"
    told = codes.refused("import", coupon, path, "--delimiter", "tab", status=2)
    assert "--delimiter is given with --format jsonl: allowed is csv" in told


def test_bad_lines_of_json_do_not_stop_the_others(codes, coupon, tmp_path, mark):
    path = written(
        tmp_path / "c.ndjson",
        json.dumps({"code": f"{mark}1"}) + "\n",
        "nonsense\n",
        "[]\n",
        "{}\n",
        '{"code":1}\n',
        '{"code":"a","code":"b"}\n',
        '{"code":"a","x":1.5}\n',
        '{"code":"a","x":"\\u0000"}\n',
        json.dumps({"code": "a", "x": "y" * 5000}) + "\n",
        json.dumps({"code": f"{mark}-1"}) + "\n",
        json.dumps({"code": f"{mark}2"}) + "\n",
    )
    status, counts, told = imported(codes, coupon, path, "--metadata", "x")
    assert (status, counts["stored"], counts["refused"]) == (6, 2, 9)
    assert [line.partition(":")[0] for line in told] == [str(n) for n in range(2, 11)]
    assert told[-1] == "10: the code is that of line 1"


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "is empty: it needs a header"),
        ("A1\nA2\n", 'c.csv", line 1: the columns are "A1", and none is code: name the one that'),
        ("a,code;b\n1,2\n", "or another --delimiter: the line has a semicolon"),
        ("code,\nA1,\n", "a column has no name"),
        ("code,user,USER\nA1,1,2\n", "two columns have one name"),
        ("code,user,User_ID\nA1,1,2\n", "two columns are the user"),
        ('code,"x\n', "does not end before the end of the file"),
    ],
)
def test_csv_needs_a_header(codes, coupon, tmp_path, text, told):
    assert told in codes.refused("import", coupon, written(tmp_path / "c.csv", text), status=2)
    assert codes.stats(coupon)["sets"] == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf16_is_named(codes, coupon, tmp_path, encoding, mark):
    path = tmp_path / "c.csv"
    path.write_bytes(f"{mark}code\nA1\n".encode(encoding))
    told = codes.refused("import", coupon, path, status=2)
    assert "the file is in UTF-16: save it as UTF-8; nothing was begun" in told
    assert codes.stats(coupon)["sets"] == []


def test_bad_arguments(codes, coupon, tmp_path):
    assert "needs FILE" in codes.refused("import", coupon, status=2)
    assert "needs COUPON FILE" in codes.refused("import", status=2)
    assert "takes only COUPON FILE" in codes.refused("import", coupon, "a", "b", status=2)
    assert "No such file" in codes.refused("import", coupon, tmp_path / "none.csv", status=2)
    assert "not a regular file" in codes.refused("import", coupon, tmp_path, status=2)
    file = written(tmp_path / "c.csv", "code\nX\n")
    assert "there is no coupon 999999" in codes.refused("import", 999999, file, status=9)
    told = codes.refused("import", coupon, file, "--format", "xml", status=2)
    assert "allowed are csv and jsonl" in told


UNKNOWN = (
    "is not known: allowed are code, state, user, valid_to, used_at and metadata; add --metadata"
)


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("c.csv", "code,status,user\nA1,used,x\n",
         f'line 1 "code,status,user": the column "status" {UNKNOWN} "status" to keep it as'),
        ("c.csv", "code,price\nA1,5\n", f'the column "price" {UNKNOWN} "price"'),
        ("c.csv", "code,coupon,set\nA1,5,6\n", f'the column "coupon" {UNKNOWN}'),
        ("c.jsonl", '{"code":"A1"}\n{"code":"A2","Status":"used"}\n',
         f'line 2 "{{"code":"A2","Status":"used"}}": the member "Status" {UNKNOWN} "Status"'),
        ("c.jsonl", '{"code":"A1","":5}\n', 'line 1 "{"code":"A1","":5}": a member has no name'),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(codes, coupon, tmp_path, name, text, told):
    said = codes.refused("import", coupon, written(tmp_path / name, text), status=2)
    assert told in said and said.endswith("; nothing was begun"), said
    assert codes.stats(coupon)["sets"] == []
    none = codes.refused(
        "import", coupon, written(tmp_path / "n.csv", "code,a\n"), "--metadata", "a,b", status=2
    )
    assert '--metadata has "b", which is no column of the file' in none


def test_the_state_of_a_code(codes, coupon, tmp_path, mark, codes_owner):
    csv = written(
        tmp_path / "c.csv",
        "user_id;State;code;used_at;metadata;note\n",
        f"alice;USED;{mark}-0;2026-03-01T12:00:00+01:00;;\n",
        f";used;{mark}-1;;{{}};x\n",
        f';revoked;{mark}-2;;"{{""a"":[1,""b;c""]}}";x\n',
        f";unused;{mark}-3;;;\n",
        f"; ;{mark}-4;;;\n",
    )
    jsonl = written(
        tmp_path / "c.jsonl",
        *(
            json.dumps({"code": f"{mark}-{n + 5}", **more}) + "\n"
            for n, more in enumerate(
                (
                    {"state": "used", "user": "alice", "used_at": "2026-03-01T11:00:00Z"},
                    {"state": "Used", "user": None, "note": "x"},
                    {"state": "revoked", "metadata": {"a": [1, "b;c"]}, "note": "x"},
                    {"state": "unused", "metadata": {}},
                    {"state": None},
                )
            )
        ),
    )
    for first, path, options in ((0, csv, ("--delimiter", "semicolon")), (5, jsonl, ())):
        status, counts, told = imported(codes, coupon, path, "--metadata", "note", *options)
        assert (status, counts["stored"], told) == (0, 5, [])
        shown = [codes.show(f"{mark}-{first + n}") for n in range(5)]
        assert [one["state"] for one in shown] == ["used", "used", "revoked", "unused", "unused"]
        assert [one["user"] for one in shown] == ["alice", None, None, None, None]
        assert [one["used_at"] for one in shown] == ["2026-03-01T11:00:00.000Z"] + [None] * 4
        assert [one["metadata"] for one in shown] == [
            None, {"note": "x"}, {"a": [1, "b;c"], "note": "x"}, None, None
        ]  # fmt: skip
        assert shown[2]["revoked_by"] and shown[2]["revoked_at"]
        assert {one["receive"] for one in shown} == {None}
    told = codes("show", f"{mark}-0").splitlines()
    assert told[1] == "  state    used by user alice at 2026-03-01T11:00:00.000Z"
    assert codes("show", f"{mark}-1").splitlines()[1] == "  state    used"
    numbers = codes.stats(coupon)
    assert (numbers["unused"], numbers["used"], numbers["revoked"]) == (4, 4, 2)
    rows = [json.loads(line) for line in codes("export", coupon, "--format", "jsonl").splitlines()]
    assert [(row["user"], row["receive"]) for row in rows] == [("alice", None), (None, None)] * 2


def test_a_state_that_is_wrong_refuses_its_row(codes, coupon, tmp_path, mark):
    path = written(
        tmp_path / "c.csv",
        "code,state,user,used_at,metadata\n",
        f"{mark}1,claimed,,,\n",
        f"{mark}1,unused,,2026-03-01T12:00:00Z,\n",
        f"{mark}1,used,alice smith,,\n",
        f"{mark}1,used,alice,2026-02-30,\n",
        f"{mark}1,,,,[]\n",
        f"{mark}1,unused,,,\n",
    )
    status, counts, told = imported(codes, coupon, path)
    assert (status, counts["stored"], counts["refused"]) == (6, 1, 5)
    allowed = "allowed is that of a code whose state is used"
    assert told == [
        '2: its state is "claimed": allowed are unused, used and revoked',
        f'3: it has the used_at "2026-03-01T12:00:00Z": {allowed}',
        '4: its user is "alice smith": byte 6 is not allowed: must be 1 to 64 bytes of printable'
        " ASCII without spaces",
        f'5: its used_at is "2026-02-30": allowed is {TIMES}',
        '6: its metadata is "[]": allowed is an object of JSON',
    ]


def test_repeated_it_changes_nothing(codes, coupon, tmp_path, mark):
    path = written(tmp_path / "c.csv", "code\n", *(f"{mark}-{n}\n" for n in range(100)))
    _, first, _ = imported(codes, coupon, path)
    status, again, told = imported(codes, coupon, path)
    assert (status, again["set"], again["stored"], again["present"], told) == (
        0,
        first["set"],
        0,
        100,
        [],
    )
    other = written(tmp_path / "d.csv", f"code\n{mark}-100\n{mark}-5\n")
    status, more, told = imported(codes, coupon, other)
    assert (status, more["stored"], more["refused"]) == (6, 1, 1) and more["set"] != first["set"]
    assert told == [f"3: the code exists in set {first['set']} of coupon {coupon}"]


def test_codes_that_were_revoked_stay_so(codes, coupon, tmp_path, mark):
    """The output of another import counts them."""
    path = written(tmp_path / "c.csv", f"code,state\n{mark}0,\n{mark}1,\n{mark}2,used\n")
    _, first, _ = imported(codes, coupon, path)
    codes("revoke", f"{mark}0", f"{mark}1")
    status, again, told = imported(codes, coupon, path)
    assert (status, again["present"], told) == (0, 3, [])
    assert (again["present_used"], again["present_revoked"]) == (1, 2)
    assert codes("import", coupon, path).endswith(
        ": 0 codes stored, 3 were there before, 1 of them used, 2 of them revoked, 0 refused"
    )
    other = written(tmp_path / "d.csv", f"code\n{mark}0\n{mark}2\n")
    _, _, told = imported(codes, coupon, other)
    assert told == [
        f"2: the code exists in set {first['set']} of coupon {coupon}, and is revoked",
        f"3: the code exists in set {first['set']} of coupon {coupon}, and is used",
    ]
    assert {codes.show(f"{mark}{n}")["state"] for n in range(2)} == {"revoked"}


def test_codes_as_they_are_pasted(codes, coupon, tmp_path, mark):
    path = written(
        tmp_path / "c.csv", f"code\n{mark}\u20131\n\ufeff{mark}\u00a02\n".encode("utf-8")
    )
    _, counts, told = imported(codes, coupon, path)
    assert (counts["stored"], told) == (2, [])
    assert codes.show(f"{mark}\u200b\t2\n")["code"] == f"{mark}2"
    codes("generate", coupon, "--word", f"noon\u2014{mark}\r\n")
    assert codes.show(f"NOON {mark}")["code"] == f"NOON{mark}"
    exported = codes("export", coupon, "--all")
    assert exported.isascii() and f"NOON{mark},{coupon}," in exported and ",open," in exported
    assert codes("revoke", f"{mark}\u22121") == "1 revoked, 0 revoked before, 0 refused"
    key = ("--key", mark)
    two = (f"{mark}1", f"{mark}2")
    assert codes("revoke", *two, *key) == "1 revoked, 1 revoked before, 0 refused"
    assert "other arguments" in codes.refused("revoke", "\n".join(two), *key, status=4)


def test_killed_it_goes_on(codes, coupon, tmp_path, mark, codes_owner):
    rows = 300_000
    path = written(tmp_path / "c.csv", "code\n", *(f"{mark}-{n}\n" for n in range(rows)))
    process = codes.start("import", coupon, path)
    query = "SELECT count(*) FROM code WHERE coupon_id = %s"
    wait_until(lambda: codes_owner.execute(query, (coupon,)).fetchone()[0] > 0)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    status, counts, told = imported(codes, coupon, path)
    assert (status, told) == (0, [])
    assert counts["present"] > 0 and counts["stored"] + counts["present"] == rows
    numbers = codes.stats(coupon)
    assert (numbers["codes"], len(numbers["sets"])) == (rows, 1)


def test_imported_codes_are_revoked_and_exported(codes, coupon, tmp_path, mark):
    path = written(tmp_path / "c.csv", "code,n\n", *(f"{mark}-{n},{n}\n" for n in range(5)))
    imported(codes, coupon, path, "--metadata", "n")
    assert codes("revoke", f"{mark}3".lower()) == "1 revoked, 0 revoked before, 0 refused"
    assert codes.show(f"{mark}3")["state"] == "revoked"
    rows = [json.loads(line) for line in codes("export", coupon, "--all", "--format", "jsonl")
            .splitlines()]  # fmt: skip
    assert [(row["code"], row["state"], row["metadata"]) for row in rows] == [
        (f"{mark}-{n}", "revoked" if n == 3 else "unused", {"n": str(n)}) for n in range(5)
    ]


def test_a_spreadsheet_takes_no_code_for_a_formula(codes, coupon, tmp_path, mark):
    wanted = [f"{sign}{mark}{n}" for n, sign in enumerate("=+-@")]
    imported(codes, coupon, written(tmp_path / "c.csv", "code\n", *(f"{one}\n" for one in wanted)))

    def first(*options):
        rows = codes("export", coupon, "--all", *options).splitlines()[1:]
        return sorted(row.split(",")[0] for row in rows)

    assert first() == sorted(wanted)
    assert first("--spreadsheet") == sorted(f"'{one}" for one in wanted)
    told = codes.refused("export", coupon, "--spreadsheet", "--format", "jsonl", status=2)
    assert "allowed is csv" in told


def test_word(codes, coupon, mark):
    told = codes("generate", coupon, "--word", f"noon-{mark}")
    assert codes("generate", coupon, "--word", f"NOON {mark}") == told
    shown = codes.show(f"NOON{mark}")
    assert (shown["code"], shown["kind"], shown["coupon"]) == (f"noon-{mark}", "word", coupon)
    other = codes.stack.coupon_make(1, publish=False)
    assert f"exists: word, of set {shown['set']}" in codes.refused(
        "generate", other, "--word", f"noon{mark}"
    )
    assert codes("revoke", f"noon{mark}") == "1 revoked, 0 revoked before, 0 refused"
    assert "was revoked" in codes.refused("generate", coupon, "--word", f"noon{mark}")
    assert "there is no coupon 999999" in codes.refused(
        "generate", 999999, "--word", f"x{mark}", status=9
    )
    for wrong in ("", "ab", "- -a", "x" * 65, "naïve"):
        assert "allowed are 3 to 64 bytes" in codes.refused(
            "generate", coupon, "--word", wrong, status=2
        )


def test_a_generated_code_is_no_word(codes, coupon, tmp_path):
    made = codes.generate(coupon, 1, tmp_path / "g.csv")
    code = (tmp_path / "g.csv").read_text().splitlines()[1].split(",")[0]
    told = codes.refused("generate", coupon, "--word", code)
    assert f"exists: a generated code, of set {made['set']}" in told
