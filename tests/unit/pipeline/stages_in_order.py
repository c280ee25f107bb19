"""The plan of the check without Spark: the same stages over the same rows, in lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tidelog.history import (
    UNREADABLE_VALUE,
    HistoryError,
    LossMark,
    Operation,
    Outcome,
    Report,
)
from tidelog.history.history_format import decode_operation, encode_operation
from tidelog.history.loss_marks import LossMarks
from tidelog.history.report import WriteTiming
from tidelog.model import TopicPartition
from tidelog_pipeline.check.decoding import decode_lines
from tidelog_pipeline.check.stages import stage_tables
from tidelog_pipeline.check.stages.log_stage import (
    FACTS_OFFSET,
    FACTS_RANK,
    JUMP_RANK,
    RECORD_RANK,
    SEND_RANK,
    log_stage,
)
from tidelog_pipeline.check.stages.reader_stage import reader_stage
from tidelog_pipeline.check.stages.sender_stage import sender_stage
from tidelog_pipeline.check.stages.stage_tables import Stage
from tidelog_pipeline.check.stages.task_verdict import merge_verdicts
from tidelog_pipeline.check.stages.timing_stage import (
    overall_stage,
    partition_stage,
    timing_of,
    windows_of,
)
from tidelog_pipeline.check.stages.value_stage import value_stage
from tidelog_pipeline.columns import Columns, Row

Fields = Mapping[str, Any]


def check(operations: Sequence[Operation], tasks: int = 2) -> tuple[Report, WriteTiming]:
    """Check a history. `tasks`: the number of tasks among which the groups of each stage are
    distributed. Raises `HistoryError`."""
    lines = ((number, encode_operation(one)) for number, one in enumerate(operations, 1))
    rows = _named(decode_lines(lines), stage_tables.OPERATIONS)
    marks = _marks(rows)
    sends = _staged(_values(rows), value_stage(marks), tasks)
    readers = [row for row in rows if row["kind"] == "reader"]
    read = _staged(readers, reader_stage(marks), tasks)
    acknowledged = [row for row in sends if row["outcome"] == Outcome.OK.value]
    by_offset = _staged(_log(rows, acknowledged, read), log_stage(marks), tasks)
    by_sender = _staged(acknowledged, sender_stage(marks), tasks)
    reported = [
        row for row in chain(sends, read, by_offset, by_sender) if row["report"] is not None
    ]
    verdict = merge_verdicts(
        [tuple(row[name] for name in stage_tables.VERDICTS.names) for row in reported]
    )
    if verdict.error is not None:
        raise HistoryError(verdict.error[1])
    report = verdict.report
    report.operations = len(rows)
    report.partitions = len(
        {(row["topic"], row["partition"]) for row in rows if (row["partition"] or 0) >= 0}
        - {(None, None)}
    )
    events = [row for row in rows if row["kind"] == "nemesis"]
    report.nemesis = [(row["line"], decode_operation(row["raw"])) for row in events]  # type: ignore[misc]
    report.nemesis_count = len(events)
    return report, _timing(acknowledged, report, tasks)


def _named(rows: Iterable[Row], columns: Columns) -> list[Fields]:
    return [dict(zip(columns.names, row, strict=True)) for row in rows]


def _marks(rows: Iterable[Fields]) -> dict[TopicPartition, LossMarks]:
    marks: dict[TopicPartition, LossMarks] = {}
    for row in rows:
        if row["kind"] == "mark":
            mark = decode_operation(row["raw"])
            assert isinstance(mark, LossMark)
            marks.setdefault(TopicPartition(mark.topic, mark.partition), LossMarks()).add(mark)
    return marks


def _values(rows: Iterable[Fields]) -> Iterator[Fields]:
    for row in rows:
        if row["kind"] in ("invoked", "ended"):
            yield {**row, "index": 0}
        yield from (record for record in _polled(row) if record["value"] != UNREADABLE_VALUE)


def _polled(row: Fields) -> Iterator[Fields]:
    columns = (row["offsets"] or (), row["values"] or (), row["leader_epochs"] or ())
    for index, (offset, value, epoch) in enumerate(zip(*columns, strict=True)):
        record = {"offset": offset, "value": value, "leader_epoch": epoch}
        yield {**row, **record, "index": index, "kind": "polled", "outcome": None}


def _log(
    rows: Iterable[Fields], acknowledged: Iterable[Fields], read: Iterable[Fields]
) -> Iterator[Fields]:
    for row in read:
        if row["kind"] == "facts":
            yield {**row, "offset": FACTS_OFFSET, "rank": FACTS_RANK}
        elif row["kind"] == "jump":
            yield {**row, "offset": row["first"], "rank": JUMP_RANK}
    for row in rows:
        for record in _polled(row):
            yield {**record, "rank": RECORD_RANK, "flag": record["final"]}
    for send in acknowledged:
        ended = {"line": send["ended_line"], "time_ms": send["ended_ms"]}
        yield {**send, **ended, "rank": SEND_RANK, "flag": send["is_polled"]}


def _timing(acknowledged: Iterable[Fields], report: Report, tasks: int) -> WriteTiming:
    times = [
        dict(zip(stage_tables.SUCCESS_TIMES.names, time, strict=True))
        for time in {(one["topic"], one["partition"], one["ended_ms"]) for one in acknowledged}
    ]
    windows = windows_of(report.nemesis)
    edges = sorted(time for time in (report.first_send_ms, report.last_send_ms) if time is not None)
    everywhere = [{"time_ms": time} for time in {one["time_ms"] for one in times}]
    overall = _staged(everywhere, overall_stage(windows, edges), 1)
    worst = _staged(times, partition_stage(windows), tasks)
    return timing_of(
        report.nemesis, (tuple(row.values()) for row in overall), (tuple(r.values()) for r in worst)
    )


def _staged(rows: Iterable[Fields], stage: Stage, tasks: int) -> list[Fields]:
    dealt: list[list[Row]] = [[] for _ in range(tasks)]
    for row in rows:
        group = tuple(row.get(name) for name in stage.group_by)
        dealt[hash(group) % tasks].append(tuple(row.get(name) for name in stage.input.names))
    order = [stage.input.names.index(name) for name in stage.order_by]

    def nulls_first(row: Row) -> list[tuple[bool, Any]]:
        return [(row[at] is not None, 0 if row[at] is None else row[at]) for at in order]

    given: list[Row] = []
    for part in dealt:
        given += stage.run(iter(sorted(part, key=nulls_first)))
    return _named(given, stage.output)
