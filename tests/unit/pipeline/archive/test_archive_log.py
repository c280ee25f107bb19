"""The writer may be killed between any two steps on the file system."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import archive_log
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commit_json import UncommittedFilesError
from tidelog_pipeline.archive.core.commits import AddedFile, Commit
from tidelog_pipeline.archive.layout import LOCK
from tidelog_pipeline.storage import directory as storage
from tidelog_pipeline.storage.directory import Directory
from unit.pipeline.archive.commit_steps import (
    HOUR,
    EndedError,
    ending_log,
    log_at,
    put,
    visible_rows,
)


def add(log: ArchiveLog) -> None:
    put(log, ["c", "d"])


def merge(log: ArchiveLog) -> None:
    put(log, ["ab"], replaces=HOUR)


def cannot_exchange(first: Path, second: Path) -> bool:  # noqa: ARG001
    return False


@pytest.mark.rule("archive-commit-is-one-file")
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize(
    ("act", "before", "after"),
    [(add, ["a", "b"], ["a", "b", "c", "d"]), (merge, ["a", "b"], ["ab"])],
)
def test_a_commit_is_atomic(
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
        log = log_at(root)
        log.recover()
        put(log, ["a"])
        put(log, ["b"])
        log = ending_log(root, ends_at)
        try:
            act(log)
            is_ended = False
        except EndedError:
            is_ended = True
        recovered = log_at(root)
        assert recovered.recover() == []
        state = recovered.state
        number = state.number
        outcomes.add(number)
        assert visible_rows(root) == (after if number == 3 else before)
        assert [Path(path).stem for path in state.paths] == visible_rows(root)
        if not is_ended:
            break
    assert outcomes == {2, 3}


@pytest.mark.rule("archive-hour-exchanged-in-one-step")
def test_an_interrupted_swap_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted at each of the three steps of a swap without an atomic exchange."""
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


@pytest.mark.rule("archive-commit-is-one-file")
def test_an_existing_file_is_never_written_through_a_leftover_of_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was killed between the link and the removal of the first name."""
    directory = Directory(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        directory.create("1.json", b"first")
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(FileExistsError):
        directory.create("1.json", b"second")
    assert directory.read("1.json") == b"first"


def test_two_directories_are_exchanged_atomically_on_this_machine(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert storage._exchanged(tmp_path / "first", tmp_path / "second")
    assert Directory(tmp_path).names("first") == ["second"]


def test_only_new_commits_are_read_after_the_saved_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "STATE_EVERY", 4)
    log = log_at(tmp_path / "archive")
    log.recover()
    for n in range(11):
        put(log, [str(n)])
    assert log.state_directory.names("state") == ["000000000004.json", "000000000008.json"]
    assert log.state_directory.names("log")[0] == "000000000004.json"
    assert log_at(tmp_path / "archive").load() == log.state


def test_a_staged_file_and_hidden_files_need_no_commit(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    log = log_at(root)
    put(log, ["a"])
    Path(log.stage(), HOUR).mkdir(parents=True)
    Path(log.stage(), "c.parquet").parent.mkdir(parents=True, exist_ok=True)
    (root / HOUR / "_SUCCESS").write_text("")
    (root / "notes.txt").write_text("")
    assert log_at(root).recover() == []


def test_a_second_writer_learns_which_process_is_the_first(tmp_path: Path) -> None:
    first, second = Directory(tmp_path), Directory(tmp_path)
    is_locked = pytest.raises(TidelogError, match=r"is being written by process \d+")
    with first.held(LOCK), is_locked, second.held(LOCK):
        pass
    with second.held(LOCK):
        pass


class BusyDirectory(Directory):
    """A directory whose writer continues while its files are listed."""

    def __init__(self, root: Path, writes: Callable[[], None]) -> None:
        super().__init__(root)
        self.writes = [writes]

    def files(self, path: str) -> list[str]:
        found = super().files(path)
        if self.writes:
            self.writes.pop()()
        return found


@pytest.mark.rule("archive-counted-by-leader-epoch")
@pytest.mark.parametrize("write", [add, merge])
def test_state_and_files_are_of_the_same_moment(
    tmp_path: Path, write: Callable[[ArchiveLog], None]
) -> None:
    root = tmp_path / "archive"
    writer = log_at(root)
    put(writer, ["a", "b"])
    reader = log_at(root, BusyDirectory(root, lambda: write(writer)))
    found = reader.snapshot(lambda _: None)
    assert found.state.number == 2
    assert list(found.files) == found.state.paths


def test_a_reader_waits_for_files_being_published(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    put(log_at(root), ["a", "b"])
    # Its commit exists, and one of its two files is published.
    ended = ending_log(root, ends_at=3)
    with pytest.raises(EndedError):
        add(ended)
    reader, writer = log_at(root), log_at(root)
    assert len(reader.load().paths) == 4
    assert len(Directory(root).files(".")) == 3
    found = reader.snapshot(lambda _: writer.recover())
    assert list(found.files) == found.state.paths
    assert reader.snapshot(lambda _: None) == found


def remove(log: ArchiveLog) -> None:
    """Remove files like `expire`."""
    paths = tuple(log.state.paths)
    log.commit(Commit(log.stage(), 0, removed=paths))


def write_again(log: ArchiveLog) -> None:
    """Write again like `repair`, for a damaged file and for one that no commit names."""
    log.directory.at(f"{HOUR}/unknown.parquet").write_text("unknown")
    staged = Path(log.stage(), HOUR, "c.parquet")
    staged.parent.mkdir(parents=True)
    staged.write_text("c")
    removed = (f"{HOUR}/b.parquet", f"{HOUR}/unknown.parquet")
    added = AddedFile(f"{HOUR}/c.parquet", 1, 1)
    staging = str(staged.parents[3])
    log.commit(Commit(staging, 0, (added,), removed=removed, keeps_removed=True))


@pytest.mark.rule("archive-lost-files-are-restored")
@pytest.mark.parametrize(
    ("act", "after", "aside"),
    [(remove, [], []), (write_again, ["a", "c"], ["b", "unknown"])],
)
def test_a_commit_that_removes_files_is_finished_wherever_it_was_interrupted(
    tmp_path: Path, act: Callable[[ArchiveLog], None], after: list[str], aside: list[str]
) -> None:
    numbers = set()
    for ends_at in itertools.count():
        root = tmp_path / str(ends_at)
        put(log_at(root), ["a", "b"])
        log = ending_log(root, ends_at)
        with contextlib.suppress(EndedError):
            act(log)
        recovered = log_at(root)
        with contextlib.suppress(UncommittedFilesError):
            recovered.recover()
        numbers.add(recovered.state.number)
        if recovered.state.number == 2:
            assert visible_rows(root) == after
            assert [Path(path).stem for path in recovered.state.paths] == after
            kept = recovered.state_directory.files("removed/000000000002")
            assert [Path(path).stem for path in kept] == aside
            assert list(root.iterdir()) if after else not list(root.iterdir())
        if log.state.number == 2 and log.state_directory.steps.left > 0:  # type: ignore[attr-defined]
            break
    assert numbers == {1, 2}


@pytest.mark.parametrize("act", [add, merge])
def test_a_lost_file_of_the_last_commit_is_detected_and_the_others_stay(
    tmp_path: Path, act: Callable[[ArchiveLog], None]
) -> None:
    root = tmp_path / "archive"
    put(log_at(root), ["a", "b"])
    log = log_at(root)
    log.load()
    act(log)
    lost = log.state.paths[-1] if act is add else log.state.paths[0]
    log.directory.remove(lost)
    writer = log_at(root)
    assert writer.recover() == [lost]
    assert visible_rows(root) == (["a", "b", "c"] if act is add else [])
    put(writer, ["e"])
    assert log_at(root).recover() == []


def test_a_log_moved_while_it_is_loaded_is_found(tmp_path: Path) -> None:
    root, moved = tmp_path / "archive", tmp_path / "moved"
    writer = log_at(root)
    put(writer, ["a"])
    put(writer, ["b"])
    directories = iter(
        [writer.state_directory, Directory(moved), Directory(moved), Directory(moved)]
    )

    def find() -> Directory:
        found = next(directories)
        if found.root == moved and writer.state_directory.root.exists():
            writer.state_directory.root.rename(moved)
        return found

    reader = ArchiveLog(Directory(root), lambda: writer.state_directory)
    reader._find_state_directory = find
    assert reader.load().number == 2
    assert reader.state_directory.root == moved


def test_unfinished_files_of_killed_writers_are_removed_with_old_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_log, "STATE_EVERY", 2)
    log = log_at(tmp_path / "archive")
    put(log, ["a"])
    commits = log.state_directory.at("log")
    (commits / ".000000000001.json.0123456789abcdef").write_bytes(b"cut")
    (commits / ".000000000001.json.swp").write_bytes(b"of an editor")
    put(log, ["b"])
    hidden = [path.name for path in commits.iterdir() if path.name.startswith(".")]
    assert hidden == [".000000000001.json.swp"]


def test_a_linked_directory_is_of_the_archive_only_if_a_commit_names_its_files(
    tmp_path: Path,
) -> None:
    """A repair would move the files of another archive."""
    put(log_at(tmp_path / "other"), ["a"])
    root = tmp_path / "archive"
    root.mkdir()
    (root / "topic=sea").symlink_to(tmp_path / "other/topic=sea")
    log = log_at(root)
    assert log.recover() == []
    assert log.unnamed_files() == []
    put(log, ["b"])
    assert log.unnamed_files() == [f"{HOUR}/a.parquet"]
