"""The REST API, from the OpenAPI document of the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from unittest.mock import MagicMock

from tidelog_admin_api.app import create_app
from tidelog_admin_api.config import AdminApiConfig
from tidelog_docs.markdown import cell, code, prose, table

_Json = Mapping[str, Any]


@cache
def document() -> _Json:
    # The document needs the routes alone; nothing is called.
    return create_app(MagicMock(), AdminApiConfig()).openapi()


def operations() -> Iterator[tuple[str, str, _Json]]:
    """Yields method, path and operation."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def rest() -> str:
    parts = []
    for tag in document()["tags"]:
        parts += [f"## {tag['name'].capitalize()}", prose(tag["description"])]
        for method, path, operation in operations():
            if tag["name"] in operation["tags"]:
                parts += _operation(method, path, operation)
    parts += ["## Bodies", table(("body", "field", "type", "meaning"), _bodies())]
    return "\n\n".join(filter(None, parts))


def _operation(method: str, path: str, operation: _Json) -> Iterator[str]:
    yield f"### {method} {path}"
    yield prose(operation.get("description", ""))
    parameters = operation.get("parameters", ())
    if parameters:
        rows = (
            (
                code(parameter["name"]),
                parameter["in"] + (", required" if parameter.get("required") else ""),
                _type(parameter["schema"]),
                cell(parameter.get("description", "")),
            )
            for parameter in parameters
        )
        yield table(("parameter", "in", "type", "meaning"), rows)
    body = operation.get("requestBody", {}).get("content", {})
    answers = [
        f"{status}: {' or '.join(_body(content) for content in answer.get('content', {}).values())}"
        for status, answer in operation["responses"].items()
        if status < "400"
    ]
    lines = [f"- Request body: {_body(content)}" for content in body.values()]
    lines += [f"- Answer {answer.removesuffix(': ')}" for answer in answers]
    yield "\n".join(lines)


def _body(content: _Json) -> str:
    return _type(content.get("schema", {}))


def _bodies() -> Iterator[tuple[str, str, str, str]]:
    for name, schema in sorted(document()["components"]["schemas"].items()):
        shown = f'<span id="body-{name.lower()}"></span>{code(name)}'
        for field, value in schema.get("properties", {"": {}}).items():
            yield shown, code(field), _type(value), cell(value.get("description", ""))
            shown = ""


def _type(schema: _Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#body-{name.lower()})"
    if "enum" in schema:
        return " or ".join(code(str(value)) for value in schema["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[choice]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case list() as several:
            return " or ".join(several)
        case other:
            return str(other or "any")
