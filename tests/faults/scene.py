"""The current leaders, ISRs and active controller, as clients of the cluster see them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from faults.cluster import Cluster, ClusterFailedError
from tidelog.client import Admin
from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.client.scrubbing import scrub_broker
from tidelog.errors import TidelogError

T = TypeVar("T")

FIND_PAUSE_S = 0.1
FIND_TIMEOUT_S = 30.0
# How long the rest of the cluster may take to answer while one service does not.
REQUEST_TIMEOUT_S = 5.0
# Each epoch of this producer name is a write to the metadata store; no records are written with it.
PROBE_PRODUCER = "faults-store-probe"


class NoTargetError(Exception):
    """No target for the fault was found in time."""


class Scene:
    """The cluster as faults see it.

    `topic`: where the load writes. Concurrent faults do not strike the same service: each uses its
    own `view`, and releases it when it is over."""

    def __init__(
        self, cluster: Cluster, topic: str, admin: Admin, struck: Counter[str] | None = None
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.admin = admin
        self._struck: Counter[str] = Counter() if struck is None else struck
        self._own: list[str] = []

    def view(self) -> Scene:
        return Scene(self.cluster, self.topic, self.admin, self._struck)

    def release(self) -> None:
        self._struck.subtract(self._own)
        self._own.clear()

    def strike(self, service: str) -> str:
        self._struck[service] += 1
        self._own.append(service)
        return service

    async def describe(self) -> tuple[ClusterDescription, TopicDescription] | None:
        """None: no service answered in time."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                cluster = await self.admin.describe_cluster()
                return cluster, await self.admin.describe_topic(self.topic)
        except (TidelogError, TimeoutError):
            return None

    async def busiest_leader(self) -> str:
        return self.strike((await self._found(self._free_leaders, "leader"))[0])

    async def follower_and_leader(self) -> tuple[str, str]:
        """A leader and a follower of it. The leader is the busiest one that has such a follower; it
        is not struck by this."""
        follower, leader = (await self._found(self._free_pairs, "leader with a follower"))[0]
        return self.strike(follower), leader

    def others(self, broker: str) -> list[str]:
        return [other for other in self.cluster.brokers if other != broker]

    async def led_by(self, broker: str) -> list[int] | None:
        """The partitions of the topic that it leads; None: no broker answered in time."""
        seen = await self.describe()
        if seen is None:
            return None
        return [p.partition for p in seen[1].partitions if f"broker-{p.leader}" == broker]

    async def scrub(self, broker: str) -> None:
        """Makes the broker begin a scrub of its whole disk, at full rate."""
        seen = await self.describe()
        addresses = {f"broker-{b.broker_id}": b.address for b in seen[0].brokers} if seen else {}
        if broker not in addresses:
            raise ClusterFailedError(f"{broker} is not registered")
        address = addresses[broker]
        try:
            await scrub_broker(
                self.cluster.own_routes.get(address, address),
                begin=True,
                full_rate=True,
                timeout_seconds=REQUEST_TIMEOUT_S,
            )
        except TidelogError as error:
            raise ClusterFailedError(f"{broker} does not check its disk: {error}") from error

    async def active_controller(self) -> str:
        return self.strike((await self._found(self._free_active, "active controller"))[0])

    async def _found(self, find: Callable[[], Awaitable[Sequence[T]]], what: str) -> Sequence[T]:
        """The target, unless another fault strikes it already."""
        deadline = time.monotonic() + FIND_TIMEOUT_S
        while time.monotonic() < deadline:
            found = await find()
            if found:
                return found
            await asyncio.sleep(FIND_PAUSE_S)
        raise NoTargetError(f"no {what} was there to be struck within {FIND_TIMEOUT_S:g} s")

    async def _free_leaders(self) -> Sequence[str]:
        """The broker that leads most partitions first."""
        described = await self.describe()
        if described is None:
            return []
        led = Counter(p.leader for p in described[1].partitions if p.leader >= 0)
        leaders = [f"broker-{broker_id}" for broker_id, _ in led.most_common()]
        return [leader for leader in leaders if not self._struck[leader]]

    async def _free_pairs(self) -> Sequence[tuple[str, str]]:
        """Each leader with each of its followers, the broker that leads most first."""
        leaders = await self._free_leaders()
        pairs = [(other, leader) for leader in leaders for other in self.others(leader)]
        return [(follower, leader) for follower, leader in pairs if not self._struck[follower]]

    async def _free_active(self) -> Sequence[str]:
        described = await self.describe()
        if described is None or described[0].controller is None:
            return []
        active = f"controller-{described[0].controller.controller_id}"
        return [] if self._struck[active] else [active]

    async def missing(self) -> list[str]:
        """What keeps the cluster from being intact; empty: nothing.

        Services may report each other's state as of the store's last answer, so the store is
        checked as well."""
        return await self._missing_services() or await self._missing_store()

    async def _missing_store(self) -> list[str]:
        members = self.cluster.etcd_members
        answers = await asyncio.gather(*map(self.cluster.etcd_answers, members))
        silent = [m for m, answered in zip(members, answers, strict=True) if not answered]
        if silent:
            return [f"{member} does not answer as healthy" for member in silent]
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self.admin.init_producer_id(PROBE_PRODUCER)
        except (TidelogError, TimeoutError) as error:
            return [f"no broker writes to the metadata store: {error}"]
        return []

    async def _missing_services(self) -> list[str]:
        described = await self.describe()
        if described is None:
            return ["no broker describes the cluster"]
        cluster, topic = described
        missing = []
        if cluster.controller is None:
            missing.append("no controller is active")
        controllers = {f"controller-{c.controller_id}" for c in cluster.controllers}
        missing += [f"{c} is away" for c in self.cluster.controllers if c not in controllers]
        brokers = {f"broker-{b.broker_id}" for b in cluster.brokers}
        missing += [f"{b} is not registered" for b in self.cluster.brokers if b not in brokers]
        for partition in topic.partitions:
            if partition.leader < 0:
                missing.append(f"partition {partition.partition} has no leader")
            elif len(partition.isr) < topic.replication_factor:
                missing.append(f"partition {partition.partition} has ISR {list(partition.isr)}")
        return missing

    async def until_whole(self, timeout_s: float) -> tuple[float | None, list[str]]:
        """The seconds that it took; or None, and what is missing."""
        began = time.monotonic()
        missing = ["nothing has been checked"]
        while time.monotonic() - began < timeout_s:
            missing = await self.missing()
            if not missing:
                return time.monotonic() - began, []
            await asyncio.sleep(FIND_PAUSE_S)
        return None, missing
