"""A live cluster, and the built examples. All tests share them, on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from collected import own_items
from examples.programs import BUILD_SECONDS, PROGRAMS, Program
from integration.clusters import running_cluster
from tidelog_runtime.local.cluster import LocalCluster

# Compilers and virtual machines may use up the processor for a while, and no lease must end then.
# The death of a killed broker is still detected at once.
UNHURRIED = {"lease_ttl_seconds": 15}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in own_items(items, __file__):
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        # The first test of a language builds its program.
        item.add_marker(pytest.mark.timeout(BUILD_SECONDS))


@pytest.fixture(scope="session", params=PROGRAMS, ids=lambda program: program.language)
def program(request: pytest.FixtureRequest) -> Program:
    built: Program = request.param
    built.build()
    return built


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(
        tmp_path_factory.mktemp("examples"),
        broker_config={**UNHURRIED, "replica_lag_time_max_ms": 10_000},
        controller_config=UNHURRIED,
    ) as running:
        yield running
        running.check_alive()
