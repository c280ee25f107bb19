"""Serializes the keys and values that a producer sends, at the call. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.client.arguments import shown
from tidelog.errors import ArgumentTypeError, InvalidArgumentError

Serializer = Callable[[Any], bytes | None]

BYTES_OR_NONE = frozenset({bytes, type(None)})


class SerializationError(InvalidArgumentError):
    """A serializer of the producer failed, or returned no bytes. Nothing of the call was sent.

    - `field`: "key" or "value".
    - `index`: position of the record in the columns of `send_many`; None: of `send`."""

    def __init__(self, field: str, topic: str, problem: str, index: int | None = None) -> None:
        place = "" if index is None else f" at index {index}"
        super().__init__(
            f"the {field}{place} for topic {topic} cannot be serialized: {problem}; correct the "
            f"{field}, or {field}_serializer"
        )
        self.field = field
        self.topic = topic
        self.index = index


class RecordSerializer:
    """The serializers of one producer; None: keys or values are bytes already. A key or a value
    that is None stays null.

    `sendable_type`: what has exactly this type needs no call of `key_and_value`."""

    def __init__(self, key: Serializer | None, value: Serializer | None) -> None:
        self._serializers = {"key": key, "value": value}
        self.sendable_type: type | None = bytes if key is None and value is None else None

    def key_and_value(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Returns the bytes to send. Raises `SerializationError`, and `ArgumentTypeError` for
        what is neither bytes nor None and has no serializer."""
        value = self._serialize("value", topic, value)
        key = self._serialize("key", topic, key)
        check_content("value", value)
        check_content("key", key)
        return key, value

    def column(self, field: str, topic: str, column: Sequence[Any], first: int) -> Sequence[Any]:
        """Returns a slice of a column, serialized. `first`: its position in the column."""
        if self._serializers[field] is None:
            return column
        return [
            self._serialize(field, topic, item, index) for index, item in enumerate(column, first)
        ]

    def _serialize(self, field: str, topic: str, content: Any, index: int | None = None) -> Any:
        serializer = self._serializers[field]
        if serializer is None or content is None:
            return content
        try:
            made = serializer(content)
        except Exception as error:
            problem = f"{type(error).__name__}: {shown(str(error))}"
            raise SerializationError(field, topic, problem, index) from error
        if made is not None and type(made) is not bytes:
            problem = f"the serializer returned {type(made).__name__} instead of bytes"
            raise SerializationError(field, topic, problem, index)
        return made


def check_content(name: str, content: object) -> None:
    """Raises `ArgumentTypeError` for a key or a value that is neither bytes nor None."""
    if type(content) not in BYTES_OR_NONE:
        raise ArgumentTypeError(
            f"{name} is {type(content).__name__}; it must be bytes or None "
            "(encode text first, as in text.encode(), or set a serializer)"
        )
