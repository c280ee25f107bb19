"""The broker as its fetchers use it."""

from __future__ import annotations

from typing import Protocol

from tidelog_broker.log.log_errors import LogError
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


class DiskListener(Protocol):
    """Is notified of disk operations that succeed. False while no disk rejects any."""

    def __bool__(self) -> bool: ...

    def took(self, key: ReplicaKey, what: str) -> None: ...


class FollowerContext(Protocol):
    """The broker as a fetcher uses it."""

    @property
    def state_changes(self) -> StateChangeLog: ...

    @property
    def disk(self) -> DiskListener: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    def wall_ms(self) -> int:
        """Returns the time of this broker's own clock."""

    def note_peer_clock(self, broker_id: int, wall_ms: int) -> None:
        """Notes what another broker's clock showed a moment ago; 0: it is not known."""

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Returns address and broker epoch of a live broker; None: it is not known."""

    def replica_failed(self, partition: Partition, error: LogError) -> object:
        """Called when this replica's own log has failed."""
