"""A minimal correct log, and the history that its clients record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.history import NO_PARTITION, Outcome
from unit.history.recording import Recording

PARTITIONS = 2
CLIENTS = 2
DRAIN_POLL_RECORDS = 4

# The value of a fence, which no client receives.
FENCE = -2

# The action; its partition and client; its variant and count.
Step = tuple[str, int, int]


@dataclass
class LogModel:
    history: Recording = field(default_factory=Recording)
    # Value and leader epoch of each record, and of each fence.
    logs: list[list[tuple[int, int]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    epochs: list[int] = field(default_factory=lambda: [1] * PARTITIONS)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    repositioned: set[tuple[str, int]] = field(default_factory=set)
    values: int = 0
    readers: int = 0
    late_ends: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    zombies: list[tuple[int, int]] = field(default_factory=list)

    def run(self, steps: Sequence[Step]) -> Recording:
        for kind, where, how in steps:
            getattr(self, kind)(where % PARTITIONS, where // PARTITIONS % CLIENTS, how)
        self._acknowledge_late()
        self._drain()
        return self.history

    def send(self, partition: int, client: int, how: int) -> None:
        """Send a record. `how`: 0, 1: acknowledged; 2: acknowledged without the offset; 3:
        acknowledged later; 4: failed; 5: unknown outcome, written; 6: unknown outcome, not
        written; 7: written and never ended."""
        self.values += 1
        value, producer = self.values, f"p{client}"
        named = NO_PARTITION if how % 2 else partition
        self.history.invoke(value, producer, named)
        offset, epoch = len(self.logs[partition]), self.epochs[partition]
        if how in (0, 1, 2, 3, 5, 7):
            self.logs[partition].append((value, epoch))
        if how in (0, 1):
            self.history.end(
                value, Outcome.OK, offset, producer, partition, epoch, self._leader(partition)
            )
        elif how == 2:
            self.history.end(value, Outcome.OK, client=producer, partition=partition)
        elif how == 3:
            self.late_ends.append((value, offset, partition, epoch, producer))
        elif how == 4:
            self.history.end(value, Outcome.FAIL, client=producer, partition=named)
        elif how in (5, 6):
            self.history.end(value, Outcome.INFO, client=producer, partition=named)

    def take_over_name(self, partition: int, client: int, how: int) -> None:
        """Take over a producer name, possibly several times in a row."""
        fences = 1 + (client + how) % 3
        self.logs[partition] += [(FENCE, self.epochs[partition])] * fences

    def poll(self, partition: int, client: int, how: int) -> None:
        key = (f"c{client}", partition)
        position = end = self.positions.get(key, 0)
        log, given = self.logs[partition], 0
        while given < how and end < len(log):
            given += log[end][0] != FENCE
            end += 1
        records = log[position:end]
        self._polled(key, position, records, final=False)
        self.positions[key] = position + len(records)

    def bad_poll(self, partition: int, client: int, how: int) -> None:
        key = (f"c{client}", partition)
        outcome = Outcome.INFO if how % 2 else Outcome.FAIL
        self.history.polled((), *key, outcome=outcome)
        if outcome is Outcome.INFO:
            handed_out = min(how, len(self.logs[partition]) - self.positions.get(key, 0))
            self.positions[key] = self.positions.get(key, 0) + handed_out

    def seek(self, partition: int, client: int, how: int) -> None:
        key = (f"c{client}", partition)
        self.positions[key] = len(self.logs[partition]) * how // 7
        self.repositioned.add(key)

    def fail_over(self, partition: int, client: int, how: int) -> None:
        self.history.nemesis("kill", f"leader of {partition}, {client}, {how}")
        if partition == 0:
            self.zombies.append((self.epochs[partition], len(self.logs[partition])))
        self.epochs[partition] += 1

    def read_high_watermark(self, partition: int, client: int, how: int) -> None:
        """Read the high watermark of partition 0 from its leader or an isolated one, possibly
        during a send."""
        if how == 7 and self.zombies:
            epoch, high_watermark = self.zombies[partition - 1]
            self.readers += 1
            self.history.saw_high_watermark(high_watermark, f"late{self.readers}", epoch)
            return
        reader = f"c{client}"
        high_watermark, epoch = len(self.logs[0]), self.epochs[0]
        self.history.requests_high_watermark(reader)
        if how % 2:
            self.send(0, client, 0)
        self.history.sent_high_watermark(high_watermark, reader, epoch)

    def acknowledge_late(self, partition: int, client: int, how: int) -> None:
        if (partition + client + how) % 2:
            self._acknowledge_late()

    def _acknowledge_late(self) -> None:
        for value, offset, partition, epoch, producer in reversed(self.late_ends):
            # The leader that wrote it, although another may lead by now.
            broker = self._leader(partition, epoch)
            self.history.end(value, Outcome.OK, offset, producer, partition, epoch, broker)
        self.late_ends.clear()

    def _leader(self, partition: int, epoch: int | None = None) -> int:
        return (self.epochs[partition] if epoch is None else epoch) % 3 + 1

    def _polled(
        self,
        key: tuple[str, int],
        position: int,
        records: Sequence[tuple[int, int]],
        *,
        final: bool,
    ) -> None:
        self.history.polled(
            [
                (position + index, value)
                for index, (value, _) in enumerate(records)
                if value != FENCE
            ],
            *key,
            epoch=self.epochs[key[1]],
            repositioned=key in self.repositioned,
            high_watermark=len(self.logs[key[1]]),
            final=final,
        )
        self.repositioned.discard(key)

    def _drain(self) -> None:
        for partition, log in enumerate(self.logs):
            # The last poll is empty: the drain has reached the end.
            for position in range(0, len(log) + DRAIN_POLL_RECORDS, DRAIN_POLL_RECORDS):
                records = log[position : position + DRAIN_POLL_RECORDS]
                self._polled(("drain", partition), position, records, final=True)
            for broker in (1, 2, 3):
                self.history.digest(broker, f"{log}", len(log), partition)
