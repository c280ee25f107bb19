"""The HTML page of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from faults.catalogue import NOISY_GAP_MS
from faults.report.pictures import Span, latency, throughput
from faults.report.worst_moment import LogEntry
from faults.result import COUNTED, Result
from faults.series import Point
from faults.verdict import JudgedGap, RunVerdict
from tidelog_pipeline.pages import render

_TEMPLATE = Path(__file__).with_name("faults.html")


class RunPictures(NamedTuple):
    """`begin_s`: the time of `points` at which the load begins."""

    points: Sequence[Point]
    begin_s: float


class WorstMoment(NamedTuple):
    gap: JudgedGap
    run: int
    begin_s: float
    entries: Sequence[LogEntry]
    left_out: int


def page(
    result: Result,
    pictures: Sequence[RunPictures],
    worst: WorstMoment | None,
    problems: Sequence[str],
    seed: int,
) -> str:
    return render(
        _TEMPLATE,
        result=result,
        problems=problems,
        seed=seed,
        counts=_counts(result),
        faults=_faults(result),
        runs=[_run(*one) for one in zip(result.runs, pictures, strict=True)],
        worst=worst and _worst(worst),
        noisy_s=f"{NOISY_GAP_MS / 1000:g}",
    )


def spans_of(run: RunVerdict, begin_s: float) -> list[Span]:
    return [
        Span(strike.begin_ms / 1000 - begin_s, strike.end_ms / 1000 - begin_s, fault.kind)
        for done in run.steps
        for fault in done.faults
        for strike in fault.strikes
    ]


def _counts(result: Result) -> list[tuple[str, str]]:
    rows = [("acknowledged", result.acknowledged)]
    rows += [("failed", result.failed), ("unknown", result.unknown)]
    rows += [(key, result.count(anomaly)) for key, anomaly in COUNTED.items()]
    rows += [("unexplained", result.unexplained), ("misblamed", result.misblamed)]
    others = [
        a for a in {a for run in result.runs for a in run.anomalies} if a not in COUNTED.values()
    ]
    rows += [(a.value, result.count(a)) for a in sorted(others) if result.count(a)]
    return [(name, f"{count:,}") for name, count in rows]


def _faults(result: Result) -> list[tuple[str, ...]]:
    summary = result.as_json()
    faults, gaps, explanations = summary["faults"], summary["gaps_seconds"], summary["explanations"]
    assert isinstance(faults, dict)
    assert isinstance(gaps, dict)
    assert isinstance(explanations, dict)
    return [
        (
            kind,
            str(counts["injected"]),
            str(counts["with_effect"]),
            str(gaps.get(kind, "")),
            ", ".join(f"{word} {n}" for word, n in explanations.get(kind, {}).items()),
        )
        for kind, counts in faults.items()
    ]


def _run(run: RunVerdict, picture: RunPictures) -> dict[str, Any]:
    spans = spans_of(run, picture.begin_s)
    none, stirred = (f"{gap.gap.length_ms / 1000:.3f}" for gap in run.quiet)
    return {
        "throughput": throughput(picture.points, spans, picture.begin_s),
        "latency": latency(picture.points, spans, picture.begin_s),
        "steps": _steps(run),
        "none_s": none,
        "none_stirred_s": stirred,
        "producer_gap_s": f"{run.producer_gap_ms / 1000:.3f}",
    }


def _steps(run: RunVerdict) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for done, gaps in zip(run.steps, run.gaps, strict=True):
        healthy_s = done.longest_whole_s
        healthy = "never" if healthy_s is None else f"{healthy_s:.1f}"
        for gap in gaps:
            worst = f"{gap.worst.gap.length_ms / 1000:.3f}"
            rows.append((gap.step, gap.target, worst, *_bound(gap), healthy))
    return rows


def _bound(gap: JudgedGap) -> tuple[str, str]:
    """The bound, and whether it is met."""
    if gap.bound is None:
        return "", "–"
    return f"{gap.bound.limit_ms / 1000:g} ({gap.bound.why})", "yes" if gap.is_met else "NO"


def _worst(worst: WorstMoment) -> dict[str, Any]:
    gap = worst.gap.worst
    return {
        "gap_s": f"{gap.gap.length_ms / 1000:.3f}",
        "partition": str(gap.partition),
        "step": worst.gap.step,
        "run": worst.run,
        "lines": [
            f"{entry.at_s - worst.begin_s:+9.3f} s  {entry.service:13} {entry.what:24} "
            + " ".join(f"{name}={value}" for name, value in entry.details.items())
            for entry in worst.entries
        ],
        "left_out": worst.left_out,
    }
