"""What other tools make of the descriptions of the APIs: linters find nothing, generators make
clients and types that compile, and a shop checks out with such a client."""

import json
import os
import shutil
import subprocess

import pytest
import requests

from process import Process
from skips import NO_GENERATORS
from stack import ROOT, port_free, url_of, wait_until

pytestmark = [
    pytest.mark.skipif(NO_GENERATORS, reason="make test-generators"),
    pytest.mark.long,
]

OWN = ROOT / "tests/generators"
MODULES = ROOT / "build/generators/node_modules"
REDOCLY = MODULES / "@redocly/cli/bin/cli.js"
SPECTRAL = MODULES / "@stoplight/spectral-cli/dist/index.js"
CLIENTS = MODULES / "@hey-api/openapi-ts/bin/index.cjs"
TYPES = MODULES / "openapi-typescript/bin/cli.js"
COMPILER = MODULES / "typescript/lib/tsc.js"
ENDS_S = 300


def node(folder, program, *words, **more):
    """The program that has ended. It neither looks for a newer version nor reports its use."""
    quiet = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    return subprocess.run(
        ["node", program, *words], cwd=folder, env={**os.environ, **quiet, **more},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ENDS_S,
    )  # fmt: skip


@pytest.fixture(scope="module")
def descriptions(stack, tmp_path_factory):
    """{name: path}. That of coupon-admin is what it serves: it makes most of it of its commands."""
    folder = tmp_path_factory.mktemp("descriptions")
    address = f"127.0.0.1:{port_free()}"
    admin = Process(stack, "coupon-admin", "admin-described", {"COUPON_ADMIN_LISTEN": address})

    def served():
        try:
            return requests.get(url_of(address, "/admin/v1/openapi.json"), timeout=60)
        except requests.RequestException:
            return None

    try:
        (folder / "admin.json").write_bytes(wait_until(served).content)
    finally:
        admin.end()
    return {
        "gateway": ROOT / "docs/reference/openapi.json",
        "admin": folder / "admin.json",
        "events": ROOT / "docs/reference/asyncapi.json",
    }


def redocly(path):
    """(exit status, what it finds)"""
    done = node(path.parent, REDOCLY, "lint", "--extends=recommended", "--format=json", path)
    return done.returncode, [each["message"] for each in json.loads(done.stdout)["problems"]]


def spectral(path):
    words = "lint", "--fail-severity=hint", "--format=json", "--quiet"
    done = node(path.parent, SPECTRAL, *words, "--ruleset", OWN / "spectral.yaml", path)
    return done.returncode, [each["message"] for each in json.loads(done.stdout)]


@pytest.mark.parametrize("name", ["gateway", "admin"])
def test_redocly_finds_nothing(descriptions, name):
    assert redocly(descriptions[name]) == (0, [])


@pytest.mark.parametrize("name", ["gateway", "admin", "events"])
def test_spectral_finds_nothing(descriptions, name):
    assert spectral(descriptions[name]) == (0, [])


@pytest.mark.parametrize("name", ["gateway", "events"])
def test_the_linters_find_what_is_missing(descriptions, name, tmp_path):
    document = json.loads(descriptions[name].read_text("utf-8"))
    del document["info"]["title"]
    path = tmp_path / "description.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    for linter in (spectral, redocly) if name == "gateway" else (spectral,):
        status, found = linter(path)
        assert status != 0 and any("title" in each for each in found), found


@pytest.fixture(scope="module")
def compiled(descriptions, tmp_path_factory):
    """The folder with what is generated of both APIs and what uses it, compiled."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "node_modules").symlink_to(MODULES)
    for path in OWN.glob("*.*s*"):
        if path.suffix in (".ts", ".js", ".json"):
            shutil.copy(path, folder)
    for name in ("gateway", "admin"):
        made = "client" if name == "gateway" else f"client-{name}"
        path = descriptions[name]
        done = node(folder, CLIENTS, "--silent", "--no-log-file", "-i", path, CLIENT=made)
        assert done.returncode == 0 and (folder / made / "sdk.gen.ts").exists(), done.stderr
        done = node(folder, TYPES, path, "-o", f"{name}.ts")
        assert done.returncode == 0 and (folder / f"{name}.ts").exists(), done.stderr
    assert node(folder, COMPILER).stdout == ""
    return folder


def test_the_compiler_refuses_what_the_types_do_not_have(compiled):
    path = compiled / "wrong.ts"
    path.write_text('import { hold } from "./types.js";\nexport const n: number = hold.order;\n')
    try:
        told = node(compiled, COMPILER, "--noEmit").stdout
        assert "wrong.ts(2,14)" in told and told.count("error") == 1
    finally:
        path.unlink()


STEPS = [
    ["issue", "issued", 1],
    ["again", True, True],
    ["refused", 4],
    ["coupons", 1],
    ["quote", 500, True],
    ["hold", "held", True],
    ["other", "held_by_other"],
    ["use", "used", 500],
    ["status", "used", True],
    ["late", "already_used"],
    ["rollback", "rolled_back"],
    ["next", "held"],
    ["release", "released"],
]
OPERATIONS = [
    ("hold", "held", 2),
    ("release", "already_used", 1),
    ("release", "released", 1),
    ("rollback", "rolled_back", 1),
    ("use", "held_by_other", 1),
    ("use", "used", 1),
]


def test_a_shop_checks_out_with_a_generated_client(stack, make_coupon, pg, compiled):
    coupon = make_coupon(5, amount_off="5.00", currency="EUR")
    trusted = {"NODE_EXTRA_CA_CERTS": os.environ.get("SSL_CERT_FILE", "")}
    words = stack.http("").rstrip("/"), coupon
    done = node(compiled, compiled / "out/checkout.js", *words, **trusted)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == STEPS

    def asked(query):
        return pg.execute(query, {"coupon": coupon}).fetchall()

    assert asked("SELECT total_num, issued_num FROM coupon WHERE id = %(coupon)s") == [(5, 1)]
    assert asked("SELECT user_id FROM user_coupon WHERE coupon_id = %(coupon)s") == [
        (f"ann-{coupon}",)
    ]
    assert asked("SELECT state FROM receive_use WHERE coupon_id = %(coupon)s") == [("free",)]
    assert OPERATIONS == asked(
        "SELECT action, result, count(*) FROM use_operation WHERE coupon_id = %(coupon)s"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    )
    stack.ctl("audit", coupon)
