"""Brokers and controllers that do not start, or that wait until they can."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from integration.single_service import SingleService
from tidelog_runtime.local.cluster_file import Setting
from tidelog_runtime.local.cluster_view import open_view
from tidelog_runtime.local.etcd_member import LocalEtcd

EXIT_CANNOT_START = 1
EXIT_INVALID_CONFIG = 2
# Nothing listens on the discard port of a test machine.
NO_ETCD = "127.0.0.1:9"


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    etcd = await LocalEtcd.start(tmp_path / "etcd", log_path=tmp_path / "etcd.log", fsync=False)
    yield etcd
    await etcd.stop()


def broker(directory: Path, name: str = "broker", **settings: Setting) -> SingleService:
    with_defaults: dict[str, Setting] = {
        "broker_id": 1,
        "listen": "127.0.0.1:0",
        "data_dir": str(directory / "data"),
        "etcd_endpoints": [NO_ETCD],
        **settings,
    }
    return SingleService("tidelog_broker", directory, name, **with_defaults)


def controller(directory: Path, name: str = "controller", **settings: Setting) -> SingleService:
    with_defaults: dict[str, Setting] = {
        "controller_id": 1,
        "listen": "127.0.0.1:0",
        "etcd_endpoints": [NO_ETCD],
        **settings,
    }
    return SingleService("tidelog_controller", directory, name, **with_defaults)


@asynccontextmanager
async def started(service: SingleService) -> AsyncIterator[SingleService]:
    service.process.start()
    try:
        yield service
    finally:
        await service.process.stop()


async def start_error(service: SingleService) -> str:
    """The reason why it does not start, from one line of its log."""
    async with started(service):
        assert await service.ended() == EXIT_CANNOT_START, service.text()
    [line] = service.events("cannot_start")
    assert line["level"] == "critical"
    assert "Traceback" not in service.text()
    return str(line["why"])


@contextmanager
def port_in_use() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


# -- the data directory ------------------------------------------------------------------


async def test_the_data_of_another_broker_is_rejected(tmp_path: Path, etcd: LocalEtcd) -> None:
    async with started(broker(tmp_path, etcd_endpoints=[etcd.endpoint])) as owner:
        await owner.until_reported("registration")
    identity = (tmp_path / "data" / "broker.json").read_bytes()

    why = await start_error(broker(tmp_path, "other", broker_id=2, etcd_endpoints=[etcd.endpoint]))

    assert "data belongs to broker 1, this is broker 2" in why
    assert "set data_dir to this broker's own directory, or broker_id to 1" in why
    assert (tmp_path / "data" / "broker.json").read_bytes() == identity


async def test_the_data_of_another_cluster_is_rejected(tmp_path: Path, etcd: LocalEtcd) -> None:
    async with started(broker(tmp_path, cluster="north", etcd_endpoints=[etcd.endpoint])) as owner:
        await owner.until_reported("registration")
    stranger = broker(tmp_path, "stranger", cluster="south", etcd_endpoints=[etcd.endpoint])

    why = await start_error(stranger)
    assert "data belongs to cluster 'north'" in why
    assert "configured for cluster 'south', of which the metadata store holds nothing" in why
    assert "set cluster to north" in why

    southern = tmp_path / "southern"
    southern.mkdir()
    async with started(broker(southern, cluster="south", etcd_endpoints=[etcd.endpoint])) as other:
        await other.until_reported("registration")
    why = await start_error(
        broker(tmp_path, "again", cluster="south", etcd_endpoints=[etcd.endpoint])
    )
    assert "the metadata store is that of cluster 'south'" in why
    assert "set cluster to north, or set data_dir or etcd_endpoints to those of one cluster" in why
    view = open_view(etcd.endpoint, "south")
    assert await view.brokers() == {}
    await view.close()
    async with started(
        broker(tmp_path, "back", cluster="north", etcd_endpoints=[etcd.endpoint])
    ) as back:
        await back.until_reported("registration")


async def test_a_directory_in_use_by_another_process_is_rejected(tmp_path: Path) -> None:
    async with started(broker(tmp_path)) as owner:
        await owner.until_logged("store_lost")

        why = await start_error(broker(tmp_path, "second"))

        assert owner.process.running
    assert "data is in use by another broker process" in why
    assert "stop that one, or give this one its own data_dir" in why


async def test_a_damaged_identity_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker.json").write_text("{half")

    why = await start_error(broker(tmp_path))

    assert "broker.json" in why
    assert "restore the file, or move the directory away to start empty" in why


async def test_a_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    why = await start_error(broker(tmp_path, data_dir=str(tmp_path / "file" / "data")))

    assert str(tmp_path / "file") in why


# -- the port and the configuration ------------------------------------------------------


async def test_a_broker_whose_port_is_in_use_reports_it_and_does_not_register(
    tmp_path: Path, etcd: LocalEtcd
) -> None:
    with port_in_use() as port:
        listen = f"127.0.0.1:{port}"
        why = await start_error(broker(tmp_path, listen=listen, etcd_endpoints=[etcd.endpoint]))

    assert f"cannot listen on {listen}: port {port} is in use" in why
    assert "choose another with listen" in why
    view = open_view(etcd.endpoint, "default")
    assert await view.brokers() == {}
    await view.close()


async def test_a_controller_whose_port_is_in_use_reports_it(tmp_path: Path) -> None:
    with port_in_use() as port:
        rejected = controller(tmp_path, listen=f"127.0.0.1:{port}")
        async with started(rejected):
            assert await rejected.ended() == EXIT_CANNOT_START
    [line] = rejected.events("cannot_listen")

    assert f"127.0.0.1:{port}: another process uses it" in line["problem"]
    assert "set another address with --listen" in line["remedy"]
    assert "Traceback" not in rejected.text()


@pytest.mark.parametrize(
    ("settings", "phrases"),
    [
        ({"broker_id": -1}, ("broker_id = -1", "greater than or equal to 0")),
        ({"etcd_endpoints": ["etcd"]}, ("'etcd' is not an address", "give host:port")),
        ({"data_dirr": "/tmp"}, ("data_dirr, which does not exist", "did you mean data_dir?")),
    ],
    ids=["out of range", "no address", "unknown"],
)
async def test_an_invalid_setting_ends_the_service_with_a_hint(
    tmp_path: Path, settings: dict[str, Setting], phrases: tuple[str, ...]
) -> None:
    rejected = broker(tmp_path, "broker", **settings)
    async with started(rejected):
        assert await rejected.ended() == EXIT_INVALID_CONFIG

    assert all(phrase in rejected.text() for phrase in phrases), rejected.text()
    assert "Traceback" not in rejected.text()
    assert not (tmp_path / "data").exists()


# -- etcd --------------------------------------------------------------------------------


async def test_services_wait_for_etcd_log_it_once_and_serve_when_it_is_available(
    tmp_path: Path, etcd: LocalEtcd
) -> None:
    await etcd.stop()
    waiting_broker = broker(tmp_path, etcd_endpoints=[etcd.endpoint])
    waiting_controller = controller(tmp_path, etcd_endpoints=[etcd.endpoint])
    async with started(waiting_broker), started(waiting_controller):
        broker_line = await waiting_broker.until_logged("store_lost")
        controller_line = await waiting_controller.until_logged("store_lost")
        await etcd.start_again()
        await waiting_broker.until_logged("serving")
        await waiting_controller.until_logged("controller_elected")
        view = open_view(etcd.endpoint, "default")
        assert list(await view.brokers()) == [1]
        await view.close()

    for line in (broker_line, controller_line):
        assert "check that etcd runs at the configured etcd_endpoints" in line["details"]["remedy"]
    for service in (waiting_broker, waiting_controller):
        assert len(service.events("store_lost")) == 1
        assert len(service.events("store_back")) == 1


async def test_services_that_wait_for_etcd_can_be_stopped(tmp_path: Path) -> None:
    waiting_broker, waiting_controller = broker(tmp_path), controller(tmp_path)
    async with started(waiting_broker), started(waiting_controller):
        await waiting_broker.until_logged("store_lost")
        await waiting_controller.until_logged("store_lost")
        assert await waiting_broker.process.stop()
        assert await waiting_controller.process.stop()

    assert waiting_broker.process.exit_status == 0
    assert waiting_controller.process.exit_status == 0


async def test_the_second_of_two_brokers_with_one_id_is_rejected(
    tmp_path: Path, etcd: LocalEtcd
) -> None:
    endpoints = [etcd.endpoint]
    view = open_view(etcd.endpoint, "default")
    async with started(broker(tmp_path, etcd_endpoints=endpoints)) as first:
        await first.until_reported("registration")
        registered = await view.brokers()
        second = str(tmp_path / "second")
        why = await start_error(
            broker(tmp_path, "second", data_dir=second, etcd_endpoints=endpoints)
        )
        assert first.process.running
        assert await view.brokers() == registered
    # Also after the first one has stopped, and no registration exists.
    again = await start_error(broker(tmp_path, "again", data_dir=second, etcd_endpoints=endpoints))
    await view.close()

    for reason in (why, again):
        assert "broker id 1 belongs to data directory" in reason
        assert str(tmp_path / "data") in reason
        assert registered[1] in reason
        assert "give this process a broker_id and a data_dir of its own" in reason
