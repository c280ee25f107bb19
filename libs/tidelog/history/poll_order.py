"""The order in which each client received the records of one partition."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.history.anomalies import Anomaly, PartitionFindings, Reference
from tidelog.history.client_operations import Outcome, PollEnded
from tidelog.history.evidence import PollSource
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_spans import ReadSpan, ReadSpans
from tidelog.history.skipped_offsets import Jump


class _Stretch:
    """A client's polls since it was positioned. `last` is the last offset that it received."""

    __slots__ = ("last", "source", "span")

    def __init__(self, lowest: int, first: int, source: PollSource) -> None:
        self.span = ReadSpan(lowest)
        self.last = first
        self.source = source


class PollOrder:
    """Takes polls in the order of their lines.

    `jumps` holds the places where a client received a higher offset than the next. Whether records
    lie between is known only at the end.
    """

    def __init__(self, findings: PartitionFindings) -> None:
        self._findings = findings
        self._current: dict[str, _Stretch] = {}
        self._done: list[ReadSpan] = []
        # Clients whose first position may not be 0.
        self._moved: set[str] = set()
        self.jumps: list[Jump] = []

    def add(self, poll: PollEnded, source: PollSource) -> None:
        if poll.repositioned or poll.outcome is Outcome.INFO:
            self._moved.add(poll.client)
            ended = self._current.pop(poll.client, None)
            if ended is not None:
                self._done.append(ended.span)
        offsets, epochs = poll.offsets, poll.leader_epochs
        if not offsets:
            return
        stretch = self._current.get(poll.client)
        if stretch is None:
            is_from_start = poll.final or poll.client not in self._moved
            lowest = 0 if is_from_start else offsets[0]
            stretch = self._current[poll.client] = _Stretch(lowest, offsets[0], source)
        elif offsets[0] != stretch.last + 1:
            self._jumped(stretch, offsets[0], epochs[0], source)
        is_contiguous = _is_contiguous(offsets)
        if not is_contiguous:
            self._check_inside(poll, source)
        if is_contiguous and len(set(epochs)) == 1:
            stretch.span.add(offsets[0], offsets[-1], epochs[0])
        else:
            for offset, epoch in zip(offsets, epochs, strict=True):
                stretch.span.add(offset, offset, epoch)
        stretch.last = offsets[-1]
        stretch.source = source

    def take_jumps(self) -> list[Jump]:
        """Returns the jumps since the last call."""
        jumps, self.jumps = self.jumps, []
        return jumps

    def read_past(self, marks: LossMarks) -> ReadSpans:
        current = (stretch.span for stretch in self._current.values())
        return ReadSpans([*self._done, *current], marks)

    def _jumped(
        self, stretch: _Stretch, offset: int, leader_epoch: int, source: PollSource
    ) -> None:
        before, last = stretch.source, stretch.last
        summary = f"{source.client} was given offset {offset} after {last}"
        shown_by = (
            Reference(before.line, before.time_ms, f"{before.client} polled up to {last}"),
            Reference(source.line, source.time_ms, f"{source.client} polled from {offset}"),
        )
        if offset > last:
            self.jumps.append(
                Jump(Anomaly.POLL_SKIP, last + 1, offset, leader_epoch, summary, shown_by)
            )
        else:
            self._findings.add(Anomaly.NON_MONOTONIC_POLL, summary, shown_by)

    def _check_inside(self, poll: PollEnded, source: PollSource) -> None:
        offsets = poll.offsets
        for index in range(1, len(offsets)):
            before, after = offsets[index - 1], offsets[index]
            if after == before + 1:
                continue
            summary = f"one poll of {source.client} gave offset {after} after {before}"
            what = f"{source.client} polled {len(offsets)} records from offset {offsets[0]}"
            shown_by = (Reference(source.line, source.time_ms, what),)
            if after > before:
                epoch = poll.leader_epochs[index]
                self.jumps.append(
                    Jump(Anomaly.INTERNAL_SKIP, before + 1, after, epoch, summary, shown_by)
                )
            else:
                self._findings.add(Anomaly.INTERNAL_NON_MONOTONIC, summary, shown_by)


def _is_contiguous(offsets: Sequence[int]) -> bool:
    return list(offsets) == list(range(offsets[0], offsets[0] + len(offsets)))
