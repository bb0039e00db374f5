"""Campaigns in the console: a sale is watched; campaigns are found, copied, changed and searched.
`make test-console` installs a browser and runs all of tests/console; `make test` watches one sale
where there is a browser."""

import json
import os
import threading
from contextlib import contextmanager

import pytest

from browser import NARROW, NEEDED, PICTURES, WIDE, coupon_of, picture
from stack import wait_until

pytestmark = NEEDED
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_USER = "<script>alert(1)</script>"


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
    chosen = signed_in.run("return document.querySelector('dialog [name=zone]').value")
    assert chosen == zone and "empty: at once" in signed_in.text()
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
def test_campaigns_are_found(stack, signed_in):
    """By a part of the name, by state, and by the days on which they are open."""
    browser, name = signed_in, "f" + os.urandom(4).hex()
    stack.coupon_make(5, name=f"Draft {name}", publish=False)
    may = {"begin": "2041-05-01T00:00:00Z", "end": "2041-05-31T00:00:00Z"}
    stack.coupon_make(5, name=f"May {name}", **may)
    stack.coupon_make(5, name=f"June {name}", begin="2041-06-10T00:00:00Z", tags=f"x,{name}")
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
    browser.open(f"/campaigns?tag={name}")
    wait_until(lambda: found() == ["June"])
    browser.follow("Show all")
    browser.choose("Order", "begin, latest first")
    wait_until(lambda: "order=begin_last" in browser.driver.current_url)
    browser.open("/campaigns?name=nothing-has-this-name")
    browser.sees("No campaign matches.")


@pytest.mark.whole
def test_times_are_those_of_the_campaign(stack, signed_in):
    """Not of the browser: in its form, and on its page."""
    browser = signed_in
    write = "const [input, text] = arguments; input.value = text;"

    def shown():
        return json.loads(stack.ctl("show", coupon, "--json"))

    browser.open("/campaigns")
    browser.press("New campaign…")
    here = browser.run("return Intl.DateTimeFormat().resolvedOptions().timeZone")
    assert browser.field("Time zone").get_attribute("value") == here
    browser.fill("Name", "Breakfast")
    browser.fill("Total coupons", "9")
    browser.fill("Time zone", "America/New_York")
    browser.fill("Tags", "noon, winter")
    browser.run(write, browser.field("Begin"), "2041-07-01T09:00")
    browser.press("Create draft")
    coupon = coupon_of(browser)
    assert (shown()["begin"], shown()["zone"]) == ("2041-07-01T13:00:00.000Z", "America/New_York")
    assert shown()["tags"] == ["noon", "winter"]
    browser.sees("2041-07-01 09:00:00", "2041-07-01 13:00:00 UTC", "America/New_York")
    browser.press("Edit…")
    browser.fill("Time zone", "Asia/Tokyo")
    browser.press("Save")
    browser.sees("2041-07-01 22:00:00", "Asia/Tokyo")
    assert shown()["begin"] == "2041-07-01T13:00:00.000Z"
    browser.press("Edit…")
    browser.run(write, browser.field("End"), "2041-07-02T00:00")
    browser.press("Save")
    browser.sees("2041-07-02 00:00:00", "2041-07-01 15:00:00 UTC")
    browser.press("Edit…")
    browser.fill("Time zone", "Europe/Berlin")
    browser.run(write, browser.field("End"), "2041-10-27T02:30")
    browser.press("Save")
    browser.sees("twice", "2041-10-27T02:30:00+02:00", "2041-10-27T02:30:00+01:00")
    assert shown()["end"] == "2041-07-01T15:00:00.000Z"


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
def test_a_report(stack, signed_in):
    """From the page of a campaign to its days, and to those of all campaigns."""
    browser, name = signed_in, f"Report {os.urandom(4).hex()}"
    coupon = stack.coupon_make(2, name=name, amount_off="5.00", currency="EUR")
    with stack.client() as client:
        receives = [client.issue(coupon, user, ack="issued")["receive"] for user in "ab"]
        assert client.issue(coupon, "c")["status"] == "out_of_stock"
        order = {"receive": receives[0], "order": "o", "currency": "EUR"}
        assert client.call("use", amount=9900, **order)["code"] == 0
        assert client.call("rollback", amount=120, **order)["code"] == 0
    wait_until(lambda: "out_of_stock" in stack.ctl("report", coupon, "--json"))
    browser.open(f"/campaigns/{coupon}")
    browser.follow("by day")
    browser.sees(
        "What became of campaigns, by day", name, "out of stock: 1", "5.00 EUR", "1.20 EUR"
    )
    browser.open(f"/report?coupon={coupon}&to=2026-01-01")
    browser.sees("Nothing happened.")
    browser.open("/report?coupon=x")
    browser.sees('"x" is not a campaign id')
    browser.open("/report?coupon=999999999")
    browser.sees("999999999")
    browser.follow("Show all")
    browser.sees(name)
    browser.open(f"/find?receive={receives[0]}")
    browser.sees("Order o gave 1.20 EUR of the discount back, 3.80 EUR off")


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
