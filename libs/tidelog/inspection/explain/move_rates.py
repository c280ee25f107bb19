"""Checks whether the throttle lets a copy end: compares the write rates of the partitions that are
copied with the rate that a broker may use for moves. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import ids, span
from tidelog.inspection.state_reports import NOT_KNOWN, PartitionKeyState
from tidelog.units import size_text

# A bound that leaves half of the write rate as room ends the copy within twice the time for which
# it has lagged.
ROOM_NUMERATOR, ROOM_DENOMINATOR = 3, 2


class ThrottledCopy(NamedTuple):
    """The throttle of one broker, in bytes per second.

    - `written`, `most_written`: the usual and the highest rate at which the partitions of its moves
      are written, and thus the rate at which moves neither gain nor lose; NOT_KNOWN if the write
      rates are unknown.
    - `lag_bytes`: the bytes that the replica lacks.
    """

    broker_id: int
    bytes_per_second: int
    written: int
    most_written: int
    lag_bytes: int

    @property
    def never_ends(self) -> bool:
        return self.written >= self.bytes_per_second

    @property
    def sufficient(self) -> int:
        """A sufficient rate, in whole kilobytes as `tidelog throttle set` takes it."""
        needed = self.most_written * ROOM_NUMERATOR // ROOM_DENOMINATOR
        return max(1, -(-needed // 1_000)) * 1_000

    def lines(self) -> list[str]:
        if self.written < 0:
            return []
        written = (
            f"the partitions that broker {self.broker_id} copies for moves are written at about "
            f"{size_text(self.written)}/s together"
        )
        if self.most_written > self.written:
            written += f", and {size_text(self.most_written)}/s at the most"
        if self.never_ends or self.lag_bytes < 0:
            return [written]
        left_ms = self.lag_bytes * 1_000 // (self.bytes_per_second - self.written)
        return [written, f"at this rate the copy ends in about {span(left_ms)}"]


def tightest_throttle(
    view: ClusterView, key: PartitionKeyState, broker_id: int
) -> ThrottledCopy | None:
    """Returns the bound of sender or receiver, whichever leaves less. None if neither is bound."""
    progress = view.progress(key, broker_id)
    lag_bytes = NOT_KNOWN if progress is None else progress.lag_bytes
    found = [
        ThrottledCopy(bound_id, rate, *_written(view, bound_id), lag_bytes)
        for bound_id in (key.leader, broker_id)
        if bound_id in view.broker_states
        and (rate := view.broker_states[bound_id].move_bytes_per_second) >= 0
    ]
    return min(found, key=lambda bound: bound.bytes_per_second - bound.written, default=None)


def _written(view: ClusterView, broker_id: int) -> tuple[int, int]:
    """Returns the usual and the highest write rate of all partitions that this broker sends to, or
    receives as, replicas that moves add."""
    rates = list(_rates_through(view, broker_id))
    if not rates:
        return NOT_KNOWN, NOT_KNOWN
    return sum(usual for usual, _ in rates), sum(most for _, most in rates)


def _rates_through(view: ClusterView, broker_id: int) -> Iterator[tuple[int, int]]:
    for key in view.keys.values():
        leading = view.leading(key)
        if key.move is None or key.move.cancelled or leading is None:
            continue
        usual = leading[1].written_bytes_per_second
        most = leading[1].most_written_bytes_per_second
        copied_to = [
            b for b in key.move.target if b not in key.move.original and b not in ids(key.isr)
        ]
        copies = len(copied_to) if key.leader == broker_id else copied_to.count(broker_id)
        if copies and usual is not None and most is not None:
            yield usual * copies, most * copies
