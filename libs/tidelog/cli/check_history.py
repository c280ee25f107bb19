"""`tidelog check-history`: checks a recorded history of sends and polls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.output import progress_bar, write_json, write_line, write_table
from tidelog.cli.session import JsonOption, ending_with_a_status, session_of
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.history import Anomaly, AnomalyFinding, Nemesis, Report
    from tidelog.history.write_gaps import WriteGap

# Nemesis events, and partitions without final reads, that the text names.
MAX_SHOWN_EVENTS = 50
MAX_SHOWN_PARTITIONS = 10
# Operations that the text shows for one example; JSON contains all of them.
MAX_SHOWN_OPERATIONS = 6


def check_history(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A history: JSON lines, one each for an operation's begin and end.",
        ),
    ],
    examples: Annotated[
        int, typer.Option("--examples", min=0, max=10, help="Examples to show of each anomaly.")
    ] = 3,
    as_json: JsonOption = False,
) -> None:
    """Check what clients recorded: lost, repeated, reordered or diverged records.

    The exit status is 1 if an anomaly is found that no recorded loss mark excuses, and 2 if the
    file is not a history.

    Example: tidelog check-history run.history --examples 1
    """
    as_json = session_of(context, None, as_json).as_json
    with ending_with_a_status(as_json=as_json):
        report = _check(file)
        if as_json:
            from tidelog.history.report_document import document

            write_json(document(report, report.write_timing()))
        else:
            _show(report, examples)
    if report.anomaly_count:
        raise typer.Exit(ExitStatus.FAILED)


def _check(file: Path) -> Report:
    from tidelog.history import HistoryError, check_history, read_history

    with progress_bar("checking", file.stat().st_size) as advance:
        try:
            return check_history(read_history(file, advance))
        except HistoryError as error:
            where = "" if str(error).startswith(str(file)) else f"{file}, "
            raise UsageError(f"{where}{error}") from error


def _show(report: Report, examples: int) -> None:
    write_line(_verdict(report))
    _show_counts(report)
    found = report.findings.classes()
    if found:
        write_line()
        write_table(
            ("anomaly", "count", "excused", "first", "lines"),
            [
                (
                    anomaly.value,
                    report.findings.counts[anomaly],
                    report.findings.excused[anomaly],
                    report.findings.of(anomaly)[0].headline,
                    _lines(report.findings.of(anomaly)[0]),
                )
                for anomaly in found
            ],
        )
    if examples:
        for anomaly in found:
            _show_examples(anomaly, report, examples)
    _show_timing(report)


def _verdict(report: Report) -> str:
    excused = f" ({report.excused_count:,} excused by loss marks)" if report.excused_count else ""
    if not report.anomaly_count:
        return f"VALID: no anomaly{excused}"
    return f"INVALID: {plural(report.anomaly_count, 'anomaly', 'anomalies')}{excused}"


def _show_counts(report: Report) -> None:
    from tidelog.history import Outcome

    sends = report.sends
    write_line(
        f"{plural(report.operations, 'line')} of operations on "
        f"{plural(report.partitions, 'partition')}: {plural(sends.total(), 'send')} "
        f"({sends[Outcome.OK]:,} ok, {sends[Outcome.FAIL]:,} failed, "
        f"{sends[Outcome.INFO]:,} unknown), {plural(report.polls, 'poll')} of "
        f"{plural(report.polled_records, 'record')}"
    )
    if report.undrained:
        named = ", ".join(map(str, report.undrained[:MAX_SHOWN_PARTITIONS]))
        more = len(report.undrained) - MAX_SHOWN_PARTITIONS
        write_line(
            f"not checked for unseen records, because no final reads are recorded: {named}"
            + (f" and {more:,} more" if more > 0 else "")
        )


def _lines(finding: AnomalyFinding) -> str:
    shown = ", ".join(str(one.line) for one in finding.references[:MAX_SHOWN_OPERATIONS])
    return shown + (", …" if len(finding.references) > MAX_SHOWN_OPERATIONS else "")


def _show_examples(anomaly: Anomaly, report: Report, examples: int) -> None:
    counts, excused = report.findings.counts[anomaly], report.findings.excused[anomaly]
    of = counts + excused
    shown = report.findings.of(anomaly)[:examples]
    write_line()
    write_line(f"{anomaly} ({len(shown)} of {of:,})")
    for finding in shown:
        excuse = "" if finding.excuse is None else f" [excused: {finding.excuse}]"
        write_line(f"  {finding.headline}{excuse}")
        for reference in finding.references[:MAX_SHOWN_OPERATIONS]:
            write_line(
                f"    line {reference.line:<9} {_seconds(reference.time_ms):>12}  {reference.text}"
            )
        more = len(finding.references) - MAX_SHOWN_OPERATIONS
        if more > 0:
            write_line(f"    and {plural(more, 'operation')} more")


def _show_timing(report: Report) -> None:
    write_line()
    if report.slowest is not None:
        slow = report.slowest
        write_line(
            f"Longest from acknowledgement to first poll: {_seconds(slow.waited_ms)} "
            f"({slow.topic}/{slow.partition} offset {slow.offset}, value {slow.value}, "
            f"lines {slow.acknowledged_line} and {slow.polled_line})"
        )
    write_line(f"Longest without a successful send: {_gap(report.longest_write_gap())}")
    around = report.gaps_around_events()
    if around:
        write_line()
        write_table(
            ("line", "time", "nemesis", "no send succeeded for", "to one partition"),
            [
                (
                    gaps.line,
                    _seconds(gaps.event.time_ms),
                    _event(gaps.event),
                    _seconds(gaps.overall.length_ms),
                    _seconds(gaps.worst.length_ms)
                    + (f" ({gaps.worst_partition})" if gaps.worst_partition else ""),
                )
                for gaps in around[:MAX_SHOWN_EVENTS]
            ],
        )
        if report.nemesis_count > MAX_SHOWN_EVENTS:
            write_line(f"and {report.nemesis_count - MAX_SHOWN_EVENTS:,} events more")


def _event(event: Nemesis) -> str:
    return f"{event.event} {event.detail}".rstrip()


def _seconds(time_ms: int) -> str:
    """
    >>> _seconds(1_234_567)
    '1,234.567 s'
    """
    return f"{time_ms / 1000:,.3f} s"


def _gap(gap: WriteGap) -> str:
    return f"{_seconds(gap.length_ms)}, from {_seconds(gap.begin_ms)} to {_seconds(gap.end_ms)}"
