"""What the replica manager needs of the replica fetchers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog_broker.partition.partition import Partition


class Followers(Protocol):
    """Starts and stops the fetching of partitions."""

    def update(self, partitions: Iterable[Partition]) -> None:
        """Each of these may have a new leader, or none to follow any more."""

    def forget(self, partition: Partition) -> None: ...
