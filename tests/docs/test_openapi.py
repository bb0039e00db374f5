"""docs/reference/openapi.json is an OpenAPI 3.1 file without gaps, and has what the tables of the
code have. tests/e2e/test_e2e_openapi.py compares it with a running gateway."""

import json
import re

import pytest
from jsonschema import Draft202012Validator

from openapi import (
    DOCUMENT,
    METHODS,
    OTHER_PATHS,
    WHOLE,
    content_of,
    errors,
    operations,
    resolve,
)
from test_docs import answers, entries, text

# The objects of OpenAPI 3.1 that the file uses: MEMBER: what it is. "!": it is required; a list or
# a map of one kind has [KIND] or {KIND}. A reference may stand for REFERABLE ones.
OBJECTS = {
    "document": {
        "openapi!": str,
        "info!": "info",
        "jsonSchemaDialect": str,
        "servers": ["server"],
        "security": [dict],
        "tags": ["tag"],
        "paths!": {"path"},
        "components": "components",
    },
    "info": {
        "title!": str,
        "version!": str,
        "summary": str,
        "description": str,
        "contact": "contact",
        "license": "license",
    },
    "contact": {"name!": str},
    "license": {"name!": str, "identifier": str},
    "server": {"url!": str, "description": str, "variables": {"variable"}},
    "variable": {"default!": str, "description": str},
    "tag": {"name!": str, "description": str},
    "path": {"parameters": ["parameter"], **{method: "operation" for method in METHODS}},
    "operation": {
        "operationId!": str,
        "tags!": [str],
        "summary!": str,
        "description": str,
        "parameters": ["parameter"],
        "requestBody": "body",
        "responses!": {"response"},
    },
    "parameter": {
        "name!": str,
        "in!": str,
        "description!": str,
        "required": bool,
        "schema!": "schema",
    },
    "body": {"description": str, "required": bool, "content!": {"media"}},
    "response": {"description!": str, "headers": {"header"}, "content": {"media"}},
    "header": {"description": str, "schema!": "schema"},
    "media": {"schema!": "schema"},
    "components": {
        "schemas": {"schema"},
        "responses": {"response"},
        "parameters": {"parameter"},
        "headers": {"header"},
        "securitySchemes": {"scheme"},
    },
    "scheme": {"type!": str, "scheme!": str, "description!": str},
}
REFERABLE = {"parameter", "response", "header"}


def form_check(value, kind, where):
    if isinstance(kind, type):
        assert isinstance(value, kind), where
    elif isinstance(kind, list):
        for i, one in enumerate(value):
            form_check(one, kind[0], f"{where}/{i}")
    elif isinstance(kind, set):
        for name, one in value.items():
            form_check(one, *kind, f"{where}/{name}")
    elif kind == "schema":
        Draft202012Validator.check_schema(value)
    elif not (kind in REFERABLE and set(value) == {"$ref"}):
        members = {name.rstrip("!"): of for name, of in OBJECTS[kind].items()}
        required = {name[:-1] for name in OBJECTS[kind] if name.endswith("!")}
        assert required <= set(value) <= set(members), f"{where}: {sorted(value)}"
        for name, one in value.items():
            form_check(one, members[name], f"{where}/{name}")


def walk(value):
    """The value and all in it."""
    yield value
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, (dict, list)):
            yield from walk(one)


def dicts():
    return (value for value in walk(DOCUMENT) if isinstance(value, dict))


def test_has_the_form_of_openapi_3_1():
    assert DOCUMENT["openapi"] == "3.1.0"
    form_check(DOCUMENT, "document", "")


def test_each_reference_leads_somewhere_and_each_component_is_used():
    used = {value["$ref"] for value in dicts() if isinstance(value.get("$ref"), str)}
    for reference in used:
        assert resolve({"$ref": reference}), reference
    components = {
        f"#/components/{kind}/{name}"
        for kind, named in DOCUMENT["components"].items()
        for name in named
        if kind != "securitySchemes"
    }
    assert components == used
    schemes = {name for one in DOCUMENT["security"] for name in one}
    assert schemes == set(DOCUMENT["components"]["securitySchemes"])


def test_operations_have_names_of_their_own():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert {tag for _, _, operation in operations() for tag in operation["tags"]} == tags


def test_nothing_is_left_open():
    """Each object says what else it may have; each text, number and list has its bounds."""
    open_ = []
    for value in walk(DOCUMENT["components"]["schemas"]):
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            continue
        bounds = {
            "object": "additionalProperties" in value,
            "string": bool({"const", "enum", "pattern", "maxLength", "minLength"} & set(value)),
            "integer": {"minimum", "maximum"} <= set(value) or "const" in value,
        }
        if not bounds.get(value["type"], True):
            open_.append(value)
    assert open_ == []


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_each_example_is_valid(name):
    schema = DOCUMENT["components"]["schemas"][name]
    for example in schema.get("examples", []):
        assert errors({"$ref": f"#/components/schemas/{name}"}, example) == []


def branches(schema):
    """The schemas one of which a value must match."""
    return schema.get("oneOf", [schema])


def test_each_body_and_reply_has_an_example():
    bare = {
        json.dumps(schema)
        for value in dicts()
        if "application/json" in value
        for schema in branches(value["application/json"]["schema"])
        if "examples" not in resolve(schema) and resolve(schema) != {"type": "object"}
    }
    assert bare == set()


def test_has_each_path_and_method_of_the_gateway():
    wanted = {
        (f"/v1/{name}", method)
        for _, name, reads, _ in entries("gateway/listen/op_table.h", "OP")
        if name != "auth"  # a header here
        for method in (("GET", "HEAD", "POST") if reads == "1" else ("POST",))
    } | {
        (path, method)
        for path in re.findall(r'^\t\{ "(/\S+)", on_', text("gateway/listen/http.c"), re.MULTILINE)
        for method in ("GET", "HEAD")
    }
    wanted |= {(path, method) for path in OTHER_PATHS for method in ("GET", "HEAD")}
    assert {(path, method) for path, method, _ in operations(WHOLE)} == wanted


def test_has_one_operation_for_one_thing():
    assert all(len({"get", "head", "post"} & set(item)) == 1 for item in DOCUMENT["paths"].values())


def test_each_choice_says_by_which_member():
    """A generator makes one type of it, not an unknown one."""
    for value in dicts():
        if "oneOf" in value:
            name, mapping = value["discriminator"].values()
            assert sorted(mapping.values()) == sorted(one["$ref"] for one in value["oneOf"])
            for word, schema in mapping.items():
                member = resolve({"$ref": schema})["properties"][name]
                assert word in member.get("enum", [member.get("const")])
        assert "anyOf" not in value or "properties" not in value
        assert not {"enum", "const"} & set(value) or "type" in value or "properties" in value, value


WHATEVER_THE_ANSWER = {"406", "408", "413", "414", "415", "417", "421", "431"}  # not read


def replies():
    """(HTTP status, code, status) of each reply that the file lists for an operation."""
    for _, _, operation in operations():
        for http, response in operation["responses"].items():
            response = resolve(response)
            if "application/json" not in response.get("content", {}):
                continue
            for branch in branches(content_of(response)[1]):
                properties = resolve(branch).get("properties", {})
                status = properties.get("status", {})
                for one in status.get("enum", [status.get("const")]):
                    if "code" in properties:
                        yield http, properties["code"]["const"], one


DONE = "accepted", "queued", "issued", "held", "used", "released", "rolled_back"


def test_has_each_answer():
    table = {
        int(code): ({status, *DONE} if code == "0" else {status}, http)
        for _, code, status, http, _ in answers()
    }
    seen = set()
    for http, code, status in replies():
        assert status in table[code][0], (http, code, status)
        assert http in (table[code][1], *WHATEVER_THE_ANSWER), (http, code, status)
        seen.add(code)
    assert seen == set(table)


def test_each_answer_that_is_a_problem_has_a_type():
    """It is the place of the answer's schema in the file: the gateway writes only the name."""
    anchors = {
        schema["$anchor"]: schema["properties"]["status"]["const"]
        for schema in DOCUMENT["components"]["schemas"].values()
        if "$anchor" in schema
    }
    names = [status for _, code, status, _, _ in answers() if int(code) != 0]
    assert anchors == {name: name for name in names}
    problem = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
    assert problem["answer"]["enum"] == names
    assert problem["type"]["enum"] == ["about:blank", *(f"/openapi.json#{one}" for one in names)]
    assert '"/openapi.json#"' in text("gateway/listen/http_reply.c")


def test_has_each_reason():
    reasons = re.findall(r'\bREASON\(\w+, "(\w+)"\)', text("common/message/answer.h"))
    assert DOCUMENT["components"]["schemas"]["Reason"]["enum"] == reasons


def test_has_the_limits_of_the_code():
    schemas = DOCUMENT["components"]["schemas"]
    limits = {
        "RECEIVE_KEY_MAX": schemas["Key"]["maxLength"],
        "RECEIVE_SLOT_MAX": schemas["Slot"]["maximum"],
        "REQUEST_PAGE_MAX": schemas["PageLimit"]["maximum"],
        "REQUEST_PAGE_DEFAULT": schemas["PageLimit"]["default"],
        "REQUEST_ID_STRING_MAX": schemas["RequestId"]["maxLength"],
        "USER_ID_MAX": schemas["UserId"]["maxLength"],
        "REQUEST_NAME_MAX": DOCUMENT["components"]["headers"]["RequestId"]["schema"]["maxLength"],
    }
    headers = "".join(
        text(path)
        for path in (
            "common/message/receive.h",
            "gateway/listen/request.h",
            "common/message/trace_context.h",
        )
    )
    for name, limit in limits.items():
        assert f"#define {name} {limit}" in headers, name


def test_has_the_version_of_the_programs():
    version = DOCUMENT["info"]["version"]
    assert f'#define PROGRAM_VERSION "{version}"' in text("common/program/program.h")
