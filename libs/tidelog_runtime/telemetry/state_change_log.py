"""A service's state changes: kept in a bounded ring, written to the log, sent to followers.

Reporting a change costs no more than a tuple. Its line is written later, in slices, so that ten
thousand elections do not wait for ten thousand lines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import structlog

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes import json_form
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_CHANGE,
    NO_PARTITION,
    NO_REVISION,
    Cause,
    Change,
    Detail,
    Kind,
    Stage,
    StateChange,
)
from tidelog_runtime.clock import Clock
from tidelog_runtime.shared_turns import SharedTurns
from tidelog_runtime.telemetry.logging import Line, write_lines

RING_CAPACITY = 20_000
# Bound on the queue of a follower that does not keep up with the ring.
MAX_QUEUED_FOR_FOLLOWER = 5_000
# State changes, and followers that get them, in one turn of the event loop.
FOLLOWED_PER_TURN = 200
# A slice takes about half a millisecond. The pause between two leaves nine tenths of the processor
# to the work that is reported. Ten thousand lines per second are enough to follow an incident.
MAX_LINES_PER_SLICE = 50
MAX_KEPT_PER_SLICE = 100
PAUSE_SECONDS = 0.005
# A slice that is late by this much runs on an overloaded loop. The other work takes precedence
# then, and about a thousand lines per second are written until the load ends.
LATE_SECONDS = 0.005
BUSY_PAUSE_SECONDS = 0.05
# Some stages for each of 100,000 partitions. A batch beyond this bound is not kept at all.
MAX_ARRIVING = 500_000
# Changes beyond this bound are kept but not written to the log.
MAX_UNWRITTEN = 100_000

_UNWELCOME = frozenset(
    {
        Kind.UNCLEAN_ELECTION,
        Kind.LEADER_LOST,
        Kind.REPLICA_DAMAGED,
        Kind.BATCH_DAMAGED,
        Kind.REPLICA_DIVERGED,
        Kind.DISK_REFUSED,
        Kind.HW_STALLED,
        Kind.RESIGNATION,
        Kind.BROKER_FENCED,
        Kind.BROKER_STALLED,
        Kind.CLOCK_IN_DOUBT,
        Kind.LEADER_UNREACHABLE,
        Kind.REGISTRATION_LOST,
        Kind.CONNECTION_LOST,
        Kind.COMMAND_OVERDUE,
        Kind.CONTROLLER_STEPPED_DOWN,
        Kind.STORE_LOST,
    }
)

_log = structlog.get_logger()

Sink = Callable[[StateChange], None]


class Filter(NamedTuple):
    """Selects state changes; an empty or None field lets every change pass."""

    topic: str = ""
    partition: int | None = None
    broker: int | None = None
    kinds: frozenset[str] = frozenset()
    since_ms: int = 0

    def passes(self, change: StateChange) -> bool:
        return (
            (not self.topic or change.topic == self.topic)
            and (self.partition is None or change.partition == self.partition)
            and (self.broker is None or change.broker == self.broker)
            and (not self.kinds or change.kind.value in self.kinds)
            and change.time_ms >= self.since_ms
        )


class Follower:
    """Queues reported state changes; beyond the bound they are only counted.

    - `turns`: of all followers. One change may wake thousands of them.
    """

    def __init__(self, selected: Filter, turns: SharedTurns) -> None:
        self._filter = selected
        self._turns = turns
        self._queue: deque[StateChange] = deque()
        self._grew = asyncio.Event()
        self._dropped = 0

    def take(self, change: StateChange) -> None:
        if not self._filter.passes(change):
            return
        if len(self._queue) == MAX_QUEUED_FOR_FOLLOWER:
            self._dropped += 1
        else:
            self._queue.append(change)
        self._grew.set()

    async def next(self) -> tuple[list[StateChange], int]:
        """Waits for changes; returns those since the last call, and the number that was dropped."""
        await self._grew.wait()
        await self._turns.take(1 + min(len(self._queue), FOLLOWED_PER_TURN // 2))
        self._grew.clear()
        changes, dropped = list(self._queue), self._dropped
        self._queue.clear()
        self._dropped = 0
        return changes, dropped


class StateChangeLog:
    """The state changes of one service.

    The service calls `emit`; observers use the other methods.

    - `service`: its role and id, as "broker-2".
    """

    def __init__(self, service: str, clock: Clock, capacity: int = RING_CAPACITY) -> None:
        self.service = service
        self.reported = 0
        self.dropped = 0  # changes that were not published to the topic `__state_changes`
        self._clock = clock
        self._began_ms = clock.wall_ms()
        self._ring: deque[StateChange] = deque(maxlen=capacity)
        # Batches with their numbers of state changes.
        self._arriving: deque[tuple[Iterator[StateChange], int]] = deque()
        self._arriving_count = 0
        self._unwritten: deque[StateChange] = deque()
        # Changes beyond these bounds since the last warning.
        self._not_kept = 0
        self._not_written = 0
        self._writing = False
        self._followers: list[Follower] = []
        self._turns = SharedTurns(FOLLOWED_PER_TURN)
        self._sinks: list[Sink] = []

    def condition_change(self, subject: str, cause: Cause, for_ms: int = 0) -> Change:
        """Returns the change for a condition that began `for_ms` ago.

        The begin and the end of the condition are reported with the same change, so the end has
        the duration.

        - `subject`: the condition; it exists once at a time.
        """
        since_ms = self._clock.wall_ms() - for_ms
        return Change(f"{self.service}-{subject}-{since_ms}", cause, since_ms)

    def emit(
        self,
        kind: Kind,
        stage: Stage,
        *,
        change: Change = NO_CHANGE,
        cause: Cause | None = None,
        name: TopicPartition | None = None,
        topic: str = "",
        topic_id: str = "",
        broker: int = NO_BROKER,
        broker_epoch: int = NO_REVISION,
        controller_epoch: int = NO_EPOCH,
        leader_epoch: int = NO_EPOCH,
        revision: int = NO_REVISION,
        details: Mapping[str, Detail] | None = None,
    ) -> None:
        """Reports a state change.

        - `cause`: if it differs from the cause of `change`, e.g. for a rejected change.
        """
        now_ms = self._clock.wall_ms()
        self.add(
            StateChange(
                time_ms=now_ms,
                service=self.service,
                kind=kind,
                stage=stage,
                cause=change.cause if cause is None else cause,
                change_id=change.id,
                topic=name.topic if name else topic,
                topic_id=topic_id,
                partition=name.partition if name else NO_PARTITION,
                broker=broker,
                broker_epoch=broker_epoch,
                controller_epoch=controller_epoch,
                leader_epoch=leader_epoch,
                revision=revision,
                duration_ms=change.duration_ms(now_ms),
                trace_id=change.trace_id,
                details=details or {},
            )
        )

    def add(self, change: StateChange) -> None:
        if self._arriving:
            self.add_each((change,), 1)
        else:
            self._keep(change)
            self._write_soon()

    def add_each(self, changes: Iterable[StateChange], count: int) -> None:
        """Adds `count` changes that later iterations of the event loop keep.

        They precede all changes that are reported after them. Adding thousands costs as much as
        one.
        """
        if self._arriving_count + count > MAX_ARRIVING:
            self._not_kept += count
        else:
            self._arriving.append((iter(changes), count))
            self._arriving_count += count
        self._write_soon()

    def _keep(self, change: StateChange) -> None:
        self.reported += 1
        self._ring.append(change)
        for follower in self._followers:
            follower.take(change)
        for sink in self._sinks:
            sink(change)
        if len(self._unwritten) == MAX_UNWRITTEN:
            self._not_written += 1
        else:
            self._unwritten.append(change)

    def add_sink(self, sink: Sink) -> None:
        """Adds a function that gets every change at once; it must be quick and not raise."""
        self._sinks.append(sink)

    def kept(self) -> list[StateChange]:
        """Returns the changes in the ring, oldest first."""
        return list(self._ring)

    def recent(self, selected: Filter) -> list[StateChange]:
        """Returns the kept changes that pass, oldest first.

        Takes milliseconds if the ring is full.
        """
        return [change for change in self._ring if selected.passes(change)]

    @property
    def oldest_kept_ms(self) -> int:
        """Wall clock, in milliseconds, since which the ring is complete.

        Earlier changes are forgotten, or a previous process reported them.
        """
        forgets = self.reported > len(self._ring)
        return self._ring[0].time_ms if forgets and self._ring else self._began_ms

    def follow(self, selected: Filter) -> Follower:
        follower = Follower(selected, self._turns)
        self._followers.append(follower)
        return follower

    def unfollow(self, follower: Follower) -> None:
        self._followers.remove(follower)

    def flush(self) -> None:
        """Keeps and writes everything that is pending, at the end of the service."""
        while self._arriving or self._unwritten:
            self._keep_some(MAX_KEPT_PER_SLICE)
            while self._unwritten:
                self._write_some()
        self._log_lost()

    def _keep_some(self, limit: int) -> None:
        for _ in range(limit):
            if not self._arriving:
                return
            changes, count = self._arriving[0]
            change = next(changes, None)
            if change is None:
                self._arriving.popleft()
                self._arriving_count -= count
            else:
                self._keep(change)

    def _write_soon(self) -> None:
        if self._writing:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._writing = True
        loop.call_soon(self._write_slice, loop.time())

    def _write_slice(self, due: float) -> None:
        """Writes one slice. `due`: the loop time for which it was scheduled."""
        loop = asyncio.get_running_loop()
        is_late = loop.time() - due > LATE_SECONDS
        self._keep_some(MAX_KEPT_PER_SLICE)
        self._write_some()
        if self._arriving or self._unwritten:
            next_due = loop.time() + (BUSY_PAUSE_SECONDS if is_late else PAUSE_SECONDS)
            loop.call_at(next_due, self._write_slice, next_due)
        else:
            self._writing = False
            self._log_lost()

    def _write_some(self) -> None:
        count = min(MAX_LINES_PER_SLICE, len(self._unwritten))
        write_lines([_line(self._unwritten.popleft()) for _ in range(count)])

    def _log_lost(self) -> None:
        """Logs the number of lost changes in one line."""
        if self._not_kept or self._not_written:
            _log.warning(
                "state_changes_lost",
                not_kept=self._not_kept,
                not_written=self._not_written,
                why="too many at once: queues hold a bounded number",
            )
            self._not_kept = self._not_written = 0


def _line(change: StateChange) -> Line:
    unwelcome = change.stage is Stage.FAILED or change.kind in _UNWELCOME
    return Line(
        json_form.format_time(change.time_ms),
        "warning" if unwelcome else "info",
        change.service,
        json_form.EVENT,
        json_form.to_fields(change),
    )
