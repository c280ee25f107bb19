"""Runs the history checker on a history like that of a real load: one process, one file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.process_figures import rss_mb
from bench.report import Measured
from tidelog.history.checker import check_history
from tidelog.history.client_operations import (
    Operation,
    Outcome,
    PollEnded,
    SendEnded,
    SendInvoked,
)
from tidelog.history.history_file import HistoryWriter, read_history

OPERATIONS = 1_000_000
PARTITIONS = 6
RECORDS_PER_POLL = 50
MAX_S = 60.0


def write_history(path: Path) -> int:
    """Writes sends to every partition; each is acknowledged and read once.

    Returns the number of operations.
    """
    written = 0
    with HistoryWriter(path) as history:
        offset = 0
        while written < OPERATIONS:
            lines: list[Operation] = []
            for partition in range(PARTITIONS):
                lines += _operations(partition, offset)
            history.write_all(lines)
            written += len(lines)
            offset += RECORDS_PER_POLL
    return written


def _operations(partition: int, offset: int) -> list[Operation]:
    offsets = range(offset, offset + RECORDS_PER_POLL)
    values = [at * PARTITIONS + partition for at in offsets]
    lines: list[Operation] = []
    for at, value in zip(offsets, values, strict=True):
        client = f"p{partition}"
        lines.append(SendInvoked(at, client, "sea", partition, value))
        lines.append(
            SendEnded(at, client, "sea", partition, value, Outcome.OK, at, 0, partition % 3)
        )
    lines.append(
        PollEnded(
            offset,
            f"c{partition}",
            "sea",
            partition,
            Outcome.OK,
            offsets,
            values,
            [0] * RECORDS_PER_POLL,
            high_watermark=offset + RECORDS_PER_POLL,
            high_watermark_epoch=0,
        )
    )
    return lines


def check(directory: Path) -> list[Measured]:
    path = directory / "history"
    written = write_history(path)
    began = time.monotonic()
    report = check_history(read_history(path))
    seconds = time.monotonic() - began
    assert report.anomaly_count == 0, report.findings
    return [
        Measured(
            f"history checker, {written:,} operations",
            round(seconds, 1),
            "s",
            target=f"<= {MAX_S:.0f}",
            met=seconds <= MAX_S,
        ),
        Measured("history checker: peak RSS", round(rss_mb(os.getpid(), "VmHWM"), 1), "MB"),
    ]
