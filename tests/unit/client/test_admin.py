import random
from typing import Any

import pytest

from tidelog.client import Admin
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import FakeCluster
from unit.client.fake_controller import FakeController
from unit.client.memory_connections import MemoryConnections
from unit.metadata.virtual_time import run, virtual_clock


async def controlled(cluster: FakeCluster, epoch: int = 1) -> FakeController:
    cluster.controller = await FakeController(cluster, epoch, epoch).start()  # type: ignore[abstract]
    return cluster.controller


async def test_topics_are_created_described_and_deleted(cluster: FakeCluster) -> None:
    await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        created = await admin.create_topic("bay", 2, 1, {"retention_ms": "1000"})
        assert created.topic_id == "id-of-bay"
        described = await admin.describe_topic("bay")
        assert (len(described.partitions), described.config) == (2, {"retention_ms": "1000"})
        assert [topic.name for topic in await admin.list_topics()] == ["bay", "sea"]
        assert await admin.delete_topic("bay") == ()
        with pytest.raises(TidelogError, match="does not exist"):
            await admin.describe_topic("bay")


async def test_topics_that_are_only_described_are_not_kept_in_the_metadata(
    cluster: FakeCluster,
) -> None:
    await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        await admin.list_topics()
        metadata = admin._metadata
        assert metadata.cached_topic("sea") is None
        assert (await metadata.topic("sea")).partitions
        # A topic in use is updated by a description, too.
        cluster.resize("sea", [0, 1, 0])
        await admin.describe_topic("sea")
        known = metadata.cached_topic("sea")
        assert known is not None
        assert known.partitions == 3


@pytest.mark.parametrize(("factor", "warnings"), [(1, 1), (2, 0)])
async def test_an_unprotected_topic_is_created_with_a_warning(
    cluster: FakeCluster, factor: int, warnings: int
) -> None:
    await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        created = await admin.create_topic("bay", 1, factor)
    assert len(created.warnings) == warnings
    assert all("set-replication-factor bay -r 3" in warning for warning in created.warnings)


async def test_the_cluster_is_described(cluster: FakeCluster) -> None:
    controller = await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        described = await admin.describe_cluster()
    assert described.controller is not None
    assert described.controller.address == controller.address
    assert [broker.broker_id for broker in described.brokers] == [0, 1, 2]


async def test_standby_controllers_are_described_apart_from_the_active_one(
    cluster: FakeCluster,
) -> None:
    controller = await controlled(cluster)
    other = broker_pb2.ControllerProcess(controller_id=8, address="h:8", started_at_ms=5)

    def metadata() -> broker_pb2.MetadataResponse:
        answer = cluster.brokers[0].metadata(broker_pb2.MetadataRequest(cluster_only=True))
        active = answer.controller
        answer.controllers.add(controller_id=active.controller_id, address=active.address)
        answer.controllers.append(other)
        return answer

    for broker in cluster.brokers.values():
        broker.metadata_of = metadata
    async with Admin(cluster.bootstrap()) as admin:
        described = await admin.describe_cluster()
    assert [c.address for c in described.controllers] == [controller.address, "h:8"]
    assert [(c.controller_id, c.started_at_ms) for c in described.standby] == [(8, 5)]


async def test_the_controller_is_followed_on_failover(cluster: FakeCluster) -> None:
    first = await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        await admin.create_topic("bay")
        await first.close()
        second = await controlled(cluster, epoch=2)
        await admin.create_topic("cove")
        assert second.calls == 1


async def test_another_controller_is_tried_when_one_is_not_active(
    cluster: FakeCluster,
) -> None:
    controller = await controlled(cluster)
    controller.script.append(TidelogError(ErrorCode.NOT_CONTROLLER, "ask another"))
    async with Admin(cluster.bootstrap()) as admin:
        await admin.create_topic("bay")
    assert controller.calls == 2


async def test_all_attempts_of_a_request_belong_to_one_trace(cluster: FakeCluster) -> None:
    controller = await controlled(cluster)
    controller.script.append(TidelogError(ErrorCode.NOT_CONTROLLER, "ask another"))
    async with Admin(cluster.bootstrap()) as admin:
        first = await admin.create_topic("bay")
        second = await admin.create_topic("cove")
    assert controller.trace_ids == [first.trace_id, first.trace_id, second.trace_id]
    assert len(first.trace_id) == 32
    assert first.trace_id != second.trace_id


async def test_a_rejection_is_reported_at_once(cluster: FakeCluster) -> None:
    controller = await controlled(cluster)
    async with Admin(cluster.bootstrap()) as admin:
        with pytest.raises(TidelogError) as caught:
            await admin.create_topic("sea")
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(TidelogError, match="topic 'nowhere' does not exist"):
            await admin.delete_topic("nowhere")
    assert controller.calls == 2


async def test_a_repeated_request_succeeds_if_its_answer_was_lost(cluster: FakeCluster) -> None:
    controller = await controlled(cluster)
    controller.script.extend(["die", "die"])
    async with Admin(cluster.bootstrap()) as admin:
        created = await admin.create_topic("bay", replication_factor=1)
        assert created.topic_id == "id-of-bay"
        assert await admin.delete_topic("bay") == ()


@pytest.mark.parametrize(("dead", "factor"), [(0, 3), (1, 2), (2, 1)])
async def test_the_default_replication_factor_is_three_or_the_number_of_brokers(
    cluster: FakeCluster, dead: int, factor: int
) -> None:
    await controlled(cluster)
    for broker_id in range(1, 1 + dead):
        cluster.brokers[broker_id].alive = False
    async with Admin(cluster.bootstrap()) as admin:
        assert await admin.default_replication_factor("bay") == factor


async def test_without_a_controller_a_request_ends_in_time(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap()) as admin:
        with pytest.raises(TidelogError, match="no active controller is known") as end:
            await admin.create_topic("bay", 1, 1, timeout_ms=500)
    # No request was sent.
    assert not end.value.outcome_unknown


def test_a_change_sent_before_all_brokers_died_has_an_unknown_outcome() -> None:
    cluster = FakeCluster().in_memory(1)
    cluster.controller = FakeController(cluster, 1)  # type: ignore[abstract]
    cluster.controller.address = "controller:1"

    class Connections(MemoryConnections):
        def controller(self, address: str) -> Any:
            cluster.brokers[0].alive = False
            raise UnreachableError(address, "it died")

    async def main() -> None:
        async with Admin(
            cluster.bootstrap(),
            connections=Connections(cluster),
            clock=virtual_clock(),
            rng=random.Random(1),
        ) as admin:
            with pytest.raises(TidelogError, match="controller:1: it died") as raised:
                await admin.create_topic("bay", replication_factor=1)
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert raised.value.outcome_unknown

    run(main())


async def test_partitions_are_recovered_one_by_one(cluster: FakeCluster) -> None:
    await controlled(cluster)
    cluster.topics["sea"].partitions[0].leader = -1
    async with Admin(cluster.bootstrap()) as admin:
        (recovered,) = await admin.recover_partitions("sea", [0], from_live_replicas=True)
        assert (recovered.partition, recovered.error) == (0, None)
        with pytest.raises(TidelogError, match="topic 'bay' does not exist"):
            await admin.recover_partitions("bay")


async def test_a_recovery_that_times_out_returns_an_answer(cluster: FakeCluster) -> None:
    controller = await controlled(cluster)
    controller.script.append(TidelogError(ErrorCode.REQUEST_TIMED_OUT, "waits for [3]"))
    async with Admin(cluster.bootstrap()) as admin:
        (waiting,) = await admin.recover_partitions("sea", [0])
    assert waiting.error is not None
    assert waiting.error.code is ErrorCode.REQUEST_TIMED_OUT
    assert controller.calls == 1
