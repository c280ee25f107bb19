"""Functions for `key_serializer`, `value_serializer` and their counterparts of consumers.

    with SyncProducer("127.0.0.1:7500", value_serializer=serializers.to_json) as producer:
        producer.send("sea", {"wave_m": 2.5}, key=b"north")

    with SyncConsumer("127.0.0.1:7500", value_deserializer=serializers.from_json) as consumer:
        consumer.assign_topic("sea")
        print(consumer.poll(timeout_ms=1000)[0].value)

Any function from a value to bytes, or from bytes to a value, is a serializer. It runs on the event
loop, so it must not wait for anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

_Message = TypeVar("_Message", bound=Message)


def to_json(value: Any) -> bytes:
    """Returns JSON in UTF-8 without spaces. Raises ValueError for numbers that JSON does not have
    (NaN, infinity), TypeError for other values without a JSON form."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def from_json(content: bytes) -> Any:
    """Raises ValueError if the content is no JSON in UTF-8."""
    return json.loads(content.decode())


def to_text(value: str) -> bytes:
    """Returns text in UTF-8."""
    return value.encode()


def from_text(content: bytes) -> str:
    """Raises ValueError if the content is no text in UTF-8."""
    return content.decode()


def to_protobuf(message: type[_Message]) -> Callable[[_Message], bytes]:
    """Returns a serializer of messages of this class, which raises TypeError for others."""

    def serialize(value: _Message) -> bytes:
        if not isinstance(value, message):
            raise TypeError(f"{type(value).__name__} is no {message.DESCRIPTOR.full_name}")
        return value.SerializeToString()

    return serialize


def from_protobuf(message: type[_Message]) -> Callable[[bytes], _Message]:
    """Returns a deserializer to messages of this class, which raises protobuf's DecodeError. Bytes
    of another class may pass, because protobuf does not name the class in them."""

    def deserialize(content: bytes) -> _Message:
        return message.FromString(content)

    return deserialize
