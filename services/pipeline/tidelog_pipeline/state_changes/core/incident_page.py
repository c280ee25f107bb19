"""The HTML page of an incident: one file that loads no others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tidelog.phrases import plural
from tidelog.state_changes.json_form import format_time
from tidelog_pipeline.state_changes.core.charts import changes, critical_paths, lanes
from tidelog_pipeline.state_changes.core.failovers import STEP_TEXTS, STEPS
from tidelog_pipeline.state_changes.core.incident import Incident, LimitedRows

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1040px; margin: 2rem auto; color: #1f2328; }
h1, h2 { line-height: 1.2; } table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #d1d9e0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #cf222e; font-weight: 600; } .good { color: #1a7f37; font-weight: 600; }
svg { width: 100%; } svg text { font-size: 9px; fill: #59636e; } svg .title { font-size: 11px; }
svg .value, svg .end { text-anchor: end; } svg .grid { stroke: #d1d9e0; stroke-width: .5; }
svg .mark { stroke: #1f6feb; stroke-width: 1; } svg polyline { stroke-width: 1.2; }
svg .down { fill: #cf222e; } svg .under { fill: #ffb77c; }
"""

Row = Mapping[str, Any]


def page(incident: Incident) -> str:
    begin, end = (format_time(time) for time in incident.window)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Tidelog: incident</title>",
        f"<style>{STYLE}</style><h1>{begin} to {end}</h1>",
        _summary(incident),
        _troubles(incident),
        _failovers(incident),
        f"<h2>What changed</h2>{changes(incident)}",
        _listed(
            "Elections by cause", incident.elections, ("kind", "cause", "elections", "partitions")
        ),
        _listed(
            "How long changes took",
            incident.durations,
            (
                "kind",
                "cause",
                "changes",
                "p50_ms",
                "p95_ms",
                "p99_ms",
                "max_ms",
                "failed",
                "unfinished",
            ),
        ),
        _listed(
            "Brokers that left and rejoined ISRs",
            incident.churn,
            ("topic", "partition", "broker", "left", "joined"),
        ),
        _listed(
            "Changes without a reported end",
            incident.unfinished,
            (
                "began_at",
                "topic",
                "partition",
                "change_kind",
                "kind",
                "broker",
                "missing",
                "change_id",
            ),
        ),
        _listed(
            "Events of brokers, controllers and the store",
            incident.marks,
            ("began_at", "kind", "cause", "broker", "service"),
        ),
    ]
    return "\n".join(parts) + "\n"


def _summary(incident: Incident) -> str:
    lines = incident.lines
    down = [row for row in incident.availability.rows if row["without_leader_ms"]]
    read = f"<p>{lines.read:,} lines were read"
    read += f", {lines.malformed:,} of them truncated or malformed" if lines.malformed else ""
    if not incident.availability.total:
        return (
            f"{read}.</p><p class=good>No partition was without a leader or under its min ISR.</p>"
        )
    longest = max((row["longest_without_leader_ms"] for row in down), default=0)
    said = plural(incident.availability.total, "partition")
    return (
        f"{read}.</p><p class=bad>{said} without a leader or under min ISR for some time; "
        f"longest without a leader: {longest:,} ms.</p>"
    )


def _troubles(incident: Incident) -> str:
    columns = (
        "topic",
        "partition",
        "without_leader_ms",
        "longest_without_leader_ms",
        "times_without_leader",
        "under_min_isr_ms",
        "min_isr",
        "observed_ms",
    )
    picture = lanes(incident) if incident.availability.rows else ""
    return picture + _listed("Availability, the worst first", incident.availability, columns)


def _failovers(incident: Incident) -> str:
    if not incident.failovers.rows:
        return ""
    worst = incident.failovers.rows[0]
    columns = (
        "began_at",
        "topic",
        "partition",
        "cause",
        "broker_lost",
        "leader",
        *(f"{step}_ms" for step in STEPS),
        "total_ms",
    )
    steps = "; ".join(
        f"{STEP_TEXTS[step]} {worst[f'{step}_ms']:,} ms"
        for step in STEPS
        if worst[f"{step}_ms"] is not None
    )
    name = escape(f"{worst['topic']}/{worst['partition']}")
    return "\n".join(
        [
            f"<h2>Critical path of the slowest failover</h2><p>{name}: {worst['total_ms']:,} ms, "
            f"of which {escape(steps)}.</p>",
            _table(
                ("told_at", "service", "kind", "broker", "stage", "since_requested_ms"),
                incident.worst_stages,
            ),
            critical_paths(incident.failovers.rows),
            _listed("Failovers, the slowest first", incident.failovers, columns),
        ]
    )


def _listed(title: str, some: LimitedRows, columns: Sequence[str]) -> str:
    if not some.total:
        return ""
    left_out = some.total - len(some.rows)
    more = f"<p>{left_out:,} more are in the table.</p>" if left_out else ""
    return f"<h2>{escape(title)}</h2>{_table(columns, some.rows)}{more}"


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(_cell(name, row[name]) for name in columns)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(name: str, value: Any) -> str:
    if value is None or (name in ("broker", "broker_lost") and value == -1):
        return "<td></td>"
    if name.endswith("_at"):
        return f"<td>{format_time(value)}</td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="number">{value:,.10g}</td>'
    return f"<td>{escape(str(value))}</td>"
