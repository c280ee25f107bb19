"""The decisions of the controller, by its own pure functions."""

from __future__ import annotations

from functools import cache

from tidelog.model import NO_EPOCH
from tidelog_controller.policies import reassignment
from tidelog_controller.policies.electability import ElectionRules, LiveBroker
from tidelog_controller.policies.leader_election import next_state
from tidelog_controller.policies.reassignment import RequestedMove
from tidelog_controller.policies.recovery import needs_descriptions
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.replica_control import ReplicaSummary
from tidelog_runtime.topic_config import TopicConfig

from .deletion_steps import deletion_step
from .model_log import ModelLog
from .values import (
    BROKERS,
    FIRST_INCARNATION,
    OPERATION,
    PRESENT,
    Entries,
    Replica,
    Store,
    Value,
    from_production,
    to_production,
    topic_id,
)


class Controller:
    """Decides, and caches decisions for one exploration, as the world does."""

    def __init__(self, *, synced: bool, unclean: bool) -> None:
        self._rules = ElectionRules(synced=synced, unclean_leader_election=unclean)
        self._live = cache(_live_if_synced if synced else _live)
        self._needed = cache(self._needed_logs)
        self._decide = cache(self._next_state)

    def decide(self, store: Store, replicas: tuple[Replica, ...]) -> Value | None:
        """Returns what the controller, by the registrations that it knows, writes now, or None.

        Once a topic is deleted, the next one of its name follows, which waits for as many
        brokers as it has replicas. Brokers describe their logs at once if they have taken the
        key's present revision in the registered incarnation: only that counts.
        """
        if store.seen is not None:
            store = store._replace(registered=store.seen)
        store = store._replace(seen=None, noticed=None)
        logs: tuple[tuple[int, Entries], ...] = ()
        needed = self._needed(store)
        if needed:
            logs = tuple(
                (b, replicas[b - 1].log) for b in needed if _can_answer(store, replicas[b - 1])
            )
        return self._decide(store._replace(controller_epoch=0), logs)

    def _needed_logs(self, store: Store) -> tuple[int, ...]:
        return needs_descriptions(to_production(store.value), self._live(store), self._rules, None)

    def _next_state(self, store: Store, logs: tuple[tuple[int, Entries], ...]) -> Value | None:
        if store.deleting:
            return deletion_step(store)
        if store.value.epoch == NO_EPOCH and len(self._live(store)) < len(BROKERS):
            return None
        new = next_state(
            to_production(store.value),
            self._live(store),
            0,
            self._rules,
            logs={broker: _summary(store.value.topic, log) for broker, log in logs},
        )
        if new is None:
            new = self._next_move_step(store)
        return None if new is None else from_production(new)

    def _next_move_step(self, store: Store) -> LeaderAndIsr | None:
        requested = store.requested and RequestedMove(OPERATION, *store.requested)
        return reassignment.next_move_step(
            to_production(store.value), self._live(store), 0, requested, TopicConfig().min_isr
        )


def _live(store: Store) -> dict[int, LiveBroker]:
    """Returns the live brokers. Synced data is intact since FIRST_INCARNATION, for none is lost."""
    return {
        b: LiveBroker(r.incarnation, r.running, r.whole, FIRST_INCARNATION)
        for b, r in zip(BROKERS, store.registered, strict=True)
        if r is not None
    }


def _live_if_synced(store: Store) -> dict[int, LiveBroker]:
    """Returns the live brokers for a synced topic; other claims are as after a reboot."""
    return {
        b: LiveBroker(r.incarnation, r.running, r.incarnation, r.whole)
        for b, r in zip(BROKERS, store.registered, strict=True)
        if r is not None
    }


def _can_answer(store: Store, replica: Replica) -> bool:
    registered = store.registered[replica.broker - 1]
    return (
        registered is not None
        and replica.up
        and not replica.damaged
        and replica.incarnation == registered.incarnation
        and replica.revision == PRESENT
    )


def _summary(topic: int, entries: Entries) -> ReplicaSummary:
    log = ModelLog(entries)
    return ReplicaSummary(
        topic_id=topic_id(topic),
        partition=0,
        revision=PRESENT,
        log_start_offset=0,
        log_end_offset=log.log_end_offset,
        epochs=log.leader_epochs,
    )
