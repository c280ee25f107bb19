"""Writes the ISR changes that leaders propose.

Many partitions share one guarded transaction, and one transaction is in flight at a time. A change
without an answer stays pending in its partition. It is written again until the key is known to have
changed (rule `unanswered-isr-change-is-pending`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import structlog

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Stage
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.metadata_cache import LiveBroker, MetadataCache
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replication.isr_events import IsrChangeEvent, emit_stage, isr_events
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    decode_leader_and_isr,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    MAX_TRANSACTION_GUARDS,
    CreateRevision,
    Guard,
    KeyValue,
    MetadataStore,
    ModRevision,
    Put,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# The event loop runs after each round of this many partitions.
MAX_EVALUATED_PER_TURN = 256
RETRY_DELAY_S = 0.2

_log = structlog.get_logger()


class _Proposal(NamedTuple):
    partition: Partition
    state: LeaderAndIsr
    revision: int
    guards: tuple[Guard, ...]
    events: tuple[IsrChangeEvent, ...]


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
        self._keys = keys
        self._cache = cache
        self._clock = clock
        self._lag_time_max_ms = lag_time_max_ms
        self._change_ids = change_ids
        self._state_changes = state_changes
        self._dirty: dict[TopicPartition, Partition] = {}
        self._unanswered: list[_Proposal] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """The number of partitions that wait to be evaluated or written."""
        return len(self._dirty) + len(self._unanswered)

    def evaluate_soon(self, partition: Partition) -> None:
        self._dirty[partition.name] = partition
        self._wake.set()

    def evaluate_all(self, source: PartitionSource) -> list[Partition]:
        """Queues all led partitions except the quiescent ones, which are most.

        Returns those queued.
        """
        now_ms, lag_time_max_ms = self._clock.monotonic_ms(), self._lag_time_max_ms
        active = [
            partition
            for partition in source.led()
            if not partition.is_settled(now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
        ]
        self._dirty.update((partition.name, partition) for partition in active)
        if self._dirty:
            self._wake.set()
        return active

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

    def _still_pending(self) -> list[_Proposal]:
        pending = []
        for proposal in self._unanswered:
            leading, state = proposal.partition.leading, proposal.partition.state
            if leading is not None and leading.proposed is proposal.state:
                pending.append(proposal)
            elif state is not None and state.change.id == proposal.state.change.id:
                # The answer was lost: the watch has brought what the store accepted.
                self._emit(proposal, Stage.COMPLETED, revision=proposal.partition.revision)
            else:
                self._emit(proposal, Stage.FAILED, cause=Cause.CONFLICT)
        return pending

    def _emit_rejected(self, proposal: _Proposal, found: KeyValue | None) -> None:
        """Emits the end of a proposal whose transaction failed.

        An earlier attempt may have been applied, and its answer lost.
        """
        change = decode_leader_and_isr(found.value).change if found is not None else NO_CHANGE
        if found is not None and change.id == proposal.state.change.id:
            self._emit(proposal, Stage.COMPLETED, revision=found.mod_revision)
        else:
            self._emit(proposal, Stage.FAILED, cause=Cause.CONFLICT)

    def _emit(
        self,
        proposal: _Proposal,
        stage: Stage,
        *,
        revision: int | None = None,
        cause: Cause | None = None,
    ) -> None:
        emit_stage(self._state_changes, proposal.events, stage, revision=revision, cause=cause)

    def _propose(self) -> list[_Proposal]:
        """Takes the partitions for one transaction from the queue, and lets each propose."""
        proposals: list[_Proposal] = []
        guards: set[Guard] = set()
        running = self._cache.running_brokers()
        now_ms = self._clock.monotonic_ms()
        for name in list(itertools.islice(self._dirty, MAX_EVALUATED_PER_TURN)):
            before = self._dirty[name].state
            room = MAX_TRANSACTION_GUARDS - len(guards)
            if len(proposals) == MAX_TRANSACTION_CHANGES or _most_guards(before) > room:
                break
            partition = self._dirty.pop(name)
            state = partition.propose_isr(
                running,
                now_ms=now_ms,
                lag_time_max_ms=self._lag_time_max_ms,
                origin=self._change_ids.next,
            )
            if state is None or before is None:
                continue
            proposal = _Proposal(
                partition,
                state,
                partition.revision,
                self._guards(partition, state.isr_ids - before.isr_ids),
                isr_events(partition, before, state, now_ms),
            )
            self._emit(proposal, Stage.REQUESTED)
            guards.update(proposal.guards)
            proposals.append(proposal)
        if self._dirty:
            self._wake.set()
        return proposals

    def _guards(self, partition: Partition, joiners: Iterable[int]) -> tuple[Guard, ...]:
        """Returns guards for the partition's version and for its joiners' registrations."""
        version = ModRevision(self._keys.leader_and_isr(partition.name), partition.revision)
        return version, *joiner_guards(self._keys, self._cache.brokers, joiners)

    async def _write(self, proposals: list[_Proposal]) -> None:
        result = await self._store.transact(
            Transaction(
                guards=list(dict.fromkeys(guard for p in proposals for guard in p.guards)),
                changes=[
                    Put(self._keys.leader_and_isr(p.partition.name), encode_leader_and_isr(p.state))
                    for p in proposals
                ],
            )
        )
        if result.succeeded:
            for proposal in proposals:
                proposal.partition.isr_written(proposal.state, result.revision)
                self._emit(proposal, Stage.COMPLETED, revision=result.revision)
            return
        for proposal in proposals:
            self._handle_rejected(proposal, result.current)

    def _handle_rejected(self, proposal: _Proposal, current: Mapping[str, KeyValue | None]) -> None:
        """Handles a failed transaction for one of its partitions.

        Nothing of it was applied, and no earlier attempt can be applied later: that one had the
        same guards or more, and a failed guard can never hold again, because revisions only grow.
        Each partition reads what the store has for it and is evaluated again (KAFKA-2729).
        """
        partition = proposal.partition
        now_ms = self._clock.monotonic_ms()
        found = current.get(self._keys.leader_and_isr(partition.name))
        self._emit_rejected(proposal, found)
        if found is None:
            partition.observed(None, partition.revision + 1, now_ms)
        elif found.mod_revision != proposal.revision:
            state = decode_leader_and_isr(found.value)
            same_topic = state.topic_id == partition.topic_id
            partition.observed(state if same_topic else None, found.mod_revision, now_ms)
        else:
            partition.isr_refused(proposal.state)
            if not all(_holds(guard, current) for guard in proposal.guards):
                # A joiner's registration differs from the cache. Its next fetch, or the timer,
                # causes another evaluation when the watch has caught up.
                _log.debug("joiner_guard_failed", partition=str(partition.name))
                return
        if partition.leading is not None:
            self.evaluate_soon(partition)


def joiner_guards(
    keys: Keys, brokers: Mapping[int, LiveBroker], joiners: Iterable[int]
) -> tuple[Guard, ...]:
    """Returns guards for the registrations of brokers that join an ISR.

    Each joiner must still be registered as it was read while running, in the incarnation in which
    it fetched (KIP-841, KIP-903; rule `stopping-broker-does-not-rejoin`).
    """
    guards: list[Guard] = []
    for broker_id in sorted(joiners):
        live = brokers[broker_id]
        guards.append(CreateRevision(keys.broker(broker_id), live.broker_epoch))
        guards.append(ModRevision(keys.broker(broker_id), live.mod_revision))
    return tuple(guards)


def _most_guards(state: LeaderAndIsr | None) -> int:
    """Returns how many guards are needed at most.

    The partition needs one, and two for each replica outside the ISR, should it join.
    """
    return 1 if state is None else 1 + 2 * (len(state.replicas) - len(state.isr))


def _holds(guard: Guard, current: Mapping[str, KeyValue | None]) -> bool:
    found = current.get(guard.key)
    if found is None:
        return guard.revision == 0
    revision = found.create_revision if isinstance(guard, CreateRevision) else found.mod_revision
    return revision == guard.revision
