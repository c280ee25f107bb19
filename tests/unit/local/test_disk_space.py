"""A cluster with a full disk says so in one line: before it starts, while it runs, and at its
end."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog_runtime.local import __main__ as make_up
from tidelog_runtime.local import data_directory
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import ClusterFile
from tidelog_runtime.local.data_directory import (
    DirectoryLock,
    DiskFullError,
    check_space,
    free_bytes,
)
from tidelog_runtime.local.etcd_member import LocalEtcd, _Ports
from tidelog_runtime.local.start_requests import request_start
from unit.local.test_cluster import new_cluster
from unit.local.test_make_up_lines import dead_broker


def fill(monkeypatch: pytest.MonkeyPatch, free: int = 0) -> None:
    monkeypatch.setattr(data_directory, "free_bytes", lambda _directory: free)


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_missing_directory_is_measured_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0
    check_space(tmp_path / "a" / "b")


@pytest.mark.parametrize(("free", "needed"), [(0, 160), (100_000_000, 160)])
def test_a_disk_too_small_for_a_first_start_is_one_line(
    free: int,
    needed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TIDELOG_ETCD", raising=False)
    fill(monkeypatch, free)
    assert make_up.main(["--directory", str(tmp_path / "c")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("The cluster cannot run: the disk of ")
    assert f"at least {needed} MB are needed to start; free some of it" in line


def test_a_disk_without_inodes_is_one_line_that_does_not_name_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = os.statvfs_result((4096, 4096, 10**6, 10**6, 10**6, 1_000, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    assert free_bytes(tmp_path) == 0
    assert make_up.main(["--directory", str(tmp_path / "c")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the disk of {tmp_path / 'c'} has no inodes left" in line
    assert "MB" not in line


def test_a_disk_that_fills_during_the_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalCluster, "start", no_space)
    assert make_up.main(["--directory", str(tmp_path / "c")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "free some of it" in line


def test_an_etcd_that_ends_for_lack_of_space_shows_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = LocalEtcd(tmp_path, tmp_path / "log", _Ports(1, 2), fsync=True)
    (tmp_path / "log").write_text("goroutine 1 [running]:\n")
    assert "goroutine" in str(etcd._error("ended"))
    fill(monkeypatch)
    assert "goroutine" not in str(etcd._error("ended"))


async def test_a_cluster_on_a_full_disk_stops_and_restarts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(tmp_path)
    await cluster.start()
    fill(monkeypatch)
    monkeypatch.setattr(ClusterFile, "write", no_space)
    await cluster.broker_process(2).kill()
    with pytest.raises(DiskFullError):
        cluster.restart("broker-2")
    with pytest.raises(DiskFullError):
        request_start(tmp_path, "broker-2")
    await cluster.stop()
    DirectoryLock(tmp_path).release()


def test_the_message_of_a_dead_part_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_up, "how_it_ended", lambda _: "exit status 1")
    assert "is full" not in make_up._death(*dead_broker(tmp_path))
    fill(monkeypatch)
    line = make_up._death(*dead_broker(tmp_path))
    assert f"the disk of {tmp_path} is full, so free some of it first; start it again:" in line
