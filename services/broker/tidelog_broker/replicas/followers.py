"""The replica fetchers as the replica manager uses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog_broker.core.partition.partition import Partition


class Followers(Protocol):
    """Starts and stops the fetching of partitions."""

    def update(self, partitions: Iterable[Partition]) -> None:
        """Called with partitions that may have a new leader, or no leader to follow."""

    def forget(self, partition: Partition) -> None: ...
