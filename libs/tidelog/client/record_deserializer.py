"""Deserializes the keys and values of a consumer's records. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.client.arguments import shown
from tidelog.errors import ErrorCode, InvalidBatchError
from tidelog.model import Record, TopicPartition

Deserializer = Callable[[bytes], Any]


class DeserializationError(InvalidBatchError):
    """A deserializer of the consumer failed (code INVALID_BATCH); its exception is the cause.

    The position stays at the record. Each `poll` that finds no other records raises the error
    again, until the caller seeks: `consumer.seek(error.partition, error.offset + 1)` skips it.

    - `field`: "key" or "value".
    - `record`: the record with the bytes of key and value, for example for a topic of rejected
      records."""

    def __init__(self, field: str, record: Record, cause: Exception) -> None:
        partition = TopicPartition(record.topic, record.partition)
        super().__init__(
            ErrorCode.INVALID_BATCH,
            f"the {field} of the record at offset {record.offset} of {partition} cannot be "
            f"deserialized: {type(cause).__name__}: {shown(str(cause))}; seek to offset "
            f"{record.offset + 1} to skip it, or correct {field}_deserializer",
        )
        self.field = field
        self.record = record
        self.partition = partition
        self.offset = record.offset

    @property
    def topic(self) -> str:
        return self.partition.topic


class RecordDeserializer:
    """The deserializers of one consumer; null keys and values stay None."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def deserialize(self, records: list[Record]) -> list[Record]:
        """Returns the records before the first one that fails. Raises `DeserializationError` if
        that is the first of all."""
        made: list[Record] = []
        for record in records:
            try:
                made.append(self._deserialized(record))
            except DeserializationError:
                if not made:
                    raise
                # It is raised once this record is the next one.
                break
        return made

    def _deserialized(self, record: Record) -> Record:
        key, value = record.key, record.value
        if self._key is not None and key is not None:
            key = _called(self._key, key, "key", record)
        if self._value is not None and value is not None:
            value = _called(self._value, value, "value", record)
        return record._replace(key=key, value=value)


def record_deserializer(
    key: Deserializer | None, value: Deserializer | None
) -> RecordDeserializer | None:
    """Returns None if there is nothing to deserialize, so that reading costs nothing more."""
    return None if key is None and value is None else RecordDeserializer(key, value)


def _called(deserializer: Deserializer, content: bytes, field: str, record: Record) -> Any:
    try:
        return deserializer(content)
    except Exception as error:
        raise DeserializationError(field, record, error) from error
