"""The writer may end between any two steps on the file system."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import archive_log
from tidelog_pipeline.archive.archive_log import LOCK, ArchiveLog
from tidelog_pipeline.archive.commits import AddedFile, Commit, ReadRange
from tidelog_pipeline.archive.spans import LogId, Span
from tidelog_pipeline.storage import directory as storage
from tidelog_pipeline.storage.directory import Directory

HOUR = "topic=sea/date=2026-11-22/hour=10"
STEPS = ("create", "publish", "exchange", "remove")


class EndedError(Exception):
    pass


class EndingDirectory(Directory):
    """Ends before its step of this number."""

    def __init__(self, root: Path, ends_at: int) -> None:
        super().__init__(root)
        self.left = ends_at

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STEPS:
            return found

        def step(*given: Any) -> Any:
            if self.left == 0:
                raise EndedError(name)
            self.left -= 1
            return found(*given)

        return step


def put(log: ArchiveLog, names: list[str], *, replaces: str = "") -> None:
    """Commits files whose content is their rows, one line each."""
    staging = log.stage()
    added = []
    for name in names:
        path = log.directory.at(f"{staging}/{HOUR}/{name}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        added.append(AddedFile(f"{HOUR}/{name}.parquet", 1, 1))
    at = log.state.number
    read = () if replaces else (ReadRange(LogId("sea", "id", 0), Span(at, at + 1), 1, 0, {}),)
    log.commit(Commit(staging, 0, tuple(added), read, replaces=replaces))


def seen(root: Path) -> list[str]:
    """By readers, who know nothing of commits."""
    directory = Directory(root)
    return sorted(directory.at(path).read_text() for path in directory.files("."))


def add(log: ArchiveLog) -> None:
    put(log, ["c", "d"])


def merge(log: ArchiveLog) -> None:
    put(log, ["ab"], replaces=HOUR)


def cannot_exchange(first: Path, second: Path) -> bool:  # noqa: ARG001
    return False


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize(
    ("act", "before", "after"),
    [(add, ["a", "b"], ["a", "b", "c", "d"]), (merge, ["a", "b"], ["ab"])],
)
def test_a_commit_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[ArchiveLog], None],
    before: list[str],
    after: list[str],
    exchanges: bool,
) -> None:
    if not exchanges:
        monkeypatch.setattr(storage, "_exchanged", cannot_exchange)
    outcomes = set()
    for ends_at in itertools.count():
        root = tmp_path / str(ends_at)
        log = ArchiveLog(Directory(root))
        log.recover()
        put(log, ["a"])
        put(log, ["b"])
        log = ArchiveLog(EndingDirectory(root, ends_at))
        log.load()
        try:
            act(log)
            is_ended = False
        except EndedError:
            is_ended = True
        state = ArchiveLog(Directory(root)).recover()
        number = state.number
        outcomes.add(number)
        assert seen(root) == (after if number == 3 else before)
        assert [Path(path).stem for path in state.paths] == seen(root)
        if not is_ended:
            break
    assert outcomes == {2, 3}


def test_a_swap_that_was_cut_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no exchange in one step, at each of its three."""
    monkeypatch.setattr(storage, "_exchanged", cannot_exchange)
    for steps in range(3):
        root = tmp_path / str(steps)
        directory = Directory(root)
        for folder in ("new", "old"):
            directory.at(folder).mkdir(parents=True)
            directory.at(f"{folder}/{folder}").touch()
        renames = itertools.count()
        rename = Path.rename

        def ending(path: Path, target: Path, count=renames, last=steps, do=rename) -> Path:  # type: ignore[no-untyped-def]
            if next(count) == last:
                raise EndedError
            return do(path, target)  # type: ignore[no-any-return]

        with monkeypatch.context() as broken:
            broken.setattr(Path, "rename", ending)
            with pytest.raises(EndedError):
                directory.exchange("new", "old")
        if not directory.at("old/new").exists():
            directory.exchange("new", "old")
        assert directory.names("old") == ["new"]


def test_two_directories_change_places_in_one_step_on_this_machine(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert storage._exchanged(tmp_path / "first", tmp_path / "second")
    assert Directory(tmp_path).names("first") == ["second"]


def test_only_what_came_since_is_read_to_know_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "STATE_EVERY", 4)
    log = ArchiveLog(Directory(tmp_path))
    log.recover()
    for n in range(11):
        put(log, [str(n)])
    assert log.directory.names("_archive/state") == ["000000000004.json", "000000000008.json"]
    assert log.directory.names("_archive/log")[0] == "000000000004.json"
    assert ArchiveLog(Directory(tmp_path)).load() == log.state


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    first, second = Directory(tmp_path), Directory(tmp_path)
    told = pytest.raises(TidelogError, match=r"is being written by process \d+")
    with first.held(LOCK), told, second.held(LOCK):
        pass
    with second.held(LOCK):
        pass


class BusyDirectory(Directory):
    """While its files are listed, its writer goes on."""

    def __init__(self, root: Path, writes: Callable[[], None]) -> None:
        super().__init__(root)
        self.writes = [writes]

    def files(self, path: str) -> list[str]:
        found = super().files(path)
        if self.writes:
            self.writes.pop()()
        return found


@pytest.mark.parametrize("write", [add, merge])
def test_state_and_files_are_of_one_moment(
    tmp_path: Path, write: Callable[[ArchiveLog], None]
) -> None:
    writer = ArchiveLog(Directory(tmp_path))
    put(writer, ["a", "b"])
    reader = ArchiveLog(BusyDirectory(tmp_path, lambda: write(writer)))
    found = reader.seen(lambda _: None)
    assert found.state.number == 2
    assert list(found.files) == found.state.paths


def test_files_that_are_being_published_are_awaited(tmp_path: Path) -> None:
    put(ArchiveLog(Directory(tmp_path)), ["a", "b"])
    # Once its commit is there, and one of its two files is published.
    ended = ArchiveLog(EndingDirectory(tmp_path, ends_at=3))
    ended.load()
    with pytest.raises(EndedError):
        add(ended)
    reader, writer = ArchiveLog(Directory(tmp_path)), ArchiveLog(Directory(tmp_path))
    assert len(reader.load().paths) == 4
    assert len(Directory(tmp_path).files(".")) == 3
    found = reader.seen(lambda _: writer.recover())
    assert list(found.files) == found.state.paths
    assert reader.seen(lambda _: None) == found
