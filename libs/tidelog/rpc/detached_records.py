"""Parses Produce requests without copying large batches.

Parsing a message copies its bytes, and reading a field from it copies them again. For a large batch
each takes some milliseconds of the event loop. So its records are cut out before the rest is
parsed: they stay where they were received, and the batch refers to them."""

from __future__ import annotations

from typing import NamedTuple, cast

from tidelog.model import Batch
from tidelog.rpc.wire import batch_from_wire
from tidelog.v1 import broker_pb2, record_batch_pb2
from tidelog.wire_fields import BYTES, MalformedMessageError, encode_varint, walk_fields

# Records of more bytes than this are detached.
DETACHED_BYTES = 256 << 10

# The fields that lead from the request to the records of a batch.
_PATH = (
    broker_pb2.ProduceRequest.PARTITIONS_FIELD_NUMBER,
    broker_pb2.ProducePartition.BATCHES_FIELD_NUMBER,
    record_batch_pb2.Batch.RECORDS_FIELD_NUMBER,
)


class DetachedProduce(NamedTuple):
    """A request with detached records.

    - `message`: the request without the records of its large batches.
    - `records`: those records, by the positions of their partition and of their batch in it. Each
      is a view of the request's bytes.
    """

    message: broker_pb2.ProduceRequest
    records: dict[tuple[int, ...], memoryview]


AnyProduce = broker_pb2.ProduceRequest | DetachedProduce


def parse_produce(data: bytes) -> AnyProduce:
    """Parses a request, with its large batches detached. Raises `DecodeError` as the parser."""
    if len(data) <= DETACHED_BYTES:
        return broker_pb2.ProduceRequest.FromString(data)
    records: dict[tuple[int, ...], memoryview] = {}
    try:
        rest = _without_records(memoryview(data), 0, (), records)
    except MalformedMessageError:
        # The parser reports what is wrong.
        return broker_pb2.ProduceRequest.FromString(data)
    return DetachedProduce(broker_pb2.ProduceRequest.FromString(rest), records)


def batches_of(request: AnyProduce) -> list[list[Batch]]:
    """Returns the batches of each partition, in order. Checks nothing."""
    message, records = request if isinstance(request, DetachedProduce) else (request, {})
    found = [[batch_from_wire(batch) for batch in entry.batches] for entry in message.partitions]
    for (position, number), view in records.items():
        # Checksums, codecs, the parser and files accept a view in place of bytes.
        batch = found[position][number]
        found[position][number] = batch._replace(records=cast(bytes, view))
    return found


def _without_records(
    data: memoryview, depth: int, place: tuple[int, ...], records: dict[tuple[int, ...], memoryview]
) -> bytes:
    """Returns the message at this depth of the path without large records. `place`: the positions
    that lead to it."""
    parts: list[bytes | memoryview] = []
    position = number = 0
    for field in walk_fields(data):
        content, is_next = data[field.start : field.end], field.number == _PATH[depth]
        if not is_next or field.wire_type != BYTES:
            parts.append(data[position : field.end])
        elif depth + 1 == len(_PATH):
            # If a field occurs twice, the last content counts.
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
