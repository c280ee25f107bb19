"""`tidelog topics create`: creates a topic."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.operating.beginning import in_doubt, note_pending
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.targets import assignment_text, parse_assignment
from tidelog.cli.output import ids_text, write_json, write_line, write_note, write_table
from tidelog.cli.session import Session
from tidelog.cli.topics.settings import parse_settings
from tidelog.errors import TidelogError
from tidelog.inspection.unprotected_topics import is_unprotected
from tidelog.model import MAX_INT32
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import CreatedTopic

# A longer command line is not worth copying.
MAX_PARTITIONS_TO_COPY = 30

CREATE_JSON = (
    "dry_run, topic, topic_id (empty in a dry run), operation_id, partitions, replication_factor, "
    "config, assignment (in a dry run: the replicas of each partition), pending_brokers (have "
    "not started their replicas yet), unprotected (it has a single replica), warnings, trace_id."
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    - `replication_factor`: None for the default.
    - `assignment`: empty if the controller places the replicas.
    """

    name: str
    partitions: int
    replication_factor: int | None
    config: dict[str, str]
    assignment: Sequence[tuple[int, ...]] = ()


@shared_options("dry_run", "operation_id", "requested_by", "timeout_seconds")
async def create(
    session: Session,
    options: MutationOptions,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the new topic.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            max=MAX_INT32,
            show_default=False,
            help="Number of partitions. Default: 1.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            max=MAX_INT32,
            show_default=False,
            help="Replicas of each partition. Default: 3, or the number of brokers if lower. "
            "With 1 the topic is unprotected, and the command warns.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A setting of the topic, as retention_ms=7d or segment_bytes=256MiB; may be "
            "repeated.",
        ),
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(
            "--assignment",
            metavar="IDS:IDS:…",
            show_default=False,
            help="Brokers of each partition, the preferred leader first, as 1,2:2,3:3,1. "
            "Default: spread over brokers and racks.",
        ),
    ] = None,
) -> None:
    """Create a topic.

    Waits until its replicas have started. Brokers that have not started theirs in time are named;
    they continue by themselves. --dry-run shows where the replicas would be placed.
    """
    settings = parse_settings(config or ())
    placed = parse_assignment(assignment) if assignment is not None else []
    # The cluster rejects counts that contradict the assignment.
    if partitions is None:
        partitions = len(placed) or 1
    if replication_factor is None and placed:
        replication_factor = len(placed[0])
    topic = NewTopic(name, partitions, replication_factor, settings, placed)
    await _create(session, options, topic)


async def _create(session: Session, options: MutationOptions, topic: NewTopic) -> None:
    async with await options.admin(session) as admin:
        # A first request: a later timeout does not mean that the cluster is unreachable.
        await admin.describe_cluster()
        factor = topic.replication_factor
        if factor is None:
            factor = await admin.default_replication_factor(topic.name, options.operation_id)
        topic = replace(topic, replication_factor=factor)
        operation_id = options.operation_id or admin.new_operation_id()
        try:
            created = await admin.create_topic(
                topic.name,
                topic.partitions,
                factor,
                topic.config,
                options.timeout_ms,
                assignment=topic.assignment,
                operation_id=operation_id,
                dry_run=options.dry_run,
            )
        except TidelogError as error:
            raise in_doubt(error, "" if options.dry_run else operation_id) from error
    if session.as_json:
        write_json(_document(topic, created, operation_id, dry_run=options.dry_run))
    elif options.dry_run:
        _show_placement(topic, created)
    else:
        count = plural(topic.partitions, "partition")
        write_line(f"Created topic {topic.name}: {count}, replication factor {factor}.")
    for warning in created.warnings:
        write_note(f"Warning: {warning}")
    note_pending(created.pending_brokers, "started their replicas")


def _document(
    topic: NewTopic, created: CreatedTopic, operation_id: str, *, dry_run: bool
) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "topic": topic.name,
        "topic_id": created.topic_id,
        "operation_id": operation_id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "config": topic.config,
        "assignment": created.assignment,
        "pending_brokers": created.pending_brokers,
        "unprotected": is_unprotected(topic.replication_factor or 0),
        "warnings": created.warnings,
        "trace_id": created.trace_id,
    }


def _show_placement(topic: NewTopic, created: CreatedTopic) -> None:
    count = plural(topic.partitions, "partition")
    write_line(
        f"Topic {topic.name} would have {count} and replication factor {topic.replication_factor}:"
    )
    rows = [(number, ids_text(replicas)) for number, replicas in enumerate(created.assignment)]
    write_table(("partition", "replicas"), rows)
    if len(created.assignment) <= MAX_PARTITIONS_TO_COPY:
        settings = "".join(f" -c {shlex.quote(f'{k}={v}')}" for k, v in topic.config.items())
        write_note(
            f"The placement may differ at creation. For exactly this one: tidelog topics create "
            f"{topic.name} --assignment {assignment_text(created.assignment)}{settings}"
        )
    write_note("This is a dry run: nothing was created.")
