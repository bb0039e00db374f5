"""docs/reference/asyncapi.json as tests read it."""

import json

import jsonschema

from stack import ROOT

PAGE = json.loads((ROOT / "docs/reference/asyncapi.json").read_text(encoding="utf-8"))


def resolved(ref):
    """What #/a/b names; KeyError: nothing."""
    assert ref.startswith("#/"), f"not within the page: {ref}"
    part = PAGE
    for name in ref[2:].split("/"):
        part = part[name.replace("~1", "/").replace("~0", "~")]
    return part


def message_of(type_):
    """The message of this type of event."""
    (found,) = (one for one in PAGE["components"]["messages"].values() if one["name"] == type_)
    return found


def conforms(value, schema):
    """Fails unless the value is as the schema says."""
    resolver = jsonschema.RefResolver("", PAGE)
    format_checker = jsonschema.FormatChecker()
    jsonschema.Draft7Validator(schema, resolver=resolver, format_checker=format_checker).validate(
        value
    )


def members_of(type_):
    """The members of the data that the page knows."""
    items = resolved(message_of(type_)["payload"]["items"]["$ref"])
    return set(resolved(items["properties"]["data"]["$ref"])["properties"])
