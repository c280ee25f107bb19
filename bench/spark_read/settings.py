"""The settings of the measurement. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `task_records`: the records of a topic with one partition, which one task reads.
    - `batch_bytes`: the batch size of both producers.
    - `pairs`: the number of pairs of readings with `spark.read`, one of each log.
    - `stream_pairs`: the number of pairs with `spark.readStream`.
    - `kafka_heap_mb`: the heap of each Kafka broker.
    """

    records: int
    task_records: int
    partitions: int
    value_bytes: int
    batch_bytes: int
    pairs: int
    stream_pairs: int
    cores: int
    kafka_heap_mb: int


# The heap that Kafka's own start script sets.
FULL = Settings(
    records=10_000_000,
    task_records=10_000_000,
    partitions=12,
    value_bytes=100,
    batch_bytes=64 << 10,
    pairs=5,
    stream_pairs=3,
    cores=2,
    kafka_heap_mb=1_024,
)
QUICK = replace(FULL, records=500_000, task_records=2_000_000, pairs=1, stream_pairs=1)
