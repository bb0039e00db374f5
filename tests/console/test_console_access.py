"""Access to the console, and what each role may do there: keys, sessions, approvals, and a
proxy that signs people in."""

import json
from datetime import datetime, timedelta, timezone

import pytest

from browser import NEEDED, browser_open, coupon_of, picture
from relay import Relay, port_of
from stack import wait_until

pytestmark = NEEDED


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
    """The role `campaign` has the buttons of campaigns, and none of the installation."""
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
            browser.sees("campaign ben", "as of")
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
            browser.sees("as of")
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
    browser.sees("as of")
    pg.execute(EXPIRE, (expires.split("_")[1],))
    browser.sees("Your session has ended")
    browser.fill("API key", expires)
    browser.press("Sign in")
    browser.sees("This key is not valid")
    monitor = key_make("monitor")
    browser.sign_in(monitor)
    browser.sees("as of")
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
