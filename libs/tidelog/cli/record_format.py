"""Records as `consume` writes them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tidelog.cli.output import bytes_fields, json_line, timestamp_text
from tidelog.model import Record


class RecordFormat(enum.StrEnum):
    """value: one value a line; raw: the values' bytes and nothing else; json: one JSON
    document a line."""

    VALUE = "value"
    RAW = "raw"
    JSON = "json"


def record_document(record: Record) -> dict[str, Any]:
    """Bytes that are not UTF-8 as base64, said by a field `…_encoding` beside them."""
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
    """A null key or value is empty in `value` and `raw`."""
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
