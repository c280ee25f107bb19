"""Requests for the extents of replicas' logs, made before an unclean election.

Level-triggered like all control: the state is which replicas have yet to be described, and at which
revision. A lost request is repeated after a pause. At most one request is in flight to each broker.
None is sent before the broker has acknowledged the partition's newest state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.control.broker_control import BrokerControl, retry_delay_ms
from tidelog_controller.policies.electability import LiveBroker
from tidelog_controller.policies.recovery import Logs
from tidelog_runtime.replica_control import DescribeReplicasResult, ReplicaSummary

MAX_PARTITIONS_PER_QUESTION = 2_000

_NOTHING: Logs = {}


class _Wanted(NamedTuple):
    topic_id: str
    revision: int


class _Known(NamedTuple):
    """A description is valid for one incarnation of the broker and one revision of the key."""

    broker_epoch: int
    revision: int
    log: ReplicaSummary | None


class _DescribeRequest(NamedTuple):
    id: int
    broker_epoch: int
    partitions: Mapping[tuple[str, int], tuple[TopicPartition, _Wanted]]


class Descriptions:
    def __init__(self) -> None:
        # What has yet to be requested from each broker.
        self._requested: dict[int, dict[TopicPartition, _Wanted]] = {}
        # Kept only until the partition's election.
        self._known: dict[TopicPartition, dict[int, _Known]] = {}
        self._requested_from: dict[TopicPartition, tuple[int, ...]] = {}
        self._in_flight: dict[int, _DescribeRequest] = {}
        self._retry_at_ms: dict[int, int] = {}
        self._failures: dict[int, int] = {}

    def request(
        self,
        partition: TopicPartition,
        topic_id: str,
        revision: int,
        broker_ids: tuple[int, ...],
        live: Mapping[int, LiveBroker],
    ) -> None:
        """Sets the replicas to describe, instead of earlier ones.

        Without any, what is known of the partition is forgotten.
        """
        for broker_id in self._requested_from.pop(partition, ()):
            self._drop(broker_id, partition)
        if not broker_ids:
            self._known.pop(partition, None)
            return
        self._requested_from[partition] = broker_ids
        known = self.logs(partition, revision, live)
        for broker_id in broker_ids:
            if known.get(broker_id) is None:
                keys = self._requested.setdefault(broker_id, {})
                keys[partition] = _Wanted(topic_id, revision)

    def logs(
        self, partition: TopicPartition, revision: int, live: Mapping[int, LiveBroker]
    ) -> Logs:
        """What is known of the logs, as they are at this revision of the partition's key."""
        known = self._known.get(partition)
        if known is None:
            return _NOTHING
        return {
            broker_id: description.log
            for broker_id, description in known.items()
            if description.revision == revision
            and broker_id in live
            and live[broker_id].broker_epoch == description.broker_epoch
        }

    def due(self, control: BrokerControl, now_ms: int) -> list[tuple[str, int]]:
        """What to request from the broker now, by topic id and number."""
        broker_id = control.broker_id
        wanted = self._requested.get(broker_id)
        if not wanted or broker_id in self._in_flight:
            return []
        if now_ms < self._retry_at_ms.get(broker_id, 0):
            return []
        # The others wait for an acknowledgement, and not for time to pass.
        self._retry_at_ms.pop(broker_id, None)
        partitions: list[tuple[str, int]] = []
        for partition, (topic_id, _) in wanted.items():
            if control.has_answered(partition):
                partitions.append((topic_id, partition.partition))
            if len(partitions) == MAX_PARTITIONS_PER_QUESTION:
                break
        return partitions

    def mark_sent(
        self, control: BrokerControl, command_id: int, keys: Iterable[tuple[str, int]]
    ) -> None:
        """Marks as sent some of the due requests, in their order."""
        wanted, names = iter(self._requested[control.broker_id].items()), {}
        for key in keys:
            names[key] = next(
                (partition, what)
                for partition, what in wanted
                if (what.topic_id, partition.partition) == key
            )
        self._in_flight[control.broker_id] = _DescribeRequest(
            command_id, control.broker_epoch, names
        )

    def answered(
        self, broker_id: int, command_id: int, result: DescribeReplicasResult, now_ms: int
    ) -> list[TopicPartition]:
        """Returns the partitions with a new description.

        A missing replica may be under repair, and a replica that has not taken the newest state is
        described too early. Both are requested again.
        """
        request = self._end(broker_id, command_id)
        if request is None:
            return []
        if result.error is not None:
            self._pause(broker_id, now_ms)
            return []
        found = {(log.topic_id, log.partition): log for log in result.replicas}
        described = []
        again = False
        for key, (partition, wanted) in request.partitions.items():
            log = found.get(key)
            if self._requested.get(broker_id, {}).get(partition) != wanted:
                continue  # The state has changed, or the description is no longer needed.
            again = again or log is None or log.revision != wanted.revision
            if log is not None and log.revision != wanted.revision:
                continue
            known = _Known(request.broker_epoch, wanted.revision, log)
            self._known.setdefault(partition, {})[broker_id] = known
            if log is not None:
                self._drop(broker_id, partition)
            described.append(partition)
        if again:
            self._pause(broker_id, now_ms)
        else:
            self._failures.pop(broker_id, None)
        return described

    def lost(self, broker_id: int, command_id: int, now_ms: int) -> None:
        if self._end(broker_id, command_id) is not None:
            self._pause(broker_id, now_ms)

    def forget_broker(self, broker_id: int) -> None:
        """Forgets an ended incarnation. The partitions that wait for it are decided again."""
        self._requested.pop(broker_id, None)
        self._in_flight.pop(broker_id, None)
        self._retry_at_ms.pop(broker_id, None)
        self._failures.pop(broker_id, None)

    def wake_at_ms(self) -> int | None:
        """When there is something to request again; None: nothing waits for time to pass."""
        times = (
            at_ms
            for broker_id, at_ms in self._retry_at_ms.items()
            if broker_id in self._requested and broker_id not in self._in_flight
        )
        return min(times, default=None)

    def _end(self, broker_id: int, command_id: int) -> _DescribeRequest | None:
        request = self._in_flight.get(broker_id)
        if request is None or request.id != command_id:
            return None
        del self._in_flight[broker_id]
        return request

    def _pause(self, broker_id: int, now_ms: int) -> None:
        failures = self._failures.get(broker_id, 0)
        self._failures[broker_id] = failures + 1
        self._retry_at_ms[broker_id] = now_ms + retry_delay_ms(failures)

    def _drop(self, broker_id: int, partition: TopicPartition) -> None:
        wanted = self._requested.get(broker_id)
        if wanted is not None:
            wanted.pop(partition, None)
            if not wanted:
                del self._requested[broker_id]
