"""How the JSON of request bodies is parsed, and where its faults are."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from tidelog_admin_api.app import ROUTERS
from tidelog_admin_api.json_bodies import JsonRoute, parse_body
from unit.admin_api.test_record_encoding import JSON_VALUES


@given(JSON_VALUES)
def test_a_body_is_parsed_as_by_python(value: Any) -> None:
    text = json.dumps(value)
    assert parse_body(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("body", "at"),
    [(b'{"a": }', 6), (b"[1,\n2,\n x]", 8), (b"", 0), (b'"\\ud800"', 7), (b"[1] 2", 4)],
)
def test_a_fault_has_its_position(body: bytes, at: int) -> None:
    with pytest.raises(json.JSONDecodeError) as fault:
        parse_body(body)
    assert fault.value.pos == at
    assert " line " not in fault.value.msg


@given(st.binary(max_size=50))
def test_the_fault_of_any_body_is_inside_of_it(body: bytes) -> None:
    fault: json.JSONDecodeError | None = None
    try:
        parse_body(body)
    except json.JSONDecodeError as error:
        fault = error
    assert fault is None or 0 <= fault.pos <= len(body)


async def test_the_answer_names_the_fault_and_its_position(gateway: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await gateway.post("/v1/topics", content=b'{"topic": }', headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"] == "the body is not JSON: expected value at character 10"


def test_every_route_with_a_body_parses_it_so() -> None:
    routes = [route for router in ROUTERS for route in router.routes]
    with_body = [r for r in routes if isinstance(r, APIRoute) and r.body_field is not None]
    assert len(with_body) > 10
    assert all(isinstance(route, JsonRoute) for route in with_body)
