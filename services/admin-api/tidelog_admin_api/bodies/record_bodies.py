"""Bodies of records that scripts write and read without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from tidelog.client.delivery import Delivery
from tidelog.errors import TidelogError
from tidelog.model import NO_OFFSET, Acks, Record
from tidelog_admin_api.bodies.base import (
    AnswerBody,
    PartitionNumber,
    RequestBody,
    documented,
    example,
    integral,
)
from tidelog_admin_api.bodies.problem import DamagedOffsets, Failure, FieldError, failure_of
from tidelog_admin_api.entry_counter import entries_in
from tidelog_admin_api.record_encoding import Encoding, WrongEncodingError, from_bytes, to_bytes
from tidelog_runtime.cooperative import ITEMS_PER_SLICE, map_yielding

# Bytes of a value that cost as much to convert as one more record.
BYTES_PER_ITEM = 16 << 10
MAX_RECORDS = 1_000
# JSON entries of all values on one page. Further values are shown as text.
MAX_PAGE_ENTRIES = 50_000
MAX_HEADERS = 100
# The highest timestamp that a batch can hold.
MAX_TIMESTAMP_MS = 2**62 - 1
# JSON Schema numbers are floats: MAX_TIMESTAMP_MS would be rounded up to a value that is rejected.
_MAX_DOCUMENTED_MS = 2**62 - 2**9
# The validator comes last, as in `bodies.base`.
TimestampMs = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_TIMESTAMP_MS,
        json_schema_extra=documented(maximum=_MAX_DOCUMENTED_MS),
    ),
    BeforeValidator(integral),
]

AcksWord = Literal["all", "leader", "none"]
EncodingWord = Literal["json", "text", "base64"]
OnDamageWord = Literal["raise", "skip"]

ACKS = {"all": Acks.ALL, "leader": Acks.LEADER, "none": Acks.NONE}
_ENCODING_HELP = "json: any JSON value; text: a string; base64: bytes"
_STORED_ENCODING = "text; base64 if the bytes are not UTF-8"


class HeaderToProduce(RequestBody):
    key: str = Field(max_length=1_000)
    value: str
    value_encoding: Literal["text", "base64"] = "text"


class RecordToProduce(RequestBody):
    """A record to write.

    A record that was read can be written again without changes, except that `topic` and `offset`
    have to be removed.
    """

    key: Any = Field(default=None, description="null: no key; any partition is chosen")
    key_encoding: EncodingWord = Field(default="text", description=_ENCODING_HELP)
    value: Any = Field(default=None, description="null: no value")
    value_encoding: EncodingWord | None = Field(
        default=None, description=f"default: `encoding` of the request. {_ENCODING_HELP}"
    )
    headers: list[HeaderToProduce] = Field(default_factory=list, max_length=MAX_HEADERS)
    partition: PartitionNumber | None = Field(
        default=None, description="default: chosen by the key; without a key any partition"
    )
    timestamp_ms: TimestampMs | None = Field(
        default=None,
        description="milliseconds since 1970; default: now",
        examples=[1_767_225_600_000],
    )


class ProduceRequest(RequestBody):
    model_config = example(
        records=[
            {"key": "north", "value": {"tide": "ebb"}},
            {"value": "calm", "value_encoding": "text", "partition": 0},
        ],
        acks="all",
    )

    records: list[RecordToProduce] = Field(min_length=1, max_length=MAX_RECORDS)
    acks: AcksWord = Field(
        default="all",
        description="when a record counts as written. all: all in-sync replicas have it; leader: "
        "the leader has it; none: it was sent (the offset is then not known)",
    )
    encoding: EncodingWord = Field(
        default="json", description=f"encoding of values without `value_encoding`. {_ENCODING_HELP}"
    )


class RecordResult(AnswerBody):
    partition: int | None = Field(description="null: the record is not known to be written")
    offset: int | None = Field(description="null: not known")
    timestamp_ms: int | None = Field(
        description="timestamp of the record, in milliseconds since 1970; null: not known"
    )
    error: Failure | None = Field(description="null: the record is written")


class ProduceResults(AnswerBody):
    """One result for each record, in the order of the request."""

    model_config = example(
        topic="sea",
        results=[{"partition": 0, "offset": 17, "timestamp_ms": 1_767_225_600_000, "error": None}],
    )

    topic: str
    results: list[RecordResult]


class Header(AnswerBody):
    key: str
    value: str
    value_encoding: str = Field(description=_STORED_ENCODING)


class ReadRecord(AnswerBody):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int = Field(description="milliseconds since 1970")
    key: Any = Field(description="null: no key")
    key_encoding: str = Field(description=_STORED_ENCODING)
    value: Any = Field(description="null: no value")
    value_encoding: str = Field(
        description="the requested encoding, or the next of json, text and base64 that is possible"
    )
    headers: list[Header]


class DamagedRange(DamagedOffsets):
    """Offsets of records that were damaged on the last disk that held them."""


class RecordPage(AnswerBody):
    model_config = example(
        items=[
            {
                "topic": "sea",
                "partition": 0,
                "offset": 17,
                "timestamp_ms": 1_767_225_600_000,
                "key": "north",
                "key_encoding": "text",
                "value": {"tide": "ebb"},
                "value_encoding": "json",
                "headers": [{"key": "source", "value": "buoy 7", "value_encoding": "text"}],
            }
        ],
        next_offset=18,
        log_start_offset=0,
        end_offset=18,
        damaged=[],
    )

    items: list[ReadRecord]
    next_offset: int = Field(description="offset to continue from")
    log_start_offset: int = Field(description="offset of the oldest record in the partition")
    end_offset: int = Field(description="one past the last committed record when the read began")
    damaged: list[DamagedRange] = Field(description="records that on_damage=skip left out")


class RecordToSend(NamedTuple):
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None


def records_to_send(request: ProduceRequest) -> tuple[list[RecordToSend], list[FieldError]]:
    """Returns the encoded records. If some values cannot be encoded, returns only those values."""
    encoded: list[RecordToSend] = []
    wrong: list[FieldError] = []
    for index, record in enumerate(request.records):
        at = f"records[{index}]"
        parts: dict[str, bytes | None] = {}
        value_encoding = record.value_encoding or request.encoding
        named = [("key", record.key, record.key_encoding), ("value", record.value, value_encoding)]
        named += [
            (f"headers[{number}].value", header.value, header.value_encoding)
            for number, header in enumerate(record.headers)
        ]
        for name, value, encoding in named:
            try:
                parts[name] = to_bytes(value, Encoding(encoding))
            except WrongEncodingError as error:
                wrong.append(FieldError(field=f"{at}.{name}", message=str(error)))
        if not wrong:
            headers = tuple(
                (header.key, parts[f"headers[{number}].value"] or b"")
                for number, header in enumerate(record.headers)
            )
            encoded.append(
                RecordToSend(
                    parts["value"], parts["key"], record.partition, headers, record.timestamp_ms
                )
            )
    return ([] if wrong else encoded), wrong


async def produce_results(
    topic: str, outcomes: Sequence[Delivery | TidelogError]
) -> ProduceResults:
    return ProduceResults(topic=topic, results=await map_yielding(_result, outcomes))


def _result(outcome: Delivery | TidelogError) -> RecordResult:
    if isinstance(outcome, TidelogError):
        return RecordResult(
            partition=None, offset=None, timestamp_ms=None, error=failure_of(outcome)
        )
    offset = None if outcome.offset == NO_OFFSET else outcome.offset
    return RecordResult.of(outcome, offset=offset, error=None)


async def read_records(records: Iterable[Record], encoding: Encoding) -> list[ReadRecord]:
    """Returns the bodies of the records.

    Values are shown as JSON until together they have MAX_PAGE_ENTRIES entries; further values are
    shown as text. Yields to the event loop after every ITEMS_PER_SLICE units of work.
    """
    read: list[ReadRecord] = []
    entries = work = 0
    for record in records:
        chosen = encoding
        if encoding is Encoding.JSON and record.value is not None:
            entries += entries_in(record.value, MAX_PAGE_ENTRIES - entries)
            if entries > MAX_PAGE_ENTRIES:
                chosen = Encoding.TEXT
        read.append(_read_record(record, chosen))
        work += 1 + len(record.headers) + len(record.value or b"") // BYTES_PER_ITEM
        if work >= ITEMS_PER_SLICE:
            work = 0
            await asyncio.sleep(0)
    return read


def _read_record(record: Record, encoding: Encoding) -> ReadRecord:
    # Keys are shown as text: one that resembles a number is a name, not JSON.
    key_encoding = Encoding.BASE64 if encoding is Encoding.BASE64 else Encoding.TEXT
    key = from_bytes(record.key, key_encoding)
    value = from_bytes(record.value, encoding)
    headers = [(name, from_bytes(header, Encoding.TEXT)) for name, header in record.headers]
    return ReadRecord.of(
        record,
        key=key.value,
        key_encoding=key.encoding,
        value=value.value,
        value_encoding=value.encoding,
        headers=[
            Header(key=name, value=header.value, value_encoding=header.encoding)
            for name, header in headers
        ],
    )
