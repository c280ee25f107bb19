"""Which ISR changes a leader proposes, and what follows from the store's answer.

A change without an answer stays pending in its partition, until the key is known to have changed
(rule `unanswered-isr-change-is-pending`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tidelog.model import NO_OFFSET, TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change, Detail, Kind
from tidelog_broker.core.live_brokers import LiveBroker
from tidelog_broker.core.partition.partition import Partition
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
    ModRevision,
    Put,
    Transaction,
)

# The event loop runs after each round of this many partitions.
MAX_EVALUATED_PER_TURN = 256


class IsrChangeEvent(NamedTuple):
    """A shrink or an expansion of an ISR. Both may belong to one proposal, with one change id.

    - `state`: the proposed one.
    - `revision`: that of the value which the proposal replaces.
    """

    kind: Kind
    name: TopicPartition
    state: LeaderAndIsr
    revision: int
    details: Mapping[str, Detail]


def isr_events(
    partition: Partition, before: LeaderAndIsr, proposed: LeaderAndIsr, now_ms: int
) -> tuple[IsrChangeEvent, ...]:
    """Returns the events of a proposal, with the values by which the leader decided.

    To be called at the moment of the decision.
    """
    leaving = sorted(before.isr_ids - proposed.isr_ids)
    joining = sorted(proposed.isr_ids - before.isr_ids)
    return tuple(
        IsrChangeEvent(
            kind,
            partition.name,
            proposed,
            partition.revision,
            _details(partition, brokers, proposed, now_ms),
        )
        for kind, brokers in ((Kind.ISR_SHRINK, leaving), (Kind.ISR_EXPAND, joining))
        if brokers
    )


def _details(
    partition: Partition, brokers: list[int], proposed: LeaderAndIsr, now_ms: int
) -> dict[str, Detail]:
    """Returns the details of one event.

    `behind_ms`: the time since each broker was caught up, or since the epoch began.
    """
    assert partition.leading is not None
    progress = {broker: partition.leading.followers.get(broker) for broker in brokers}
    return {
        "brokers": brokers,
        "end_offsets": [p.log_end_offset if p else NO_OFFSET for p in progress.values()],
        "behind_ms": [now_ms - p.last_caught_up_ms if p else 0 for p in progress.values()],
        "leader_end_offset": partition.counted_end,
        "high_watermark": partition.high_watermark,
        "isr": sorted(proposed.isr_ids),
        "min_isr": proposed.min_isr,
    }


class IsrProposal(NamedTuple):
    """A proposed value, and the revision of the one that it replaces."""

    partition: Partition
    state: LeaderAndIsr
    revision: int
    guards: tuple[Guard, ...]
    events: tuple[IsrChangeEvent, ...]


class Outcome(Enum):
    PENDING = "the store may still accept it, or has accepted it"
    WRITTEN = "the store has accepted it"
    CONFLICT = "the key has changed, and does not have it"
    JOINER_CHANGED = "the registration of a joiner is not the one that was read"


class IsrProposals:
    """Partitions whose ISR is to be evaluated, and the proposals that follow."""

    def __init__(
        self, keys: Keys, lag_time_max_ms: int, new_change: Callable[[Cause], Change]
    ) -> None:
        self._keys = keys
        self._lag_time_max_ms = lag_time_max_ms
        self._new_change = new_change
        self._queued: dict[TopicPartition, Partition] = {}

    def __len__(self) -> int:
        """The number of partitions that wait to be evaluated."""
        return len(self._queued)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._queued

    def queue(self, partition: Partition) -> None:
        self._queued[partition.name] = partition

    def queue_active(self, led: Iterable[Partition], now_ms: int) -> list[Partition]:
        """Queues and returns all partitions except the quiescent ones, which are most."""
        lag_time_max_ms = self._lag_time_max_ms
        active = [
            partition
            for partition in led
            if not partition.is_quiescent(now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
        ]
        self._queued.update((partition.name, partition) for partition in active)
        return active

    def propose(
        self, brokers: Mapping[int, LiveBroker], running: Mapping[int, int], now_ms: int
    ) -> list[IsrProposal]:
        """Takes the partitions for one transaction from the queue, and lets each propose.

        `running`: the broker epochs of those `brokers` that are registered as running.
        """
        proposals: list[IsrProposal] = []
        guards: set[Guard] = set()
        for name in list(itertools.islice(self._queued, MAX_EVALUATED_PER_TURN)):
            before = self._queued[name].state
            room = MAX_TRANSACTION_GUARDS - len(guards)
            if len(proposals) == MAX_TRANSACTION_CHANGES or _most_guards(before) > room:
                break
            partition = self._queued.pop(name)
            state = partition.propose_isr(
                running,
                now_ms=now_ms,
                lag_time_max_ms=self._lag_time_max_ms,
                origin=self._new_change,
            )
            if state is None or before is None:
                continue
            proposal = IsrProposal(
                partition,
                state,
                partition.revision,
                self.guards(partition, brokers, state.isr_ids - before.isr_ids),
                isr_events(partition, before, state, now_ms),
            )
            guards.update(proposal.guards)
            proposals.append(proposal)
        return proposals

    def guards(
        self, partition: Partition, brokers: Mapping[int, LiveBroker], joiners: Iterable[int]
    ) -> tuple[Guard, ...]:
        """Returns guards for the partition's version and for its joiners' registrations."""
        version = ModRevision(self._keys.leader_and_isr(partition.name), partition.revision)
        return version, *joiner_guards(self._keys, brokers, joiners)

    def transaction(self, proposals: Sequence[IsrProposal]) -> Transaction:
        return Transaction(
            guards=list(dict.fromkeys(guard for p in proposals for guard in p.guards)),
            changes=[
                Put(self._keys.leader_and_isr(p.partition.name), encode_leader_and_isr(p.state))
                for p in proposals
            ],
        )

    def apply_failure(
        self, proposal: IsrProposal, current: Mapping[str, KeyValue | None], now_ms: int
    ) -> tuple[Outcome, int | None]:
        """Applies a failed transaction to one of its partitions. `current`: what the store has.

        Nothing of it was applied, and no earlier attempt can be applied later: that one had the
        same guards or more, and a failed guard can never hold again, because revisions only grow.
        Each partition reads what the store has for it and is queued again (KAFKA-2729).

        Returns WRITTEN and its revision if an earlier attempt was applied whose answer was lost;
        else CONFLICT or JOINER_CHANGED.
        """
        partition = proposal.partition
        found = current.get(self._keys.leader_and_isr(partition.name))
        state = decode_leader_and_isr(found.value) if found is not None else None
        outcome, revision = Outcome.CONFLICT, None
        change = state.change if state is not None else NO_CHANGE
        if found is not None and change.id == proposal.state.change.id:
            outcome, revision = Outcome.WRITTEN, found.mod_revision
        if found is None:
            partition.observed(None, partition.revision + 1, now_ms)
        elif found.mod_revision != proposal.revision:
            same_topic = state is not None and state.topic_id == partition.topic_id
            partition.observed(state if same_topic else None, found.mod_revision, now_ms)
        else:
            partition.isr_rejected(proposal.state)
            # If a joiner's registration differs from what the broker has read, its next fetch, or
            # the timer, causes another evaluation when the watch has caught up.
            if not all(_holds(guard, current) for guard in proposal.guards):
                return Outcome.JOINER_CHANGED, None
        if partition.leading is not None:
            self.queue(partition)
        return outcome, revision


def unanswered_outcome(proposal: IsrProposal) -> Outcome:
    """Returns what the partition's watch has learned about a proposal without an answer."""
    leading, state = proposal.partition.leading, proposal.partition.state
    if leading is not None and leading.proposed is proposal.state:
        return Outcome.PENDING
    if state is not None and state.change.id == proposal.state.change.id:
        return Outcome.WRITTEN
    return Outcome.CONFLICT


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
