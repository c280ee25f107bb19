"""Formats records for `consume`. Pure functions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tidelog.cli.output import bytes_fields, json_line, shown_bytes, timestamp_text
from tidelog.cli.record_decoding import ValueDecoding
from tidelog.model import Record


class RecordFormat(enum.StrEnum):
    """Formats of `consume`.

    - value: one value a line.
    - raw: only the bytes of the values.
    - json: one JSON document a line.
    - detail: one line a record, with its place, time, key, value and headers. Keys and values are
      cut after `output.MAX_SHOWN_CHARACTERS`.
    """

    VALUE = "value"
    RAW = "raw"
    JSON = "json"
    DETAIL = "detail"


def record_document(record: Record, decoding: ValueDecoding | None = None) -> dict[str, Any]:
    """Returns a record as a document, which `produce --format json` accepts. Bytes that are not
    UTF-8 are in base64, with a field `…_encoding`."""
    value = bytes_fields("value", record.value) if decoding is None else decoding.fields(record)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        **bytes_fields("key", record.key),
        **value,
        "headers": [
            {"key": name, **bytes_fields("value", value)} for name, value in record.headers
        ],
    }


def format_records(
    records: Sequence[Record],
    record_format: RecordFormat,
    key_separator: bytes | None = None,
    decoding: ValueDecoding | None = None,
) -> bytes:
    """Formats records. A null key or value is empty in the formats `value` and `raw`."""
    if record_format is RecordFormat.JSON:
        return _lines([json_line(record_document(r, decoding)).encode() for r in records])
    if decoding is not None:
        records = [decoding.shown(record) for record in records]
    if record_format is RecordFormat.RAW:
        return b"".join([record.value or b"" for record in records])
    if record_format is RecordFormat.DETAIL:
        return _lines([_detail(record).encode() for record in records])
    if key_separator is None:
        return _lines([record.value or b"" for record in records])
    return _lines([(r.key or b"") + key_separator + (r.value or b"") for r in records])


def _lines(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""])


def _detail(record: Record) -> str:
    headers = "".join(f"  {name}={shown_bytes(value)}" for name, value in record.headers)
    return (
        f"{record.topic}/{record.partition}  {record.offset}  "
        f"{timestamp_text(record.timestamp_ms)}  {shown_bytes(record.key)}  "
        f"{shown_bytes(record.value)}{headers}"
    )
