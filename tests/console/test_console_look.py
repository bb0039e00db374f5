"""Whether the console can be read and used: words, contrast, forced colours, small screens, the
keyboard alone."""

import re

import pytest
import requests

from browser import AXE, NARROW, NEEDED, TOO_WIDE, WIDE, ActionChains, Keys
from stack import wait_until

pytestmark = NEEDED
# Each with what is to be read there.
PAGES = {
    "/": "A campaign with",
    "/campaigns": "A campaign with",
    "/campaigns/{coupon}": "https://hooks.example/",
    "/find?coupon={coupon}&user={user}": "Redis accepted it",
    "/find?code=NOON{coupon}": "Campaign {coupon}",
    "/budgets": "b-{coupon}",
    "/report?coupon={coupon}": "By code",
    "/dead": "1 dead letter,",
    "/webhooks": "https://hooks.example/",
    "/operations": "PostgreSQL",
    "/manual/guides%2Frunbook": "CouponmqNoKeeper",
    "/approvals": "only when a second person agrees",
    "/keys": "every campaign",
    "/history": "codes generate {coupon}",
}


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
        (f"/report?coupon={coupon}", "Rolled back"),
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
