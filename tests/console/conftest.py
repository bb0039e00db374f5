"""A console, a key that it knows, and a browser that shows it."""

import pika
import pytest
import requests

from history import DEAD_QUEUE
from stack import url_of, wait_until


@pytest.fixture(scope="module")
def console(stack):
    stack.start("admin")
    yield url_of(stack.env["COUPON_ADMIN_LISTEN"])
    stack.stop("admin")


@pytest.fixture
def key_make(stack, console):
    """A key that the console knows already."""

    def make(role, *options):
        key = stack.ctl("key", "create", "--name", "console", "--role", role, *options)
        known = {"Authorization": f"Bearer {key}"}
        url = console + "/admin/session"
        wait_until(lambda: requests.get(url, headers=known, timeout=60).status_code != 401)
        return key

    return make


@pytest.fixture
def browser(console, tmp_path):
    """It has loaded nothing from elsewhere, and nothing that its policy forbids."""
    from browser import browser_open  # noqa: PLC0415: without Selenium the tests are skipped

    with browser_open(console, tmp_path / "profile") as one:
        yield one
        names = one.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [name for name in names if not name.startswith(console + "/")] == []
        assert one.complaints() == []


@pytest.fixture
def signed_in(browser, key_make):
    browser.sign_in(key_make("admin"))
    browser.sees("as of")  # other tests may have left what is not healthy
    return browser


@pytest.fixture
def dead_add(amqp):
    """A dead letter with this body."""

    def add(body):
        amqp.basic_publish("coupon.dlx", "x", body, pika.BasicProperties(delivery_mode=2))

    amqp.queue_purge(DEAD_QUEUE)
    yield add
    amqp.queue_purge(DEAD_QUEUE)
