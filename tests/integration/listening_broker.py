"""A broker that only records the commands of the controller."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from integration.waiting import until
from tidelog.rpc.channels import new_server
from tidelog.v1 import replica_control_pb2 as pb
from tidelog.v1.replica_control_pb2_grpc import (
    ReplicaControlServiceServicer,
    add_ReplicaControlServiceServicer_to_server,
)
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.metadata.etcd import EtcdStore
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    encode,
)
from tidelog_runtime.metadata.store import ModRevision, Put, Transaction

LEASE_TTL_SECONDS = 5
_NEVER_WRITTEN = 0


class ReceivedCommand(NamedTuple):
    """`topics`: those that the command names.
    `traceparent`: of the call; empty: none."""

    command: pb.LeaderAndIsrRequest | pb.StopReplicaRequest
    topics: frozenset[str]
    traceparent: str


class ListeningBroker(ReplicaControlServiceServicer):
    """Acknowledges every command."""

    def __init__(self) -> None:
        self.received: list[ReceivedCommand] = []

    def about(self, topic: str, kind: type) -> list[ReceivedCommand]:
        return [h for h in self.received if topic in h.topics and isinstance(h.command, kind)]

    async def LeaderAndIsr(  # noqa: N802
        self, request: pb.LeaderAndIsrRequest, context: Any
    ) -> pb.LeaderAndIsrResponse:
        return pb.LeaderAndIsrResponse(partitions=self._take(request, context))

    async def StopReplica(  # noqa: N802
        self, request: pb.StopReplicaRequest, context: Any
    ) -> pb.StopReplicaResponse:
        return pb.StopReplicaResponse(partitions=self._take(request, context))

    async def DescribeReplicas(  # noqa: N802
        self,
        request: pb.DescribeReplicasRequest,
        context: Any,
    ) -> pb.DescribeReplicasResponse:
        raise NotImplementedError

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.WatchResponse]:
        yield pb.WatchResponse(broker_epoch=request.broker_epoch)
        await asyncio.Event().wait()

    def _take(
        self, request: pb.LeaderAndIsrRequest | pb.StopReplicaRequest, context: Any
    ) -> list[pb.PartitionStateResult]:
        traceparent = dict(context.invocation_metadata()).get("traceparent", "")
        topics = frozenset(partition.topic for partition in request.partitions)
        self.received.append(ReceivedCommand(request, topics, traceparent))
        return [
            pb.PartitionStateResult(
                topic_id=partition.topic_id,
                partition=partition.partition,
                revision=partition.revision,
            )
            for partition in request.partitions
        ]


@asynccontextmanager
async def listening_broker(cluster: LocalCluster, broker_id: int) -> AsyncIterator[ListeningBroker]:
    """A broker that is registered and known to the controller until the context ends."""
    broker, server = ListeningBroker(), new_server()
    add_ReplicaControlServiceServicer_to_server(broker, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    store = EtcdStore([cluster.etcd_address], clock=SystemClock(), rng=random.Random())
    try:
        lease = await store.grant_lease(LEASE_TTL_SECONDS)
        key = Keys(cluster.cluster).broker(broker_id)
        registration = BrokerRegistration(address, "", f"listener-{broker_id}", RUNNING, 0, 0)
        done = await store.transact(
            Transaction(
                [ModRevision(key, _NEVER_WRITTEN)], [Put(key, encode(registration), lease.id)]
            )
        )
        assert done.succeeded

        async def is_known() -> bool:
            commands = [received.command for received in broker.received]
            return any(isinstance(c, pb.LeaderAndIsrRequest) and c.full_state for c in commands)

        await until(is_known, f"the controller has sent broker {broker_id} its full state")
        yield broker
        await lease.revoke()
    finally:
        await store.close()
        await server.stop(None)
