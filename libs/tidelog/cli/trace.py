"""`tidelog trace`: shows the history of a partition and its causes, as all services report it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connection import check_any_listens, no_service_answers
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.output import json_line, timestamp_text, write_line, write_note
from tidelog.cli.session import (
    BootstrapOption,
    ContextOption,
    JsonOption,
    Session,
    ending_with_a_status,
    session_of,
)
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.client.event_streams import EventStreams, Gathered
    from tidelog.client.published_events import Published
    from tidelog.state_changes.change_trace import ChangeTrace
    from tidelog.state_changes.event import StateChange
    from tidelog.state_changes.tracing import TraceScope

# Events within this time before the newest one are requested again, since clocks differ.
FOLLOW_OVERLAP_MS = 60_000


def trace(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[/PARTITION]]",
            help="What to trace. Default: the whole cluster. With --files also the log files.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="AGE|TIME",
            show_default=False,
            help="Only changes since then, as 10m, 2h or 2026-01-31T08:30:00Z.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events, until Ctrl-C.")
    ] = False,
    files: Annotated[
        bool,
        typer.Option("--files", help="Read these log files (gzip too) instead of the cluster."),
    ] = False,
    bootstrap: BootstrapOption = None,
    context_name: ContextOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes of a partition in the order of their causes, with every stage.

    Begins with the partition: its leader and ISR after these changes, and their number.

    Queries all services, and reads the topic __state_changes, which holds the events of services
    that have ended. A deleted topic can be traced as long as a service keeps its events.

    For a topic or the cluster, each change is one line. Times after + count from the request of the
    change; ! marks a change that is not complete.

    Example: tidelog trace sea/3 --since 10m

    Example: tidelog trace --files broker-*.log controller-*.log.gz sea/3
    """
    session = session_of(context, bootstrap, as_json, context_name)
    with ending_with_a_status():
        if files and follow:
            raise UsageError("--follow queries the cluster, and --files does not; give one of them")
        since_ms = _since(since)
        if files:
            _trace_files(targets or [], since_ms, as_json=session.as_json)
            return
        scope = _scope(targets or [], since_ms)
    session.run(
        lambda: _trace(session, scope, follow=follow),
        when_interrupted=ExitStatus.DONE,
        streams=True,
    )


def _since(text: str | None) -> int:
    from tidelog.cli.trace_targets import parse_since

    return 0 if text is None else parse_since(text, time.time_ns() // 1_000_000)


def _scope(targets: Sequence[str], since_ms: int) -> TraceScope:
    from tidelog.cli.trace_targets import parse_target
    from tidelog.state_changes.tracing import TraceScope

    if len(targets) > 1:
        raise UsageError(
            f"{' '.join(targets)}: give one TOPIC or TOPIC/PARTITION; log files need --files"
        )
    scope = parse_target(targets[0]) if targets else TraceScope()
    return scope._replace(since_ms=since_ms)


def _trace_files(targets: Sequence[str], since_ms: int, *, as_json: bool) -> None:
    from tidelog.cli.trace_files import read_logs, split_targets
    from tidelog.state_changes.log_lines import MAX_EVENTS
    from tidelog.state_changes.tracing import trace as changes_of

    paths, scope = split_targets(targets, since_ms)
    read, damaged = read_logs(paths, scope)
    changes = changes_of(read.events, scope)
    _show(changes, scope, as_json=as_json)
    write_note(
        f"{plural(len(paths), 'file')}: {plural(read.lines, 'line')}, "
        f"{plural(read.skipped, 'line')} of other kinds"
        + (f", {plural(read.malformed, 'state change')} cut or unknown" if read.malformed else "")
    )
    for path, problem in damaged.items():
        write_note(f"{path} is damaged as a gzip file, and read as far as it goes: {problem}")
    if read.left_out:
        write_note(
            f"{plural(read.left_out, 'event')} older than the newest {MAX_EVENTS:,} are left out; "
            "name fewer files, a partition, or a later --since"
        )
    if not changes:
        since = f" since {timestamp_text(scope.since_ms)}" if scope.since_ms else ""
        write_note(f"The files have no changes of {_named(scope)}{since}.")


async def _trace(session: Session, scope: TraceScope, *, follow: bool) -> ExitStatus:
    from tidelog.client.event_streams import EventStreams
    from tidelog.client.published_events import gathered_with_published, published
    from tidelog.rpc.status import UnreachableError
    from tidelog.state_changes.tracing import trace as changes_of

    addresses = session.service_addresses()
    async with EventStreams(addresses) as streams:
        try:
            gathered, read = await gathered_with_published(
                streams.recent(scope), published(addresses, scope)
            )
        except UnreachableError as error:
            await check_any_listens(session.found_bootstrap(), only_foreign=True)
            raise no_service_answers(error.reason) from error
        events = [*read.events, *gathered.events]
        try:
            await streams.require_known(scope, events)
        except TidelogError:
            _note_sources(gathered, read)
            raise
        changes = changes_of(events, scope, gathered.memories)
        _show(changes, scope, as_json=session.as_json)
        _note_sources(gathered, read)
        _note_reach(gathered, changes, scope)
        if not changes and not follow:
            write_note(_nothing_found(scope))
        if follow:
            await _follow(streams, events, scope, as_json=session.as_json)
    return ExitStatus.DONE


def _nothing_found(scope: TraceScope) -> str:
    if scope.since_ms:
        return (
            f"No changes of {_named(scope)} since {timestamp_text(scope.since_ms)}; give an "
            "earlier --since, or none, for older ones."
        )
    return (
        f"No service keeps a change of {_named(scope)}; services keep their newest 20,000 events, "
        "and log files more (--files)."
    )


def _show(changes: Sequence[ChangeTrace], scope: TraceScope, *, as_json: bool) -> None:
    from tidelog.cli import trace_view

    if as_json:
        for change in changes:
            write_line(json_line(trace_view.document(change)))
    elif scope.partition is None:
        for line in trace_view.condensed_lines(changes):
            write_line(line)
    elif changes:
        write_line(trace_view.partition_line(changes, TopicPartition(scope.topic, scope.partition)))
        write_line()
        for line in trace_view.stories(changes):
            write_line(line)


def _note_sources(gathered: Gathered, read: Published) -> None:
    for silent in gathered.silent:
        write_note(f"No answer from {silent.address} ({silent.problem})")
    for note in read.notes:
        write_note(note)


def _note_reach(gathered: Gathered, changes: Sequence[ChangeTrace], scope: TraceScope) -> None:
    from tidelog.cli import trace_view

    service, kept_since_ms = max(gathered.memories.items(), key=lambda m: m[1], default=("", 0))
    if kept_since_ms <= scope.since_ms:
        return
    if not scope.topic or not trace_view.includes_creation(changes, kept_since_ms):
        write_note(trace_view.reach_note(service, kept_since_ms))


def _named(scope: TraceScope) -> str:
    if not scope.topic:
        return "the cluster"
    return scope.topic if scope.partition is None else f"{scope.topic}/{scope.partition}"


async def _follow(
    streams: EventStreams, past: Sequence[StateChange], scope: TraceScope, *, as_json: bool
) -> None:
    """Prints each new stage as it arrives, and no earlier event again."""
    from contextlib import aclosing

    from tidelog.client.event_streams import Silent
    from tidelog.state_changes.tracing import Involved

    known = {event.identity for event in past}
    involved = Involved(scope, past)
    newest_ms = max((event.time_ms for event in past), default=0)
    since_ms = max(scope.since_ms, newest_ms - FOLLOW_OVERLAP_MS)
    async with aclosing(streams.follow(scope._replace(since_ms=since_ms))) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, Silent):
                    write_note(f"{event.address}: {event.problem}")
                elif event.identity not in known and involved.takes(event):
                    _write_event(event, as_json=as_json)
            sys.stdout.flush()


def _write_event(event: StateChange, *, as_json: bool) -> None:
    from tidelog.cli import trace_view
    from tidelog.state_changes.json_form import to_object

    write_line(json_line(to_object(event)) if as_json else trace_view.event_line(event))
