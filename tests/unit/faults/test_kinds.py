"""The measured effect of a fault is what the fault did."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from faults.effects import lacking
from faults.kinds.disk import flip_bit
from faults.kinds.etcd import kill_all_etcd
from faults.kinds.process import stop_controller, stop_leader
from faults.scene import Scene
from unit.faults.segments import write_segment


class Cluster:
    """Services always come back with other processes. `ended`: members of etcd that ended."""

    brokers: Sequence[str] = ()
    etcd_members = ("etcd-1", "etcd-2", "etcd-3")

    def __init__(self, *, is_clean: bool = True, ended: int = 3, data_dir: Path = Path()) -> None:
        self._data_dir = data_dir
        self._is_clean = is_clean
        self._ended = ended
        self._incarnations = 0

    async def terminate(self, _: str) -> bool:
        return self._is_clean

    async def incarnation(self, _: str) -> str:
        self._incarnations += 1
        return str(self._incarnations)

    async def kill(self, _: str) -> None:
        pass

    def data_dir(self, _: str) -> Path:
        return self._data_dir

    def log_since_now(self, _: str) -> None:
        return None

    async def kill_all_etcd(self) -> int:
        return self._ended


class PresentScene:
    """A scene in which every requested service is present."""

    topic = "sea"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def busiest_leader(self) -> str:
        return "broker-1"

    async def follower_and_leader(self) -> tuple[str, str]:
        return "broker-2", "broker-1"

    async def active_controller(self) -> str:
        return "controller-1"

    async def describe(self) -> None:
        return None


def scene(**cluster: Any) -> Scene:
    return cast(Scene, PresentScene(Cluster(**cluster)))


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_stop_that_ended_in_a_kill_is_not_a_stop(is_clean: bool) -> None:
    measured = await (await stop_leader(scene(is_clean=is_clean))).measured()
    assert (lacking("stop_leader", measured) == []) is is_clean
    measured = await (await stop_controller(scene(is_clean=is_clean))).measured()
    assert measured["clean_ends"] == is_clean


@pytest.mark.parametrize(("ended", "all_ended"), [(1, 0), (2, 0), (3, 1)])
async def test_etcd_is_down_when_all_of_its_members_ended(ended: int, all_ended: int) -> None:
    measured = await (await kill_all_etcd(scene(ended=ended))).measured()

    assert measured["all_ended"] == all_ended


async def test_a_bit_flip_strikes_a_newest_segment_with_enough_data(tmp_path: Path) -> None:
    for number, batches in enumerate((0, 40, 2)):
        write_segment(tmp_path / "replicas" / f"sea-{number}.id", batches)

    active = await flip_bit(scene(data_dir=tmp_path))

    assert "sea-1.id/" in active.target
