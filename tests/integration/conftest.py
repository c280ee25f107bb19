"""Real processes, real etcd, real files."""

from collections.abc import AsyncIterator, Generator

import pytest
import pytest_asyncio
from pluggy import Result

import longest_first
from collected import own_items
from integration.clusters import RUNNING, running_cluster
from tidelog_runtime.local.cluster import LocalCluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Three brokers and two controllers, shared by the tests of a module on one event loop.

    A test that kills a process starts it again."""
    async with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_died_by_itself() -> Generator[None]:
    """No process ends that the test did not end itself."""
    yield
    for running in RUNNING:
        running.check_alive()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests run on the event loop of the cluster that they use."""
    longest_first.order(items)
    for item in own_items(items, __file__):
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,  # noqa: ARG001 - the hook's signature
) -> Generator[None, Result[pytest.TestReport], None]:
    """A failure shows the last lines of every service's log."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    for cluster in RUNNING:
        for process in cluster.processes():
            report.sections.append((f"log of {process.name}", process.log_tail()))
