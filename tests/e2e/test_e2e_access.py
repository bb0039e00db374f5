"""Every route with everything that can be presented: one table of who may do what, over HTTP and
lines. A route that docs/reference/openapi.json has and the table does not fails, too."""

import base64
import hashlib
import hmac
import itertools
import json
import subprocess
import time
import uuid

import pytest

from openapi import WHOLE, operations
from process import AUDIENCE, ISSUER, guarded_process, jwks_write
from stack import Client, dial, wait_until

USER = "42"
SECRET = b"0123456789abcdef0123456789abcde\xff"

OPEN, DETAILS = "open", "details"  # for everybody; for everybody, but more to some
# method, path, the operation whose rights it needs, the members of its body
ROUTES = [
    ("POST", "/v1/issue", "issue", ("coupon", "user")),
    ("POST", "/v1/claim", "claim", ("code", "user")),
    ("POST", "/v1/status", "status", ("coupon", "user")),
    ("GET", "/v1/status?coupon={coupon}&user={user}", "status", ()),
    ("HEAD", "/v1/status?coupon={coupon}&user={user}", "status", ()),
    ("POST", "/v1/coupon", "coupon", ("coupon",)),
    ("GET", "/v1/coupon?coupon={coupon}", "coupon", ()),
    ("HEAD", "/v1/coupon?coupon={coupon}", "coupon", ()),
    ("POST", "/v1/coupons", "coupons", ("user",)),
    ("GET", "/v1/coupons?user={user}", "coupons", ()),
    ("HEAD", "/v1/coupons?user={user}", "coupons", ()),
    ("GET", "/v1/users/{user}/coupons", "coupons", ()),
    ("HEAD", "/v1/users/{user}/coupons", "coupons", ()),
    ("POST", "/v1/code", "code", ("code", "user")),
    ("GET", "/v1/code?code={code}&user={user}", "code", ()),
    ("HEAD", "/v1/code?code={code}&user={user}", "code", ()),
    ("GET", "/v1/codes/{code}?user={user}", "code", ()),
    ("HEAD", "/v1/codes/{code}?user={user}", "code", ()),
    ("POST", "/v1/hold", "hold", ("coupon", "user", "order")),
    ("POST", "/v1/use", "use", ("coupon", "user", "order")),
    ("POST", "/v1/release", "release", ("coupon", "user", "order")),
    ("POST", "/v1/rollback", "rollback", ("coupon", "user", "order")),
    ("POST", "/v1/offers", "offers", ()),
    ("GET", "/v1/offers", "offers", ()),
    ("HEAD", "/v1/offers", "offers", ()),
    ("POST", "/v1/quote", "quote", ("coupon", "amount", "currency")),
    ("GET", "/v1/quote?coupon={coupon}&amount=1&currency=EUR", "quote", ()),
    ("HEAD", "/v1/quote?coupon={coupon}&amount=1&currency=EUR", "quote", ()),
    ("POST", "/v1/stats", "stats", ()),
    ("GET", "/v1/stats", "stats", ()),
    ("HEAD", "/v1/stats", "stats", ()),
    ("POST", "/v1/ping", "ping", ()),
    ("GET", "/v1/ping", "ping", ()),
    ("HEAD", "/v1/ping", "ping", ()),
    ("GET", "/metrics", "metrics", ()),
    ("HEAD", "/metrics", "metrics", ()),
    ("GET", "/readyz", DETAILS, ()),
    ("HEAD", "/readyz", DETAILS, ()),
    ("GET", "/healthz", OPEN, ()),
    ("HEAD", "/healthz", OPEN, ()),
    ("GET", "/openapi.json", OPEN, ()),
    ("HEAD", "/openapi.json", OPEN, ()),
]
LINES = [
    ("issue", ("coupon", "user")),
    ("claim", ("code", "user")),
    ("code", ("code", "user")),
    ("status", ("coupon", "user")),
    ("coupon", ("coupon",)),
    ("coupons", ("user",)),
    ("hold", ("coupon", "user", "order")),
    ("use", ("coupon", "user", "order")),
    ("release", ("coupon", "user", "order")),
    ("rollback", ("coupon", "user", "order")),
    ("offers", ()),
    ("quote", ("coupon", "amount", "currency")),
    ("stats", ()),
    ("ping", ()),
]
ISSUES = {"issue", "claim", "code", "status", "coupon", "offers", "quote", "ping"}
USES = {"hold", "use", "release", "rollback", "quote", "ping"}
READS = {"coupons", "quote", "ping"}
MONITORS = {"stats", "metrics", "ping", DETAILS}
SAYS_USER = {"issue", "claim", "code", "status", "coupons"}
SAYS_COUPON = {"issue", "status", "coupon", "hold", "use", "release", "rollback", "quote"}
GOOD = {
    "issue": ISSUES,
    "read": READS,
    "use": USES,
    "use,admin": USES,
    "monitor": MONITORS,
    "issue,read": ISSUES | READS,
    "issue,read,monitor": ISSUES | READS | MONITORS,
    "issue,read of another coupon": (ISSUES | READS) - SAYS_COUPON,
    "use of another coupon": USES - SAYS_COUPON,
    "HS256": ISSUES | READS,
    "RS256": ISSUES | READS,
    "of another user": (ISSUES | READS) - SAYS_USER,
    "of another coupon": (ISSUES | READS) - SAYS_COUPON,
    "nothing": {"ping"},
}


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments, data=None):
    done = subprocess.run(
        ["openssl", *map(str, arguments)], input=data, capture_output=True, check=True, timeout=60
    )
    return done.stdout


class Issuer:
    """Keys of three types, of which a gateway has the public ones, and the secret."""

    def __init__(self, folder):
        self.rsa, ec = folder / "rsa.key", folder / "ec.key"
        openssl("genpkey", "-algorithm", "RSA", "-out", self.rsa)
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", ec)
        modulus = openssl("rsa", "-in", self.rsa, "-noout", "-modulus").decode()
        n = bytes.fromhex(modulus.strip().partition("=")[2])
        point = openssl("pkey", "-in", ec, "-pubout", "-outform", "DER")[-64:]
        rsa = {"kty": "RSA", "kid": "rsa", "alg": "RS256", "n": b64(n), "e": "AQAB"}
        curve = {"kty": "EC", "kid": "ec", "crv": "P-256", "x": b64(point[:32])}
        curve["y"] = b64(point[32:])
        self.jwks = {"keys": [{"kty": "oct", "kid": "oct", "k": b64(SECRET)}, rsa, curve]}
        self.public = {  # what somebody may take for the secret of HS256
            f"{kid} as {form}": (kid, bytes_)
            for kid, path, whole in (("rsa", self.rsa, n), ("ec", ec, b"\4" + point))
            for form, bytes_ in (
                ("PEM", openssl("pkey", "-in", path, "-pubout")),
                ("DER", openssl("pkey", "-in", path, "-pubout", "-outform", "DER")),
                ("bytes", whole),
            )
        }

    def token(self, secret=SECRET, signature=None, head=(), **claims):
        """With HS256; a claim or a member of the head that is None is left out."""
        head = {"alg": "HS256", "kid": "oct", **dict(head)}
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": int(time.time()) + 3600,
            "sub": USER,
            **claims,
        }
        text = ".".join(
            b64(json.dumps({k: v for k, v in part.items() if v is not None}).encode())
            for part in (head, claims)
        )
        if signature is None and head["alg"] == "RS256":
            signature = openssl("dgst", "-sha256", "-sign", self.rsa, data=text.encode())
        elif signature is None:
            signature = hmac.digest(secret, text.encode(), hashlib.sha256)
        return f"{text}.{b64(signature)}"

    def bad(self):
        """name: a token that nobody may use."""
        now = int(time.time())
        rs256 = {"alg": "RS256", "kid": "rsa"}
        return {
            "expired": self.token(exp=now - 1),
            "not yet valid": self.token(nbf=now + 3600),
            "wrong audience": self.token(aud="another"),
            "wrong audiences": self.token(aud=["another", "couponmq2"]),
            "wrong issuer": self.token(iss=ISSUER + "/"),
            "without exp": self.token(exp=None),
            "without aud": self.token(aud=None),
            "without iss": self.token(iss=None),
            "without sub": self.token(sub=None),
            "sub of no user": self.token(sub="a\tb"),
            "alg none": self.token(head={"alg": "none"}, signature=b""),
            "alg None": self.token(head={"alg": "None"}, signature=b""),
            "alg none of the RSA key": self.token(
                head={"alg": "none", "kid": "rsa"}, signature=b""
            ),
            "no signature": self.token(signature=b""),
            "another alg": self.token(head={"alg": "HS512"}),
            "unknown kid": self.token(head={"kid": "another"}),
            "no kid": self.token(head={"kid": None}),
            "kid of another key": self.token(head={**rs256, "kid": "ec"}),
            "another secret": self.token(secret=SECRET[:-1] + b"\0"),
            "crit": self.token(head={"crit": ["exp"]}),
            "expired RS256": self.token(head=rs256, exp=now - 1),
            **{
                f"HS256 by the public key: {name}": self.token(secret=secret, head={"kid": kid})
                for name, (kid, secret) in self.public.items()
            },
        }


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("issuer")
    folder.chmod(0o755)
    return Issuer(folder)


@pytest.fixture(scope="module")
def guarded(stack, issuer, tmp_path_factory):
    path = jwks_write(tmp_path_factory.mktemp("access"), issuer.jwks)
    gateway = guarded_process(stack, "gateway-access", path)
    yield gateway
    gateway.end()


@pytest.fixture(scope="module")
def presented(stack, guarded, issuer):
    """name: text, of everything; and the coupon of the requests."""
    coupon, other = (stack.coupon_make(10**6, limit=100) for _ in range(2))

    def key(roles, *options):
        return stack.ctl("key", "create", "--name", "test", "--role", roles, *options)

    texts = {roles: key(roles) for roles in itertools.takewhile(lambda one: " " not in one, GOOD)}
    texts["issue,read of another coupon"] = key("issue,read", "--coupons", other)
    texts["use of another coupon"] = key("use", "--coupons", other)
    texts["HS256"] = issuer.token(coupons=[coupon])
    texts["RS256"] = issuer.token(head={"alg": "RS256", "kid": "rsa"})
    texts["of another user"] = issuer.token(sub="43")
    texts["of another coupon"] = issuer.token(coupons=[other])
    texts["nothing"] = None
    good = texts["issue,read,monitor"]
    ends = int(time.time()) + 4
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    revoked, expired = (key("issue,read,monitor", *more) for more in ((), ("--expires", soon)))
    with guarded.client() as client:  # both were good
        wait_until(lambda: client.call("auth", token=expired)["code"] == 0 or time.time() > ends)
        wait_until(lambda: client.call("auth", token=revoked)["code"] == 0)
        stack.ctl("key", "revoke", revoked.split("_")[1])
    wait_until(lambda: time.time() > ends and auth_code(guarded, revoked) == 41)
    bad = {
        "a word": "nothing",
        "a prefix": "cmq_",
        "half a key": good[:20],
        "a key with a byte more": good + "A",
        "the id of no key": "cmq_0123456789_" + good.rpartition("_")[2],
        "another secret": good[:-2] + ("AA" if good[-2:] != "AA" else "BA"),
        "another case": "CMQ" + good[3:],
        "two dots": "..",
        "revoked": revoked,
        "expired key": expired,
        **issuer.bad(),
    }
    return coupon, texts, bad


def auth_code(gateway, text):
    with gateway.client() as client:
        return client.call("auth", token=text)["code"]


def sources():
    """Addresses of this machine: each may be wrong some times a second."""
    for third, fourth in itertools.product(range(1, 255), repeat=2):
        yield f"127.1.{third}.{fourth}"


SOURCES = sources()


def http(gateway, route, text, members):
    """(status, body), of a request that comes from an address of its own."""
    method, path, _, names = route
    body = json.dumps({name: members[name] for name in names}) if names else ""
    head = [
        f"{method} {path.format(**members)} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if text is not None:
        head.append(f"Authorization: Bearer {text}")
    address = gateway.settings["COUPON_HTTP_LISTEN"]
    with dial(address, source=next(SOURCES)) as connection:
        connection.sendall("\r\n".join([*head, "", body]).encode())
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def line_codes(gateway, text, members):
    """op: code, over one connection; and that of `auth`."""
    with Client(gateway.settings["COUPON_LISTEN"], source=next(SOURCES)) as client:
        codes = {"auth": client.call("auth", token=text)["code"]} if text is not None else {}
        for op, names in LINES:
            codes[op] = client.call(op, **{name: members[name] for name in names})["code"]
    return codes


def members_of(coupon):
    return {
        "coupon": coupon,
        "user": USER,
        "code": f"NO-CODE-{uuid.uuid4().hex}".upper(),
        "order": "order-77",
        "amount": 1,
        "currency": "EUR",
    }


def test_the_table_has_every_route():
    told = {(method, path) for path, method, _ in operations(WHOLE)}
    assert told == {(method, path.partition("?")[0]) for method, path, _, _ in ROUTES}
    assert {op for op, _ in LINES} == {op for _, _, op, _ in ROUTES} - {OPEN, DETAILS, "metrics"}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_good(guarded, presented, name):
    coupon, texts, _ = presented
    members, text = members_of(coupon), texts[name]
    refused = 401 if name == "nothing" else 403
    if text:
        with guarded.client() as client:  # until the gateway knows the key
            wait_until(lambda: client.call("auth", token=text)["code"] == 0)
    for route in ROUTES:
        method, path, op, _ = route
        status, body = http(guarded, route, text, members)
        may = op in GOOD[name] or op in (OPEN, DETAILS)
        assert status not in ((401, 403) if may else ()), (route, status, body)
        assert may or status == refused, (route, status, body)
        if op == DETAILS and method == "GET":
            bare = {"ready", "degraded"}
            assert (set(json.loads(body)) == bare) == (op not in GOOD[name]), body
        if op == "coupons" and may and method == "GET":
            assert status == 200 and json.loads(body)["code"] == 0, (path, body)
    for op, code in line_codes(guarded, text, members).items():
        may = op in GOOD[name] or op == "auth"
        assert code not in ((41, 42) if may else ()), (op, code)
        assert may or code == refused - 360 - (refused == 403), (op, code)


def test_in_the_name_of_another(stack, guarded, presented):
    """An admin says who asks, for the history; of others that is their key."""
    coupon, texts, _ = presented
    with stack.client() as client:
        receive = client.issue(coupon, "named", ack="issued")["receive"]
    for name, by, code in (("use", "ann", 42), ("use", None, 0), ("use,admin", "ann", 0)):
        named = {"by": by} if by else {}
        with guarded.client() as client:
            wait_until(lambda text=texts[name]: client.call("auth", token=text)["code"] == 0)
            assert client.call("hold", receive=receive, order="a", **named)["code"] == code
    shown = json.loads(stack.ctl("receive", "show", receive, "--json"))
    assert [one["by"] for one in shown["uses"]] == [texts["use"].split("_")[1], "ann"]


def test_what_is_bad(guarded, presented):
    """Refused everywhere but where everybody is let in, and in the same words."""
    coupon, texts, bad = presented
    with guarded.client() as client:
        wait_until(lambda: client.call("auth", token=texts["issue"])["code"] == 0)
    said = set()
    for name, text in bad.items():
        for route in ROUTES:
            method, _, op, _ = route
            status, body = http(guarded, route, text, members_of(coupon))
            assert status == (200 if op == OPEN else 401), (name, route, status, body)
            if op != OPEN and method != "HEAD":
                said.add(body)
    assert len(said) == 1, said
    for name, text in bad.items():
        codes = line_codes(guarded, text, members_of(coupon))
        assert codes.pop("auth") == 41, name
        assert codes.pop("ping") == 0
        assert set(codes.values()) == {41}, (name, codes)


def test_what_is_bad_takes_away_what_was_good(guarded, presented):
    """A connection does not keep the right of what was presented before."""
    coupon, texts, bad = presented
    for name in ("a word", "half a key", "expired", "alg none", "revoked"):
        with guarded.client() as client:
            wait_until(lambda client=client: client.call("auth", token=texts["issue"])["code"] == 0)
            assert client.call("coupon", coupon=coupon)["code"] == 0
            wait_until(
                lambda client=client, name=name: client.call("auth", token=bad[name])["code"] == 41
            )
            assert client.call("coupon", coupon=coupon)["code"] == 41, name


def test_each_request_over_http_presents_its_own(guarded, presented):
    """One that presents nothing has not what was presented before it on the same connection."""
    coupon, texts, bad = presented
    with dial(guarded.settings["COUPON_HTTP_LISTEN"], source=next(SOURCES)) as connection:
        reader = connection.makefile("rb")

        def status(text):
            shown = f"Authorization: Bearer {text}\r\n" if text else ""
            head = f"GET /v1/coupon?coupon={coupon} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n"
            connection.sendall(head.encode())
            told, length = int(reader.readline().split()[1]), 0
            while (line := reader.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            reader.read(length)
            return told

        for good in (texts["issue"], texts["HS256"]):
            wait_until(lambda good=good: status(good) == 200)
            assert [status(one) for one in (None, good, bad["a word"], None)] == [
                401,
                200,
                401,
                401,
            ]
