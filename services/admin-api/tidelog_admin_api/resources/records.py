"""/v1/topics/{topic}/…/records: small writes and reads for scripts without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Path, Query, Request, Response

from tidelog.errors import TidelogError
from tidelog.model import OnDamage, TopicPartition
from tidelog_admin_api.bodies.base import MAX_INT64
from tidelog_admin_api.bodies.record_bodies import (
    ACKS,
    MAX_RECORDS,
    MAX_TIMESTAMP_MS,
    EncodingWord,
    OnDamageWord,
    ProduceRequest,
    ProduceResults,
    ReadRecord,
    RecordPage,
    page_json,
    produce_results,
    read_records,
    records_to_send,
)
from tidelog_admin_api.dependencies import GatewayDep
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.parameters import (
    USUAL_TIMEOUT_MS,
    PartitionNumber,
    TimeoutMs,
    TopicName,
)
from tidelog_admin_api.problems import (
    CHANGE_PROBLEMS,
    READ_PROBLEMS,
    declared,
    invalid,
    invalid_fields,
    multi_status,
)
from tidelog_admin_api.record_collecting import MAX_RECORD_BYTES, ReadBound
from tidelog_admin_api.record_encoding import Encoding, WrongEncodingError, to_bytes
from tidelog_admin_api.record_reader import AtOffset, AtTime, Before, Latest, Start
from tidelog_admin_api.record_reader import read_record as read_one
from tidelog_admin_api.record_reader import read_records as read_from
from tidelog_runtime.cooperative import TimeSlices

DEFAULT_READ_RECORDS = 100
DEFAULT_READ_BYTES = 1 << 20
MAX_READ_BYTES = 2 << 20
MAX_SCANNED_RECORDS = 10_000
MAX_WAIT_MS = 30_000
MAX_KEY_LENGTH = 10_000
DEFAULT_LATEST = 10
# Parameters that say where a page begins or ends. They exclude each other.
_STARTS = ("offset", "before_offset", "timestamp_ms", "latest")

router = JsonRouter(prefix="/v1/topics", tags=["records"])

_NOT_ALL = multi_status(
    ProduceResults, "Some records are not known to be written; the `error` of each says why."
)


@router.post("/{topic}/records", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def produce_records(
    gateway: GatewayDep,
    topic: TopicName,
    body: ProduceRequest,
    answer: Response,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> ProduceResults:
    """Writes records. Each record has its own result, in the order of the request.

    If no record is written and the error is the same for all, the answer is that error.
    """
    # In a thread, so that the event loop continues to serve other requests.
    records, wrong = await asyncio.to_thread(records_to_send, body)
    if wrong:
        raise invalid_fields(wrong)
    outcomes = await gateway.sender.send(topic, records, ACKS[body.acks], timeout_ms)
    failures = [outcome for outcome in outcomes if isinstance(outcome, TidelogError)]
    if len(failures) == len(outcomes) and _is_one_rejection(failures):
        raise failures[0]
    if failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return await produce_results(topic, outcomes)


def _is_one_rejection(failures: Sequence[TidelogError]) -> bool:
    return len({failure.code for failure in failures}) == 1 and not failures[0].outcome_unknown


FromOffset = Annotated[int | None, Query(ge=0, le=MAX_INT64, description="first offset to read")]
BeforeOffset = Annotated[
    int | None,
    Query(
        ge=0,
        le=MAX_INT64,
        description="read the last `max_records` before this offset, in the order of offsets; with "
        f"`key`, those with that key among the last {MAX_SCANNED_RECORDS}",
    ),
]
FromTimestampMs = Annotated[
    int | None,
    Query(
        ge=0,
        le=MAX_TIMESTAMP_MS,
        description="read from the first record at or after this time, in milliseconds since 1970",
    ),
]
Newest = Annotated[
    int | None,
    Query(
        ge=1,
        le=MAX_RECORDS,
        description="number of newest records to read; with `key`, of the newest with that key. "
        "There may be fewer if offsets have gaps. Default: 10, if no other start is given",
    ),
]
WithKey = Annotated[
    str | None,
    Query(
        max_length=MAX_KEY_LENGTH,
        description=f"only records with this key, among the next {MAX_SCANNED_RECORDS} records; "
        "with `latest`, among the last",
    ),
]
MaxBytes = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_READ_BYTES,
        description="maximum size of all keys, values and headers; each header counts as 256 "
        "bytes more. A single record is returned even if it is larger, up to "
        f"{MAX_RECORD_BYTES} bytes",
    ),
]
ValueEncoding = Annotated[
    EncodingWord,
    Query(
        description="encoding of values; a value that it cannot represent is text or base64, "
        "which `value_encoding` shows"
    ),
]
WaitMs = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_WAIT_MS,
        description="how long to wait for a first record if there is none yet, in milliseconds",
    ),
]
AtDamage = Annotated[
    OnDamageWord,
    Query(
        description="how to treat records that are damaged on the last disk that held them. "
        "raise: the answer is RECORDS_DAMAGED, and its `damaged` has the offsets; intact records "
        "before the damage are returned first. skip: damaged records are left out, and `damaged` "
        "lists their offsets"
    ),
]


@router.get(
    "/{topic}/partitions/{partition}/records",
    response_model=RecordPage,
    responses=READ_PROBLEMS | declared(HTTPStatus.GONE),
)
async def read_partition_records(
    gateway: GatewayDep,
    request: Request,
    topic: TopicName,
    partition: PartitionNumber,
    offset: FromOffset = None,
    before_offset: BeforeOffset = None,
    timestamp_ms: FromTimestampMs = None,
    latest: Newest = None,
    key: WithKey = None,
    max_records: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = DEFAULT_READ_RECORDS,
    max_bytes: MaxBytes = DEFAULT_READ_BYTES,
    encoding: ValueEncoding = "json",
    wait_ms: WaitMs = 0,
    on_damage: AtDamage = "raise",
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> Response:
    """Reads a page of committed records: from an offset or a time, before an offset, or the newest.

    `previous` and `next` are the paths of the neighbouring pages. A page may have no records and
    still have a next one: when the time is up, the answer has the records that were read so far.
    """
    start = _start(offset, before_offset, timestamp_ms, latest)
    name = TopicPartition(topic, partition)
    most = latest or max_records
    bound = ReadBound(
        most,
        max_bytes,
        MAX_SCANNED_RECORDS,
        wait_ms,
        timeout_ms,
        _key(key),
        OnDamage(on_damage),
    )
    consumer = gateway.dependencies.consumers(timeout_ms)
    try:
        read = await read_from(consumer, name, start, bound, gateway.dependencies.clock)
    finally:
        await consumer.close()
    older, newer = read.first_offset > read.log_start_offset, read.next_offset < read.end_offset
    page = RecordPage.of(
        read,
        items=[],
        previous=_page(request, name, most, before_offset=read.first_offset) if older else None,
        next=_page(request, name, most, offset=read.next_offset) if newer else None,
    )
    return _json(await page_json(page, read.records, Encoding(encoding)))


@router.get(
    "/{topic}/partitions/{partition}/records/{offset}",
    response_model=ReadRecord,
    responses=READ_PROBLEMS | declared(HTTPStatus.GONE),
)
async def read_record(
    gateway: GatewayDep,
    topic: TopicName,
    partition: PartitionNumber,
    offset: Annotated[
        int, Path(ge=0, le=MAX_INT64, description="offset of the record", examples=[17])
    ],
    encoding: ValueEncoding = "json",
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> Response:
    """Reads the record at an offset.

    If there is none, the answer is 404 with the code NO_SUCH_RECORD, and `detail` has the offsets
    that have records.
    """
    name = TopicPartition(topic, partition)
    consumer = gateway.dependencies.consumers(timeout_ms)
    try:
        found = await read_one(consumer, name, offset, timeout_ms, gateway.dependencies.clock)
    finally:
        await consumer.close()
    [record] = await read_records([found], Encoding(encoding), TimeSlices())
    return _json(record.to_json())


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _page(request: Request, partition: TopicPartition, max_records: int, **start: int) -> str:
    """Returns the path of a page with the parameters of `request`, but another start."""
    kept = {k: v for k, v in request.query_params.items() if k not in _STARTS}
    query = {**kept, "max_records": max_records, **start}
    topic = quote(partition.topic, safe="")
    return f"/v1/topics/{topic}/partitions/{partition.partition}/records?{urlencode(query)}"


def _start(
    offset: int | None, before_offset: int | None, timestamp_ms: int | None, latest: int | None
) -> Start:
    starts = dict(zip(_STARTS, (offset, before_offset, timestamp_ms, latest), strict=True))
    given = [name for name, value in starts.items() if value is not None]
    if len(given) > 1:
        raise invalid(f"{' and '.join(given)} exclude each other; give one of them")
    if offset is not None:
        return AtOffset(offset)
    if before_offset is not None:
        return Before(before_offset)
    if timestamp_ms is not None:
        return AtTime(timestamp_ms)
    return Latest(latest or DEFAULT_LATEST)


def _key(key: str | None) -> bytes | None:
    try:
        return to_bytes(key, Encoding.TEXT)
    except WrongEncodingError as error:
        raise invalid(f"key: {error}") from error
