"""Records of a topic, for scripts without gRPC: small writes and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from tidelog.errors import TidelogError
from tidelog.model import OnDamage, TopicPartition
from tidelog_admin_api.bodies.base import MAX_INT64
from tidelog_admin_api.bodies.problem import FieldError
from tidelog_admin_api.bodies.record_bodies import (
    ACKS,
    MAX_RECORDS,
    MAX_TIMESTAMP_MS,
    DamagedRange,
    EncodingWord,
    OnDamageWord,
    ProduceRequest,
    ProduceResults,
    RecordPage,
    produce_results,
    read_records,
    records_to_send,
)
from tidelog_admin_api.dependencies import AskGateway
from tidelog_admin_api.parameters import (
    USUAL_TIMEOUT_MS,
    PartitionNumber,
    TimeoutMs,
    TopicName,
)
from tidelog_admin_api.problems import CHANGE_PROBLEMS, READ_PROBLEMS, declared, invalid
from tidelog_admin_api.record_encoding import Encoding, WrongEncodingError, to_bytes
from tidelog_admin_api.record_reader import (
    MAX_RECORD_BYTES,
    AtOffset,
    AtTime,
    Latest,
    ReadBound,
    Start,
)
from tidelog_admin_api.record_reader import read_records as read_from

DEFAULT_READ_RECORDS = 100
DEFAULT_READ_BYTES = 1 << 20
MAX_READ_BYTES = 2 << 20
MAX_SCANNED_RECORDS = 10_000
MAX_WAIT_MS = 30_000
MAX_KEY_LENGTH = 10_000
DEFAULT_LATEST = 10

router = APIRouter(prefix="/v1/topics", tags=["records"])

_NOT_ALL: dict[int | str, dict[str, Any]] = {
    HTTPStatus.MULTI_STATUS.value: {
        "model": ProduceResults,
        "description": "Some records are not known to be written; each says why.",
    }
}


@router.post("/{topic}/records", responses=CHANGE_PROBLEMS | _NOT_ALL)
async def produce_records(
    gateway: AskGateway,
    topic: TopicName,
    body: ProduceRequest,
    answer: Response,
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> ProduceResults:
    """Writes records; each has its own result, in the order of the request.

    If no record is written, all for the same reason, that error is the answer.
    """
    # In a thread, so that the event loop serves other requests meanwhile.
    records, wrong = await asyncio.to_thread(records_to_send, body)
    if wrong:
        raise invalid(
            "; ".join(f"{one.field}: {one.message}" for one in wrong[:3]),
            [FieldError(field=one.field, message=one.message) for one in wrong],
        )
    outcomes = await gateway.sender.send(topic, records, ACKS[body.acks], timeout_ms)
    failures = [outcome for outcome in outcomes if isinstance(outcome, TidelogError)]
    if len(failures) == len(outcomes) and _is_one_refusal(failures):
        raise failures[0]
    if failures:
        answer.status_code = HTTPStatus.MULTI_STATUS
    return await produce_results(topic, outcomes)


def _is_one_refusal(failures: Sequence[TidelogError]) -> bool:
    return len({failure.code for failure in failures}) == 1 and not failures[0].outcome_unknown


FromOffset = Annotated[int | None, Query(ge=0, le=MAX_INT64, description="from this offset on")]
FromTimestampMs = Annotated[
    int | None,
    Query(
        ge=0,
        le=MAX_TIMESTAMP_MS,
        description="from the first record at or after it, milliseconds since 1970",
    ),
]
Newest = Annotated[
    int | None,
    Query(
        ge=1,
        le=MAX_RECORDS,
        description="the newest ones, with a key the newest that have it; fewer where offsets "
        "have gaps; default: 10, where neither offset nor timestamp_ms is given",
    ),
]
WithKey = Annotated[
    str | None,
    Query(
        max_length=MAX_KEY_LENGTH,
        description=f"records with this key alone, among the next {MAX_SCANNED_RECORDS}, or "
        "as many last ones where the newest are asked for",
    ),
]
MaxBytes = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_READ_BYTES,
        description="of keys, values and headers, each of which counts for 256 bytes more; one "
        f"record comes also if it is larger, up to {MAX_RECORD_BYTES} bytes",
    ),
]
ShownAs = Annotated[EncodingWord, Query(description="of values, where they can be so")]
WaitMs = Annotated[
    int, Query(ge=0, le=MAX_WAIT_MS, description="for a first record, where there is none yet")
]
AtDamage = Annotated[
    OnDamageWord,
    Query(
        description="at records that the last disk which held them has damaged. raise: the "
        "answer is RECORDS_DAMAGED, whose `damaged` has their offsets, unless sound ones come "
        "before them; skip: they are left out and listed in `damaged`"
    ),
]


@router.get(
    "/{topic}/partitions/{partition}/records",
    responses=READ_PROBLEMS | declared(HTTPStatus.GONE),
)
async def read_partition_records(
    gateway: AskGateway,
    topic: TopicName,
    partition: PartitionNumber,
    offset: FromOffset = None,
    timestamp_ms: FromTimestampMs = None,
    latest: Newest = None,
    key: WithKey = None,
    max_records: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = DEFAULT_READ_RECORDS,
    max_bytes: MaxBytes = DEFAULT_READ_BYTES,
    encoding: ShownAs = "json",
    wait_ms: WaitMs = 0,
    on_damage: AtDamage = "raise",
    timeout_ms: TimeoutMs = USUAL_TIMEOUT_MS,
) -> RecordPage:
    """Reads a few committed records: from an offset, from a time, or the newest.

    When the time is up, the answer is what has been read so far. There are more records if
    `next_offset` is below `end_offset`.
    """
    start = _start(offset, timestamp_ms, latest)
    name = TopicPartition(topic, partition)
    bound = ReadBound(
        latest or max_records,
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
    return RecordPage(
        items=await read_records(read.records, Encoding(encoding)),
        next_offset=read.next_offset,
        log_start_offset=read.log_start_offset,
        end_offset=read.end_offset,
        damaged=[DamagedRange.model_validate(damaged) for damaged in read.damaged],
    )


def _start(offset: int | None, timestamp_ms: int | None, latest: int | None) -> Start:
    given = [name for name, value in _named(offset, timestamp_ms, latest) if value is not None]
    if len(given) > 1:
        raise invalid(f"{' and '.join(given)} name different places to begin; give one of them")
    if offset is not None:
        return AtOffset(offset)
    if timestamp_ms is not None:
        return AtTime(timestamp_ms)
    return Latest(latest or DEFAULT_LATEST)


def _named(
    offset: int | None, timestamp_ms: int | None, latest: int | None
) -> list[tuple[str, int | None]]:
    return [("offset", offset), ("timestamp_ms", timestamp_ms), ("latest", latest)]


def _key(key: str | None) -> bytes | None:
    try:
        return to_bytes(key, Encoding.TEXT)
    except WrongEncodingError as error:
        raise invalid(f"key: {error}") from error
