"""A streaming copy from topic to topic to Parquet, whose driver and executors are killed."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.spark_kills import records
from bench.spark_kills.driver import DriverSettings
from bench.spark_kills.points import POLL_S, Held, Holds, Point, Target
from bench.spark_kills.processes import (
    DriverProcess,
    batches_about_to_end,
    executor_above,
    kill,
    stopped,
)
from bench.spark_kills.results import Kill, Outcome
from tidelog.client import SyncAdmin

MASTER = "local-cluster[2,1,1024]"
ROOT = Path(__file__).parents[2]
# A kill takes one micro-batch at most, unless the point was missed; some micro-batches remain after
# the last kill.
BATCHES_PER_KILL, BATCHES_LEFT = 1.25, 4
ARROW_BATCHES_PER_TASK = 4
REPLICAS = 3
# Timeouts for reaching a point, and for the rest of the copy; far longer than usual.
REACH_S = 900.0
END_S = 3_600.0
# Time for the records that a task has sent to reach the log.
ON_ITS_WAY_S = 0.3

PrintLine = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """The amount of work.

    - `kills`: how often the driver and an executor are killed at each point.
    - `by_key`: keys choose the partitions of the copy, whose order then differs from the source.
    """

    records: int
    kills: int
    by_key: bool = False
    partitions: int = 4
    value_bytes: int = 100
    seed: int = 1
    points: tuple[Point, ...] = tuple(Point)
    master: str = MASTER

    @property
    def source(self) -> str:
        return "kills-source-by-key" if self.by_key else "kills-source"

    @property
    def target(self) -> str:
        return self.source.replace("source", "target")

    @property
    def schedule(self) -> list[tuple[Target, Point]]:
        kills = [(target, point) for target in Target for point in self.points] * self.kills
        random.Random(self.seed).shuffle(kills)
        return kills

    @property
    def max_offsets_per_trigger(self) -> int:
        return int(self.records // (BATCHES_PER_KILL * len(self.schedule) + BATCHES_LEFT))


FULL = Settings(records=5_000_000, kills=5)
QUICK = Settings(records=24_000, kills=1, partitions=2)
# Points at which a task has written a part, and at which the sink has committed.
SHORT = replace(
    QUICK,
    records=12_000,
    by_key=True,
    points=(Point.MID_TASK, Point.AFTER_COMMIT),
    # One executor runs both tasks: each executor is a Java process, which is slow to start.
    master="local-cluster[1,2,1024]",
)


class CopyEndedError(Exception):
    """The copy ended before all kills were made."""


def run(bootstrap: str, directory: Path, settings: Settings, print_line: PrintLine) -> Outcome:
    """Runs the copy on a cluster without topics of these names."""
    with SyncAdmin(bootstrap) as admin:
        for topic in (settings.source, settings.target):
            admin.create_topic(topic, settings.partitions, REPLICAS)
    records.fill(
        bootstrap, settings.source, settings.records, settings.partitions, settings.value_bytes
    )
    print_line(f"{settings.records:,} records are written")
    began = time.monotonic()
    killed = _Copy(bootstrap, directory, settings, print_line)
    kills = killed.run_to_its_end()
    seconds = time.monotonic() - began
    ordered = not settings.by_key
    return Outcome(
        records=settings.records,
        partitions=settings.partitions,
        master=settings.master,
        seconds=round(seconds, 1),
        drivers=killed.drivers,
        kills=kills,
        by_key=settings.by_key,
        source=records.in_topic(bootstrap, settings.source, ordered=ordered),
        target=records.in_topic(bootstrap, settings.target, ordered=ordered),
        table=records.in_table(killed.driver_settings.table, settings.partitions, ordered=ordered),
    )


class _Copy:
    def __init__(
        self, bootstrap: str, directory: Path, settings: Settings, print_line: PrintLine
    ) -> None:
        self._settings = settings
        self._print_line = print_line
        self._directory = directory
        self._holds = Holds(directory)
        per_task = settings.max_offsets_per_trigger // settings.partitions
        self.driver_settings = DriverSettings(
            bootstrap=bootstrap,
            source=settings.source,
            target=settings.target,
            directory=str(directory),
            master=settings.master,
            max_offsets_per_trigger=settings.max_offsets_per_trigger,
            rows_per_arrow_batch=max(per_task // ARROW_BATCHES_PER_TASK, 1),
            by_key=settings.by_key,
        )
        self._checkpoint = self.driver_settings.checkpoint("copy")
        self._settings_file = directory / "driver.json"
        self._settings_file.write_text(json.dumps(asdict(self.driver_settings)))
        self._rng = random.Random(settings.seed)
        self.drivers = 0

    def run_to_its_end(self) -> tuple[Kill, ...]:
        kills: list[Kill] = []
        started = [driver := self._start()]
        try:
            for target, point in self._settings.schedule:
                kills.append(self._kill(driver, target, point))
                kill = kills[-1]
                self._print_line(f"{len(kills)}: {target} at {point} of batch {kill.batch_id}")
                if target is Target.DRIVER:
                    started.append(driver := self._start())
                # In half of the cases the process that repeats the micro-batch may be killed in it,
                # too.
                if self._rng.random() < 0.5:
                    self._until_committed(driver, kill.batch_id)
            self._until_ended(driver)
        finally:
            for one in started:
                one.end_all()
        return tuple(kills)

    def _start(self) -> DriverProcess:
        self.drivers += 1
        paths = [str(ROOT / "libs"), str(ROOT)]
        return DriverProcess(
            self._settings_file,
            self._directory / "driver.log",
            {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def _kill(self, driver: DriverProcess, target: Target, point: Point) -> Kill:
        began = time.monotonic()
        if point is Point.BEFORE_CHECKPOINT:
            batch_id = self._kill_before_checkpoint(driver, target)
        else:
            held = self._reached(driver, point)
            if point is Point.MID_TASK:
                time.sleep(ON_ITS_WAY_S)
            batch_id = held.batch_id
            self._check_open(batch_id)
            self._kill_target(driver, target, held)
            self._holds.release()
        return Kill(target, point, batch_id, round(time.monotonic() - began, 1))

    def _reached(self, driver: DriverProcess, point: Point) -> Held:
        self._holds.arm(point)
        deadline = time.monotonic() + REACH_S
        while (held := self._holds.held()) is None or not driver.is_above(held.pid):
            if held is not None:
                # A worker that outlived its killed executor; the point may come again.
                self._holds.release()
            self._check_running(driver)
            assert time.monotonic() < deadline, f"no process reached {point} within {REACH_S:.0f} s"
            time.sleep(POLL_S)
        self._holds.disarm()
        return held

    def _kill_before_checkpoint(self, driver: DriverProcess, target: Target) -> int:
        """Kills only once it is certain that the checkpoint does not exist."""
        commits = self._checkpoint / "commits"
        for batch_id in batches_about_to_end(commits, driver):
            jvm = driver.jvm
            assert jvm is not None, "it writes its checkpoint"
            if not (commits / str(batch_id)).exists():
                with stopped(jvm):
                    if not (commits / str(batch_id)).exists():
                        self._check_open(batch_id)
                        self._kill_target(driver, target, None)
                        return batch_id
            self._print_line(f"batch {batch_id} ended too quickly; trying the next one")
        raise AssertionError("there is always a next one, or the driver has ended")

    def _kill_target(self, driver: DriverProcess, target: Target, held: Held | None) -> None:
        if target is Target.DRIVER:
            driver.kill()
        elif held is not None and held.point in (Point.MID_TASK, Point.AFTER_WRITE):
            kill(executor_above(held.pid))
        else:
            kill(self._rng.choice(self._executors(driver)))

    def _executors(self, driver: DriverProcess) -> list[int]:
        deadline = time.monotonic() + REACH_S
        while not (executors := driver.executors):
            assert time.monotonic() < deadline, "there is no executor"
            time.sleep(POLL_S)
        return executors

    def _check_open(self, batch_id: int) -> None:
        """Checks that the micro-batch has begun and not ended: the next process repeats it."""
        assert (self._checkpoint / "offsets" / str(batch_id)).exists()
        assert not (self._checkpoint / "commits" / str(batch_id)).exists()

    def _check_running(self, driver: DriverProcess) -> None:
        if driver.status == 0:
            raise CopyEndedError("everything is copied, and not all kills were made")
        driver.check()

    def _until_committed(self, driver: DriverProcess, batch_id: int) -> None:
        deadline = time.monotonic() + REACH_S
        while not (self._checkpoint / "commits" / str(batch_id)).exists():
            driver.check()
            assert time.monotonic() < deadline, f"batch {batch_id} did not end in {REACH_S:.0f} s"
            time.sleep(POLL_S)

    def _until_ended(self, driver: DriverProcess) -> None:
        deadline = time.monotonic() + END_S
        while driver.status is None:
            assert time.monotonic() < deadline, f"the copy did not end in {END_S:.0f} s"
            time.sleep(POLL_S)
        if driver.status != 0:
            driver.check()
