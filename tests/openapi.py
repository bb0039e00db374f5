"""docs/openapi.json, and checks of values, requests and answers against it."""

import json
import re

from jsonschema import Draft202012Validator, FormatChecker

from stack import ROOT

FILE = ROOT / "docs/openapi.json"
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
METHODS = ("get", "head", "post")
PROBLEM = "application/problem+json"
INT64_MAX = 2**63 - 1

formats = FormatChecker(formats=())


@formats.checks("int64")
def is_int64(value):
    """Here of texts; their pattern is checked, too."""
    return not str(value).isdecimal() or int(value) <= INT64_MAX


def resolve(value):
    """What a value refers to, or itself."""
    while "$ref" in value:
        path = value["$ref"].removeprefix("#/").split("/")
        value = DOCUMENT
        for name in path:
            value = value[name]
    return value


def errors(schema, value):
    """What is wrong with the value, in words."""
    validator = Draft202012Validator(
        {**schema, "components": DOCUMENT["components"]}, format_checker=formats
    )
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in validator.iter_errors(value)
    ]


def operations():
    """(path, method, operation) of each, the method in capitals."""
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method.upper(), item[method]


def operation_of(path, method):
    return DOCUMENT["paths"][path][method.lower()]


def content_of(holder):
    """(type, schema) of a request body or a response with content: beside problems there is one."""
    ((type_, media),) = [one for one in holder["content"].items() if one[0] != PROBLEM]
    return type_, media["schema"]


def body_schema(operation):
    return content_of(operation["requestBody"])[1]


def parameters_of(operation):
    """NAME: parameter, of those in the query."""
    found = (resolve(parameter) for parameter in operation.get("parameters", []))
    return {one["name"]: one for one in found if one["in"] == "query"}


def query_errors(operation, query):
    """Those of a query of texts. A text that is an integer is one where the schema wants one."""
    parameters, found = parameters_of(operation), []
    for name, text in query.items():
        if name not in parameters:
            found.append(f"{name}: not in the file")
            continue
        schema = parameters[name]["schema"]
        is_number = resolve(schema).get("type") == "integer" and re.fullmatch(
            "0|-?[1-9][0-9]*", text
        )
        found += errors(schema, int(text) if is_number else text)
    missing = {name for name, one in parameters.items() if one.get("required")} - set(query)
    return found + [f"{name}: missing" for name in sorted(missing)]


def header_check(name, header, value):
    """The header of a reply is there, and of its schema."""
    schema = resolve(header)["schema"]
    assert value is not None, name
    assert errors(schema, int(value) if schema.get("type") == "integer" else value) == [], name


def problem_plain(value):
    """A problem as the reply that it would be without Accept."""
    assert errors({"$ref": "#/components/schemas/Problem"}, value) == [], value
    own = {"type", "title", "status", "detail"}
    plain = {name: one for name, one in value.items() if name not in own}
    assert value["detail"] == value["message"]
    return {"status": plain.pop("answer"), **plain}


def answer_check(path, method, response):
    """Of requests: its status is listed, and its body is of the schema. Returns it."""
    listed = operation_of(path, method)["responses"]
    told = f"{method} {path}: {response.status_code} {response.text[:500]}"
    assert str(response.status_code) in listed, told
    answer = resolve(listed[str(response.status_code)])
    for name, header in answer.get("headers", {}).items():
        header_check(name, header, response.headers.get(name))
    if method == "HEAD" or "content" not in answer:
        assert response.content == b"", told
        return response
    type_, schema = content_of(answer)
    given = response.headers["Content-Type"]
    assert given == type_ or (given == PROBLEM and PROBLEM in answer["content"]), told
    value = response.json() if type_ == "application/json" else response.text
    if given == PROBLEM:
        assert value["status"] == response.status_code, told
        value = problem_plain(value)
    assert errors(schema, value) == [], told
    return response
