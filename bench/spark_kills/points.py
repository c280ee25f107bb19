"""The points at which a streaming copy is killed, and the means to hold it there."""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.01


class Point(StrEnum):
    """The points of a micro-batch, in their order."""

    # A task has written some of its records, and has more.
    MID_TASK = "mid_task"
    # A task has written all of its records, and its driver has not been informed.
    AFTER_WRITE = "after_write"
    # The sink has committed, and its query has not been informed.
    AFTER_COMMIT = "after_commit"
    # The query is about to write the end of the micro-batch to its checkpoint.
    BEFORE_CHECKPOINT = "before_checkpoint"


class Target(StrEnum):
    DRIVER = "driver"
    EXECUTOR = "executor"


class Held(NamedTuple):
    """A process that waits at a point. `pid`: its process id."""

    point: Point
    batch_id: int
    pid: int


class Holds:
    """A directory that the killer shares with its victims.

    The first process that reaches the armed point waits there until it is released; later ones do
    not wait."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / "armed"
        self._held = directory / "held"

    def arm(self, point: Point) -> None:
        self._held.unlink(missing_ok=True)
        self._armed.write_text(point)

    def disarm(self) -> None:
        self._armed.unlink(missing_ok=True)

    def release(self) -> None:
        self._held.unlink(missing_ok=True)

    def held(self) -> Held | None:
        try:
            point, batch_id, pid = json.loads(self._held.read_text())
        except FileNotFoundError:
            return None
        return Held(Point(point), batch_id, pid)

    def reach(self, point: Point, batch_id: int) -> None:
        """Waits here if the point is armed. A process that is orphaned meanwhile continues, like a
        task that Spark has given up without stopping it."""
        try:
            if self._armed.read_text() != point:
                return
        except FileNotFoundError:
            return
        mine = self._held.with_name(f"held-{os.getpid()}")
        mine.write_text(json.dumps([point, batch_id, os.getpid()]))
        try:
            os.link(mine, self._held)
        except FileExistsError:
            return
        finally:
            mine.unlink()
        parent = os.getppid()
        while self.held() == Held(point, batch_id, os.getpid()) and os.getppid() == parent:
            time.sleep(POLL_S)
