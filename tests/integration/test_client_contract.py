"""A cluster keeps the contract of brokers that `MemoryBroker` keeps (`contract`)."""

from __future__ import annotations

import pytest

from contract.client_contract import ClientContract
from tidelog_runtime.local.cluster import LocalCluster


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    return cluster.bootstrap


class TestCluster(ClientContract):
    """All tests of the contract."""
