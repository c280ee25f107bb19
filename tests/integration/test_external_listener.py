"""Clients of the external listener get external addresses, and need no others.

Brokers and controllers use 127.0.0.1 among each other; clients connect to 127.0.0.2."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.reconfigured import restart_broker, restart_controller
from integration.waiting import until
from tidelog.client import Admin, Consumer, Producer
from tidelog.client.cluster_explainer import Explainer
from tidelog.inspection.state_reports import Scope
from tidelog.rpc.channels import open_channel
from tidelog.v1 import controller_pb2_grpc, replica_control_pb2_grpc, replica_pb2_grpc
from tidelog.v1.controller_pb2 import ReportUnreachableLeadersRequest
from tidelog.v1.replica_control_pb2 import StopReplicaRequest
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.cluster import LocalCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTSIDE = "127.0.0.2"
TIMEOUT_SECONDS = 10.0


def free_port() -> int:
    with socket.create_server((OUTSIDE, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Outside:
    """The external addresses of services, by id."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.brokers = {b: f"{OUTSIDE}:{free_port()}" for b in cluster.broker_ids}
        self.controller = f"{OUTSIDE}:{free_port()}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers.values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Outside]:
    directory = tmp_path_factory.mktemp("external")
    async with running_cluster(directory, controllers=1) as cluster:
        found = Outside(cluster)
        for broker_id, address in found.brokers.items():
            await restart_broker(cluster, broker_id, {"external_listen": address})
        await restart_controller(cluster, 1, {"external_listen": found.controller})
        await cluster.ready()
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(outside: Outside) -> AsyncIterator[Admin]:
    async with Admin(outside.bootstrap) as asking:
        await asking.create_topic("sea", partitions=6, replication_factor=3)
        yield asking


async def test_metadata_has_only_external_addresses(admin: Admin, outside: Outside) -> None:
    cluster = await admin.describe_cluster()
    assert {b.broker_id: b.address for b in cluster.brokers} == outside.brokers
    assert cluster.controller is not None
    assert cluster.controller.address == outside.controller
    assert [c.address for c in cluster.controllers] == [outside.controller]


async def test_internal_clients_get_internal_addresses(outside: Outside) -> None:
    inside = outside.cluster
    async with Admin(inside.bootstrap) as asking:
        brokers = (await asking.describe_cluster()).brokers
    assert {b.broker_id: b.address for b in brokers} == {
        b: inside.broker_address(b) for b in inside.broker_ids
    }


async def test_administrators_get_external_addresses(admin: Admin, outside: Outside) -> None:
    described = await admin.describe_brokers()
    assert {b.broker_id: b.address for b in described} == outside.brokers


async def test_internal_rpcs_are_not_served_to_external_clients(outside: Outside) -> None:
    async with open_channel(outside.brokers[1]) as channel:
        control = replica_control_pb2_grpc.ReplicaControlServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await control.StopReplica(StopReplicaRequest(), timeout=TIMEOUT_SECONDS)
        assert rejected.value.code() is grpc.StatusCode.UNIMPLEMENTED
        replica = replica_pb2_grpc.ReplicaServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await replica.ReplicaFetch(timeout=TIMEOUT_SECONDS).read()
        assert rejected.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with open_channel(outside.controller) as channel:
        reports = controller_pb2_grpc.ControllerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await reports.ReportUnreachableLeaders(
                ReportUnreachableLeadersRequest(), timeout=TIMEOUT_SECONDS
            )
        assert rejected.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.usefixtures("admin")
async def test_an_external_client_follows_leaders_and_explains(outside: Outside) -> None:
    sent = [b"%d" % n for n in range(60)]
    async with Producer(outside.bootstrap) as producer:
        for value in sent[:30]:
            await (await producer.send("sea", value))
        await outside.cluster.kill(1)
        for value in sent[30:]:
            await (await producer.send("sea", value))

    explainer = Explainer(SystemClock())

    async def dead() -> bool:
        explanation = await explainer.explain([outside.brokers[2]], Scope())
        assert {service.rpartition(" ")[2] for service in explanation.asked} <= {
            *outside.brokers.values(),
            outside.controller,
        }
        return any(finding.broker == 1 for finding in explanation.findings)

    await until(dead, "broker 1 is found to be dead from outside")
    outside.cluster.start_broker(1)
    await outside.cluster.ready()

    read: list[bytes] = []
    async with Consumer(outside.bootstrap) as consumer:
        await consumer.assign_topic("sea")

        async def all_read() -> bool:
            read.extend(record.value or b"" for record in await consumer.poll())
            return len(read) >= len(sent)

        await until(all_read, "every record is consumed from outside")
    assert sorted(read) == sorted(sent)
