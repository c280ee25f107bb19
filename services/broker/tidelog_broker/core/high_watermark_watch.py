"""Detects stalled high watermarks and the brokers that hold them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import NO_OFFSET
from tidelog.state_changes.event import Cause
from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.partition import Partition


class Holders(NamedTuple):
    """Why a high watermark does not move.

    - `brokers`: those whose end offsets hold it; below min ISR, the members of the ISR.
    - `end_offsets`: theirs; NO_OFFSET: none was reported in this epoch.
    """

    cause: Cause
    brokers: tuple[int, ...]
    end_offsets: tuple[int, ...]


def high_watermark_holders(
    high_watermark: int,
    end_offsets: Mapping[int, int],
    *,
    leader: int,
    maximal_isr: Collection[int],
    committed_isr: Collection[int],
    min_isr: int,
) -> Holders:
    """Returns the brokers that hold the high watermark.

    `end_offsets`: as far as each one counts, including the leader's own. The leader itself holds
    the high watermark of a `synced` topic if its disk does not sync.
    """
    ends = {broker: end_offsets.get(broker, NO_OFFSET) for broker in sorted(maximal_isr)}
    if len(committed_isr) < min_isr:
        members = sorted(committed_isr)
        offsets = tuple(end_offsets.get(broker, NO_OFFSET) for broker in members)
        return Holders(Cause.BELOW_MIN_ISR, tuple(members), offsets)
    held = {broker: end for broker, end in ends.items() if end <= high_watermark}
    cause = Cause.LEADER_NOT_SYNCED if list(held) == [leader] else Cause.NO_FOLLOWER_PROGRESS
    return Holders(cause, tuple(held), tuple(held.values()))


def holders_of(partition: Partition, broker_id: int) -> Holders:
    """Returns the holders for a partition that this broker leads."""
    leading, state = partition.leading, partition.state
    assert leading is not None
    assert state is not None
    ends = {broker: progress.log_end_offset for broker, progress in leading.followers.items()}
    return high_watermark_holders(
        partition.high_watermark,
        {**ends, broker_id: partition.counted_end},
        leader=broker_id,
        maximal_isr=isr.maximal(state, leading.proposed),
        committed_isr=state.isr_ids,
        min_isr=state.min_isr,
    )


@dataclass(slots=True)
class _Waiting:
    """A high watermark with waiting records, as seen in `leader_epoch`."""

    leader_epoch: int
    high_watermark: int
    since_ms: int
    stalled: bool = False


class Verdict(NamedTuple):
    """Whether a stall has begun or ended, and how long it lasts or lasted."""

    stalled: bool
    for_ms: int


class HighWatermarkWatch:
    """Checks each led partition periodically; appends and fetches record nothing.

    It keeps the partitions that had waiting records at the last check. Their number is bounded by
    the partitions that this broker leads.
    """

    def __init__(self, stalled_after_ms: int) -> None:
        self._stalled_after_ms = stalled_after_ms
        self._waiting: dict[Partition, _Waiting] = {}

    def check(self, partition: Partition, now_ms: int) -> Verdict | None:
        """Checks a partition. Returns None if nothing has changed since the last check."""
        known = self._waiting.get(partition)
        waits = partition.high_watermark < partition.log.log_end_offset
        if known is None:
            if waits:
                self._waiting[partition] = _Waiting(
                    partition.leader_epoch, partition.high_watermark, now_ms
                )
            return None
        moved = not waits or known.high_watermark != partition.high_watermark
        if known.leader_epoch != partition.leader_epoch or moved:
            del self._waiting[partition]
            if waits:
                self.check(partition, now_ms)
            # The end of an epoch also ends its stall. The next epoch starts its own.
            return Verdict(False, now_ms - known.since_ms) if known.stalled else None
        if known.stalled or now_ms - known.since_ms < self._stalled_after_ms:
            return None
        known.stalled = True
        return Verdict(True, now_ms - known.since_ms)

    def restart_timers(self, now_ms: int) -> None:
        """Restarts the time of partitions without a stall.

        This broker itself was stalled (rule `quiet-partition-reports-its-end`).
        """
        for noted in self._waiting.values():
            if not noted.stalled:
                noted.since_ms = now_ms

    @property
    def waiting(self) -> Iterable[Partition]:
        """The partitions that had waiting records at the last check."""
        return self._waiting

    def forget_led_no_more(self) -> None:
        if self._waiting:
            waiting = self._waiting.items()
            self._waiting = {p: noted for p, noted in waiting if p.leading is not None}

    def waiting_ms(self, partition: Partition, now_ms: int) -> int | None:
        """Returns how long records have been waiting while the high watermark has not moved.

        Judged by the checks so far; None: no record waits.
        """
        if partition.high_watermark >= partition.log.log_end_offset:
            return None
        known = self._waiting.get(partition)
        same = known is not None and (known.leader_epoch, known.high_watermark) == (
            partition.leader_epoch,
            partition.high_watermark,
        )
        return now_ms - known.since_ms if known is not None and same else 0
