"""Formats records for `consume`. Pure functions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tidelog.cli.output import bytes_fields, json_line, timestamp_text
from tidelog.model import Record


class RecordFormat(enum.StrEnum):
    """Formats of `consume`.

    - value: one value a line.
    - raw: only the bytes of the values.
    - json: one JSON document a line.
    """

    VALUE = "value"
    RAW = "raw"
    JSON = "json"


def record_document(record: Record) -> dict[str, Any]:
    """Returns a record as a document. Bytes that are not UTF-8 are in base64, with a field
    `…_encoding`."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp_text(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
        **bytes_fields("key", record.key),
        **bytes_fields("value", record.value),
        "headers": [
            {"key": name, **bytes_fields("value", value)} for name, value in record.headers
        ],
    }


def format_records(
    records: Sequence[Record], record_format: RecordFormat, key_separator: bytes | None = None
) -> bytes:
    """Formats records. A null key or value is empty in the formats `value` and `raw`."""
    if record_format is RecordFormat.RAW:
        return b"".join([record.value or b"" for record in records])
    if record_format is RecordFormat.JSON:
        lines = [json_line(record_document(record)).encode() for record in records]
    elif key_separator is None:
        lines = [record.value or b"" for record in records]
    else:
        lines = [(record.key or b"") + key_separator + (record.value or b"") for record in records]
    lines.append(b"")
    return b"\n".join(lines)
