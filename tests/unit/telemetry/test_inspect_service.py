"""The inspection RPCs of a service."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tidelog.errors import ErrorCode
from tidelog.inspection.state_reports import (
    Explanation,
    Finding,
    Scope,
    ServiceState,
    StateRequest,
)
from tidelog.rpc.message_codec import to_wire
from tidelog.rpc.trace_context import Metadata, carried
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog.v1 import inspect_pb2 as pb
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.telemetry import inspect_service
from tidelog_runtime.telemetry.inspect_service import InspectServicer
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

TRACED = (("traceparent", f"00-{0xA1:032x}-{0xB2:016x}-01"), ("tracestate", "sea=calm"))


class _RecordingCaller:
    """Records the metadata of calls to other services."""

    def __init__(self) -> None:
        self.carrying: list[Metadata | None] = []
        self.given_ms: list[int] = []

    async def describe(self, request: StateRequest) -> ServiceState:
        raise NotImplementedError

    async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:  # noqa: ARG002
        self.given_ms.append(timeout_ms)
        self.carrying.append(carried())
        return Explanation((), (), ())


class _AbortedError(Exception):
    pass


class _Context:
    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    async def abort(self, _code: object, details: str, trailing: tuple[Any, ...]) -> None:
        assert ErrorCode.INVALID_REQUEST.name.encode() in dict(trailing)["grpc-status-details-bin"]
        raise _AbortedError(details)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


async def _explain(
    asking: _RecordingCaller, *metadata: tuple[str, str], timeout_ms: int | None = None
) -> None:
    servicer = InspectServicer(asking, StateChangeLog("broker-1", SystemClock()))
    context: Any = _Context(*metadata)
    await servicer.Explain(pb.ExplainRequest(timeout_ms=timeout_ms), context)


async def test_explain_calls_other_services_in_the_trace_of_the_request() -> None:
    caller = _RecordingCaller()
    await _explain(caller, ("user-agent", "any"), *TRACED)
    await _explain(caller, ("user-agent", "any"))
    assert caller.carrying == [TRACED, None]
    assert carried() is None


async def test_findings_are_converted_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    finding = Finding("healthy", "info", "all is well", (), "nothing to do")

    class Explaining(_RecordingCaller):
        async def explain(self, scope: Scope, timeout_ms: int) -> Explanation:  # noqa: ARG002
            return Explanation((finding,), ("broker-1 at b:1",), ())

    def converted(value: Any, kind: Any) -> Any:
        threads.append(threading.current_thread())
        return to_wire(value, kind)

    monkeypatch.setattr(inspect_service, "to_wire", converted)
    servicer = InspectServicer(Explaining(), StateChangeLog("broker-1", SystemClock()))
    context: Any = _Context()
    answer = await servicer.Explain(pb.ExplainRequest(), context)
    assert [found.cause for found in answer.findings] == ["healthy"]
    assert list(answer.asked) == ["broker-1 at b:1"]
    assert threads
    assert threading.current_thread() not in threads


def _remembering(count: int) -> InspectServicer:
    log = StateChangeLog("broker-1", SystemClock())
    for revision in range(1, count + 1):
        kind = Kind.ELECTION if revision % 2 else Kind.ISR_SHRINK
        log._ring.append(StateChange(1, "broker-1", kind, Stage.COMPLETED, revision=revision))
    return InspectServicer(_RecordingCaller(), log)


async def _watched(
    servicer: InspectServicer, request: pb.WatchEventsRequest
) -> list[pb.WatchEventsResponse]:
    context: Any = _Context()
    return [message async for message in servicer.WatchEvents(request, context)]


def _revisions(messages: list[pb.WatchEventsResponse]) -> list[int]:
    return [event.revision for message in messages for event in message.events]


async def test_sending_a_full_ring_yields_to_the_loop() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    messages = await _watched(_remembering(2_000), pb.WatchEventsRequest())
    task.cancel()
    assert _revisions(messages) == list(range(1, 2_001))
    assert turns >= 2_000 / inspect_service.MAX_EVENTS_PER_MESSAGE
    assert max(len(m.events) for m in messages) <= inspect_service.MAX_EVENTS_PER_MESSAGE


async def test_a_limit_keeps_the_newest_matching_events() -> None:
    servicer = _remembering(2_500)
    few = pb.WatchEventsRequest(kinds=["election"], limit=3)
    assert _revisions(await _watched(servicer, few)) == [2_495, 2_497, 2_499]
    many = pb.WatchEventsRequest(kinds=["election"], limit=700)
    assert _revisions(await _watched(servicer, many)) == list(range(1_101, 2_500, 2))


async def test_the_first_message_says_how_far_back_the_ring_reaches_even_without_events() -> None:
    servicer = _remembering(0)
    (message,) = await _watched(servicer, pb.WatchEventsRequest())
    assert message.oldest_kept_ms == servicer._state_changes.oldest_kept_ms > 0


async def test_events_logged_while_the_ring_is_sent_reach_followers() -> None:
    servicer = _remembering(300)
    context: Any = _Context()
    stream = servicer.WatchEvents(pb.WatchEventsRequest(follow=True), context)
    reported: list[int] = []
    async for message in stream:
        if message.oldest_kept_ms:
            servicer._state_changes.emit(Kind.ELECTION, Stage.COMPLETED, revision=301)
        reported += _revisions([message])
        if len(reported) >= 301:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert reported == list(range(1, 302))
    assert not servicer._state_changes._followers


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (pb.WatchEventsRequest(limit=-1), "limit is -1; give 0 for all that are kept"),
        (pb.WatchEventsRequest(since_ms=-5), "since_ms is -5; give milliseconds since 1970"),
        (pb.WatchEventsRequest(kinds=["electoin"]), "did you mean election"),
        (pb.WatchEventsRequest(kinds=["tide"]), "there are create, election,"),
        (pb.WatchEventsRequest(topic="sea", partition=-7), "partition is -7; partitions are"),
        (pb.WatchEventsRequest(partition=0), "name the topic"),
        (pb.WatchEventsRequest(broker=-2), "broker is -2; ids of brokers are 0 or more"),
    ],
    ids=str,
)
async def test_a_meaningless_request_is_rejected(
    request_: pb.WatchEventsRequest, said: str
) -> None:
    with pytest.raises(_AbortedError) as raised:
        await _watched(_remembering(5), request_)
    assert said in str(raised.value)


async def test_kinds_of_a_newer_version_match_nothing_where_they_may_be_skipped() -> None:
    request = pb.WatchEventsRequest(kinds=["election", "moon_rise"], skip_unknown_kinds=True)
    assert _revisions(await _watched(_remembering(5), request)) == [1, 3, 5]


async def test_meaningless_describe_and_explain_requests_are_rejected() -> None:
    servicer = _remembering(0)
    context: Any = _Context()
    with pytest.raises(_AbortedError, match="partition is -7"):
        await servicer.DescribeService(
            pb.DescribeServiceRequest(topic="sea", partition=-7), context
        )
    with pytest.raises(_AbortedError, match="timeout_ms is -1"):
        await servicer.Explain(pb.ExplainRequest(timeout_ms=-1), context)


@pytest.mark.parametrize("timeout_ms", [-5, 0, 1, 499])
async def test_a_time_too_short_for_any_answer_is_rejected(timeout_ms: int) -> None:
    caller = _RecordingCaller()
    with pytest.raises(_AbortedError, match=f"timeout_ms is {timeout_ms}; give .* at least 500"):
        await _explain(caller, timeout_ms=timeout_ms)
    assert caller.given_ms == []


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(None, 2_000), (500, 500)])
async def test_services_get_the_requested_time(asked_ms: int | None, given_ms: int) -> None:
    caller = _RecordingCaller()
    await _explain(caller, timeout_ms=asked_ms)
    assert caller.given_ms == [given_ms]
