"""Lists that go into the console and out of it: codes, users, and files of several encodings."""

import csv

import pytest

from browser import NEEDED
from stack import wait_until

pytestmark = NEEDED


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
