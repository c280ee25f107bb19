"""The stage that checks sends and records by value, for any number of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.history import NO_PARTITION, HistoryError, Outcome, SendEnded, SendInvoked
from tidelog.history.evidence import PollSource
from tidelog.history.loss_marks import LossMarks
from tidelog.history.value_check import ValueCheck
from tidelog.model import TopicPartition
from tidelog_pipeline.check.stages.stage_tables import SENDS, VALUES, Stage
from tidelog_pipeline.check.stages.task_verdict import TaskVerdict
from tidelog_pipeline.columns import Row

Marks = Mapping[TopicPartition, LossMarks]

# Maximum number of rows in memory, besides the rest of the last value.
CHUNK_ROWS = 20_000
_NO_VERDICT = (None,) * 4
_NO_VALUE = -1


def value_stage(marks: Marks) -> Stage:
    """Returns the stage. It yields sends and a verdict."""
    return Stage(
        VALUES,
        group_by=("value",),
        order_by=("value", "line", "index"),
        output=SENDS,
        run=lambda rows: check_by_value(rows, marks),
    )


def check_by_value(rows: Iterator[Row], marks: Marks) -> Iterator[Row]:
    verdict = TaskVerdict()
    check, held = _new_check(marks), 0
    last = contradicted = _NO_VALUE
    for row in rows:
        value = row[0]
        if value != last and held >= CHUNK_ROWS:
            yield from _finished(check, verdict)
            check, held = _new_check(marks), 0
        last = value
        held += 1
        if value == contradicted:
            continue
        try:
            _add(check, row)
        except HistoryError as error:
            # Further findings of this value would be consequences of this one.
            contradicted = value
            verdict.contradicted(row[1], error)
    yield from _finished(check, verdict)
    yield SENDS.row(**verdict.fields())


def _new_check(marks: Marks) -> ValueCheck:
    return ValueCheck(lambda name: marks.get(name) or LossMarks())


def _add(check: ValueCheck, row: Row) -> None:
    value, line, _, kind, time_ms, client, topic, partition = row[:8]
    outcome, offset, leader_epoch, broker_id, final = row[8:]
    if kind == "polled":
        source = PollSource(line, time_ms, client, final)
        check.polled(TopicPartition(topic, partition), (offset, value, leader_epoch), source)
    elif kind == "invoked":
        check.invoked(line, SendInvoked(time_ms, client, topic, partition, value))
    else:
        send = (time_ms, client, topic, partition, value)
        end = SendEnded(*send, Outcome(outcome), offset, leader_epoch, broker_id)
        check.ended(line, end)


def _finished(check: ValueCheck, verdict: TaskVerdict) -> Iterator[Row]:
    """Sends without a known partition are only counted, because no other rule applies to them."""
    sends, report = check.finish()
    verdict.report.merge(report)
    for send, is_polled in sends:
        if send.partition != NO_PARTITION:
            yield (*send, is_polled, *_NO_VERDICT)
