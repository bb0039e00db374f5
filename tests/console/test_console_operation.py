"""What an operator sees in the console: webhooks, dead letters, troubles with their pages of the
runbook; and what the console costs, loses and finds again."""

import json
import os
import re
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import requests

from browser import NEEDED, TOO_WIDE, browser_open, picture
from endpoint import Endpoint
from history import DEAD_QUEUE, queue_length
from message import message
from relay import Relay, port_of
from stack import ROOT, has_tls, wait_until
from webhooks import ALLOWED

pytestmark = NEEDED
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
def test_it_says_when_it_is_old(stack, signed_in):
    browser = signed_in
    stack.stop("admin")
    browser.sees("s old. Reconnecting…")
    stack.start("admin")
    browser.sees("Your session has ended")  # sessions are in memory


def cpu_s(pid):
    """The CPU time of all its threads."""
    each = (task / "schedstat" for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(one.read_text().split()[0]) for one in each) / 1e9


@pytest.mark.whole
def test_it_connects_again(stack, console, key_make, tmp_path):
    """After connections were lost, with and without a sign of it; who was signed in still is."""
    with Relay(port_of(console)) as relay, browser_open(relay.url(console), tmp_path) as browser:
        browser.sign_in(key_make("monitor"))
        browser.sees("as of")
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
    wait_until(lambda: "as of" in browser.text() and "A worker is down" not in browser.text())


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
