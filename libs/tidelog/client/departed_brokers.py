"""A cluster as its brokers describe it, together with the brokers that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tidelog.admin_messages import BrokerDetails
from tidelog.client.descriptions import (
    GONE,
    BrokerDescription,
    ClusterDescription,
    TopicDescription,
)
from tidelog.errors import TidelogError

# How long the controller may take to send the last known addresses. Without them the cluster is
# described all the same.
ADDRESSES_TIMEOUT_SECONDS = 2.0


class DescribesBrokers(Protocol):
    """The part of `Admin` that is used here."""

    async def describe_cluster(self) -> ClusterDescription: ...

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]: ...

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]: ...


async def describe_with_departed_brokers(
    admin: DescribesBrokers,
) -> tuple[ClusterDescription, list[TopicDescription]]:
    """Returns the cluster and all its topics, internal ones included. Raises `TidelogError`.

    A broker that holds replicas and is not registered is listed as gone, with its last known
    address. Only the controller has that address: without an active one it is empty."""
    described = await admin.describe_cluster()
    topics = await admin.list_topics(internal=True)
    departed = _departed_ids(described, topics)
    known: dict[int, BrokerDetails] = {}
    if departed and described.controller is not None:
        try:
            async with asyncio.timeout(ADDRESSES_TIMEOUT_SECONDS):
                known = {b.broker_id: b for b in await admin.describe_brokers(departed)}
        except (TidelogError, TimeoutError):
            known = {}
    added = (_departed_broker(broker_id, known.get(broker_id)) for broker_id in departed)
    brokers = sorted((*described.brokers, *added), key=lambda broker: broker.broker_id)
    return replace(described, brokers=tuple(brokers)), topics


def _departed_ids(described: ClusterDescription, topics: Iterable[TopicDescription]) -> list[int]:
    holding = {b for topic in topics for p in topic.partitions for b in p.replicas}
    return sorted(holding - {broker.broker_id for broker in described.brokers})


def _departed_broker(broker_id: int, known: BrokerDetails | None) -> BrokerDescription:
    if known is None:
        return BrokerDescription(broker_id, "", "", 0, GONE)
    return BrokerDescription(broker_id, known.address, known.rack, 0, GONE)
