"""The stage that checks acknowledgements: the order of each sender, and the leaders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tidelog.history import Outcome, Send
from tidelog.history.acknowledged import Leaders, SendOrder
from tidelog.history.anomalies import PartitionFindings
from tidelog.history.loss_marks import LossMarks
from tidelog.model import TopicPartition
from tidelog_pipeline.check.stages.stage_tables import SENT, VERDICTS, Stage
from tidelog_pipeline.check.stages.task_verdict import TaskVerdict
from tidelog_pipeline.check.stages.value_stage import Marks
from tidelog_pipeline.columns import Row


def sender_stage(marks: Marks) -> Stage:
    """Returns the stage. It needs only acknowledged sends.

    It holds in memory the last send of each client, and the first of each broker in each leader
    epoch.
    """
    return Stage(
        SENT,
        group_by=("topic", "partition"),
        order_by=("topic", "partition", "invoked_line"),
        output=VERDICTS,
        run=lambda rows: check_by_sender(rows, marks),
    )


def check_by_sender(rows: Iterator[Row], marks: Marks) -> Iterator[Row]:
    verdict = TaskVerdict()
    for (topic, partition), of_partition in groupby(rows, key=lambda row: row[2:4]):
        name = TopicPartition(topic, partition)
        found = PartitionFindings(*name)
        order, leaders = SendOrder(marks.get(name) or LossMarks(), found), Leaders()
        for row in of_partition:
            send = Send._make((*row[:4], Outcome.OK, *row[5:]))
            order.add(send)
            leaders.add(send)
        leaders.check(found)
        verdict.report.findings.merge(found.findings)
    yield VERDICTS.row(**verdict.fields())
