"""Bootstrap addresses of services that are not brokers."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from tidelog.client import Admin, Producer
from tidelog.errors import InvalidRequestError
from unit.client.fake_broker import FakeCluster


@pytest.fixture
async def stranger() -> AsyncIterator[str]:
    """A gRPC server without the broker's methods, such as a controller."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.parametrize("name", ["", "tide"])
async def test_a_wrong_address_among_brokers_is_skipped(
    cluster: FakeCluster, stranger: str, name: str
) -> None:
    for bootstrap in ([stranger, *cluster.bootstrap()], [*cluster.bootstrap(), stranger]):
        async with Producer(bootstrap, producer_name=name or None) as producer:
            await (await producer.send("sea", b"1"))
        async with Admin(bootstrap) as admin:
            await admin.init_producer_id(name)


async def test_a_wrong_address_without_alternatives_is_reported_at_once(stranger: str) -> None:
    async with Producer(stranger) as producer:
        with pytest.raises(InvalidRequestError, match=f"{stranger} does not know"):
            await producer.send("sea", b"1")
    async with Admin(stranger) as admin:
        with pytest.raises(InvalidRequestError, match="name a broker's address"):
            await admin.init_producer_id()
