"""docs/openapi.json, for tests: its paths, the members of its bodies, and schemas for jsonschema."""
import copy
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(os.path.join(ROOT, "docs", "openapi.json"), encoding="utf-8") as f:
    DOCUMENT = json.load(f)
METHODS = ("get", "post", "delete")


def resolve(value):
    """A value, with that to which it refers in place of a reference."""
    while "$ref" in value:
        target = DOCUMENT
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        value = {**target, **{k: v for k, v in value.items() if k != "$ref"}}
    return value


def operations():
    """(path, method, operation) of all paths."""
    return [(path, method, item[method]) for path, item in DOCUMENT["paths"].items() for method in METHODS if method in item]


def body(operation):
    """The schema of an operation's body; None: it has none."""
    return operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")


def members(schema, key="properties"):
    """The members of an object, by name, of all schemas that it consists of; key "x-refused": those that are refused."""
    schema, found = resolve(schema), {}
    for part in [*schema.get("allOf", []), *schema.get("oneOf", [])]:
        found.update(members(part, key))
    for name, v in schema.get(key, {}).items():
        if v != {"type": "null"}:  # such a member has to be absent
            found[name] = resolve(v) if isinstance(v, dict) else v
    return found


def bodies():
    """The paths with bodies, and the schemas of these."""
    return {path: body(o) for path, method, o in operations() if body(o)}


def whole(schema):
    """A schema that needs no other document, for jsonschema."""
    return {**schema, "components": DOCUMENT["components"]}


def strict(schema):
    """The same, for an answer: objects have no members but those that the document names."""

    def close(v):
        if isinstance(v, dict):
            if "properties" in v:
                v.setdefault("additionalProperties", False)
            for x in v.values():
                close(x)
        elif isinstance(v, list):
            for x in v:
                close(x)

    closed = copy.deepcopy(whole(schema))
    close(closed)
    return closed
