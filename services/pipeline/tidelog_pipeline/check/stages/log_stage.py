"""The stage that checks a partition's log, offset by offset."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby

from tidelog.history import UNREADABLE_VALUE, Outcome, Send
from tidelog.history.acknowledged import find_unread
from tidelog.history.anomalies import PartitionFindings
from tidelog.history.evidence import PollSource
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_spans import ReadSpans
from tidelog.history.record_order import RecordOrder
from tidelog.history.skipped_offsets import SkippedRecords
from tidelog.model import NO_OFFSET, TopicPartition
from tidelog_pipeline.check.stages.reader_stage import ReaderFacts
from tidelog_pipeline.check.stages.stage_tables import LOG, VERDICTS, Stage
from tidelog_pipeline.check.stages.task_verdict import TaskVerdict
from tidelog_pipeline.check.stages.value_stage import Marks
from tidelog_pipeline.columns import Row

# Sorts before all offsets and before sends with an unknown offset.
FACTS_OFFSET = -2
FACTS_RANK, JUMP_RANK, RECORD_RANK, SEND_RANK = range(4)


def log_stage(marks: Marks) -> Stage:
    """Returns the stage. Of sends, it needs only acknowledged ones.

    It holds in memory the rows of one offset, and the jumps over it.
    """
    return Stage(
        LOG,
        group_by=("topic", "partition"),
        order_by=("topic", "partition", "offset", "rank", "line", "index"),
        output=VERDICTS,
        run=lambda rows: check_by_offset(rows, marks),
    )


def check_by_offset(rows: Iterator[Row], marks: Marks) -> Iterator[Row]:
    verdict = TaskVerdict()
    for (topic, partition), of_partition in groupby(rows, key=lambda row: row[:2]):
        name = TopicPartition(topic, partition)
        log = _Log(name, marks.get(name) or LossMarks())
        for offset, of_offset in groupby(of_partition, key=lambda row: row[2]):
            log.take(offset, of_offset)
        verdict.report.findings.merge(log.found.findings)
        if log.is_undrained:
            verdict.report.undrained.append(name)
    yield VERDICTS.row(**verdict.fields())


class _Log:
    def __init__(self, name: TopicPartition, marks: LossMarks) -> None:
        self._name = name
        self._marks = marks
        self._facts = ReaderFacts(ReadSpans((), marks), drain_line=None)
        self._has_sends = False
        self.found = PartitionFindings(*name)
        self._skipped = SkippedRecords(marks, self.found)

    @property
    def is_undrained(self) -> bool:
        return self._has_sends and self._facts.drain_line is None

    def take(self, offset: int, rows: Iterable[Row]) -> None:
        if offset == FACTS_OFFSET:
            for row in rows:
                self._facts = pickle.loads(row[-1])
        elif offset == NO_OFFSET:
            # Not collected, because their number is unbounded.
            for row in rows:
                self._take_send(row)
        else:
            self._take_offset(offset, list(rows))

    def _take_send(self, row: Row) -> Send:
        self._has_sends = True
        send = _send(self._name, row)
        if not row[10]:
            read_past, drain_line = self._facts
            find_unread((send,), read_past, drain_line, self._marks, self.found)
        return send

    def _take_offset(self, offset: int, rows: list[Row]) -> None:
        values = set()
        sends: dict[int, Send] = {}
        for row in rows:
            if row[3] == JUMP_RANK:
                self._skipped.jumped(pickle.loads(row[-1]))
                continue
            if row[6] != UNREADABLE_VALUE:
                values.add(row[6])
            if row[3] == SEND_RANK:
                sends[row[6]] = self._take_send(row)
        # A single value needs no check, unless a reader has skipped it.
        if len(values) < 2 and not self._skipped.holds(offset):
            return
        order = RecordOrder(self.found, self._marks)
        for row in rows:
            if row[3] == RECORD_RANK:
                source = PollSource(row[4], row[8], row[9], row[10])
                order.add_records(((offset, row[6], row[7]),), source)
        order.check_offsets(sends)
        for record in sorted(order.known_in(self._skipped.holds, sends.values())):
            self._skipped.known(record)


def _send(name: TopicPartition, row: Row) -> Send:
    _, _, offset, _, line, _, value, leader_epoch, time_ms, client = row[:10]
    _, broker_id, invoked_line, invoked_ms, _ = row[10:]
    return Send(
        value,
        client,
        *name,
        Outcome.OK,
        offset,
        leader_epoch,
        broker_id,
        invoked_line,
        invoked_ms,
        line,
        time_ms,
    )
