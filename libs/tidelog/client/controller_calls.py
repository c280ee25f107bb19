"""Requests to the active controller: finds it, follows it when another one takes over, and retries
until there is an answer or the time is up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from tidelog.client.admin_api import method_of
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.retry import Backoff
from tidelog.errors import FINAL_ANSWERS, ErrorCode, TidelogError
from tidelog.request_bounds import check_requester
from tidelog.rpc.status import UnknownMethodError, UnreachableError
from tidelog.rpc.trace_context import carried, carrying, of_request
from tidelog.rpc.wire import error_from_wire
from tidelog.version import installed_version

DEFAULT_TIMEOUT_MS = 30_000
# An answer may arrive this much later than the time limit of the controller.
ANSWER_GRACE_MS = 1_000
# With pauses of 50 ms to 1 s. Usually the timeout ends the retries first.
MAX_ATTEMPTS = 60

REQUESTED_BY = "tidelog-requested-by"
# Address of the original caller, set by a proxy.
REQUESTED_FROM = "tidelog-requested-from"
_OPERATION_ID_BITS = 96

_Response = TypeVar("_Response", bound=Message)


class Answered(NamedTuple):
    """The outcome of a request.

    - `error`: the error with which the controller rejected it; None: none. Its `outcome_unknown`
      counts all tries.
    - `in_doubt`: an earlier try may have made the change.
    - `trace_id`: the trace of all tries."""

    error: TidelogError | None
    in_doubt: bool
    trace_id: str


@dataclass(slots=True)
class _Tries:
    """The tries of one request.

    - `is_change`: whether the request asks for a change.
    - `in_doubt`: a try may have made the change: it got no answer, or an error that says so."""

    is_change: bool
    in_doubt: bool = False

    def failed(self, error: UnreachableError | TidelogError) -> None:
        """Counts a try that will be repeated."""
        if isinstance(error, UnreachableError):
            self.in_doubt |= self.is_change and not error.unresolved
        else:
            self.in_doubt |= self.is_change and error.outcome_unknown

    def final(self, error: TidelogError) -> TidelogError:
        """Returns the error of the last try as the error of all of them."""
        if error.outcome_unknown:
            return error
        if self.is_change and error.code is ErrorCode.INTERNAL:
            # The handler may have failed after its transaction.
            return TidelogError(error.code, error.message, error.leader, outcome_unknown=True)
        if not self.in_doubt:
            return error
        return TidelogError(
            error.code,
            f"{error.message}; an earlier try of this request may have been carried out",
            error.leader,
            outcome_unknown=True,
        )


class ControllerCalls:
    """Sends requests to the active controller.

    - `requested_by`: the caller's name for events and operations; empty: none. Raises
      INVALID_REQUEST for one that cannot be sent.
    - `timeout_ms`: time limit of requests that have no time limit of their own."""

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
        """Returns a unique id, so that all tries of a request are the same operation."""
        return f"op-{self._rng.getrandbits(_OPERATION_ID_BITS):024x}"

    async def ask(
        self,
        request: Message,
        response: type[_Response],
        timeout_ms: int | None = None,
    ) -> _Response:
        """Returns the active controller's answer; raises its error if it rejects the request."""
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        answer, answered = await self.ask_in_doubt(request, response, timeout_ms)
        if answered.error is not None:
            raise answered.error
        return answer

    async def ask_in_doubt(
        self, request: Message, response: type[_Response], timeout_ms: int
    ) -> tuple[_Response, Answered]:
        """As `ask`, for callers that interpret an error by what earlier tries may have done."""
        tries = _Tries(is_change(request))
        with of_request(self._rng) as trace_id, self._signed():
            try:
                answer = await self._try_controllers(request, response, timeout_ms, tries)
            except TidelogError as error:
                raise tries.final(error) from None
        rejection = error_of(answer)
        if rejection is not None:
            rejection = tries.final(rejection)
        return answer, Answered(rejection, tries.in_doubt, trace_id)

    @contextmanager
    def _signed(self) -> Iterator[None]:
        if not self._requested_by:
            yield
            return
        with carrying((*(carried() or ()), (REQUESTED_BY, self._requested_by))):
            yield

    async def _try_controllers(
        self, request: Message, response: type[_Response], timeout_ms: int, tries: _Tries
    ) -> _Response:
        """Returns the first answer that is no error, or an error that a retry cannot fix."""
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        problem = "no active controller is known"
        sent = False
        for attempt in range(1, MAX_ATTEMPTS + 1):
            left_ms = give_up_ms - self._clock.monotonic_ms()
            try:
                await self._metadata.refresh_patiently(patience_ms=left_ms)
            except TidelogError as error:
                if attempt == 1 or error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                # The problem of the previous try says more, and that try may have succeeded.
                break
            address = self._metadata.controller_address
            if address:
                sent = tries.is_change
                try:
                    api = self._connections.controller(address)
                    left_ms = max(give_up_ms - self._clock.monotonic_ms(), 0)
                    answer = await api.call(request, response, left_ms + ANSWER_GRACE_MS)
                except UnknownMethodError as error:
                    raise self._older(address, request) from error
                except UnreachableError as error:
                    tries.failed(error)
                    problem = str(error)
                else:
                    rejection = error_of(answer)
                    if rejection is None or not _may_change(rejection):
                        return answer
                    tries.failed(rejection)
                    problem = f"{address}: {rejection.message}"
            if self._clock.monotonic_ms() >= give_up_ms:
                break
            await asyncio.sleep(self._backoff.pause_ms(attempt) / 1000)
        raise no_answer(problem, sent=sent)

    def _older(self, address: str, request: Message) -> TidelogError:
        """Returns the error for a method that the active controller does not have."""
        version = self._metadata.version_of(address)
        release = f"release {version}" if version else "an earlier release"
        return TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the controller at {address} runs {release} without the request "
            f"{method_of(request)}, and this client is of release {installed_version()}; upgrade "
            "the controllers, or use a client of their release",
        )


def error_of(answer: Any) -> TidelogError | None:
    """Returns the error of a message with a field `error`."""
    return error_from_wire(answer.error) if answer.HasField("error") else None


def is_change(request: Message) -> bool:
    """Returns whether a request of AdminService asks for a change, and not for a description or a
    plan."""
    is_query = method_of(request).startswith(("Describe", "List", "Check"))
    return not (is_query or getattr(request, "dry_run", False))


def _may_change(error: TidelogError) -> bool:
    return error.retriable and error.code not in FINAL_ANSWERS


def no_answer(problem: str, *, sent: bool) -> TidelogError:
    """Returns the error of a request without an answer. `sent`: whether a change was requested,
    and may have been carried out."""
    check = "then check whether it was carried out" if sent else "nothing was changed"
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the request was not answered in time; the last problem: {problem}; check that the "
        f"cluster runs; {check}",
        outcome_unknown=sent,
    )
