"""A command beside `make up` restarts a part that has ended, or starts another broker."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local import __main__ as make_up
from tidelog_runtime.local.addresses import GATEWAY, part_name
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.commands import MAX_MEMBERS
from tidelog_runtime.local.data_directory import DirectoryLock
from tidelog_runtime.local.start_requests import (
    answer_requests,
    request_start,
    start_part,
    start_report,
)
from unit.local.test_cluster import new_cluster


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A directory in which a cluster runs."""
    lock = DirectoryLock(tmp_path)
    yield tmp_path
    lock.release()


def answering(directory: Path, start: Callable[[str], None]) -> Callable[[float], None]:
    """Replaces the pauses of the command; the cluster answers in them."""
    return lambda _: deque(answer_requests(directory, start), maxlen=0).clear()


def test_the_cluster_starts_the_requested_part(held: Path) -> None:
    started: list[str] = []
    request_start(held, "broker-2", sleep=answering(held, started.append))
    assert started == ["broker-2"]
    assert not list((held / "start").iterdir())


def test_an_error_of_the_cluster_is_raised(held: Path) -> None:
    def start(name: str) -> None:
        raise ClusterError(f"{name} is running, as process 7")

    with pytest.raises(ClusterError, match="broker-2 is running, as process 7"):
        request_start(held, "broker-2", sleep=answering(held, start))


@pytest.mark.parametrize("problem", ["", "broker-2 is running"])
def test_a_request_whose_answer_cannot_be_written_is_carried_out_once(
    problem: str, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(name: str) -> None:
        requested.append(name)
        if problem:
            raise ClusterError(problem)

    def fails(path: Path, _: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    requested: list[str] = []
    started: list[str] = []
    monkeypatch.setattr(Path, "write_text", fails)

    def polls(_: float) -> None:
        for _ in range(2):
            started.extend(answer_requests(held, start))

    with pytest.raises(ClusterError, match="could not write its answer"):
        request_start(held, "broker-2", sleep=polls)
    assert requested == ["broker-2"]
    assert started == ([] if problem else ["broker-2"])


def test_an_unanswered_request_times_out_soon(held: Path) -> None:
    with pytest.raises(ClusterError, match="did not answer in 10 s"):
        request_start(held, "broker-2", sleep=lambda _: None)
    assert not list((held / "start").iterdir())


@pytest.mark.parametrize("name", ["../broker", "", "broker-2.answer", "-x"])
def test_only_names_of_parts_are_requested(held: Path, name: str) -> None:
    with pytest.raises(ClusterError, match="is no part of a cluster"):
        request_start(held, name)


def test_without_a_cluster_the_command_to_start_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no cluster runs in .*: .*python -m "):
        request_start(tmp_path, "broker-2")


async def test_a_dead_part_is_reported_in_one_line_and_restarted(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    await cluster.start()
    try:
        await cluster.ready()
        process = cluster.broker_process(2)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        [dead] = cluster.died()
        line = make_up._death(dead, cluster)
        assert line.startswith("broker-2 exited unexpectedly (signal SIGKILL); its log: ")
        assert line.endswith(f"-m tidelog_runtime.local --directory {tmp_path} --start broker-2")
        assert "\n" not in line
        # As in the table of parts.
        cluster.restart("broker 2")
        await cluster.ready()
        with pytest.raises(ClusterError, match="broker-2 is running, as process"):
            cluster.restart("broker-2")
        with pytest.raises(ClusterError, match="there is no part 'broker-9'; there are: contr"):
            cluster.restart("broker-9")
    finally:
        await cluster.stop()


@pytest.mark.parametrize("name", ["broker-3", "broker 3"])
async def test_the_next_broker_id_starts_another_broker(name: str, tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    await cluster.start()
    try:
        await cluster.ready()
        report = start_report(tmp_path, name)
        start_part(cluster, name)
        await cluster.ready()
        again = start_report(tmp_path, name)
        with pytest.raises(ClusterError, match="broker-3 is running, as process"):
            start_part(cluster, name)
    finally:
        await cluster.stop()
    assert cluster.broker_ids == [1, 2, 3]
    assert report.startswith("broker-3 was started.")
    assert report.endswith("tidelog brokers add 3")
    assert again == "broker-3 was started again."


async def test_an_unknown_part_is_rejected_with_the_name_that_adds_a_broker(
    tmp_path: Path,
) -> None:
    cluster = new_cluster(tmp_path)
    await cluster.start()
    try:
        with pytest.raises(ClusterError, match=r"no part 'broker-9'; .*; broker-3 adds a broker"):
            start_part(cluster, "broker-9")
    finally:
        await cluster.stop()
    assert cluster.broker_ids == [1, 2]


def test_a_cluster_on_one_machine_has_a_bounded_number_of_brokers() -> None:
    class LargestCluster:
        broker_ids = range(1, MAX_MEMBERS + 1)

        def add_broker(self) -> int:
            raise AssertionError

        def restart(self, name: str) -> None:
            raise AssertionError(name)

    with pytest.raises(ClusterError, match="at most 99 brokers"):
        start_part(LargestCluster(), f"broker-{MAX_MEMBERS + 1}")


def test_a_part_may_be_requested_as_in_the_table_of_parts(held: Path) -> None:
    started: list[str] = []
    request_start(held, "broker 2", sleep=answering(held, started.append))
    assert started == ["broker-2"]


def test_a_part_may_be_given_as_in_the_table_of_parts() -> None:
    assert part_name("gateway") == GATEWAY
    assert part_name("controller 1") == part_name("controller-1") == "controller-1"


@pytest.mark.parametrize("part", ["broker-2", "etcd"])
def test_the_command_finds_the_cluster_from_every_directory(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = LocalCluster(tmp_path / make_up.DEFAULT_DIRECTORY, etcd="127.0.0.1:1")
    process = type("Dead", (), {})()
    process.name, process.exit_status = part, 1
    process.log_path = cluster.directory / "logs" / f"{part}.log"
    assert make_up._death(process, cluster) == (
        f"{part} exited unexpectedly (exit status 1); its log: .tidelog/logs/{part}.log; start it "
        f"again: {sys.executable} -m tidelog_runtime.local --directory {cluster.directory} --start "
        f"{part}"
    )
