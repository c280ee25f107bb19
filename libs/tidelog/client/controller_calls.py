"""How requests reach the active controller: found, followed when another takes over, and asked
again until there is an answer or time is up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, Protocol, TypeVar

from tidelog.client.admin_api import AdminApi
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.retry import Backoff
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.request_bounds import check_requester
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import carried, carrying, of_request
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import errors_pb2

DEFAULT_TIMEOUT_MS = 30_000
# An answer may come this much after the time that the controller was given.
ANSWER_GRACE_MS = 1_000
# With pauses of 50 ms to 1 s; the timeout usually ends it first.
MAX_ATTEMPTS = 60

REQUESTED_BY = "tidelog-requested-by"
# The address of who asked whoever passes a request on.
REQUESTED_FROM = "tidelog-requested-from"
_OPERATION_ID_BITS = 96


class Response(Protocol):
    @property
    def error(self) -> errors_pb2.Error: ...

    def HasField(self, field_name: Literal["error"], /) -> bool: ...  # noqa: N802


_Response = TypeVar("_Response", bound=Response)


class Answered(NamedTuple):
    """`error`: what the controller refused the request with; None: nothing. `in_doubt`: an
    earlier try got no answer. `trace_id`: that all tries belong to."""

    error: TidelogError | None
    in_doubt: bool
    trace_id: str


class ControllerCalls:
    """`requested_by`: who asks, for events and operations; empty: nothing is said. Raises
    INVALID_REQUEST for one that cannot be sent. `timeout_ms`: for requests that name no time of
    their own."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        rng: random.Random,
        requested_by: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        check_requester(requested_by)
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(rng)
        self._requested_by = requested_by
        self._timeout_ms = timeout_ms

    def new_operation_id(self) -> str:
        """One that nobody else has, so that a try which is repeated is the same operation."""
        return f"op-{self._rng.getrandbits(_OPERATION_ID_BITS):024x}"

    async def ask(
        self,
        call: Callable[[AdminApi, int], Awaitable[_Response]],
        timeout_ms: int | None = None,
    ) -> _Response:
        """The active controller's answer. `call` is given the time for one try, milliseconds.
        Raises what the request is refused with."""
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        answer, answered = await self.ask_in_doubt(call, timeout_ms)
        if answered.error is not None:
            raise answered.error
        return answer

    async def ask_in_doubt(
        self, call: Callable[[AdminApi, int], Awaitable[_Response]], timeout_ms: int
    ) -> tuple[_Response, Answered]:
        """The same for who reads a refusal by what earlier tries may have done."""
        with of_request(self._rng) as trace_id, self._signed():
            answer, in_doubt = await self._try_controllers(call, timeout_ms)
        error = error_from_wire(answer.error) if answer.HasField("error") else None
        return answer, Answered(error, in_doubt, trace_id)

    @contextmanager
    def _signed(self) -> Iterator[None]:
        if not self._requested_by:
            yield
            return
        with carrying((*(carried() or ()), (REQUESTED_BY, self._requested_by))):
            yield

    async def _try_controllers(
        self, call: Callable[[AdminApi, int], Awaitable[_Response]], timeout_ms: int
    ) -> tuple[_Response, bool]:
        """An answer that a retry cannot mend is the caller's to read."""
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        in_doubt = False
        problem = "no active controller is known"
        sent = False
        for attempt in range(1, MAX_ATTEMPTS + 1):
            left_ms = give_up_ms - self._clock.monotonic_ms()
            try:
                await self._metadata.refresh_patiently(patience_ms=left_ms)
            except TidelogError as error:
                if attempt == 1 or error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                # The problem of the try before says more, and it may have been carried out.
                break
            address = self._metadata.controller_address
            if address:
                sent = True
                try:
                    api = self._connections.controller(address)
                    left_ms = max(give_up_ms - self._clock.monotonic_ms(), 0)
                    answer = await call(api, left_ms + ANSWER_GRACE_MS)
                except UnreachableError as error:
                    in_doubt = True
                    problem = str(error)
                else:
                    if not answer.HasField("error") or not _may_change(answer):
                        return answer, in_doubt
                    problem = f"{address}: {answer.error.message}"
            if self._clock.monotonic_ms() >= give_up_ms:
                break
            await asyncio.sleep(self._backoff.pause_ms(attempt) / 1000)
        raise no_answer(problem, sent=sent)


def _may_change(answer: Response) -> bool:
    error = error_from_wire(answer.error)
    return error.retriable and error.code not in FINAL_ANSWERS


def no_answer(problem: str, *, sent: bool) -> TidelogError:
    """`sent`: whether a request for a change was sent, and may have been carried out."""
    check = "then look whether it was carried out after all" if sent else "nothing was changed"
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the request was not answered in time; the last problem: {problem}; check that the "
        f"cluster runs; {check}",
        outcome_unknown=sent,
    )
