"""Commits and states are lost or damaged, and files of others are among them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import archive_log
from tidelog_pipeline.archive.core.commit_json import DamagedCommitError, UncommittedFilesError
from tidelog_pipeline.archive.core.commits import Commit
from unit.pipeline.archive.commit_steps import (
    HOUR,
    EndedError,
    ending_log,
    log_at,
    put,
    visible_rows,
)


def test_an_archive_with_a_damaged_latest_state_is_read_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "STATE_EVERY", 4)
    log = log_at(tmp_path / "archive")
    for n in range(9):
        put(log, [str(n)])
    log.state_directory.at("state/000000000008.json").write_bytes(b"{")
    assert log_at(tmp_path / "archive").load() == log.state
    log.state_directory.at("state/000000000004.json").write_bytes(b"")
    with pytest.raises(
        TidelogError, match=r"state/000000000008\.json is not a readable part of an archive"
    ):
        log_at(tmp_path / "archive").load()


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_commit_is_an_error(tmp_path: Path, number: int) -> None:
    """Otherwise its records would be archived again, and its files would count as unknown."""
    log = log_at(tmp_path / "archive")
    for n in range(3):
        put(log, [str(n)])
    log.state_directory.remove(f"log/{number:012}.json")
    with pytest.raises(DamagedCommitError, match=rf"{number:012}\.json is missing, .* restore it"):
        log_at(tmp_path / "archive").load()


@pytest.mark.rule("archive-commits-are-never-skipped")
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_missing_latest_commits_are_detected_by_their_files(tmp_path: Path, kept: int) -> None:
    """No later commit shows the loss, and the next writer would archive their records again."""
    root = tmp_path / "archive"
    log = log_at(root)
    for n in range(3):
        put(log, [str(n)])
    for number in range(kept + 1, 4):
        log.state_directory.remove(f"log/{number:012}.json")
    later = log_at(root)
    with pytest.raises(UncommittedFilesError, match=r"no commit names .* run `archive repair`"):
        later.recover()
    assert later.unnamed_files() == [f"{HOUR}/{n}.parquet" for n in range(kept, 3)]
    # A repair removes them like this.
    later.commit(Commit(later.stage(), 0, removed=tuple(later.unnamed_files()), keeps_removed=True))
    assert log_at(root).recover() == []


def test_directories_beside_the_topics_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a volume has `lost+found`, which only root may list."""
    root = tmp_path / "archive"
    put(log_at(root), ["a"])
    (root / "lost+found").mkdir()
    (root / "topic=file").write_text("x")
    scandir = os.scandir

    def denied(path: Any) -> Any:
        if "lost+found" in str(path):
            raise PermissionError(errno.EACCES, "denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    log = log_at(root)
    assert log.snapshot(lambda _: None).files == ("topic=file", f"{HOUR}/a.parquet")
    assert log.unnamed_files() == ["topic=file"]


@pytest.mark.rule("archive-commits-are-never-skipped")
@pytest.mark.parametrize("damage", [b"", b"{", None])
def test_a_repair_continues_without_damaged_or_missing_commits(
    tmp_path: Path, damage: bytes | None
) -> None:
    log = log_at(tmp_path / "archive")
    for n in range(4):
        put(log, [str(n)])
    hurt = log.state_directory.at("log/000000000002.json")
    hurt.unlink() if damage is None else hurt.write_bytes(damage)
    with pytest.raises(DamagedCommitError, match="or run `archive repair`"):
        log.recover()
    for keep in (False, True):
        [problem] = log.load_readable(store=keep)
        assert ("commits 2 to 2 are missing" if damage is None else "000000000002.json") in problem
        assert log.state.paths == [f"{HOUR}/{n}.parquet" for n in (0, 2, 3)]
    log.finish_last()
    # Later readers find the same, and the commits behind it, after the repair.
    later = log_at(tmp_path / "archive")
    with pytest.raises(UncommittedFilesError):
        later.recover()
    assert later.state == log.state
    later.directory.remove(f"{HOUR}/1.parquet")
    assert later.recover() == []
    put(later, ["4"])
    assert log_at(tmp_path / "archive").load().paths == later.state.paths
    assert len(later.state.paths) == 4


def test_a_repair_continues_with_the_remaining_commits_when_no_state_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "STATE_EVERY", 4)
    log = log_at(tmp_path / "archive")
    for n in range(9):
        put(log, [str(n)])
    for name in log.state_directory.names("state"):
        log.state_directory.at(f"state/{name}").write_bytes(b"")
    problems = log.load_readable(store=True)
    assert [problem.split()[0] for problem in problems] == [
        "state/000000000008.json",
        "state/000000000004.json",
        "commits",
    ]
    assert log.state.paths == [f"{HOUR}/{n}.parquet" for n in range(3, 9)]
    assert log_at(tmp_path / "archive").load() == log.state


@pytest.mark.rule("archive-commits-are-never-skipped")
@pytest.mark.parametrize("is_last_damaged", [False, True])
def test_a_repair_keeps_the_files_of_a_last_commit_that_was_not_finished(
    tmp_path: Path, is_last_damaged: bool
) -> None:
    """The topic may not have its records any more."""
    root = tmp_path / "archive"
    before = log_at(root)
    for n in range(2):
        put(before, [str(n)])
    with pytest.raises(EndedError):
        # Its commit exists, and neither of its files is published.
        put(ending_log(root, 2), ["c", "d"])
    log = log_at(root)
    assert log.load().number == 3
    assert visible_rows(root) == ["0", "1"]
    log.state_directory.at(f"log/{3 if is_last_damaged else 1:012}.json").write_bytes(b"{")
    log.load_readable(store=False)
    assert visible_rows(root) == ["0", "1"]
    log.load_readable(store=True)
    assert log.finish_last() == []
    if is_last_damaged:
        kept = sorted(log.state_directory.at("removed").rglob("*.parquet"))
        assert [path.read_text() for path in kept] == ["c", "d"]
        assert str(kept[0]).endswith(f"{HOUR}/c.parquet")
    else:
        assert visible_rows(root) == ["0", "1", "c", "d"]
        assert [Path(path).stem for path in log.state.paths] == ["1", "c", "d"]


@pytest.mark.rule("archive-commits-are-never-skipped")
@pytest.mark.parametrize("folder", ["log", "state"])
@pytest.mark.parametrize("name", ["000000000004.json~", "README", "copy of 000000000002.json"])
def test_files_of_other_names_are_no_commits(tmp_path: Path, folder: str, name: str) -> None:
    """An editor leaves copies, and a person notes."""
    log = log_at(tmp_path / "archive")
    for n in range(3):
        put(log, [str(n)])
    path = log.state_directory.at(f"{folder}/{name}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    later = log_at(tmp_path / "archive")
    assert later.recover() == []
    assert later.state == log.state
    assert later.load_readable(store=False) == []


@pytest.mark.rule("archive-commits-are-never-skipped")
def test_a_commit_that_the_disk_does_not_return_is_damaged(tmp_path: Path) -> None:
    log = log_at(tmp_path / "archive")
    for n in range(3):
        put(log, [str(n)])
    # A directory, in the place of a bad sector: its error is of the same kind.
    path = log.state_directory.at("log/000000000002.json")
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedCommitError, match=r"000000000002.json cannot be read \(Is a dir"):
        log.recover()
    assert log.load_readable(store=True) == [
        "log/000000000002.json cannot be read (Is a directory)"
    ]
    assert log_at(tmp_path / "archive").load().paths == [f"{HOUR}/{n}.parquet" for n in (0, 2)]
