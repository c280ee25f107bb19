"""Limits on the entries of a request: in each list that a route takes, and in total."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_admin_api.limits import MAX_JSON_ENTRIES, JsonEntries
from tidelog_admin_api.problems import ProblemError
from unit.admin_api.fakes import FakeCluster

DOCUMENT: Mapping[str, Any] = FakeCluster().app().openapi()
CHANGES = ("post", "put", "patch", "delete")
# A chunk boundary may cut through each of these.
PIECES = (1, 2, 3, 7, 64)


class Limited(NamedTuple):
    """A list, or an object with free keys, in the body of a request. `place`: the fields that
    lead to it, with 0 for an entry of a list."""

    method: str
    path: str
    place: tuple[str | int, ...]
    schema: Mapping[str, Any]

    @property
    def limit(self) -> int:
        """Zero means no limit."""
        return int(self.schema.get("maxItems", self.schema.get("maxProperties", 0)))

    @property
    def field(self) -> str:
        return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.place)[1:]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.field}"


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first alternative of a union that is not null."""
    if "$ref" in schema:
        return resolved(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            return {**schema, **resolved(choice), "anyOf": ()}
    return schema


def is_open(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "array" or isinstance(schema.get("additionalProperties"), dict)


def within(
    schema: Mapping[str, Any], place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    schema = resolved(schema)
    if is_open(schema):
        yield place, schema
    if schema.get("type") == "array":
        yield from within(schema["items"], (*place, 0))
    for name, of in schema.get("properties", {}).items():
        yield from within(of, (*place, name))


def body_of(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    body: Mapping[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return body


LIMITED = [
    Limited(method, path, place, schema)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if method in CHANGES and "requestBody" in operation
    for place, schema in within(body_of(operation))
]


def sample(schema: Mapping[str, Any]) -> Any:
    """A value that matches the schema."""
    schema = resolved(schema)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "array":
            return [sample(schema["items"])] if schema.get("minItems") else []
        case "object":
            needed = schema.get("required", ())
            return {name: sample(schema["properties"][name]) for name in needed}
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "string":
            return "sea"
        case _:
            return None


def filled(schema: Mapping[str, Any], place: tuple[str | int, ...], value: Any) -> Any:
    """A body of the schema with the value in this place."""
    schema = resolved(schema)
    if not place:
        return value
    if place[0] == 0:
        return [filled(schema["items"], place[1:], value)]
    of = filled(schema["properties"][place[0]], place[1:], value)
    return {**sample(schema), place[0]: of}


def entries(schema: Mapping[str, Any], count: int) -> Any:
    if schema.get("type") == "array":
        return [sample(schema["items"])] * count
    return {f"key-{n}": sample(schema["additionalProperties"]) for n in range(count)}


LISTS_IN_QUERIES = [
    (path, parameter["name"], resolved(parameter["schema"]))
    for path, operations in DOCUMENT["paths"].items()
    for parameter in operations.get("get", {}).get("parameters", ())
    if is_open(resolved(parameter["schema"]))
]


def test_routes_take_lists() -> None:
    named = {str(limited) for limited in LIMITED}
    assert "post /v1/topics/{topic}/records records[0].headers" in named
    assert "patch /v1/topics/{topic}/config set" in named
    assert len(named) > 15
    assert ("/v1/events", "kind") in [(path, name) for path, name, _ in LISTS_IN_QUERIES]


@pytest.mark.parametrize("limited", LIMITED, ids=str)
async def test_one_entry_too_many_is_rejected_with_the_limit_and_the_count(
    gateway: httpx.AsyncClient, limited: Limited
) -> None:
    assert limited.limit, "the document states no limit"
    came = limited.limit + 1
    schema = body_of(DOCUMENT["paths"][limited.path][limited.method])
    body = filled(schema, limited.place, entries(limited.schema, came))
    path = limited.path.format(topic="sea", partition=0, broker_id=1, operation_id="op")
    answer = await gateway.request(limited.method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    messages = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert f"has {came} entries; a request has at most {limited.limit}" in messages[limited.field]


@pytest.mark.parametrize(("path", "name", "schema"), LISTS_IN_QUERIES)
async def test_one_parameter_value_too_many_is_rejected_likewise(
    gateway: httpx.AsyncClient, path: str, name: str, schema: Mapping[str, Any]
) -> None:
    limit = int(schema["maxItems"])
    answer = await gateway.get(path, params={name: entries(schema, limit + 1)})
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    [error] = answer.json()["errors"]
    assert f"has {limit + 1} entries; a request has at most {limit}" in error["message"]


async def test_too_many_entries_in_all_are_rejected_before_they_are_parsed(
    gateway: httpx.AsyncClient,
) -> None:
    value = [0] * MAX_JSON_ENTRIES
    answer = await gateway.post("/v1/topics/sea/records", json={"records": [{"value": value}]})
    assert answer.status_code == 422
    assert f"has {MAX_JSON_ENTRIES + 3} entries or more" in answer.json()["detail"]
    assert f"at most {MAX_JSON_ENTRIES}" in answer.json()["detail"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
async def test_other_encodings_hide_no_entries(gateway: httpx.AsyncClient, encoding: str) -> None:
    body = json.dumps({"records": [{"value": ['"', [0] * MAX_JSON_ENTRIES]}]}).encode(encoding)
    headers = {"Content-Type": "application/json"}
    answer = await gateway.post("/v1/topics/sea/records", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "MALFORMED_REQUEST")


async def test_a_string_may_contain_entry_separators(gateway: httpx.AsyncClient) -> None:
    value = '[{",\\"' * MAX_JSON_ENTRIES
    answer = await gateway.post("/v1/topics/sea/records", json={"records": [{"value": value}]})
    assert answer.status_code == 200


def count(value: Any) -> int:
    if isinstance(value, dict):
        return max(1, len(value)) + sum(map(count, value.values()))
    return max(1, len(value)) + sum(map(count, value)) if isinstance(value, list) else 0


@given(
    st.recursive(
        st.text(',[]{}:"\\ a\né') | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(',[{"\\x'), inner),
    ),
    st.sampled_from(PIECES),
    st.booleans(),
)
def test_entries_are_counted_however_the_body_is_split(
    value: Any, size: int, ascii_only: bool
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    counting = JsonEntries()
    for at in range(0, len(text), size):
        counting.feed(text[at : at + size])
    assert counting.count == count(value)


@pytest.mark.parametrize(
    "unit", [b'"', b"\\", b'\\"', b'"a",', b"[", b'"\\', b"x", b'"\\\\"', b'{"a":1},']
)
def test_counting_takes_linear_time(unit: bytes) -> None:
    """Measures CPU time and takes the shortest of three runs."""

    def seconds(size: int) -> float:
        took = []
        for _ in range(3):
            began = time.process_time()
            counting = JsonEntries()
            try:
                for _ in range(4):
                    counting.feed(unit * (size // 4 // len(unit)))
            except ProblemError:
                pass
            took.append(time.process_time() - began)
        return min(took)

    assert seconds(1 << 20) < 64 * max(seconds(1 << 16), 0.002)
