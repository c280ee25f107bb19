"""A broker that accepts connections and never answers, as a paused one does, uses only a part of
the time of an administrator's request.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog.client import Admin
from unit.client.fake_broker import FakeCluster
from unit.client.memory_connections import MemoryConnections
from unit.metadata.virtual_time import run, virtual_clock

TIMEOUT_MS = 100
BROKERS = 3


class _Controller:
    """Answers at once."""

    async def call(self, request: Any, response: Any, timeout_ms: int) -> Any:  # noqa: ARG002
        return response()


class _Connections(MemoryConnections):
    def controller(self, address: str) -> Any:  # noqa: ARG002 - there is one
        return _Controller()


class _Active:
    controller_id, epoch, address = 1, 1, "controller:1"


REQUESTS = {
    "create": lambda admin: admin.create_topic("bay", timeout_ms=TIMEOUT_MS),
    "delete": lambda admin: admin.delete_topic("sea", timeout_ms=TIMEOUT_MS),
    "alter": lambda admin: admin.alter_topic_config(
        "sea", {"retention_ms": "1000"}, timeout_ms=TIMEOUT_MS
    ),
    "elect": lambda admin: admin.elect_preferred_leaders(timeout_ms=TIMEOUT_MS),
    "init producer id": lambda admin: admin.init_producer_id(timeout_ms=TIMEOUT_MS),
    "describe producers": lambda admin: admin.describe_producers("sea", timeout_ms=TIMEOUT_MS),
}


@pytest.mark.parametrize("silent", [{0}, {1}, {2}, {1, 2}], ids=str)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_short_timeout_is_enough_beside_silent_brokers(name: str, silent: set[int]) -> None:
    async def main() -> None:
        cluster = FakeCluster().in_memory(BROKERS)
        answering = next(iter({0, 1, 2} - silent))
        cluster.create("sea", [answering])
        cluster.controller = _Active()  # type: ignore[assignment]
        for broker_id in silent:
            for script in ("metadata", "init_producer_id"):
                cluster.brokers[broker_id].script[script].extend(["hang"] * 20)
        connections, clock = _Connections(cluster), virtual_clock()
        async with Admin(
            cluster.bootstrap(), connections=connections, clock=clock, rng=random.Random(1)
        ) as admin:
            await REQUESTS[name](admin)
            assert clock.monotonic_ms() <= TIMEOUT_MS

    run(main())
