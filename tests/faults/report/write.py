"""Writes out/faults.json, and the page beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from faults.report.page import RunPictures, WorstMoment, page
from faults.report.worst_moment import entries_between
from faults.result import Result
from faults.run import FinishedRun
from faults.verdict import JudgedGap


def write_report(
    out: Path,
    result: Result,
    finished: Sequence[FinishedRun],
    problems: Sequence[str],
    seed: int,
) -> Path:
    """Returns the path of the page."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result.as_json(), indent=2) + "\n")
    pictures = [RunPictures(run.series, run.seen.load.begin_ms / 1000) for run in finished]
    html = out.with_suffix(".html")
    html.write_text(page(result, pictures, _worst(result, finished), problems, seed))
    return html


def _worst(result: Result, finished: Sequence[FinishedRun]) -> WorstMoment | None:
    """The longest gap of all runs."""
    gaps = [
        (gap, number, run)
        for number, (verdict, run) in enumerate(zip(result.runs, finished, strict=True), 1)
        for gap in verdict.all_gaps
        if gap.worst.partition is not None
    ]
    if not gaps:
        return None
    gap, number, run = max(gaps, key=lambda one: one[0].worst.gap.length_ms)
    begin_s, end_s = wall_s(gap, run.wall_ahead_ms)
    assert gap.worst.partition is not None, "others are not chosen from"
    entries, left_out = entries_between(_lines(run.logs), begin_s, end_s, gap.worst.partition)
    return WorstMoment(gap, number, begin_s, entries, left_out)


def wall_s(gap: JudgedGap, wall_ahead_ms: int) -> tuple[float, float]:
    """`wall_ahead_ms`: by how much the wall clock is ahead of the monotonic clock, which times
    gaps."""
    begin, end = gap.worst.gap
    return (begin + wall_ahead_ms) / 1000, (end + wall_ahead_ms) / 1000


def _lines(logs: Mapping[str, Path]) -> dict[str, list[bytes]]:
    return {name: path.read_bytes().splitlines() for name, path in logs.items()}
