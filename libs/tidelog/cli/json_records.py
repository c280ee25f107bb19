"""Records as JSON lines, for `produce --format json`: what `consume --format json` writes, and what
people write by hand. Pure functions."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.cli.lines import MAX_LINE_BYTES, Line, LineError, LineRecord
from tidelog.cli.output import json_line
from tidelog.errors import TidelogError
from tidelog.model import MAX_INT32
from tidelog.record_limits import check_header_count, check_header_names

# The escape \u0000 has six characters for a byte of a value; key and headers need some room.
MAX_JSON_LINE_BYTES = 7 * MAX_LINE_BYTES
# The highest timestamp that a batch can hold.
MAX_TIMESTAMP_MS = 2**62 - 1
FORM = '{"key":"north","value":"calm","headers":{"from":"buoy 7"},"partition":0}'

_PLACES = ("topic", "offset", "timestamp")
_CONTENTS = ("key", "key_encoding", "key_base64", "value", "value_encoding", "value_base64")
# `consume` writes the first three; they are not part of a new record.
_FIELDS = (*_PLACES, *_CONTENTS, "headers", "partition", "timestamp_ms")
_HEADER_FIELDS = ("key", "value", "value_encoding", "value_base64")


class JsonRecords(NamedTuple):
    """Parses lines for a topic.

    - `partition_count`: partitions of the topic.
    - `ignore_partitions`: whether the key chooses the partition even if a line names one.
    """

    partition_count: int
    ignore_partitions: bool = False

    def parse(self, line: Line) -> LineRecord:
        """Raises `LineError`."""
        document = _document(line)
        _check_fields(document, _FIELDS, "")
        if "value" not in document and "value_base64" not in document:
            raise LineError("has no value; give value or value_base64, or value null for none")
        return LineRecord(
            _content(document, "key", ""),
            _content(document, "value", ""),
            _headers(document.get("headers")),
            self._partition(document.get("partition")),
            _timestamp_ms(document.get("timestamp_ms")),
        )

    def _partition(self, partition: Any) -> int | None:
        if partition is None:
            return None
        _check_integer("partition", partition, MAX_INT32)
        if self.ignore_partitions:
            return None
        if partition >= self.partition_count:
            raise LineError(
                f"names partition {partition}; the topic's partitions are 0 to "
                f"{self.partition_count - 1}; correct it, or give --ignore-partitions"
            )
        return int(partition)


def _document(line: Line) -> dict[str, Any]:
    if line.data is None:
        raise LineError(f"longer than {MAX_JSON_LINE_BYTES:,} bytes, which no record needs")
    if not line.data.strip():
        raise LineError("is empty; leave out empty lines")
    try:
        document = json.loads(line.data)
    except UnicodeDecodeError as error:
        raise LineError(f"is not UTF-8 at byte {error.start}; give bytes as value_base64") from None
    except json.JSONDecodeError as error:
        raise LineError(
            f"is not JSON ({error.msg} at column {error.colno}); give an object as {FORM}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise LineError(f"is not JSON ({error}); give an object as {FORM}") from None
    if not isinstance(document, dict):
        raise LineError(f"is not a JSON object; give one as {FORM}")
    return document


def _check_fields(document: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = next((name for name in document if name not in known), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(known)}"
        raise LineError(f"{where}has an unknown field {unknown[:80]!r}; {hint}")


def _content(document: dict[str, Any], name: str, where: str) -> bytes | None:
    """Returns the bytes of a field that is text, JSON, or in a stated encoding."""
    content, encoding = document.get(name), document.get(f"{name}_encoding")
    field = where + name
    in_base64 = document.get(f"{name}_base64")
    if in_base64 is not None:
        if content is not None:
            raise LineError(f"has both {field} and {field}_base64; give one of them")
        return _from_base64(f"{field}_base64", in_base64)
    if content is None:
        return None
    if encoding is None:
        return _utf8(field, content if isinstance(content, str) else _json_text(field, content))
    if encoding == "json":
        return _utf8(field, _json_text(field, content))
    if encoding not in _FROM_TEXT:
        raise LineError(
            f"{field}_encoding is {str(encoding)[:80]!r}; give one of text, json, base64 or hex"
        )
    return _FROM_TEXT[encoding](field, content)


def _text(field: str, content: Any) -> bytes:
    if not isinstance(content, str):
        raise LineError(f"{field} is not a string; give one, or {field}_encoding json")
    return _utf8(field, content)


def _from_base64(field: str, content: Any) -> bytes:
    try:
        return base64.b64decode(_ascii(content), validate=True)
    except (binascii.Error, ValueError) as error:
        raise LineError(
            f"{field} is not base64 ({error}); give A-Z, a-z, 0-9, +, / and ="
        ) from None


def _from_hex(field: str, content: Any) -> bytes:
    try:
        return bytes.fromhex(_ascii(content))
    except ValueError:
        raise LineError(f"{field} is not hexadecimal; give two of 0-9 and a-f a byte") from None


_FROM_TEXT: dict[str, Callable[[str, Any], bytes]] = {
    "text": _text,
    "base64": _from_base64,
    "hex": _from_hex,
}


def _ascii(content: Any) -> str:
    if not isinstance(content, str) or not content.isascii():
        raise ValueError("it is no string of ASCII characters")
    return content


def _json_text(field: str, content: Any) -> str:
    try:
        json.dumps(content, allow_nan=False)
        return json_line(content)
    except (ValueError, RecursionError):
        raise LineError(f"{field} has NaN, an infinity or too deep nesting; give text") from None


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LineError(
            f"character {error.start} of {field} is half of a surrogate pair; give bytes as "
            f"{field}_base64"
        ) from None


def _headers(headers: Any) -> tuple[tuple[str, bytes], ...]:
    """Accepts an object of texts, or a list of `{"key": …, "value": …}`, which may repeat a key."""
    if not headers:
        if headers in (None, [], {}):
            return ()
        raise LineError('headers is neither an object, as {"from":"buoy 7"}, nor a list')
    if isinstance(headers, dict):
        found = tuple((name, _text("headers." + name, value)) for name, value in headers.items())
    elif isinstance(headers, list):
        found = tuple(_header(number, header) for number, header in enumerate(headers))
    else:
        raise LineError('headers is neither an object, as {"from":"buoy 7"}, nor a list')
    try:
        check_header_count(len(found))
        check_header_names(len(_utf8("the name of a header", name)) for name, _ in found)
    except TidelogError as error:
        raise LineError(error.message) from None
    return found


def _header(number: int, header: Any) -> tuple[str, bytes]:
    where = f"headers[{number}]"
    if not isinstance(header, dict) or not isinstance(header.get("key"), str):
        raise LineError(f'{where} is not an object as {{"key":"from","value":"buoy 7"}}')
    _check_fields(header, _HEADER_FIELDS, f"{where} ")
    value = _content(header, "value", f"{where}.")
    if value is None:
        raise LineError(f"{where} has no value; give value or value_base64")
    return header["key"], value


def _timestamp_ms(timestamp_ms: Any) -> int | None:
    if timestamp_ms is None:
        return None
    _check_integer("timestamp_ms", timestamp_ms, MAX_TIMESTAMP_MS)
    return int(timestamp_ms)


def _check_integer(field: str, number: Any, most: int) -> None:
    if type(number) is not int or not 0 <= number <= most:
        raise LineError(f"{field} is {str(number)[:80]!r}; give an integer from 0 to {most}")
