"""An hour that cannot be compacted is reported and stays as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.client.clock import SystemClock
from tidelog_pipeline.archive import archive_job
from tidelog_pipeline.archive.archive_config import ACTIONS
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.compactor import NotCompacted, compact
from tidelog_pipeline.archive.core.commits import AddedFile
from tidelog_pipeline.archive.core.hours import ArchivedHour, hours_of
from tidelog_pipeline.archive.file_checks import sha256_of
from tidelog_pipeline.job_command import load_action
from tidelog_pipeline.job_runner import EXIT_FOUND
from unit.pipeline.archive.commit_steps import HOUR, log_at, put

DENIALS = [errno.EACCES, errno.EMFILE, errno.ESTALE]


@pytest.fixture
def log(tmp_path: Path) -> ArchiveLog:
    log = log_at(tmp_path / "archive")
    put(log, ["a", "b"])
    return log


def hour_of(log: ArchiveLog) -> ArchivedHour:
    """The hour, with the checksums of its files."""
    [hour] = hours_of(log.state)
    root = log.directory.root
    return hour._replace(
        files=tuple(file._replace(sha256=sha256_of(root / file.path)) for file in hour.files)
    )


def problem_of(log: ArchiveLog, hour: ArchivedHour) -> NotCompacted | None:
    """Small files are read without Spark."""
    return compact(None, log, hour, 1, SystemClock())  # type: ignore[arg-type]


@pytest.mark.parametrize("number", DENIALS)
@pytest.mark.parametrize("step", ["open", "stat"])
def test_an_hour_with_a_file_that_may_not_be_read_now_stays_as_it_is(
    log: ArchiveLog, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """Otherwise one old file would end a run that archives new records."""
    hour, before = hour_of(log), getattr(Path, step)

    def fail(path: Path, *given: Any, **named: Any) -> Any:
        if path.name == "a.parquet":
            raise OSError(number, os.strerror(number))
        return before(path, *given, **named)

    with monkeypatch.context() as denied:
        denied.setattr(Path, step, fail)
        problem = problem_of(log, hour)
    assert problem is not None
    assert not problem.is_fault
    assert problem.why.startswith(f"{HOUR}/a.parquet: it cannot be read now (")
    assert os.strerror(number) in problem.why


def test_an_hour_that_may_not_be_listed_now_stays_as_it_is(
    log: ArchiveLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = hour_of(log)

    def fail(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "denied", str(path))

    with monkeypatch.context() as denied:
        denied.setattr(os, "scandir", fail)
        problem = problem_of(log, hour)
    assert problem is not None
    assert not problem.is_fault
    assert problem.why.startswith(f"{HOUR}: it cannot be read now (")


def test_a_damaged_file_is_a_fault(log: ArchiveLog) -> None:
    hour = hour_of(log)
    log.directory.at(f"{HOUR}/b.parquet").write_text("x")
    why = f"{HOUR}/b.parquet is damaged: its SHA-256 is not the one it was committed with"
    assert problem_of(log, hour) == NotCompacted(why, is_fault=True)


def test_compaction_continues_with_the_next_hour(
    log: ArchiveLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = HOUR.replace("hour=10", "hour=11")
    files = {f"{later}/{name}": AddedFile(f"{later}/{name}", 1, 1) for name in "ab"}
    log.state.files[later] = files
    monkeypatch.setattr(log, "recover", list)

    def one_is_denied(_: Any, __: Any, hour: ArchivedHour, *___: Any) -> NotCompacted | None:
        return NotCompacted("it cannot be read now", is_fault=False) if hour.path == HOUR else None

    monkeypatch.setattr(archive_job, "compact", one_is_denied)
    config = load_action("archive", ACTIONS, ["compact", "--output", str(tmp_path / "archive")])
    writer = archive_job._Writer(log, None, SystemClock())  # type: ignore[arg-type]
    assert writer.act(config) == EXIT_FOUND
    denied, compacted = capsys.readouterr().out.splitlines()[-2:]
    assert denied.startswith(f"{HOUR} is not compacted: it cannot be read now; ")
    assert "repair" not in denied
    assert compacted == f"{later}: 2 files are 1 now"
