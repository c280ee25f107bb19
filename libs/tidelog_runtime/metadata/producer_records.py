"""Producers as the metadata store has them ("Metadata" in docs/internals/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class NamedProducer:
    """Value of `producers/<name>`."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Value of `partition_counts/<name>`. `of_topics`: the number of partitions over which the
    holders of this epoch distribute the records of each topic."""

    producer_id: int
    producer_epoch: int
    of_topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PassedTime:
    """Value of `passed_time`, by which unused names expire. `passed`: pairs of a revision and the
    least number of milliseconds until the next one; for the last pair, until the revision of the
    key. Oldest first."""

    passed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NextProducerId:
    """Value of `producer_ids`: all lower ids have been given to brokers, in blocks."""

    next_producer_id: int


def encode_producer_record(
    value: NamedProducer | PartitionCounts | PassedTime | NextProducerId,
) -> bytes:
    return json.dumps(asdict(value), separators=(",", ":")).encode()


def decode_named_producer(value: bytes) -> NamedProducer:
    return NamedProducer(**json.loads(value))


def decode_partition_counts(value: bytes) -> PartitionCounts:
    return PartitionCounts(**json.loads(value))


def decode_passed_time(value: bytes) -> PassedTime:
    return PassedTime(tuple((revision, ms) for revision, ms in json.loads(value)["passed"]))


def decode_next_producer_id(value: bytes) -> NextProducerId:
    return NextProducerId(**json.loads(value))
