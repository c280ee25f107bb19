"""`python -m pipeline.held_archive FILE`: the unchanged job `archive`, held at points of a commit
until it is killed there. FILE: a `HeldSettings` as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog_pipeline.archive import archive_job, archive_writer
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.rows import archive_rows
from tidelog_pipeline.storage.directory import Directory

POLL_S = 0.01


class Point(StrEnum):
    """The points of a commit, in their order."""

    # A task has received some of its rows, and more follow.
    WRITING = "writing"
    # All files are written, and nothing is committed.
    STAGED = "staged"
    # The commit exists, and none of its files is at its final path.
    COMMITTED = "committed"
    # One of its files is.
    HALF_PUBLISHED = "half_published"
    # All of them are, and the checkpoint does not contain the commit.
    PUBLISHED = "published"


@dataclass(frozen=True)
class HeldSettings:
    """`holds`: a directory that is shared with the killer. `argv`: of the job."""

    holds: str
    argv: list[str]


class Holds:
    """The first process at the armed point waits there until it is killed or orphaned."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / "armed"
        self._held = directory / "held"

    def arm(self, point: Point) -> None:
        self._held.unlink(missing_ok=True)
        self._armed.write_text(point)

    def release(self) -> None:
        self._armed.unlink(missing_ok=True)
        self._held.unlink(missing_ok=True)

    def held(self) -> int | None:
        """The process that waits."""
        try:
            return int(self._held.read_text())
        except FileNotFoundError:
            return None

    def come(self, point: Point) -> None:
        if not self._armed.exists() or self._armed.read_text() != point:
            return
        mine = self._held.with_name(f"held-{os.getpid()}")
        mine.write_text(str(os.getpid()))
        try:
            os.link(mine, self._held)
        except FileExistsError:
            return
        finally:
            mine.unlink()
        parent = os.getppid()
        while self.held() == os.getpid() and os.getppid() == parent:
            time.sleep(POLL_S)


def hold(holds: Holds) -> None:
    commit, finish, publish = ArchiveLog.commit, ArchiveLog._finish, Directory.publish

    def held_rows(*args: Any) -> DataFrame:
        rows = archive_rows(*args)
        return rows.mapInArrow(midway, rows.schema)

    def midway(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(batches):
            if number:
                holds.come(Point.WRITING)
            yield rows

    def held_commit(log: ArchiveLog, what: Any) -> None:
        holds.come(Point.STAGED)
        commit(log, what)
        holds.come(Point.PUBLISHED)

    def held_finish(log: ArchiveLog, what: Any) -> list[str]:
        holds.come(Point.COMMITTED)
        return finish(log, what)

    def held_publish(directory: Directory, staged: str, path: str) -> None:
        publish(directory, staged, path)
        holds.come(Point.HALF_PUBLISHED)

    patch.object(archive_writer, "archive_rows", held_rows).start()
    patch.object(ArchiveLog, "commit", held_commit).start()
    patch.object(ArchiveLog, "_finish", held_finish).start()
    patch.object(Directory, "publish", held_publish).start()


if __name__ == "__main__":
    settings = HeldSettings(**json.loads(Path(sys.argv[1]).read_text()))
    hold(Holds(Path(settings.holds)))
    sys.exit(archive_job.main(settings.argv))
