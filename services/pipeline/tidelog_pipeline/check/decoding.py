"""Converts lines of a history to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from tidelog.history import (
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryError,
    LossMark,
    Nemesis,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    SendEnded,
    SendInvoked,
)
from tidelog.history.history_file import checked_line
from tidelog.history.history_format import decode_operation
from tidelog_pipeline.check.history_files import ByteRange, count_lines, lines_of
from tidelog_pipeline.check.stages.stage_tables import LINE_COUNTS, OPERATIONS
from tidelog_pipeline.columns import Row

_NAMES = 10_000


def count_range_lines(rows: Iterator[Row]) -> Iterator[Row]:
    """Yields the number of lines in each range."""
    for uri, start, end, _ in rows:
        span = ByteRange(uri, start, end)
        yield LINE_COUNTS.row(uri=uri, start=start, lines=count_lines(span))


def decode_rows(rows: Iterator[Row]) -> Iterator[Row]:
    """Yields the operations of ranges, up to the first line of each range that is not one."""
    for uri, start, end, first_line in rows:
        # A history's first line is not an operation; it is checked before all others.
        lines = enumerate(lines_of(ByteRange(uri, start, end)), first_line)
        yield from decode_lines((number, line) for number, line in lines if number > 1)


def decode_lines(lines: Iterator[tuple[int, bytes]]) -> Iterator[Row]:
    for number, line in lines:
        try:
            yield _row(number, line)
        except HistoryError as error:
            yield OPERATIONS.row(line=number, kind="error", error=str(error))
            return


def _row(number: int, line: bytes) -> Row:
    operation = decode_operation(checked_line(line))
    return _ROWS[type(operation)](number, line, operation)


def _invoked(number: int, _line: bytes, send: SendInvoked) -> Row:
    return (
        number,
        "invoked",
        send.time_ms,
        _valid_name(send.client),
        _valid_name(send.topic),
        send.partition,
        send.value,
        *(None,) * 10,
    )


def _ended(number: int, _line: bytes, send: SendEnded) -> Row:
    return (
        number,
        "ended",
        send.time_ms,
        _valid_name(send.client),
        _valid_name(send.topic),
        send.partition,
        send.value,
        send.outcome.value,
        send.offset,
        send.leader_epoch,
        send.broker_id,
        *(None,) * 6,
    )


def _poll(number: int, line: bytes, poll: PollEnded) -> Row:
    if not poll.offsets:
        return _reader(number, line, poll)
    return OPERATIONS.row(
        line=number,
        kind="reader",
        time_ms=poll.time_ms,
        client=_valid_name(poll.client),
        topic=_valid_name(poll.topic),
        partition=poll.partition,
        final=poll.final,
        offsets=poll.offsets,
        values=poll.values,
        leader_epochs=poll.leader_epochs,
        raw=line,
    )


def _reader(number: int, line: bytes, operation: Any, kind: str = "reader") -> Row:
    return OPERATIONS.row(
        line=number,
        kind=kind,
        topic=_valid_name(operation.topic),
        partition=operation.partition,
        raw=line,
    )


def _nemesis(number: int, line: bytes, _event: Nemesis) -> Row:
    return OPERATIONS.row(line=number, kind="nemesis", raw=line)


@lru_cache(_NAMES)
def _valid_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise HistoryError(f"{name!r} cannot be stored in a table: {error}") from error
    return name


_ROWS: dict[type, Callable[[int, bytes, Any], Row]] = {
    SendInvoked: _invoked,
    SendEnded: _ended,
    PollInvoked: _reader,
    PollEnded: _poll,
    HighWatermarkInvoked: _reader,
    HighWatermarkEnded: _reader,
    LossMark: lambda number, line, mark: _reader(number, line, mark, "mark"),
    ReplicaDigest: _reader,
    Nemesis: _nemesis,
}
