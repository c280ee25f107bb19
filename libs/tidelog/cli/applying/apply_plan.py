"""Compares declared topics with a cluster. Every change is tried as a dry run, so that one that
would be rejected is rejected before anything has changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.applying.declarations import DeclaredTopic
from tidelog.cli.applying.topic_diff import (
    FACTOR,
    MIN_ISR,
    PARTITIONS,
    TopicChange,
    confirmed_config,
    plan_digest,
    topic_changes,
)
from tidelog.cli.applying.topic_requests import TopicChanger, config_steps, fewest_replicas
from tidelog.cli.exit_status import UsageError
from tidelog.phrases import plural

if TYPE_CHECKING:
    from tidelog.admin_messages import Operation, TopicDetails
    from tidelog.client import Admin

_RUNNING = ("running", "cancelling")
# The moves of each are read. More at once are no state in which to change topics.
MAX_RUNNING_OPERATIONS = 100


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """What has to change, and what it endangers.

    - `factors_now`: the fewest replicas of a partition, of each topic that changes.
    - `waits_for`: running operations that move partitions of declared topics. They come first.
    - `risks`: sentences for people, about records that may be lost and keys that move.
    - `warnings`: further sentences, for which no consent is needed.
    """

    changes: tuple[TopicChange, ...]
    factors_now: dict[str, int]
    waits_for: tuple[Operation, ...]
    risks: tuple[str, ...]
    warnings: tuple[str, ...]
    digest: str

    @property
    def differs(self) -> bool:
        return bool(self.changes or self.waits_for)

    @property
    def deletes_records(self) -> bool:
        return any(change.action == "delete" or change.shrinks for change in self.changes)

    @property
    def needs_consent(self) -> bool:
        """As the commands for each of the changes do: also a replication factor, whose replicas
        are copied."""
        changed = (change for change in self.changes if change.action == "change")
        return bool(self.risks) or any(change.of(FACTOR) for change in changed)


async def make_plan(
    changer: TopicChanger, declared: Sequence[DeclaredTopic], *, prune: bool
) -> ApplyPlan:
    """Raises `UsageError` for a plan that would delete every topic, and the `TidelogError` of a
    change that the controller rejects."""
    existing = {topic.topic: topic for topic in await changer.admin.topic_details()}
    if prune and not declared:
        raise UsageError(
            f"no topic is declared, so that --prune would delete all {len(existing):,}; declare "
            "the topics to keep"
        )
    waits_for, moving = await _running(changer.admin, {topic.name for topic in declared})
    changes: list[TopicChange] = []
    risks: list[str] = []
    warnings: list[str] = []
    for change in topic_changes(declared, existing.values(), prune=prune, moving=moving):
        if change.action == "create":
            warnings += (await changer.create(change, dry_run=True)).warnings
            changes.append(change)
            continue
        tried, found = await _tried(changer, change, existing[change.topic])
        if tried.differences:
            changes.append(tried)
            risks += [f"{tried.topic}: {risk}" for risk in found]
    factors = {
        change.topic: fewest_replicas(existing[change.topic])
        for change in changes
        if change.action == "change"
    }
    return ApplyPlan(
        tuple(changes), factors, waits_for, tuple(risks), tuple(warnings), plan_digest(changes)
    )


async def _running(admin: Admin, topics: Collection[str]) -> tuple[tuple[Operation, ...], set[str]]:
    """Returns the running operations that move partitions of these topics, and those topics."""
    running = await admin.list_operations(states=_RUNNING)
    if len(running) > MAX_RUNNING_OPERATIONS:
        raise UsageError(
            f"{len(running):,} operations are running; apply again when at most "
            f"{MAX_RUNNING_OPERATIONS} are. They are listed by: tidelog operations list"
        )
    found: list[Operation] = []
    moving: set[str] = set()
    for operation in running:
        moves = await admin.operation_moves(operation.operation_id)
        concerned = {progress.move.topic for progress in moves}.intersection(topics)
        if concerned:
            found.append(operation)
            moving |= concerned
    return tuple(found), moving


async def _tried(
    changer: TopicChanger, change: TopicChange, found: TopicDetails
) -> tuple[TopicChange, list[str]]:
    """Returns the change as the controller would make it, and its risks."""
    if change.action == "delete":
        plan = await changer.plan_deletion(change)
        count = plural(plan.partitions, "partition")
        return change, [f"The topic ({count}) and all its records will be deleted for good."]
    early, late = config_steps(change, fewest_replicas(found))
    risks: list[str] = []
    if early is not None:
        altered = await changer.alter(early, expected_revision=change.revision, dry_run=True)
        in_force = {c.key: (c.before, c.after) for c in altered.changes}
        # This one cannot be tried yet.
        in_force |= {d.field: (d.before, d.after) for d in (late.config if late else ())}
        change = confirmed_config(change, in_force)
        risks += altered.warnings
    if change.of(PARTITIONS):
        resized = await changer.resize(change, expected_revision=change.revision, dry_run=True)
        risks += resized.warnings
    factor = change.of(FACTOR)
    if factor is not None and int(factor.after) >= _min_isr(found):
        accepted = await changer.set_factor([change.topic], int(factor.after), dry_run=True)
        risks += accepted.plan.warnings
    return change, risks


def _min_isr(topic: TopicDetails) -> int:
    """The min ISR that is set now. The controller rejects a factor below it, also in a dry run,
    even if the declared configuration lowers it first."""
    return next((int(e.value) for e in topic.config if e.key == MIN_ISR and e.is_set), 0)
