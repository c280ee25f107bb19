"""Writes the ISR changes that leaders propose.

Many partitions share one guarded transaction, and one transaction is in flight at a time. A change
without an answer is written again until the key is known to have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from tidelog.state_changes.event import Cause, Stage
from tidelog_broker.core.isr_proposals import (
    IsrProposal,
    IsrProposals,
    Outcome,
    unanswered_outcome,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import (
    MetadataStore,
    StoreRolledBackError,
    StoreUnavailableError,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

RETRY_DELAY_S = 0.2

_log = structlog.get_logger()


class PartitionSource(Protocol):
    def led(self) -> Iterable[Partition]:
        """Returns every partition that this broker leads."""


class IsrUpdates:
    """Changes of ISRs: `evaluate_soon` and `evaluate_all` queue partitions, `run` writes."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        cache: MetadataCache,
        clock: Clock,
        lag_time_max_ms: int,
        change_ids: ChangeIds,
        state_changes: StateChangeLog,
    ) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self._state_changes = state_changes
        self.proposals = IsrProposals(keys, lag_time_max_ms, change_ids.next)
        self._unanswered: list[IsrProposal] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """The number of partitions that wait to be evaluated or written."""
        return len(self.proposals) + len(self._unanswered)

    def evaluate_soon(self, partition: Partition) -> None:
        self.proposals.queue(partition)
        self._wake.set()

    def evaluate_all(self, source: PartitionSource) -> list[Partition]:
        """Queues all led partitions except the quiescent ones, which are most.

        Returns those queued.
        """
        active = self.proposals.queue_active(source.led(), self._clock.monotonic_ms())
        self._wake_if_queued()
        return active

    def _wake_if_queued(self) -> None:
        if self.proposals:
            self._wake.set()

    async def run(self) -> None:
        said_unavailable = False
        while True:
            # Proposals whose key has changed meanwhile are decided. They would only make the guards
            # of the others fail.
            proposals = self._still_pending()
            self._unanswered = []
            if not proposals:
                await self._wake.wait()
                self._wake.clear()
                proposals = self._propose()
            if not proposals:
                await asyncio.sleep(0)
                continue
            try:
                await self._write(proposals)
            except StoreUnavailableError as error:
                # It is not known whether it was applied; the proposals stay pending.
                if not said_unavailable:
                    said_unavailable = True
                    _log.warning("isr_changes_wait_for_store", why=str(error))
                self._unanswered = proposals
                await asyncio.sleep(RETRY_DELAY_S)
            except StoreRolledBackError as error:
                # Pending proposals stay so: the maximal ISR holds the high watermark.
                _log.critical("isr_changes_ended", why=str(error))
                return
            else:
                said_unavailable = False

    def _still_pending(self) -> list[IsrProposal]:
        pending = []
        for proposal in self._unanswered:
            outcome = unanswered_outcome(proposal)
            if outcome is Outcome.PENDING:
                pending.append(proposal)
            else:
                self._emit_outcome(proposal, outcome, proposal.partition.revision)
        return pending

    def _propose(self) -> list[IsrProposal]:
        proposals = self.proposals.propose(
            self._cache.brokers, self._cache.running_brokers(), self._clock.monotonic_ms()
        )
        for proposal in proposals:
            self._emit(proposal, Stage.REQUESTED)
        self._wake_if_queued()
        return proposals

    async def _write(self, proposals: list[IsrProposal]) -> None:
        result = await self._store.transact(self.proposals.transaction(proposals))
        if result.succeeded:
            for proposal in proposals:
                proposal.partition.isr_written(proposal.state, result.revision)
                self._emit_outcome(proposal, Outcome.WRITTEN, result.revision)
            return
        for proposal in proposals:
            now_ms = self._clock.monotonic_ms()
            outcome, revision = self.proposals.apply_failure(proposal, result.current, now_ms)
            if outcome is Outcome.JOINER_CHANGED:
                _log.debug("joiner_guard_failed", partition=str(proposal.partition.name))
            self._emit_outcome(proposal, outcome, revision)
        self._wake_if_queued()

    def _emit_outcome(self, proposal: IsrProposal, outcome: Outcome, revision: int | None) -> None:
        if outcome is Outcome.WRITTEN:
            self._emit(proposal, Stage.COMPLETED, revision=revision)
        else:
            self._emit(proposal, Stage.FAILED, cause=Cause.CONFLICT)

    def _emit(
        self,
        proposal: IsrProposal,
        stage: Stage,
        *,
        revision: int | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Emits a stage of the proposal's events.

        `revision`: that at which the change was written, or that of the value found instead; None:
        that on which the proposal rests.
        """
        for event in proposal.events:
            self._state_changes.emit(
                event.kind,
                stage,
                change=event.state.change,
                cause=cause,
                name=event.name,
                topic_id=event.state.topic_id,
                controller_epoch=event.state.controller_epoch,
                leader_epoch=event.state.leader_epoch,
                revision=event.revision if revision is None else revision,
                # Emitted once: the other stages have the same id.
                details=event.details if stage is Stage.REQUESTED else None,
            )
