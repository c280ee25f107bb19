"""Makes topics as planned. After an interruption, the same command does what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.cli.applying.apply_plan import ApplyPlan
from tidelog.cli.applying.topic_diff import FACTOR, PARTITIONS, TopicChange
from tidelog.cli.applying.topic_requests import TopicChanger, config_steps
from tidelog.cli.exit_status import ExitStatus
from tidelog.cli.operating.operation_view import state_text
from tidelog.cli.operating.watching import View, status_of_end, watch
from tidelog.cli.output import write_error

# As many as the controller accepts in one request.
MAX_TOPICS_PER_OPERATION = 50


@dataclass(slots=True)
class Carried:
    """What was done.

    - `operations`: ids of the operations that ended.
    - `pending`: brokers that have not acknowledged a change in time; they continue.
    """

    operations: list[str] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    status: ExitStatus = ExitStatus.DONE


async def carry_out(
    changer: TopicChanger, plan: ApplyPlan, view: View, *, timeout_seconds: float
) -> Carried:
    """Configuration first, as lower limits may be needed; then creations and partitions, so that
    one operation copies all replicas; then replication factors, each operation to its end; then a
    min ISR that needs the new replicas; deletions last.

    `timeout_seconds`: how long to follow each operation. Raises the `TidelogError` of a rejection,
    such as REVISION_CONFLICT of a topic that has changed since the plan.
    """
    carried = Carried()
    # The first request for a topic is for the topic as it was compared; its answer has the next
    # revision.
    revisions = {change.topic: change.revision for change in plan.changes}
    for change in plan.changes:
        early, _ = _config_steps(plan, change)
        if early is not None:
            altered = await changer.alter(early, expected_revision=revisions[change.topic])
            revisions[change.topic] = altered.revision
            carried.pending.update(altered.pending_brokers)
    for change in plan.changes:
        if change.action == "create":
            created = await changer.create(change)
            carried.pending.update(created.pending_brokers)
        elif change.of(PARTITIONS):
            resized = await changer.resize(change, expected_revision=revisions[change.topic])
            carried.pending.update(resized.pending_brokers)
    for topics, factor in factor_groups(plan.changes):
        if not await _change_factor(changer, topics, factor, view, timeout_seconds, carried):
            return carried
    for change in plan.changes:
        _, late = _config_steps(plan, change)
        if late is not None:
            carried.pending.update((await changer.alter(late)).pending_brokers)
    for change in plan.changes:
        if change.action == "delete":
            carried.pending.update(await changer.delete(change))
    return carried


def factor_groups(changes: Sequence[TopicChange]) -> Iterator[tuple[list[str], int]]:
    """Yields topics that get the same replication factor: one operation each."""
    by_factor: dict[int, list[str]] = {}
    for change in changes:
        found = change.of(FACTOR) if change.action == "change" else None
        if found is not None:
            by_factor.setdefault(int(found.after), []).append(change.topic)
    for factor, topics in sorted(by_factor.items()):
        for first in range(0, len(topics), MAX_TOPICS_PER_OPERATION):
            yield topics[first : first + MAX_TOPICS_PER_OPERATION], factor


async def _change_factor(
    changer: TopicChanger,
    topics: Sequence[str],
    factor: int,
    view: View,
    timeout_seconds: float,
    carried: Carried,
) -> bool:
    """Returns whether the topics have the factor."""
    begun = await changer.set_factor(topics, factor)
    assert begun.operation is not None
    operation_id = begun.operation.operation_id
    carried.operations.append(operation_id)
    ended = await watch(changer.admin, operation_id, view, timeout_seconds=timeout_seconds)
    carried.status = status_of_end(ended)
    if carried.status is not ExitStatus.DONE:
        write_error(
            f"operation {operation_id} has ended as {state_text(ended)}; what follows it was not "
            "begun. Apply again once its cause is removed: tidelog explain"
        )
    return carried.status is ExitStatus.DONE


def _config_steps(
    plan: ApplyPlan, change: TopicChange
) -> tuple[TopicChange | None, TopicChange | None]:
    if change.action != "change":
        return None, None
    return config_steps(change, plan.factors_now[change.topic])
