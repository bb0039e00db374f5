"""Descriptions by OpenAPI, of which docs/reference/openapi.json is one: checks of values, requests
and answers against them, and the values at each bound of what they describe. WHOLE is
docs/reference/openapi.json with the other spellings of its operations, which http.md has."""

import copy
import json
import re
from re import _parser

from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators

from stack import ROOT

FILE = ROOT / "docs/reference/openapi.json"
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
OF_USER, OF_CODE = "/v1/users/{user}/coupons", "/v1/codes/{code}"
OTHER_PATHS = {OF_USER: ("/v1/coupons", "User"), OF_CODE: ("/v1/code", "Code")}
METHODS = ("get", "head", "post")
PROBLEM = "application/problem+json"
INT64_MAX = 2**63 - 1

formats = FormatChecker(formats=())


@formats.checks("int64")
@formats.checks("receive")
def is_int64(value):
    """A text, or what is before its first dot; the pattern is checked, too."""
    number = str(value).partition(".")[0]
    return not number.isdecimal() or int(number) <= INT64_MAX


def matches(_, pattern, value, __):
    """As in ECMAScript, whose $ is only the end."""
    ends = re.sub(r"\$(?=$|\|)", r"\\Z", pattern)
    if isinstance(value, str) and not re.search(ends, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def is_integer(_, value):
    """1.0 is none here, as the descriptions say in words."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = validators.extend(
    Draft202012Validator,
    {"pattern": matches},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer),
)
OF_EVERY_TYPE = (
    *(None, True, False, 0, -1, 1.5, 2**53, 2**63, 10**30, [], ["x"], {}, {"x": 1}),
    *("", "x", "0", " ", "null", "\u00fc", "\0", "x\n", "\x7f"),
)
BESIDE = (" ", "\n", "\0", "\x7f", "\u00fc", "+", "-", "0", "x")  # beside a text that is good


def characters(items):
    """For a set of characters: one of it, and its bounds with those beside them."""
    ranges = [
        (what, what) if kind is _parser.LITERAL else what if kind is _parser.RANGE else (33, 126)
        for kind, what in items
    ]
    (low, high), *_ = ranges
    bounds = {at for low, high in ranges for at in (low - 1, low, high, high + 1)}
    return chr(min(low + 1, high)), [chr(at) for at in sorted(bounds)]


def texts(pattern, lengths):
    """Texts for a pattern, as the standard library reads it: a text that matches, and others which
    have one part at a bound or beyond it. The lengths are those of a part without a bound of its
    own."""
    parts = []
    for kind, what in pattern:
        if kind is _parser.LITERAL:
            parts.append((chr(what), ["", chr(what) * 2, chr(what - 1), chr(what + 1)]))
        elif kind is _parser.IN:
            parts.append(characters(what))
        elif kind is _parser.SUBPATTERN:
            parts.append(texts(what[-1], lengths))
        elif kind is _parser.BRANCH:
            each = [texts(branch, lengths) for branch in what[1]]
            parts.append((each[0][0], [text for one, bounds in each for text in (one, *bounds)]))
        elif kind is _parser.NOT_LITERAL:
            parts.append(("x", [chr(what), chr(what + 1)]))
        elif kind is _parser.MAX_REPEAT:
            least, most, repeated = what
            one, bounds = texts(repeated, lengths)
            ends = lengths if most is _parser.MAXREPEAT else {most, most + 1}
            n = max(least, 1)
            parts.append((one * n, [one * times for times in {least - 1, least, *ends}]))
            parts[-1][1].extend(text for o in bounds for text in (o + one * (n - 1), o * n))
        else:
            assert kind in (_parser.AT, _parser.ASSERT_NOT), kind  # they are no text
    usual = [one for one, _ in parts]
    return "".join(usual), [
        "".join([*usual[:at], text, *usual[at + 1 :]])
        for at, (_, bounds) in enumerate(parts)
        for text in bounds
    ]


class Description:
    def __init__(self, document):
        self.document = document

    def resolve(self, value):
        """What a value refers to, or itself."""
        while "$ref" in value:
            path = value["$ref"].removeprefix("#/").split("/")
            value = self.document
            for name in path:
                value = value[name]
        return value

    def errors(self, schema, value):
        """What is wrong with the value, in words."""
        described = {**schema, "components": self.document["components"]}
        return [
            f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
            for error in Validator(described, format_checker=formats).iter_errors(value)
        ]

    def values(self, schema):
        """Values of every type, at each bound of the schema, and beyond it."""
        found, schema = [*OF_EVERY_TYPE], self.resolve(schema)
        for form in schema.get("oneOf", ()):
            found += self.values(form)
        for bound in {schema[name] for name in ("minimum", "maximum") if name in schema}:
            near = (bound - 1, bound, bound + 1)
            found += [*near, *map(str, near), float(bound), bound + 0.5]
        found += schema.get("enum", ())
        found += ("true", "false") if schema.get("type") == "boolean" else ()
        if "string" in schema.get("type", ()) and {"maxLength", "pattern", "enum"} & set(schema):
            found += self.texts(schema)
        if "items" in schema:
            items = self.values(schema["items"])
            good = [one for one in items if not self.errors(schema["items"], one)]
            found += [[one] for one in items] + [good[:1] * 2] + schema.get("examples", [])
            most = schema.get("maxItems", 2)
            found += [good[-n:] for n in (most, most + 1)]
        return list({json.dumps(value): value for value in found}.values())

    def texts(self, schema):
        lengths = {0, 1, 2, *(schema.get("maxLength", 1) + n for n in (0, 1))}
        usual, found = "x", ["x" * length for length in lengths]
        if "pattern" in schema:
            usual, found = texts(_parser.parse(schema["pattern"]), lengths)
        if schema.get("format") in ("int64", "receive"):
            rest = schema["examples"][0].partition(".")
            found += [f"{coupon}{''.join(rest[1:])}" for coupon in (INT64_MAX, INT64_MAX + 1)]
        examples = [one for one in schema.get("examples", ()) if isinstance(one, str)]
        for good in (usual, *schema.get("enum", ()), *examples):
            found += [good, good.upper(), good.lower(), good[1:], good[:-1]]
            found += [text for one in BESIDE for text in (one + good, good + one)]
        return found


OWN = Description(DOCUMENT)
resolve, errors, values = OWN.resolve, OWN.errors, OWN.values

# Examples of what GET reads, as the members of a body.
EXAMPLES = {
    "/v1/quote": [
        {"coupon": "1001", "amount": 12900, "currency": "EUR"},
        {"user": "42", "amount": 12900, "currency": "EUR", "limit": 100},
    ],
    "/v1/status": [
        {"receive": "1001.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0"},
        {"coupon": "1001", "user": "42"},
    ],
    "/v1/coupon": [{"coupon": "1001"}, {"coupon": 1001, "id": "a7"}],
    "/v1/code": [{"code": "7kq2m-9xh4-rtwp", "user": "42"}],
    "/v1/coupons": [
        {"user": "42"},
        {"user": "42", "usable": True},
        {
            "user": "42",
            "limit": 100,
            "cursor": DOCUMENT["components"]["schemas"]["Cursor"]["examples"][0],
        },
    ],
    "/v1/offers": [{"user": "42", "within": "3d", "tag": "winter", "limit": 100}, {}],
    "/v1/ping": [{}, {"id": 1}],
    "/v1/stats": [{}],
}
# Members that a body may have in two types.
GIVEN = {
    "id": {"$ref": "#/components/schemas/RequestId"},
    "coupon": {"$ref": "#/components/schemas/CouponIdGiven"},
    "user": {"$ref": "#/components/schemas/UserIdGiven"},
    "amount": {"$ref": "#/components/schemas/OrderAmountGiven"},
    "limit": {
        "type": ["integer", "string"],
        "minimum": 1,
        "maximum": 100,
        "pattern": "^([1-9][0-9]?|100)$",
    },
    "within": {
        "type": ["integer", "string"],
        "minimum": 0,
        "maximum": 999999999,
        "pattern": "^[0-9]{1,9}[smhd]?$",
    },
    "usable": {"enum": [True, False, "true", "false"]},
}


def body_of(path, get):
    """The parameters of GET as the members of a body."""
    parameters = [resolve(one) for one in get.get("parameters", [])]
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [one["name"] for one in parameters if one.get("required")],
        "properties": {one["name"]: GIVEN.get(one["name"], one["schema"]) for one in parameters},
        "examples": EXAMPLES[path],
    }
    if path == "/v1/status":
        forms = [{"required": ["receive"]}, {"required": ["coupon"]}, {"required": ["user"]}]
        schema["oneOf"] = [forms[0], {"required": ["coupon", "user"]}]
        schema["not"] = {"allOf": [forms[0], {"anyOf": forms[1:]}]}
    if path == "/v1/quote":
        schema["oneOf"] = [{"required": ["coupon"]}, {"required": ["user"]}]
        schema["not"] = {"required": ["coupon", "limit"]}
    return {
        "required": bool(schema["required"]) or path == "/v1/status",
        "content": {"application/json": {"schema": schema}},
    }


def whole():
    document = copy.deepcopy(DOCUMENT)
    paths = document["paths"]
    for other, (path, parameter) in OTHER_PATHS.items():
        paths[other] = copy.deepcopy(paths[path])
        within = {**document["components"]["parameters"][parameter], "in": "path"}
        all_ = paths[other]["get"]["parameters"]
        own = [one for one in all_ if resolve(one)["name"] != within["name"]]
        paths[other]["get"]["parameters"] = own
        paths[other]["parameters"].append(within)
    for path, item in paths.items():
        if "get" not in item:
            continue
        bare = copy.deepcopy(item["get"])
        for name, response in bare["responses"].items():
            bare["responses"][name] = {**resolve(response)}
            bare["responses"][name].pop("content", None)
        item["head"] = bare
        if path.startswith("/v1/") and path not in OTHER_PATHS:
            wrong_type = {"$ref": "#/components/responses/WrongType"}
            item["post"] = {
                "tags": item["get"]["tags"],
                "requestBody": body_of(path, item["get"]),
                "responses": {**item["get"]["responses"], "415": wrong_type},
            }
    return document


WHOLE = whole()


def operations(document=DOCUMENT):
    """(path, method, operation) of each, the method in capitals."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method.upper(), item[method]


def operation_of(path, method):
    return WHOLE["paths"][path][method.lower()]


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
    """The errors of a query of texts. A text that is an integer is one where the schema wants
    one."""
    parameters, found = parameters_of(operation), []
    for name, text in query.items():
        if name not in parameters:
            found.append(f"{name}: not in the file")
            continue
        schema = parameters[name]["schema"]
        type_ = resolve(schema).get("type")
        is_value = (type_ == "integer" and re.fullmatch("0|-?[1-9][0-9]*", text)) or (
            type_ == "boolean" and text in ("true", "false")
        )
        found += errors(schema, json.loads(text) if is_value else text)
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
    own = {"type", "title", "detail"}
    plain = {name: one for name, one in value.items() if name not in own}
    assert value["detail"] == value["message"]
    return {"status": plain.pop("answer"), **plain}


def answer_check(path, method, response):
    """Checks the answer to a request: its status is listed, and its body is of the schema. Returns
    it."""
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
        value = problem_plain(value)
    assert errors(schema, value) == [], told
    return response
