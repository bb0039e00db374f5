"""The couponctl that coupon-admin starts: a forged one dies, hangs, says nothing or too much."""

import json
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from admin_client import API, Admin, job_of, key_id, known, ok, problem
from stack import dial, process_gone, wait_until

FAKE = """#!/bin/sh
echo "$$ $(cat)" >>FOLDER/started
# answer STATUS [MEMBERS [DETAIL [WARNINGS]]]: as couponctl --api does, the last three as JSON
answer() {
    printf '{"members":[\\n%s],"status":%s,"detail":%s,"warnings":[%s]}\\n' "${2:+$2
}" "$1" "${3:-null}" "$4"
    exit "$1"
}
. FOLDER/does
"""


@pytest.fixture
def fake(stack, key_make, tmp_path):
    """
    A coupon-admin whose couponctl does what the test says: fake.does(SHELL), or fake.hold() until
    fake.release().
    """
    shutil.copy(stack.build_dir / "coupon-admin", tmp_path)
    program = tmp_path / "couponctl"
    program.write_text(FAKE.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    one = Admin(stack, f"{tmp_path}/", COUPON_ADMIN_TIMEOUT_MS=100000)
    one.described.is_forged = True
    one.does = (tmp_path / "does").write_text
    one.program = program
    one.api = known(one, key_make("admin"))
    (tmp_path / "started").write_text("")
    one.started = lambda: [
        line.split(maxsplit=1) for line in (tmp_path / "started").read_text().splitlines()
    ]
    one.requests = lambda: [json.loads(request) for _, request in one.started()]
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    one.hold = lambda: one.does(f"{wait}; answer 0 '{{}}'")
    one.release = (tmp_path / "go").touch
    one.waiting = lambda: one.metric("couponmq_admin_commands_waiting")
    yield one
    one.release()
    one.end()


def test_a_command_that_dies_or_says_nothing(fake):
    for does, status in (
        ("kill -9 $$", 500),
        ("kill -SEGV $$", 500),
        ("exit 1", 409),
        ("exit 77", 500),
        ("echo nonsense", 500),
        ("echo '{'", 500),
        ("echo '{}'", 500),
        ("answer 0 '{'", 500),
        ("answer 0", 500),
        ("yes", 400),
    ):
        fake.does(does)
        problem(fake.api("GET", "/campaigns/1"), status)
    fake.does("yes")
    assert "is unknown" in problem(fake.api("POST", "/campaigns/1/pause"), 500)
    fake.does("""answer 3 '{}' null '"late"'""")
    assert ok(fake.api("POST", "/campaigns/1/pause")) == {"warnings": ["late"]}
    fake.program.unlink()
    assert "cannot be started" in problem(fake.api("GET", "/campaigns/1"), 503)
    assert fake.call("GET", "/readyz").status_code == 503


def test_exit_statuses(fake):
    """What each means, also of a job; a verdict is an answer where there is one to give."""
    for code, status in (
        (1, 409),
        (2, 400),
        (3, 500),
        (4, 422),
        (6, 409),
        (7, 503),
        (8, 412),
        (9, 404),
        (10, 503),
        (12, 500),
    ):
        fake.does(f"""answer {code} "" '"why"' """)
        assert problem(fake.api("POST", "/campaigns/1/pause"), status) == "why"
        for path in ("/campaigns/1/audit", "/campaigns/1/rebuild"):
            assert job_of(fake.api, path)["problem"]["status"] == status
    for code, paths in (
        (1, ("/campaigns/1/audit",)),
        (10, ("/campaigns/1/audit", "/audit")),
        (5, ("/campaigns/1/audit",)),
        (3, ("/campaigns/1/rebuild",)),
    ):
        fake.does(f"answer {code} '{{}}'")
        assert [job_of(fake.api, path)["state"] for path in paths] == ["done"] * len(paths)
    fake.does("""answer 12 '{}' '"why"' '"late"'""")
    assert problem(fake.api("POST", "/campaigns/1/pause"), 500) == "why"
    fake.does("""answer 1 '{"receive":"x"}' """)
    assert job_of(fake.api, "/campaigns/1/rebuild")["problem"]["status"] == 409
    assert ok(fake.api("POST", "/receives/x/void")) == {"receive": "x"}
    problem(fake.api("POST", "/campaigns/1/pause"), 409)
    fake.does("""answer 10 '{"code":20,"status":"busy"}' '"busy"' """)
    assert problem(fake.api("GET", "/receives/x"), 503) == "busy", "this is no partial answer"


def test_no_exchange_code_is_logged(fake):
    fake.does("""answer 10 "" '"away"' """)
    problem(fake.api("GET", "/codes/NOONCODE"), 503)
    wait_until(lambda: "path=/codes/{code} " in fake.log())
    for path, status in (
        ("/codes/NOONCODE", 405),
        ("/codes/NOONCODE/", 404),
        ("/codes/NOONCODE/x", 404),
        (f"/keys/{fake.api.key}", 405),
    ):
        problem(fake.api("POST", path), status)
    problem(fake.call("GET", f"{API}/codes/NOONCODE", Origin="http://evil.example"), 403)
    wait_until(lambda: "path=? address=127.0.0.1 http=403" in fake.log())
    assert "NOONCODE" not in fake.log() and fake.api.key not in fake.log()


@pytest.mark.parametrize("method, path", (("GET", ""), ("POST", "/revoke"), ("POST", "/rotate")))
def test_no_whole_key_is_logged_or_passed_on(fake, method, path):
    started = len(fake.started())
    detail = problem(fake.api(method, f"/keys/{fake.api.key}{path}"), 400)
    assert "the path has no key id" in str(detail)
    wait_until(lambda: not path or f"path=/keys/{{api_key}}{path} " in fake.log())
    assert fake.api.key not in fake.log()
    assert len(fake.started()) == started


def test_the_request_of_a_command(fake):
    fake.does("answer 0 '{}'")
    terms = {"name": 'a $(b) "c"', "end": None, "valid_days": 7}
    fake.api("PATCH", "/campaigns/1", terms, If_Match='"7"')
    head = {"command": "edit", "arguments": ["1"], "by": key_id(fake.api), "version": "7"}
    assert fake.requests()[-1] == {**head, **terms}


def sent(fake, path):
    """A connection by which it was posted."""
    connection = dial(fake.address)
    head = f"POST {API}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    connection.sendall(f"{head}Authorization: Bearer {fake.api.key}\r\n\r\n".encode())
    return connection


def test_a_command_that_hangs(fake):
    """It goes on without its client; a job ends when it is told to."""
    fake.does("exec sleep 1000")
    connection = sent(fake, "/campaigns/1/pause")
    wait_until(fake.started)
    changes = int(fake.started()[0][0])
    connection.close()
    job = ok(fake.api("POST", "/audit"), 202)["job"]
    wait_until(lambda: ok(fake.api("GET", f"/jobs/{job}"))["state"] == "running")
    wait_until(lambda: len(fake.started()) == 2)
    audits = int(fake.started()[-1][0])
    assert ok(fake.api("DELETE", f"/jobs/{job}"))["state"] == "ended"
    wait_until(lambda: process_gone(audits))
    assert not process_gone(changes)
    subprocess.run(["kill", str(changes)], check=True)


def test_a_child_that_outlives_its_command(fake):
    """What a command has started holds its output: it is waited for no longer than the command."""
    late = Admin(fake.stack, f"{fake.program.parent}/", COUPON_ADMIN_TIMEOUT_MS=300)
    fake.does("sleep 5 & exit 0")
    problem(known(late, fake.api.key)("GET", "/campaigns/1"), 504)
    late.end()


def test_the_end_waits_for_changes(fake):
    """What looks is ended, what waits is refused, and what changes something is answered."""
    fake.hold()
    with ThreadPoolExecutor(20) as pool:
        changes = [pool.submit(fake.api, "POST", f"/campaigns/{n}/pause") for n in range(1, 10)]
        wait_until(lambda: fake.waiting() == 1)
        ok(fake.api("POST", "/campaigns/1/rebuild"), 202)
        looks = pool.submit(fake.api, "GET", "/campaigns/1")
        wait_until(lambda: fake.waiting() == 2)
        fake.signal(signal.SIGTERM)
        assert "is stopping" in problem(looks.result(), 503)
        wait_until(lambda: any(one.done() for one in changes))
        assert "is stopping" in problem(fake.api("POST", "/campaigns/1/close"), 503)
        assert fake.call("GET", "/readyz").json() == {"ready": False}
        assert fake.child.poll() is None
        wait_until(lambda: [one["command"] for one in fake.requests()].count("rebuild") == 1)
        fake.release()
        assert sorted(one.result().status_code for one in changes) == [200] * 8 + [503]
    assert fake.child.wait(10) == 0


def test_a_key_that_is_revoked_while_its_command_waits(stack, fake, key_make):
    keys = {name: known(fake, key_make("admin")) for name in ("key", "session", "job", "good")}
    browser = requests.Session()
    url = f"{fake.url}/admin/session"
    token = browser.post(url, json={"key": keys["session"].key}, timeout=60).json()["csrf_token"]
    headers = {"X-CSRF-Token": token}
    fake.hold()
    with ThreadPoolExecutor(20) as pool:
        path = f"{fake.url}{API}/campaigns/2/close"
        first = [pool.submit(keys["good"], "POST", "/campaigns/1/pause") for _ in range(8)]
        wait_until(lambda: len(fake.started()) == 8)
        late = [
            pool.submit(keys["key"], "POST", "/campaigns/2/close"),
            pool.submit(browser.post, path, headers=headers, timeout=60),
            pool.submit(keys["good"], "POST", "/campaigns/3/close"),
        ]
        jobs = [ok(keys["job"]("POST", "/campaigns/1/rebuild"), 202)["job"] for _ in range(5)]
        path = f"{fake.url}{API}/campaigns/1/rebuild"
        jobs.insert(0, browser.post(path, headers=headers, timeout=60).json()["job"])
        gone = sent(fake, "/campaigns/4/close")
        wait_until(lambda: fake.waiting() == 6)
        gone.close()
        for name in ("key", "job"):
            stack.ctl("key", "revoke", key_id(keys[name]))
            wait_until(lambda: keys[name]("GET", "/jobs").status_code == 401)
        left = requests.delete(url, headers=headers, cookies=browser.cookies, timeout=60)
        assert left.status_code == 204
        fake.release()
        assert [one.result().status_code for one in first] == [200] * 8
        assert [one.result().status_code for one in late] == [401, 401, 200]
        assert "nothing was done" in problem(late[0].result(), 401)
        ended = [
            wait_until(lambda: (job := ok(fake.api("GET", f"/jobs/{id_}")))["ended_at"] and job)
            for id_ in jobs
        ]
    assert [job["state"] for job in ended] == ["done"] * 5 + ["failed"]
    assert ended[-1]["problem"]["status"] == 401
    done = fake.requests()
    assert len(done) == 14
    assert [one["arguments"] for one in done if one["command"] == "close"] == [["3"]]


def test_a_command_that_takes_too_long(stack, fake, key_make):
    """It ends with what it has started."""
    folder = fake.program.parent
    fake.does(f'sleep 100 & echo "$! sleep" >>{folder}/started; wait')
    late = Admin(stack, f"{folder}/", COUPON_ADMIN_TIMEOUT_MS=2000)
    caller = known(late, fake.api.key)
    assert "unknown" in problem(caller("POST", "/campaigns/1/close"), 504)
    late.end()
    (own, _), (below, _) = fake.started()
    assert process_gone(int(own))
    wait_until(lambda: process_gone(int(below)))


def test_more_than_it_may_run_at_once(fake, key_make):
    """Six that look run, 64 wait, 32 of one key; a change starts at once."""
    keys = [known(fake, key_make("monitor")) for _ in range(3)]
    fake.hold()

    def look(key, n):
        return [pool.submit(key, "GET", "/campaigns/1") for _ in range(n)]

    with ThreadPoolExecutor(90) as pool:
        told = look(keys[0], 40)
        wait_until(lambda: sum(one.done() for one in told) == 2)
        told += look(keys[1], 34)
        wait_until(lambda: sum(one.done() for one in told) == 4)
        assert (len(fake.started()), fake.waiting()) == (6, 64)
        assert "too many" in problem(keys[2]("GET", "/campaigns/1"), 503)
        changes = pool.submit(fake.api, "POST", "/campaigns/1/pause")
        wait_until(lambda: len(fake.started()) == 7)
        fake.release()
        assert changes.result().status_code == 200
        statuses = sorted(one.result().status_code for one in told)
    assert statuses == [200] * 70 + [503] * 4
