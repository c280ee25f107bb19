"""What an unclean election means to a client: records that were committed may be gone
(KIP-704). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.client.retry import Leader
from tidelog.model import NO_EPOCH, TopicPartition

# Of one partition, that are remembered until metadata has told of a newer one.
MAX_EPOCHS = 8


class UncleanElection(NamedTuple):
    """A leader was elected in `leader_epoch` that may lack committed records. This client
    had got as far as `offset` (the offset after the last record that it had acknowledged or
    read) in the older epoch `known_epoch`."""

    partition: TopicPartition
    leader_epoch: int
    offset: int
    known_epoch: int


class _Reached(NamedTuple):
    leader_epoch: int
    offset: int


class UncleanElections:
    """Tells each unclean election once, to a client that had got somewhere before it."""

    def __init__(self) -> None:
        # By partition the newest epochs, ascending, that something was reached in: that an
        # election was unclean may be told when its leader has answered already.
        self._reached: dict[TopicPartition, list[_Reached]] = {}
        self._told: dict[TopicPartition, int] = {}

    def reached(self, partition: TopicPartition, leader_epoch: int, offset: int) -> None:
        """A record below `offset` was acknowledged, or read, in this epoch."""
        epochs = self._reached.setdefault(partition, [])
        if not epochs or leader_epoch > epochs[-1].leader_epoch:
            epochs.append(_Reached(leader_epoch, offset))
            del epochs[:-MAX_EPOCHS]
        elif (leader_epoch, offset) > epochs[-1]:
            epochs[-1] = _Reached(leader_epoch, offset)

    def news(self, leader_of: Callable[[TopicPartition], Leader | None]) -> list[UncleanElection]:
        found: list[UncleanElection] = []
        for partition, epochs in self._reached.items():
            leader = leader_of(partition)
            unclean_epoch = NO_EPOCH if leader is None else leader.unclean_leader_epoch
            if unclean_epoch <= self._told.get(partition, NO_EPOCH):
                continue
            before = [known for known in epochs if known.leader_epoch < unclean_epoch]
            if before:
                self._told[partition] = unclean_epoch
                found.append(
                    UncleanElection(
                        partition, unclean_epoch, before[-1].offset, before[-1].leader_epoch
                    )
                )
        return found
