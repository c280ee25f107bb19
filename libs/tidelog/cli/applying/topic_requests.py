"""The requests by which topics become as declared. All of them can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelog.cli.applying.declarations import DeclaredTopic
from tidelog.cli.applying.topic_diff import MIN_ISR, TopicChange
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.admin_messages import (
        AcceptedOperation,
        AlteredConfig,
        CreatedTopic,
        ResizedTopic,
        TopicDetails,
    )
    from tidelog.client import Admin


@dataclass(frozen=True, slots=True)
class TopicChanger:
    """Sends one kind of request for one topic. An error names the topic."""

    admin: Admin
    timeout_ms: int

    async def create(self, change: TopicChange, *, dry_run: bool = False) -> CreatedTopic:
        topic = _declared(change)
        with _about(change.topic):
            return await self.admin.create_topic(
                topic.name,
                topic.partitions,
                topic.replication_factor,
                topic.config,
                self.timeout_ms,
                dry_run=dry_run,
            )

    async def alter(
        self, change: TopicChange, *, expected_revision: int = 0, dry_run: bool = False
    ) -> AlteredConfig:
        config = _declared(change).config or {}
        with _about(change.topic):
            return await self.admin.alter_topic_config(
                change.topic,
                {found.field: config[found.field] for found in change.config if found.is_set},
                [found.field for found in change.config if not found.is_set],
                self.timeout_ms,
                topic_id=change.topic_id,
                expected_revision=expected_revision,
                dry_run=dry_run,
            )

    async def resize(
        self, change: TopicChange, *, expected_revision: int = 0, dry_run: bool = False
    ) -> ResizedTopic:
        count = _declared(change).partitions
        assert count is not None
        with _about(change.topic):
            if change.shrinks:
                return await self.admin.remove_partitions(
                    change.topic,
                    count,
                    self.timeout_ms,
                    confirm_topic=change.topic,
                    topic_id=change.topic_id,
                    expected_revision=expected_revision,
                    dry_run=dry_run,
                )
            return await self.admin.add_partitions(
                change.topic,
                count,
                self.timeout_ms,
                topic_id=change.topic_id,
                expected_revision=expected_revision,
                dry_run=dry_run,
            )

    async def set_factor(
        self, topics: Sequence[str], factor: int, *, dry_run: bool = False
    ) -> AcceptedOperation:
        with _about(", ".join(topics)):
            return await self.admin.set_replication_factor(topics, factor, dry_run=dry_run)

    async def plan_deletion(self, change: TopicChange) -> ResizedTopic:
        with _about(change.topic):
            return await self.admin.plan_deletion(change.topic, expected_revision=change.revision)

    async def delete(self, change: TopicChange) -> tuple[int, ...]:
        """Returns the brokers that have not deleted their replicas in time."""
        with _about(change.topic):
            return await self.admin.delete_topic(
                change.topic,
                self.timeout_ms,
                topic_id=change.topic_id,
                expected_revision=change.revision,
            )


def fewest_replicas(topic: TopicDetails) -> int:
    """Returns how many replicas every partition has. A topic gets its replication factor when an
    operation begins, and its partitions get their replicas one after another."""
    counts = (len(p.move.original if p.move else p.replicas) for p in topic.partitions)
    return min([topic.replication_factor, *filter(None, counts)])


def config_steps(
    change: TopicChange, factor_now: int
) -> tuple[TopicChange | None, TopicChange | None]:
    """Returns the configuration to change before the replication factor, and after it.

    A min ISR above the present factor has to wait for the new replicas. Everything else comes
    first, such as a lower min ISR without which a lower factor would be rejected.
    """
    late = [d for d in change.config if d.field == MIN_ISR and _exceeds(d.after, factor_now)]
    early = [d for d in change.config if d not in late]
    return (
        replace(change, differences=tuple(early)) if early else None,
        replace(change, differences=tuple(late)) if late else None,
    )


def _exceeds(min_isr: str, factor: int) -> bool:
    return min_isr.isdecimal() and int(min_isr) > factor


def _declared(change: TopicChange) -> DeclaredTopic:
    assert change.declared is not None, "a deletion has nothing declared"
    return change.declared


@contextmanager
def _about(topics: str) -> Iterator[None]:
    """Names the topic in errors, which not every message of the controller does."""
    try:
        yield
    except TidelogError as error:
        if topics in error.message:
            raise
        raise TidelogError(
            error.code, f"topic {topics}: {error.message}", outcome_unknown=error.outcome_unknown
        ) from error
