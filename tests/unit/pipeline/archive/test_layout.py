"""The table directory holds only committed files; the state directory is beside it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import archive_job
from tidelog_pipeline.archive import layout as layout_module
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.layout import FORMER, LOCK, ArchiveLayout
from tidelog_pipeline.job_command import JobError
from tidelog_pipeline.job_runner import EXIT_FAULT
from tidelog_pipeline.storage.directory import Directory

HOUR = "topic=sea/date=2026-11-22/hour=10"
PATHS = [f"{HOUR}/{name}.parquet" for name in "abcd"]


class EndedError(Exception):
    pass


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit_of_previous_release(root: Path, number: int, paths: list[str]) -> None:
    staging = f"{FORMER}/staging/{number:012}"
    value = {
        "version": 1,
        "staging": staging,
        "committed_at_ms": 0,
        "query": "query",
        "batch": number,
        "replaces": "",
        "added": [[path, 1, 1] for path in paths],
        "read": [],
    }
    write(root / f"{FORMER}/log/{number:012}.json", json.dumps(value))


def previous_archive(root: Path) -> Path:
    """Two commits, the second of which was killed after it had published one of its two files,
    and files of a third, uncommitted one."""
    write(root / FORMER / LOCK, "process 1 on sea")
    write(root / FORMER / "checkpoint/metadata", "{}")
    commit_of_previous_release(root, 1, PATHS[:2])
    commit_of_previous_release(root, 2, PATHS[2:])
    for path in PATHS[:3]:
        write(root / path, "x")
    write(root / f"{FORMER}/staging/000000000002/{PATHS[3]}", "x")
    write(root / f"{FORMER}/staging/000000000003/{HOUR}/e.parquet", "x")
    return root


def visible_files(root: Path) -> list[str]:
    """The files that match `OUTPUT/**/*.parquet`."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))


def test_a_new_archive_has_its_state_beside_the_table(tmp_path: Path) -> None:
    layout = ArchiveLayout(Directory(tmp_path / "archive"))
    with layout.held_by_writer() as own:
        assert own.root == tmp_path / "archive.state"
        assert layout.current_state().root == own.root
    assert list((tmp_path / "archive").iterdir()) == []


@pytest.mark.rule("archive-table-holds-committed-files")
@pytest.mark.parametrize("step", ["rename", "sync_directory", None])
def test_an_archive_of_a_previous_release_is_migrated_wherever_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    root = previous_archive(tmp_path / "archive")
    layout = ArchiveLayout(Directory(root))
    before = ArchiveLog(Directory(root), layout.current_state)
    assert before.load().paths == PATHS
    assert before.state_directory.root == root / FORMER, "a reader moves nothing"

    def end(*_: Any) -> None:
        raise EndedError

    with monkeypatch.context() as broken:
        if step is not None:
            of = Path if step == "rename" else layout_module
            broken.setattr(of, step, end)
            with pytest.raises(EndedError), layout.held_by_writer():
                pass
            assert ArchiveLog(Directory(root), layout.current_state).load().paths == PATHS
    with layout.held_by_writer() as own:
        writer = ArchiveLog(Directory(root), lambda: own)
        assert writer.recover() == []
        assert writer.state.paths == PATHS
        assert writer.state.batches["query"] >= 2
        assert own.read("checkpoint/metadata") == b"{}"
    assert visible_files(root) == PATHS
    assert not (root / FORMER).exists()
    with layout.held_by_writer() as own:
        assert ArchiveLog(Directory(root), lambda: own).load().paths == PATHS


def test_an_archive_being_written_by_a_previous_release_is_not_migrated(tmp_path: Path) -> None:
    root = previous_archive(tmp_path / "archive")
    held = Directory(root).held(f"{FORMER}/{LOCK}")
    busy = pytest.raises(TidelogError, match=r"archive is being written by process \d+")
    with held, busy, ArchiveLayout(Directory(root)).held_by_writer():
        pass
    assert (root / FORMER / "log").exists()


def test_an_archive_written_again_by_a_previous_release_is_rejected(tmp_path: Path) -> None:
    root = previous_archive(tmp_path / "archive")
    with ArchiveLayout(Directory(root)).held_by_writer():
        pass
    write(root / FORMER / LOCK, "")
    twice = pytest.raises(JobError, match=r"both have commits")
    with twice, ArchiveLayout(Directory(root)).held_by_writer():
        pass


def test_two_writers_that_migrate_at_once_find_one_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = previous_archive(tmp_path / "archive")
    layout, faster = ArchiveLayout(Directory(root)), ArchiveLayout(Directory(root))
    check = layout._has_commits

    def check_later() -> bool:
        with faster.held_by_writer():
            pass
        return check()

    monkeypatch.setattr(layout, "_has_commits", check_later)
    with layout.held_by_writer() as own:
        assert ArchiveLog(Directory(root), lambda: own).load().paths == PATHS


@pytest.mark.rule("archive-table-holds-committed-files")
def test_other_files_in_the_place_of_the_state_directory_are_no_commits(tmp_path: Path) -> None:
    """The advice to remove the former directory would cost the archive its commits."""
    root = previous_archive(tmp_path / "archive")
    layout = ArchiveLayout(Directory(root))
    write(tmp_path / "archive.state/notes", "x")
    in_place = pytest.raises(JobError, match=r"archive.state has files and no commits.* move these")
    with in_place, layout.held_by_writer():
        pass
    assert ArchiveLog(Directory(root), layout.current_state).load().paths == PATHS
    (tmp_path / "archive.state/notes").unlink()
    with layout.held_by_writer() as own:
        assert ArchiveLog(Directory(root), lambda: own).load().paths == PATHS


@pytest.mark.rule("archive-table-holds-committed-files")
def test_a_table_without_its_state_directory_is_rejected(tmp_path: Path) -> None:
    """Otherwise a run would archive everything a second time."""
    root = tmp_path / "archive"
    write(root / PATHS[0], "x")
    layout = ArchiveLayout(Directory(root))
    missing = r"no commits of an archive in .*archive\.state: set state_directory"
    with pytest.raises(JobError, match=missing), layout.held_by_writer():
        pass
    with pytest.raises(JobError, match=missing):
        layout.current_state()


def test_a_state_directory_belongs_to_one_archive(tmp_path: Path) -> None:
    chosen = tmp_path / "states" / "sea"
    with ArchiveLayout(Directory(tmp_path / "sea"), chosen).held_by_writer() as own:
        assert own.root == chosen
    another = ArchiveLayout(Directory(tmp_path / "land"), chosen)
    with pytest.raises(JobError, match=r"of another archive \(\.\./\.\./sea,"):
        another.current_state()
    # Both were moved together.
    (tmp_path / "moved").mkdir()
    for name in ("sea", "states"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    moved = ArchiveLayout(Directory(tmp_path / "moved/sea"), tmp_path / "moved/states/sea")
    assert moved.current_state().root == tmp_path / "moved/states/sea"


def test_a_damaged_name_of_the_archive_is_explained(tmp_path: Path) -> None:
    chosen = tmp_path / "states"
    layout = ArchiveLayout(Directory(tmp_path / "sea"), chosen)
    with layout.held_by_writer():
        pass
    for text in (b"", b"{", b"[]", b"{}"):
        (chosen / "table.json").write_bytes(text)
        with pytest.raises(JobError, match=r"table.json is damaged.*: remove it if"):
            layout.current_state()


def test_what_is_no_archive_is_not_an_archive_without_faults(tmp_path: Path) -> None:
    """A mistyped path, and the mount point of a volume that is not mounted."""
    root = tmp_path / "archive"
    layout = ArchiveLayout(Directory(root))
    for _ in range(2):
        with pytest.raises(JobError, match=r"no archive in .*archive.* volume is mounted"):
            layout.check_exists()
        root.mkdir(exist_ok=True)
    assert not list(root.iterdir())
    assert not layout.state_root.exists()
    with layout.held_by_writer():
        pass
    layout.check_exists()
    ArchiveLayout(Directory(previous_archive(tmp_path / "former"))).check_exists()


@pytest.mark.parametrize("action", ["reconcile", "compact", "expire", "repair"])
def test_an_action_that_creates_no_archive_needs_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    flags = ["--before", "2026-11-22"] if action == "expire" else []
    assert archive_job.main([action, "--output", str(tmp_path / "a"), *flags]) == EXIT_FAULT
    assert "there is no archive in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("chosen", ["archive", ".", "archive/state"])
def test_a_state_directory_visible_to_readers_is_rejected(tmp_path: Path, chosen: str) -> None:
    with pytest.raises(JobError, match="state_directory"):
        ArchiveLayout(Directory(tmp_path / "archive"), tmp_path / chosen)


def test_a_state_directory_may_stay_where_previous_releases_had_it(tmp_path: Path) -> None:
    """If OUTPUT is a mount point, nothing beside it is on its file system."""
    root = previous_archive(tmp_path / "archive")
    layout = ArchiveLayout(Directory(root), root / FORMER)
    with layout.held_by_writer() as own:
        assert ArchiveLog(Directory(root), lambda: own).load().paths == PATHS
    assert (root / FORMER / "log").exists()


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EXDEV, "on another file system .*: mount a volume that holds both"),
        (errno.EACCES, "cannot be written .*Permission denied.*: let this user write there"),
        (errno.EROFS, "cannot be written .*Read-only"),
    ],
)
@pytest.mark.parametrize("is_former", [True, False])
def test_an_unusable_state_directory_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str, is_former: bool
) -> None:
    root = tmp_path / "archive"
    if is_former:
        previous_archive(root)

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(JobError, match=message), ArchiveLayout(Directory(root)).held_by_writer():
        pass
    assert (root / FORMER).exists() == is_former
