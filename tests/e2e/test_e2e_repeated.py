"""Commands whose output is lost, and which are repeated with --key: nothing is made twice, and what
was made is named. coupon-admin passes Idempotency-Key on: test_e2e_admin.py."""

import json
import re
import subprocess
import threading
import uuid

import pytest

from stack import wait_until


def new():
    return uuid.uuid4().hex[:12]


@pytest.fixture
def stack(codes_stack):
    codes_stack.ctl("installation", "adopt")  # as a gateway would: keys are copied to Redis
    return codes_stack


@pytest.fixture
def pg(codes_owner):
    return codes_owner


@pytest.fixture
def codes_env(keys_file):
    return {"COUPON_CODE_KEYS": str(keys_file)}


@pytest.fixture
def draft(stack):
    return stack.coupon_make(10, publish=False)


# What each makes, its words, where its id is, and how many of them there are.
MAKING = {
    "create": (
        lambda coupon: ("create", "--name", "noon", "--total", 10),
        "coupon",
        "SELECT count(*) FROM coupon",
    ),
    "budget create": (
        lambda coupon: ("budget", "create", "b" + new(), "--amount", "7", "--currency", "EUR"),
        "name",
        "SELECT count(*) FROM budget",
    ),
    "publish": (
        lambda coupon: ("publish", coupon, "--wait-s", 0),
        "coupon",
        "SELECT count(*) FROM campaign_history WHERE action = 'publish'",
    ),
    "webhook create": (
        lambda coupon: ("webhook", "create", "https://shop.example/hook"),
        "webhook",
        "SELECT count(*) FROM webhook",
    ),
    "key create": (
        lambda coupon: ("key", "create", "--name", "shop", "--role", "read"),
        "key",
        "SELECT count(*) FROM api_key",
    ),
    "codes generate": (
        lambda coupon: ("codes", "generate", coupon, "--count", 3),
        "set",
        "SELECT count(*) FROM code_set",
    ),
    "codes generate --word": (
        lambda coupon: ("codes", "generate", coupon, "--word", "W" + new()),
        "set",
        "SELECT count(*) FROM code_set",
    ),
}


@pytest.fixture(autouse=True)
def hooks_removed(pg):
    yield
    pg.execute("DELETE FROM webhook WHERE url = 'https://shop.example/hook'")


def count(pg, statement):
    return pg.execute(statement).fetchone()[0]


def ran(stack, words, settings, *options, **more):
    return stack.ctl_run(*words, *options, settings=settings, **more)


@pytest.mark.parametrize("command", MAKING)
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_output_that_cannot_be_written(stack, pg, codes_env, draft, command, as_json):
    """Exit status 12, and standard error names what was made: it is there."""
    words, member, counted = MAKING[command]
    before = count(pg, counted)
    with open("/dev/full", "w", encoding="ascii") as full:
        told = subprocess.run(
            [str(stack.build_dir / "couponctl"), *map(str, words(draft)), *as_json],
            env={**stack.env_of("operator"), **codes_env, "PATH": "/usr/bin"},
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert told.returncode == 12, told.stderr
    assert count(pg, counted) == before + 1
    assert "standard output cannot be written" in told.stderr
    made = pg.execute(
        {
            "coupon": "SELECT id::text FROM coupon ORDER BY created_at DESC LIMIT 1",
            "name": "SELECT name FROM budget ORDER BY created_at DESC LIMIT 1",
            "webhook": "SELECT max(id)::text FROM webhook",
            "key": "SELECT id FROM api_key ORDER BY created_at DESC LIMIT 1",
            "set": "SELECT max(id)::text FROM code_set",
        }[member]
    ).fetchone()[0]
    assert re.search(rf"\b{re.escape(draft if command == 'publish' else made)}\b", told.stderr)
    assert "whsec_" not in told.stderr and not re.search("cmq_[^ ]*_", told.stderr), "no secret"
    assert pg.execute(
        "SELECT status FROM command_history WHERE command = %s ORDER BY id DESC LIMIT 1",
        (command.split(" --")[0],),
    ).fetchone() == (12,)


def test_output_of_a_command_that_only_reads(stack, draft):
    with open("/dev/full", "w", encoding="ascii") as full:
        told = subprocess.run(
            [str(stack.build_dir / "couponctl"), "show", str(draft)],
            env={**stack.env_of("operator"), "PATH": "/usr/bin"},
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert told.returncode == 1
    assert told.stderr.strip().startswith("couponctl: standard output cannot be written")


def test_a_closed_standard_output_is_no_socket(stack, pg):
    """Without file descriptor 1 nothing else gets its number, and the id."""
    before = count(pg, "SELECT count(*) FROM coupon")
    told = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", str(stack.build_dir / "couponctl"), "create", "--name",
         "closed", "--total", "1"],
        env={**stack.env_of("operator"), "PATH": "/usr/bin"},
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 12, told.stderr
    assert count(pg, "SELECT count(*) FROM coupon") == before + 1
    assert re.search(r"coupon \d+ was created", told.stderr)


@pytest.mark.parametrize("command", MAKING)
def test_repeated_with_a_key(stack, pg, codes_env, draft, command):
    words, member, counted = MAKING[command]
    words, key = words(draft), f"attempt {new()}".ljust(255, "x")
    before = count(pg, counted)
    first = ran(stack, words, codes_env, "--json", "--key", key)
    assert first.returncode == 0, first.stderr
    again = ran(stack, words, codes_env, "--json", "--key", key, "--by", "somebody else")
    assert again.returncode == 0, again.stderr
    assert count(pg, counted) == before + 1
    one, other = json.loads(first.stdout), json.loads(again.stdout)
    assert one[member] == other[member]
    if "secret" in one:
        assert one["secret"] and other["secret"] is None, "it is stored nowhere"
        assert "warning" in again.stderr and "rotate" in again.stderr
    else:
        assert {**one, "left": None} == {**other, "left": None}
    text = ran(stack, words, codes_env, "--key", key)
    assert text.returncode == 0 and str(one[member]) in text.stdout
    assert count(pg, counted) == before + 1


@pytest.mark.parametrize("command", MAKING)
def test_a_key_with_other_words(stack, pg, codes_env, draft, command):
    """Nothing is made, whichever command has the key."""
    words, _, counted = MAKING[command]
    words, key = words(draft), new()
    assert stack.ctl_run("create", "--name", "x", "--total", 1, "--key", key).returncode == 0
    before = count(pg, counted)
    told = ran(stack, words, codes_env, "--key", key)
    assert told.returncode == 4 and told.stdout == ""
    assert f'--key is "{key}": it was given before, to create' in told.stderr
    assert count(pg, counted) == before


@pytest.mark.parametrize(
    "key, allowed",
    [("", "1 to 255 bytes"), ("x" * 256, "1 to 255 bytes"), ("ä", "printable ASCII")],
)
def test_what_is_no_key(stack, pg, key, allowed):
    before = count(pg, "SELECT count(*) FROM coupon")
    told = stack.ctl_run("create", "--name", "x", "--total", 1, "--key", key)
    assert told.returncode == 2 and "--key" in told.stderr and allowed in told.stderr
    assert count(pg, "SELECT count(*) FROM coupon") == before


def test_a_command_that_failed_leaves_no_key(stack):
    """Its words may be corrected: nothing was made."""
    words, key = (
        "create",
        "--name",
        "x",
        "--total",
        1,
        "--amount-off",
        5,
        "--currency",
        "EUR",
    ), new()
    told = stack.ctl_run(*words, "--budget", "absent" + key, "--key", key)
    assert told.returncode == 9, told.stderr
    assert stack.ctl_run(*words, "--key", key).returncode == 0


def waiting_n(pg):
    pg.execute("SELECT pg_stat_clear_snapshot()")
    return count(
        pg,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'couponctl'"
        " AND wait_event_type = 'Lock'",
    )


def test_two_at_once_with_one_key(stack, pg):
    """The second waits for the first, and prints the same."""
    key, told = new(), []
    words = ("create", "--name", key, "--total", 1, "--key", key)
    with pg.transaction():
        pg.execute("LOCK TABLE coupon IN EXCLUSIVE MODE")
        both = [threading.Thread(target=lambda: told.append(stack.ctl_run(*words))) for _ in "ab"]
        for one in both:
            one.start()
        wait_until(lambda: waiting_n(pg) == 2)
    for one in both:
        one.join()
    assert [one.returncode for one in told] == [0, 0], [one.stderr for one in told]
    assert told[0].stdout == told[1].stdout
    assert count(pg, f"SELECT count(*) FROM coupon WHERE name = '{key}'") == 1


def test_a_pause_that_comes_again_after_a_resume(stack):
    coupon, key = stack.coupon_make(10), new()
    paused = stack.ctl("pause", coupon, "--key", key)
    stack.ctl("resume", coupon)
    assert stack.ctl("pause", coupon, "--key", key) == paused
    assert json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["status"] == "published"


def test_a_secret_is_not_rotated_twice(stack, pg):
    made = json.loads(stack.ctl("key", "create", "--name", "x", "--role", "read", "--json"))
    key, hash_of = new(), "SELECT encode(sha256, 'hex') FROM api_key WHERE id = %s"
    stack.ctl("key", "rotate", made["key"], "--key", key)
    now = pg.execute(hash_of, (made["key"],)).fetchone()
    told = json.loads(stack.ctl("key", "rotate", made["key"], "--key", key, "--json"))
    assert told == {"key": made["key"], "secret": None}
    assert pg.execute(hash_of, (made["key"],)).fetchone() == now


def test_a_file_of_codes_with_a_key(stack, pg, codes_env, draft, tmp_path):
    out, key = tmp_path / "codes.csv", new()
    words = ("codes", "generate", draft, "--count", 3, "--out", out, "--key", key, "--json")
    first = ran(stack, words, codes_env)
    assert first.returncode == 0, first.stderr
    text = out.read_text()
    again = ran(stack, words, codes_env)
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert out.read_text() == text and not (tmp_path / "codes.csv.request").exists()
    assert count(pg, f"SELECT count(*) FROM code_set WHERE coupon_id = {draft}") == 1
    out.unlink()
    gone = ran(stack, words, codes_env)
    assert gone.returncode == 1 and json.loads(first.stdout)["set"] in gone.stderr
    assert count(pg, f"SELECT count(*) FROM code_set WHERE coupon_id = {draft}") == 1


def test_the_content_of_a_file_counts_as_a_word(stack, codes_env, draft, tmp_path):
    path, key = tmp_path / "codes.csv", new()
    words = ("codes", "import", draft, path, "--key", key)
    path.write_text(f"code\n{key}-A\n")
    assert ran(stack, words, codes_env).returncode == 0
    assert ran(stack, words, codes_env).returncode == 0, "the same codes again"
    path.write_text(f"code\n{key}-B\n")
    assert ran(stack, words, codes_env).returncode == 4
