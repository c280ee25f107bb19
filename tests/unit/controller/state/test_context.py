from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import BrokerChanged, Malformed
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    LeaderAndIsr,
    Member,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue

KEYS = Keys("test")


def broker(created: int, modified: int, *, whole_since: int = 0) -> Changed:
    value = encode(BrokerRegistration("b:1", "", "uuid", "running", whole_since, whole_since))
    key = KEYS.broker(1)
    return Changed(key, KeyValue(key, value, created, modified), modified)


def gone(revision: int) -> Changed:
    return Changed(KEYS.broker(1), None, revision)


def partition(revision: int, replicas: tuple[int, ...] = (1, 2)) -> Changed:
    state = LeaderAndIsr("id", replicas, 1, 1, 0, (Member(1, 5),), (), 1)
    key = KEYS.leader_and_isr(TopicPartition("t", 0))
    return Changed(key, KeyValue(key, encode_leader_and_isr(state), 1, revision), revision)


def test_an_older_revision_of_a_key_is_ignored() -> None:
    context = Context(KEYS)
    context.absorb(broker(5, 7))
    assert context.absorb(broker(5, 5)) is None
    assert context.absorb(broker(5, 7)) is None


def test_a_deleted_key_is_not_revived_by_what_the_watch_delivers_late() -> None:
    context = Context(KEYS)
    context.absorb(broker(5, 5))
    context.absorb(gone(9))
    assert context.absorb(broker(5, 7)) is None
    context.watched_to(9)
    assert context.absorb(broker(5, 7)) is None


def test_a_key_created_again_after_a_deletion_is_absorbed() -> None:
    context = Context(KEYS)
    context.absorb(gone(9))
    absorbed = context.absorb(broker(10, 10))
    assert isinstance(absorbed, BrokerChanged)
    assert context.brokers[1].broker_epoch == 10


def test_a_broker_without_whole_since_is_intact_since_its_own_registration() -> None:
    context = Context(KEYS)
    context.absorb(broker(5, 7))
    assert context.live[1].whole_since == 5


def test_a_broker_may_be_intact_since_a_previous_incarnation() -> None:
    context = Context(KEYS)
    context.absorb(broker(5, 7, whole_since=3))
    assert context.live[1].whole_since == 3


def test_replicas_are_found_by_broker() -> None:
    context = Context(KEYS)
    context.absorb(partition(5))
    context.absorb(partition(6, replicas=(2, 3)))
    found = {b: [p for p, _ in context.replicas_on(b)] for b in (1, 2, 3)}
    here = TopicPartition("t", 0)
    assert found == {1: [], 2: [here], 3: [here]}


def test_a_topic_names_the_partitions_that_have_no_replicas() -> None:
    context = Context(KEYS)
    key = KEYS.topic("t")
    value = encode(TopicEntry("id", 2, 2))
    context.absorb(Changed(key, KeyValue(key, value, 4, 4), 4))
    context.absorb(partition(5))
    assert context.unplaced.of("t") == [1]


def test_a_partition_of_a_previous_topic_counts_as_unplaced() -> None:
    context = Context(KEYS)
    key = KEYS.topic("t")
    value = encode(TopicEntry("another", 1, 2))
    context.absorb(Changed(key, KeyValue(key, value, 4, 4), 4))
    context.absorb(partition(5))
    assert context.unplaced.of("t") == [0]


def test_an_unreadable_value_leaves_the_known_state() -> None:
    context = Context(KEYS)
    context.absorb(broker(5, 7))
    key = KEYS.broker(1)
    absorbed = context.absorb(Changed(key, KeyValue(key, b"{}", 5, 9), 9))
    assert isinstance(absorbed, Malformed)
    assert context.brokers[1].broker_epoch == 5


def test_keys_of_other_kinds_are_ignored() -> None:
    context = Context(KEYS)
    key = KEYS.root + "admin/something_new/x"
    assert context.absorb(Changed(key, KeyValue(key, b"?", 5, 5), 5)) is None


def test_a_snapshot_is_unaffected_by_later_changes_and_copies_only_those() -> None:
    context = Context(KEYS)
    key, t0 = KEYS.leader_and_isr(TopicPartition("u", 0)), TopicPartition("t", 0)
    context.absorb(partition(5))
    held = partition(6).value
    assert held is not None
    context.absorb(Changed(key, held._replace(key=key), 6))
    first = context.snapshot()
    assert first.held_of("u") is context.held_of("u")
    context.absorb(partition(7, (2, 3)))
    second = context.snapshot()
    context.absorb(Changed(KEYS.leader_and_isr(t0), None, 8))
    assert context.partition(t0) is None
    found = [snapshot.partition(t0) for snapshot in (first, second)]
    assert [p.state.replicas for p in found if p] == [(1, 2), (2, 3)]
    assert [[b for b in (1, 2, 3) if list(s.replicas_on(b))] for s in (first, second)] == [
        [1, 2],
        [1, 2, 3],
    ]
    assert first.held_of("u") is second.held_of("u") is context.held_of("u")
    # A topic that was deleted and created again.
    context.absorb(partition(9))
    assert context.partition(t0) is not None


def test_a_snapshot_shares_the_replicas_of_brokers_until_they_change() -> None:
    context = Context(KEYS)
    context.absorb(partition(5, (1, 2)))
    snapshot = context.snapshot()
    # A new state with the same replicas.
    context.absorb(partition(6, (1, 2)))
    assert all(snapshot._by_broker[b] is context._by_broker[b] for b in (1, 2))
    context.absorb(partition(7, (1, 3)))
    assert [[b for b in (1, 2, 3) if list(c.replicas_on(b))] for c in (snapshot, context)] == [
        [1, 2],
        [1, 3],
    ]
    assert snapshot.partition(TopicPartition("t", 0)) != context.partition(TopicPartition("t", 0))
