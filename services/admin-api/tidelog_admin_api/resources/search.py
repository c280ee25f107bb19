"""/v1/topics/{topic}/search: a scan of records for those that match."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidelog.errors import TidelogError, unknown_partition
from tidelog.model import MAX_INT32, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.base import MAX_INT64
from tidelog_admin_api.bodies.problem import Failure, failure_of, unreachable_failure
from tidelog_admin_api.bodies.record_bodies import RECORD_EXAMPLE, read_records
from tidelog_admin_api.bodies.search_bodies import (
    SearchEnd,
    SearchLine,
    SearchMatch,
    SearchProgress,
    SearchSkipped,
    line_schema,
)
from tidelog_admin_api.dependencies import Gateway, GatewayDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.limits import client_of, search
from tidelog_admin_api.parameters import (
    MAX_QUERY_ENTRIES,
    USUAL_TIMEOUT_MS,
    TimeoutMs,
    TopicName,
)
from tidelog_admin_api.problems import READ_PROBLEMS, declared, invalid
from tidelog_admin_api.record_criteria import Criteria, Path, WrongPathError, parse_path
from tidelog_admin_api.record_encoding import Encoding, WrongEncodingError, to_bytes
from tidelog_admin_api.record_reader import ReadsRecords
from tidelog_admin_api.record_search import (
    Cursor,
    End,
    Event,
    Match,
    RecordSearch,
    ScanProgress,
    SearchBound,
    SearchRange,
    Skipped,
)
from tidelog_admin_api.resources.records import (
    MAX_KEY_LENGTH,
    FromOffset,
    FromTimestampMs,
    ValueEncoding,
)
from tidelog_runtime.cooperative import TimeSlices

MEDIA_TYPE = "application/x-ndjson"
DEFAULT_MATCHES, MAX_MATCHES = 100, 1_000
DEFAULT_SCANNED, MAX_SCANNED = 100_000, 1_000_000
MAX_SOUGHT_LENGTH = 1_000
# Partitions of one search. The cursor of its end leads to further ones.
MAX_PARTITIONS = 1_000
# How long a leader may take to report the offsets of its log.
OFFSETS_TIMEOUT_MS = 10_000

_EXAMPLE = {"type": "match", "record": RECORD_EXAMPLE}
_CURSOR = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")

router = JsonRouter(prefix="/v1/topics", tags=["records"])


class SearchStream(StreamingResponse):
    """The lines of a search, which counts as running from its first line to its last."""

    media_type = MEDIA_TYPE

    def __init__(
        self, gateway: Gateway, lines: Callable[[ReadsRecords], AsyncGenerator[bytes]]
    ) -> None:
        super().__init__((), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._gateway = gateway
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        with search(gateway.usage, gateway.config, client_of(scope)):
            consumer = gateway.dependencies.consumers(OFFSETS_TIMEOUT_MS)
            lines = self.body_iterator = self._lines(consumer)
            try:
                # Ends when the client closes the connection.
                await super().__call__(scope, receive, send)
            finally:
                await lines.aclose()
                await consumer.close()


def _sought(description: str) -> Any:
    return Query(max_length=MAX_SOUGHT_LENGTH, description=description)


# The functions are coroutines, since FastAPI calls others in a thread.
async def range_of(
    offset: FromOffset = None,
    before_offset: Annotated[
        int | None, Query(ge=0, le=MAX_INT64, description="end before this offset")
    ] = None,
    timestamp_ms: FromTimestampMs = None,
    before_timestamp_ms: Annotated[
        int | None,
        Query(
            ge=0,
            le=MAX_INT64,
            description="end before the first record at or after this time, in milliseconds since "
            "1970",
        ),
    ] = None,
) -> SearchRange:
    return SearchRange(offset, timestamp_ms, before_offset, before_timestamp_ms)


async def bound_of(
    max_matches: Annotated[int, Query(ge=1, le=MAX_MATCHES)] = DEFAULT_MATCHES,
    max_scanned: Annotated[
        int, Query(ge=1, le=MAX_SCANNED, description="maximum number of records to scan")
    ] = DEFAULT_SCANNED,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> SearchBound:
    return SearchBound(max_matches, max_scanned, timeout_ms)


async def criteria_of(
    key: Annotated[str | None, Query(max_length=MAX_KEY_LENGTH, description="exactly this key")] = (
        None
    ),
    key_contains: Annotated[str | None, _sought("this text within the key")] = None,
    value_contains: Annotated[str | None, _sought("this text within the value")] = None,
    header: Annotated[str | None, _sought("a header with this name")] = None,
    header_value: Annotated[
        str | None, _sought("the header has exactly this value; with `header`")
    ] = None,
    json_path: Annotated[
        str | None,
        _sought(
            "the value is JSON with an element at this path, such as `order.items[0].id` or "
            '`order["net.price"]`'
        ),
    ] = None,
    json_equals: Annotated[
        str | None,
        _sought(
            "that element is this text, or the string, number, true, false or null with this JSON; "
            "with `json_path`"
        ),
    ] = None,
) -> Callable[[], Criteria]:
    """Returns what parses the criteria, for after the validation of all parameters."""

    def parsed() -> Criteria:
        return Criteria(
            _bytes("key", key),
            _bytes("key_contains", key_contains),
            _bytes("value_contains", value_contains),
            header,
            _bytes("header_value", header_value),
            _path(json_path),
            json_equals,
        )

    return parsed


RangeQuery = Annotated[SearchRange, Depends(range_of)]
CriteriaQuery = Annotated[Callable[[], Criteria], Depends(criteria_of)]
BoundQuery = Annotated[SearchBound, Depends(bound_of)]


@router.get(
    "/{topic}/search",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A JSON object a line: `match`, `skipped`, `progress`, and `end` last.",
            "content": {MEDIA_TYPE: {"schema": line_schema(), "example": _EXAMPLE}},
        },
        **READ_PROBLEMS,
        **declared(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    },
)
async def search_records(
    gateway: GatewayDep,
    topic: TopicName,
    where: RangeQuery,
    sought: CriteriaQuery,
    bound: BoundQuery,
    partition: Annotated[
        list[Annotated[int, Query(ge=0, le=MAX_INT32)]] | None,
        Query(max_length=MAX_QUERY_ENTRIES, description="only these partitions; default: all"),
    ] = None,
    cursor: Annotated[
        str,
        Query(
            max_length=30,
            description="`cursor` of a line of the same search, to continue there; default: at the "
            "beginning",
        ),
    ] = "",
    encoding: ValueEncoding = "json",
) -> Response:
    """Scans committed records and streams those that match all criteria, with the progress.

    The range is scanned partition by partition, from older to newer records. The answer is one
    JSON object a line (NDJSON); `type` is one of:

    - `match`: a record that matches
    - `skipped`: records that cannot be read
    - `progress`: what has been scanned, twice a second
    - `end`: why the search ended, as the last line

    To cancel a search, close the connection. A search without criteria returns all records of the
    range. Text is compared exactly, so letters of another case differ. A record of more than 2 MiB
    is not examined, nor is the JSON of a value with more than 20,000 entries; `not_examined` counts
    them.
    """
    criteria = sought()
    _check(where, criteria)
    begin = _cursor(cursor)
    described = await gateway.dependencies.admin.describe_topic(topic)
    numbers = _partitions(topic, partition, described.partition_count, begin)
    has_offset = where.offset is not None or where.before_offset is not None
    if len(numbers) != 1 and has_offset and not begin:
        raise invalid("offset and before_offset are those of one partition; give one partition")
    chosen, following = numbers[:MAX_PARTITIONS], numbers[MAX_PARTITIONS:]

    def lines(consumer: ReadsRecords) -> AsyncGenerator[bytes]:
        running = RecordSearch(
            consumer,
            [TopicPartition(topic, number) for number in chosen],
            where,
            criteria,
            bound,
            gateway.dependencies.clock,
            cursor=begin,
            further=following[0] if following else None,
            is_stopping=lambda: gateway.hub.is_ending,
            on_scanned=gateway.usage.searched,
        )
        return _lines(running.events(), Encoding(encoding))

    return SearchStream(gateway, lines)


async def _lines(events: AsyncGenerator[Event], encoding: Encoding) -> AsyncGenerator[bytes]:
    slices = TimeSlices()
    async for event in events:
        line = await _line(event, encoding, slices)
        yield line.to_json() + b"\n"


async def _line(event: Event, encoding: Encoding, slices: TimeSlices) -> SearchLine:
    match event:
        case Match(found):
            [record] = await read_records([found], encoding, slices)
            return SearchMatch(record=record)
        case Skipped():
            return SearchSkipped.of(event, type="skipped", error=_failure(event.error))
        case ScanProgress():
            cursor = Cursor(event.partition, event.next_offset)
            return SearchProgress.of(event, type="progress", cursor=_text(cursor))
        case End(reason, begin, progress):
            text = None if begin is None else _text(begin)
            return SearchEnd.of(progress, type="end", reason=reason, cursor=text)


def _failure(error: TidelogError | UnreachableError) -> Failure | None:
    if isinstance(error, TidelogError):
        return failure_of(error)
    return unreachable_failure(error, outcome_unknown=False)


def _partitions(
    topic: str, given: Sequence[int] | None, count: int, begin: Cursor | None
) -> list[int]:
    """Returns the numbers of the partitions to scan, from that of the cursor."""
    for number in given or ():
        if number >= count:
            raise unknown_partition(topic, number, count)
    numbers = sorted(set(given)) if given else list(range(count))
    if begin is None:
        return numbers
    rest = [number for number in numbers if number >= begin.partition]
    if begin.partition not in numbers:
        raise invalid(
            f"cursor: partition {begin.partition} is not one of this search; give the parameters "
            "of the search that the cursor is from"
        )
    return rest


def _check(where: SearchRange, criteria: Criteria) -> None:
    """Raises `ProblemError` for parameters that exclude or require each other."""
    if where.offset is not None and where.timestamp_ms is not None:
        raise invalid("offset and timestamp_ms exclude each other; give one of them")
    if where.before_offset is not None and where.before_timestamp_ms is not None:
        raise invalid("before_offset and before_timestamp_ms exclude each other; give one of them")
    if criteria.header_value is not None and criteria.header is None:
        raise invalid("header_value is given without header; give the name of the header, too")
    if criteria.equals is not None and criteria.path is None:
        raise invalid("json_equals is given without json_path; give the path, too")


def _bytes(name: str, text: str | None) -> bytes | None:
    try:
        return to_bytes(text, Encoding.TEXT)
    except WrongEncodingError as error:
        raise invalid(f"{name}: {error}") from error


def _path(text: str | None) -> Path | None:
    try:
        return None if text is None else parse_path(text)
    except WrongPathError as error:
        raise invalid(f"json_path: {error}") from error


def _cursor(text: str) -> Cursor | None:
    if not text:
        return None
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise invalid(
            "cursor is not one of a search, such as 0:8000; pass the cursor of a line, or omit it"
        )
    return Cursor(int(found[1]), min(int(found[2]), MAX_INT64))


def _text(cursor: Cursor) -> str:
    return f"{cursor.partition}:{cursor.offset}"
