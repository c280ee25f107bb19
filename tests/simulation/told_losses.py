"""Compares the losses that clients are informed of with those that occurred, in both directions.

- A reader that had records beyond the beginning of a loss receives nothing behind it before a
  notice (`LogTruncatedError`).
- A client that read, or had acknowledged, what an unclean election gave up is informed of that
  election or of a later one.
- No client is informed of an election or a truncation that did not occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from simulation.invariants import Invariants
from simulation.partition_id import PartitionId
from simulation.replicas import Loss
from simulation.violation import Violation
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.client.unclean_elections import UncleanElection
from tidelog.model import NO_EPOCH, Record

ELECTION_TOLD = "client informed of an unclean election"
TRUNCATION_TOLD = "reader informed of a truncation"
RECREATION_TOLD = "reader informed that its topic was created again"
TOLD_TO_CLIENTS = (ELECTION_TOLD, TRUNCATION_TOLD, RECREATION_TOLD)


class _Reached(NamedTuple):
    offset: int
    leader_epoch: int


class ToldLosses:
    """Compares notices with losses.

    `seen`: how often clients were informed of what, for `Coverage`.
    """

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self.seen: Counter[str] = Counter()
        # By client and partition: the last record, and the last offset of each epoch.
        self._last: dict[tuple[str, PartitionId], _Reached] = {}
        self._reached: dict[tuple[str, PartitionId], dict[int, int]] = {}
        self._told_epoch: dict[tuple[str, PartitionId], int] = {}

    # -- reads and writes of clients ---------------------------------------------------------

    def sought(self, client: str, partition: PartitionId) -> None:
        """Notes that the next record has no predecessor."""
        self._last.pop((client, partition), None)

    def read(self, client: str, partition: PartitionId, records: Sequence[Record]) -> None:
        """Notes records in the order in which they were received. Raises `Violation`."""
        key = (client, partition)
        last = self._last.get(key)
        for record in records:
            if last is not None and record.leader_epoch != last.leader_epoch:
                self._judge_step(client, partition, last, record.leader_epoch)
            last = _Reached(record.offset, record.leader_epoch)
            self._reach(key, record.leader_epoch, record.offset)
        if last is not None:
            self._last[key] = last

    def acknowledged(
        self, client: str, partition: PartitionId, offset: int, leader_epoch: int
    ) -> None:
        self._reach((client, partition), leader_epoch, offset)

    def _reach(self, key: tuple[str, PartitionId], leader_epoch: int, offset: int) -> None:
        reached = self._reached.setdefault(key, {})
        reached[leader_epoch] = max(offset, reached.get(leader_epoch, offset))

    def begins_again(self, client: str) -> None:
        """Forgets a client: its next consumer reads every partition from the start."""
        for key in [key for key in self._reached if key[0] == client]:
            del self._reached[key]
            self._last.pop(key, None)

    # -- what clients are informed of --------------------------------------------------------

    def election_reported(
        self, client: str, lives: Sequence[PartitionId], election: UncleanElection
    ) -> None:
        """Notes a notice of an unclean election. Raises `Violation`.

        - `lives`: partitions that had this name; more than one only for short-lived topics
        """
        self.seen[ELECTION_TOLD] += 1
        unclean = self._invariants.store.before_unclean
        if not any((partition, election.leader_epoch) in unclean for partition in lives):
            raise Violation(
                "told_of_no_election",
                f"{client} was informed of an unclean election in epoch {election.leader_epoch}",
                partition=str(election.partition),
            )
        for partition in lives:
            before = self._told_epoch.get((client, partition), NO_EPOCH)
            self._told_epoch[client, partition] = max(before, election.leader_epoch)

    def truncation_reported(
        self,
        client: str,
        lives: Sequence[PartitionId],
        error: LogTruncatedError,
        *,
        resumes: bool = False,
    ) -> None:
        """Notes a notice of a truncation. Raises `Violation`.

        - `resumes`: the client uses one consumer after another, and one that resumes learns
          only by this notice what its predecessor has read in vain
        """
        self.seen[TRUNCATION_TOLD] += 1
        for partition in lives:
            self.sought(client, partition)
            if resumes:
                before = self._told_epoch.get((client, partition), NO_EPOCH)
                self._told_epoch[client, partition] = max(before, error.leader_epoch)
        first_epochs = self._invariants.store.first_epochs
        added_again = (first for p in lives for first in first_epochs.get(p, ()))
        if any(error.read_epoch < first <= error.leader_epoch for first in added_again):
            return  # what it read went with the removed partition of this number
        if not any(
            loss.partition in lives
            and error.read_epoch < loss.leader_epoch <= error.leader_epoch
            and loss.first_offset < error.offset
            for loss in self._invariants.losses
        ):
            raise Violation("told_of_no_truncation", error.message, client=client)

    # -- verdicts ----------------------------------------------------------------------------

    def _judge_step(
        self, client: str, partition: PartitionId, last: _Reached, leader_epoch: int
    ) -> None:
        committed = self._invariants.replicas.committed_of(partition)
        entry = committed.log.entry_with(last.offset)
        if committed.brought_back or (entry and entry.leader_epoch == last.leader_epoch):
            return
        for loss in self._losses(partition):
            if loss.first_offset <= last.offset and (
                last.leader_epoch < loss.leader_epoch <= leader_epoch
            ):
                raise Violation(
                    "truncation_passed_over",
                    f"{client} was given offset {last.offset} of epoch {last.leader_epoch}, which "
                    f"the unclean election in epoch {loss.leader_epoch} gave up, and then, without "
                    f"a word, records of epoch {leader_epoch}",
                    partition=partition,
                )

    def untold(self, client: str, *, only_where_later: bool) -> Loss | None:
        """Returns a loss of which this client should have been informed and was not.

        - `only_where_later`: only for partitions in which it reached something in the epoch of
          the election or later, and so knows the new leader
        """
        for (who, partition), reached in self._reached.items():
            if who != client or not self._is_there(partition):
                continue
            told_epoch = self._told_epoch.get((client, partition), NO_EPOCH)
            for loss in self._losses(partition):
                if (
                    loss.leader_epoch > told_epoch
                    and _reached_lost(reached, loss)
                    and (not only_where_later or max(reached) >= loss.leader_epoch)
                ):
                    return loss
        return None

    def _is_there(self, partition: PartitionId) -> bool:
        """Whether the partition exists, and its losses are final."""
        topic = self._invariants.store.topics.get(self._invariants.name_of(partition).topic)
        is_gone = topic is None or topic.topic_id != partition.topic_id
        return not is_gone and not self._invariants.replicas.committed_of(partition).brought_back

    def _losses(self, partition: PartitionId) -> list[Loss]:
        return [loss for loss in self._invariants.losses if loss.partition == partition]


def _reached_lost(reached: dict[int, int], loss: Loss) -> bool:
    return any(
        leader_epoch < loss.leader_epoch and offset >= loss.first_offset
        for leader_epoch, offset in reached.items()
    )
