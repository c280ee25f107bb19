"""Changes of a topic's configuration under its replicas."""

from __future__ import annotations

from dataclasses import replace

from tidelog.model import TopicPartition
from tidelog_broker.log.log import Log
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.topic_configs import TopicConfigs
from tidelog_runtime.metadata.schema import TopicEntry, encode
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.replica_control import LeaderAndIsrCommand
from unit.broker.broker_parts import KEY, KEYS, Replicas, command
from unit.broker.fake_log import NAME, TOPIC_ID, state


def watch(replicas: Replicas, revision: int, topic_id: str = TOPIC_ID, **config: str) -> None:
    """The watch delivers the topic's key as of this revision."""
    key = KEYS.topic(NAME.topic)
    value = encode(TopicEntry(topic_id, 1, 3, config))
    replicas.cache.apply([Changed(key, KeyValue(key, value, 5, revision), revision)])
    replicas.manager.configured([NAME.topic])


def command_at(revision: int, config_revision: int, **config: str) -> LeaderAndIsrCommand:
    wanted = command(state(), revision, config=config)
    partitions = [p._replace(config_revision=config_revision) for p in wanted.partitions]
    return replace(wanted, partitions=partitions)


def log_of(replicas: Replicas) -> Log:
    log = replicas.logs.log_of(KEY)
    assert log is not None
    return log


async def test_a_configuration_from_the_watch_takes_effect_without_a_command() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    watch(replicas, 12, segment_ms="6000", max_batch_bytes="2048")
    assert log_of(replicas).config.segment_ms == 6_000
    partition = replicas.manager.partition(NAME)
    assert replicas.manager.batch_limits(partition).max_bytes == 2_048


async def test_a_command_with_an_older_configuration_than_the_watch_has_no_effect() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    watch(replicas, 12, segment_ms="6000")
    await replicas.commands.leader_and_isr(command_at(14, 7, segment_ms="5000"))
    assert log_of(replicas).config.segment_ms == 6_000


async def test_a_replica_starts_with_the_configuration_that_the_watch_delivered_before() -> None:
    replicas = Replicas()
    watch(replicas, 12, segment_ms="6000")
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    assert log_of(replicas).config.segment_ms == 6_000


async def test_a_command_may_be_ahead_of_the_watch() -> None:
    replicas = Replicas()
    watch(replicas, 7, segment_ms="5000")
    await replicas.commands.leader_and_isr(command_at(14, 12, segment_ms="6000"))
    watch(replicas, 9, segment_ms="5500")
    assert log_of(replicas).config.segment_ms == 6_000


async def test_the_configuration_of_another_topic_of_the_name_is_ignored() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    watch(replicas, 12, "other-id-other-id-othe", segment_ms="6000")
    assert log_of(replicas).config.segment_ms == 5_000


async def test_an_invalid_configuration_keeps_the_previous_one() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    watch(replicas, 12, segment_ms="soon")
    assert log_of(replicas).config.segment_ms == 5_000


async def test_a_replica_out_of_service_takes_it_with_its_next_command() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, segment_ms="5000"))
    replicas.manager.suspend(KEY)
    watch(replicas, 12, segment_ms="6000")
    assert log_of(replicas).config.segment_ms == 5_000
    partition = replicas.manager.find(KEY)
    assert partition is not None
    partition.resume(log_of(replicas))
    await replicas.commands.leader_and_isr(command_at(14, 7, segment_ms="5000"))
    assert log_of(replicas).config.segment_ms == 6_000


async def test_a_topic_that_stops_being_synced_does_so_at_its_leader() -> None:
    replicas = Replicas()
    await replicas.commands.leader_and_isr(command_at(10, 7, durability="synced"))
    partition = replicas.manager.partition(TopicPartition(*NAME))
    assert partition.synced
    watch(replicas, 12)
    assert not partition.synced
    assert replicas.followers.updated[-1] is partition


def test_changes_of_one_topic_do_not_touch_replicas_of_others() -> None:
    cache = MetadataCache(KEYS)
    configs = TopicConfigs(cache)
    for topic in ("sea", "river"):
        for number in range(2):
            configs.take(TopicPartition(topic, number), TOPIC_ID, {}, 7)
    key = KEYS.topic("sea")
    value = encode(TopicEntry(TOPIC_ID, 2, 3, {"segment_ms": "6000"}))
    cache.apply([Changed(key, KeyValue(key, value, 5, 12), 12)])
    asked_about: list[TopicPartition] = []

    def takes(name: TopicPartition) -> bool:
        asked_about.append(name)
        return name.partition == 1

    changed = [(name, config.segment_ms) for name, config in configs.seen(["sea"], takes)]
    assert changed == [(TopicPartition("sea", 1), 6_000)]
    assert asked_about == [TopicPartition("sea", 0), TopicPartition("sea", 1)]
    assert list(configs.seen([], takes)) == []
    assert len(asked_about) == 2


async def test_replicas_of_one_topic_share_their_configuration() -> None:
    replicas = Replicas()
    await replicas.take(numbers=range(3), config={"segment_ms": "5000"})
    configs = [log.config for log in replicas.logs.logs()]
    assert [config.segment_ms for config in configs] == [5_000] * 3
    assert len({id(config) for config in configs}) == 1
