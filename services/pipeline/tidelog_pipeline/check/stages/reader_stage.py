"""The stage that checks what readers of a partition saw, and derives facts for its sends."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from tidelog.history import (
    UNREADABLE_VALUE,
    HighWatermarkEnded,
    HighWatermarkInvoked,
    HistoryError,
    Operation,
    PollEnded,
    PollInvoked,
    ReplicaDigest,
)
from tidelog.history.anomalies import PartitionFindings
from tidelog.history.evidence import PollSource
from tidelog.history.history_format import decode_operation
from tidelog.history.loss_marks import LossMarks
from tidelog.history.read_spans import ReadSpans
from tidelog.history.reader_check import ReaderCheck
from tidelog.history.record_order import RecordOrder
from tidelog.model import TopicPartition
from tidelog_pipeline.check.stages.stage_tables import READ, READERS, Stage
from tidelog_pipeline.check.stages.task_verdict import TaskVerdict
from tidelog_pipeline.check.stages.value_stage import Marks
from tidelog_pipeline.columns import Row


class ReaderFacts(NamedTuple):
    """Facts about reads. `drain_line`: start of the final reads; None: there are none."""

    read_past: ReadSpans
    drain_line: int | None


def reader_stage(marks: Marks) -> Stage:
    """Returns the stage. It yields jumps, the facts of each partition, and a verdict."""
    return Stage(
        READERS,
        group_by=("topic", "partition"),
        order_by=("topic", "partition", "line"),
        output=READ,
        run=lambda rows: check_by_reader(rows, marks),
    )


def check_by_reader(rows: Iterator[Row], marks: Marks) -> Iterator[Row]:
    verdict = TaskVerdict()
    for (topic, partition), of_partition in groupby(rows, key=lambda row: row[:2]):
        name = TopicPartition(topic, partition)
        yield from _check_partition(name, of_partition, marks.get(name) or LossMarks(), verdict)
    yield READ.row(**verdict.fields())


def _check_partition(
    name: TopicPartition, rows: Iterator[Row], marks: LossMarks, verdict: TaskVerdict
) -> Iterator[Row]:
    found = PartitionFindings(*name)
    check = ReaderCheck(found, marks)
    for *_, line, raw in rows:
        try:
            _add(check, line, decode_operation(raw), found, marks)
        except HistoryError as error:
            verdict.contradicted(line, error)
            break
        for jump in check.polls.take_jumps():
            yield _row(name, "jump", jump.first, jump)
    check.finish()
    facts = ReaderFacts(check.polls.read_past(marks), check.drain_line)
    yield _row(name, "facts", None, facts)
    verdict.report.findings.merge(found.findings)
    verdict.report.polls += check.poll_count
    verdict.report.polled_records += check.record_count


def _row(name: TopicPartition, kind: str, first: int | None, what: object) -> Row:
    return READ.row(
        topic=name.topic, partition=name.partition, kind=kind, first=first, blob=pickle.dumps(what)
    )


def _add(
    check: ReaderCheck, line: int, operation: Operation, found: PartitionFindings, marks: LossMarks
) -> None:
    if isinstance(operation, PollEnded):
        source = check.add_poll(line, operation)
        _add_unreadable(operation, source, RecordOrder(found, marks))
    elif isinstance(operation, PollInvoked):
        check.add_poll_invoked(line, operation)
    elif isinstance(operation, HighWatermarkInvoked):
        check.add_hw_invoked(line, operation)
    elif isinstance(operation, HighWatermarkEnded):
        check.add_hw(line, operation)
    elif isinstance(operation, ReplicaDigest):
        check.add_digest(line, operation)


def _add_unreadable(poll: PollEnded, source: PollSource, order: RecordOrder) -> None:
    """Checks unreadable records, which have no value to check by."""
    if UNREADABLE_VALUE not in poll.values:
        return
    records = zip(poll.offsets, poll.values, poll.leader_epochs, strict=True)
    order.add_records((one for one in records if one[1] == UNREADABLE_VALUE), source)
    order.check_values({})
