"""A browser that looks at the console: Debian's Chromium, by Selenium."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack import ROOT, TRUST, wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDED = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium: make test-console")
PICTURES = os.environ.get("CONSOLE_PICTURES")  # the folder for those of docs/guides/console.md
TOO_WIDE = """
if (document.documentElement.scrollWidth <= innerWidth) return [];
return [...document.querySelectorAll("body *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth)
    .map((e) => e.outerHTML.slice(0, 90));
"""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"
).split()
HIGHEST = 1150  # of a picture
AXE = ROOT / "build/console/node_modules/axe-core/axe.min.js"  # make test-console installs it
AXE_RUN = """
const [done] = arguments;
axe.run(document, { resultTypes: ["violations"] }).then(
    ({ violations }) => done(violations.map(({ id, nodes }) =>
        [id, nodes.map(({ html, any }) => [html.slice(0, 120), any[0]?.message ?? ""])])),
    (error) => done([[String(error)]]));
"""
WIDE, NARROW = (1280, 900), (360, 780)

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: make test-console")
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402


class Browser:
    def __init__(self, url, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if TRUST:  # a browser has its own list of authorities
            options.add_argument("--ignore-certificate-errors")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.url = url
        self.size(WIDE)

    def size(self, size, height=None):
        metrics = {
            "width": size[0],
            "height": height or size[1],
            "deviceScaleFactor": 1,
            "mobile": size == NARROW,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name, forced="none"):
        """Light or dark; `forced` is active where the system sets all colours."""
        wanted = {"prefers-color-scheme": name, "forced-colors": forced}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def axe(self):
        """What axe-core finds on the page, each as its rule and the elements."""
        if not self.run("return typeof axe === 'object'"):
            self.run(f"{AXE.read_text(encoding='utf-8')}; window.axe = axe;")
        self.driver.set_script_timeout(120)
        return self.driver.execute_async_script(AXE_RUN)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self):
        return self.run("return document.body.innerText")

    def sees(self, *texts):
        """Waits until all of them are to be read."""
        wait_until(lambda: all(text in self.text() for text in texts), interval=0.1)

    def open(self, place):
        self.driver.get(f"{self.url}/#{place}")

    def _find(self, path):
        """The first that is shown; in the dialog where there is one."""

        def look():
            root = self.driver.find_elements(By.TAG_NAME, "dialog") or [self.driver]
            try:
                found = root[0].find_elements(By.XPATH, path)
                return next((one for one in found if one.is_displayed()), None)
            except StaleElementReferenceException:
                return None

        return wait_until(look, interval=0.1)

    def _click(self, path):
        """Once it is where it was a look before: what is loaded above it moves it."""
        before = None

        def click():
            nonlocal before
            try:
                found = self._find(path)
                seen, before = before, (found.id, found.location)
                if seen != before:
                    return False
                found.click()
            except StaleElementReferenceException:
                return False
            return True

        wait_until(click, interval=0.1)

    def press(self, word, row=None):
        """The first such button; of the row of a table that has this text."""
        within = f".//tr[contains(., {row!r})]" if row else "."
        self._click(f"{within}//button[normalize-space()={word!r}]")

    def words(self):
        """The texts of the buttons that are shown."""
        shown = "[...document.querySelectorAll('button')].filter((one) => one.checkVisibility())"
        return self.run(f"return {shown}.map((one) => one.textContent)")

    def field(self, label):
        found = f"//label[contains(., {label!r})]"
        return self._find(f".{found}//input | .{found}//textarea | .//input[@id={found}/@for]")

    def fill(self, label, text):
        field = self.field(label)
        field.clear()
        field.send_keys(text)

    def choose(self, label, option):
        """An option of a list, by its text."""

        def choose():
            try:
                found = self._find(f".//label[contains(., {label!r})]//select")
                self.run(
                    "const [list, text] = arguments;"
                    "const one = [...list.options].find((o) => o.text === text);"
                    "if (list.value === one.value) return;"
                    "list.value = one.value;"
                    "list.dispatchEvent(new Event('change', { bubbles: true }));",
                    found,
                    option,
                )
            except StaleElementReferenceException:
                return False
            return True

        wait_until(choose, interval=0.1)

    def follow(self, word):
        self._click(f".//a[normalize-space()={word!r}]")

    def unfold(self, title):
        """Opens the part with this title, unless it is open."""
        path = f".//summary[normalize-space()={title!r}]"
        if not self.run("return arguments[0].parentElement.open", self._find(path)):
            self._click(path)

    def keys(self, name):
        ActionChains(self.driver).send_keys(getattr(Keys, name)).perform()

    def figure(self, name):
        """The number of a tile, or None: there is none."""
        text = self.run("return document.getElementById(arguments[0])?.textContent", name)
        return int(text.replace(",", "")) if text and text != "–" else None

    def sign_in(self, key):
        self.open("/")
        self.fill("API key", key)
        self.press("Sign in")

    def picture(self, path, size=WIDE):
        self.size(size)
        height = self.run("return document.documentElement.scrollHeight")
        self.size(size, min(max(size[1], height), HIGHEST))
        self.driver.save_screenshot(str(path))
        self.size(size)

    def complaints(self):
        """What the console of the browser has, but refused requests."""
        logged = [line["message"] for line in self.driver.get_log("browser")]
        return [line for line in logged if "Failed to load resource" not in line]


@contextmanager
def browser_open(url, profile):
    browser = Browser(url, profile)
    try:
        yield browser
    finally:
        browser.driver.quit()


def picture(browser, name, size=WIDE):
    if PICTURES:
        path = Path(PICTURES) / f"{name}.png"
        browser.picture(path, size)
        subprocess.run(["pngquant", "--force", "--strip", "--ext", ".png", path], check=True)


def coupon_of(browser):
    return wait_until(lambda: re.search(r"#/campaigns/(\d+)$", browser.driver.current_url))[1]
