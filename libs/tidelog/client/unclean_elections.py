"""Detects unclean elections by which a client may lose committed records (KIP-704). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.retry import Leader
from tidelog.model import NO_EPOCH, TopicPartition

# Epochs per partition that are kept until metadata reports a newer unclean election.
MAX_EPOCHS = 8


class UncleanElection(NamedTuple):
    """The election, in `leader_epoch`, of a leader that may lack committed records.

    In the older epoch `known_epoch` this client had reached `offset`, the offset after the last
    record that was acknowledged to it or that it read."""

    partition: TopicPartition
    leader_epoch: int
    offset: int
    known_epoch: int


class _Reached(NamedTuple):
    leader_epoch: int
    offset: int


class _TopicIdPartition(NamedTuple):
    partition: TopicPartition
    topic_id: str


@dataclass(slots=True)
class _Epochs:
    """Epochs of one partition.

    - `reached`: the newest epochs, ascending, in which records were acknowledged or read. Several
      are kept, because a leader may answer before metadata says that its election was unclean.
    - `reported`: the last unclean epoch that was reported."""

    reached: list[_Reached] = field(default_factory=list)
    reported: int = NO_EPOCH


class UncleanElections:
    """Reports each unclean election once, if the client had reached an offset before it."""

    def __init__(self) -> None:
        # The epochs of a topic are dropped when another topic has its name.
        self._reached: dict[_TopicIdPartition, _Epochs] = {}

    def reached(
        self, partition: TopicPartition, topic_id: str, leader_epoch: int, offset: int
    ) -> None:
        """Records that a record below `offset` was acknowledged, or read, in this epoch."""
        epochs = self._reached.setdefault(_TopicIdPartition(partition, topic_id), _Epochs()).reached
        if not epochs or leader_epoch > epochs[-1].leader_epoch:
            epochs.append(_Reached(leader_epoch, offset))
            del epochs[:-MAX_EPOCHS]
        elif (leader_epoch, offset) > epochs[-1]:
            epochs[-1] = _Reached(leader_epoch, offset)

    def forget_removed(self, gone: Callable[[TopicPartition], object]) -> None:
        """Forgets partitions for which `gone` returns an error."""
        for key in [key for key in self._reached if gone(key.partition) is not None]:
            del self._reached[key]

    def new_elections(
        self, leader_of: Callable[[TopicPartition], Leader | None]
    ) -> list[UncleanElection]:
        found: list[UncleanElection] = []
        for key, epochs in list(self._reached.items()):
            partition = key.partition
            leader = leader_of(partition)
            if leader is None:
                continue
            if leader.topic_id != key.topic_id:
                del self._reached[key]
                continue
            unclean_epoch = leader.unclean_leader_epoch
            if unclean_epoch <= epochs.reported:
                continue
            before = [known for known in epochs.reached if known.leader_epoch < unclean_epoch]
            if before:
                epochs.reported = unclean_epoch
                found.append(
                    UncleanElection(
                        partition, unclean_epoch, before[-1].offset, before[-1].leader_epoch
                    )
                )
        return found
