from structlog.testing import capture_logs

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.metadata.keys import BrokerKey, PartitionKey
from tidelog_runtime.metadata.schema import (
    STOPPING,
    ClusterEntry,
    ControllerEntry,
    ControllerProcess,
    Departure,
    Throttle,
    encode,
    encode_departure,
    encode_throttle,
)
from tidelog_runtime.metadata.store import Changed, KeyValue, Snapshot
from unit.broker.broker_parts import (
    KEYS,
    broker_change,
    holder_change,
    on,
    partition_change,
    topic_change,
)
from unit.broker.fake_log import NAME, epoch_of, state


def cache_of(*changes: Changed) -> MetadataCache:
    cache = MetadataCache(KEYS)
    cache.apply(changes)
    return cache


def written(key: str, value: bytes, revision: int = 5) -> Changed:
    return Changed(key, KeyValue(key, value, revision, revision), revision)


def test_an_update_returns_the_changes_and_keeps_the_revision() -> None:
    cache = MetadataCache(KEYS)
    changed = cache.apply([broker_change(2), partition_change(state(), 120)])
    assert changed == [BrokerKey(2), PartitionKey(NAME)]
    assert cache.revision == 120


def test_keys_that_this_version_does_not_know_are_left_alone() -> None:
    assert MetadataCache(KEYS).apply([written(KEYS.root + "of/a/later/version", b"{}")]) == []


def test_a_snapshot_replaces_everything() -> None:
    cache = cache_of(broker_change(2), partition_change(state(), 120), topic_change())
    item = broker_change(3).value
    assert item is not None
    assert cache.load(Snapshot(KEYS.root, 130, {item.key: item})) == [BrokerKey(3)]
    assert (set(cache.brokers), cache.topics, cache.partitions) == ({3}, {}, {})
    assert cache.revision == 130


def test_the_newest_epoch_of_each_named_producer_is_known() -> None:
    cache = cache_of(holder_change(71, 0), holder_change(72, 4), holder_change(71, 1, 10))
    assert cache.producer_epochs == {71: 1, 72: 4}


def test_an_expired_name_is_removed_with_its_id() -> None:
    cache = cache_of(holder_change(71, 0), holder_change(72, 4))
    cache.apply([Changed(KEYS.producer("name-of-71"), None, 12)])
    assert (set(cache.producer_names), cache.producer_epochs) == ({"name-of-72"}, {72: 4})


def test_deleted_keys_are_removed() -> None:
    cache = cache_of(broker_change(2), partition_change(state(), 120), topic_change())
    cache.apply(
        Changed(key, None, 130)
        for key in (KEYS.broker(2), KEYS.leader_and_isr(NAME), KEYS.topic(NAME.topic))
    )
    assert (cache.brokers, cache.topics, cache.partitions) == ({}, {}, {})


def test_the_controller_and_the_cluster_are_known() -> None:
    cache = cache_of(
        written(KEYS.controller, encode(ControllerEntry(2, "10.0.0.9:7400"))),
        written(KEYS.controller_epoch, b"7"),
        written(KEYS.cluster, encode(ClusterEntry("the-cluster"))),
    )
    assert cache.controller == ControllerEntry(2, "10.0.0.9:7400")
    assert (cache.controller_epoch, cache.cluster_id) == (7, "the-cluster")
    cache.apply([Changed(KEYS.controller, None, 9)])
    assert cache.controller is None


def test_the_throttle_of_moves_is_as_written_last() -> None:
    cache = cache_of()
    assert cache.throttle == Throttle(None)
    cache.apply([written(KEYS.throttle, encode_throttle(Throttle(4_096)))])
    assert cache.throttle == Throttle(4_096)
    cache.apply([written(KEYS.throttle, b'{"bytes_per_second": -1}', 6)])
    assert cache.throttle == Throttle(4_096)
    cache.apply([Changed(KEYS.throttle, None, 7)])
    assert cache.throttle == Throttle(None)


def test_all_live_controllers_are_known_active_or_not() -> None:
    one, two = ControllerProcess("h:1", 5), ControllerProcess("h:2", 6)
    cache = cache_of(
        written(KEYS.controller_process(1), encode(one)),
        written(KEYS.controller_process(2), encode(two)),
    )
    assert (cache.controllers, cache.controller) == ({1: one, 2: two}, None)
    cache.apply([Changed(KEYS.controller_process(1), None, 9)])
    assert cache.controllers == {2: two}


def test_departures_and_replica_holders_are_known() -> None:
    left = Departure(7, Cause.BROKER_CRASHED, 5, "h:3")
    cache = cache_of(
        written(KEYS.departure(3), encode_departure(left)),
        topic_change(),
        partition_change(state(leader=2, isr=(2, 1)), 120),
    )
    assert cache.departures == {3: left}
    assert (cache.holds_replicas(2), cache.holds_replicas(9)) == (True, False)
    cache.apply([Changed(KEYS.departure(3), None, 130)])
    assert cache.departures == {}


def test_a_hint_has_the_leaders_registered_address() -> None:
    cache = cache_of(broker_change(2), partition_change(state(leader=2), 120))
    assert cache.leader_hint(NAME) == (2, 5, "10.0.0.2:7500")


def test_there_is_no_hint_without_a_leader_or_without_its_broker() -> None:
    cache = cache_of(partition_change(state(leader=2), 120))
    assert cache.leader_hint(NAME) is None
    cache.apply([broker_change(2), partition_change(state(leader=NO_LEADER), 121)])
    assert cache.leader_hint(NAME) is None
    assert cache.leader_hint(on(7)) is None


def test_a_stopping_broker_is_live_and_not_running() -> None:
    cache = cache_of(broker_change(2), broker_change(3, 150, state=STOPPING))
    assert set(cache.brokers) == {2, 3}
    assert cache.running_brokers() == {2: epoch_of(2)}
    assert (cache.brokers[3].broker_epoch, cache.brokers[3].mod_revision) == (epoch_of(3), 150)


def test_a_malformed_value_keeps_the_previous_state_and_is_logged() -> None:
    cache = cache_of(broker_change(2))
    with capture_logs() as lines:
        changed = cache.apply(
            [
                written(KEYS.broker(2), b"not JSON", 130),
                written(KEYS.brokers + "two", b"{}", 131),
                broker_change(3, 132),
            ]
        )
    assert changed == [BrokerKey(3)]
    assert set(cache.brokers) == {2, 3}
    assert cache.revision == 132
    assert [line["key"] for line in lines] == [KEYS.broker(2), KEYS.brokers + "two"]
