"""What following leaders needs of the broker that does so."""

from __future__ import annotations

from typing import Protocol

from tidelog_broker.log.errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class DiskListener(Protocol):
    """False while no replica's disk refuses."""

    def __bool__(self) -> bool: ...

    def took(self, key: ReplicaKey, what: str) -> None: ...


class FollowerContext(Protocol):
    """What a fetcher asks of the broker it runs in."""

    @property
    def state_changes(self) -> StateChangeLog: ...

    @property
    def disk(self) -> DiskListener: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    def wall_ms(self) -> int:
        """This broker's own clock."""

    def heard_clock(self, broker_id: int, wall_ms: int) -> None:
        """What another broker's clock said a moment ago; 0: it did not say."""

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Address and broker epoch of a live broker."""

    def replica_failed(self, partition: Partition, error: LogError) -> object:
        """This replica's own log refused."""
