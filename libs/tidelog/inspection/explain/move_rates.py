"""Whether the bound on moves lets a copy end: the write rates of the partitions that are copied
against what a broker may send or receive for moves. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.observed import BROKER
from tidelog.inspection.explain.words import ids, name_of_key, span
from tidelog.inspection.model import NOT_KNOWN, PartitionKeyState, ReplicaState

# A bound that leaves half as much again as what is written ends the copy within twice the time
# for which it has lagged.
ROOM_NUMERATOR, ROOM_DENOMINATOR = 3, 2
# Where no second sample tells the write rate, the age and the size of the lag do: not of one so
# short that a single batch counts for much, nor so long that it tells of another time.
LAG_WINDOW_MS = range(3_000, 60_000)


class Bound(NamedTuple):
    """The bound of one broker, and the bytes a second that it must carry for the moves to gain
    nothing and lose nothing; NOT_KNOWN: the write rates are not known. `lag_bytes`: what the
    replica lacks."""

    broker_id: int
    bytes_per_second: int
    written: int
    lag_bytes: int

    @property
    def never_ends(self) -> bool:
        return self.written >= self.bytes_per_second

    @property
    def sufficient(self) -> int:
        """A rate that would do: in whole kilobytes, the way `tidelog throttle set` takes it."""
        needed = self.written * ROOM_NUMERATOR // ROOM_DENOMINATOR
        return max(1, -(-needed // 1_000)) * 1_000

    def lines(self) -> list[str]:
        if self.written < 0:
            return []
        written = (
            f"the partitions that broker {self.broker_id} copies for moves are written at about "
            f"{self.written:,} bytes a second together"
        )
        if self.never_ends or self.lag_bytes < 0:
            return [written]
        left_ms = self.lag_bytes * 1_000 // (self.bytes_per_second - self.written)
        return [written, f"at this rate the copy ends in about {span(left_ms)}"]


def tightest_bound(view: ClusterView, key: PartitionKeyState, broker_id: int) -> Bound | None:
    """Of sender and receiver the one that leaves less; None: neither is bound."""
    progress = view.progress(key, broker_id)
    lag_bytes = NOT_KNOWN if progress is None else progress.lag_bytes
    found = [
        Bound(bound_id, rate, _written(view, bound_id), lag_bytes)
        for bound_id in (key.leader, broker_id)
        if (rate := _bound_of(view, bound_id)) >= 0
    ]
    return min(found, key=lambda bound: bound.bytes_per_second - bound.written, default=None)


def _bound_of(view: ClusterView, broker_id: int) -> int:
    state = view.brokers.get(broker_id)
    if state is None or state.broker is None:
        return NOT_KNOWN
    return state.broker.move_bytes_per_second


def _written(view: ClusterView, broker_id: int) -> int:
    """Of all that this broker sends to, or receives as, replicas that moves add."""
    rates = list(_rates_through(view, broker_id))
    known = [rate for rate in rates if rate >= 0]
    return sum(known) if known else NOT_KNOWN


def _rates_through(view: ClusterView, broker_id: int) -> Iterator[int]:
    for key in view.keys.values():
        if key.move is None or key.move.cancelled:
            continue
        copied_to = [
            b for b in key.move.target if b not in key.move.original and b not in ids(key.isr)
        ]
        copies = len(copied_to) if key.leader == broker_id else copied_to.count(broker_id)
        if copies:
            rate = _write_rate(view, key, copied_to[0])
            yield rate * copies if rate >= 0 else NOT_KNOWN


def _write_rate(view: ClusterView, key: PartitionKeyState, follower: int) -> int:
    leading = view.leading(key)
    if leading is None:
        return NOT_KNOWN
    now = leading[0]
    before = _earlier(view, key)
    if before is not None and before.leader_epoch == now.leader_epoch:
        appended = now.log_end_offset - before.log_end_offset
        rate = appended * _record_bytes(now) * 1_000 // max(1, view.observed.earlier_ms)
        if rate > 0:
            return rate
    progress = view.progress(key, follower)
    if progress is not None and progress.lag_ms in LAG_WINDOW_MS and progress.lag_bytes >= 0:
        return progress.lag_bytes * 1_000 // progress.lag_ms
    return NOT_KNOWN if before is None else 0


def _record_bytes(replica: ReplicaState) -> int:
    """Of its records on average."""
    return replica.size_bytes // max(1, replica.log_end_offset - replica.log_start_offset)


def _earlier(view: ClusterView, key: PartitionKeyState) -> ReplicaState | None:
    for state in view.observed.earlier:
        if state.role != BROKER or state.id != key.leader or state.broker is None:
            continue
        for replica in state.broker.replicas:
            if (replica.topic, replica.partition) == name_of_key(key) and replica.leader:
                return replica
    return None
