"""Produce requests that this broker rejects for good, by topic and reason. Bounded; no I/O.

A client that sends what no broker accepts does not stop by itself.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import RejectedRequests

WINDOW_MS = 60_000
# Names of topics come from clients: of more pairs of topic and reason the oldest is forgotten.
MAX_KEPT = 200
# Upper bound of the count of one pair within the window.
MAX_COUNTED = 1_000
# A batch that overtook the first one of its producer is sent again; a batch of a producer that the
# leader has forgotten is sent under a new producer id; a batch that was appended before is
# delivered.
SETTLED_BY_PRODUCERS = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.DUPLICATE_SEQUENCE})


class _Rejections(NamedTuple):
    times: deque[int]
    messages: list[str]  # the last one alone


class RejectionCounts:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], _Rejections] = OrderedDict()

    def add(self, topic: str, error: TidelogError, now_ms: int) -> None:
        """Counts a rejection.

        Not counted are requests that may be sent again, as to another leader, and errors that
        idempotent producers handle by themselves.
        """
        if error.retriable or error.code in SETTLED_BY_PRODUCERS:
            return
        key = (topic, error.code.name)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = _Rejections(deque(maxlen=MAX_COUNTED), [])
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        found.times.append(now_ms)
        found.messages[:] = [error.message]

    def recent(self, now_ms: int) -> Iterable[RejectedRequests]:
        """Yields the rejections of the last WINDOW_MS, by topic and reason."""
        for (topic, reason), found in sorted(self._kept.items()):
            count = sum(at_ms > now_ms - WINDOW_MS for at_ms in found.times)
            if count:
                last_ms = now_ms - found.times[-1]
                yield RejectedRequests(topic, reason, count, last_ms, found.messages[0])
