"""How `consume --decode` shows values. Pure functions, except that `protobuf:` reads its file."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.cli.output import bytes_fields, json_line
from tidelog.model import Record
from tidelog.phrases import plural

DECODE_FORMS = "utf8, json, hex, base64 or protobuf:FILE:MESSAGE, as protobuf:sea.desc:sea.Tide"
_PROTOBUF = "protobuf:"


class UndecodableError(ValueError):
    """A value is not in the stated encoding; the message has the reason."""


class Decoded(NamedTuple):
    """A decoded value as JSON, and the name of its encoding; empty: text."""

    value: Any
    encoding: str

    def as_text(self) -> str:
        is_text = isinstance(self.value, str) and self.encoding not in ("json", "protobuf")
        return self.value if is_text else json_line(self.value)


Decoder = Callable[[bytes], Decoded]


def parse_decoder(text: str) -> Decoder:
    """Raises ValueError, also for a descriptor file that cannot be used."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    if text.startswith(_PROTOBUF):
        path, colon, message = text.removeprefix(_PROTOBUF).rpartition(":")
        if colon and path and message:
            # Imports protobuf, which other commands do not need.
            from tidelog.cli.protobuf_values import message_decoder

            decode = message_decoder(path, message)
            return lambda data: Decoded(decode(data), "protobuf")
    raise ValueError(f"{text!r} is not an encoding; give {DECODE_FORMS}")


@dataclass(slots=True)
class ValueDecoding:
    """Decodes the values that are shown, and counts those that cannot be: they are shown as without
    `--decode`."""

    name: str
    decode: Decoder
    failures: int = 0
    first_failure: str = field(default="")

    def search_text(self, data: bytes) -> str:
        """Returns the text that `--grep` searches."""
        try:
            return self.decode(data).as_text()
        except UndecodableError:
            return data.decode("utf-8", "replace")

    def decoded(self, record: Record) -> Decoded | None:
        """Returns the value; None: it has none, or cannot be decoded."""
        if record.value is None:
            return None
        try:
            return self.decode(record.value)
        except UndecodableError as error:
            self.failures += 1
            if not self.first_failure:
                place = f"{record.topic}/{record.partition} offset {record.offset}"
                self.first_failure = f"{place}: {error}"
            return None

    def fields(self, record: Record) -> dict[str, Any]:
        """Returns the fields `value` and `value_encoding` of a document."""
        found = self.decoded(record)
        if found is None:
            return bytes_fields("value", record.value)
        named = {"value_encoding": found.encoding} if found.encoding else {}
        return {"value": found.value, **named}

    def shown(self, record: Record) -> Record:
        """Returns the record with the text of its value in place of the value."""
        found = self.decoded(record)
        return record if found is None else record._replace(value=found.as_text().encode())

    def report(self) -> str:
        """Returns a sentence about values that could not be decoded; empty if all could."""
        if not self.failures:
            return ""
        count = plural(self.failures, "value")
        return (
            f"{count} could not be decoded as {self.name}, and shown as without --decode; the "
            f"first: {self.first_failure}"
        )


def _utf8(data: bytes) -> Decoded:
    try:
        return Decoded(data.decode(), "")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"byte {error.start} is not UTF-8") from None


def _json(data: bytes) -> Decoded:
    """A JSON `null` would mean that there is no value, so it stays text."""
    try:
        value = json.loads(data.decode(), parse_constant=_reject_constant)
        # Numbers beyond floats, and halves of surrogate pairs, cannot be written again.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"it is not JSON ({error})") from None
    return Decoded("null", "") if value is None else Decoded(value, "json")


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON value")


_SIMPLE: dict[str, Decoder] = {
    "utf8": _utf8,
    "json": _json,
    "hex": lambda data: Decoded(data.hex(), "hex"),
    "base64": lambda data: Decoded(base64.b64encode(data).decode(), "base64"),
}
