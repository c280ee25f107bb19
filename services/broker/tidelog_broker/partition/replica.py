"""The state of one replica, and how it follows its leader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidelog.batch import is_damaged, is_intact, new_damaged_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, Batch, TopicPartition
from tidelog_broker.partition import epochs
from tidelog_broker.partition import high_watermark as hw
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition
from tidelog_broker.partition.leading import Leading
from tidelog_broker.partition.missing_batches import NOTHING_MISSING, MissingBatches
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.partition.replica_log import ReplicaLog
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr
from tidelog_runtime.replica_control import LogExtent


class Replica(ABC):
    """The state of one replica.

    Invariants: `revision` only grows, and with it `state`; `high_watermark` never falls while the
    replica leads, and never exceeds the log's end; `leading` is set only in an epoch that was given
    to this incarnation of the broker. With `synced` a replica's log counts only as far as it is on
    disk, here and on its followers."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: str,
        broker_id: int,
        log: ReplicaLog,
        *,
        high_watermark: int,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.key = ReplicaKey(topic_id, name.partition)
        self.log = log
        self.state: LeaderAndIsr | None = None
        self.revision = 0
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.leading: Leading | None = None
        self.synced = False
        self.in_service = True
        # The log start that a leader has sent. A follower need not keep what is below, either.
        self.leader_log_start = 0
        # The extent of the log when damage was found, until the partition has a leader again.
        self.before_cut: LogExtent | None = None
        # Batches that it copies from its leader before the ones behind them count.
        self.missing: MissingBatches = NOTHING_MISSING
        self._broker_id = broker_id

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch if self.state else -1

    @property
    def leader_to_follow(self) -> int:
        """The broker to fetch from; NO_LEADER while this replica leads, has no leader or is out of
        service."""
        if self.state is None or self.leading or self.state.leader == self._broker_id:
            return NO_LEADER
        if not self.in_service:
            return NO_LEADER
        return self.state.leader

    @property
    def counted_end(self) -> int:
        return hw.counted_end(
            log_end=self.log.log_end_offset,
            flushed_offset=self.log.flushed_offset,
            synced=self.synced,
        )

    @abstractmethod
    def _log_grew(self) -> None:
        """Informs the tasks that wait for growth of the log."""

    def _remember_extent(self) -> None:
        """Stores the log's extent before a cut. If it was cut before and not led since, the larger
        extent is kept."""
        log, known = self.log, self.before_cut
        if known is None or log.log_end_offset > known.log_end_offset:
            epochs_known = tuple((epoch, start) for epoch, start in log.leader_epochs)
            self.before_cut = LogExtent(log.log_end_offset, epochs_known)

    def fetch_position(self) -> FetchPosition:
        assert self.state is not None
        log = self.log
        needs_producers = (log.producers.lost or log.producers.lacking) and self._needs_producers()
        end, epoch, flushed = log.log_end_offset, log.latest_epoch, log.flushed_offset
        if self.missing is not NOTHING_MISSING and not needs_producers:
            missing = self.missing.position(log)
            if missing is not None:
                end, epoch = missing
                flushed = min(flushed, end)
        return FetchPosition(
            leader=self.state.leader,
            leader_epoch=self.state.leader_epoch,
            fetch_offset=end,
            last_fetched_epoch=epoch,
            flushed_offset=flushed,
            log_start_offset=log.log_start_offset,
            needs_producers=needs_producers,
        )

    def _needs_producers(self) -> bool:
        """Returns whether the fetch requests producers.

        If they are lost, the leader sends the replica back to its log start, to copy everything
        from scratch. That is not done while the replica counts as intact and has not resigned."""
        log, state = self.log, self.state
        if log.producers.lost and state is not None:
            return not any(
                member.broker_id == self._broker_id and member.broker_epoch != NOT_WHOLE
                for member in (*state.isr, *state.eligible)
            )
        return log.producers.lacking and log.log_start_offset == log.log_end_offset

    def follow(self, asked: FetchPosition, answer: FetchAnswer) -> bool:
        """Applies a leader's answer: truncates, or appends and advances the high watermark.

        An answer to an outdated position is dropped. Returns whether this one was used."""
        if not self._still_asks(asked):
            return False
        if answer.diverging is not None:
            if epochs.starts_anew(answer.diverging):
                return self.restart_at(asked, answer.diverging.end_offset)
            cut = epochs.truncation_point(
                answer.diverging,
                log_start=self.log.log_start_offset,
                log_end=self.log.log_end_offset,
                epoch_end=self.log.epoch_end,
            )
            self._cut(cut)
            return True
        for batch in answer.batches:
            if not is_intact(batch):
                raise TidelogError(
                    ErrorCode.CORRUPT_BATCH,
                    f"{self.name}: the batch at offset {batch.header.base_offset} from broker "
                    f"{asked.leader} does not match its checksum",
                )
        if asked.needs_producers:
            if answer.producers is None:
                return False
            self.log.producers.adopt_below_start(answer.producers)
        # The logs may diverge behind the first batch that is missing here.
        agreed_end = asked.fetch_offset if self._lacks_batches(asked) else None
        if answer.batches:
            self._take(asked, answer.batches)
        self.leader_log_start = max(self.leader_log_start, answer.log_start_offset)
        self.high_watermark = hw.followed(
            self.high_watermark,
            leader_high_watermark=answer.high_watermark,
            log_end=self.counted_end if agreed_end is None else agreed_end,
        )
        return True

    def _lacks_batches(self, asked: FetchPosition) -> bool:
        return asked.fetch_offset < self.log.log_end_offset

    def _take(self, asked: FetchPosition, batches: Sequence[Batch]) -> None:
        if self._lacks_batches(asked):
            cut = self.missing.receive(self.log, batches)
            if cut is not None:
                self._cut(cut)
            return
        self.log.append(self._behind_end(batches))
        self._log_grew()

    def _behind_end(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Adapts an unreadable batch that the end of the log divides.

        It may replace several batches. The log keeps those that it has, and gets an unreadable
        batch of its own for the rest."""
        end, first = self.log.log_end_offset, batches[0].header
        if not is_damaged(first) or not first.base_offset < end < first.next_offset:
            return batches
        rest = new_damaged_batch(
            b"",
            first_offset=end,
            next_offset=first.next_offset,
            leader_epoch=first.leader_epoch,
            append_time_ms=first.append_time_ms,
        )
        return [rest, *batches[1:]]

    def _still_asks(self, asked: FetchPosition) -> bool:
        """Returns whether the position is still current.

        The last epoch is compared, too: otherwise a repeated answer would cut, at the same offset,
        what has replaced the tail that it was about."""
        if self.leader_to_follow == NO_LEADER:
            return False
        now = self.fetch_position()
        return (
            now[:3] == asked[:3]
            and now.last_fetched_epoch == asked.last_fetched_epoch
            and now.needs_producers == asked.needs_producers
        )

    def restart_at(self, asked: FetchPosition, leader_log_start: int) -> bool:
        """Resets the log to the leader's start, because the leader no longer holds what comes next
        here."""
        if not self._still_asks(asked) or self.missing.drop_below(leader_log_start):
            return False
        self.log.reset_to(leader_log_start)
        self.high_watermark = leader_log_start
        return True

    def _cut(self, offset: int) -> None:
        if offset < self.log.log_start_offset:
            self.log.reset_to(offset)
        else:
            self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
