"""Bodies of records that scripts write and read without gRPC."""

from __future__ import annotations

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
from tidelog_admin_api.entry_counter import counting_entries
from tidelog_admin_api.record_encoding import (
    Encoding,
    WrongEncodingError,
    decoding,
    from_bytes,
    to_bytes,
)
from tidelog_runtime.cooperative import TimeSlices, map_yielding

MAX_RECORDS = 1_000
# JSON entries of all values on one page. Further values are shown as text.
MAX_PAGE_ENTRIES = 20_000
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


RECORD_EXAMPLE: dict[str, Any] = {
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


class ReadRecord(AnswerBody):
    model_config = example(**RECORD_EXAMPLE)

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
        items=[RECORD_EXAMPLE],
        first_offset=17,
        next_offset=18,
        previous="/v1/topics/sea/partitions/0/records?max_records=1&before_offset=17",
        next=None,
        log_start_offset=0,
        end_offset=18,
        damaged=[],
    )

    items: list[ReadRecord]
    first_offset: int = Field(
        description="the page has the selected records from this offset up to `next_offset`"
    )
    next_offset: int = Field(description="offset to continue from")
    previous: str | None = Field(
        description="path of the page before this one; null: the partition has no older records"
    )
    next: str | None = Field(
        description="path of the page after this one; null: it had no newer records yet"
    )
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


async def page_json(page: RecordPage, records: Iterable[Record], encoding: Encoding) -> bytes:
    """Returns the JSON of the page with the records as its items.

    One record at a time becomes JSON, so that a page of many headers or entries holds the event
    loop no longer than a small one.

    - `page`: has no items
    """
    slices = TimeSlices()
    items: list[bytes] = []
    for record in await read_records(records, encoding, slices):
        items.append(record.to_json())
        await slices.checkpoint()
    # The items are the first field.
    before, empty, after = page.to_json().partition(b"[]")
    return b"".join((before, empty[:1], b",".join(items), empty[1:], after))


async def read_records(
    records: Iterable[Record], encoding: Encoding, slices: TimeSlices
) -> list[ReadRecord]:
    """Returns the bodies of the records.

    Values are shown as JSON until together they have MAX_PAGE_ENTRIES entries; further values are
    shown as text.
    """
    read: list[ReadRecord] = []
    entries = 0
    for record in records:
        chosen = encoding
        if encoding is Encoding.JSON and record.value is not None:
            counting = counting_entries(record.value, MAX_PAGE_ENTRIES - entries)
            entries += await slices.run(counting)
            if entries > MAX_PAGE_ENTRIES:
                chosen = Encoding.TEXT
        read.append(await _read_record(record, chosen, slices))
        await slices.checkpoint()
    return read


async def _read_record(record: Record, encoding: Encoding, slices: TimeSlices) -> ReadRecord:
    # Keys are shown as text: one that resembles a number is a name, not JSON.
    key_encoding = Encoding.BASE64 if encoding is Encoding.BASE64 else Encoding.TEXT
    key = from_bytes(record.key, key_encoding)
    value = await slices.run(decoding(record.value, encoding))
    headers: list[Header] = []
    for name, data in record.headers:
        header = from_bytes(data, Encoding.TEXT)
        headers.append(Header(key=name, value=header.value, value_encoding=header.encoding))
        await slices.checkpoint()
    return ReadRecord.of(
        record,
        key=key.value,
        key_encoding=key.encoding,
        value=value.value,
        value_encoding=value.encoding,
        headers=headers,
    )
