"""Bodies of records that scripts without gRPC write and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from tidelog.client.delivery import Delivery
from tidelog.errors import TidelogError
from tidelog.model import NO_OFFSET, Acks, Record
from tidelog_admin_api.bodies.base import (
    AnswerBody,
    PartitionNumber,
    RequestBody,
    documented,
    whole,
)
from tidelog_admin_api.bodies.problem import Failure, failure_of
from tidelog_admin_api.entry_counter import entries_in
from tidelog_admin_api.record_encoding import Encoding, WrongEncodingError, from_bytes, to_bytes
from tidelog_runtime.cooperative import ITEMS_PER_SLICE, map_yielding

# Bytes of a value that cost as much to convert as one more record.
BYTES_PER_ITEM = 16 << 10
MAX_RECORDS = 1_000
# JSON entries in the values of one page, all records together. Values beyond are shown as text.
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
    BeforeValidator(whole),
]

AcksWord = Literal["all", "leader", "none"]
EncodingWord = Literal["json", "text", "base64"]
OnDamageWord = Literal["raise", "skip"]

ACKS = {"all": Acks.ALL, "leader": Acks.LEADER, "none": Acks.NONE}
_ENCODING_HELP = "json: any JSON value; text: a string; base64: bytes"
_RECORD: JsonDict = {
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


class HeaderToProduce(RequestBody):
    key: str = Field(max_length=1_000)
    value: str
    value_encoding: Literal["text", "base64"] = "text"


class RecordToProduce(RequestBody):
    """A record to write.

    A record that was read can be sent as it is, without its topic and offset.
    """

    key: Any = Field(default=None, description="null: none, and the partition is chosen freely")
    key_encoding: EncodingWord = Field(default="text", description=_ENCODING_HELP)
    value: Any = Field(default=None, description="null: none; it deletes its key where compacted")
    value_encoding: EncodingWord | None = Field(
        default=None, description=f"default: the request's `encoding`. {_ENCODING_HELP}"
    )
    headers: list[HeaderToProduce] = Field(default_factory=list, max_length=MAX_HEADERS)
    partition: PartitionNumber | None = Field(
        default=None, description="default: by the key, else any"
    )
    timestamp_ms: TimestampMs | None = Field(
        default=None,
        description="milliseconds since 1970; default: now",
        examples=[1_767_225_600_000],
    )


class ProduceRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "records": [
                        {"key": "north", "value": {"tide": "ebb"}},
                        {"value": "calm", "value_encoding": "text", "partition": 0},
                    ],
                    "acks": "all",
                }
            ]
        }
    )

    records: list[RecordToProduce] = Field(min_length=1, max_length=MAX_RECORDS)
    acks: AcksWord = Field(
        default="all",
        description="when a record counts as written: all in-sync replicas have it, the leader "
        "has it, or nobody is asked (then its offset is not known)",
    )
    encoding: EncodingWord = Field(
        default="json", description=f"of values that do not name their own. {_ENCODING_HELP}"
    )


class RecordResult(AnswerBody):
    partition: int | None = Field(description="null: it is not known to be anywhere")
    offset: int | None = Field(description="null: it is not known")
    timestamp_ms: int | None = Field(description="the record's own, milliseconds since 1970")
    error: Failure | None = Field(description="null: it is written")


class ProduceResults(AnswerBody):
    """One result for each record, in the order of the request."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topic": "sea",
                    "results": [
                        {
                            "partition": 0,
                            "offset": 17,
                            "timestamp_ms": 1_767_225_600_000,
                            "error": None,
                        }
                    ],
                }
            ]
        }
    )

    topic: str
    results: list[RecordResult]

    @property
    def failed(self) -> int:
        return sum(result.error is not None for result in self.results)


class Header(AnswerBody):
    key: str
    value: str
    value_encoding: str = Field(description="text, or base64 for what is no UTF-8")


class ReadRecord(AnswerBody):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int = Field(description="milliseconds since 1970")
    key: Any = Field(description="null: none")
    key_encoding: str = Field(description="text, or base64 for what is no UTF-8")
    value: Any = Field(description="null: none")
    value_encoding: str = Field(
        description="json, text or base64: the one asked for, or the next that can hold it"
    )
    headers: list[Header]


class DamagedRange(AnswerBody):
    """Offsets of records that were damaged on the last disk that held them."""

    first_offset: int = Field(description="of the first of them")
    next_offset: int = Field(description="one past the last of them: read on from there")


class RecordPage(AnswerBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [_RECORD],
                    "next_offset": 18,
                    "log_start_offset": 0,
                    "end_offset": 18,
                    "damaged": [],
                }
            ]
        }
    )

    items: list[ReadRecord]
    next_offset: int = Field(description="where to read on")
    log_start_offset: int = Field(description="of the oldest record that there is")
    end_offset: int = Field(description="one past the last committed record, when asked")
    damaged: list[DamagedRange] = Field(description="what on_damage=skip has left out")


class RecordToSend(NamedTuple):
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None


class WrongRecord(NamedTuple):
    """A value that cannot be encoded.

    - `field`: its path, such as records[3].value
    """

    field: str
    message: str


def records_to_send(request: ProduceRequest) -> tuple[list[RecordToSend], list[WrongRecord]]:
    """Returns all records encoded, or no record and every value that cannot be encoded."""
    sound: list[RecordToSend] = []
    wrong: list[WrongRecord] = []
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
                wrong.append(WrongRecord(f"{at}.{name}", str(error)))
        if not wrong:
            headers = tuple(
                (header.key, parts[f"headers[{number}].value"] or b"")
                for number, header in enumerate(record.headers)
            )
            sound.append(
                RecordToSend(
                    parts["value"], parts["key"], record.partition, headers, record.timestamp_ms
                )
            )
    return ([] if wrong else sound), wrong


async def produce_results(
    topic: str, outcomes: Sequence[Delivery | TidelogError]
) -> ProduceResults:
    return ProduceResults(topic=topic, results=await map_yielding(_result, outcomes))


def _result(outcome: Delivery | TidelogError) -> RecordResult:
    if isinstance(outcome, TidelogError):
        return RecordResult(
            partition=None, offset=None, timestamp_ms=None, error=failure_of(outcome)
        )
    return RecordResult(
        partition=outcome.partition,
        offset=None if outcome.offset == NO_OFFSET else outcome.offset,
        timestamp_ms=outcome.timestamp_ms,
        error=None,
    )


async def read_records(records: Iterable[Record], encoding: Encoding) -> list[ReadRecord]:
    """Returns the bodies of the records.

    Values are shown as JSON until they have MAX_PAGE_ENTRIES entries in all; values beyond are
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
    return ReadRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=key.value,
        key_encoding=key.encoding,
        value=value.value,
        value_encoding=value.encoding,
        headers=[
            Header(key=name, value=header.value, value_encoding=header.encoding)
            for name, header in headers
        ],
    )
