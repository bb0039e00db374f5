"""`couponctl --api`: a request and its answer as JSON, with the checks of the command line."""

import json
import os
import re
import socket
import subprocess
import threading

import pika
import pytest

from history import DEAD_QUEUE
from relay import port_of
from stack import wait_until

DONE, FAILED, INVALID, KEY_REUSED, REFUSED, ABSENT, AWAY, UNKNOWN = 0, 1, 2, 4, 6, 9, 10, 12


class Once:
    """Passes on one connection; each other one is closed."""

    def __init__(self, target):
        self.target, self.served = target, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def url(self, url):
        return re.sub(r":\d+(?=/|$)", f":{self.port}", url)

    def run(self):
        try:
            while True:
                client, _ = self.listener.accept()
                if self.served:
                    client.close()
                    continue
                self.served += 1
                server = socket.create_connection(("127.0.0.1", self.target))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=ends, daemon=True).start()
        except OSError:  # the test has ended
            pass

    @staticmethod
    def pump(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.fixture
def api(stack):
    def call(command, *arguments, **members):
        return told(stack, json.dumps({"command": command, "arguments": arguments, **members}))

    return call


def told(stack, text, **settings):
    """The answer. Its exit status is that of the process, and standard error has only progress."""
    done = stack.ctl_run("--api", input=text, settings=settings)
    assert all(line.endswith(" %") for line in done.stderr.splitlines()), done
    answer = json.loads(done.stdout)
    assert list(answer) == ["members", "status", "detail", "warnings"]
    assert answer["status"] == done.returncode
    assert (answer["status"] == DONE) <= (answer["detail"] is None)
    first, *members, last = done.stdout.splitlines()
    assert first == '{"members":[' and last.startswith('],"status":')
    assert [json.loads(line.removesuffix(",")) for line in members] == answer["members"]
    return answer


def detail(answer, status=INVALID):
    assert (answer["status"], answer["members"]) == (status, []), answer
    return answer["detail"]


def test_a_campaign(stack, api):
    terms = {"name": "Noon --x", "total": 3, "amount_off": 700, "currency": "EUR"}
    (made,) = api("create", **terms, metadata={"ratio": 0.1})["members"]
    changed = api("edit", made["coupon"], version=1, amount_off="800", currency="EUR")
    assert [one["version"] for one in changed["members"]] == [2], changed
    (shown,) = api("show", made["coupon"])["members"]
    assert shown == json.loads(stack.ctl("show", made["coupon"], "--json"))
    assert (shown["discount"]["amount_off"], shown["metadata"]) == (800, {"ratio": 0.1})
    page = api("list", count=2, after=str(int(made["coupon"]) - 1))
    assert (page["status"], page["warnings"]) == (DONE, [])
    assert [one["coupon"] for one in page["members"]][0] == made["coupon"]
    assert detail(api("edit", made["coupon"], version=1, name="x"), 8).startswith("version is 1,")
    assert detail(api("show", "9999"), ABSENT) == "there is no coupon 9999"


def test_modes_and_switches(api, stack):
    coupon = stack.coupon_make(3)
    assert api("show --curve", coupon)["status"] == DONE
    (made,) = api("codes generate --word", coupon, word=f"NOON{coupon}")["members"]
    assert made["coupon"] == coupon
    assert detail(api("codes generate --word", coupon)) == "word is missing"
    assert api("audit", all=True, grace=0)["status"] in (DONE, FAILED)
    told_twice = detail(api("audit", coupon, all=True))
    assert "all" in told_twice and "--" not in told_twice
    assert api("audit", coupon, all=False, grace=0)["members"]


def test_a_key(api):
    """Repeated, the command prints what it printed; its key is named as coupon-admin gets it."""
    terms = {"name": "Once", "total": 1, "key": f"api-{id(api)}"}
    first = api("create", **terms)
    assert api("create", **terms)["members"] == first["members"]
    other = detail(api("create", **{**terms, "total": 2}), KEY_REUSED)
    assert other.startswith(f'Idempotency-Key is "{terms["key"]}": it was given before')


@pytest.mark.parametrize(
    "text, detail_wanted",
    [
        ("", "the request: "),
        ("nonsense", "the request: not JSON"),
        ("[]", "the request: allowed is an object"),
        ('{"command":"list"}{}', "the request: "),
        ('{"command":"list","command":"show"}', "the request: a member that occurs twice"),
        ("{}", "command: allowed is a text"),
        ('{"command":7}', "command: allowed is a text"),
        ('{"command":"budget"}', 'there is no command "budget"'),
        ('{"command":"--help"}', 'there is no command "--help"'),
        ('{"command":"lock","arguments":["a"]}', "lock runs another program: it has a co"),
        ('{"command":"show","arguments":"1"}', "arguments: allowed is a list of texts"),
        ('{"command":"show","arguments":[1]}', "arguments: allowed is a list of texts"),
        ('{"command":"show"}', "show needs ID"),
        ('{"command":"show","arguments":["1","2"]}', "show takes only one argument, but also got"),
        ('{"command":"show","arguments":["--json"]}', 'ID is "--json": allowed is an integer from'),
        ('{"command":"list","cuont":1}', 'list has no member "cuont"'),
        ('{"command":"list","json":true}', 'list has no member "json"'),
        ('{"command":"list","count":"x"}', 'count is "x": allowed is an integer from 1 to 100000'),
        ('{"command":"list","count":1.5}', 'count is "1.5": allowed is an integer from 1 to 1000'),
        ('{"command":"list","count":true}', "count: allowed are a text and a number"),
        ('{"command":"list","count":9007199254740992}', "count: a number beyond 2^53 - 1 is not"),
        ('{"command":"create","name":7,"total":1}', "name: allowed are texts"),
        ('{"command":"create","name":"a\\u0007","total":1}', 'name is "a\\x07": allowed is text i'),
        ('{"command":"create","name":"a","total":1,"valid_from":"now"}', "valid_from and valid_to"),
        (
            '{"command":"create","name":"a","total":1,"budget":"none"}',
            'budget is "none": this text',
        ),
        (
            '{"command":"create","name":"a","total":1,"amount_off":7.5}',
            "amount_off is 7.5: allowed",
        ),
        ('{"command":"create","name":"a","total":1,"events":"on"}', "events: allowed are true and"),
        ('{"command":"codes export","set":"1"}', 'format is "": allowed is jsonl, whose lines'),
        ('{"command":"codes import","arguments":["1"],"lines":{}}', "lines: allowed is a list"),
    ],
)
def test_what_is_refused(stack, text, detail_wanted):
    """With the sentence of the command line, in which an option is a member."""
    assert detail(told(stack, text)).startswith(detail_wanted)


def test_a_store_that_goes_away_meanwhile(rough):
    """The answer is whole where the process that searches dead letters has none. RabbitMQ takes one
    connection: it shows the queue, and no dead letter."""
    coupon = rough.coupon_make(3)
    rough.stop("worker-1")
    with rough.client() as client:
        receive = client.issue(coupon, 7)["receive"]
    with pika.BlockingConnection(pika.URLParameters(rough.env["AMQP_URL"])) as connection:
        connection.channel().basic_publish("", DEAD_QUEUE, b"x")
    with Once(port_of(rough.env["AMQP_URL"])) as once:
        url = once.url(rough.env_of("operator")["AMQP_URL"])
        text = json.dumps({"command": "trace", "arguments": [receive]})
        answer = told(rough, text, AMQP_URL=url)
    assert [one["receive"] for one in answer["members"]] == [receive]
    assert answer["status"] == 10 and "RabbitMQ" in answer["detail"], answer
    assert once.served == 1
    rough.ctl("dead", "remove", "--all", "--yes")


def test_an_answer_that_cannot_be_written(stack, pg):
    """Nothing was changed, or it is unknown to the caller what was."""
    coupon = stack.coupon_make(3)
    issue = {"command": "issue", "coupon": coupon, "user": "5"}
    for request, status in (
        ({"command": "webhook list"}, FAILED),
        ({"command": "list"}, FAILED),
        (issue, UNKNOWN),
        ({"command": "create", "name": "unseen", "total": 1}, UNKNOWN),
    ):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run(
                [stack.build_dir / "couponctl", "--api"],
                env={**os.environ, **stack.env_of("operator")},
                input=json.dumps(request), text=True, stdout=full, check=False,
            )  # fmt: skip
        assert done.returncode == status, request
    counted = "SELECT count(*) FROM user_coupon WHERE coupon_id = %s"
    wait_until(lambda: pg.execute(counted, (coupon,)).fetchone() == (1,))
    counted = "SELECT count(*) FROM coupon WHERE name = 'unseen'"
    assert pg.execute(counted).fetchone() == (1,)


def test_a_reply_that_is_no_answer(stack):
    """The request was sent: the outcome of an issue is unknown, of a status nothing changes."""
    issue = ("issue", "--coupon", "1", "--user", "5")
    for words, status in ((issue, UNKNOWN), (("status", "--user", "5", "--coupon", "1"), AWAY)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=reply_once, args=(server,))
            thread.start()
            place = f"127.0.0.1:{server.getsockname()[1]}"
            plain = {"COUPON_LISTEN": place, "COUPON_TLS_CA": ""}
            done = stack.ctl_run(*words, settings=plain)
            thread.join()
        assert done.returncode == status, done
        assert "reply has no code: hello" in done.stderr


def reply_once(server):
    connection, _ = server.accept()
    with connection, connection.makefile("rw") as lines:
        lines.readline()
        lines.write("hello\n")


def test_the_value_of_a_wrong_flag_is_not_told(stack):
    for words in (("--redis-pasword=S3CRET", "list"), ("--api", "--redis-pasword=S3CRET")):
        done = stack.ctl_run(*words, input="{}")
        said = done.stdout + done.stderr
        assert done.returncode == INVALID and "--redis-pasword" in said and "S3CRET" not in said


def test_settings_are_refused(stack):
    done = stack.ctl_run("--api", "--redis-url", "nonsense", input='{"command":"list"}')
    assert json.loads(done.stdout)["status"] == done.returncode == DONE, "list needs no Redis"
    done = stack.ctl_run("--api", settings={"COUPON_LOG_LEVEL": "loud"})
    assert done.returncode == FAILED and "loud" in json.loads(done.stdout)["detail"], done
    done = stack.ctl_run("--api", "list")
    assert detail(json.loads(done.stdout)) == 'this mode takes settings only, but got "list"'


def test_lines_of_a_file(stack, api):
    coupon = stack.coupon_make(3)
    lines = [{"code": f"LINES{coupon}"}, {"code": ""}]
    answer = api("codes import", coupon, lines=lines)
    assert (answer["status"], answer["members"][0]["stored"]) == (REFUSED, 1), answer
    assert answer["detail"].startswith("line 2: "), answer


def test_more_sentences_than_an_answer_has(stack, api):
    """The earlier ones are left out as a whole, and counted."""
    coupon, n = stack.coupon_make(1), 3000
    answer = api("codes import", coupon, lines=[{"code": ""}] * n, format="jsonl")
    first, *rest = [*answer["warnings"], answer["detail"]]
    left_out = n - len(rest)
    assert first == f"{left_out} earlier lines are left out" and 0 < left_out < n
    why = rest[-1].removeprefix(f"line {n}: ")
    assert rest == [f"line {left_out + k}: {why}" for k in range(1, len(rest) + 1)]
    assert 60_000 < sum(map(len, rest)) <= 65_536
