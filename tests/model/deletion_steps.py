"""The deletion of a topic by the controller's own `next_write`."""

from __future__ import annotations

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog_controller.core.reconcile import next_write
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    STOPPING,
    BrokerRegistration,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.metadata.topic_intents import TopicDeletion, encode_intent

from .values import (
    BROKERS,
    SECOND_TOPIC,
    UNLED,
    Registered,
    Store,
    Value,
    from_production,
    is_stopped,
    to_production,
    topic_id,
)

KEYS = Keys("model")
PARTITION = TopicPartition("model", 0)

# Revisions of the keys, in the order in which these were written.
TOPIC_AT, BROKERS_AT, LED_AT, DELETION_AT, STOPPED_AT = 1, 10, 30, 40, 50


def deletion_step(store: Store) -> Value | None:
    """Returns what is written next; None: brokers have yet to acknowledge."""
    live = [b for b, r in zip(BROKERS, store.registered, strict=True) if r is not None]
    acknowledged = all(broker in store.acknowledged for broker in live)
    write = next_write(_context(store), PARTITION, lambda _: acknowledged, 0, {}, ())
    if write is None:
        return None
    if write.new is None:
        return UNLED._replace(topic=SECOND_TOPIC)
    return from_production(write.new)


def _context(store: Store) -> Context:
    context = Context(KEYS)
    stored = topic_id(store.value.topic)
    at = STOPPED_AT if is_stopped(store.value) else LED_AT
    entry = TopicEntry(stored, 1, len(BROKERS))
    _absorb(context, KEYS.topic("model"), encode(entry), TOPIC_AT)
    for broker, registered in zip(BROKERS, store.registered, strict=True):
        if registered is not None:
            _absorb(context, KEYS.broker(broker), _registration(registered), BROKERS_AT + broker)
    if store.value.epoch != NO_EPOCH:
        state = encode_leader_and_isr(to_production(store.value))
        _absorb(context, KEYS.leader_and_isr(PARTITION), state, at)
    deletion = encode_intent(TopicDeletion(stored))
    _absorb(context, KEYS.topic_deletion("model"), deletion, DELETION_AT)
    return context


def _absorb(context: Context, key: str, value: bytes, revision: int) -> None:
    context.absorb(Changed(key, KeyValue(key, value, revision, revision), revision))


def _registration(registered: Registered) -> bytes:
    state = RUNNING if registered.running else STOPPING
    return encode(BrokerRegistration("host", "", "uuid", state, 0, 0))
