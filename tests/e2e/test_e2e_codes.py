"""couponctl codes: generated codes and their keys, from the first to the last step."""

import csv
import fcntl
import json
import os
import re
import signal
import time

import pytest

from codes import Codes, column
from stack import wait_until

DEFAULT_CODE = re.compile(r"[2-9A-HJ-NP-Z]{5}(-[2-9A-HJ-NP-Z]{4}){2}")


@pytest.fixture
def coupon(codes_coupon):
    return codes_coupon


@pytest.mark.long
def test_a_million_codes_are_different(codes, coupon, tmp_path):
    out = tmp_path / "codes.csv"
    made = codes.generate(coupon, 1_000_000, out)
    assert (made["coupon"], made["count"], made["file"]) == (coupon, 1_000_000, str(out))
    assert oct(out.stat().st_mode & 0o777) == "0o600"
    assert sorted(os.listdir(tmp_path)) == ["codes.csv"]
    with open(out, encoding="ascii") as file:
        assert file.readline() == "code,coupon,set\n"
        assert file.readline().endswith(f",{coupon},{made['set']}\n")
    found = column(out)
    assert len(found) == len(set(found)) == 1_000_000
    assert all(DEFAULT_CODE.fullmatch(code) for code in found)
    numbers = codes.stats(coupon)
    assert [numbers[name] for name in ("codes", "unused", "used", "revoked")] == [
        10**6,
        10**6,
        0,
        0,
    ]
    # Every one is read again: what is exported by the positions is what was generated.
    again = tmp_path / "again.csv"
    codes("export", "--set", made["set"], "--all", "--out", again)
    assert column(again) == found


def test_each_code_is_found_in_any_spelling(codes, coupon, tmp_path):
    made = codes.generate(coupon, 3, tmp_path / "c.jsonl", "--format", "jsonl")
    rows = [json.loads(line) for line in open(tmp_path / "c.jsonl", encoding="ascii")]
    assert [list(row) for row in rows] == [["code", "coupon", "set"]] * 3
    for row in rows:
        for spelled in (row["code"], row["code"].lower(), row["code"].replace("-", " - ")):
            shown = codes.show(spelled)
            assert (shown["code"], shown["coupon"], shown["set"]) == (
                row["code"],
                coupon,
                made["set"],
            )
            assert (shown["kind"], shown["state"], shown["user"]) == ("generated", "unused", None)


def test_a_wrong_code_is_none(codes, coupon, tmp_path):
    codes.generate(coupon, 100, tmp_path / "c.csv")
    code = column(tmp_path / "c.csv")[7]
    wrong = code[:-1] + ("2" if code[-1] != "2" else "3")
    for text in (wrong, code + "2", code[:-1], "", "\t\n", "é", code.replace(code[0], "0")):
        assert "there is no code" in codes.refused("show", text, status=9)
    told = codes.refused("show", "\x1b[31m\t", status=2)
    assert told.startswith("couponctl: CODE is") and "\x1b" not in told and "\t" not in told


@pytest.mark.parametrize(
    "options, form",
    [
        (("--prefix", "noon"), r"NOON(-[2-9A-HJ-NP-Z]{5})(-[2-9A-HJ-NP-Z]{4}){2}"),
        (("--length", 16), r"[2-9A-HJ-NP-Z]{4}(-[2-9A-HJ-NP-Z]{4}){3}"),
        (("--alphabet", "0123456789", "--length", 18), r"\d{5}-\d{5}-\d{4}-\d{4}"),
        (("--pattern", "NOON-####-####"), r"NOON(-[2-9A-HJ-NP-Z]{4}){2}"),
        (("--pattern", "a##########Z", "--alphabet", "abcXYZ012345"), "a[a-cX-Z0-5]{10}Z"),
    ],
)
def test_forms(codes, coupon, tmp_path, options, form):
    codes.generate(coupon, 10, tmp_path / "c.csv", *options)
    for code in column(tmp_path / "c.csv"):
        assert re.fullmatch(form, code)
        assert codes.show(code)["code"] == code


@pytest.mark.parametrize(
    "options, told",
    [
        ((), "needs --count"),
        (("--out", "x"), "needs --count"),
        (("--count", 0, "--out", "x"), 'count is "0": allowed is an integer from 1 to 1000000000'),
        (("--count", "5x", "--out", "x"), 'count is "5x"'),
        (("--count", 5, "--out", ""), '--out is ""'),
        (("--count", 5, "--out", "x", "--format", "xml"), "allowed are csv and jsonl"),
        (("--count", 5, "--out", "x", "--prefix", "a-b"), "allowed are letters and digits"),
        (("--count", 5, "--out", "x", "--length", 1), "from 2 to 64"),
        (("--count", 5, "--out", "x", "--length", 3), "allowed are 4 to 24"),
        (("--count", 5, "--out", "x", "--length", 25), "allowed are 4 to 24"),
        (("--count", 5, "--out", "x", "--alphabet", "AAB"), 'has "A" twice'),
        (("--count", 5, "--out", "x", "--alphabet", "A"), "allowed are 2 to 62"),
        (("--count", 5, "--out", "x", "--pattern", "A_####"), "character 2 is not allowed"),
        (("--count", 5, "--out", "x", "--pattern", "-####"), "a dash is not allowed at the"),
        (
            ("--count", 5, "--out", "x", "--pattern", "####", "--prefix", "A"),
            "not allowed together",
        ),
        (("--count", 5, "--out", "x", "--prefix", "A" * 60), "73 characters: allowed are 64"),
    ],
)
def test_bad_options(codes, coupon, tmp_path, options, told):
    words = [str(tmp_path / word) if word == "x" else word for word in options]
    assert told in codes.refused("generate", coupon, *words, status=2)
    assert os.listdir(tmp_path) == []


def test_too_many_codes_are_refused_with_the_arithmetic(codes, coupon, tmp_path):
    out = tmp_path / "c.csv"
    form = ("--pattern", "MANY-####-####")
    told = codes.refused("generate", coupon, "--count", 1100, "--out", out, *form, status=2)
    assert "32^8 = 1.1e+12 texts" in told and "which is 1099 codes; 9 symbols are enough" in told
    codes.generate(coupon, 1000, out, *form)
    # Other dashes, another case and another alphabet have the same texts.
    for same in (
        form,
        ("--pattern", "many########"),
        (*form, "--alphabet", "0123456789ABCDEFGHJKLMNPQRSTUVWX"),
    ):
        more = codes.refused("generate", coupon, "--count", 100, "--out", tmp_path / "d.csv", *same)
        assert "100 codes and 1000 that exist are too many" in more
    codes.generate(coupon, 99, tmp_path / "e.csv", "--pattern", "many########")
    assert codes.stats(coupon)["codes"] == 1099
    assert sorted(os.listdir(tmp_path)) == ["c.csv", "e.csv"]


def test_a_file_is_never_overwritten(codes, coupon, tmp_path):
    out = tmp_path / "c.csv"
    out.write_text("mine")
    told = codes.refused("generate", coupon, "--count", 5, "--out", out)
    assert "exists: it is never overwritten" in told
    assert out.read_text() == "mine" and os.listdir(tmp_path) == ["c.csv"]
    assert codes.stats(coupon)["sets"] == []


def test_unknown_coupon_and_folder(codes, coupon, tmp_path):
    told = codes.refused("generate", 999999, "--count", 5, "--out", tmp_path / "c.csv", status=9)
    assert "there is no coupon 999999" in told
    assert os.listdir(tmp_path) == []
    codes.generate(coupon, 5, tmp_path / "c.csv")
    told = codes.refused("generate", coupon, "--count", 5, "--out", tmp_path / "no" / "c.csv")
    assert "No such file or directory" in told


@pytest.mark.long
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1, 0.4])
def test_killed_at_any_moment_it_goes_on_with_the_same_set(codes, coupon, tmp_path, after_s):
    """The moments differ from run to run; each leaves a state from which it goes on."""
    out = tmp_path / "c.csv"
    wish = ("generate", coupon, "--count", 1_000_000, "--out", out)
    process = codes.start(*wish)
    if after_s:
        wait_until(lambda: os.listdir(tmp_path) or process.poll() is not None)
    time.sleep(after_s)  # how long it may run is what this test varies
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    if "c.csv" in os.listdir(tmp_path):
        assert out.stat().st_size == len("code,coupon,set\n") + 1_000_000 * 32
    if "c.csv" not in os.listdir(tmp_path) or "c.csv.request" in os.listdir(tmp_path):
        codes(*wish)
    assert os.listdir(tmp_path) == ["c.csv"]
    sets = codes.stats(coupon)["sets"]
    assert [one["complete"] for one in sets] == [True]
    found = column(out)
    assert len(found) == len(set(found)) == 1_000_000
    assert codes.show(found[-1])["set"] == sets[0]["set"]


def begun(codes, coupon, tmp_path):
    """A command that was killed while it wrote."""
    out = tmp_path / "c.csv"
    process = codes.start("generate", coupon, "--count", 3_000_000, "--out", out)
    wait_until(lambda: (tmp_path / "c.csv.part").exists())
    process.kill()
    process.wait(timeout=120)
    assert sorted(os.listdir(tmp_path)) == ["c.csv.part", "c.csv.request"]
    return out


def test_another_command_does_not_take_up_a_request(codes, coupon, tmp_path):
    out = begun(codes, coupon, tmp_path)
    told = codes.refused("generate", coupon, "--count", 3, "--out", out)
    assert 'unfinished command with "count 3000000", and this one has "count 3"' in told
    told = codes.refused("generate", coupon, "--count", 3_000_000, "--out", out, "--prefix", "A")
    assert 'this one has "pattern A-#####-####-####"' in told
    assert len(codes.stats(coupon)["sets"]) == 1
    assert codes.stats(coupon)["sets"][0]["complete"] is False
    codes("revoke", "--set", codes.stats(coupon)["sets"][0]["set"])
    assert "was revoked" in codes.refused("generate", coupon, "--count", 3_000_000, "--out", out)


def test_a_set_that_postgresql_has_lost_is_not_given_to_its_file(
    codes, coupon, tmp_path, codes_owner
):
    out = begun(codes, coupon, tmp_path)
    out.write_text("the codes of the lost set")
    codes_owner.execute("DELETE FROM code_set WHERE coupon_id = %s", (coupon,))
    told = codes.refused("generate", coupon, "--count", 3_000_000, "--out", out)
    assert "PostgreSQL does not have its set" in told
    assert codes.stats(coupon)["sets"] == [] and out.read_text() == "the codes of the lost set"


def test_two_commands_do_not_write_one_file(codes, coupon, tmp_path):
    out = tmp_path / "c.csv"
    process = codes.start("generate", coupon, "--count", 3_000_000, "--out", out)
    wait_until(lambda: (tmp_path / "c.csv.part").exists())
    process.send_signal(signal.SIGSTOP)
    told = codes.refused("generate", coupon, "--count", 3_000_000, "--out", out, status=10)
    assert "another couponctl is writing this file" in told
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=120) == 0
    assert len(codes.stats(coupon)["sets"]) == 1


def test_a_foreign_request_is_left_alone(codes, coupon, tmp_path):
    request = tmp_path / "c.csv.request"
    request.write_text("shopping list")
    told = codes.refused("generate", coupon, "--count", 5, "--out", tmp_path / "c.csv")
    assert "was not written by couponctl codes generate" in told
    assert request.read_text() == "shopping list"
    request.write_text("couponctl codes gen")  # torn: nothing was made
    codes.generate(coupon, 5, tmp_path / "c.csv")
    assert os.listdir(tmp_path) == ["c.csv"]


# Keys


def test_without_keys(codes_stack, coupon, tmp_path):
    none = Codes(codes_stack, "")
    told = none.refused("generate", coupon, "--count", 5, "--out", tmp_path / "c")
    assert "COUPON_CODE_KEYS is not set" in told
    away = Codes(codes_stack, tmp_path / "away")
    told = away.refused("generate", coupon, "--count", 5, "--out", tmp_path / "c")
    assert "away" in told and "No such file" in told
    assert 'COUPON_CODE_KEYS is ""' in none.run("key").stderr


def test_a_file_that_others_may_read_is_refused(codes, coupon, tmp_path, keys_file):
    copy = tmp_path / "keys"
    copy.write_bytes(keys_file.read_bytes())
    other = Codes(codes.stack, copy)
    for mode in (0o644, 0o604, 0o660):
        copy.chmod(mode)
        told = other.refused("generate", coupon, "--count", 5, "--out", tmp_path / "c")
        assert "others may " in told and "allowed is chmod 600" in told
    copy.chmod(0o640)
    other.generate(coupon, 5, tmp_path / "c")


@pytest.mark.parametrize("text", ["", "1 00\n", "x\n", "0 " + 64 * "0", "1 " + 64 * "g"])
def test_a_file_without_keys_is_refused(codes, coupon, tmp_path, text):
    wrong = tmp_path / "keys"
    wrong.write_text(text)
    wrong.chmod(0o600)
    other = Codes(codes.stack, wrong)
    told = other.refused("generate", coupon, "--count", 5, "--out", tmp_path / "c")
    assert "allowed is VERSION HEX" in told


def test_another_key_is_refused(codes, coupon, tmp_path):
    codes.generate(coupon, 5, tmp_path / "a.csv")
    other = Codes(codes.stack, tmp_path / "keys")
    other("key")
    for words in (
        ("generate", coupon, "--count", 5, "--out", tmp_path / "b.csv"),
        ("show", column(tmp_path / "a.csv")[0]),
    ):
        assert "with another key as version 1" in other.refused(*words)
    assert len(codes.stats(coupon)["sets"]) == 1


def test_rotation(stack_make, tmp_path):
    alone = stack_make()
    alone.services()
    coupon = alone.coupon_make(10, publish=False)
    codes = Codes(alone, tmp_path / "keys")
    codes("key")
    first = (tmp_path / "keys").read_text()
    codes.generate(coupon, 100, tmp_path / "1.csv")
    assert codes("key").startswith("key 2 with the fingerprint ")
    assert (tmp_path / "keys").read_text().startswith(first)
    assert oct((tmp_path / "keys").stat().st_mode & 0o777) == "0o600"
    codes.generate(coupon, 100, tmp_path / "2.csv")
    old, new = column(tmp_path / "1.csv"), column(tmp_path / "2.csv")
    assert not set(old) & set(new)
    assert [one["key_version"] for one in codes.stats(coupon)["sets"]] == [1, 2]
    for code in (old[0], new[0]):
        assert codes.show(code)["code"] == code
    # The file of before must make no codes, and knows only its own.
    (tmp_path / "before").write_text(first)
    (tmp_path / "before").chmod(0o600)
    before = Codes(alone, tmp_path / "before")
    assert before.show(old[1])["code"] == old[1]
    told = before.refused("show", new[1], status=9)
    assert "unless it is one of 100 codes of key 2, which the file of keys lacks" in told
    out = ("--out", tmp_path / "3.csv")
    assert "not the newest file" in before.refused("generate", coupon, "--count", 5, *out)
    assert "lacks the key of version 2" in before.refused("export", coupon, "--all")
    assert not (tmp_path / "3.csv").exists()


# Revoking


def test_revoke(codes, coupon, tmp_path):
    made = codes.generate(coupon, 10, tmp_path / "c.csv")
    found = column(tmp_path / "c.csv")
    assert codes("revoke", found[0], found[1].lower()) == "2 revoked, 0 revoked before, 0 refused"
    assert codes("revoke", found[0]) == "0 revoked, 1 revoked before, 0 refused"
    shown = codes.show(found[1])
    assert (shown["state"], shown["user"]) == ("revoked", None)
    assert shown["revoked_by"] and shown["revoked_at"].endswith("Z")
    assert codes.stats(coupon)["revoked"] == 2
    wrong = codes.run("revoke", found[2], "nonsense", found[3][:-1])
    assert wrong.returncode == 6 and wrong.stdout == "1 revoked, 0 revoked before, 2 refused\n"
    assert 'couponctl: "nonsense": there is no such code\n' in wrong.stderr
    result = json.loads(codes("revoke", "--file", tmp_path / "c.csv", "--json"))
    assert result == {"revoked": 7, "revoked_before": 3, "refused": 0}
    assert codes("revoke", "--set", made["set"]) == codes("revoke", "--set", made["set"])
    numbers = codes.stats(coupon)
    assert (numbers["unused"], numbers["revoked"]) == (0, 10)


def test_revoke_a_set(codes, coupon, tmp_path):
    made = codes.generate(coupon, 10, tmp_path / "c.csv")
    told = codes("revoke", "--set", made["set"])
    assert re.fullmatch(f"set {made['set']} of coupon {coupon} is revoked, by .* at .*Z", told)
    assert codes.show(column(tmp_path / "c.csv")[0])["state"] == "revoked"
    assert "there is no set 999" in codes.refused("revoke", "--set", 999, status=9)


@pytest.mark.parametrize("words", [(), ("A", "--set", 1), ("--file", "x", "--set", 1)])
def test_revoke_takes_one_of_its_ways(codes, words):
    assert "takes codes, or --file, or --set" in codes.refused("revoke", *words, status=2)


def use(owner, codes, code, user):
    """As the transaction of a receive writes it."""
    shown = codes.show(code)
    owner.execute(
        "INSERT INTO code (set_id, serial, coupon_id, state, user_id, batch, idx, used_at)"
        " VALUES (%s, %s, %s, 'used', %s, gen_random_uuid(), 3, now())",
        (shown["set"], 4, shown["coupon"], user),
    )


def test_used_codes_stay_used_and_are_exported(codes, coupon, tmp_path, codes_owner):
    made = codes.generate(coupon, 10, tmp_path / "c.csv")
    found = column(tmp_path / "c.csv")
    use(codes_owner, codes, found[4], 'u,"1')
    shown = codes.show(found[4])
    assert (shown["state"], shown["user"], shown["revoked_at"]) == ("used", 'u,"1', None)
    assert re.fullmatch(rf'{coupon}\.u,"1\.[0-9A-Z]{{26}}\.3', shown["receive"])
    wrong = codes.run("revoke", found[4], found[5])
    assert wrong.returncode == 6 and 'it is used, by user u,"1' in wrong.stderr
    codes("revoke", "--set", made["set"])
    rows = list(csv.DictReader(codes("export", coupon).splitlines()))
    assert [(row["code"], row["user"], row["receive"]) for row in rows] == [
        (found[4], 'u,"1', shown["receive"])
    ]
    rows = [
        json.loads(line)
        for line in codes("export", "--set", made["set"], "--all", "--format", "jsonl").splitlines()
    ]
    assert [row["code"] for row in rows] == found
    assert [row["state"] for row in rows] == 4 * ["revoked"] + ["used"] + 5 * ["revoked"]
    numbers = codes.stats(coupon)
    assert (numbers["used"], numbers["revoked"], numbers["unused"]) == (1, 9, 0)


def test_export_refuses(codes, coupon, tmp_path):
    assert "either a coupon or --set" in codes.refused("export", status=2)
    assert "either a coupon or --set" in codes.refused("export", coupon, "--set", 1, status=2)
    assert f"there is no set of coupon {coupon}" in codes.refused("export", coupon, status=9)
    assert "there is no set 999" in codes.refused("export", "--set", 999, status=9)
    codes.generate(coupon, 1, tmp_path / "c.csv")
    told = codes.refused("export", coupon, "--out", tmp_path / "c.csv")
    assert "cannot be written: it exists already" in told


def test_nothing_changes_without_redis(codes, coupon, tmp_path):
    """Redis knows whether PostgreSQL was put back to an earlier moment."""
    away = ("--redis-url", "redis://127.0.0.1:1/0")
    for words in (
        ("generate", coupon, "--count", 5, "--out", tmp_path / "c.csv"),
        ("generate", coupon, "--word", "NEVER"),
        ("revoke", "NEVER"),
        ("revoke", "--set", 1),
    ):
        assert "Redis, which REDIS_URL names, cannot be reached" in codes.refused(
            *words, *away, status=10
        )
    assert os.listdir(tmp_path) == [] and codes.stats(coupon)["sets"] == []


def test_what_lies_at_the_place_of_the_part(codes, coupon, tmp_path):
    """It is replaced, and nobody who had it open or who may read it sees the codes."""
    out, part = tmp_path / "c.csv", tmp_path / "c.csv.part"
    part.write_text("of an interrupted command")
    part.chmod(0o644)
    with open(part, encoding="utf-8") as other:
        codes.generate(coupon, 3, out)
        assert other.read() == "of an interrupted command"
    assert out.stat().st_mode & 0o777 == 0o600 and not part.exists()
    part.symlink_to(tmp_path / "elsewhere")
    told = codes.refused("generate", coupon, "--count", 3, "--out", out.with_name("c.csv"))
    assert "exists: it is never overwritten" in told
    out.unlink()
    told = codes.refused("generate", coupon, "--count", 3, "--out", out)
    assert f'"{out}" cannot be written' in told
    part.unlink()
    with open(part, "w", encoding="utf-8") as busy:
        part.chmod(0o600)
        fcntl.flock(busy, fcntl.LOCK_EX)
        told = codes.refused("generate", coupon, "--count", 3, "--out", out, status=10)
        assert "another couponctl is writing it" in told
