from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from unit.admin_api.fakes import FakeAdmin, FakeCluster, client_of


@pytest.fixture
def fake_cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def admin(fake_cluster: FakeCluster) -> FakeAdmin:
    return fake_cluster.admin


@pytest.fixture
async def gateway(fake_cluster: FakeCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(fake_cluster.app()) as client:
        yield client
