"""Defects planted in a correct history. Each makes the operations show exactly one class of
anomaly, and possibly the companions listed with it.

A defect yields all histories that it can make; a test takes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.history import (
    Anomaly,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    Operation,
    Outcome,
    PollEnded,
    ReplicaDigest,
    SendEnded,
    SendInvoked,
)
from unit.history.recording import TOPIC

History = list[Operation]
PHANTOM = 1 << 40


class Defect(NamedTuple):
    anomaly: Anomaly
    plant: Callable[[History], Iterator[History]]
    companions: frozenset[Anomaly] = frozenset()


def _polls(history: History, records: int = 1) -> Iterator[tuple[int, PollEnded]]:
    """Polls with at least this many records, except those of the drain."""
    for index, operation in enumerate(history):
        if (
            isinstance(operation, PollEnded)
            and not operation.final
            and len(operation.offsets) >= records
        ):
            yield index, operation


def _acknowledged(history: History) -> Iterator[tuple[int, SendEnded]]:
    for index, operation in enumerate(history):
        if (
            isinstance(operation, SendEnded)
            and operation.outcome is Outcome.OK
            and operation.offset >= 0
        ):
            yield index, operation


def _unknown_but_read(history: History) -> list[tuple[int, int, int]]:
    """Partition, offset and value of the unacknowledged records that the drain read."""
    ended = {one.value for one in history if isinstance(one, SendEnded)}
    unknown = {
        one.value for one in history if isinstance(one, SendInvoked) and one.value not in ended
    }
    return sorted(
        (poll.partition, offset, value)
        for poll in history
        if isinstance(poll, PollEnded) and poll.final
        for offset, value in zip(poll.offsets, poll.values, strict=True)
        if value in unknown
    )


def _replaced(history: History, index: int, *operations: Operation) -> History:
    return [*history[:index], *operations, *history[index + 1 :]]


def _without_records(poll: PollEnded, *indexes: int) -> PollEnded:
    def keep(column: object) -> list[int]:
        assert isinstance(column, list)
        return [one for index, one in enumerate(column) if index not in indexes]

    return poll._replace(
        offsets=keep(poll.offsets),
        values=keep(poll.values),
        leader_epochs=keep(poll.leader_epochs),
    )


def _never_polled(history: History, partition: int, offset: int) -> History:
    return [
        _without_records(one, *(i for i, at in enumerate(one.offsets) if at == offset))
        if isinstance(one, PollEnded) and one.partition == partition
        else one
        for one in history
    ]


def _polled_as(history: History, partition: int, value: int, other: int) -> History:
    return [
        one._replace(values=[other if each == value else each for each in one.values])
        if isinstance(one, PollEnded) and one.partition == partition
        else one
        for one in history
    ]


def _ends(history: History) -> dict[int, int]:
    """The ends of partitions from which a poll returned a record; another defect may have hidden
    all."""
    ends: dict[int, int] = {}
    for one in history:
        if isinstance(one, PollEnded) and one.offsets:
            ends[one.partition] = max(ends.get(one.partition, 0), *one.offsets)
    return ends


def lose_a_record(history: History) -> Iterator[History]:
    for _, send in _acknowledged(history):
        if send.offset < _ends(history).get(send.partition, 0):
            yield _never_polled(history, send.partition, send.offset)


def hide_the_last_record(history: History) -> Iterator[History]:
    for _, send in _acknowledged(history):
        if send.offset == _ends(history).get(send.partition):
            yield _never_polled(history, send.partition, send.offset)


def show_another_value_once(history: History) -> Iterator[History]:
    for index, poll in _polls(history):
        invoked = SendInvoked(0, "p9", TOPIC, poll.partition, PHANTOM)
        values = [*poll.values[:-1], PHANTOM]
        yield [invoked, *_replaced(history, index, poll._replace(values=values))]


def write_a_record_twice(history: History) -> Iterator[History]:
    for partition, offset, value in _unknown_but_read(history):
        for _, send in _acknowledged(history):
            if send.partition == partition and send.offset != offset:
                yield _polled_as(history, partition, value, send.value)


def fail_what_is_read(history: History) -> Iterator[History]:
    for partition, _, value in _unknown_but_read(history):
        yield [*history, SendEnded(0, *_sender(history, value), partition, value, Outcome.FAIL)]


def _sender(history: History, value: int) -> tuple[str, str]:
    return next(
        (one.client, one.topic)
        for one in history
        if isinstance(one, SendInvoked) and one.value == value
    )


def read_unsent_value(history: History) -> Iterator[History]:
    for partition, _, value in _unknown_but_read(history):
        yield _polled_as(history, partition, value, PHANTOM)


def skip_a_poll(history: History) -> Iterator[History]:
    for index, poll in _polls(history):
        before, after = _neighbours(history, index, poll)
        if before and after:
            yield _replaced(history, index)


def _neighbours(history: History, index: int, poll: PollEnded) -> tuple[bool, bool]:
    """Whether polls with records are adjacent before and after."""
    joined = []
    for others in (reversed(history[:index]), iter(history[index + 1 :])):
        same = (
            one
            for one in others
            if isinstance(one, PollEnded)
            and (one.client, one.partition) == (poll.client, poll.partition)
        )
        nearest = next(same, None)
        joined.append(
            nearest is not None
            and bool(nearest.offsets)
            and not nearest.repositioned
            and not poll.repositioned
        )
    return joined[0], joined[1]


def repeat_a_poll(history: History) -> Iterator[History]:
    for index, poll in _polls(history):
        yield _replaced(history, index, poll, poll._replace(repositioned=False))


def skip_inside_a_poll(history: History) -> Iterator[History]:
    for index, poll in _polls(history, records=3):
        yield _replaced(history, index, _without_records(poll, 1))


def repeat_inside_a_poll(history: History) -> Iterator[History]:
    for index, poll in _polls(history, records=2):
        yield _replaced(
            history,
            index,
            poll._replace(
                offsets=[poll.offsets[0], *poll.offsets],
                values=[poll.values[0], *poll.values],
                leader_epochs=[poll.leader_epochs[0], *poll.leader_epochs],
            ),
        )


def acknowledge_backwards(history: History) -> Iterator[History]:
    unknown = _unknown_but_read(history)
    for partition, offset, value in unknown:
        for other_partition, higher, other in unknown:
            if other_partition == partition and higher > offset:
                moved = {value, other}
                rest = [one for one in history if getattr(one, "value", None) not in moved]
                sends: History = []
                for sent, at in ((other, higher), (value, offset)):
                    sends.append(SendInvoked(0, "p9", TOPIC, partition, sent))
                    sends.append(SendEnded(0, "p9", TOPIC, partition, sent, Outcome.OK, at))
                yield [*sends, *rest]


def show_an_older_end(history: History) -> Iterator[History]:
    for one in history:
        if isinstance(one, PollEnded) and one.high_watermark > 0:
            yield [
                *history,
                HighWatermarkInvoked(0, "c9", TOPIC, one.partition),
                HighWatermarkEnded(
                    0,
                    "c9",
                    TOPIC,
                    one.partition,
                    Outcome.OK,
                    one.high_watermark - 1,
                    one.high_watermark_epoch,
                ),
            ]


def acknowledge_by_another_broker(history: History) -> Iterator[History]:
    sends = list(_acknowledged(history))
    for index, send in sends:
        led = (send.partition, send.leader_epoch)
        if sum((one.partition, one.leader_epoch) == led for _, one in sends) > 1:
            yield _replaced(history, index, send._replace(broker_id=9))


def change_a_replica(history: History) -> Iterator[History]:
    for index, one in enumerate(history):
        if isinstance(one, ReplicaDigest):
            yield _replaced(history, index, one._replace(digest="forked"))


DEFECTS = (
    Defect(
        Anomaly.LOST_WRITE,
        lose_a_record,
        # Readers past the record have skipped its offset.
        frozenset({Anomaly.POLL_SKIP, Anomaly.INTERNAL_SKIP}),
    ),
    Defect(Anomaly.UNSEEN, hide_the_last_record),
    Defect(Anomaly.INCONSISTENT_OFFSETS, show_another_value_once),
    Defect(Anomaly.DUPLICATE, write_a_record_twice),
    Defect(Anomaly.ABORTED_READ, fail_what_is_read),
    Defect(Anomaly.PHANTOM_READ, read_unsent_value),
    Defect(Anomaly.POLL_SKIP, skip_a_poll),
    Defect(Anomaly.NON_MONOTONIC_POLL, repeat_a_poll),
    Defect(Anomaly.INTERNAL_SKIP, skip_inside_a_poll),
    Defect(Anomaly.INTERNAL_NON_MONOTONIC, repeat_inside_a_poll),
    Defect(Anomaly.NON_MONOTONIC_SEND, acknowledge_backwards),
    Defect(Anomaly.HW_REGRESSION, show_an_older_end),
    Defect(Anomaly.TWO_LEADERS, acknowledge_by_another_broker),
    Defect(Anomaly.REPLICA_DIVERGENCE, change_a_replica),
)
