"""A put to a real etcd without an event loop."""

from __future__ import annotations

import asyncio
import random

import pytest

from tidelog_runtime.clock import SystemClock
from tidelog_runtime.local.etcd_member import LocalEtcd
from tidelog_runtime.metadata.etcd import EtcdStore, put_directly
from tidelog_runtime.metadata.store import StoreUnavailableError

CLOSED = "127.0.0.1:1"


@pytest.mark.asyncio(loop_scope="module")
async def test_any_endpoint_that_answers_accepts_the_put_under_its_lease(etcd: LocalEtcd) -> None:
    store = EtcdStore([etcd.endpoint], clock=SystemClock(), rng=random.Random(1))
    lease = await store.grant_lease(60)
    endpoints = [CLOSED, etcd.endpoint]
    await asyncio.to_thread(put_directly, endpoints, "direct/key", b"value", lease.id)
    found = await store.get("direct/key")
    assert found is not None
    assert found.value == b"value"
    await lease.revoke()
    assert await store.get("direct/key") is None
    await store.close()


def test_no_endpoint_that_answers_is_an_error() -> None:
    with pytest.raises(StoreUnavailableError, match=CLOSED):
        put_directly([CLOSED], "direct/key", b"value", 0)
