"""The programs of examples/, as their readers would start them."""

import base64
import hmac
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time
from contextlib import contextmanager

import pika
import psycopg
import pytest
import requests

from process import Worker
from stack import ROOT, port_free, wait_until
from webhooks import SOON, Webhooks

FORM = re.compile(r'<form method=post action="([^"]+)">(.*?)<button>([^<]+)</button></form>')
FIELD = re.compile(r'name=(\w+) value="([^"]*)"')


@pytest.fixture
def selling(own_stack):
    """A stack of its own, whose gateway may be stopped, and a coupon of 5.00 EUR."""
    own_stack.start("worker-1")
    own_stack.coupon = own_stack.coupon_make(100, 2, amount_off="5.00", currency="EUR", events="on")
    yield own_stack
    own_stack.stop("worker-1")


def rows(stack, statement):
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as db:
        return db.execute(statement, (stack.coupon,)).fetchall()


def states(stack):
    """How many receives of the coupon there are in each state of a checkout."""
    found = rows(stack, "SELECT state, count(*) FROM receive_use WHERE coupon_id = %s GROUP BY 1")
    return {state: n for state, n in found if state != "free"}


@contextmanager
def running(stack, *command, **settings):
    """A program that prints its address first; kill() is as abrupt as a loss of power."""
    url = stack.http("/").rstrip("/")
    trusted = {"COUPON_TLS_CA": stack.env["COUPON_TLS_CA"]} if url.startswith("https") else {}
    process = subprocess.Popen(
        [*map(str, command), str(stack.coupon), "0"],
        env={"PATH": os.environ["PATH"], "COUPON_GATEWAYS": url, **trusted, **settings},
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    process.url = process.stdout.readline().strip().partition("/users/")[0]
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Browser:
    """Presses the buttons of the pages."""

    def __init__(self, url):
        self.url, self.session = url, requests.Session()

    def open(self, path):
        reply = self.session.get(self.url + path, timeout=60)
        self.page, self.at = reply.text, reply.url
        return self

    def form(self, label):
        """The only form, or the first, whose button has this label."""
        return next(
            (action, dict(FIELD.findall(fields)))
            for action, fields, told in FORM.findall(self.page)
            if told.startswith(label)
        )

    def press(self, label):
        action, fields = self.form(label)
        reply = self.session.post(self.url + action, data=fields, timeout=120)
        self.page, self.at = reply.text, reply.url
        return self


def shop(stack, tmp_path):
    python = {"PYTHONPATH": "sdk/python", "SHOP_DB": str(tmp_path / "shop.db")}
    return running(stack, "/usr/bin/python3", "-B", "examples/shop/shop.py", **python)


def test_the_shop(selling, tmp_path):
    with shop(selling, tmp_path) as process:
        user = Browser(process.url).open("/users/42")
        twice = Browser(process.url).open("/users/42")
        twice.page = user.page  # the same press arrives again
        for browser in (user, twice):
            assert browser.press("Get the coupon").at.endswith("/users/42")
        assert user.page.count("<li>") == 1
        (issued,) = rows(selling, "SELECT count(*) FROM user_coupon WHERE coupon_id = %s")
        assert issued == (1,)

        user.press("Order")
        assert "state: held" in user.page and "to_pay: 15.00 EUR" in user.page
        assert states(selling) == {"held": 1}
        assert "state: paid" in user.press("Pay").page
        assert states(selling) == {"used": 1}
        assert "state: cancelled" in user.press("Cancel").page
        assert states(selling) == {}

        user.open("/users/42").press("Order")
        assert "state: cancelled" in user.press("Cancel").page
        assert states(selling) == {}
        # Another user cannot have this one's coupon, which is free.
        other = Browser(process.url).open("/users/7")
        other.page = user.open("/users/42").page.replace("/users/42/", "/users/7/")
        assert "state: refused" in other.press("Order").page
        assert "told: not_found" in other.page and states(selling) == {}
        # What is no receive is refused, and does not stop the next start.
        url = f"{process.url}/users/7/orders"
        assert "state: refused" in requests.post(url, data={"receive": "x"}, timeout=60).text
    with shop(selling, tmp_path) as process:
        assert "<li>" in Browser(process.url).open("/users/42").page


def test_a_shop_that_is_killed_while_it_uses_a_coupon(selling, tmp_path):
    """The next start does what the order is doing, once."""
    with shop(selling, tmp_path) as process:
        user = Browser(process.url).open("/users/42").press("Get the coupon").press("Order")
        order = user.at.removeprefix(process.url)
        selling.sigstop("gateway")
        pressing = threading.Thread(target=pressed_in_vain, args=(user,))
        pressing.start()
        with sqlite3.connect(tmp_path / "shop.db", isolation_level=None) as db:
            wait_until(lambda: db.execute("SELECT state FROM orders").fetchone() == ("using",))
        process.send_signal(signal.SIGKILL)
        pressing.join()
    selling.sigcont("gateway")
    with shop(selling, tmp_path) as process:
        assert "state: paid" in Browser(process.url).open(order).page
        assert states(selling) == {"used": 1}
        (done,) = rows(selling, "SELECT count(*) FROM use_operation WHERE coupon_id = %s")
        assert done == (2,), "a hold and a use"


def pressed_in_vain(browser):
    with pytest.raises(requests.ConnectionError):
        browser.press("Pay")


@contextmanager
def checkout(stack, tmp_path):
    journal = {"SHOP_JOURNAL": str(tmp_path / "checkout.jsonl")}
    with running(stack, "node", "examples/checkout/checkout.js", **journal) as process:

        def call(path, **members):
            reply = requests.post(process.url + path, json=members, timeout=120)
            return reply.json()

        process.call = call
        yield process


@pytest.mark.whole
def test_the_checkout(selling, tmp_path):
    with selling.client() as client:
        assert client.issue(selling.coupon, "42", ack="issued")["code"] == 0
    with checkout(selling, tmp_path) as process:
        order = process.call("/orders", user="42", amount="20.00")
        assert (order["state"], order["to_pay"]) == ("held", "15.00")
        # A second order of the user has no coupon left.
        assert process.call("/orders", user="42", amount="20.00")["state"] == "refused"
        at = f"/orders/{order['id']}"
        assert process.call(f"{at}/pay")["state"] == "paid"
        assert process.call(f"{at}/pay")["state"] == "paid"
        assert states(selling) == {"used": 1}
        assert process.call(f"{at}/cancel")["state"] == "cancelled"
        assert states(selling) == {}

        order = process.call("/orders", user="42", amount="20.00")
        at = f"/orders/{order['id']}"
        selling.sigstop("gateway")
        paying = threading.Thread(target=paid_in_vain, args=(process, at))
        paying.start()
        journal = tmp_path / "checkout.jsonl"
        wait_until(lambda: json.loads(journal.read_text().splitlines()[-1])["state"] == "using")
        process.send_signal(signal.SIGKILL)
        paying.join()
    selling.sigcont("gateway")
    with journal.open("a") as lines:
        lines.write('{"id":"order-cut')
    with checkout(selling, tmp_path) as process:
        found = requests.get(process.url + at, timeout=120).json()
        assert (found["state"], states(selling)) == ("paid", {"used": 1})
        assert "message" in process.call("/orders", user="42", amount="20,00")
        assert "message" in process.call("/orders/none/pay")


def paid_in_vain(process, at):
    with pytest.raises(requests.ConnectionError):
        process.call(f"{at}/pay")


@pytest.fixture(scope="session")
def ledger(stack):
    """The consumer, built with the client and Debian's library as one GOPATH."""
    sources, program = stack.build_dir / "go/src", stack.build_dir / "example-ledger"
    sources.mkdir(parents=True, exist_ok=True)
    (sources / "couponmq").unlink(missing_ok=True)
    (sources / "couponmq").symlink_to(ROOT / "sdk/go")
    path = f"{sources.parent}:/usr/share/gocode"
    subprocess.run(
        ["go", "build", "-o", program, "./examples/ledger"],
        env={**os.environ, "GO111MODULE": "off", "GOPATH": path}, cwd=ROOT, check=True,
    )  # fmt: skip
    return program


@contextmanager
def consuming(stack, *command):
    process = subprocess.Popen(
        [*map(str, command)],
        env={**os.environ, "AMQP_URL": stack.env["AMQP_URL"]}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "consuming\n"
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def copy_publish(stack, entry):
    """The event of this line arrives again, before what comes next."""
    names = ("order", "receive", "currency")
    data = {"coupon": str(stack.coupon), "amount_off": entry["minor"]}
    data |= {name: entry[name] for name in names}
    event = {"specversion": "1.0", "type": "coupon.used", "data": data}
    event |= {name: entry[name] for name in ("source", "id", "time")}
    with pika.BlockingConnection(pika.URLParameters(stack.env["AMQP_URL"])) as connection:
        connection.channel().basic_publish("", "ledger", json.dumps([event]))


@pytest.mark.whole
def test_the_ledger(selling, ledger, tmp_path):
    """Killed in between, and with a line that was cut off: each discount stands there once."""
    books = tmp_path / "ledger.jsonl"

    def entries():
        return [json.loads(line) for line in books.read_text().splitlines()]

    with selling.client() as client:

        def call(op, **members):
            answer = client.call(op, receive=receive, **members)
            assert answer["code"] == 0, answer

        receive = client.issue(selling.coupon, "42", ack="issued")["receive"]
        paid = {"amount": 2000, "currency": "EUR"}
        with consuming(selling, ledger, books):
            call("use", order="order-1", **paid)
            call("rollback", order="order-1")
            wait_until(lambda: len(entries()) == 2)
            copy_publish(selling, entries()[0])
        call("use", order="order-2", **paid)
        with books.open("a") as file:
            file.write('{"source":"/cou')
        with consuming(selling, ledger, books):
            copy_publish(selling, entries()[0])
            call("rollback", order="order-2")
            wait_until(lambda: len(books.read_text().splitlines()) == 4)
    found = [(one["order"], one["minor"], one["currency"]) for one in entries()]
    assert found == [
        ("order-1", 500, "EUR"),
        ("order-1", -500, "EUR"),
        ("order-2", 500, "EUR"),
        ("order-2", -500, "EUR"),
    ]
    assert len({(one["source"], one["id"]) for one in entries()}) == 4


def copy_send(url, secret, line):
    """The event of this line arrives again, in another request."""
    source, event_id = line.partition("\t")[0].split(" ")
    data = {"coupon": "1", "user": "42", "receive": "r", "slot": 1}
    event = {"source": source, "id": event_id, "type": "coupon.issued", "data": data}
    body, at = json.dumps([event]), str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"msg_copy.{at}.{body}".encode(), "sha256")
    headers = {"webhook-id": "msg_copy", "webhook-timestamp": at}
    headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return requests.post(url, data=body, headers=headers, timeout=60)


@pytest.mark.whole
def test_the_mails(selling, java, tmp_path):
    """A copy of a request causes no mail, and a stranger's request none either."""
    classes, told = java[java.index("-cp") + 1], tmp_path / "mails.txt"
    options = ["--release", "17", "-cp", classes, "-d", tmp_path / "classes"]
    subprocess.run(["javac", *options, "examples/mails/Mails.java"], cwd=ROOT, check=True)
    hooks, port = Webhooks(selling), port_free()
    url = f"http://127.0.0.1:{port}/hooks/coupons"
    _, secret = hooks.add(url, "--types", "coupon.issued")
    worker = Worker(selling, "worker-mails", SOON)

    def start():
        process = subprocess.Popen(
            ["java", "-cp", f"{tmp_path / 'classes'}:{classes}", "Mails", told, str(port)],
            env={**os.environ, "WEBHOOK_SECRETS": secret}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout.readline() == f"{url}\n"
        return process

    def users():
        lines = told.read_text().splitlines() if told.exists() else []
        return [line.partition("\tto ")[2].partition(":")[0] for line in lines]

    process = start()
    try:
        with selling.client() as client:
            assert client.issue(selling.coupon, "42", ack="issued")["code"] == 0
            wait_until(lambda: users() == ["42"])
            assert requests.post(url, data="[]", timeout=60).status_code == 400
            (line,) = told.read_text().splitlines()
            assert copy_send(url, secret, line).status_code == 204
            assert users() == ["42"]
            process.kill()
            process.wait()
            with told.open("a") as file:
                file.write("/couponmq cut off")
            assert client.issue(selling.coupon, "7", ack="issued")["code"] == 0
            process = start()
            wait_until(lambda: users() == ["42", "7"])
            assert copy_send(url, secret, line).status_code == 204
            assert users() == ["42", "7"]
    finally:
        process.kill()
        process.wait()
        worker.end()
        hooks.close()
