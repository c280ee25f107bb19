"""`tidelog topics recover`: elects the best surviving replica of partitions without a leader."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus, status_of_results
from tidelog.cli.operating.beginning import traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.consent import check_can_confirm, confirms, declined
from tidelog.cli.operating.documents import error_document
from tidelog.cli.operating.help_epilog import ERROR_FIELDS
from tidelog.cli.operating.recovery_view import MAX_DESCRIBE_MS, recovery_lines
from tidelog.cli.output import ids_text, write_error, write_json, write_line, write_note
from tidelog.cli.session import Session
from tidelog.model import NO_LEADER
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import PartitionDetails, Recovery, TopicDetails

RECOVER_JSON = (
    f"dry_run, topic, topic_id, results [partition, {ERROR_FIELDS}] (empty in a dry run), "
    "described (in a dry run: as recovery describe), trace_id (null in a dry run)."
)


@shared_options("dry_run", "yes", "requested_by", "timeout_seconds")
async def recover(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            show_default=False,
            help="Only this one; may be repeated. Default: all without a leader.",
        ),
    ] = None,
    from_live_replicas: Annotated[
        bool,
        typer.Option(
            "--from-live-replicas",
            help="Do not wait for the replicas last known to be in sync; they are lost for good.",
        ),
    ] = False,
) -> ExitStatus:
    """Elect the best surviving replica of partitions without a leader.

    Records that only lost replicas held are gone, even if they were acknowledged. Asks for
    confirmation first, on a terminal. recovery describe shows what each replica holds; recovery
    choose elects a chosen replica.
    """
    partition_ids = sorted(set(partitions or ()))
    async with await options.admin(session) as admin:
        (topic,) = await admin.topic_details([name])
        check_can_confirm(session, options, f"records of topic {name!r} may be lost for good")
        leaderless = [
            p
            for p in topic.partitions
            if p.leader == NO_LEADER and (not partition_ids or p.partition in partition_ids)
        ]
        if options.dry_run:
            described = await admin.describe_recovery(
                name, partition_ids, min(options.timeout_ms, MAX_DESCRIBE_MS)
            )
            _show_plan(session, topic, described, live=from_live_replicas)
            return ExitStatus.DONE
        needs_consent = bool(leaderless) and not options.yes
        if needs_consent and not _consented(topic, leaderless, live=from_live_replicas):
            return declined(session, "Nothing was recovered.")
        with traced_change(admin) as trace_id:
            recovered = await admin.recover_partitions(
                name, partition_ids, options.timeout_ms, from_live_replicas=from_live_replicas
            )
    if session.as_json:
        results = [{"partition": r.partition, "error": error_document(r.error)} for r in recovered]
        fields = {"results": results, "described": [], "trace_id": trace_id}
        write_json({"dry_run": False, "topic": name, "topic_id": topic.topic_id} | fields)
    elif not recovered:
        write_line(f"Every partition of topic {name} has a leader.")
    for result in recovered:
        if result.error is not None:
            write_error(str(result.error))
        elif not session.as_json:
            write_line(f"Partition {result.partition} of topic {name} has a leader.")
    return status_of_results(result.error for result in recovered)


def _show_plan(
    session: Session, topic: TopicDetails, described: Sequence[Recovery], *, live: bool
) -> None:
    if session.as_json:
        items = [asdict(recovery) for recovery in described]
        head = {"dry_run": True, "topic": topic.topic, "topic_id": topic.topic_id}
        write_json(head | {"results": [], "described": items, "trace_id": None})
        return
    if not described:
        write_line(f"Every selected partition of topic {topic.topic} has a leader.")
    for recovery in described:
        for line in recovery_lines(recovery, on_terminal=sys.stdout.isatty()):
            write_line(line)
        away = [s.broker_id for s in recovery.survivors if not s.described]
        awaited = [] if live else [b for b in recovery.last_known if b in away]
        write_line(
            f"The election would wait for brokers {ids_text(awaited)}; if they are lost for good, "
            "give --from-live-replicas."
            if awaited
            else "Of the replicas that report their logs, the one with the longest log in the "
            "newest epoch would be elected."
        )
    write_note("This is a dry run: nothing was elected.")


def _consented(topic: TopicDetails, leaderless: Sequence[PartitionDetails], *, live: bool) -> bool:
    warning = (
        f"Of topic {topic.topic}, {plural(len(leaderless), 'partition')} "
        f"({ids_text([p.partition for p in leaderless])}) without a leader will be led by the best "
        "surviving replica.\nRecords that only lost replicas held are lost for good, even if they "
        "were acknowledged."
    )
    if live:
        members = {b for p in leaderless for b in (*p.isr, *p.eligible)}
        warning += (
            f"\nThe election does not wait for the brokers last known to be in sync "
            f"({ids_text(sorted(members))}): records that only they hold are truncated when they "
            "are back."
        )
    return confirms([warning])
