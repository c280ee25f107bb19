"""Starts clusters for tests."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog_runtime.local.cluster import LocalCluster, Programs
from tidelog_runtime.local.cluster_file import Setting

# A lagging replica leaves the ISR, a dead process loses its lease, and deleted data are removed
# within seconds.
QUICK_BROKERS: Mapping[str, Setting] = {
    "lease_ttl_seconds": 2,
    "replica_lag_time_max_ms": 2_000,
    "retention_check_interval_ms": 500,
    "state_changes_topic": False,
}
QUICK_CONTROLLERS: Mapping[str, Setting] = {
    "lease_ttl_seconds": 2,
    # The topics and records that tests count are their own.
    "state_changes_topic": False,
}
PUBLISHING: Mapping[str, Setting] = {"state_changes_topic": True}

# The running clusters: a failure shows their logs.
RUNNING: list[LocalCluster] = []


def new_cluster(
    directory: Path,
    *,
    brokers: int = 3,
    controllers: int = 2,
    cluster: str | None = None,
    broker_config: Mapping[str, Setting] | None = None,
    controller_config: Mapping[str, Setting] | None = None,
    etcd: str | None = None,
    gateway: bool = False,
    programs: Programs | None = None,
) -> LocalCluster:
    return LocalCluster(
        directory,
        brokers=brokers,
        controllers=controllers,
        cluster=cluster or f"test-{uuid.uuid4().hex[:8]}",
        broker_config={**QUICK_BROKERS, **(broker_config or {})},
        controller_config={**QUICK_CONTROLLERS, **(controller_config or {})},
        etcd=etcd,
        usual_ports=False,
        gateway=gateway,
        programs=programs,
        rng=random.Random(),
    )


@asynccontextmanager
async def running_cluster(
    directory: Path,
    *,
    brokers: int = 3,
    controllers: int = 2,
    cluster: str | None = None,
    broker_config: Mapping[str, Setting] | None = None,
    controller_config: Mapping[str, Setting] | None = None,
    etcd: str | None = None,
    gateway: bool = False,
    programs: Programs | None = None,
) -> AsyncIterator[LocalCluster]:
    """A running cluster; it is ready on entry, and stopped on exit."""
    started = new_cluster(
        directory,
        brokers=brokers,
        controllers=controllers,
        cluster=cluster,
        broker_config=broker_config,
        controller_config=controller_config,
        etcd=etcd,
        gateway=gateway,
        programs=programs,
    )
    RUNNING.append(started)
    try:
        await started.start()
        await started.ready()
        yield started
    finally:
        RUNNING.remove(started)
        await started.stop()


@asynccontextmanager
async def publishing_cluster(
    directory: Path, *, gateway: bool = False
) -> AsyncIterator[LocalCluster]:
    """A cluster whose services publish their state changes to the topic."""
    async with running_cluster(
        directory, broker_config=PUBLISHING, controller_config=PUBLISHING, gateway=gateway
    ) as running:
        yield running
