"""The console in a browser. `make test-console` installs it and runs all of it; `make test` watches
one sale where it is there."""

import csv
import json
import os
import re
import subprocess
import threading
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pika
import psycopg
import pytest
import requests

from browser import AXE, CHROMIUM, DRIVER, NARROW, WIDE, ActionChains, Keys, browser_open
from endpoint import Endpoint
from history import DEAD_QUEUE, queue_length
from message import message
from relay import Relay, port_of
from stack import ROOT, has_tls, url_of, wait_until
from webhooks import ALLOWED

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium: make test-console")
PICTURES = os.environ.get("CONSOLE_PICTURES")  # the folder for those of docs/guides/console.md
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_USER = "<script>alert(1)</script>"
# Each with what is to be read there.
PAGES = {
    "/": "A campaign with",
    "/campaigns": "A campaign with",
    "/campaigns/{coupon}": "https://hooks.example/",
    "/find?coupon={coupon}&user={user}": "Redis accepted it",
    "/find?code=NOON{coupon}": "Campaign {coupon}",
    "/budgets": "b-{coupon}",
    "/dead": "1 dead letter,",
    "/webhooks": "https://hooks.example/",
    "/operations": "PostgreSQL",
    "/manual/guides%2Frunbook": "CouponmqNoKeeper",
    "/approvals": "only when a second person agrees",
    "/keys": "every campaign",
    "/history": "codes generate {coupon}",
}


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
    with browser_open(console, tmp_path / "profile") as one:
        yield one
        names = one.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [name for name in names if not name.startswith(console + "/")] == []
        assert one.complaints() == []


@pytest.fixture
def signed_in(browser, key_make):
    browser.sign_in(key_make("admin"))
    browser.sees("All monitored parts are healthy.")
    return browser


@pytest.fixture
def dead_add(amqp):
    """A dead letter with this body."""

    def add(body):
        amqp.basic_publish("coupon.dlx", "x", body, pika.BasicProperties(delivery_mode=2))

    amqp.queue_purge(DEAD_QUEUE)
    yield add
    amqp.queue_purge(DEAD_QUEUE)


def picture(browser, name, size=WIDE):
    if PICTURES:
        path = Path(PICTURES) / f"{name}.png"
        browser.picture(path, size)
        subprocess.run(["pngquant", "--force", "--strip", "--ext", ".png", path], check=True)


def coupon_of(browser):
    return wait_until(lambda: re.search(r"#/campaigns/(\d+)$", browser.driver.current_url))[1]


def come(client, coupon, users):
    client.pipeline([{"op": "issue", "coupon": coupon, "user": str(user)} for user in users])


@contextmanager
def crowd(stack, coupon):
    """Users come in a rush that abates; one in five comes again."""
    over = threading.Event()

    def come_on():
        user, number = 0, 200
        with stack.client() as client:
            while not over.wait(0.1):
                come(client, coupon, range(user, user + number))
                user += number * 4 // 5
                number = max(20, number * 49 // 50)

    thread = threading.Thread(target=come_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.whole
def test_a_sale_that_runs_in_both_schemes(stack, signed_in):
    """The stock falls, the curves grow, and the dark has other colours."""
    browser, coupon = signed_in, stack.coupon_make(30_000, name="Evening sale")
    gone = stack.coupon_make(500, name="Lunch sale")
    with stack.client() as client:
        come(client, gone, range(500))
    drawn = (
        "const lines = [...document.querySelectorAll('figure .line')];"
        "return lines.length > 1 && "
        "lines.every((one) => one.getAttribute('d').split('L').length > arguments[0])"
    )
    colour = "return getComputedStyle(document.body).backgroundColor"
    with crowd(stack, coupon):
        for place, name in (("/", "now"), (f"/campaigns/{coupon}", "campaign")):
            browser.open(place)
            browser.sees("Evening sale")
            wait_until(lambda: browser.run(drawn, 60 if PICTURES else 3), interval=0.5)
            colours = set()
            for scheme, ending in (("light", ""), ("dark", "-dark")):
                browser.scheme(scheme)
                colours.add(browser.run(colour))
                picture(browser, name + ending)
            assert len(colours) == 2
            browser.scheme("light")
    assert 0 < browser.figure("figure-stock") < 30_000


def test_a_sale_is_watched(stack, signed_in):
    """From its draft to the last coupon, without loading the page again."""
    browser = signed_in
    browser.follow("Campaigns")
    browser.press("New campaign…")
    browser.fill("Name", "Noon sale")
    browser.fill("Total coupons", "2000")
    browser.press("Create draft")
    coupon = coupon_of(browser)
    browser.sees("draft", "version 1")
    browser.press("Publish…")
    browser.sees("Status: draft → published", "Based on version 1.")
    browser.press("Publish")
    browser.sees("Published.", "active", "2,000 of 2,000 left")
    with stack.client() as client:
        for left in (1500, 1000, 500):
            come(client, coupon, range(1500 - left, 2000 - left))
            browser.sees(f"{left:,} of 2,000 left")
            wait_until(lambda: browser.figure("figure-issued") == 2000 - left)
        come(client, coupon, range(1500, 2300))
    browser.sees("sold out", "0 of 2,000 left")
    assert browser.figure("figure-stock") == 0
    wait_until(lambda: browser.figure("figure-issued") == 2000)
    wait_until(lambda: browser.run("return document.querySelectorAll('svg .line').length") == 2)
    browser.sees("Latest requests", "out of stock")
    picture(browser, "campaign-narrow", NARROW)
    # The letters of the curve keep their size in a window of another one.
    scale = "return document.querySelector('figure svg').getScreenCTM().a"
    for size in (NARROW, WIDE):
        browser.size(size)
        wait_until(lambda: 0.99 < browser.run(scale) < 1.01)
        width = "const f = document.querySelector('figure'); return f.clientWidth - f.firstChild."
        wait_until(lambda: abs(browser.run(width + "getBoundingClientRect().width")) < 2)
    browser.follow("Now")
    browser.sees("as of", "Noon sale", "sold out", "0 of 2,000", "out of stock")
    wait_until(lambda: browser.run("return document.querySelectorAll('svg .line').length") == 3)


@pytest.mark.whole
def test_the_values_of_a_chart(stack, signed_in):
    """Under the pointer, and as a table; and the schedule as a time line."""
    coupon = stack.coupon_make(
        9, name="Values", begin="2020-01-01T00:00:00Z", end="2041-01-01T00:00:00Z"
    )
    signed_in.open(f"/campaigns/{coupon}")
    with stack.client() as client:
        for left in (8, 7):
            client.issue(coupon, f"u{left}", ack="issued")
            signed_in.sees(f"{left} of 9 left")
    svg = "document.querySelector('figure svg')"
    wait_until(lambda: signed_in.run(f"return {svg}?.querySelector('.line') !== null"))
    reading = (
        "const box = document.querySelector('.reading');"
        "return box && !box.hidden ? box.innerText : '';"
    )
    assert signed_in.run(reading) == ""
    move = (
        f"const box = {svg}.getBoundingClientRect();"
        "const place = { clientX: box.right - 12, clientY: box.top + 50, bubbles: true };"
        f"{svg}.dispatchEvent(new PointerEvent('pointermove', place));"
    )
    signed_in.run(move)
    wait_until(lambda: "issued 2" in signed_in.run(reading))
    assert "stock left 7" in signed_in.run(reading)
    leave = "document.querySelector('figure').dispatchEvent(new PointerEvent('pointerleave'))"
    signed_in.run(leave)
    assert signed_in.run(reading) == ""
    signed_in.unfold("As a table")
    cells = "return [...document.querySelector('.values tbody tr').cells].map((o) => o.textContent)"
    wait_until(lambda: signed_in.run(cells)[1:] == ["7", "2"])
    label = "return document.querySelector('svg.timeline').getAttribute('aria-label')"
    wait_until(lambda: signed_in.run("return document.querySelector('svg.timeline') !== null"))
    assert signed_in.run(label) == (
        "Coupons can be received from 2020-01-01 00:00:00 UTC to 2041-01-01 00:00:00 UTC."
    )
    signed_in.open("/campaigns?name=Values")
    signed_in.unfold("Schedule")
    wait_until(lambda: signed_in.run("return document.querySelectorAll('svg .span').length") >= 1)


@pytest.mark.whole
def test_each_button(stack, signed_in):
    browser, coupon = signed_in, stack.coupon_make(5, name="Buttons", publish=False)
    browser.open(f"/campaigns/{coupon}")
    browser.press("Edit…")
    browser.press("Save")
    browser.sees("Nothing would change.")
    browser.fill("Name", "Renamed")
    browser.fill("Limit per user", "0")
    browser.sees("Name: Buttons → Renamed", "Limit per user: 1 → 0")
    browser.press("Save")
    browser.sees("Limit per user is")
    browser.fill("Limit per user", "2")
    picture(browser, "edit")
    browser.press("Save")
    browser.sees("Saved.", "version 2", "Limit per user: 1 → 2")
    browser.press("Publish…")
    browser.press("Publish")
    browser.sees("Published.", "version 3")
    browser.press("Change total…")
    browser.fill("Total coupons", "8")
    browser.sees("Total coupons: 5 → 8", "Stock left: 5 → 8")
    browser.press("Set total")
    browser.sees("The total is set.", "8 of 8 left")
    for word, said, state in (
        ("Pause", "Paused.", "paused"),
        ("Resume", "Resumed.", "active"),
    ):
        browser.press(f"{word}…")
        browser.press(word)
        browser.sees(said, state)
    browser.press("Check")
    browser.sees("Yes, it is ready.")
    browser.unfold("For operators")
    browser.sees("Generation", "In Redis", "verified")
    browser.press("Audit")
    browser.sees("Verdict: PASS.", "Nothing is wrong.")
    stack.sigstop("redis")
    browser.press("Audit")
    browser.press("Stop")
    browser.sees("Stopped.")
    stack.sigcont("redis")
    browser.press("Rebuild…")
    browser.press("Cancel")
    browser.press("Rebuild…")
    browser.press("Rebuild")
    browser.sees("Done: nothing differs.")
    browser.press("Close…")
    browser.press("Close")
    browser.sees("Closed.", "ended")
    others = ["New codes…", "Import…", "New word…", "New webhook…"]
    wait_until(lambda: browser.words() == ["Sign out", "Copy…", *others, "Audit", "Rebuild…"])


@pytest.mark.whole
def test_somebody_else_was_faster(stack, signed_in):
    """Nothing is done by a change of a version that is gone; the page shows the new one."""
    browser, coupon = signed_in, stack.coupon_make(5, publish=False)
    browser.open(f"/campaigns/{coupon}")
    browser.press("Edit…")
    browser.fill("Name", "Mine")
    stack.ctl("edit", coupon, "--version", "1", "--name", "Theirs")
    browser.press("Save")
    browser.sees("has version 2")
    browser.press("Cancel")
    browser.sees("Theirs", "version 2")
    assert "Mine" not in stack.ctl("show", coupon)


@pytest.mark.whole
def test_what_happened_to_a_receive(stack, signed_in):
    browser, coupon = signed_in, stack.coupon_make(5, name=HOSTILE)
    with stack.client() as client:
        receive = client.issue(coupon, HOSTILE_USER, ack="issued")["receive"]
    browser.follow("Find coupons")
    browser.fill("Campaign id", coupon)
    browser.fill("User", HOSTILE_USER)
    browser.press("Find the user's coupons")
    browser.sees(receive, "Redis accepted it: slot 1.", "PostgreSQL has the user coupon: issued.")
    browser.press("Void…")
    browser.fill("Why", "fraud")
    browser.press("Void")
    browser.sees("Voided.", ": fraud. Its slot is free again.")
    browser.fill("Receive", receive)
    browser.press("Find the coupon")
    browser.sees("rejected")
    browser.fill("Receive", "x")
    browser.press("Find the coupon")
    browser.sees('is "x": allowed is')
    browser.open(f"/campaigns/{coupon}")
    browser.sees(HOSTILE)


@pytest.mark.whole
def test_amounts_of_terms_are_written_as_people_do(stack, signed_in):
    browser, coupon = signed_in, stack.coupon_make(5, publish=False)
    for currency, wrong, right, units in (
        ("KWD", "0.70", "0.700", 700),
        ("EUR", "5.2", "5.25", 525),
    ):
        browser.open("/campaigns")
        browser.open(f"/campaigns/{coupon}")
        browser.press("Edit…")
        browser.run("document.querySelector('dialog details').open = true")
        browser.fill("Currency", currency)
        browser.fill("Amount off", wrong)
        browser.press("Save")
        browser.sees(f'Amount off is "{wrong}": allowed is 0.0')
        browser.fill("Amount off", right)
        browser.press("Save")
        browser.sees("Saved.", f"{right} {currency}", f"→ {right} {currency}")
        discount = json.loads(stack.ctl("show", coupon, "--json"))["discount"]
        assert (discount["amount_off"], discount["currency"]) == (units, currency)
        assert f"discount     {right} {currency}" in stack.ctl("show", coupon)


@pytest.mark.whole
def test_what_forms_say(stack, signed_in):
    """What is wrong is told at its field, in the words of the form, and as it is typed."""
    name = "b-" + os.urandom(4).hex()
    stack.ctl("budget", "create", name, "--amount", "50.00", "--currency", "EUR")
    signed_in.open("/campaigns")
    signed_in.press("New campaign…")
    at_field = (
        "return [...document.querySelectorAll('dialog label')]"
        ".find((one) => one.querySelector('.error'))?.innerText"
    )
    signed_in.press("Create draft")
    wait_until(lambda: "Name is empty." in (signed_in.run(at_field) or ""))
    signed_in.fill("Name", "Words")
    signed_in.fill("Total coupons", "5.000")
    signed_in.sees('Total coupons is "5.000": allowed is a whole number, as 5,000.')
    signed_in.press("Create draft")
    wait_until(lambda: (signed_in.run(at_field) or "").startswith("Total coupons"))
    signed_in.fill("Total coupons", "5,000")
    wait_until(lambda: not signed_in.run(at_field) or "5.000" not in signed_in.text())
    offered = "return [...document.querySelectorAll('#budgets option')].map((one) => one.value)"
    wait_until(lambda: name in signed_in.run(offered))
    zone = signed_in.run("return Intl.DateTimeFormat().resolvedOptions().timeZone")
    assert f"{zone}; empty: at once" in signed_in.text()
    signed_in.fill("Limit per user", "0")
    signed_in.press("Create draft")
    wait_until(lambda: (signed_in.run(at_field) or "").startswith("Limit per user"))
    assert "limit is" not in signed_in.text()
    signed_in.fill("Limit per user", "1")
    signed_in.press("Create draft")
    signed_in.sees("– of 5,000 left")  # a draft is not in Redis yet
    coupon = signed_in.run("return location.hash").split("/")[-1]
    assert json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["total"] == 5000


@pytest.mark.whole
def test_what_is_not_there(signed_in):
    """A page of nothing says so, and a name is no id."""
    signed_in.open("/campaigns/8999")
    signed_in.sees("there is no coupon 8999", "All campaigns")
    assert "Stock left" not in signed_in.text()
    signed_in.open("/find")
    signed_in.fill("Campaign id", "Noon")
    signed_in.fill("User", "1")
    signed_in.press("Find the user's coupons")
    signed_in.sees('"Noon" is not a campaign id')
    assert "9223372036854775807" not in signed_in.text()


@pytest.mark.whole
def test_a_stock_that_cannot_be(stack, signed_in):
    coupon = stack.coupon_make(5)
    with stack.client() as client:
        for user in range(2):
            client.call("issue", coupon=coupon, user=f"u{user}", ack="issued")
    signed_in.open(f"/campaigns/{coupon}")
    signed_in.sees("3 of 5 left")
    signed_in.press("Change total…")
    signed_in.fill("Total coupons", "1")
    signed_in.sees("Total coupons: at least 2, because so many are taken.")
    assert "→" not in signed_in.run("return document.querySelector('dialog').innerText")


@pytest.mark.whole
def test_codes_that_are_refused_are_told_so(stack, signed_in):
    coupon = stack.coupon_make(5)
    signed_in.open(f"/campaigns/{coupon}")
    signed_in.press("Import…")
    signed_in.fill("Codes", f"GOOD-{coupon}\nüber {coupon}")
    signed_in.press("Import codes")
    signed_in.sees("1 stored", "1 refused", "über")
    assert signed_in.run("return document.querySelector('.note .refused') !== null")
    assert "\\x" not in signed_in.text()


@pytest.mark.whole
def test_sold_out_is_not_issuing(stack, signed_in, pg):
    coupon = stack.coupon_make(1)
    state = "campaign_state(status, begin_at, least(end_at, valid_to), now())"
    having = f"SELECT count(*) FROM coupon WHERE {state} = 'issuing' AND issued_num < total_num"
    signed_in.open("/")

    def is_told():
        return signed_in.figure("figure-campaigns") == pg.execute(having).fetchone()[0]

    wait_until(is_told)
    with stack.client() as client:
        assert client.call("issue", coupon=coupon, user="1", ack="issued")["status"] == "issued"
    wait_until(is_told)


@pytest.mark.whole
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_layout(stack, signed_in, size):
    signed_in.size(size)
    signed_in.open("/operations")
    signed_in.sees("PostgreSQL")
    lines = (
        "return [...document.querySelectorAll('tbody th > span, tbody th > .mono')]"
        ".filter((one) => one.textContent)"
        ".map((one) => one.getClientRects()[0].height / parseFloat(getComputedStyle(one).fontSize))"
    )
    assert all(one < 2 for one in signed_in.run(lines)), "each is on one line"
    signed_in.open("/")
    wait_until(lambda: signed_in.run("return document.querySelector('figure svg') !== null"))
    header = "return document.querySelector('header').getBoundingClientRect().height"
    assert signed_in.run(header) < 110
    labels = "return [...document.querySelectorAll('svg text')].map((o) => o.getBBox().height)"
    scale = "const s = document.querySelector('figure svg'); return s.getScreenCTM().a"
    assert all(one < 20 for one in signed_in.run(labels)) and signed_in.run(scale) <= 1.01


ENGINE = r"\b(rows?|outbox|generation|settled?|queues?|workers?|keeper|in flight|slots?)\b"


@pytest.mark.whole
def test_the_words_of_campaigns(stack, signed_in):
    """What the engine does is on the page of operators; the others do without its words."""
    coupon = stack.coupon_make(5, name="Words")
    with stack.client() as client:
        client.issue(coupon, "u", ack="issued")
    for page, text in (
        ("/", "Active campaigns"),
        ("/campaigns", "Name or id"),
        (f"/campaigns/{coupon}", "Latest requests"),
        ("/find", "Find the user's coupons"),
        ("/budgets", "The total discount"),
        ("/keys", "every campaign"),
    ):
        signed_in.open(page)
        signed_in.sees(text)
        assert re.findall(ENGINE, signed_in.text(), re.IGNORECASE) == [], page
    signed_in.open("/operations")
    signed_in.sees("Operations", "Queue", "Outbox", "Keeper", "elected", "Dead letters")
    signed_in.open(f"/campaigns/{coupon}")
    signed_in.unfold("For operators")
    signed_in.sees("Generation", "Outbox", "Audit", "Rebuild…")


@pytest.mark.whole
def test_campaigns_are_found(stack, signed_in):
    """By a part of the name, by state, and by the days on which they are open."""
    browser, name = signed_in, "f" + os.urandom(4).hex()
    stack.coupon_make(5, name=f"Draft {name}", publish=False)
    may = {"begin": "2041-05-01T00:00:00Z", "end": "2041-05-31T00:00:00Z"}
    stack.coupon_make(5, name=f"May {name}", **may)
    stack.coupon_make(5, name=f"June {name}", begin="2041-06-10T00:00:00Z")
    gone = stack.coupon_make(1, name=f"Gone {name}")
    with stack.client() as client:
        client.issue(gone, "u", ack="issued")
    heads = "return [...document.querySelectorAll('tbody th a')].map((one) => one.textContent)"

    def found():
        return [one.removesuffix(f" {name}") for one in browser.run(heads)]

    browser.open("/campaigns")
    browser.fill("Name or id", name.upper())
    browser.press("Find")
    wait_until(lambda: found() == ["Gone", "June", "May", "Draft"])
    for state, words in (
        ("draft", ["Draft"]),
        ("scheduled", ["June", "May"]),
        ("sold out", ["Gone"]),
        ("paused", []),
        ("any", ["Gone", "June", "May", "Draft"]),
    ):
        browser.choose("State", state)
        wait_until(lambda words=words: found() == words)
    browser.open(f"/campaigns?name={name}&from=2041-06-01")
    wait_until(lambda: found() == ["Gone", "June", "Draft"])  # Gone and the draft have no end
    browser.open(f"/campaigns?name={name}&from=2041-05-02&to=2041-05-09&state=scheduled")
    wait_until(lambda: found() == ["May"])
    browser.follow("Show all")
    browser.choose("Order", "begin, latest first")
    wait_until(lambda: "order=begin_last" in browser.driver.current_url)
    browser.open("/campaigns?name=nothing-has-this-name")
    browser.sees("No campaign matches.")


@pytest.mark.whole
def test_a_copy(stack, signed_in):
    """It is a draft with the same terms, but for times that have passed."""
    browser, budget = signed_in, "b-" + os.urandom(4).hex()
    stack.ctl("budget", "create", budget, "--amount", "50.00", "--currency", "EUR")
    coupon = stack.coupon_make(
        7, name="Model", limit=2, valid_days=30, amount_off="5.00", currency="EUR",
        begin="2020-01-01T00:00:00Z", end="2040-01-01T00:00:00Z",
        void_returns="no", metadata='{"a":1}', budget=budget,
    )  # fmt: skip
    browser.open(f"/campaigns/{coupon}")
    browser.press("Copy…")
    browser.sees("Creates a draft: Copy of Model.", "neither coupons, codes nor web")
    browser.press("Create draft")
    browser.sees("Copy of Model", "version 1")
    other = coupon_of(browser)
    one, copy = (json.loads(stack.ctl("show", which, "--json")) for which in (coupon, other))
    assert copy["name"] == "Copy of Model" and copy["postgresql"]["status"] == "draft"
    assert (copy["begin"], copy["end"]) == (None, one["end"])
    for term in ("limit", "valid_days", "valid_from", "discount", "metadata", "void_returns"):
        assert copy[term] == one[term], term
    assert copy["budget"]["name"] == budget and copy["postgresql"]["total"] == 7


@pytest.mark.whole
def test_the_history_is_searched(stack, signed_in):
    """By who, what, when and result; and it says why something failed."""
    browser, coupon = signed_in, stack.coupon_make(5, name="Searched")
    who = "w" + os.urandom(4).hex()
    stack.ctl("pause", coupon, "--by", who)
    stack.ctl("stock", coupon, "--total", "3", "--by", who)
    assert stack.ctl_run("edit", coupon, "--version", 1, "--name", "x", "--by", who).returncode == 8
    browser.open("/history")
    browser.fill("By", who.upper())
    browser.press("Find")
    browser.sees(f"edit {coupon}", f"stock {coupon}", f"pause {coupon}", "has version")
    assert "create" not in browser.run("return document.querySelector('tbody').innerText")
    browser.choose("Result", "failed")
    browser.sees("failed", "has version")
    wait_until(lambda: f"pause {coupon}" not in browser.text())
    browser.choose("Result", "done")
    wait_until(lambda: f"edit {coupon}" not in browser.text())
    browser.fill("What", f"stock {coupon}")
    browser.press("Find")
    wait_until(lambda: f"pause {coupon}" not in browser.text())
    browser.sees(f"stock {coupon}")
    browser.open(f"/history?who={who}&to=2020-01-01")
    browser.sees("No command matches.")
    browser.follow("Show all")
    wait_until(lambda: browser.driver.current_url.endswith("#/history"))


@pytest.mark.whole
def test_budgets_and_orders(stack, signed_in):
    """A budget from its beginning to its end, and the receives that take from it."""
    browser, budget = signed_in, f"spring-{os.urandom(4).hex()}"
    browser.follow("Budgets")
    browser.press("New budget…")
    browser.press("Create budget")
    browser.sees("Name is empty.")
    browser.fill("Name", budget)
    browser.fill("Amount", "8.5")
    browser.fill("Currency", "EUR")
    browser.press("Create budget")
    browser.sees('Amount is "8.5": allowed is 0.00 to 90071992547409.91 EUR, with 2 digits')
    browser.fill("Amount", "8.50")
    browser.sees(f"Budget {budget} has 8.50 EUR.")
    browser.press("Create budget")
    browser.sees("The budget is created.", budget, "8.50 EUR")
    coupon = stack.coupon_make(5, name="Orders", amount_off="5.00", currency="EUR")
    browser.open(f"/campaigns/{coupon}")
    browser.press("Edit…")
    browser.fill("Budget", budget)
    browser.sees(f"Budget: none → {budget}")
    browser.press("Save")
    browser.sees("Saved.", f"{budget}: 8.50 EUR of 8.50 EUR left", "5.00 EUR")
    with stack.client() as client:
        receive = client.issue(coupon, "u", ack="issued")["receive"]
        assert client.call("hold", receive=receive, order="o-1")["code"] == 0
    browser.sees("paused by its budget", f"{budget}: 3.50 EUR of 8.50 EUR left")
    browser.press("Pause…")
    browser.sees("Status: paused by its budget → paused", "It stays paused")
    browser.press("Cancel")
    browser.follow(budget)
    browser.sees("3.50 EUR", coupon)
    picture(browser, "budgets")
    browser.open(f"/find?receive={receive}")
    browser.sees("held by order o-1, until", "Order o-1 held it, 5.00 EUR off")
    browser.press("Release…")
    browser.sees(f"Receive {receive}: held by order o-1 → free")
    browser.press("Release")
    browser.sees("The receive is free.", "Order o-1 released it")
    with stack.client() as client:
        for _ in range(2):
            assert client.call("use", receive=receive, order="o-2")["code"] == 0
        assert client.call("use", receives=[receive, f"{receive[:-1]}9"], order="o-2")["code"] == 1
    browser.press("Find the coupon")
    browser.sees("used by order o-2.", "Order o-2 asked to use it, which had been done already")
    browser.sees("Order o-2 did not use it, because another receive was refused")
    picture(browser, "receive")
    browser.press("Roll back use…")
    browser.fill("Why", "sent back")
    with stack.client() as client:
        client.call("rollback", receive=receive, order="o-2")
        client.call("hold", receive=receive, order="o-3")
    browser.press("Roll back use")
    browser.sees("another order holds the receive")
    browser.press("Cancel")
    browser.press("Find the coupon")
    browser.sees("held by order o-3", "Order o-2 failed to rollback it: held by other: sent back.")
    browser.follow("Budgets")
    browser.press("Amount…", budget)
    browser.fill("Amount", "4.00")
    browser.sees('Amount is "4.00": allowed is 5.00 to')
    browser.press("Set amount")
    browser.fill("Amount", "1000.00")
    browser.sees("Amount: 8.50 EUR → 1,000.00 EUR", "Spent or held: 5.00 EUR.")
    browser.press("Set amount")
    browser.sees("The amount is set.", "1,000.00 EUR", "995.00 EUR")
    browser.press("History", budget)
    browser.sees(f"History of {budget}")
    browser.follow(coupon)
    browser.sees("active", f"{budget}: 995.00 EUR of 1,000.00 EUR left")


@pytest.mark.whole
def test_codes(stack, signed_in, tmp_path):
    browser, coupon = signed_in, stack.coupon_make(5, name="Codes")
    word = f"NOON{coupon}"
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    browser.open(f"/campaigns/{coupon}")
    browser.press("New codes…")
    browser.press("Generate codes")
    browser.sees("Number of codes is empty.")
    browser.fill("Number of codes", "2")
    browser.fill("Prefix", "!")
    browser.sees("New codes of this campaign: 2.")
    browser.press("Generate codes")
    browser.sees('Prefix is "!"')
    browser.fill("Prefix", "SUN")
    browser.press("Generate codes")
    browser.sees("Created: set ", " with 2 codes.", "2 codes: 2 unused, 0 used, 0 revoked.")
    browser.press("Save…")
    browser.sees("2 codes in a file, each with its state.")
    browser.press("Save")
    browser.sees("are saved.")
    (saved,) = wait_until(lambda: list(tmp_path.glob("codes-*.csv")))
    head, *rows = saved.read_text().split()
    (code, _), (other, state) = (row.split(",") for row in rows)
    assert (head, state) == ("code,state", "unused") and other.startswith("SUN-")
    browser.press("New word…")
    browser.press("Create word")
    browser.sees("The word is empty.")
    browser.fill("Word", word)
    browser.sees(f"{word} becomes a code of this campaign, for all users.")
    browser.press("Create word")
    browser.sees("The word is created.", word, "3 codes: 3 unused")
    browser.open(f"/find?code={code}")
    browser.press("Revoke…")
    browser.sees(f"Code {code}: unused → revoked")
    browser.press("Revoke")
    browser.sees("The code is revoked.", "Revoked")
    browser.fill("Exchange code", other)
    browser.press("Find the code")
    browser.sees(other, "unused")
    browser.follow(f"Campaign {coupon}")
    browser.press("Revoke…")  # the first set: that of the generated ones
    browser.sees("Codes that can be used: 1 → 0")
    browser.press("Revoke")
    browser.sees("The set is revoked.", "3 codes: 1 unused, 0 used, 2 revoked.")
    browser.press("Import…")
    browser.press("Import codes")
    browser.sees("There are no codes.")
    browser.fill("Codes", f"mine-{coupon}\n\n{other}\n")
    browser.sees("Stored as codes of this campaign: 2 codes.")
    browser.press("Import codes")
    browser.sees("1 stored, 0 existed already, 1 refused. Code 2: the code is a generated one")


@pytest.mark.whole
def test_csv_in_and_out(stack, signed_in, tmp_path):
    """Codes from a file, with its progress, and the coupons of a campaign as a file."""
    browser, coupon = signed_in, stack.coupon_make(9, name="Files")
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    codes = [f"F{coupon}-{n:05}" for n in range(4500)]
    file = tmp_path / "in.csv"
    lines = [f'{n},"{code}"' for n, code in enumerate(codes)]
    file.write_text("\ufeffnumber,Code\r\n" + "\r\n".join([*lines, "7,wrong code \u00fc"]))
    browser.open(f"/campaigns/{coupon}")
    browser.press("Import…")
    browser.field("File").send_keys(str(file))
    browser.sees("Stored as codes of this campaign: 4,501 codes, in 3 sets.")
    told = (
        "window.told = []; new MutationObserver(() => window.told.push("
        "document.querySelector('dialog [role=status]')?.textContent)).observe("
        "document.querySelector('dialog [role=status]'), { childList: true })"
    )
    browser.run(told)
    browser.press("Import codes")
    browser.sees("4,500 stored, 0 existed already, 1 refused. Code 4501: ", "4,500 unused")
    assert "2,000 of 4,501 sent." in browser.run("return window.told")
    with stack.client() as client:
        for user in ("one", 'a"b,c'):
            client.issue(coupon, user, ack="issued")
    browser.open("/")
    browser.open(f"/campaigns/{coupon}")
    browser.press("Save coupons as CSV…")
    browser.sees("A file with each coupon")
    browser.press("Save")
    browser.sees("2 coupons saved.")
    (saved,) = wait_until(lambda: list(tmp_path.glob("coupons-*.csv")))
    rows = list(csv.DictReader(saved.open(encoding="utf-8")))
    assert {row["user"] for row in rows} == {"one", 'a"b,c'}
    assert all(row["receive"].startswith(f"{coupon}.") and row["slot"] == "1" for row in rows)


@pytest.mark.whole
def test_distribute(stack, signed_in, pg, tmp_path):
    """To the users of a file, with progress; the same list goes on, and shows who got none."""
    browser, coupon = signed_in, stack.coupon_make(2000, name="Members")
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    file = tmp_path / "members.csv"
    users = [f"m{n}" for n in range(1200)]
    lines = ["Name;User", *(f'"A; {user}";{user}' for user in users), "x;m1", '"";"wrong user"']
    file.write_text("\r\n".join(lines), encoding="utf-16")
    with stack.client() as client:
        client.issue(coupon, "m7", ack="issued")
    browser.open(f"/campaigns/{coupon}")
    for _ in range(2):
        browser.press("Distribute…")
        browser.field("File").send_keys(str(file))
        browser.sees("One coupon for each of 1,201 users: m0, m1, m2, …", "given one coupon: 1")
        browser.press("Distribute")
        browser.sees("of 1,201 have the coupon", "1: the user already has the maximum number")
        assert "1,199 users of 1,201 have the coupon" in browser.text()
    browser.sees(", 1,199 of them from before.")
    query = "SELECT count(DISTINCT user_id), count(*) FROM user_coupon WHERE coupon_id = %s"
    assert pg.execute(query, (coupon,)).fetchone() == (1200, 1200)
    browser.press("Save the users without a coupon…")
    (saved,) = wait_until(lambda: list(tmp_path.glob("refused-*.csv")))
    rows = list(csv.DictReader(saved.open(encoding="utf-8")))
    assert [(row["user"], row["status"]) for row in rows] == [
        ("m7", "limit_reached"),
        ("wrong user", "invalid"),
    ]


@pytest.mark.whole
@pytest.mark.parametrize(
    "text, told",
    [
        (b"user,name\n1,x", "One coupon for each of 1 user: 1"),
        (b"\xef\xbb\xbfuser_id\r\n1\r\n2\r\n", "One coupon for each of 2 users: 1, 2"),
        (b'sep=;\n"name, all";user\nx;1', "One coupon for each of 1 user: 1"),
        (b"u1\nu2\n", "One coupon for each of 2 users: u1, u2"),
        (b"name\tuser\nx,y\t1", "One coupon for each of 1 user: 1"),
        (b"Customer,Name\n1,x", "The columns are Customer, Name: none is user or user_id."),
        (b"user;user_id\n1;2", "More than one column is user or user_id."),
        (b"user,name\n1,x\n2", "Row 3 has another number of columns than the first one: 2"),
        (b"customer_id\n1\n", "customer_id looks like a heading: name the column user or"),
        (b"Kunde\n1\na2\n", "Kunde looks like a heading: name the column user or user_id."),
        (b"Post\na@x.org\n", "Post looks like a heading"),
        (b"user\nM\xfcller\n", "in.csv is not UTF-8: save it as CSV UTF-8."),
        (b"user\n", "There are no users."),
        (b"", "There are no users."),
        (b"user\n" + b"\n".join(b"%d" % n for n in range(20001)), "20,001 users, more than 20,000"),
    ],
)
def test_a_list_is_shown_before_it_is_sent(stack, signed_in, tmp_path, text, told):
    browser, coupon = signed_in, stack.coupon_make(9, name="Lists")
    file = tmp_path / "in.csv"
    file.write_bytes(text)
    browser.open(f"/campaigns/{coupon}")
    browser.press("Distribute…")
    browser.field("File").send_keys(str(file))
    browser.sees(told)
    browser.press("Cancel")


GIVEN_UP = """
INSERT INTO webhook_delivery (webhook_id, coupon_id, message, type, events_num, body, state)
SELECT id, %s, gen_random_uuid(), 'coupon.issued', 1, '[]', 'failed'
FROM webhook WHERE coupon_id = %s
"""


TYPES = "return [...document.querySelectorAll('fieldset label')].map((one) => one.textContent)"


@pytest.mark.whole
def test_webhooks(stack, console, key_make, tmp_path):
    stack.restart("admin", **ALLOWED)
    coupon = stack.coupon_make(5, name="Hooks", events="on")
    try:
        with closing(Endpoint()) as endpoint, browser_open(
            console, tmp_path / "profile"
        ) as browser:
            browser.sign_in(key_make("admin"))
            browser.open(f"/campaigns/{coupon}")
            browser.press("New webhook…")
            browser.fill("URL", url := endpoint.url())
            browser.sees(f"From now on {url} gets events of Hooks.")
            types = browser.run(TYPES)
            assert "coupon.issued" in types
            for name in types:
                browser.field(name).click()
            browser.sees("No type of event is chosen.")
            browser.field("coupon.voided").click()
            browser.sees(f"From now on {url} gets coupon.voided of Hooks.")
            browser.press("Create webhook")
            browser.sees("Its secret, shown only now: whsec_", url, "active", "coupon.voided")
            browser.press("Test…")
            browser.sees("One event of the type webhook.test is sent")
            browser.press("Send")
            browser.sees("It answered 204 after")
            assert [event["type"] for event in endpoint.requests[-1].events] == ["webhook.test"]
            endpoint.answer = lambda request: 500
            browser.press("Test…")
            browser.press("Send")
            browser.sees("It answered 500 after")
            browser.press("Cancel")
            browser.press("New secret…")
            browser.sees("signature with the previous secret for 24h.")
            browser.press("Create secret")
            browser.sees("Its secret, shown only now: whsec_")
            browser.press("Details")
            browser.sees("All requests were delivered.", "Secrets", "it is replaced")
            with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as owner:
                owner.execute(GIVEN_UP, (coupon, coupon))
            browser.open(f"/campaigns/{coupon}?again")
            browser.sees("1 given up")
            browser.press("Send again…")
            browser.sees("Sent again: 1 request that had been given up.")
            browser.press("Send again")
            browser.sees("1 request will be sent again.", "0 given up")
            for word, state in (("Pause", "paused"), ("Resume", "active")):
                browser.press(f"{word}…", url)
                browser.sees(f"→ {state}")
                browser.press(word)
                browser.sees(f"The webhook is {state}.")
            browser.press("Remove…")
            browser.press("Remove")
            browser.sees("The webhook is removed.")
            wait_until(lambda: url not in browser.text())
    finally:
        stack.restart("admin")


@pytest.mark.whole
def test_all_webhooks(stack, signed_in):
    """Their page: a new one of every campaign, its secrets, what it has not got, and its end."""
    browser, url = signed_in, f"https://hooks.example/{os.urandom(4).hex()}"
    browser.follow("Webhooks")
    browser.sees("Addresses of other systems")
    browser.press("New webhook…")
    browser.fill("URL", url)
    browser.fill("Campaign id", "Noon")
    browser.sees('"Noon" is not a campaign id')
    browser.press("Cancel")
    browser.press("New webhook…")
    browser.fill("URL", url)
    browser.sees(f"From now on {url} gets events of every campaign.")
    browser.press("Create webhook")
    browser.sees("Its secret, shown only now: whsec_", url, "of every campaign: all types")
    hooks = map(json.loads, stack.ctl("webhook", "list", "--json").splitlines())
    (hook,) = [one for one in hooks if one["url"] == url]
    coupon = stack.coupon_make(1)
    given_up = GIVEN_UP.replace("WHERE coupon_id", "WHERE id")
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as owner:
        for _ in range(2):
            owner.execute(given_up, (coupon, hook["webhook"]))
    browser.press("Details", url)
    browser.sees(f"Webhook {hook['webhook']}", "Secrets", "0 events, last: never", "given up")
    browser.press("Send again…", "coupon.issued")
    browser.sees(f"1 event to {url}, with all attempts anew.")
    browser.press("Send again")
    browser.sees("1 request will be sent again.", "1 given up", "waits")
    browser.press("Pause…", url)
    browser.fill("Why", "a new address")
    browser.press("Pause")
    browser.sees("The webhook is paused.", "a new address")
    browser.press("Remove…", url)
    browser.press("Remove")
    browser.sees("The webhook is removed.")
    wait_until(lambda: url not in browser.text())


@pytest.mark.whole
def test_keys(stack, signed_in):
    browser = signed_in
    browser.follow("Keys")
    browser.press("New key…")
    browser.press("Create key")
    browser.sees("The name is empty.")
    browser.fill("Name", "shop")
    browser.press("Create key")
    browser.sees("No role is chosen.")
    browser.field("issue:").click()
    browser.field("read:").click()
    browser.field("use: ").click()
    browser.fill("Only campaigns", "7, 8")
    browser.fill("Requests a second", "0")
    browser.sees("Creates a key for shop: issue, read, use, campaign 7, 8.")
    browser.press("Create key")
    browser.sees("1 to 1000000")
    browser.fill("Requests a second", "50")
    browser.press("Create key")
    browser.sees("It is shown only now: cmq_", "2 campaigns", "50 requests a second")
    key = browser.run("return document.querySelector('.secret').textContent").split("_")[1]
    picture(browser, "keys")
    browser.fill("Name or id", key)
    browser.sees("1 key, newest first")
    browser.press("New secret…")
    browser.fill("The previous secret", "0s")
    browser.sees(f"Key {key} gets a new secret; the previous one expires after 0s.")
    browser.press("Create secret")
    browser.sees("The key has a new secret. It is shown only now: cmq_")
    browser.press("Revoke…")
    browser.sees(f"Key {key}: active → revoked")
    browser.press("Revoke")
    browser.sees("The key is revoked.", "revoked")
    assert json.loads(stack.ctl("key", "show", key, "--json"))["state"] == "revoked"
    wait_until(lambda: browser.words() == ["Sign out", "New key…"])
    browser.sees("Last used", "by ", "not known")
    who = browser.run("return document.getElementById('who').textContent").split()[1]
    browser.follow("History")
    browser.sees("Commands of operators", f"key revoke {key}", who, "done")
    browser.follow("Keys")
    browser.fill("Name or id", who)
    browser.sees("1 key, newest first")
    browser.follow("Its commands")
    browser.sees(f"key revoke {key}")


@pytest.mark.whole
def test_dead_letters(stack, signed_in, dead_add):
    browser, letter = signed_in, message(stack.coupon_make(1))
    receive = f"{letter['coupon']}.{letter['receives'][0][0]}.{letter['batch']}.0"
    for body in (b"Of another program. " * 60, json.dumps(letter).encode()):
        dead_add(body)
    browser.sees("2 dead letters")
    browser.follow("2 dead letters")
    browser.sees("2 dead letters, oldest first")
    browser.press("Send again…", "1,200")
    browser.sees("Workers get this dead letter once more.")
    browser.press("Send again")
    browser.sees("1 message sent to the workers.")
    wait_until(lambda: queue_length(stack, DEAD_QUEUE) == 2)  # it cannot be read now, either
    browser.press("Refresh")
    browser.sees("unreadable: not JSON")
    browser.press("Show", "1,200")
    browser.sees("Dead letter", "cannot read it", "Of another program.")
    picture(browser, "dead")
    browser.press("Remove…", letter["coupon"])
    browser.sees(f"Accepted, and will never have an outcome: {receive}")
    browser.press("Cancel")
    assert queue_length(stack, DEAD_QUEUE) == 2
    browser.press("Remove…", letter["coupon"])
    browser.press("Remove")
    browser.sees("1 message removed.", "1 dead letter, oldest first")
    browser.press("Send all again…")
    browser.sees("Workers get 1 dead letter once more.")
    browser.press("Send again")
    browser.sees("1 message sent to the workers.")
    wait_until(lambda: queue_length(stack, DEAD_QUEUE) == 1)
    browser.press("Refresh")
    browser.press("Remove…")
    browser.sees("It cannot be read: it may contain accepted receives without an outcome.")
    browser.press("Remove")
    browser.sees("There are no dead letters.")


@pytest.mark.whole
def test_a_session_that_ends(stack, console, key_make, tmp_path):
    """By time, with its key: a sentence says so, and after signing in the page is shown again."""
    coupon, ended = stack.coupon_make(1, name="The previous page"), "Your session has ended"
    stack.restart("admin", COUPON_ADMIN_SESSION_S=5)
    try:
        with browser_open(console, tmp_path / "profile") as browser:
            browser.sign_in(key_make("admin"))
            browser.open(f"/campaigns/{coupon}")
            browser.press("Close…")
            browser.sees(ended, "API key")
            assert browser.run("return document.querySelector('dialog')") is None
            stack.restart("admin")
            key = key_make("admin")
            browser.fill("API key", key)
            browser.press("Sign in")
            browser.sees("The previous page", "active")
            stack.ctl("key", "revoke", key.split("_")[1])
            browser.sees(ended)
            browser.fill("API key", key_make("monitor"))
            browser.press("Sign in")
            browser.sees("The previous page", "Your key is read-only.")
            browser.press("Sign out")
            browser.sees("API key")
            assert ended not in browser.text()
    finally:
        stack.restart("admin")


@pytest.mark.whole
def test_which_buttons_each_role_has(stack, browser, key_make, dead_add):
    """Who runs campaigns has their buttons, and none of what concerns the installation."""
    coupon = stack.coupon_make(5, name="Buttons")
    hook = stack.ctl("webhook", "create", "https://hooks.example/").split()[1]
    stack.ctl("webhook", "create", "https://hooks.example/own", "--coupon", coupon)
    dead_add(b"Of another program.")
    buttons = {}
    for role in ("monitor", "campaign", "admin"):
        browser.sign_in(key_make(role))
        browser.sees("1 dead letter")
        buttons[role] = set()
        for place, seen in (
            (f"/campaigns/{coupon}", "https://hooks.example/own"),
            ("/campaigns", "Buttons"),
            ("/budgets", "Budgets"),
            ("/dead", "1 dead letter, oldest first"),
            ("/keys", "every campaign"),
        ):
            browser.open(place)
            browser.sees(seen)
            if role != "monitor" and coupon in place:
                browser.unfold("For operators")
                wait_until(lambda: {"New word…", "Change total…"} <= set(browser.words()))
            buttons[role] |= set(browser.words())
        browser.press("Sign out")
        browser.sees("API key")
    stack.ctl("webhook", "remove", hook)
    assert {word for word in buttons["monitor"] if "…" in word} == set()
    of_campaigns = {"Pause…", "Close…", "Edit…", "Change total…", "New campaign…"}
    of_campaigns |= {
        "New budget…",
        "Distribute…",
        "New codes…",
        "Import…",
        "New word…",
        "New webhook…",
        "Test…",
        "Remove…",
    }
    assert of_campaigns - buttons["campaign"] == set()
    of_admins = {"Rebuild…", "New key…", "Revoke…", "Send again…", "Send all again…"}
    assert buttons["admin"] - buttons["campaign"] == of_admins


@pytest.mark.whole
def test_whom_a_proxy_has_signed_in(stack, console, tmp_path):
    coupon = stack.coupon_make(5, name="Of a user")
    stack.restart(
        "admin",
        COUPON_ADMIN_USER_HEADER="X-Forwarded-User",
        COUPON_ADMIN_PROXY_NETWORKS="127.0.0.1",
        COUPON_ADMIN_USERS="ben:campaign",
    )
    try:
        with browser_open(console, tmp_path / "profile") as browser:
            driver = browser.driver
            driver.execute_cdp_cmd("Network.enable", {})
            named = {"headers": {"X-Forwarded-User": "ben"}}
            driver.execute_cdp_cmd("Network.setExtraHTTPHeaders", named)
            browser.open("/")
            browser.sees("campaign ben", "All monitored parts are healthy.")
            browser.open(f"/campaigns/{coupon}")
            browser.press("Pause…")
            browser.press("Pause")
            browser.sees("paused")
            assert "Sign out" not in browser.words()
    finally:
        stack.restart("admin")
    entries = [json.loads(line) for line in stack.ctl("history", coupon, "--json").splitlines()]
    assert "ben" in {entry["by"] for entry in entries}


@pytest.mark.whole
def test_a_second_person_approves(stack, console, key_make, tmp_path):
    coupon = stack.coupon_make(5, name="Two persons")
    stack.restart("admin", COUPON_ADMIN_APPROVAL="close")
    ben, ann = key_make("campaign"), key_make("campaign")
    try:
        with browser_open(console, tmp_path / "profile") as browser:
            browser.sign_in(ben)
            browser.sees("All monitored parts are healthy.")
            browser.open(f"/campaigns/{coupon}")
            browser.press("Close…")
            browser.press("Close")
            browser.sees("Another person has to approve it: see Approvals.", "active")
            browser.follow("Approvals")
            browser.sees(f"close {coupon}", "waiting")
            assert browser.words() == ["Sign out", "Refuse…"]
            browser.press("Sign out")
            browser.sees("API key")
            browser.sign_in(ann)
            browser.follow("Approvals")
            browser.sees(f"close {coupon}", "waiting")
            browser.press("Approve…")
            browser.sees(f"It is done now, as {ben.split('_')[1]} has asked.")
            browser.press("Approve")
            browser.sees("Done.", f"by {ann.split('_')[1]}")
            wait_until(lambda: browser.words() == ["Sign out"])
    finally:
        stack.restart("admin")
    assert json.loads(stack.ctl("show", coupon, "--json"))["postgresql"]["status"] == "closed"


EXPIRE = """WITH change AS (UPDATE api_key_version SET num = num + 1 RETURNING num)
    UPDATE api_key SET expires_at = now(), version = change.num FROM change WHERE id = %s"""


@pytest.mark.whole
def test_who_may_come_in(stack, browser, key_make, pg):
    browser.sign_in("cmq_0000000000_" + "x" * 43)
    browser.sees("This key is not valid")
    browser.sign_in(key_make("issue"))
    browser.sees("this key does not allow that")
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    expires = key_make("monitor", "--expires", soon.isoformat(timespec="seconds"))
    browser.sign_in(expires)
    browser.sees("All monitored parts are healthy.")
    pg.execute(EXPIRE, (expires.split("_")[1],))
    browser.sees("Your session has ended")
    browser.fill("API key", expires)
    browser.press("Sign in")
    browser.sees("This key is not valid")
    monitor = key_make("monitor")
    browser.sign_in(monitor)
    browser.sees("All monitored parts are healthy.")
    browser.open("/campaigns/%")
    browser.sees("Page not found")
    browser.open(f"/campaigns/{stack.coupon_make(1)}")
    browser.sees("Your key is read-only.")
    assert browser.words() == ["Sign out", "Check"]
    stack.ctl("key", "revoke", monitor.split("_")[1])
    browser.sees("Sign in")
    browser.sign_in(key_make("admin"))
    browser.press("Sign out")
    browser.sees("API key")
    browser.driver.refresh()
    browser.sees("API key")


@pytest.mark.whole
def test_it_says_when_it_is_old(stack, signed_in):
    browser = signed_in
    stack.stop("admin")
    browser.sees("s old. Reconnecting…")
    stack.start("admin")
    browser.sees("Your session has ended")  # sessions are in memory


@pytest.mark.whole
def test_a_form_whose_answer_is_lost(stack, console, key_make, tmp_path, pg):
    """It is submitted again, and one draft is made. A new form makes a new one."""
    made = "SELECT count(*) FROM coupon WHERE name = 'Lost answer'"

    def form_fill(browser):
        browser.press("New campaign…")
        browser.fill("Name", "Lost answer")
        browser.fill("Total coupons", "5")

    with Relay(port_of(console)) as relay, browser_open(relay.url(console), tmp_path) as browser:
        browser.sign_in(key_make("admin"))
        browser.follow("Campaigns")
        form_fill(browser)
        relay.mode("lose", "down")
        browser.press("Create draft")
        wait_until(lambda: pg.execute(made).fetchone() == (1,))
        lost = "coupon-admin does not answer. Try again."
        # The browser itself may send it again.
        wait_until(lambda: lost in browser.text() or relay.reset())
        relay.mode("pass", "down")
        browser.press("Create draft")
        coupon = coupon_of(browser)
        assert pg.execute(made).fetchone() == (1,)
        browser.follow("Campaigns")
        form_fill(browser)
        browser.press("Create draft")
        wait_until(lambda: pg.execute(made).fetchone() == (2,))
        wait_until(lambda: coupon_of(browser) != coupon)


def cpu_s(pid):
    """The CPU time of all its threads."""
    each = (task / "schedstat" for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(one.read_text().split()[0]) for one in each) / 1e9


@pytest.mark.whole
def test_it_connects_again(stack, console, key_make, tmp_path):
    """After connections were lost, with and without a sign of it; who was signed in still is."""
    with Relay(port_of(console)) as relay, browser_open(relay.url(console), tmp_path) as browser:
        browser.sign_in(key_make("monitor"))
        browser.sees("All monitored parts are healthy.")
        relay.half_open("client")
        browser.sees("s old. Reconnecting…")
        wait_until(lambda: "s old" not in browser.text())
        before = browser.run(AS_OF)
        relay.reset()
        wait_until(lambda: browser.run(AS_OF) > before)
        assert "API key" not in browser.text()


AS_OF = "return document.querySelector('#as-of time')?.dateTime ?? ''"


# What a keeper and a gateway may tell, and what the page makes of it.
SAMPLE = """
const worker = { kind: "worker", address: "w:1", error: null, readyz: { ready: true },
    metrics: { keeper_elected: 1, keeper_stock_lost: 3, keeper_coupons: { unavailable: 2 },
        worker_put_off_coupons: 1, keeper_queue_messages: { "coupon.receive.dead": 1 } } };
const gateway = { kind: "gateway", address: "g:1", error: null,
    readyz: { ready: false, redis: "away", warnings: ["appendfsync is everysec"] }, metrics: {} };
const rebuild = { filled: 40, rows: 100, seconds_left: 7 };
const { troubles } = await import("/console/now.js");
return troubles({ stores: { postgresql: { error: null }, redis: { error: "refused" } },
    processes: [worker, gateway], campaigns: [{ coupon: "1001", rebuild }] })
    .map(({ kind, what, why }) => [kind, `${what}: ${why}`]);
"""


@pytest.mark.whole
def test_what_comes_first(signed_in):
    """A loss before a hold, and how far a rebuild is."""
    told = signed_in.run(f"return (async () => {{ {SAMPLE} }})()")
    assert [kind for kind, _ in told] == ["bad"] * 3 + ["warn"] * 5
    texts = " ".join(text for _, text in told)
    for text in (
        "Redis does not answer: refused",
        "The gateway at g:1 is not ready: redis: away",
        "Stock was lost: 3 coupons",
        "2 campaigns are not available",
        "Workers have put off 1 campaign",
        "1 dead letter",
        "Campaign 1001 is being rebuilt: 40 of 100, about 7 s left",
        "Warning from g:1: appendfsync is everysec",
    ):
        assert text in texts


@pytest.mark.whole
def test_what_ten_cost(stack, console, key_make):
    """Ten milliseconds of coupon-admin for each sample; the gateway is asked once for all."""
    known = {"Authorization": f"Bearer {key_make('monitor')}"}

    pids = [stack.pid(name) for name in ("admin", "gateway")]

    def cost(lookers_n):
        """CPU seconds of each program for a sample, over ten of them."""
        with ExitStack() as open_ones:
            for _ in range(lookers_n):
                url = console + "/admin/v1/live"
                answer = requests.get(url, headers=known, stream=True, timeout=60)
                watched = open_ones.enter_context(answer).iter_lines(chunk_size=1)
            samples = (line for line in watched if line == b"event: sample")
            next(samples)
            before = [cpu_s(pid) for pid in pids]
            for _ in range(10):
                next(samples)
            return [(cpu_s(pid) - used_s) / 10 for pid, used_s in zip(pids, before)]

    one, ten = cost(1), cost(10)
    print(f"CPU seconds a sample: {one} of one, {ten} of ten")
    assert ten[0] < 0.01
    assert ten[1] - one[1] < 0.001


@pytest.mark.whole
@pytest.mark.skipif(has_tls(), reason="the store's own port")
def test_what_is_wrong_comes_first(stack, signed_in):
    browser = signed_in
    stack.stop("worker-1", "worker-2")
    browser.sees("does not answer")
    first = browser.run("return document.querySelector('.troubles li').textContent")
    assert "does not answer" in first
    browser.follow("What to do")
    focused = "return document.activeElement.textContent"
    wait_until(lambda: browser.run(focused) == "A worker is down")
    browser.sees("CouponmqWorkerDown")
    stack.start("worker-1", "worker-2")
    browser.open("/")
    browser.sees("All monitored parts are healthy.")


@pytest.mark.whole
def test_the_manual(signed_in):
    """It is there without another host: links lead to its other pages, or are none."""
    signed_in.follow("Manual")
    signed_in.sees("Dead letters", "guides/console.md")
    for page, text in (
        ("guides/codes", "codes"),
        ("guides/webhooks", "webhook"),
        ("guides/events", "event"),
        ("reference/errors", "out_of_stock"),
        ("guides/runbook", "CouponmqNoKeeper"),
    ):
        signed_in.open(f"/manual/{quote(page, safe='')}")
        signed_in.sees(text, f"This is {page}.md of the documents")
        assert signed_in.run(TOO_WIDE) == []
        for mark in ("```", "](", "**"):
            assert mark not in signed_in.text(), page
        places = "return [...document.querySelectorAll('article a')].map((one) => one.hash)"
        assert all(place.startswith("#/manual/") for place in signed_in.run(places)), page
    signed_in.open("/manual/guides%2Fnothing")
    signed_in.sees("There is no page guides/nothing.")


def test_each_trouble_is_in_the_runbook():
    """What the page of the present state links to."""
    page = (ROOT / "console/now.js").read_text(encoding="utf-8")
    runbook = (ROOT / "docs/guides/runbook.md").read_text(encoding="utf-8")
    named = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z]+[a-z]*)+)"', page)) - {"RabbitMQ", "PostgreSQL"}
    assert len(named) > 10
    stores = {f"{store}Unreachable" for store in ("PostgreSQL", "Redis")}
    for name in sorted(named | stores | {"GatewayDown", "WorkerDown"}):
        assert f"`Couponmq{name}`" in runbook, name


# By the formula of WCAG 2.2: what is drawn on what, of each element with text and of each control.
CONTRASTS = """
const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
const below = (e) => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; }
    return [255, 255, 255]; };
const wrong = [];
for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest("svg")) continue;
    const style = getComputedStyle(e), own = below(e);
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if ((says || e.value) && ratio(parse(style.color), own) < 4.5)
        wrong.push([e.outerHTML.slice(0, 90), ratio(parse(style.color), own)]);
    if (["INPUT", "BUTTON", "TEXTAREA"].includes(e.tagName) && e.type !== "checkbox" &&
            ratio(parse(style.borderTopColor), below(e.parentElement)) < 3)
        wrong.push([e.outerHTML.slice(0, 90), "border"]);
}
return wrong;
"""
NAMELESS = """
return [...document.querySelectorAll("a, button, input, textarea, progress, table, dialog, svg")]
    .filter((e) => e.checkVisibility() && !(e.labels?.length || e.getAttribute("aria-label") ||
        e.getAttribute("aria-labelledby") || e.querySelector("caption") ||
        e.textContent.trim()))
    .map((e) => e.outerHTML.slice(0, 90));
"""

TOO_WIDE = """
if (document.documentElement.scrollWidth <= innerWidth) return [];
return [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth)
    .map((e) => e.outerHTML.slice(0, 90));
"""


def look_closely(browser):
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for size in (WIDE, NARROW):
            browser.size(size)
            assert browser.run(CONTRASTS) == []
            assert browser.run(NAMELESS) == []
            assert browser.run(TOO_WIDE) == []
    browser.scheme("light")
    browser.size(WIDE)


DIALOGS = {
    "/campaigns/{coupon}": [
        "Edit…",
        "Close…",
        "Change total…",
        "New word…",
        "New codes…",
        "Import…",
        "Save…",
        "New webhook…",
        "Test…",
    ],
    "/find?coupon={coupon}&user={user}": ["Void…", "Release…"],
    "/budgets": ["New budget…", "Amount…"],
    "/dead": ["Send again…", "Remove…"],
    "/webhooks": ["New webhook…", "Pause…"],
    "/keys": ["New key…", "New secret…", "Revoke…"],
}


@pytest.mark.whole
def test_it_can_be_read(stack, browser, key_make, dead_add):
    """Names, contrast, and no page that is wider than a small screen."""
    terms = {"amount_off": "5.00", "currency": "EUR"}
    coupon = stack.coupon_make(3, name="A campaign with " + "a-very-long-name" * 8, **terms)
    budget = f"b-{coupon}-{'x' * 40}"
    stack.ctl("budget", "create", budget, "--amount", "9007199254.00", "--currency", "EUR")
    stack.coupon_edit(coupon, "--budget", budget)
    with stack.client() as client:
        receive = client.issue(coupon, "u" * 64, ack="issued")["receive"]
        client.call("hold", receive=receive, order="o" * 64, by="b" * 64)
    stack.ctl("codes", "generate", coupon, "--count", 3)
    stack.ctl("codes", "generate", coupon, "--word", f"NOON{coupon}")
    hook = stack.ctl("webhook", "create", "https://hooks.example/" + "x" * 99, "--coupon", coupon)
    dead_add(b"\x01" * 300)
    browser.open("/")
    browser.sees("API key")
    look_closely(browser)
    browser.sign_in(key_make("admin"))
    for page, text in PAGES.items():
        browser.open(page.format(coupon=coupon, user="u" * 64))
        browser.sees(text.format(coupon=coupon))
        look_closely(browser)
    for page, words in DIALOGS.items():
        browser.open(page.format(coupon=coupon, user="u" * 64))
        for word in words:
            browser.press(word)
            look_closely(browser)
            browser.press("Cancel")
    stack.ctl("webhook", "remove", re.search("webhook ([0-9]+)", hook)[1])


@pytest.mark.whole
@pytest.mark.skipif(not AXE.exists(), reason="no axe-core: make test-console")
def test_axe_finds_nothing(stack, browser, key_make, dead_add):
    """On every page, from 360 px of width on, light and dark."""
    coupon = stack.coupon_make(3, name="A campaign with all", amount_off="5.00", currency="EUR")
    stack.coupon_edit(coupon, "--end", "2041-01-01T00:00:00Z")
    stack.ctl("budget", "create", f"b-{coupon}", "--amount", "50.00", "--currency", "EUR")
    stack.coupon_edit(coupon, "--budget", f"b-{coupon}")
    with stack.client() as client:
        receive = client.issue(coupon, "u" * 64, ack="issued")["receive"]
        client.call("hold", receive=receive, order="o-1")
    stack.ctl("codes", "generate", coupon, "--count", 3)
    stack.ctl("codes", "generate", coupon, "--word", f"NOON{coupon}")
    hook = stack.ctl("webhook", "create", "https://hooks.example/", "--coupon", coupon)
    dead_add(b"\x01" * 300)
    found = {}

    def look(where):
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            for width in (1440, 1024, 768, 360):
                browser.size((width, 900))
                if wrong := browser.axe():
                    found[f"{where}, {scheme}, {width}"] = wrong
        browser.scheme("light")
        browser.size(WIDE)

    browser.open("/")
    browser.sees("API key")
    look("the sign-in")
    browser.sign_in(key_make("admin"))
    for page, text in PAGES.items():
        browser.open(page.format(coupon=coupon, user="u" * 64))
        browser.sees(text.format(coupon=coupon))
        look(page)
    for page, words in DIALOGS.items():
        browser.open(page.format(coupon=coupon, user="u" * 64))
        browser.press(words[0])
        browser.sees("Cancel")
        if wrong := browser.axe():
            found[f"{page}, {words[0]}"] = wrong
        browser.press("Cancel")
    stack.ctl("webhook", "remove", re.search("webhook ([0-9]+)", hook)[1])
    assert found == {}


# What has lost its background, and has no border instead; lines in the colour of the page.
UNMARKED = """
const wrong = [...document.querySelectorAll(".badge, .level, .card, nav a[aria-current]")]
    .filter((e) => e.checkVisibility())
    .filter((e) => !["Top", "Bottom"].some((side) =>
        parseFloat(getComputedStyle(e)[`border${side}Width`]) > 0));
const page = getComputedStyle(document.body).backgroundColor;
const lines = [...document.querySelectorAll("svg .line, svg .now")]
    .filter((e) => getComputedStyle(e).stroke === page);
return [...wrong, ...lines].map((e) => e.outerHTML.slice(0, 90));
"""


@pytest.mark.whole
def test_forced_colours(stack, signed_in):
    """States, levels and lines are told without a colour of the page's own."""
    coupon = stack.coupon_make(3, name="Forced", end="2041-01-01T00:00:00Z")
    with stack.client() as client:
        client.issue(coupon, "u", ack="issued")
    for scheme in ("light", "dark"):
        signed_in.scheme(scheme, forced="active")
        for page, text in (
            ("/", "Active campaigns"),
            (f"/campaigns/{coupon}", "Latest requests"),
            ("/operations", "PostgreSQL"),
            ("/history", "done"),
        ):
            signed_in.open(page)
            signed_in.sees(text)
            assert signed_in.run(UNMARKED) == [], page
            dashes = "return [...document.querySelectorAll('svg .line')].map((e) =>"
            dashes = signed_in.run(f"{dashes} getComputedStyle(e).strokeDasharray)")
            assert len(set(dashes)) == len(dashes), "each line has its own dashes"
    signed_in.scheme("light")


FOCUSED = """
const e = document.activeElement, style = getComputedStyle(e);
const shown = e === document.body || style.outlineStyle !== "none";
return [e.textContent.trim() || e.name || e.id, shown];
"""


def reach(browser, word):
    """By the tabulator; where the focus is can be seen on the way. Then Enter."""
    for _ in range(200):
        browser.keys("TAB")
        name, is_shown = browser.run(FOCUSED)
        assert is_shown, name
        if name == word:
            browser.keys("ENTER")
            return
    raise AssertionError(f"{word} is not reached")


@pytest.mark.whole
def test_the_keyboard_alone(stack, browser, key_make):
    """From the sign-in on; what was opened is left by Escape, and the focus is not lost."""
    coupon = stack.coupon_make(3, name="Keys", publish=False)
    browser.open(f"/campaigns/{coupon}")
    browser.sees("API key")
    ActionChains(browser.driver).send_keys(key_make("admin"), Keys.ENTER).perform()
    browser.sees("Publish…", "New webhook…")
    for word, said in (("Publish", "Published."), ("Pause", "Paused."), ("Resume", "Resumed.")):
        reach(browser, f"{word}…")
        browser.sees("Based on version")
        reach(browser, word)
        browser.sees(said)
    reach(browser, "New word…")
    ActionChains(browser.driver).send_keys(f"NOON{coupon}", Keys.ENTER).perform()
    browser.sees("The word is created.")
    wait_until(lambda: browser.run("return document.activeElement.tagName") != "BODY")
    reach(browser, "Keys")
    browser.sees("every campaign")
    reach(browser, "New key…")
    browser.sees("The name is empty.")
    for _ in range(12):
        browser.keys("TAB")
        assert browser.run("return document.activeElement.closest('dialog, body').tagName")
    browser.keys("ESCAPE")
    wait_until(lambda: "The name is empty." not in browser.text())
    assert browser.run(FOCUSED)[0] == "New key…"
    reach(browser, "Revoke…")
    browser.sees("active → revoked")
    browser.keys("ESCAPE")
    reach(browser, "Budgets")
    browser.sees("The total discount that campaigns may give")
    reach(browser, "New budget…")
    browser.sees("Name is empty.")
    browser.keys("ESCAPE")
    reach(browser, "Operations")
    browser.sees("Health", "PostgreSQL")
    reach(browser, "Dead letters")
    browser.sees("There are no dead letters.")
    reach(browser, "Refresh")
    reach(browser, "Sign out")
    browser.sees("API key")


@pytest.mark.whole
def test_ten_thousand_campaigns(stack, signed_in):
    """Fifty a page, both ways, and found by name; the live page has the active campaigns."""
    insert = (
        "INSERT INTO coupon (id, name, total_num)"
        " SELECT 7000000 + n, 'Draft ' || n, 1 FROM generate_series(1, 10000) AS n"
    )
    with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as owner:
        owner.execute(insert)
    try:
        browser = signed_in
        names = "return [...document.querySelectorAll('tbody th a')].map((one) => one.textContent)"

        def page_has(first, last):
            wait_until(lambda: (shown := browser.run(names)) and shown[0] == first)
            assert (browser.run(names)[-1], len(browser.run(names))) == (last, 50)

        browser.open("/campaigns")
        page_has("Draft 10000", "Draft 9951")
        browser.follow("Next page")
        page_has("Draft 9950", "Draft 9901")
        browser.follow("Next page")
        page_has("Draft 9900", "Draft 9851")
        browser.follow("Previous page")
        page_has("Draft 9950", "Draft 9901")
        browser.follow("Previous page")
        page_has("Draft 10000", "Draft 9951")
        assert "Previous page" not in browser.text()
        browser.driver.back()
        page_has("Draft 9950", "Draft 9901")
        browser.choose("Order", "name")
        browser.fill("Name or id", "DRAFT 999")
        browser.press("Find")
        wait_until(lambda: browser.run(names) == [f"Draft {n}" for n in (999, *range(9990, 10000))])
        browser.fill("Name or id", "7000051")
        browser.press("Find")
        wait_until(lambda: browser.run(names) == ["Draft 51"])
        browser.open("/")
        wait_until(lambda: browser.run("return document.querySelectorAll('tbody tr').length") > 40)
        assert browser.run("return document.querySelectorAll('tbody tr').length") < 70
    finally:
        with psycopg.connect(stack.env["DATABASE_ADMIN_URL"]) as owner:
            owner.execute("DELETE FROM coupon WHERE id > 7000000 AND id <= 7010000")


def test_what_a_page_is_sent_with(console):
    """Also where there is no browser."""
    page = requests.get(console + "/", timeout=60)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    known = {"If-None-Match": page.headers["ETag"]}
    assert requests.get(console + "/", headers=known, timeout=60).status_code == 304
    for name in re.findall(r'"(/console/[^"]+)"', page.text):
        answer = requests.get(console + name, timeout=60)
        assert answer.status_code == 200 and answer.headers["ETag"]
    assert requests.get(console + "/console/../admin", timeout=60).status_code == 404
    assert requests.get(console + "/console/nothing.js", timeout=60).status_code == 404
    assert requests.post(console + "/", timeout=60).status_code == 405
