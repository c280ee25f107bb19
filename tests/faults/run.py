"""One run: a load, the faults of its steps, healing, final reads, and the check of the history."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from faults.cluster import Cluster
from faults.connections import routed
from faults.drain import DrainError, drain
from faults.explain_watch import ExplainWatch
from faults.explanations import TimedExplanation
from faults.gaps import Window
from faults.kinds.clock import PROBE_TOPIC_SUFFIX
from faults.load import READY, LoadSettings, now_ms, wall_ahead_ms
from faults.nemesis import Say, StepsDone, carry_out
from faults.observed import CATCH_UP_S, Observer, ReaderSeen
from faults.plan import Step
from faults.replicas import digests
from faults.scene import Scene
from faults.series import Point
from faults.service_logs import fences_ignored
from faults.verdict import IgnoredFence, RunSeen
from tidelog.client import Admin
from tidelog.errors import ErrorCode, TidelogError
from tidelog.history import Anomaly, HistoryWriter, check_history, read_history

PARTITIONS = 6
REPLICATION_FACTOR = 3
# Segments roll several times in a run, so that faults strike closed segments and their indexes as
# well.
TOPIC_CONFIG = {
    "min_insync_replicas": "2",
    "segment_bytes": str(2 << 20),
    "retention_ms": str(30 * 60_000),
}
# For a machine that has other work as well.
START_TIMEOUT_S = 300.0
START_PAUSE_S = 1.0
READY_TIMEOUT_S = 120.0
WHOLE_AT_START_S = 120.0
# The time without any fault, before the first and after the last: it shows the ordinary gap.
QUIET_S = 15.0
# Records that are in flight when the load ends have an outcome after their delivery timeout; then
# they are read.
LOAD_END_TIMEOUT_S = 120.0 + CATCH_UP_S
TESTS = Path(__file__).resolve().parents[1]


class RunFailedError(Exception):
    """The run has no result; the message has the reason."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """`wall_ahead_ms`: by how much the wall clock is ahead of the monotonic one.
    `logs`: the log of each service, until the next run begins in the same directory."""

    seen: RunSeen
    series: list[Point]
    wall_ahead_ms: int
    logs: Mapping[str, Path]


async def run(
    cluster: Cluster, steps: Sequence[Step], directory: Path, topic: str, rate: int, say: Say
) -> FinishedRun:
    """`topic`: a new one. `directory`: an existing one. Raises `RunFailedError`."""
    settings = LoadSettings(
        history=str(directory / "history"),
        series=str(directory / "series.json"),
        readers=str(directory / "readers.json"),
        bootstrap=list(cluster.bootstrap),
        routes=dict(cluster.routes),
        topic=topic,
        partitions=PARTITIONS,
        rate=rate,
    )
    async with Admin(cluster.bootstrap, connections=routed(cluster.own_routes)) as admin:
        struck = await _strike(Scene(cluster, topic, admin), steps, settings, directory, say)
    say("checking the history")
    observer = Observer()
    history = observer.watch(read_history(Path(settings.history)))
    report = await asyncio.to_thread(check_history, history)
    (directory / "explanations.json").write_text(_as_json(struck.explanations))
    observed = observer.finish(struck.load.end_ms, _read_readers(settings))
    for reader in observed.readers:
        say(f"  {reader.name} heard of errors: {dict(reader.errors) or 'none'}")
    for anomaly in Anomaly:
        for finding in report.findings.of(anomaly):
            if finding.excuse is None:
                say(f"  {anomaly.value}, {finding.headline}")
    logs = await _save_logs(cluster, directory)
    ahead_ms = wall_ahead_ms()
    seen = RunSeen(
        report,
        struck.done.steps,
        struck.load,
        struck.stirred,
        cluster.timings,
        observed,
        unchecked=[*struck.done.failed, *struck.unchecked],
        explanations=struck.explanations,
        ignored_fences=_ignored_fences([logs[name] for name in cluster.controllers], ahead_ms),
    )
    return FinishedRun(seen, _read_series(settings), ahead_ms, logs)


class _Struck(NamedTuple):
    """`load`: the time in which writes were tried.
    `stirred`: the time in which bystanders came and went."""

    done: StepsDone
    load: Window
    stirred: Window
    unchecked: list[str]
    explanations: Sequence[TimedExplanation]


async def _strike(
    scene: Scene, steps: Sequence[Step], settings: LoadSettings, directory: Path, say: Say
) -> _Struck:
    """Leaves the history in the directory."""
    await _create_topics(scene)
    await _require_whole(scene)
    watch = ExplainWatch(scene.cluster)
    with HistoryWriter(Path(settings.history)) as history:
        async with _load(settings, directory), watch.watching():
            begin_ms = now_ms()
            await asyncio.sleep(QUIET_S / 2)
            stir_ms = now_ms()
            await scene.cluster.stir()
            stirred = Window(stir_ms, now_ms())
            await asyncio.sleep(QUIET_S / 2)
            done = await carry_out(scene, steps, history, say)
            await asyncio.sleep(QUIET_S)
            load = Window(begin_ms, now_ms())
        say("the load has ended; final reads")
        unchecked = await _final_reads(scene, history, done)
        wrong = await watch.until_well()
        if wrong:
            unchecked.append(f"explain does not report a healthy cluster at the end: {wrong}")
    ended = await scene.cluster.ended_by_themselves()
    unchecked += [f"{name} ended by itself" for name in ended]
    return _Struck(done, load, stirred, unchecked, watch.explanations)


async def _save_logs(cluster: Cluster, directory: Path) -> dict[str, Path]:
    saved: dict[str, Path] = {}
    for service in (*cluster.controllers, *cluster.brokers):
        path = saved[service] = directory / f"{service}.log"
        lines = await cluster.log_lines(service)
        await asyncio.to_thread(path.write_bytes, b"".join(lines))
    return saved


def _as_json(explanations: Sequence[TimedExplanation]) -> str:
    return json.dumps([asdict(explanation) for explanation in explanations], indent=1)


def _read_readers(settings: LoadSettings) -> list[ReaderSeen]:
    return [ReaderSeen(*reader) for reader in json.loads(Path(settings.readers).read_text())]


def _ignored_fences(logs: Sequence[Path], ahead_ms: int) -> list[IgnoredFence]:
    return [
        IgnoredFence(at_ms - ahead_ms, broker)
        for log in logs
        for at_ms, broker in fences_ignored(log.read_bytes().splitlines())
    ]


def _read_series(settings: LoadSettings) -> list[Point]:
    return [Point(*point) for point in json.loads(Path(settings.series).read_text())]


async def _create_topics(scene: Scene) -> None:
    """Creates the topics of a cluster that may have just started."""
    for name in (scene.topic, scene.topic + PROBE_TOPIC_SUFFIX):
        await _create_topic(scene, name)


async def _create_topic(scene: Scene, name: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            await scene.admin.create_topic(name, PARTITIONS, REPLICATION_FACTOR, TOPIC_CONFIG)
        except TidelogError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > deadline_s:
                raise RunFailedError(
                    f"the cluster makes no topic {START_TIMEOUT_S:g} s after its start: {error}"
                ) from error
            await asyncio.sleep(START_PAUSE_S)
        else:
            return


async def _require_whole(scene: Scene) -> None:
    whole_s, missing = await scene.until_whole(WHOLE_AT_START_S)
    if whole_s is None:
        raise RunFailedError(
            f"the cluster is not whole {WHOLE_AT_START_S:g} s after its start: {'; '.join(missing)}"
        )


async def _final_reads(scene: Scene, history: HistoryWriter, done: StepsDone) -> list[str]:
    """Checks the digests as well; returns the checks that were not done."""
    if done.steps and done.steps[-1].whole_s is None:
        return ["no final reads: the cluster is not whole"]
    try:
        ends = await drain(scene.cluster, scene.topic, history)
    except DrainError as error:
        return [str(error)]
    described = await scene.describe()
    if described is None:
        return ["replicas were not compared: no broker describes the topic"]
    data_dirs = {
        int(broker.rpartition("-")[2]): scene.cluster.data_dir(broker)
        for broker in scene.cluster.brokers
    }
    history.write_all(await asyncio.to_thread(digests, data_dirs, described[1], ends))
    return []


@asynccontextmanager
async def _load(settings: LoadSettings, directory: Path) -> AsyncIterator[None]:
    """Runs the load while the context is entered. Raises `RunFailedError` if it ends by itself or
    fails."""
    path = directory / "load.json"
    settings.write(path)
    errors = directory / "load.log"
    with errors.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "faults.load", str(path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            described = await process.stdout.readline()
        if described.decode().strip() != READY:
            raise RunFailedError(f"the load ended before it wrote anything: {_tail(errors)}")
        yield
        if process.returncode is not None:
            raise RunFailedError(f"the load ended by itself: {_tail(errors)}")
        process.stdin.close()
        async with asyncio.timeout(LOAD_END_TIMEOUT_S):
            await process.wait()
    except TimeoutError as error:
        raise RunFailedError(f"the load does not begin, or end: {_tail(errors)}") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RunFailedError(f"the load failed: {_tail(errors)}")


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(filter(None, [str(TESTS), before]))


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2_000:] or "(no output)"
