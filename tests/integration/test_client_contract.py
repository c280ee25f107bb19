"""A cluster keeps the contract of brokers that `MemoryBroker` keeps (`contract`). The cluster is
that of `tidelog.testing`, as users of the fixtures have it."""

from __future__ import annotations

import pytest

from contract.client_contract import ClientContract
from tidelog.testing.cluster_for_tests import TestCluster

pytestmark = [pytest.mark.tidelog(brokers=3), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def bootstrap(tidelog_cluster: TestCluster) -> str:
    return tidelog_cluster.bootstrap


class TestClientsOfACluster(ClientContract):
    """All tests of the contract."""
