"""Operations of clients and observers as plain values, each written when it happens.

Sends, polls and readings of the high watermark are written twice: when they are invoked
and when they end. `history_format` defines how each is written.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import NO_EPOCH, NO_OFFSET, TopicPartition

NO_PARTITION = -1
NO_BROKER = -1
# The value of a record that carries no value of this history (it is unreadable, for example).
UNREADABLE_VALUE = -1
# The end of a range without an end.
OPEN_END = (1 << 63) - 1


class Outcome(enum.StrEnum):
    """How an operation ended. INFO: it is unknown whether it was done, and it may still be."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class SendInvoked(NamedTuple):
    """A client hands a record to its producer.

    Written before that, in the order in which one `client` hands records over. `value` is unique
    in the history.
    """

    time_ms: int
    client: str
    topic: str
    partition: int
    value: int


class SendEnded(NamedTuple):
    """The end of a send.

    - FAIL: certainly not written, and never will be.
    - OK: acknowledged by all in-sync replicas; the partition is always set. A weaker promise
      (acks 0 or 1) ends as INFO.
    - `offset`: NO_OFFSET if the acknowledgement does not include it.
    """

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
    """Returns the ends of one batch's sends. Their offsets are consecutive, or all unknown."""
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
    """The start of a poll. May be left out; then a drain begins at its first answer."""

    time_ms: int
    client: str
    topic: str
    partition: int
    final: bool = False


class PollEnded(NamedTuple):
    """The records of one partition that one poll returned, in their order: three columns of equal
    length.

    - `repositioned`: since this client's last poll of the partition, the partition was assigned
      again, or a position was sought or reset. Also set for a first poll that does not begin at
      the partition's start.
    - `high_watermark`: the one that came with the records, in the epoch of the leader that sent it.
    - `final`: the poll belongs to the drain.
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
    """A client requests the committed end from a leader. Each client has at most one such request
    open for each partition."""

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
    """Records of the leader epochs `first_epoch` to `last_epoch`, at the offsets `first_offset` up
    to `end_offset` (excluded), were given up for a known `reason`: an unclean election,
    retention."""

    time_ms: int
    topic: str
    partition: int
    reason: str
    first_epoch: int
    last_epoch: int
    first_offset: int = 0
    end_offset: int = OPEN_END


class ReplicaDigest(NamedTuple):
    """A digest, made after healing, over the bytes of one replica at the committed offsets
    `start_offset` up to `end_offset` (excluded).

    All replicas are digested over the same range. A replica that lacks a part of it has another
    digest.
    """

    time_ms: int
    topic: str
    partition: int
    broker_id: int
    start_offset: int
    end_offset: int
    digest: str


class Nemesis(NamedTuple):
    """A fault or its end ("kill", "heal"), and its target as `detail`."""

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
    """Both halves of a send. If it never ended, `ended_line` is 0 and `outcome` is INFO."""

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
    """The data is no history, or contradicts itself; the message says where."""
