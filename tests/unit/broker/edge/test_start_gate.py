"""How a broker answers while it is starting."""

from typing import Any, NamedTuple

import grpc
import pytest

from tidelog.inspection.model import OPENS_LOGS, READS_METADATA, REGISTERS
from tidelog_broker.edge.start_gate import StartGate
from tidelog_broker.start_progress import StartProgress

PRODUCE = "/tidelog.v1.BrokerService/Produce"
WATCH = "/tidelog.v1.ReplicaControlService/Watch"


class Details(NamedTuple):
    method: str


class AbortedError(Exception):
    pass


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise AbortedError(code, details)


@pytest.fixture
def start() -> StartProgress:
    return StartProgress()


def gate(start: StartProgress) -> Any:
    return StartGate(lambda: start.rejection_reason(3))


async def rejected(start: StartProgress, method: str) -> tuple[grpc.StatusCode, str]:
    handler = gate(start).service(Details(method))
    with pytest.raises(AbortedError) as aborted:
        await handler.unary_unary(b"", Context())
    code, details = aborted.value.args
    return code, details


@pytest.mark.parametrize("method", [PRODUCE, WATCH])
async def test_requests_fail_as_at_a_broker_that_is_down(start: StartProgress, method: str) -> None:
    start.enter(OPENS_LOGS)
    start.count(120, 5_003)
    assert await rejected(start, method) == (
        grpc.StatusCode.UNAVAILABLE,
        "broker 3 is starting: it opens its logs, 120 of 5,003",
    )


@pytest.mark.parametrize(
    "method",
    [
        "/grpc.health.v1.Health/Check",
        "/tidelog.v1.InspectService/DescribeService",
        "/tidelog.v1.InspectService/Explain",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_health_checks_and_inspections_are_answered(start: StartProgress, method: str) -> None:
    assert gate(start).service(Details(method)) is None


def test_requests_are_accepted_once_the_metadata_has_been_read(start: StartProgress) -> None:
    start.enter(READS_METADATA)
    assert gate(start).service(Details(PRODUCE)) is not None
    start.enter(REGISTERS)
    assert gate(start).service(Details(PRODUCE)) is None
