"""Records what the clients of one world did, for the history checker.

What clients receive is checked at once against what was committed. Values of records are unique
integers. A record that a reader does not receive is judged twice: by the history checker, which
knows what clients know, and at once against the logs, where only a producer's fence may be
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count, groupby

from simulation.acknowledgers import Acknowledgers
from simulation.invariants import Invariants
from simulation.partition_id import PartitionId
from simulation.replicas import Loss
from simulation.told_ends import ends_asked, ends_reported
from simulation.told_losses import RECREATION_TOLD, ToldLosses
from simulation.topic_lives import LivesHistory, LivesRead, TopicLives, is_short_lived
from simulation.unreadable import SKIPPED, Range, Unreadable
from simulation.violation import Violation
from tidelog.client.delivery import BatchReport
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.client.unclean_elections import UncleanElection
from tidelog.errors import ErrorCode
from tidelog.history import (
    UNREADABLE_VALUE,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryChecker,
    LossMark,
    Nemesis,
    Operation,
    Outcome,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Report,
    SendInvoked,
    sends_ended,
)
from tidelog.model import NO_EPOCH, NO_OFFSET, Record, TopicPartition
from tidelog.v1 import broker_pb2, errors_pb2

UNCLEAN = "unclean election"
DAMAGED = "damaged on the last disk that held it"
LAST_EPOCH = 2**31 - 1


def host_of(client: str) -> str:
    return f"client-{client}"


def _caller(host: str, question: int) -> str:
    return f"{host}, question {question}"


def value_of(record: Record) -> int:
    try:
        return int(record.value or b"")
    except ValueError:
        return UNREADABLE_VALUE


class Recorder:
    """Records operations of the topics named `judged` and of short-lived topics; counts others."""

    def __init__(
        self,
        invariants: Invariants,
        now_ms: Callable[[], int],
        judged: Sequence[str],
        epoch_led: Callable[[str, TopicPartition], int],
        unreadable: Unreadable | None = None,
    ) -> None:
        """`epoch_led`: as in `Acknowledgers`. `unreadable`: None if no disk loses data."""
        self._unreadable = unreadable
        self.operations: list[Operation] = []
        self.acknowledged = 0
        self._invariants = invariants
        self._now_ms = now_ms
        self._judged = frozenset(judged)
        self._values = count(1)
        self._questions = count(1)
        self.losses = ToldLosses(invariants)
        self.on_accepted: list[Callable[[str, object, object], None]] = []
        self._lives = TopicLives()
        self._lives_read = LivesRead(invariants.store.lives)
        self._lives_history = LivesHistory()
        self._next_offset: dict[tuple[str, TopicPartition], int] = {}
        self._acknowledgers = Acknowledgers(self._judged, epoch_led)

    def new_value(self) -> int:
        return next(self._values)

    # -- sends -----------------------------------------------------------------------------

    def send_invoked(self, client: str, partition: TopicPartition, values: Sequence[int]) -> None:
        now_ms = self._now_ms()
        if partition.topic in self._judged:
            self.operations += [SendInvoked(now_ms, client, *partition, v) for v in values]
        elif is_short_lived(partition.topic):
            for value in values:
                self._lives_history.add(SendInvoked(now_ms, client, *partition, value))

    def send_ended(
        self,
        client: str,
        partition: TopicPartition,
        values: Sequence[int],
        report: BatchReport | None,
        *,
        outcome: Outcome,
    ) -> None:
        """Notes the end of a send. `report`: of an acknowledged batch with these values."""
        offset, leader_epoch = NO_OFFSET, NO_EPOCH
        if report is not None and outcome is Outcome.OK:
            self.acknowledged += len(values)
            offset, leader_epoch = report.base_offset, report.leader_epoch
            if offset == NO_OFFSET:
                raise Violation(
                    "acknowledged_with_offset",
                    f"value {values[0]} in {partition} was acknowledged without an offset: brokers "
                    "remember what a producer has on its way",
                )
            self._judge_acknowledged(client, partition, values, report)
        if is_short_lived(partition.topic):
            self._short_lived_ended(client, partition, values, outcome, offset, leader_epoch)
        if partition.topic not in self._judged:
            return
        broker_id = self._acknowledgers.of(host_of(client), partition, leader_epoch, offset)
        self.operations += sends_ended(
            self._now_ms(), client, partition, values, outcome, offset, leader_epoch, broker_id
        )

    def _short_lived_ended(
        self,
        client: str,
        partition: TopicPartition,
        values: Sequence[int],
        outcome: Outcome,
        offset: int,
        leader_epoch: int,
    ) -> None:
        now_ms = self._now_ms()
        for ended in sends_ended(now_ms, client, partition, values, outcome, offset, leader_epoch):
            self._lives_history.add(ended)

    def _judge_acknowledged(
        self,
        client: str,
        partition: TopicPartition,
        values: Sequence[int],
        report: BatchReport,
    ) -> None:
        offset, leader_epoch = report.base_offset, report.leader_epoch
        place = self._place_now(partition)
        if is_short_lived(partition.topic):
            topic_id = self._lives.written_in(host_of(client), values[0], offset, leader_epoch)
            place = PartitionId(topic_id, partition.partition)
            self._lives_history.written(partition.topic, topic_id, values)
        if place is not None:
            self.losses.acknowledged(client, place, offset + len(values) - 1, leader_epoch)
            self._judge_committed("acknowledged_before_commit", client, place, offset, leader_epoch)

    def _place_now(self, partition: TopicPartition) -> PartitionId | None:
        """Returns the partition of the topic that has the name now."""
        topic = self._invariants.store.topics.get(partition.topic)
        return None if topic is None else PartitionId(topic.topic_id, partition.partition)

    def topic_id(self, topic: str) -> str | None:
        """Returns the id of the topic that has the name now."""
        found = self._invariants.store.topics.get(topic)
        return found.topic_id if found is not None else None

    def has_lost(self, partition: TopicPartition) -> bool:
        place = self._place_now(partition)
        return any(loss.partition == place for loss in self._invariants.losses)

    def _places(self, partition: TopicPartition) -> list[PartitionId]:
        """Returns the partition in every topic that has, or had, the name."""
        ids = self._invariants.store.lives.get(partition.topic, ())
        return [PartitionId(topic_id, partition.partition) for topic_id in ids]

    def _judge_committed(
        self, name: str, client: str, place: PartitionId, offset: int, leader_epoch: int
    ) -> None:
        replicas = self._invariants.replicas
        if replicas.was_committed(place, offset, leader_epoch):
            return
        if any(_gives_up(loss, place, offset, leader_epoch) for loss in self._invariants.losses):
            return
        raise Violation(
            name,
            f"{client} was answered offset {offset} in epoch {leader_epoch}; committed is "
            f"{replicas.committed_entry(place, offset)}",
            partition=str(self._invariants.name_of(place)),
        )

    # -- polls -----------------------------------------------------------------------------

    def poll_invoked(self, client: str, partition: TopicPartition, *, final: bool) -> None:
        now_ms = self._now_ms()
        place = self._place_now(partition)
        if is_short_lived(partition.topic) and place is not None:
            name = self._lives_history.name(partition.topic, place.topic_id)
            self._lives_history.add(
                PollInvoked(now_ms, client, name, partition.partition, final=final)
            )
        else:
            self.operations.append(PollInvoked(now_ms, client, *partition, final=final))

    def polled(
        self,
        client: str,
        records: Sequence[Record],
        *,
        final: bool = False,
        repositioned: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """Notes what one poll returned, of any partitions."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(
                record
            )
        for partition, own in by_partition.items():
            is_moved = partition in repositioned
            if partition.topic in self._judged:
                place = self._place_now(partition)
                assert place is not None, "topics that are judged by their names stay"
                self._note_read(client, place, own, is_moved)
                self._polled(client, partition, own, final, is_moved)
            elif is_short_lived(partition.topic):
                for topic_id, of_life in self._by_life(client, own):
                    self._polled_life(client, partition, topic_id, of_life, final, is_moved)

    def _by_life(
        self, client: str, records: Sequence[Record]
    ) -> Iterator[tuple[str, list[Record]]]:
        host = host_of(client)
        lives = groupby(records, lambda r: self._lives.given_in(host, r, value_of(r)))
        for topic_id, records_of in lives:
            yield topic_id, list(records_of)

    def _polled_life(
        self,
        client: str,
        partition: TopicPartition,
        topic_id: str,
        records: Sequence[Record],
        final: bool,
        repositioned: bool,
    ) -> None:
        # The first records of another topic id follow no earlier ones of it.
        is_first = self._lives_read.of(client, partition) != topic_id
        self._lives_read.read(client, partition, topic_id)
        place = PartitionId(topic_id, partition.partition)
        self._note_read(client, place, records, repositioned)
        self._lives_history.add(
            PollEnded(
                self._now_ms(),
                client,
                self._lives_history.name(partition.topic, topic_id),
                partition.partition,
                Outcome.OK,
                [record.offset for record in records],
                [value_of(record) for record in records],
                [record.leader_epoch for record in records],
                repositioned=repositioned and not is_first,
                final=final,
            )
        )

    def _note_read(
        self, client: str, place: PartitionId, records: Sequence[Record], repositioned: bool
    ) -> None:
        if repositioned:
            self.losses.sought(client, place)
        self.losses.read(client, place, records)
        judged: int | None = None
        for record in records:
            if judged != record.leader_epoch or record is records[-1]:
                judged = record.leader_epoch
                self._judge_committed("read_before_commit", client, place, record.offset, judged)

    def _polled(
        self,
        client: str,
        partition: TopicPartition,
        records: Sequence[Record],
        final: bool,
        repositioned: bool,
    ) -> None:
        key = (client, partition)
        expected = records[0].offset if repositioned else self._next_offset.get(key)
        for record in records:
            if expected is not None:
                self._judge_passed_over(client, partition, expected, record)
            expected = record.offset + 1
        self._next_offset[key] = records[-1].offset + 1
        self.operations.append(
            PollEnded(
                self._now_ms(),
                client,
                *partition,
                Outcome.OK,
                [record.offset for record in records],
                [value_of(record) for record in records],
                [record.leader_epoch for record in records],
                repositioned=repositioned,
                final=final,
            )
        )

    def _judge_passed_over(
        self, client: str, partition: TopicPartition, first: int, record: Record
    ) -> None:
        """Checks that what lies between `first`, which was next, and `record` are fences."""
        place = self._place_now(partition)
        assert place is not None, "topics that are judged by their names stay"
        for offset in range(first, record.offset):
            if self._unreadable is not None and self._unreadable.covers(place, offset):
                continue
            if self._invariants.replicas.fence_read(place, offset, record.leader_epoch) is None:
                raise Violation(
                    "passed_over_without_fence",
                    f"{client} was given offset {record.offset} in epoch {record.leader_epoch} "
                    f"where {first} was next, and no fence was committed at {offset}",
                    partition=str(partition),
                )

    def answered(self, kind: str, source: str, target: str, answer: object) -> None:
        """Notes acknowledgements; checks that offsets are out of range only after a loss."""
        if isinstance(answer, broker_pb2.ProduceResponse):
            self._acknowledgers.answered(source, target, answer)
        if kind != "fetch" or not isinstance(answer, broker_pb2.FetchResponse):
            return
        for told in answer.partitions:
            code = ErrorCode(told.error.code) if told.HasField("error") else None
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._judge_sent_back(
                    TopicPartition(told.topic, told.partition), told.error.message
                )
            if code is ErrorCode.RECORDS_DAMAGED:
                self._reported_unreadable(
                    TopicPartition(told.topic, told.partition), told.error.damaged
                )

    def _reported_unreadable(
        self, partition: TopicPartition, damaged: errors_pb2.DamagedRecords
    ) -> None:
        place = self._place_now(partition)
        if self._unreadable is None or place is None:
            return
        self.losses.seen[SKIPPED] += 1
        found = Range(damaged.first_offset, damaged.next_offset)
        try:
            self._unreadable.reported(place, found)
        except Violation as violation:  # a callback of the network
            self._invariants.note(violation)

    def _judge_sent_back(self, partition: TopicPartition, why: str) -> None:
        if partition.topic in self._judged and not self.has_lost(partition):
            self._invariants.found("sent_back_without_loss", why, partition=str(partition))

    # -- answers to clients ------------------------------------------------------------------

    def asked(self, host: str, request: object) -> int:
        question = next(self._questions)
        for partition, topic_id in ends_asked(request):
            self._add_reading(
                HighWatermarkInvoked(
                    self._now_ms(), _caller(host, question), *self._key(partition, topic_id)
                )
            )
        return question

    def answer_accepted(self, host: str, question: int, request: object, answer: object) -> None:
        """Notes an answer. In the history each question is a client of its own.

        A client may have several questions under way, and does not accept every answer. So ends
        are compared by epoch alone.
        """
        self._lives.answer_accepted(host, request, answer)
        for hear in self.on_accepted:
            hear(host, request, answer)
        for partition, topic_id, end, leader_epoch in ends_reported(request, answer):
            self._add_reading(
                HighWatermarkEnded(
                    self._now_ms(),
                    _caller(host, question),
                    *self._key(partition, topic_id),
                    Outcome.OK,
                    end,
                    leader_epoch,
                )
            )

    def _add_reading(self, operation: HighWatermarkInvoked | HighWatermarkEnded) -> None:
        if operation.topic in self._judged:
            self.operations.append(operation)
        elif is_short_lived(operation.topic):
            self._lives_history.add(operation)

    def _key(self, partition: TopicPartition, topic_id: str) -> tuple[str, int]:
        if is_short_lived(partition.topic):
            return self._lives_history.name(partition.topic, topic_id), partition.partition
        return partition

    def learned_of_another_topic(self, client: str) -> None:
        self.losses.seen[RECREATION_TOLD] += 1
        self._lives_read.recreation_reported(client)

    def election_reported(self, client: str, election: UncleanElection) -> None:
        try:
            self.losses.election_reported(client, self._places(election.partition), election)
        except Violation as violation:  # a callback of the library
            self._invariants.note(violation)

    def truncation_reported(
        self, client: str, error: LogTruncatedError, *, resumes: bool = False
    ) -> None:
        places = self._places(error.partition)
        self.losses.truncation_reported(client, places, error, resumes=resumes)

    # -- the rest --------------------------------------------------------------------------

    def end_invoked(self, client: str, partition: TopicPartition) -> None:
        self.operations.append(HighWatermarkInvoked(self._now_ms(), client, *partition))

    def end_reported(self, client: str, partition: TopicPartition, offset: int | None) -> None:
        """Notes the committed end that a client received; None: there was no answer."""
        outcome = Outcome.INFO if offset is None else Outcome.OK
        told = NO_OFFSET if offset is None else offset
        self.operations.append(
            HighWatermarkEnded(self._now_ms(), client, *partition, outcome, told)
        )

    def digested(
        self, partition: TopicPartition, broker_id: int, start: int, end: int, digest: str
    ) -> None:
        now_ms = self._now_ms()
        place = self._place_now(partition)
        if is_short_lived(partition.topic) and place is not None:
            name = self._lives_history.name(partition.topic, place.topic_id)
            self._lives_history.add(
                ReplicaDigest(now_ms, name, place.partition, broker_id, start, end, digest)
            )
        else:
            self.operations.append(ReplicaDigest(now_ms, *partition, broker_id, start, end, digest))

    def nemesis(self, event: str, detail: str) -> None:
        self.operations.append(Nemesis(self._now_ms(), event, detail))

    def report(self, topics: Collection[str]) -> Report:
        """Returns the checker's report, with loss marks for unclean elections and damage."""
        checker = HistoryChecker()
        for line, operation in enumerate([*self.operations, *self._loss_marks()], 1):
            if isinstance(operation, Nemesis) or operation.topic in topics:
                checker.add(line, operation)
        return checker.finish()

    def reports_of_lives(self) -> Iterator[Report]:
        """Yields a report for each short-lived topic."""
        yield from self._lives_history.reports(self._loss_marks())

    def _loss_marks(self) -> list[LossMark]:
        return [
            LossMark(
                self._now_ms(),
                *self._key(self._invariants.name_of(loss.partition), loss.partition.topic_id),
                UNCLEAN,
                NO_EPOCH,
                loss.leader_epoch - 1,
                loss.first_offset,
            )
            for loss in self._invariants.losses
        ] + [
            LossMark(
                self._now_ms(),
                *self._key(self._invariants.name_of(place), place.topic_id),
                DAMAGED,
                NO_EPOCH,
                LAST_EPOCH,
                found.first_offset,
                found.next_offset,
            )
            for place, found in (self._unreadable.ranges() if self._unreadable else ())
        ]


def _gives_up(loss: Loss, partition: PartitionId, offset: int, leader_epoch: int) -> bool:
    return (
        loss.partition == partition
        and loss.first_offset <= offset
        and leader_epoch < loss.leader_epoch
    )
