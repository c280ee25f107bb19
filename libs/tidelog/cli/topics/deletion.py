"""`tidelog topics delete`: deletes a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cli.completion import TopicArgument
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.beginning import note_pending, traced_change
from tidelog.cli.operating.command_options import MutationOptions, shared_options
from tidelog.cli.operating.consent import check_can_confirm, confirms_by_name, declined
from tidelog.cli.output import ids_text, write_json, write_line, write_note
from tidelog.cli.session import Session
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import ResizedTopic, TopicDetails

DELETE_JSON = (
    "dry_run, topic, topic_id, partitions (how many), brokers (in a dry run: those that hold "
    "replicas), pending_brokers (have not deleted theirs yet), trace_id (null in a dry run)."
)


@shared_options("dry_run", "yes", "requested_by", "expected_revision", "timeout_seconds")
async def delete(session: Session, options: MutationOptions, name: TopicArgument) -> ExitStatus:
    """Delete a topic with all its records. Asks for its name first, on a terminal."""
    async with await options.admin(session) as admin:
        # The controller is queried, because it deletes the topic and brokers may not have it yet.
        (topic,) = await admin.topic_details([name], with_partitions=False)
        danger = f"topic {name!r} and its records would be deleted for good"
        check_can_confirm(session, options, danger)
        if options.dry_run or options.expected_revision:
            # A rejection comes before the confirmation.
            plan = await admin.plan_deletion(name, expected_revision=options.expected_revision)
        if options.dry_run:
            _show_plan(session, topic, plan)
            return ExitStatus.DONE
        count = plural(topic.partition_count, "partition")
        shown = f"Topic {name} ({count}) and all its records will be deleted for good."
        if not options.yes and not confirms_by_name([shown], name):
            return declined(session, "Nothing was deleted.")
        with traced_change(admin) as trace_id:
            # This topic id only, not a topic that was created under the name in the meantime.
            pending = await admin.delete_topic(
                name,
                options.timeout_ms,
                topic_id=topic.topic_id,
                expected_revision=options.expected_revision,
            )
    if session.as_json:
        done = {"pending_brokers": pending, "trace_id": trace_id}
        write_json(_head(topic, dry_run=False) | {"brokers": []} | done)
    else:
        write_line(f"Deleted topic {name}.")
    note_pending(pending, "deleted their replicas")
    return ExitStatus.DONE


def _head(topic: TopicDetails, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "partitions": topic.partition_count,
    }


def _show_plan(session: Session, topic: TopicDetails, plan: ResizedTopic) -> None:
    if session.as_json:
        planned: dict[str, object] = {"partitions": plan.partitions, "brokers": plan.brokers}
        nothing_done: dict[str, object] = {"pending_brokers": [], "trace_id": None}
        write_json(_head(topic, dry_run=True) | planned | nothing_done)
        return
    write_line(
        f"Topic {topic.topic} ({plural(plan.partitions, 'partition')}, on brokers "
        f"{ids_text(plan.brokers)}) and all its records would be deleted for good."
    )
    write_note("This is a dry run: nothing was deleted.")
