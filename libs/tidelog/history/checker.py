"""Checks a whole history: routes each operation to its partition's check.

A history that is too large for one machine takes two steps. First, join the halves of each send
by value (`SendPairing`), and find by the same key the partition of sends that name none. Then
group everything by partition (`PartitionCheck`), and merge the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidelog.history.client_operations import (
    NO_PARTITION,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    LossMark,
    Nemesis,
    Operation,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
    Send,
    SendEnded,
    SendInvoked,
)
from tidelog.history.partition_check import PartitionCheck
from tidelog.history.report import MAX_NEMESIS_EVENTS, Report
from tidelog.history.send_pairing import SendPairing


class HistoryChecker:
    """Checks operations that are added in their order, during the run or later.

    Call `finish` once at the end. Raises `HistoryError` for a history that contradicts itself.
    """

    def __init__(self) -> None:
        self._pairing = SendPairing()
        self._partitions: dict[tuple[str, int], PartitionCheck] = {}
        # Sends of unknown partition, by topic.
        self._unplaced: dict[str, list[Send]] = {}
        self._report = Report()
        self._routes: dict[type, Callable[[int, Any], None]] = {
            SendInvoked: self._pairing.invoked,
            SendEnded: self._send_ended,
            PollInvoked: lambda line, poll: self._check(poll).add_poll_invoked(line, poll),
            PollEnded: lambda line, poll: self._check(poll).add_poll(line, poll),
            HighWatermarkInvoked: lambda line, hw: self._check(hw).add_hw_invoked(line, hw),
            HighWatermarkEnded: lambda line, hw: self._check(hw).add_hw(line, hw),
            LossMark: lambda _, mark: self._check(mark).add_mark(mark),
            ReplicaDigest: lambda line, digest: self._check(digest).add_digest(line, digest),
            Nemesis: self._nemesis,
        }

    def add(self, line: int, operation: Operation) -> None:
        """Adds an operation. `line` must increase; reports name it."""
        self._report.operations += 1
        self._routes[type(operation)](line, operation)

    def finish(self) -> Report:
        for send in self._pairing.never_ended():
            self._place(send)
        for topic, sends in sorted(self._unplaced.items()):
            self._place_where_read(topic, sends)
        for _, check in sorted(self._partitions.items()):
            self._report.merge(check.finish())
        return self._report

    def _check(self, operation: Any) -> PartitionCheck:
        key = (operation.topic, operation.partition)
        check = self._partitions.get(key)
        if check is None:
            check = self._partitions[key] = PartitionCheck(*key)
        return check

    def _send_ended(self, line: int, end: SendEnded) -> None:
        self._place(self._pairing.ended(line, end))

    def _place(self, send: Send) -> None:
        if send.partition == NO_PARTITION:
            self._unplaced.setdefault(send.topic, []).append(send)
        else:
            self._check(send).add_send(send)

    def _place_where_read(self, topic: str, sends: list[Send]) -> None:
        checks = [check for key, check in sorted(self._partitions.items()) if key[0] == topic]
        for send in sends:
            for check in checks:
                if check.has_polled(send.value):
                    check.add_send(send)
                    break
            else:
                self._report.unplaced_sends += 1
                self._report.note_send(send)

    def _nemesis(self, line: int, event: Nemesis) -> None:
        self._report.nemesis_count += 1
        if len(self._report.nemesis) < MAX_NEMESIS_EVENTS:
            self._report.nemesis.append((line, event))


def check_history(operations: Iterable[tuple[int, Operation]]) -> Report:
    """Checks operations with their lines. For operations that are in no file,
    `enumerate(operations, 1)` provides the lines."""
    checker = HistoryChecker()
    for line, operation in operations:
        checker.add(line, operation)
    return checker.finish()
