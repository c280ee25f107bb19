"""The HTML page of the report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from faults.catalogue import NOISY_GAP_MS
from faults.report.pictures import Span, latency, throughput
from faults.report.worst_moment import Said
from faults.result import COUNTED, Result
from faults.series import Point
from faults.verdict import JudgedGap, RunVerdict

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1040px; margin: 2rem auto; color: #1f2328; }
h1, h2, h3 { line-height: 1.2; } table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #d1d9e0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #cf222e; font-weight: 600; } .good { color: #1a7f37; font-weight: 600; }
svg { width: 100%; } svg text { font-size: 9px; fill: #59636e; } svg .title { font-size: 11px; }
svg .value, svg .end { text-anchor: end; } svg .grid { stroke: #d1d9e0; stroke-width: .5; }
svg .fault { fill: #ffb77c; opacity: .45; } svg polyline { stroke-width: 1.2; }
pre { font-size: 12px; overflow-x: auto; background: #f6f8fa; padding: .8rem; }
"""


class RunPictures(NamedTuple):
    """`begin_s`: the time of `points` at which the load begins."""

    points: Sequence[Point]
    begin_s: float


class WorstMoment(NamedTuple):
    gap: JudgedGap
    run: int
    begin_s: float
    said: Sequence[Said]
    left_out: int


def page(
    result: Result,
    pictures: Sequence[RunPictures],
    worst: WorstMoment | None,
    problems: Sequence[str],
    seed: int,
) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Tidelog: faults</title>",
        f"<style>{STYLE}</style><h1>Faults on real processes</h1>",
        _verdict(result, problems, seed),
        _counts(result),
        _faults(result),
    ]
    for number, (run, picture) in enumerate(zip(result.runs, pictures, strict=True), 1):
        spans = spans_of(run, picture.begin_s)
        parts.append(f"<h2>Run {number}</h2>")
        parts.append(throughput(picture.points, spans, picture.begin_s))
        parts.append(latency(picture.points, spans, picture.begin_s))
        parts.append(_steps(run))
    if worst is not None:
        parts.append(_worst(worst))
    return "\n".join(parts) + "\n"


def spans_of(run: RunVerdict, begin_s: float) -> list[Span]:
    return [
        Span(strike.begin_ms / 1000 - begin_s, strike.end_ms / 1000 - begin_s, fault.kind)
        for done in run.steps
        for fault in done.faults
        for strike in fault.strikes
    ]


def _verdict(result: Result, problems: Sequence[str], seed: int) -> str:
    if not problems:
        said = f"All is well (seed {seed}): {result.acknowledged:,} records acknowledged."
        return f"<p class=good>{said}</p>"
    listed = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f"<p class=bad>Failed (seed {seed}).</p><ul>{listed}</ul>"


def _counts(result: Result) -> str:
    rows = [("acknowledged", result.acknowledged)]
    rows += [("failed", result.failed), ("unknown", result.unknown)]
    rows += [(key, result.count(anomaly)) for key, anomaly in COUNTED.items()]
    rows += [("unexplained", result.unexplained), ("misblamed", result.misblamed)]
    others = [
        a for a in {a for run in result.runs for a in run.anomalies} if a not in COUNTED.values()
    ]
    rows += [(a.value, result.count(a)) for a in sorted(others) if result.count(a)]
    return _table(("count", ""), [(name, f"{count:,}") for name, count in rows])


def _faults(result: Result) -> str:
    summary = result.as_json()
    faults, gaps, explanations = summary["faults"], summary["gaps_seconds"], summary["explanations"]
    assert isinstance(faults, dict)
    assert isinstance(gaps, dict)
    assert isinstance(explanations, dict)
    rows = [
        (
            kind,
            str(counts["injected"]),
            str(counts["with_effect"]),
            str(gaps.get(kind, "")),
            ", ".join(f"{word} {n}" for word, n in explanations.get(kind, {}).items()),
        )
        for kind, counts in faults.items()
    ]
    heads = ("kind", "injected", "with effect", "worst gap alone, s", "explanations")
    table = _table(heads, rows)
    left_out = "".join(
        f"<li>{escape(name)}: {escape(why)}</li>" for name, why in result.left_out.items()
    )
    return f"<h2>Kinds of faults</h2>{table}" + (
        f"<p>Left out:</p><ul>{left_out}</ul>" if left_out else ""
    )


def _steps(run: RunVerdict) -> str:
    rows = []
    for done, gaps in zip(run.steps, run.gaps, strict=True):
        whole_s = done.longest_whole_s
        whole = "never" if whole_s is None else f"{whole_s:.1f}"
        for gap in gaps:
            worst = f"{gap.worst.gap.length_ms / 1000:.3f}"
            rows.append((gap.step, gap.target, worst, *_bound(gap), whole))
    heads = ("step", "on whom", "worst gap, s", "bound, s", "met", "whole after, s")
    none, stirred = (gap.gap.length_ms / 1000 for gap in run.quiet)
    quiet = (
        f"<p>Without any fault at most {none:.3f} s (none); while processes like these that belong "
        f"to no cluster were started and killed, {stirred:.3f} s (none_stirred). The longer of the "
        "two, of all runs, or 250 ms, is what faults of controllers and of etcd are held against; "
        f"beyond {NOISY_GAP_MS / 1000:g} s the machine is too noisy for a full run.</p>"
    )
    producer = (
        f"<p>No producer was without an acknowledged write, to whatever partition, for longer than "
        f"{run.producer_gap_ms / 1000:.3f} s.</p>"
    )
    return _table(heads, rows) + quiet + producer


def _bound(gap: JudgedGap) -> tuple[str, str]:
    """The bound, and whether it is met."""
    if gap.bound is None:
        return "", "–"
    return f"{gap.bound.limit_ms / 1000:g} ({gap.bound.why})", "yes" if gap.is_met else "NO"


def _worst(worst: WorstMoment) -> str:
    gap = worst.gap.worst
    lines = [
        f"{said.at_s - worst.begin_s:+9.3f} s  {said.service:13} {said.what:24} "
        + " ".join(f"{name}={value}" for name, value in said.details.items())
        for said in worst.said
    ]
    more = (
        f"<p>{worst.left_out} lines more, farther from both ends, are left out.</p>"
        if worst.left_out
        else ""
    )
    return (
        f"<h2>The worst moment</h2><p>{gap.gap.length_ms / 1000:.3f} s without a write to "
        f"{escape(str(gap.partition))} in {escape(worst.gap.step)}, run {worst.run}. Times from "
        f"the last write before it.</p><pre>{escape(chr(10).join(lines))}</pre>"
        f"{more}"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
