"""What clients and observers did, as plain values, each written when it happened.

Sends, polls and readings of the high watermark are written twice: when they are invoked
and when they end. `history_format` says how each is written down.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import NO_EPOCH, NO_OFFSET, TopicPartition

NO_PARTITION = -1
NO_BROKER = -1
# What a record is noted as that carries no value of this history (it cannot be read, say).
UNREADABLE_VALUE = -1
# As the end of a range: there is none.
OPEN_END = (1 << 63) - 1


class Outcome(enum.StrEnum):
    """INFO: nobody knows whether it was done, and it may yet be."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class SendInvoked(NamedTuple):
    """Written before the record is handed to the producer, in the order in which one
    `client` hands them over. `value` is unique in the history."""

    time_ms: int
    client: str
    topic: str
    partition: int
    value: int


class SendEnded(NamedTuple):
    """FAIL: certainly not written, and never will be. OK: acknowledged by all in-sync
    replicas, and always with a partition; whatever promises less (acks 0 or 1) ends as
    INFO. `offset` is NO_OFFSET where an acknowledgement does not tell it."""

    time_ms: int
    client: str
    topic: str
    partition: int
    value: int
    outcome: Outcome
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    broker_id: int = NO_BROKER


def sends_ended(
    time_ms: int,
    client: str,
    partition: TopicPartition,
    values: Sequence[int],
    outcome: Outcome,
    base_offset: int = NO_OFFSET,
    leader_epoch: int = NO_EPOCH,
    broker_id: int = NO_BROKER,
) -> list[SendEnded]:
    """Of the records of one batch: their offsets are in a row, or none of them is known."""
    step = 0 if base_offset == NO_OFFSET else 1
    return [
        SendEnded(
            time_ms,
            client,
            *partition,
            value,
            outcome,
            base_offset + step * index,
            leader_epoch,
            broker_id,
        )
        for index, value in enumerate(values)
    ]


class PollInvoked(NamedTuple):
    """May be left out, except that without it a drain begins at its first answer."""

    time_ms: int
    client: str
    topic: str
    partition: int
    final: bool = False


class PollEnded(NamedTuple):
    """What one poll gave of one partition, in the order in which it was given: three
    columns of equal length.

    `repositioned`: since this client's last poll of the partition it was assigned anew,
    or a position was sought or reset; also of a first poll that does not begin at the
    partition's start. `high_watermark` is what came with the records, in
    the epoch of the leader that said so. `final`: belongs to the drain.
    """

    time_ms: int
    client: str
    topic: str
    partition: int
    outcome: Outcome
    offsets: Sequence[int] = ()
    values: Sequence[int] = ()
    leader_epochs: Sequence[int] = ()
    repositioned: bool = False
    high_watermark: int = NO_OFFSET
    high_watermark_epoch: int = NO_EPOCH
    final: bool = False


class HighWatermarkInvoked(NamedTuple):
    """A client asks a leader for the committed end; one question at a time for each
    client and partition."""

    time_ms: int
    client: str
    topic: str
    partition: int


class HighWatermarkEnded(NamedTuple):
    time_ms: int
    client: str
    topic: str
    partition: int
    outcome: Outcome
    high_watermark: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH


class LossMark(NamedTuple):
    """What was stamped in the leader epochs `first_epoch` to `last_epoch`, at the offsets
    `first_offset` up to `end_offset` (excluded), was given up for a known `reason`: an
    unclean election, retention."""

    time_ms: int
    topic: str
    partition: int
    reason: str
    first_epoch: int
    last_epoch: int
    first_offset: int = 0
    end_offset: int = OPEN_END


class ReplicaDigest(NamedTuple):
    """After healing: a digest over the bytes that one replica holds of the committed
    offsets `start_offset` up to `end_offset` (excluded). Replicas are digested over one
    same range; a replica that holds less of it has another digest."""

    time_ms: int
    topic: str
    partition: int
    broker_id: int
    start_offset: int
    end_offset: int
    digest: str


class Nemesis(NamedTuple):
    """A fault or its end ("kill", "heal"), to whom."""

    time_ms: int
    event: str
    detail: str = ""


Operation = (
    SendInvoked
    | SendEnded
    | PollInvoked
    | PollEnded
    | HighWatermarkInvoked
    | HighWatermarkEnded
    | LossMark
    | ReplicaDigest
    | Nemesis
)


class Send(NamedTuple):
    """Both halves of a send. `ended_line` is 0 where it never ended, which is INFO."""

    value: int
    client: str
    topic: str
    partition: int
    outcome: Outcome
    offset: int
    leader_epoch: int
    broker_id: int
    invoked_line: int
    invoked_ms: int
    ended_line: int
    ended_ms: int


class HistoryError(Exception):
    """This is no history, or one that contradicts itself; the message says where."""
