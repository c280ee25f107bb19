"""Standard tools without knowledge of Tidelog use health checks, reflection, and the JSON in
etcd."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from integration.topics import create_topic
from tidelog.rpc.channels import open_channel
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.keys import Keys

STANDARD = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
BROKER_SERVICES = {
    "tidelog.v1.BrokerService",
    "tidelog.v1.InspectService",
    "tidelog.v1.ReplicaService",
    "tidelog.v1.ReplicaControlService",
    "tidelog.v1.ScrubService",
}
CONTROLLER_SERVICES = {
    "tidelog.v1.AdminService",
    "tidelog.v1.ControllerService",
    "tidelog.v1.InspectService",
}
TIMEOUT_SECONDS = 10.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(cluster: LocalCluster) -> AsyncIterator[EtcdStore]:
    store = EtcdStore([cluster.etcd_address], clock=SystemClock(), rng=random.Random())
    yield store
    await store.close()


def part_address(cluster: LocalCluster, kind: str) -> str:
    address = cluster.broker_address if kind == "broker" else cluster.controller_address
    return address(1)


@pytest.mark.parametrize("kind", ["broker", "controller"])
async def test_the_health_service_reports_serving(cluster: LocalCluster, kind: str) -> None:
    async with open_channel(part_address(cluster, kind)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("kind", "services"), [("broker", BROKER_SERVICES), ("controller", CONTROLLER_SERVICES)]
)
async def test_reflection_lists_every_service(
    cluster: LocalCluster, kind: str, services: set[str]
) -> None:
    async with open_channel(part_address(cluster, kind)) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(timeout=TIMEOUT_SECONDS)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        await call.done_writing()

    listed = {service.name for service in answer.list_services_response.service}
    assert listed == services | STANDARD


async def test_reflection_describes_the_messages_of_a_service(cluster: LocalCluster) -> None:
    async with open_channel(cluster.broker_address(1)) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(timeout=TIMEOUT_SECONDS)
        await call.write(
            reflection_pb2.ServerReflectionRequest(
                file_containing_symbol="tidelog.v1.BrokerService"
            )
        )
        answer = await call.read()
        await call.done_writing()

    [described] = answer.file_descriptor_response.file_descriptor_proto[:1]
    assert b"ProduceRequest" in described


async def test_an_unknown_method_is_unimplemented(cluster: LocalCluster) -> None:
    async with open_channel(cluster.broker_address(1)) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tidelog.v1.BrokerService/Forget"
        )
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await call(b"", timeout=TIMEOUT_SECONDS)

    assert rejected.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_every_value_in_etcd_is_json_that_a_person_can_read(
    cluster: LocalCluster, store: EtcdStore
) -> None:
    await create_topic(cluster, "sea", 2, config={"retention_ms": "60000"})

    snapshot = await store.snapshot(Keys(cluster.cluster).root)

    assert len(snapshot.items) >= 9
    for key, item in snapshot.items.items():
        text = item.value.decode("ascii")
        assert text.isprintable(), key
        json.loads(text)


async def test_etcd_has_the_leader_and_the_isr_of_a_partition(
    cluster: LocalCluster, store: EtcdStore
) -> None:
    described = await create_topic(cluster, "lake", 1, config={"min_insync_replicas": "2"})
    [partition] = described.partitions
    root = f"/tidelog/{cluster.cluster}/"

    snapshot = await store.snapshot(root)
    values = {
        key.removeprefix(root): json.loads(item.value) for key, item in snapshot.items.items()
    }

    topic = values["brokers/topics/lake"]
    assert re.fullmatch("[0-9a-f]{32}", topic.pop("trace_id"))
    assert re.fullmatch("[0-9a-f]{64}", topic.pop("asked"))
    assert topic.pop("operation_id").startswith("op-")
    assert topic == {
        "topic_id": described.topic_id,
        "partitions": 1,
        "replication_factor": 3,
        "config": {"min_insync_replicas": "2"},
        "shrunk": False,
    }
    state = values["brokers/topics/lake/0/leaderAndISR"]
    assert state["leader"] == partition.leader
    assert state["replicas"] == list(partition.replicas)
    assert state["min_isr"] == 2
    assert state["isr"] == {
        str(b): snapshot.items[f"{root}brokers/ids/{b}"].create_revision for b in partition.isr
    }
    assert values["brokers/ids/1"]["address"] == cluster.broker_address(1)
    assert values["brokers/ids/1"]["state"] == "running"
    assert values["controller"]["controller_id"] == await cluster.active_controller()
