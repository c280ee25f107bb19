"""Brokers with a small share of a CPU and many replicas: they are alive, but cannot describe
themselves in time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.explaining import faults_in, the
from integration.topics import create_topic
from integration.waiting import until
from tidelog.client.explain_requests import explain_cluster
from tidelog.inspection.state_reports import Explanation, Scope
from tidelog_runtime.local.cluster import LocalCluster

PARTITIONS = 3_000
# A fifteenth of a CPU: a description takes some seconds, a health check a moment.
RUNS_SECONDS, STANDS_SECONDS = 0.015, 0.2
ANSWER_MS = 1_000
# A slow machine is short of CPU for a while after thousands of partitions were created.
WELL_SECONDS = 90


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("busy"), brokers=3) as running:
        yield running


@asynccontextmanager
async def starved(cluster: LocalCluster) -> AsyncIterator[None]:
    pids = [pid for b in cluster.broker_ids if (pid := cluster.broker_process(b).pid) is not None]
    async with beside(_starve(pids)):
        yield


async def _starve(pids: Sequence[int]) -> None:
    try:
        while True:
            await asyncio.sleep(RUNS_SECONDS)
            _send(pids, signal.SIGSTOP)
            await asyncio.sleep(STANDS_SECONDS)
            _send(pids, signal.SIGCONT)
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


async def by_brokers(cluster: LocalCluster) -> Explanation:
    """The request of a client that knows only brokers."""
    addresses = [cluster.broker_address(broker_id) for broker_id in cluster.broker_ids]
    return await explain_cluster(addresses, Scope(), ANSWER_MS)


def faults(explanation: Explanation) -> set[str]:
    return {finding.cause for finding in faults_in(explanation)}


async def until_well(cluster: LocalCluster) -> None:
    found: set[str] = set()

    async def well() -> bool:
        found.clear()
        found.update(faults(await by_brokers(cluster)))
        return not found

    try:
        await until(well, "the cluster is well", WELL_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {found}") from None


async def test_busy_brokers_are_reported_and_the_controllers_they_name_are_queried(
    cluster: LocalCluster,
) -> None:
    await create_topic(cluster, "big", PARTITIONS)
    await until_well(cluster)
    controllers = [part.address for part in cluster.describe().controllers]

    async def busy() -> Explanation | None:
        """A broker may have been too busy even to name the controllers in time."""
        answer = await by_brokers(cluster)
        answered = " ".join(set(answer.asked) - set(answer.silent))
        named = all(address in answered for address in controllers)
        return answer if named and faults(answer) == {"broker_busy"} else None

    async with starved(cluster):
        answer = await until(busy, "brokers are busy, and the controllers that they name answer")
    assert answer is not None
    busy_ids = [f.broker for f in faults_in(answer) if f.cause == "broker_busy"]
    for broker_id in busy_ids:
        assert the(answer, "broker_busy", broker_id).severity == "warning"
    assert set(answer.listening) == {"answers health checks"}
    await until_well(cluster)
