"""Every rejection is a problem document, whichever part rejects."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

import tidelog_admin_api
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.problem import Problem
from tidelog_admin_api.error_handlers import validation_problem
from tidelog_admin_api.error_mappings import ERROR_MAPPINGS
from tidelog_admin_api.problems import invalid, of_error, response
from unit.admin_api.fakes import FakeAdmin, FakeCluster, client_of

MODULES = sorted(Path(tidelog_admin_api.__file__).parent.rglob("*.py"))


def problem_of(answer: httpx.Response) -> Problem:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(answer.content)
    assert problem.status == answer.status_code
    return problem


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_an_error_status(code: ErrorCode) -> None:
    mapping = ERROR_MAPPINGS[code]
    assert mapping.status >= 400
    assert mapping.grpc_status.isupper()


# Advice that fits any error, and so adds nothing to the message.
GENERIC = re.compile(
    r"^(correct|fix|check|change|repeat|retry|try)( what| the)?( request| syntax| values?| input"
    r"| replicas)?( again)?( in a moment| later)?[.]?$"
    r"|\b(as|that|what|which) the (message|error|detail) (says|names|allows|describes|states)\b"
    r"|\bcorrect (what|the (request|syntax|input|value))",
    re.IGNORECASE,
)
# They name a service or disk to check, which the message identifies.
NAMES_A_PLACE = ("Check the log of the service that", "Check the disk of the broker that")


def fixes_in(module: Path) -> list[str]:
    """The constant texts that are passed as a fix in a module."""
    tree = ast.parse(module.read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    makers = {"ErrorMapping", "_invalid", "_not_found", "_conflict", "unavailable"}
    makers |= {"unsupported_body", "_replace"}
    given = (
        part
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) in makers
        for part in (*call.args, *(keyword.value for keyword in call.keywords))
    )
    return [
        part.value for part in given if isinstance(part, ast.Constant) and type(part.value) is str
    ]


FIXES = [
    *(mapping.fix for mapping in ERROR_MAPPINGS.values()),
    *(fix for module in MODULES for fix in fixes_in(module)),
]


@pytest.mark.parametrize("fix", sorted({fix for fix in FIXES if " " in fix}))
def test_a_fix_says_more_than_to_do_what_the_message_says(fix: str) -> None:
    assert fix.startswith(NAMES_A_PLACE) or not GENERIC.search(fix)
    assert fix[0].isupper()
    assert fix.endswith(".")


@pytest.mark.parametrize(
    "fix",
    [
        "Correct what the message names.",
        "Correct the syntax of the request.",
        "Correct the request as the message says.",
        "Choose a number that the message allows.",
        "Check the request.",
        "Try again in a moment.",
        "Repeat the request.",
    ],
)
def test_generic_advice_is_recognized(fix: str) -> None:
    assert GENERIC.search(fix)


async def test_without_a_specific_fix_there_is_none(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.get("/v1/topics", params={"page_size": "many"})
    assert (answer.status_code, "fix" in answer.json()) == (422, False)


def test_no_cluster_error_code_is_an_internal_gateway_error() -> None:
    assert all(mapping.status != 500 for mapping in ERROR_MAPPINGS.values())


async def test_a_rejection_by_the_cluster_keeps_its_message(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.PARTITION_BUSY, "sea/1 is moved by op-1; wait")
    problem = problem_of(await gateway.get("/v1/cluster"))
    assert (problem.status, problem.code) == (409, "PARTITION_BUSY")
    assert problem.type == "urn:tidelog:error:partition-busy"
    assert problem.detail == "sea/1 is moved by op-1; wait"
    assert problem.instance == "/v1/cluster"
    assert problem.grpc_status == "FAILED_PRECONDITION"


async def test_a_temporary_cluster_error_has_a_retry_time(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "etcd does not answer")
    answer = await gateway.get("/v1/cluster")
    assert answer.headers["retry-after"] == "1"
    assert problem_of(answer).retriable


async def test_unreachable_services_are_a_503(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    admin.rejection = UnreachableError("10.0.0.1:7501", "refused")
    problem = problem_of(await gateway.get("/v1/cluster"))
    assert (problem.status, problem.code) == (503, "UNREACHABLE")
    assert "10.0.0.1:7501" in problem.detail


async def test_an_unexpected_error_names_the_log_line(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = ZeroDivisionError("a mistake")
    # Log output to a terminal takes seconds, because it shows the variables of each frame.
    with capture_logs() as logged:
        problem = problem_of(await gateway.get("/v1/cluster"))
    assert (problem.status, problem.code) == (500, "INTERNAL")
    assert problem.fix is not None
    assert f"request_failed with trace_id {problem.trace_id}" in problem.fix
    (line,) = [line for line in logged if line["event"] == "request_failed"]
    assert (line["trace_id"], line["exc_info"]) == (problem.trace_id, True)
    assert "a mistake" not in problem.detail


async def test_an_unknown_path_is_a_problem(gateway: httpx.AsyncClient) -> None:
    problem = problem_of(await gateway.get("/v1/oceans"))
    assert (problem.status, problem.code) == (404, "NO_SUCH_RESOURCE")
    assert problem.detail == "/v1/oceans does not exist"


async def test_an_unsupported_method_is_answered_with_the_supported_ones(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.delete("/v1/cluster")
    assert problem_of(answer).code == "METHOD_NOT_ALLOWED"
    assert answer.headers["allow"] == "GET"
    assert problem_of(answer).fix == "Use one of: GET."
    answer = await gateway.patch("/v1/topics/sea")
    assert answer.headers["allow"] == "GET, DELETE"
    assert (
        problem_of(answer).detail
        == "/v1/topics/sea does not support PATCH; it supports GET, DELETE"
    )


async def test_a_body_that_is_nested_too_deeply_is_malformed(gateway: httpx.AsyncClient) -> None:
    body = b'{"topic":' + b"[" * 10_000
    headers = {"Content-Type": "application/json"}
    answer = await gateway.post("/v1/topics", content=body, headers=headers)
    assert (answer.status_code, problem_of(answer).code) == (400, "MALFORMED_REQUEST")
    assert problem_of(answer).detail == "the body is nested too deeply; nest it less"


async def test_a_number_with_too_many_digits_is_named(gateway: httpx.AsyncClient) -> None:
    body = b'{"topic": "sea", "partitions": ' + b"9" * 5_000 + b"}"
    headers = {"Content-Type": "application/json"}
    problem = problem_of(await gateway.post("/v1/topics", content=body, headers=headers))
    assert (problem.status, problem.code) == (400, "MALFORMED_REQUEST")
    assert problem.detail == "the body has a number of more than 4300 digits; send it as a string"


def error(location: tuple[str | int, ...], kind: str, message: str = "") -> dict[str, Any]:
    return {"loc": location, "type": kind, "msg": message}


def test_invalid_fields_are_listed() -> None:
    problem = validation_problem(
        [
            error(("body", "moves", 0, "topic"), "missing"),
            error(("query", "page_size"), "less_than_equal", "Input should be at most 1000"),
        ],
        "application/json",
    )
    assert [(e.field, e.message) for e in problem.errors] == [
        ("moves[0].topic", "is required and missing"),
        ("page_size", "input should be at most 1000"),
    ]
    assert problem.mapping.status == 422


def test_a_non_json_body_is_malformed() -> None:
    document = error(("body", 17), "json_invalid") | {"ctx": {"error": "Expecting value"}}
    problem = validation_problem([document], "application/json")
    assert problem.mapping.status == 400
    assert problem.detail == "the body is not JSON: Expecting value at character 17"


def test_an_unsupported_media_type_is_answered_with_the_right_one() -> None:
    problem = validation_problem([error(("body",), "model_attributes_type")], "text/plain")
    assert problem.mapping.status == 415
    assert "application/json" in problem.detail


def test_a_name_that_utf8_cannot_encode_is_reported_all_the_same() -> None:
    reported = response(invalid("the key \ud800 is not known"), "/v1", "")
    assert json.loads(bytes(reported.body))["detail"] == "the key \ud800 is not known"


def test_a_missing_topic_is_an_answer_and_not_retriable() -> None:
    rejected = TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'sea'")
    assert not of_error(rejected).retriable


def test_a_failed_read_has_a_known_outcome() -> None:
    late = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
    assert "carried out" in of_error(late).mapping.fix
    assert "carried out" not in of_error(late, is_read=True).mapping.fix


async def test_a_timed_out_request_says_what_may_have_happened(
    fake_cluster: FakeCluster,
) -> None:
    fake_cluster.admin.before_answer = asyncio.Event().wait()
    async with client_of(fake_cluster.app(request_timeout_ms=1_000)) as client:
        problem = problem_of(await client.get("/v1/cluster"))
    assert (problem.status, problem.code) == (504, "REQUEST_TIMED_OUT")
    assert "the request started continues" in problem.detail


async def test_a_body_that_exceeds_the_limit_while_read_is_reported(
    gateway: httpx.AsyncClient,
) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b" " * (1 << 20)

    answer = await gateway.post(
        "/v1/topics", content=body(), headers={"Content-Type": "application/json"}
    )
    assert (problem_of(answer).status, problem_of(answer).code) == (413, "BODY_TOO_LARGE")
