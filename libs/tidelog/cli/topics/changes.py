"""`tidelog topics alter-config, add-partitions, remove-partitions, set-replication-factor`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import TopicArgument, complete_topic
from tidelog.cli.exit_status import ExitStatus, UsageError
from tidelog.cli.operating.beginning import note_pending, run_operation, traced_change
from tidelog.cli.operating.command_options import MutationOptions, operation_options, shared_options
from tidelog.cli.operating.consent import check_can_confirm, confirms, confirms_by_name, declined
from tidelog.cli.operating.targets import parse_assignment
from tidelog.cli.output import ids_text, write_json, write_line, write_note, write_table
from tidelog.cli.session import Session
from tidelog.cli.topics.settings import parse_settings
from tidelog.model import MAX_INT32
from tidelog.phrases import plural
from tidelog.request_bounds import MAX_ASSIGNED_PARTITIONS
from tidelog.units import format_setting

if TYPE_CHECKING:
    from tidelog.admin_messages import AlteredConfig, ResizedTopic

_PENDING = "pending_brokers (have not acknowledged yet)"
_TRACE = "trace_id (null in a dry run)"
ALTER_JSON = (
    f"dry_run, topic, changes [key, before, after], revision, {_PENDING}, warnings, {_TRACE}."
)
ADD_JSON = (
    "dry_run, topic, partitions (in all), added, assignment (in a dry run: the replicas of each "
    f"new partition), revision, {_PENDING}, warnings, {_TRACE}."
)
REMOVE_JSON = (
    "dry_run, topic, partitions (that are kept), removed, brokers (in a dry run: those that hold "
    f"what would go), revision, {_PENDING}, warnings, {_TRACE}."
)


@shared_options("dry_run", "yes", "requested_by", "expected_revision", "timeout_seconds")
async def alter_config(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Set a key, as retention_ms=7d or segment_bytes=256MiB; may be repeated.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", "-u", metavar="KEY", help="Reset a key to its default; may be repeated."
        ),
    ] = None,
) -> ExitStatus:
    """Change a topic's configuration.

    The change takes effect without a restart. Other keys do not change. If records may be lost, for
    example by a shorter retention, the command warns and asks for confirmation. topics config
    describes all keys.
    """
    settings = parse_settings(changed or (), "--set")
    if not settings and not unset:
        raise UsageError("nothing is to be set or unset; give --set KEY=VALUE or --unset KEY")
    async with await options.admin(session) as admin:
        alter = partial(admin.alter_topic_config, name, settings, unset or (), options.timeout_ms)
        altered = await alter(expected_revision=options.expected_revision, dry_run=True)
        trace = None
        if altered.changes and not options.dry_run:
            risks = altered.warnings
            if risks:
                check_can_confirm(session, options, f"of topic {name!r}: {' '.join(risks)}"[:-1])
            if risks and not options.yes and not confirms([*_change_lines(altered), *risks]):
                return declined(session, "Nothing was changed.")
            with traced_change(admin) as trace:
                altered = await alter(expected_revision=altered.revision)
    if session.as_json:
        head = {"dry_run": options.dry_run, "topic": name}
        write_json(head | asdict(altered) | {"trace_id": trace})
    else:
        _show_altered(name, altered, dry_run=options.dry_run)
    note_pending(altered.pending_brokers, "acknowledged it")
    return ExitStatus.DONE


@shared_options("dry_run", "yes", "requested_by", "expected_revision", "timeout_seconds")
async def add_partitions(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", max=MAX_INT32, help="The new number of partitions."),
    ],
    assignment: Annotated[
        str | None,
        typer.Option(
            "--assignment",
            metavar="IDS:IDS:…",
            show_default=False,
            help="Brokers of each new partition, as 1,2:2,3. Default: spread over brokers.",
        ),
    ] = None,
) -> ExitStatus:
    """Add partitions after the last one.

    Records with a key go to other partitions than before. Consumers that rely on the order of
    records with the same key are affected. The command asks for confirmation, since partitions can
    only be removed together with their records.
    """
    placed = parse_assignment(assignment) if assignment is not None else []
    async with await options.admin(session) as admin:
        add = partial(admin.add_partitions, name, partitions, options.timeout_ms)
        resized = await add(
            assignment=placed, expected_revision=options.expected_revision, dry_run=True
        )
        danger = f"topic {name!r} would get partitions that can only be removed with their records"
        check_can_confirm(session, options, danger)
        trace = None
        # If the topic has that many partitions already, an earlier request may still be pending:
        # the command waits for it.
        if not options.dry_run:
            shown = (
                f"Topic {name} would get {plural(resized.partitions, 'more partition')}, "
                f"{partitions:,} in all. {' '.join(resized.warnings)}"
            )
            if resized.partitions and not options.yes and not confirms([shown]):
                return declined(session, "Nothing was added.")
            fits = len(resized.assignment) <= MAX_ASSIGNED_PARTITIONS
            with traced_change(admin) as trace:
                # Exactly as planned, whichever brokers join in the meantime.
                exact = resized.assignment if fits else placed
                resized = await add(assignment=exact, expected_revision=resized.revision)
    counts = {"added": resized.partitions, "assignment": resized.assignment}
    if _report_resized(session, options, name, partitions, resized, trace, counts):
        _show_added(name, partitions, resized, dry_run=options.dry_run)
    note_pending(resized.pending_brokers, "acknowledged it")
    return ExitStatus.DONE


@shared_options("dry_run", "yes", "requested_by", "expected_revision", "timeout_seconds")
async def remove_partitions(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    partitions: Annotated[
        int,
        typer.Option("--partitions", "-p", max=MAX_INT32, help="How many to keep: the first ones."),
    ],
) -> ExitStatus:
    """Delete the last partitions with all their records. Asks for the topic's name first.

    Records with a key go to other partitions than before.
    """
    async with await options.admin(session) as admin:
        remove = partial(admin.remove_partitions, name, partitions, options.timeout_ms)
        resized = await remove(expected_revision=options.expected_revision, dry_run=True)
        danger = f"partitions of topic {name!r} and their records would be deleted for good"
        check_can_confirm(session, options, danger)
        trace = None
        # If the topic has no more partitions already, an earlier request may still be pending: the
        # command waits for it.
        if not options.dry_run:
            shown = _removal_text(name, partitions, resized, "will")
            if resized.partitions and not options.yes and not confirms_by_name([shown], name):
                return declined(session, "Nothing was removed.")
            with traced_change(admin) as trace:
                resized = await remove(confirm_topic=name, expected_revision=resized.revision)
    counts = {"removed": resized.partitions, "brokers": resized.brokers}
    if _report_resized(session, options, name, partitions, resized, trace, counts):
        if options.dry_run:
            write_line(_removal_text(name, partitions, resized, "would"))
            write_note("This is a dry run: nothing was changed.")
        else:
            count = plural(resized.partitions, "partition")
            write_line(f"Removed {count} of topic {name}: {partitions:,} are left.")
    note_pending(resized.pending_brokers, "acknowledged it")
    return ExitStatus.DONE


@operation_options
async def set_replication_factor(
    session: Session,
    options: MutationOptions,
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="Names of the topics.", autocompletion=complete_topic),
    ],
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", max=MAX_INT32, help="Replicas of each partition."
        ),
    ],
) -> ExitStatus:
    """Change the number of a topic's replicas.

    New replicas are copied while the partitions stay available. A lower number first removes
    replicas on brokers that get no new replicas. Shows the plan and asks for confirmation. A topic
    with one replica is unprotected: its records are lost with one disk.
    """
    count = plural(replication_factor, "replica")
    return await run_operation(
        session,
        options,
        lambda admin: partial(admin.set_replication_factor, topics, replication_factor),
        danger=f"partitions of {', '.join(topics)} would be given {count}",
    )


def _show_altered(name: str, altered: AlteredConfig, *, dry_run: bool) -> None:
    if not altered.changes:
        write_line(f"Topic {name} has this configuration already.")
        return
    write_line(f"Topic {name} {'would be' if dry_run else 'is'} changed:")
    rows = [
        (c.key, format_setting(c.key, c.before) or "-", format_setting(c.key, c.after) or "-")
        for c in altered.changes
    ]
    write_table(("key", "before", "after"), rows)
    if dry_run:
        for warning in altered.warnings:
            write_note(warning)
        write_note("This is a dry run: nothing was changed.")


def _change_lines(altered: AlteredConfig) -> list[str]:
    return [
        f"{c.key}: {format_setting(c.key, c.before) or 'none'} -> "
        f"{format_setting(c.key, c.after) or 'none'}"
        for c in altered.changes
    ]


def _show_added(name: str, partitions: int, resized: ResizedTopic, *, dry_run: bool) -> None:
    count = plural(resized.partitions, "partition")
    if not dry_run:
        write_line(f"Added {count} to topic {name}: {partitions:,} in all.")
        return
    write_line(f"Topic {name} would get {count}, {partitions:,} in all:")
    first = partitions - resized.partitions
    rows = [(n, ids_text(replicas)) for n, replicas in enumerate(resized.assignment, first)]
    write_table(("partition", "replicas"), rows)
    write_note("This is a dry run: nothing was changed.")


def _removal_text(name: str, partitions: int, resized: ResizedTopic, will: str) -> str:
    last = partitions + resized.partitions - 1
    those = f"{partitions}" if last == partitions else f"{partitions} to {last}"
    return (
        f"Of topic {name}, {plural(resized.partitions, 'partition')} ({those}, on brokers "
        f"{ids_text(resized.brokers)}) and all their records {will} be deleted for good."
    )


def _report_resized(
    session: Session,
    options: MutationOptions,
    name: str,
    partitions: int,
    resized: ResizedTopic,
    trace_id: str | None,
    counts: dict[str, object],
) -> bool:
    """Returns whether a change is still to be shown: there is one, and the output is for people."""
    if session.as_json:
        head = {"dry_run": options.dry_run, "topic": name, "partitions": partitions}
        tail = {
            "revision": resized.revision,
            "pending_brokers": resized.pending_brokers,
            "warnings": resized.warnings,
            "trace_id": trace_id,
        }
        write_json(head | counts | tail)
    elif not resized.partitions:
        write_line(f"Topic {name} has {plural(partitions, 'partition')} already.")
    return not session.as_json and resized.partitions > 0
