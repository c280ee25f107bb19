"""The runner of a local cluster, with stand-ins for the services."""

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.cluster import LocalCluster, Programs
from tidelog_runtime.local.data_directory import DirectoryInUseError

STAND_IN = (sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in.py")))


class ListeningView:
    """Every listening service serves, is registered and is known to all; the first such
    controller is active. `heard_of`: the brokers that another one knows, where they are not all.
    `unregistered`: ids of controllers that serve and are not registered."""

    heard_of: ClassVar[dict[str, set[str]]] = {}
    unregistered: ClassVar[set[int]] = set()

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def brokers(self) -> Mapping[int, str]:
        return await self._listening("brokers")

    async def controllers(self) -> Mapping[int, str]:
        listening = await self._listening("controllers")
        return {i: address for i, address in listening.items() if i not in self.unregistered}

    async def active_controller(self) -> int | None:
        return next(iter(await self._listening("controllers")), None)

    async def serving(self, address: str) -> bool:
        host, port = address.split(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        return True

    async def brokers_known_to(self, broker: str) -> set[str]:
        return self.heard_of.get(broker, set((await self.brokers()).values()))

    async def close(self) -> None:
        pass

    async def _listening(self, kind: str) -> dict[int, str]:
        parts = json.loads((self._directory / "cluster.json").read_text())[kind]
        return {p["id"]: p["address"] for p in parts if await self.serving(p["address"])}


def new_cluster(directory: Path, **options: Any) -> LocalCluster:
    return LocalCluster(
        directory,
        brokers=2,
        controllers=2,
        etcd="127.0.0.1:1",
        usual_ports=False,
        programs=Programs(STAND_IN, STAND_IN, STAND_IN),
        view=lambda _etcd, _cluster: ListeningView(directory),
        rng=random.Random(),
        **options,
    )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    cluster = new_cluster(tmp_path)
    await cluster.start()
    yield cluster
    await cluster.stop()


def cluster_json(cluster: LocalCluster) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((cluster.directory / "cluster.json").read_text())
    return content


async def test_the_cluster_is_ready_once_every_part_serves(cluster: LocalCluster) -> None:
    await cluster.ready()

    view = ListeningView(cluster.directory)
    assert set(await view.brokers()) == {1, 2}
    assert await cluster.active_controller() == 1


async def test_the_cluster_is_not_ready_while_a_part_is_missing(cluster: LocalCluster) -> None:
    await cluster.ready()
    cluster.pause(2)
    await cluster.kill_controller(1)
    await cluster.kill_controller(2)

    with pytest.raises(ClusterError, match=r"not ready after 0.2 s: no controller is active"):
        await cluster.ready(timeout_seconds=0.2)


async def test_the_cluster_is_not_ready_before_its_brokers_know_each_other(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (broker["address"] for broker in cluster_json(cluster)["brokers"])
    monkeypatch.setitem(ListeningView.heard_of, second, {second})

    with pytest.raises(ClusterError, match="broker-2 does not know broker-1 yet;"):
        await cluster.ready(timeout_seconds=1)
    monkeypatch.setitem(ListeningView.heard_of, second, {first, second})
    await cluster.ready()


async def test_the_cluster_is_not_ready_before_a_serving_controller_is_registered(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ListeningView, "unregistered", {2})

    with pytest.raises(ClusterError, match="controller 2 is not registered;"):
        await cluster.ready(timeout_seconds=1)
    monkeypatch.setattr(ListeningView, "unregistered", set())
    await cluster.ready()


async def test_a_killed_broker_is_restarted_in_its_place(cluster: LocalCluster) -> None:
    await cluster.ready()
    before = cluster_json(cluster)["brokers"][0]

    await cluster.kill(1)
    killed = cluster_json(cluster)["brokers"][0]
    cluster.start_broker(1)
    await cluster.ready()
    after = cluster_json(cluster)["brokers"][0]

    assert killed == {**before, "pid": None}
    assert after == {**before, "pid": cluster.broker_process(1).pid}
    assert not cluster.died()


async def test_controllers_end_before_brokers(cluster: LocalCluster) -> None:
    await cluster.ready()

    await cluster.stop()

    ended = (cluster.directory / "ended").read_text().split()
    assert sorted(ended[:2]) == ["controller-1", "controller-2"]
    assert sorted(ended[2:]) == ["broker-1", "broker-2"]


async def test_after_a_stop_the_file_names_no_process(cluster: LocalCluster) -> None:
    await cluster.stop()

    content = cluster_json(cluster)
    assert [part["pid"] for part in content["controllers"] + content["brokers"]] == [None] * 4


async def test_a_restarted_cluster_has_the_same_addresses(cluster: LocalCluster) -> None:
    addresses = cluster.bootstrap
    await cluster.stop()

    again = new_cluster(cluster.directory)
    await again.start()
    try:
        assert again.bootstrap == addresses
    finally:
        await again.stop()


async def test_a_second_cluster_in_the_directory_is_rejected(cluster: LocalCluster) -> None:
    with pytest.raises(DirectoryInUseError, match="choose another directory"):
        await new_cluster(cluster.directory).start()

    await cluster.ready()


async def test_a_dead_part_is_reported_with_its_log(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, broker_config={"rack": "on fire"})
    await cluster.start()
    try:
        with pytest.raises(
            ClusterError, match=r"broker-\d has exited unexpectedly \(exit status 1\)"
        ) as raised:
            await cluster.ready()
        assert "the rack is on fire" in str(raised.value)
    finally:
        await cluster.stop()


def environment_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


async def test_settings_reach_the_services_and_override_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_RACK", "elsewhere")
    monkeypatch.setenv("TIDELOG_LOG_LEVEL", "debug")
    cluster = new_cluster(tmp_path, broker_config={"rack": "here"})
    await cluster.start()
    await cluster.ready()
    environment = environment_of(cluster.broker_process(2).pid)
    await cluster.stop()

    assert "'rack': 'here'" in cluster.broker_process(2).log_tail()
    assert f"'data_dir': '{tmp_path}/brokers/2'" in cluster.broker_process(2).log_tail()
    assert "TIDELOG_RACK" not in environment
    assert "TIDELOG_LOG_LEVEL=debug" in environment


async def test_an_unknown_part_is_answered_with_the_existing_ones(
    cluster: LocalCluster,
) -> None:
    with pytest.raises(ClusterError, match="there is no broker 7; there are: 1, 2"):
        await cluster.kill(7)


async def test_a_gateway_knows_the_services_and_ends_before_them(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, gateway=True)
    await cluster.start()
    await cluster.ready()
    part = cluster_json(cluster)["gateway"]
    log = cluster.gateway_process.log_tail()
    await cluster.stop()

    assert part == {"address": cluster.gateway_address, "pid": part["pid"]}
    addresses = [cluster.broker_address(i) for i in (1, 2)]
    assert f"'bootstrap': {addresses}" in log
    assert (tmp_path / "ended").read_text().split()[0] == "admin-api"


async def test_the_cluster_is_not_ready_while_its_gateway_does_not_answer(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, gateway=True)
    await cluster.start()
    try:
        await cluster.ready()
        cluster.gateway_process.pause()
        with pytest.raises(ClusterError, match=r"admin-api at .* does not answer"):
            await cluster.ready(timeout_seconds=1.5)
    finally:
        await cluster.stop()


async def test_a_gateway_keeps_its_address(tmp_path: Path) -> None:
    addresses = []
    for _ in range(2):
        cluster = new_cluster(tmp_path, gateway=True)
        await cluster.start()
        addresses.append(cluster.gateway_address)
        await cluster.stop()
    assert addresses[0] == addresses[1]


async def test_a_broker_added_at_run_time_is_a_part_of_the_cluster(
    cluster: LocalCluster,
) -> None:
    assert cluster.add_broker() == 3
    await cluster.ready()

    part = cluster_json(cluster)["brokers"][2]
    targets = json.loads((cluster.directory / "prometheus-targets.json").read_text())
    assert part["id"] == 3
    assert part["pid"] == cluster.broker_process(3).pid
    assert cluster.bootstrap.endswith(part["address"])
    assert targets[-1]["labels"]["service"] == "broker-3"
    assert len({p["address"] for p in cluster_json(cluster)["brokers"]}) == 3


async def test_an_added_broker_is_stopped_and_restarted_with_the_others(
    cluster: LocalCluster,
) -> None:
    cluster.add_broker()
    await cluster.ready()
    address = cluster.broker_address(3)
    await cluster.stop()
    assert cluster_json(cluster)["brokers"][2]["pid"] is None

    await cluster.start()
    await cluster.ready()

    assert cluster.broker_ids == [1, 2, 3]
    assert cluster.broker_address(3) == address


async def test_a_stopped_cluster_accepts_no_added_broker(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="start it first"):
        new_cluster(tmp_path).add_broker()


@pytest.mark.parametrize("wrong", ["nonsense", "http://127.0.0.1:2379", ":2379", "a:1,b:2"])
async def test_an_invalid_etcd_address_is_rejected_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("TIDELOG_ETCD", wrong)
    cluster = LocalCluster(tmp_path, usual_ports=False)
    with pytest.raises(ClusterError, match=r"TIDELOG_ETCD is .*; give one address as host:port"):
        await cluster.start()
    assert cluster.processes() == []
