"""Produce requests whose large batches are not copied.

To parse a message copies its bytes, and to take a field out of it copies them again, each time for
some milliseconds of the event loop. The records of a large batch are left out before the rest is
parsed: they stay where they came, and the batch refers to them."""

from __future__ import annotations

from typing import NamedTuple, cast

from tidelog.model import Batch
from tidelog.rpc.wire import batch_from_wire
from tidelog.v1 import broker_pb2, record_batch_pb2
from tidelog.wire_fields import BYTES, MalformedMessageError, encode_varint, walk_fields

# Of records that are left out. What holds fewer is parsed as it is.
DETACHED_BYTES = 256 << 10

# The fields that lead from the request to the records of a batch.
_PATH = (
    broker_pb2.ProduceRequest.PARTITIONS_FIELD_NUMBER,
    broker_pb2.ProducePartition.BATCHES_FIELD_NUMBER,
    record_batch_pb2.Batch.RECORDS_FIELD_NUMBER,
)


class DetachedProduce(NamedTuple):
    """`message`: without the records of its large batches. `records`: these, by the positions of
    their partition and of their batch in it; each is a view of the request's bytes."""

    message: broker_pb2.ProduceRequest
    records: dict[tuple[int, ...], memoryview]


AnyProduce = broker_pb2.ProduceRequest | DetachedProduce


def parse_produce(data: bytes) -> AnyProduce:
    """Detached where it holds a large batch. Raises `DecodeError` as the parser does."""
    if len(data) <= DETACHED_BYTES:
        return broker_pb2.ProduceRequest.FromString(data)
    records: dict[tuple[int, ...], memoryview] = {}
    try:
        rest = _without_records(memoryview(data), 0, (), records)
    except MalformedMessageError:
        # The parser says what is wrong.
        return broker_pb2.ProduceRequest.FromString(data)
    return DetachedProduce(broker_pb2.ProduceRequest.FromString(rest), records)


def batches_of(request: AnyProduce) -> list[list[Batch]]:
    """Of each partition, in order. Checks nothing."""
    message, records = request if isinstance(request, DetachedProduce) else (request, {})
    found = [[batch_from_wire(batch) for batch in entry.batches] for entry in message.partitions]
    for (position, number), view in records.items():
        # Whatever reads records takes a view as well: checksums, codecs, the parser and files.
        batch = found[position][number]
        found[position][number] = batch._replace(records=cast(bytes, view))
    return found


def _without_records(
    data: memoryview, depth: int, place: tuple[int, ...], records: dict[tuple[int, ...], memoryview]
) -> bytes:
    """The message at this depth of the path; `place`: the positions that lead to it."""
    parts: list[bytes | memoryview] = []
    position = number = 0
    for field in walk_fields(data):
        content, is_next = data[field.start : field.end], field.number == _PATH[depth]
        if not is_next or field.wire_type != BYTES:
            parts.append(data[position : field.end])
        elif depth + 1 == len(_PATH):
            # A field that comes twice has the content that came last.
            records.pop(place, None)
            if len(content) > DETACHED_BYTES:
                records[place] = content
            else:
                parts.append(data[position : field.end])
        else:
            if len(content) > DETACHED_BYTES:
                rest = _without_records(content, depth + 1, (*place, number), records)
                parts += [encode_varint(field.number << 3 | BYTES), encode_varint(len(rest)), rest]
            else:
                parts.append(data[position : field.end])
            number += 1
        position = field.end
    return b"".join(parts)
