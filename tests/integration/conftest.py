"""Real processes, real etcd, real files."""

import random
import uuid
from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio
from pluggy import Result

from tidelog_runtime.local.cluster import LocalCluster

# A replica that lags leaves the ISR, and a dead process is forgotten, within seconds.
QUICK_BROKERS = {"lease_ttl_seconds": 2, "replica_lag_time_max_ms": 2_000}
QUICK_CONTROLLERS = {"lease_ttl_seconds": 2}

_CLUSTERS = pytest.StashKey[list[LocalCluster]]()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[LocalCluster]:
    """Three brokers and two controllers, shared by the tests of a module, which run on
    one event loop. A test that kills a part starts it again."""
    cluster = LocalCluster(
        tmp_path_factory.mktemp("cluster"),
        cluster=f"test-{uuid.uuid4().hex[:8]}",
        broker_config=QUICK_BROKERS,
        controller_config=QUICK_CONTROLLERS,
        usual_ports=False,
        rng=random.Random(),
    )
    running = request.config.stash.setdefault(_CLUSTERS, [])
    running.append(cluster)
    try:
        await cluster.start()
        await cluster.ready()
        yield cluster
    finally:
        running.remove(cluster)
        await cluster.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests run on the event loop of the cluster that they use."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, Result[pytest.TestReport], None]:
    """A failure shows the last lines of every part's log."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    for cluster in item.config.stash.get(_CLUSTERS, []):
        for process in cluster.processes():
            report.sections.append((f"log of {process.name}", process.log_tail()))
