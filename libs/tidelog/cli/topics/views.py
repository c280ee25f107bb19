"""Commands that show one topic, and its configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.output import ids_text, write_field, write_json, write_line, write_table
from tidelog.cli.partition_health import partition_health
from tidelog.cli.session import Session
from tidelog.inspection.unprotected_topics import factor_text, is_unprotected
from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog.phrases import plural
from tidelog.units import format_setting, setting_argument

if TYPE_CHECKING:
    from tidelog.client.descriptions import PartitionDescription, TopicDescription

# Width of the names before the table of partitions.
_NAME_WIDTH = 13

DESCRIBE_JSON = (
    "topic, topic_id, replication_factor, unprotected (it has a single replica), config (what was "
    "set), partitions [partition, leader "
    "(null: none), leader_epoch, replicas, isr, eligible_leader_replicas, offline_replicas, "
    "unclean_leader_epoch (null: there was none), min_isr, moving_operation, original_replicas, "
    "target_replicas (empty: it does not move), create_revision, health]; with --logs also logs "
    "[partition, broker_id, role, log_start_offset, high_watermark, log_end_offset, size_bytes, "
    "lag_records, lag_ms (null: not reported)]."
)
CONFIG_JSON = (
    "topic, topic_id, revision, config [key, value (effective; empty: none), is_set, "
    "default_value, description]."
)


@shared_options("timeout_seconds")
async def describe(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            help="Also the offsets, size and lag of each replica's log, as brokers report them.",
        ),
    ] = False,
) -> None:
    """Show a topic and its partitions.

    Shows its settings, and the leader, replicas and ISR of each partition.
    """
    async with options.broker_admin(session) as admin:
        topic = await admin.describe_topic(name)
    if logs:
        from tidelog.cli.topics.logs import replica_logs, show_logs
        from tidelog.inspection.state_reports import StateRequest

        reported = await session.service_states(StateRequest(name))
        found = replica_logs(topic, reported)
        if session.as_json:
            write_json(_document(topic) | {"logs": [asdict(log) for log in found]})
        else:
            _show(topic)
            show_logs(found, reported)
    elif session.as_json:
        write_json(_document(topic))
    else:
        _show(topic)


@shared_options("timeout_seconds")
async def config(
    session: Session,
    options: MutationOptions,
    name: TopicArgument,
    set_only: Annotated[
        bool, typer.Option("--set-only", help="Only what was set for the topic.")
    ] = False,
) -> None:
    """Show every key of a topic's configuration.

    Shows the effective value, and what the key does.
    """
    async with await options.admin(session) as admin:
        (topic,) = await admin.topic_details([name], with_partitions=False)
    entries = [entry for entry in topic.config if entry.is_set or not set_only]
    if session.as_json:
        head = {"topic": name, "topic_id": topic.topic_id, "revision": topic.revision}
        write_json(head | {"config": [asdict(entry) for entry in entries]})
        return
    write_line(f"Topic     {name}")
    write_line(f"Revision  {topic.revision}")
    if not entries:
        write_line("Config    all defaults")
        return
    write_line()
    rows = [
        (
            entry.key,
            format_setting(entry.key, entry.value) or "-",
            "set" if entry.is_set else "default",
            format_setting(entry.key, entry.default_value) or "-",
            entry.description,
        )
        for entry in entries
    ]
    write_table(("key", "value", "which is", "default", "meaning"), rows)


def topic_head(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "replication_factor": topic.replication_factor,
        "unprotected": is_unprotected(topic.replication_factor),
        "config": dict(topic.config),
    }


def _document(topic: TopicDescription) -> dict[str, Any]:
    """A missing leader or unclean election is null."""
    return topic_head(topic) | {
        "partitions": [
            asdict(partition)
            | {
                "leader": None if partition.leader == NO_LEADER else partition.leader,
                "unclean_leader_epoch": None
                if partition.unclean_leader_epoch == NO_EPOCH
                else partition.unclean_leader_epoch,
                "health": partition_health(partition),
            }
            for partition in topic.partitions
        ],
    }


def _show(topic: TopicDescription) -> None:
    write_field("Topic", topic.name, _NAME_WIDTH)
    write_field("Id", topic.topic_id, _NAME_WIDTH)
    write_line(
        f"Replication  factor {factor_text(topic.replication_factor)}, "
        f"{plural(len(topic.partitions), 'partition')}"
    )
    settings = ", ".join(setting_argument(*setting) for setting in sorted(topic.config.items()))
    write_field("Config", settings or "all defaults", _NAME_WIDTH)
    write_line()
    columns = ("partition", "leader", "epoch", "replicas", "ISR", "min ISR", "eligible", "health")
    if any(partition.moving_operation for partition in topic.partitions):
        moves = ("adding", "leaving", "operation")
        rows = [(*_row(p), *_move_row(p)) for p in topic.partitions]
        write_table((*columns, *moves), rows)
    else:
        write_table(columns, [_row(partition) for partition in topic.partitions])


def _row(partition: PartitionDescription) -> tuple[object, ...]:
    return (
        partition.partition,
        "none" if partition.leader == NO_LEADER else str(partition.leader),
        partition.leader_epoch,
        ids_text(partition.replicas),
        ids_text(partition.isr),
        partition.min_isr,
        ids_text(partition.eligible_leader_replicas),
        partition_health(partition),
    )


def _move_row(partition: PartitionDescription) -> tuple[object, ...]:
    return (
        ids_text(partition.adding_replicas),
        ids_text(partition.leaving_replicas),
        partition.moving_operation or "-",
    )
