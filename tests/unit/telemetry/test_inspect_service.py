"""What a service does for whoever inspects it."""

from __future__ import annotations

from typing import Any

from tidelog.inspection.model import Explanation, Scope, ServiceState, StateRequest
from tidelog.rpc.trace_context import Metadata, carried
from tidelog.v1 import inspect_pb2 as pb
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.telemetry.inspect_service import InspectServicer
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

TRACED = (("traceparent", f"00-{0xA1:032x}-{0xB2:016x}-01"), ("tracestate", "sea=calm"))


class _Asking:
    """Notes what the calls that it would make of other services carry."""

    def __init__(self) -> None:
        self.carrying: list[Metadata | None] = []

    async def describe(self, request: StateRequest) -> ServiceState:
        raise NotImplementedError

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:  # noqa: ARG002
        self.carrying.append(carried())
        return Explanation((), (), ())


class _Context:
    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


async def _explain(asking: _Asking, *metadata: tuple[str, str]) -> None:
    servicer = InspectServicer(asking, StateChangeLog("broker-1", SystemClock()))
    context: Any = _Context(*metadata)
    await servicer.Explain(pb.ExplainRequest(), context)


async def test_whoever_explains_asks_others_in_the_trace_of_the_request() -> None:
    asking = _Asking()
    await _explain(asking, ("user-agent", "any"), *TRACED)
    await _explain(asking, ("user-agent", "any"))
    assert asking.carrying == [TRACED, None]
    assert carried() is None
