"""What a run shows beside the history's check: the progress of consumers, the high watermarks that
were read, and how long each producer waited. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.history import HighWatermarkEnded, Operation, Outcome, SendEnded
from tidelog.model import TopicPartition

# From the end of writing until consumers have read everything acknowledged.
CATCH_UP_S = 30.0


class ReaderSeen(NamedTuple):
    """`behind`: by partition, its position and the acknowledged end.
    `repositioned`: how often the log differed from what it had read.
    `errors`: all errors of polls, by code."""

    name: str
    behind: Mapping[str, tuple[int, int]]
    repositioned: int
    errors: Mapping[str, int]

    @property
    def problems(self) -> list[str]:
        found = [
            f"{self.name} stands at {position} of {partition} {CATCH_UP_S:g} s after the load, and "
            f"{end} were acknowledged"
            for partition, (position, end) in self.behind.items()
        ]
        if self.repositioned:
            # No planned fault causes an unclean election.
            found.append(
                f"{self.name} was informed {self.repositioned} times that records that it had read "
                "are gone"
            )
        return found


@dataclass(frozen=True, slots=True)
class Observation:
    """`hw_read_ms`: when the load last read each partition's high watermark.
    `producer_gap_ms`: the longest time in which one producer, over all partitions, had no write
    acknowledged."""

    hw_read_ms: Mapping[TopicPartition, int]
    producer_gap_ms: int
    readers: Sequence[ReaderSeen] = ()


class Observer:
    """Observes the operations of one load on their way to the check."""

    def __init__(self) -> None:
        self._hw_read_ms: dict[TopicPartition, int] = {}
        self._acknowledged_ms: dict[str, int] = {}
        self._producer_gap_ms = 0

    def watch(self, operations: Iterable[tuple[int, Operation]]) -> Iterator[tuple[int, Operation]]:
        for line, operation in operations:
            if isinstance(operation, SendEnded):
                self._send_ended(operation)
            elif isinstance(operation, HighWatermarkEnded) and operation.outcome is Outcome.OK:
                partition = TopicPartition(operation.topic, operation.partition)
                self._hw_read_ms[partition] = operation.time_ms
            yield line, operation

    def _send_ended(self, send: SendEnded) -> None:
        if send.outcome is Outcome.OK:
            # A producer that fails for good is replaced by another one, which is the same to users.
            producer = send.client.partition(".")[0]
            self._note_gap(send.time_ms - self._acknowledged_ms.get(producer, send.time_ms))
            self._acknowledged_ms[producer] = send.time_ms

    def _note_gap(self, length_ms: int) -> None:
        self._producer_gap_ms = max(self._producer_gap_ms, length_ms)

    def finish(self, load_end_ms: int, readers: Sequence[ReaderSeen]) -> Observation:
        """After the last acknowledgement, writes were tried until the load ended."""
        for at_ms in self._acknowledged_ms.values():
            self._note_gap(load_end_ms - at_ms)
        return Observation(self._hw_read_ms, self._producer_gap_ms, readers)
