"""docs/reference/asyncapi.json by itself: its structure is that of AsyncAPI 3, and it has what the
programs have. That the programs publish what it says: tests/e2e/test_e2e_events.py."""

import re

import jsonschema
import pytest

from asyncapi import PAGE, conforms, message_of, resolved
from stack import ROOT


def refs(part, path="#"):
    """(place, reference) of each $ref."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield path, value
            else:
                yield from refs(value, f"{path}/{name}")
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from refs(value, f"{path}/{number}")


def types_of_programs():
    table = (ROOT / "common/message/event_table.h").read_text()
    return re.findall(r'^EVENT\(\w+, "([a-z._]+)"\)$', table, re.MULTILINE)


def test_it_has_what_asyncapi_requires():
    assert PAGE["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(PAGE["info"])
    assert all({"host", "protocol"} <= set(server) for server in PAGE["servers"].values())
    allowed = {
        "asyncapi",
        "id",
        "info",
        "servers",
        "defaultContentType",
        "channels",
        "operations",
        "components",
    }
    assert set(PAGE) <= allowed
    for operation in PAGE["operations"].values():
        assert operation["action"] in ("send", "receive") and "$ref" in operation["channel"]
        channel = resolved(operation["channel"]["$ref"])
        sent = [resolved(message["$ref"]) for message in operation["messages"]]
        assert sent == list(channel["messages"].values())
    for channel in PAGE["channels"].values():
        assert set(re.findall(r"{(\w+)}", channel["address"])) == set(channel["parameters"])
    for name, message in PAGE["components"]["messages"].items():
        assert {"payload", "headers", "contentType"} <= set(message), name
    names = [*PAGE["channels"], *PAGE["operations"], *PAGE["components"]["schemas"]]
    assert [name for name in names if not re.fullmatch(r"[\w.-]+", name)] == []


def test_every_reference_resolves():
    found = list(refs(PAGE))
    assert len(found) > 40
    for place, ref in found:
        try:
            resolved(ref)
        except KeyError:
            pytest.fail(f"{place}: there is no {ref}")


def test_every_part_is_used():
    used = {ref for _, ref in refs(PAGE)}
    parts = {
        f"#/components/{kind}/{name}"
        for kind, members in PAGE["components"].items()
        for name in members
    }
    assert parts - used == set()


def test_every_schema_is_a_schema():
    for name, schema in PAGE["components"]["schemas"].items():
        jsonschema.Draft7Validator.check_schema(schema)
        assert schema.get("required", []) == [
            member for member in schema.get("required", []) if member in schema["properties"]
        ], name


def test_it_has_every_type_of_event():
    types = types_of_programs()
    assert len(types) == 9
    assert sorted(one["name"] for one in PAGE["components"]["messages"].values()) == sorted(types)
    assert sorted(one["address"] for one in PAGE["channels"].values()) == sorted(
        f"event.{{coupon}}.{type_}" for type_ in types
    )


def test_it_has_every_reason_of_a_rejection():
    header = (ROOT / "common/message/answer.h").read_text()
    reasons = set(re.findall(r'\bREASON\(\w+, "(\w+)"\)', header))
    named = PAGE["components"]["schemas"]["CouponRejectedData"]["properties"]["reason"]["enum"]
    # An unknown coupon has no events on; a void has an event of its own.
    assert set(named) == reasons - {"unknown_coupon", "voided"}


@pytest.mark.parametrize("type_", types_of_programs())
def test_its_examples_are_what_it_says(type_):
    message = message_of(type_)
    assert message["examples"]
    for example in message["examples"]:
        conforms(example["payload"], message["payload"])
        conforms(example["headers"], message["headers"])
        for name in example["payload"][0]["data"]:
            broken = [{**example["payload"][0], "data": {**example["payload"][0]["data"]}}]
            broken[0]["data"][name] = 1.5
            if name not in ("changes",):
                with pytest.raises(jsonschema.ValidationError):
                    conforms(broken, message["payload"])
