"""Archives of small files, whose writer can be killed before any step on the file system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commits import AddedFile, Commit, ReadRange
from tidelog_pipeline.archive.core.spans import LogId, Span
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
