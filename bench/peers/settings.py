"""The amount of work, and the names of peers, of pieces of work, and of results. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TIDELOG, KAFKA, KAFKA_TOOLS, NATS = "Tidelog", "Kafka", "Kafka's tools", "NATS"
PRODUCE_ALL, PRODUCE_ONE = "produce, acks=all", "produce, acks=1"
ONE_IN_FLIGHT, TO_CONSUMER = "one in flight, to ack", "one in flight, to consumer"
RECORDS, BATCHES = "consume records in Python", "consume batches"
# The units of results; others are percentiles, in milliseconds.
SPEED = "records/s"

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `pairs`: how often each peer does each piece of work.
    - `..._s`: the duration of one piece.
    - `tool_records`: the number of records for Kafka's producing tool, which takes no duration,
      after `tool_warm_up` records that do not count.
    - `end_to_end`: the number of records for Kafka's latency tool.
    - `read_mb`: the size of the backlog that consumers read, 10^6 bytes.
    - `kafka_heap_mb`: the heap of each Kafka broker.
    """

    pairs: int
    produce_s: float
    ceiling_s: float
    one_in_flight_s: float
    tool_records: int
    tool_warm_up: int
    end_to_end: int
    read_mb: int
    kafka_heap_mb: int


# The heap that Kafka's own start script sets.
FULL = Settings(
    pairs=5,
    produce_s=5.0,
    ceiling_s=1.0,
    one_in_flight_s=8.0,
    tool_records=500_000,
    tool_warm_up=100_000,
    end_to_end=2_000,
    read_mb=800,
    kafka_heap_mb=1_024,
)
QUICK = Settings(
    pairs=1,
    produce_s=1.0,
    ceiling_s=0.4,
    one_in_flight_s=1.5,
    tool_records=50_000,
    tool_warm_up=10_000,
    end_to_end=200,
    read_mb=60,
    kafka_heap_mb=1_024,
)
