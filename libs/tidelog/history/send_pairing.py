"""Joins the two halves of each send, by its value."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.history.client_operations import (
    NO_BROKER,
    NO_PARTITION,
    HistoryError,
    Outcome,
    Send,
    SendEnded,
    SendInvoked,
)
from tidelog.model import NO_EPOCH, NO_OFFSET


class SendPairing:
    """Pairs of invocation and end. Raises `HistoryError` if the halves do not match or a value is
    used twice, because no verdict could be trusted."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[int, SendInvoked]] = {}
        self._ended: set[int] = set()

    def invoked(self, line: int, send: SendInvoked) -> None:
        if send.value in self._ended or send.value in self._pending:
            raise HistoryError(
                f"line {line}: value {send.value} is sent a second time; every record of a "
                f"history has a value of its own"
            )
        self._pending[send.value] = (line, send)

    def ended(self, line: int, end: SendEnded) -> Send:
        pending = self._pending.pop(end.value, None)
        if pending is None:
            what = "ends a second time" if end.value in self._ended else "was not invoked"
            raise HistoryError(
                f"line {line}: the send of value {end.value} {what}; each is written once "
                f"when it is invoked and then once when it ends"
            )
        invoked_line, start = pending
        self._ended.add(end.value)
        _check_same(line, invoked_line, start, end)
        return Send(
            end.value,
            end.client,
            end.topic,
            start.partition if end.partition == NO_PARTITION else end.partition,
            end.outcome,
            end.offset,
            end.leader_epoch,
            end.broker_id,
            invoked_line,
            start.time_ms,
            line,
            end.time_ms,
        )

    def never_ended(self) -> Iterator[Send]:
        for line, start in self._pending.values():
            yield Send(
                start.value,
                start.client,
                start.topic,
                start.partition,
                Outcome.INFO,
                NO_OFFSET,
                NO_EPOCH,
                NO_BROKER,
                line,
                start.time_ms,
                0,
                start.time_ms,
            )


def _check_same(line: int, invoked_line: int, start: SendInvoked, end: SendEnded) -> None:
    if (start.client, start.topic) != (end.client, end.topic) or (
        start.partition != end.partition and NO_PARTITION not in (start.partition, end.partition)
    ):
        raise HistoryError(
            f"line {line}: the send of value {end.value} ends as one of {end.client} to "
            f"{end.topic}/{end.partition} and was invoked in line {invoked_line} by "
            f"{start.client} to {start.topic}/{start.partition}; they are the same"
        )
