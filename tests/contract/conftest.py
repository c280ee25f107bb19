"""One etcd for all contract tests; each has its own prefix in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from contract.harness import EtcdHarness, MemoryHarness, StoreHarness
from tidelog_runtime.local.etcd_member import LocalEtcd
from tidelog_runtime.metadata.store import MetadataStore


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEtcd]:
    directory = tmp_path_factory.mktemp("etcd")
    etcd = await LocalEtcd.start(directory / "data", log_path=directory / "log", fsync=False)
    yield etcd
    await etcd.stop()


@pytest.fixture(params=["memory", "etcd"])
def endpoint(request: pytest.FixtureRequest) -> str | None:
    """None: the store is in memory."""
    if request.param == "memory":
        return None
    etcd: LocalEtcd = request.getfixturevalue("etcd")
    return etcd.endpoint


@pytest.fixture
async def harness(endpoint: str | None) -> AsyncIterator[StoreHarness]:
    harness: StoreHarness = MemoryHarness() if endpoint is None else EtcdHarness(endpoint)
    yield harness
    await harness.close()


@pytest.fixture
def store(harness: StoreHarness) -> MetadataStore:
    return harness.store


@pytest.fixture
def prefix(harness: StoreHarness) -> str:
    """The prefix of this test's keys: other tests share the same etcd."""
    return harness.prefix
