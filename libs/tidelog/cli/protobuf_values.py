"""Decodes Protobuf messages by a descriptor set, as `protoc --include_imports
--descriptor_set_out=FILE` writes it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from tidelog.cli.record_decoding import UndecodableError

# Descriptor sets of large code bases have a few MiB.
MAX_DESCRIPTOR_BYTES = 32 << 20
# Messages that an error names.
MAX_NAMED_MESSAGES = 5


def message_decoder(path: str, message: str) -> Callable[[bytes], dict[str, Any]]:
    """Returns a function that decodes a value to the JSON form of the message, with the names of
    the `.proto` file. The function raises `UndecodableError`. Raises ValueError.

    Any Protobuf message decodes as any other whose field types agree: fields that the message does
    not know are left out."""
    descriptors = _read(Path(path))
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptors.file:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        raise ValueError(_unknown_message(path, message, descriptors)) from None
    except TypeError as error:
        raise ValueError(
            f"the descriptors of {path} do not fit together ({error}); write the file with: "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from None
    message_class = message_factory.GetMessageClass(descriptor)

    def decode(data: bytes) -> dict[str, Any]:
        try:
            parsed = message_class.FromString(data)
            return json_format.MessageToDict(
                parsed, preserving_proto_field_name=True, descriptor_pool=pool
            )
        # A message of type Any may be of a type that is not in the pool.
        except (DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise UndecodableError(f"it is not a {message} ({error})") from None

    return decode


def _read(path: Path) -> descriptor_pb2.FileDescriptorSet:
    how = "write it with: protoc --include_imports --descriptor_set_out=FILE"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DESCRIPTOR_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; {how}") from None
    if len(data) > MAX_DESCRIPTOR_BYTES:
        raise ValueError(f"{path} has more than {MAX_DESCRIPTOR_BYTES:,} bytes; {how}")
    try:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError:
        descriptors = descriptor_pb2.FileDescriptorSet()
    if not descriptors.file:
        raise ValueError(f"{path} is not a descriptor set; {how}")
    return descriptors


def _unknown_message(path: str, message: str, known: descriptor_pb2.FileDescriptorSet) -> str:
    names = sorted(_names(known))
    close = difflib.get_close_matches(message, names, MAX_NAMED_MESSAGES)
    # A name without its package.
    close = [n for n in names if n.rpartition(".")[2] == message][:MAX_NAMED_MESSAGES] or close
    some = close or names[:MAX_NAMED_MESSAGES]
    more = f" and {len(names) - len(some):,} more" if not close and len(names) > len(some) else ""
    hint = f"did you mean {' or '.join(some)}?" if close else f"it has {', '.join(some)}{more}"
    return f"{path} has no message {message!r}; {hint}"


def _names(known: descriptor_pb2.FileDescriptorSet) -> Iterator[str]:
    for file in known.file:
        prefix = f"{file.package}." if file.package else ""
        for one in file.message_type:
            yield from _nested(prefix, one)


def _nested(prefix: str, one: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    name = f"{prefix}{one.name}"
    yield name
    for inner in one.nested_type:
        if not inner.options.map_entry:
            yield from _nested(f"{name}.", inner)
