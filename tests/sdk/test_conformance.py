"""The conformance suite with each client: each file of scenarios, and the gateway killed under
load."""

import os
import subprocess

import pytest

from driver_orders import asked, call
from process import ISSUER, guarded_process, jwks_write
from selection import one_in_turn
from stack import ROOT
from test_python import ec_key, ed_key, hmac_key

PYTHON = ["/usr/bin/python3", "-B", "sdk/python/driver.py"]
DRIVERS = {
    "threads": PYTHON,
    "asyncio": [*PYTHON, "--asyncio"],
    "node": ["node", "sdk/node/driver.js"],
}
WHOLE = [pytest.param(name, marks=pytest.mark.whole) for name in ("node", "go", "java")]
LIMIT_S = 1200  # generous: a client that hangs is told by the suite


@pytest.fixture(params=["threads", "asyncio", *WHOLE])
def driver(request, stack):
    if request.param == "go":
        return [go_driver(stack.build_dir)]
    if request.param == "java":
        return request.getfixturevalue("java")
    return DRIVERS[request.param]


def go_driver(build_dir):
    """Built with Go's own cache: again only if it has changed."""
    path = build_dir / "sdk-go-driver"
    subprocess.run(["go", "build", "-o", path, "./driver"], cwd=ROOT / "sdk/go", check=True)
    return path


def passes(stack, driver, *options):
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "sdk/conformance/suite.py"]
        + ["--run-dir", stack.run_dir, *options, *driver],
        cwd=ROOT,
        env={**os.environ, "BUILD_DIR": str(stack.build_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_answers(stack, driver):
    assert passes(stack, driver, "--only", "answers:").count("\nok ") >= 10


def test_connections(stack, driver):
    assert passes(stack, driver, "--only", "connections:").count("\nok ") >= 6


def test_retries(stack, driver):
    assert passes(stack, driver, "--only", "retries:").count("\nok ") >= 16


def test_the_gateway_takes_tokens(driver, stack, make_coupon, tmp_path):
    """Of each algorithm: for the user, the coupon and the key that the token names."""
    keys = {"es": ec_key(), "ed": ed_key(), "hs": hmac_key()}
    jwks = [{**public, "kid": kid} for kid, (_, public) in keys.items()]
    coupon, other = make_coupon(10, limit=5), make_coupon(10)
    gateway = guarded_process(stack, "gateway-sdk", jwks_write(tmp_path, {"keys": jwks}))
    opened = {"do": "open", "gateways": [gateway.http("")]}
    if ca := stack.env.get("COUPON_TLS_CA"):
        opened["ca"] = ca
    try:
        for kid, (private, _) in keys.items():
            token = {"do": "token", "private": private.decode(), "kid": kid, "issuer": ISSUER}
            token |= {"user": "42", "coupons": [coupon], "key": f"press-{kid}"}
            (made,) = asked(driver, token)

            def issue(coupon, user, key=f"press-{kid}"):
                return call("issue", {"coupon": coupon, "user": user}, key=key)

            orders = [issue(coupon, "42"), issue(coupon, "42", "other")]
            orders += [issue(coupon, "43"), issue(other, "42")]
            _, issued, *refused = asked(driver, {**opened, "token": made["token"]}, *orders)
            assert issued.get("answer", {}).get("ok"), issued
            assert [one["error"] for one in refused] == ["bad_request", "forbidden", "forbidden"]
        token["issuer"] = "somebody"
        (made,) = asked(driver, token)
        _, refused = asked(driver, {**opened, "token": made["token"]}, orders[0])
        assert refused["error"] == "unauthorized"
    finally:
        gateway.end()


@pytest.fixture(scope="session")
def tls_stack(stack_make):
    """Has TLS, whether the others have it or not."""
    own = stack_make()
    own.settings["TLS"] = "yes"
    own.services()
    own.start("gateway", "worker-1")
    return own


@pytest.mark.whole
def test_all_over_tls(tls_stack, driver):
    assert passes(tls_stack, driver).count("\nok ") >= 40


@pytest.fixture
def killed_stack(own_stack):
    own_stack.start("worker-1")
    yield own_stack
    own_stack.stop("worker-1")


def test_each_is_done_once_while_the_gateway_is_killed(killed_stack, driver):
    assert " 8 kills" in passes(killed_stack, driver, "--kill", "2000")


@pytest.mark.whole
@pytest.mark.parametrize("driver", one_in_turn([*DRIVERS, "go", "java"]), indirect=True)
def test_20000_are_done_once_while_the_gateway_is_killed(killed_stack, driver):
    assert " 8 kills" in passes(killed_stack, driver, "--kill", "20000")
