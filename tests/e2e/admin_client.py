"""coupon-admin for tests: a program of its own, callers with a key, and what it says of itself."""

import re

import requests

import openapi
from process import Process
from stack import port_free, url_of, wait_until

API = "/admin/v1"


class Admin(Process):
    """A coupon-admin of its own, beside those of the stack."""

    def __init__(self, stack, folder="", descriptors_max=None, **settings):
        address = f"127.0.0.1:{port_free()}"
        settings = {"COUPON_ADMIN_LISTEN": address, **settings}
        program = f"{folder}coupon-admin"
        super().__init__(stack, program, "admin-test", settings, descriptors_max)
        self.address, self.url = address, url_of(address)
        self.api = None
        wait_until(self.is_ready)
        self.described = Description(self.call("GET", f"{API}/openapi.json").json())

    def is_ready(self):
        try:
            return requests.get(self.url + "/readyz", timeout=60).status_code == 200
        except requests.RequestException:
            return False

    def metric(self, name):
        page = self.call("GET", "/metrics", key=self.api.key).text
        return int(re.search(f"^{re.escape(name)} (.*)$", page, re.M)[1])

    def call(self, method, path, body=None, key=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return requests.request(method, self.url + path, json=body, headers=headers, timeout=60)

    def stream(self, path, key):
        headers = {"Authorization": f"Bearer {key}"}
        return requests.get(self.url + path, headers=headers, stream=True, timeout=60)


class Description(openapi.Description):
    """What the program says of itself."""

    is_forged = False  # couponctl does not print what it should

    def operation(self, method, path):
        """The operation of a request; None: there is none."""
        for form, item in self.document["paths"].items():
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", form), path.split("?")[0]):
                if method.lower() in item:
                    return item[method.lower()]
        return None

    def check(self, method, path, response):
        """The status is listed, and the body is of its schema."""
        operation = self.operation(method, path)
        if not operation:
            assert response.status_code in (404, 405), response.text
            return
        told = f"{method} {path}: {response.status_code} {response.text[:300]}"
        assert str(response.status_code) in operation["responses"], told
        answer = self.resolve(operation["responses"][str(response.status_code)])
        assert ("content" in answer) == bool(response.content), told
        if self.is_forged and response.ok:
            return
        for type_, media in answer.get("content", {}).items():
            assert response.headers["Content-Type"] == type_, told
            assert self.errors(media["schema"], response.json()) == [], told


class Caller:
    """With one key. Each answer is as the program describes it."""

    def __init__(self, admin, key):
        self.admin, self.key = admin, key

    def __call__(self, method, path, body=None, **headers):
        response = self.admin.call(method, API + path, body, self.key, **headers)
        self.admin.described.check(method, API + path, response)
        return response


def key_maker(stack):
    def make(*roles, **options):
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        role = ",".join(roles)
        return stack.ctl("key", "create", "--name", "test", "--role", role, *flags)

    return make


def known(admin, key):
    """Once the program knows the key."""
    wait_until(lambda: admin.call("GET", f"{API}/jobs", key=key).status_code != 401)
    return Caller(admin, key)


def key_id(caller):
    return caller.key.split("_")[1]


def ok(response, status=200):
    assert response.status_code == status, response.text
    return response.json() if response.content else None


def problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    told = response.json()
    assert (told["status"], told["type"]) == (status, "about:blank")
    return told["detail"]


def job_of(caller, path):
    """One that was started, once it has ended."""
    job = ok(caller("POST", path), 202)["job"]
    return wait_until(lambda: (told := ok(caller("GET", f"/jobs/{job}")))["ended_at"] and told)
