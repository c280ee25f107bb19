"""`make up` reports a file that it cannot write in one line, before anything starts, and leaves
nothing running."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidelog_runtime.local import __main__ as make_up
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import ClusterFile
from tidelog_runtime.local.data_directory import DirectoryLock
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.local.start_requests import answer_requests
from unit.local.test_cluster import new_cluster

# A directory in the way stops root, too; permissions do not.
WRITTEN = [
    "cluster.json",
    "prometheus-targets.json",
    "config/broker-2.toml",
    "config/controller-1.toml",
    "config/admin-api.toml",
    "logs/etcd.log",
    "logs/broker-1.log",
    "logs/admin-api.log",
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes that were started. None is."""
    names: list[str] = []
    monkeypatch.setattr(LocalProcess, "start", lambda process: names.append(process.name))
    monkeypatch.delenv("TIDELOG_ETCD", raising=False)
    return names


def error_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert make_up.main(["--directory", str(directory)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("The cluster cannot run: ")
    DirectoryLock(directory).release()  # nothing holds it any more
    return line


@pytest.mark.parametrize("name", WRITTEN)
def test_a_directory_in_the_way_of_a_file_is_found_before_anything_starts(
    name: str, tmp_path: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).mkdir(parents=True)
    line = error_line(tmp_path, capsys)
    assert f"Is a directory: {tmp_path / name}); choose another one by --directory" in line
    assert line.endswith(f"or move {tmp_path / name} away")
    assert started == []


@pytest.mark.parametrize("folder", ["config", "logs"])
def test_a_file_in_the_way_of_a_folder_is_found_before_anything_starts(
    folder: str, tmp_path: Path, started: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / folder).touch()
    assert error_line(tmp_path, capsys).endswith(f"or move {tmp_path / folder} away")
    assert started == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "correct the permissions of {}"),
        (errno.EROFS, "mount the file system of {} for writing"),
        (errno.ENOSPC, "choose a directory on another disk"),
        (errno.EIO, "check the file system of {}"),
    ],
)
def test_a_directory_that_became_unwritable_is_found_before_anything_starts(
    number: int,
    remedy: str,
    tmp_path: Path,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its lock and its subdirectories can be written."""
    touch = Path.touch

    def rejects_new_files(path: Path, *options: Any, **named: Any) -> None:
        if path.parent == tmp_path:
            raise OSError(number, os.strerror(number), str(path))
        touch(path, *options, **named)

    monkeypatch.setattr(Path, "touch", rejects_new_files)
    assert error_line(tmp_path, capsys).endswith(remedy.format(tmp_path))
    assert started == []


def test_an_error_without_a_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: LocalCluster) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalCluster, "start", fails)
    assert f"Input/output error: {tmp_path}" in error_line(tmp_path, capsys)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "Address already in use"),
        (OSError(errno.EMFILE, "Too many open files", "x.log"), "Too many open files: x.log"),
        (FileNotFoundError(errno.ENOENT, "No such file", "etcd"), "No such file: etcd"),
        (TimeoutError("timed out"), "timed out"),
    ],
)
def test_an_error_of_no_file_of_the_directory_does_not_name_the_directory(
    error: OSError,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: LocalCluster) -> None:
        raise error

    monkeypatch.setattr(LocalCluster, "start", fails)
    assert error_line(tmp_path, capsys) == f"The cluster cannot run: {text}"


async def test_a_cluster_that_cannot_write_its_addresses_stops_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied", str(tmp_path / "cluster.json"))

    cluster = new_cluster(tmp_path)
    monkeypatch.setattr(ClusterFile, "write", fails)
    with pytest.raises(OSError, match="Permission denied"):
        await cluster.start()
    assert [process.started_pid is not None for process in cluster.processes()] == [True] * 4
    assert not any(process.running for process in cluster.processes())
    DirectoryLock(tmp_path).release()


def test_a_partial_file_of_addresses_is_removed(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(IsADirectoryError):
        ClusterFile("default", "127.0.0.1:1", [], []).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_request_that_fails_for_a_file_is_answered_and_the_cluster_keeps_running(
    tmp_path: Path,
) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "broker-2").touch()

    def fails(_: str) -> None:
        raise OSError(errno.EACCES, "Permission denied", str(tmp_path / "cluster.json"))

    assert list(answer_requests(tmp_path, fails)) == []
    answer = (tmp_path / "start" / "broker-2.answer").read_text()
    assert "Permission denied" in answer


def test_a_request_whose_answer_cannot_be_written_does_not_end_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "start" / "broker-2.answer").mkdir(parents=True)
    (tmp_path / "start" / "broker-2").touch()
    assert list(answer_requests(tmp_path, lambda _: None)) == ["broker-2"]
    assert list(answer_requests(tmp_path, lambda _: None)) == []


def test_a_request_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "start").touch()
    assert make_up.main(["--directory", str(tmp_path), "--start", "broker-2"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"or move {tmp_path / 'start'} away")
    lock.release()
