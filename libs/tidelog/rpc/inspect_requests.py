"""Validates requests to InspectService. Pure.

Each check raises `TidelogError` (INVALID_REQUEST) with a message that says what is valid.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import LEAST_ANSWER_MS
from tidelog.state_changes.event import Kind
from tidelog.v1 import inspect_pb2 as pb

_KINDS = tuple(kind.value for kind in Kind)


def check_events(request: pb.WatchEventsRequest) -> None:
    _check_partition(request)
    _check_broker(request)
    if request.limit < 0:
        raise _invalid(f"limit is {request.limit}; give 0 for all that are kept, or how many")
    if request.since_ms < 0:
        raise _invalid(f"since_ms is {request.since_ms}; give milliseconds since 1970, or 0")
    if not request.skip_unknown_kinds:
        _check_kinds(request.kinds)


def check_description(request: pb.DescribeServiceRequest) -> None:
    _check_partition(request)


def check_explanation(request: pb.ExplainRequest) -> None:
    _check_partition(request)
    _check_broker(request)
    if request.HasField("timeout_ms"):
        check_answer_time(request.timeout_ms)


def check_answer_time(timeout_ms: int) -> None:
    """Checks the time limit of services that describe themselves."""
    if timeout_ms < LEAST_ANSWER_MS:
        raise _invalid(
            f"timeout_ms is {timeout_ms}; give services at least {LEAST_ANSWER_MS} ms to answer, "
            "or leave it out for 2,000"
        )


def _check_partition(
    request: pb.WatchEventsRequest | pb.DescribeServiceRequest | pb.ExplainRequest,
) -> None:
    if not request.HasField("partition"):
        return
    if not request.topic:
        raise _invalid("a partition is given without its topic; name the topic, or leave both out")
    if request.partition < 0:
        raise _invalid(
            f"partition is {request.partition}; partitions are numbered from 0, and left out it "
            "stands for all"
        )


def _check_broker(request: pb.WatchEventsRequest | pb.ExplainRequest) -> None:
    if request.HasField("broker") and request.broker < 0:
        raise _invalid(
            f"broker is {request.broker}; ids of brokers are 0 or more, and left out it stands "
            "for all"
        )


def _check_kinds(kinds: Iterable[str]) -> None:
    for kind in kinds:
        if kind not in _KINDS:
            near = difflib.get_close_matches(kind, _KINDS)
            hint = (
                f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_KINDS)}"
            )
            raise _invalid(f"there is no kind of state change {kind!r}; {hint}")


def _invalid(message: str) -> TidelogError:
    return TidelogError(ErrorCode.INVALID_REQUEST, message)
