"""The writer may be killed between any two steps on the file system."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import archive_log
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commit_json import DamagedCommitError, UncommittedFilesError
from tidelog_pipeline.archive.core.commits import AddedFile, Commit, ReadRange
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.layout import LOCK
from tidelog_pipeline.storage import directory as storage
from tidelog_pipeline.storage.directory import Directory

HOUR = "topic=sea/date=2026-11-22/hour=10"
STEPS = ("create", "publish", "exchange", "remove")


class EndedError(Exception):
    pass


class Steps:
    def __init__(self, left: int) -> None:
        self.left = left


class EndingDirectory(Directory):
    """Kills the writer before the step of this number, counted over all directories that share
    it."""

    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self.steps = steps

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STEPS:
            return found

        def step(*given: Any) -> Any:
            if self.steps.left == 0:
                raise EndedError(name)
            self.steps.left -= 1
            return found(*given)

        return step


def log_at(root: Path, directory: Directory | None = None) -> ArchiveLog:
    own = Directory(root.with_name(f"{root.name}.state"))
    return ArchiveLog(directory or Directory(root), lambda: own)


def ending_log(root: Path, ends_at: int) -> ArchiveLog:
    steps = Steps(ends_at)
    own = EndingDirectory(root.with_name(f"{root.name}.state"), steps)
    log = ArchiveLog(EndingDirectory(root, steps), lambda: own)
    log.load()
    return log


def put(log: ArchiveLog, names: list[str], *, replaces: str = "") -> None:
    """Commit files whose content is their rows, one line each."""
    staging = log.stage()
    added = []
    for name in names:
        path = Path(f"{staging}/{HOUR}/{name}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        added.append(AddedFile(f"{HOUR}/{name}.parquet", 1, 1))
    at = log.state.number
    read = () if replaces else (ReadRange(LogId("sea", "id", 0), Span(at, at + 1), 1, 0, {}),)
    log.commit(Commit(staging, 0, tuple(added), read, replaces=replaces))


def visible_rows(root: Path) -> list[str]:
    """The rows that readers see, who do not know commits."""
    directory = Directory(root)
    return sorted(directory.at(path).read_text() for path in directory.files("."))


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


def test_a_staged_file_and_hidden_files_need_no_commit(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    log = log_at(root)
    put(log, ["a"])
    Path(log.stage(), HOUR).mkdir(parents=True)
    Path(log.stage(), "c.parquet").parent.mkdir(parents=True, exist_ok=True)
    (root / HOUR / "_SUCCESS").write_text("")
    (root / "notes.txt").write_text("")
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
