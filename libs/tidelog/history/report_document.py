"""A report as a JSON document. Pure functions."""

from __future__ import annotations

from typing import Any

from tidelog.history.anomalies import AnomalyFinding
from tidelog.history.report import EventGaps, Report, WriteTiming
from tidelog.history.write_gaps import WriteGap


def document(report: Report, timing: WriteTiming) -> dict[str, Any]:
    """Returns the document that `tidelog check-history --json` writes."""
    return {
        "valid": not report.anomaly_count,
        "anomaly_count": report.anomaly_count,
        "excused_count": report.excused_count,
        "operations": report.operations,
        "partitions": report.partitions,
        "sends": {outcome.value: count for outcome, count in sorted(report.sends.items())},
        "polls": report.polls,
        "polled_records": report.polled_records,
        "undrained": [str(partition) for partition in report.undrained],
        "only_in_final_reads": report.only_in_final_reads,
        "unplaced_sends": report.unplaced_sends,
        "without_offset": report.without_offset,
        "anomalies": [
            {
                "anomaly": anomaly.value,
                "count": report.findings.counts[anomaly],
                "excused": report.findings.excused[anomaly],
                "examples": [_finding_document(one) for one in report.findings.of(anomaly)],
            }
            for anomaly in report.findings.classes()
        ],
        "slowest_to_first_poll": report.slowest and report.slowest._asdict(),
        "longest_write_gap": _gap_document(timing.longest),
        "nemesis": [_event_document(gaps) for gaps in timing.around_events],
    }


def _finding_document(finding: AnomalyFinding) -> dict[str, Any]:
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "summary": finding.summary,
        "excuse": finding.excuse,
        "operations": [reference._asdict() for reference in finding.references],
    }


def _gap_document(gap: WriteGap) -> dict[str, int]:
    return gap._asdict() | {"length_ms": gap.length_ms}


def _event_document(gaps: EventGaps) -> dict[str, Any]:
    return {
        "line": gaps.line,
        **gaps.event._asdict(),
        "write_gap": _gap_document(gaps.overall),
        "partition_write_gap": _gap_document(gaps.worst)
        | {"partition": gaps.worst_partition and str(gaps.worst_partition)},
    }
