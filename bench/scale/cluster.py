"""Clusters of real processes, one after the other, with many partitions that one broker leads: the
cost of creating and keeping them, and of failovers of leaders and of the controller."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from statistics import median

from bench.process_figures import cpu_seconds, open_segments, rss_mb
from bench.profiles import profiled
from bench.scale import stages
from bench.scale.cluster_quantities import (
    BOUNDED_SIZE,
    QUANTITIES,
    of_failover,
    of_store,
    of_takeover,
)
from bench.scale.exposition import StoreWork, store_work, sums
from bench.scale.journal import Journal
from bench.scale.quantities import SizeFigures, outcome
from bench.scrape import read
from bench.suite.outcome import Outcome
from bench.suite.producers import WARM_UP_S, open_loop, touch
from bench.suite.progress import Display
from bench.suite.settings import Settings
from bench.worker import Worker, WorkerError
from tidelog.client import Admin
from tidelog.errors import TidelogError
from tidelog.request_bounds import MAX_ASSIGNED_PARTITIONS
from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.cluster import LocalCluster

# All brokers; the first is the preferred leader of every partition.
REPLICAS = (3, 1, 2)
FACTOR = len(REPLICAS)
RECORD_BYTES = 100
TIMEOUT_S = 300.0
READY_TIMEOUT_S = 120.0
PROFILES = Path("out/profiles")
# A sampled process is slow, and must not lose its lease.
PROFILED_LEASE_S = 30
POLL_S = 0.5
# The rate of a client, in records per second, and how long it writes before and after the SIGKILL.
LOAD_RATE = 50.0
BEFORE_S = 1.5
AFTER_S = 4.0
AFTER_S_EACH_1000 = 2.5
PROBLEMS = (stages.MissingEventsError, TimeoutError, ClusterError, WorkerError, TidelogError)
STEPS = ("creation", "idle", "failover", "restart", "shutdown", "clean restart", "takeover")
# Only the bench changes leaders.
CONTROLLER_CONFIG = {"leader_balance": False}


async def run(directory: Path, settings: Settings, display: Display) -> Outcome:
    display.begin("scale", len(STEPS) * len(settings.sizes))
    sizes = []
    async with Worker("client") as worker:
        for partitions in settings.sizes:
            of_size = directory / f"scale-{partitions}"
            sizes.append(await measure(of_size, partitions, settings, display, worker))
            await asyncio.to_thread(shutil.rmtree, of_size)
    title = "Cost of three brokers, factor 3, with all partitions led by one"
    return outcome("scale", title, QUANTITIES, BOUNDED_SIZE, sizes)


async def measure(
    directory: Path, partitions: int, settings: Settings, display: Display, worker: Worker
) -> SizeFigures:
    slow = {"lease_ttl_seconds": PROFILED_LEASE_S} if settings.profile else {}
    cluster = LocalCluster(
        directory,
        usual_ports=False,
        broker_config=slow,
        controller_config={**CONTROLLER_CONFIG, **slow},
    )
    await cluster.start()
    try:
        await cluster.ready(READY_TIMEOUT_S)
        return await _Run(cluster, partitions, settings, display, worker).figures()
    finally:
        await cluster.stop()


class _Run:
    def __init__(
        self,
        cluster: LocalCluster,
        partitions: int,
        settings: Settings,
        display: Display,
        worker: Worker,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._display = display
        self._worker = worker
        self._partitions = partitions
        self._of_topic = min(partitions, MAX_ASSIGNED_PARTITIONS)
        self._topics = [f"scale-{number}" for number in range(partitions // self._of_topic)]
        self._figures = SizeFigures(len(self._topics) * self._of_topic)
        self._journal = Journal(cluster.directory / "logs")

    async def figures(self) -> SizeFigures:
        steps: tuple[Callable[[], Awaitable[Mapping[str, float]]], ...] = (
            self._create,
            self._idle,
            self._failover,
            self._restart_after_crash,
            self._shutdown,
            self._restart_after_stop,
            self._takeover,
        )
        for name, step in zip(STEPS, steps, strict=True):
            self._display.step(f"{self._partitions:,} partitions: {name}")
            self._journal.mark()
            try:
                self._figures.found |= await step()
            except PROBLEMS as error:
                why = str(error).strip() or f"not completed within {TIMEOUT_S:g} s"
                # The last line of a worker's traceback has the error.
                self._figures.problems[name] = why.splitlines()[-1]
        return self._figures

    def _profiled(self, step: str) -> AbstractAsyncContextManager[None]:
        """Profiles the processes that run at the start of the context."""
        if not self._settings.profile:
            return nullcontext()
        services = [p for p in self._cluster.processes() if p.name != "etcd"]
        pids = {p.name: p.pid for p in services if p.pid is not None}
        return profiled(PROFILES, f"{self._partitions} {step}", pids)

    # The steps.

    async def _create(self) -> Mapping[str, float]:
        before, began = await self._store_work(), time.perf_counter()
        assignment = (REPLICAS,) * self._of_topic
        async with self._profiled("creation"), Admin(self._cluster.bootstrap) as admin:
            await asyncio.gather(
                *(
                    admin.create_topic(
                        topic, timeout_ms=int(TIMEOUT_S * 1000), assignment=assignment
                    )
                    for topic in self._topics
                )
            )
        created_s = time.perf_counter() - began
        await self._until_quiet()
        work = (await self._store_work()).since(before)
        first_writes_s = await self._worker.call(
            touch, self._cluster.bootstrap, self._topics, self._of_topic, RECORD_BYTES
        )
        found = {"creation_s": created_s, "first_writes_s": first_writes_s}
        return found | of_store("creation", work, self._figures.partitions)

    async def _until_written(self) -> None:
        """Waits until logs that were written, or opened after a crash, are on the disk. Brokers do
        that in the background, which must not affect the next step."""
        await self._until_quiet()
        await asyncio.sleep(self._settings.settle_s)

    async def _idle(self) -> Mapping[str, float]:
        await self._until_written()
        active = await self._active_controller()
        brokers = [b.pid for b in self._cluster.describe().brokers if b.pid is not None]
        controller = self._cluster.controller_process(active).pid
        etcd = None if self._cluster.etcd is None else self._cluster.etcd.process.pid
        pids = [pid for pid in (*brokers, controller, etcd) if pid is not None]
        before, began = {pid: cpu_seconds(pid) for pid in pids}, time.perf_counter()
        async with self._profiled("idle"):
            await asyncio.sleep(self._settings.idle_s)
        elapsed_s = time.perf_counter() - began
        percent = {pid: 100 * (cpu_seconds(pid) - before[pid]) / elapsed_s for pid in pids}
        found = {
            "idle_broker_percent": max(percent[pid] for pid in brokers),
            "broker_mb": max(map(rss_mb, brokers)),
            "open_segments": max(map(open_segments, brokers)),
            "broker_scrape_ms": await self._scrape_ms(self._cluster.broker_metrics(REPLICAS[0])),
            "controller_scrape_ms": await self._scrape_ms(self._cluster.controller_metrics(active)),
        }
        if controller is not None:
            found["idle_controller_percent"] = percent[controller]
            found["controller_mb"] = rss_mb(controller)
        if etcd is not None:
            found["idle_etcd_percent"] = percent[etcd]
        return found

    async def _failover(self) -> Mapping[str, float]:
        leader = await self._leader()
        before = await self._store_work()
        load_s = BEFORE_S + AFTER_S + AFTER_S_EACH_1000 * self._partitions / 1000
        loading = asyncio.create_task(
            self._worker.call(
                open_loop,
                self._cluster.bootstrap,
                self._topics,
                self._of_topic,
                LOAD_RATE,
                load_s,
            )
        )
        await asyncio.sleep(WARM_UP_S + BEFORE_S)
        async with self._profiled("failover"):
            killed_ms = time.time() * 1000
            await self._cluster.kill(leader)
            await self._until_quiet()
        load = await loading
        await self._until_quiet()
        work = (await self._store_work()).since(before)
        events = self._journal.events()
        found = stages.failover(events, self._topics, self._figures.partitions, killed_ms)
        longest_s = {"failover_client_s": load.shape[-1][1] / 1000} if load.samples else {}
        if load.failed:
            self._figures.problems["failover, client"] = f"{load.failed:,} records failed"
        return of_failover(found) | longest_s | of_store("failover", work, found.leaders)

    async def _restart_after_crash(self) -> Mapping[str, float]:
        serves_s, in_sync_s = await self._restart("restart after SIGKILL")
        return {"crash_serves_s": serves_s, "crash_in_sync_s": in_sync_s}

    async def _shutdown(self) -> Mapping[str, float]:
        await self._until_written()
        leader = await self._leader()
        before = await self._store_work()
        async with self._profiled("shutdown"):
            requested_ms, began = time.time() * 1000, time.perf_counter()
            if not await self._cluster.broker_process(leader).stop(TIMEOUT_S):
                raise TimeoutError
            ended_s = time.perf_counter() - began
            await self._until_quiet()
        work = (await self._store_work()).since(before)
        found = {"shutdown_s": ended_s} | of_store("shutdown", work, self._figures.partitions)
        handed_over_ms = stages.handed_over(self._journal.events(), leader, requested_ms)
        return found | {"handed_over_s": handed_over_ms / 1000}

    async def _restart_after_stop(self) -> Mapping[str, float]:
        serves_s, in_sync_s = await self._restart("restart after stop")
        return {"restart_serves_s": serves_s, "restart_in_sync_s": in_sync_s}

    async def _takeover(self) -> Mapping[str, float]:
        active = await self._active_controller()
        async with self._profiled("takeover"):
            killed_ms = time.time() * 1000
            await self._cluster.kill_controller(active)
            await self._cluster.ready(TIMEOUT_S)
            await self._until_quiet()
        events = self._journal.events()
        return of_takeover(stages.takeover(events, killed_ms, len(self._cluster.broker_ids)))

    # Shared by the steps.

    async def _restart(self, step: str) -> tuple[float, float]:
        """Starts the stopped broker. Returns the seconds until it serves, and is in sync."""
        down = [b for b in self._cluster.broker_ids if self._cluster.broker_process(b).pid is None]
        began_ms, began = time.time() * 1000, time.perf_counter()
        for broker in down:
            self._cluster.start_broker(broker)
        async with self._profiled(step):
            await self._cluster.ready(TIMEOUT_S)
            serves_s = time.perf_counter() - began
            await self._in_sync()
            await self._until_quiet()
        in_sync_ms = stages.last_in_sync(self._journal.events(), self._topics, began_ms)
        return serves_s, in_sync_ms / 1000

    async def _in_sync(self) -> None:
        """Waits until all are in sync. Polls rarely, because with many partitions an answer takes
        time."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                address = self._cluster.controller_metrics(await self._active_controller())
                found = sums((await asyncio.to_thread(read, address))[1])
                if found.get("tidelog_cluster_under_replicated_partitions") == 0:
                    return
                await asyncio.sleep(POLL_S)

    async def _leader(self) -> int:
        """Returns the broker that leads all partitions. Raises `MissingEventsError` if none."""
        leads = {
            broker: sums((await asyncio.to_thread(read, self._cluster.broker_metrics(broker)))[1])[
                "tidelog_broker_leaders"
            ]
            for broker in self._cluster.broker_ids
        }
        leader = max(leads, key=lambda broker: leads[broker])
        if leads[leader] < self._figures.partitions:
            raise stages.MissingEventsError(f"no broker leads all: {leads}")
        return leader

    async def _active_controller(self) -> int:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                active = await self._cluster.active_controller()
                if active is not None:
                    return active
                await asyncio.sleep(POLL_S)

    async def _until_quiet(self) -> None:
        await self._journal.until_quiet(TIMEOUT_S)

    async def _scrape_ms(self, address: str) -> float:
        times = []
        for _ in range(self._settings.scrapes):
            took_ms, _ = await asyncio.to_thread(read, address)
            times.append(took_ms)
        return median(times)

    async def _store_work(self) -> StoreWork:
        _, text = await asyncio.to_thread(read, self._cluster.etcd_address)
        return store_work(text)
