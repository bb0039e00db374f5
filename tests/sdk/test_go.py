"""The client for Go, beyond what the conformance suite asks of every client."""

import re
import subprocess
import textwrap

import pytest

from asyncapi import PAGE as ASYNCAPI
from asyncapi import members_of, resolved
from stack import ROOT
from test_python import OPENAPI, properties

SDK = ROOT / "sdk/go"
pytestmark = pytest.mark.whole


def go(*arguments, cwd=SDK):
    done = subprocess.run(
        [*map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_its_own_tests_pass_without_a_race():
    assert go("go", "test", "-race", "-count=1", ".").startswith("ok")


def test_the_code_is_formatted_and_vetted():
    assert go("gofmt", "-l", ".") == ""
    go("go", "vet", "./...")


# Each operation: the types of its requests and answers
OPERATIONS = {
    **{op: (f"{op.title()}Request", "IssueAnswer") for op in ("issue", "claim")},
    **{op: ("OrderRequest", "OrderAnswer") for op in ("hold", "use", "release", "rollback")},
    **{
        op: (f"{op.title()}Request", f"{op.title()}Answer")
        for op in ("status", "coupon", "code", "coupons", "offers", "quote")
    },
}


def fields(name):
    """The members of a type in Go, by its tags and those of the types in it."""
    types = (SDK / "types.go").read_text("utf-8")
    if alias := re.search(rf"^type {name} (\w+)$", types, re.M):
        return fields(alias[1])
    body = re.search(rf"^type {name} struct {{\n(.*?)^}}", types, re.M | re.S)[1]
    tags = re.findall(r'`json:"(\w+)(?:,omitempty)?"`', body)
    assert len(tags) == body.count("`") // 2
    return set(tags).union(*map(fields, re.findall(r"^\t(\w+)$", body, re.M)))


def asked(op):
    """The members of its request, but the id, which the client gives."""
    path = OPENAPI["paths"][f"/v1/{op}"]
    if "post" in path:
        return properties(path["post"]["requestBody"]["content"]["application/json"]["schema"]) - {
            "id"
        }
    names = [one["$ref"].rpartition("/")[2] for one in path["get"]["parameters"]]
    parameters = [OPENAPI["components"]["parameters"][name] for name in names]
    return {one["name"] for one in parameters if one["in"] == "query"} - {"id"}


def answered(op):
    path = OPENAPI["paths"][f"/v1/{op}"]
    replies = (path.get("post") or path["get"])["responses"]
    found = set()
    for status in {"200", "404", "409"} & replies.keys():
        for media, content in replies[status].get("content", {}).items():
            found |= properties(content["schema"]) if media == "application/json" else set()
    return found - {"id"}


def test_requests_and_answers_have_the_members_of_the_protocol():
    """And no others. What was in the request need not be in the answer; the client adds the key."""
    paths = {path[4:] for path in OPENAPI["paths"] if path.startswith("/v1/")}
    assert paths - OPERATIONS.keys() == {"ping", "stats"}
    for name in set().union(*OPERATIONS.values()):
        ops = [op for op, types in OPERATIONS.items() if name in types]
        in_requests = set().union(*map(asked, ops))
        if name.endswith("Request"):
            assert fields(name) == in_requests, name
            continue
        found, known = set().union(*map(answered, ops)), fields(name)
        assert found - known <= in_requests, name
        # Parts of the answer to status have a state.
        assert known - found - fields("Answer") <= {"state"}, name
    assert answered("ping") <= fields("Answer") <= answered("issue") | {"key"}


def test_the_parts_of_answers_have_the_members_of_the_protocol():
    for name, schemas in {
        "Discount": ["Discount"],
        "Use": ["Use"],
        "Now": ["ReceiveNow"],
        "OrderReceive": ["UsedReceive"],
        "UserCoupon": ["UserCoupon"],
        "Offer": ["Offer"],
        "QuotedReceive": ["QuotedReceive"],
        "UserReceive": ["AcceptedReceive", "IssuedReceive", "RejectedReceive"],
    }.items():
        found = set().union(*(properties({"$ref": f"#/{one}"}) for one in schemas))
        assert fields(name) == found, name


def test_events_have_the_members_that_are_described():
    assert fields("Event") == set(resolved("#/components/schemas/CloudEvent")["properties"]) - {
        "specversion"
    }
    names = [message["name"] for message in ASYNCAPI["components"]["messages"].values()]
    assert fields("EventData") == set().union(*map(members_of, names))


def samples():
    """Each sample of the README, which example_test.go compiles."""
    readme = (SDK / "README.md").read_text("utf-8")
    return re.findall(r"```go\n(.*?)```", readme, re.DOTALL)


def test_the_samples_of_the_readme_are_those_that_are_compiled():
    compiled = (SDK / "example_test.go").read_text("utf-8")
    bodies = re.findall(r"^func Example\w*\(\) \{\n(.*?)^\}", compiled, re.DOTALL | re.MULTILINE)
    assert [textwrap.dedent(body) for body in bodies] == samples()


def test_the_first_sample_buys(stack, make_coupon, tmp_path):
    coupon = make_coupon(10, amount_off="5.00", currency="EUR")
    sample = samples()[0].replace("http://127.0.0.1:7480", stack.http("")).replace("1001", coupon)
    sample = sample.replace("order-77", f"order-{coupon}")  # each run has keys of its own
    imports = "".join(f'"{name}"\n' for name in ("context", "couponmq", "errors", "fmt", "log"))
    text = f"package main\nimport (\n{imports})\nfunc main() {{\n{sample}}}\n"
    (tmp_path / "main.go").write_text(text, "utf-8")
    go("go", "mod", "init", "shop", cwd=tmp_path)
    go("go", "mod", "edit", "-require=couponmq@v0.0.0", f"-replace=couponmq={SDK}", cwd=tmp_path)
    assert go("go", "run", ".", cwd=tmp_path) == "to pay: 15.00 EUR\nrolled_back\n"
