"""A topic `__state_changes` with the events of a test."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.batch import stamp
from tidelog.record_batch import encode
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, key_of, value_of
from unit.client.fake_broker import FakeCluster


def publish(
    cluster: FakeCluster, events: Sequence[StateChange], partition: int = 0, per_batch: int = 2
) -> None:
    """Publishes each event at its own time."""
    for first in range(0, len(events), per_batch):
        some = events[first : first + per_batch]
        write(
            cluster,
            [value_of(event) for event in some],
            [key_of(event) for event in some],
            [event.time_ms for event in some],
            partition,
        )


def write(
    cluster: FakeCluster,
    values: Sequence[bytes],
    keys: Sequence[bytes],
    times_ms: Sequence[int],
    partition: int = 0,
) -> None:
    log = cluster.partition(STATE_CHANGES_TOPIC, partition)
    log.batches.append(
        stamp(
            encode(values, keys, timestamps_ms=times_ms),
            base_offset=log.end,
            leader_epoch=log.leader_epoch,
            append_time_ms=1,
        )
    )
