"""One cluster: it is filled, grown by two brokers and shrunk by one of them, under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.grow.figures import MAX_SPREAD, MoveFigures, RunFigures
from bench.grow.holdings import (
    Holdings,
    copied,
    fewest_to_grow,
    fewest_to_remove,
    holdings_of,
    spread,
)
from bench.grow.ledger import Ledger
from bench.grow.load import Load, fill
from bench.grow.load_process import LoadProcess
from bench.grow.processor import ProcessorTime, cores, processor_time
from bench.grow.read_back import read_all
from bench.grow.traffic import Sample, Traffic, copied_bytes, peaks, scrape
from bench.percentiles import percentile
from tidelog.admin_messages import AcceptedOperation, Operation, Plan
from tidelog.client import Admin
from tidelog.errors import TidelogError
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "tide"
# For the cluster's own topic, too.
REPLICATION_FACTOR = 3
BROKERS = 3
ADDED_BROKERS = 2
WARM_UP_S = 5.0
POLL_S = 0.25
SAMPLE_S = 5.0
SETTLE_TIMEOUT_S = 120.0
# Time for the cluster to elect preferred leaders by itself.
OWN_ELECTION_S = 10.0
# Beyond the time that the throttle implies.
OPERATION_TIMEOUT_S = 300.0
CREATION_TIMEOUT_MS = 120_000
READY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `data_mb`: 10^6 bytes of records, before replication.
    - `rate`: produce requests per second.
    - `throttle_mb`: 10^6 bytes per second for each broker.
    - `quiet_s`: the time before brokers are added.
    """

    runs: int
    partitions: int
    data_mb: int
    rate: float
    throttle_mb: float
    quiet_s: float

    @property
    def throttle(self) -> int:
        return int(self.throttle_mb * 1e6)


FULL = Settings(runs=5, partitions=300, data_mb=3000, rate=100.0, throttle_mb=5.0, quiet_s=60.0)
QUICK = Settings(runs=1, partitions=60, data_mb=120, rate=20.0, throttle_mb=4.0, quiet_s=15.0)

# Requests an operation, or with `dry_run` its plan.
Request = Callable[[Admin, bool], Awaitable[AcceptedOperation]]


async def run_once(directory: Path, settings: Settings, console: Console) -> RunFigures:
    cluster = LocalCluster(directory, brokers=BROKERS, usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready(READY_TIMEOUT_S)
        async with Admin(cluster.bootstrap, requested_by="bench") as admin:
            return await _Run(cluster, admin, settings, console).figures()
    finally:
        await cluster.stop()


@dataclass(frozen=True, slots=True)
class _Moved:
    """An operation.

    - `planned`: the plan, before the operation began.
    - `unelected`: the state before preferred leaders were elected by request, if they were.
    """

    begin_s: float
    end_s: float
    staying: Sequence[int]
    removed: Sequence[int]
    planned: Plan
    ended: Operation
    samples: Sequence[Sample]
    processor: tuple[ProcessorTime, ProcessorTime]
    before: Holdings
    unelected: Holdings
    after: Holdings


class _Run:
    def __init__(
        self, cluster: LocalCluster, admin: Admin, settings: Settings, console: Console
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._settings = settings
        self._console = console
        self._ledger = Ledger(settings.partitions)
        self._load = Load(
            cluster.bootstrap, TOPIC, settings.partitions, settings.rate, self._ledger
        )
        self._quiet_s = (0.0, 0.0)
        self._quiet_cores: dict[str, float] = {}

    async def figures(self) -> RunFigures:
        fill_s = await self._fill()
        process = LoadProcess(self._load)
        loading = asyncio.create_task(process.result())
        try:
            grow, shrink = await self._change(loading)
        finally:
            process.stop()
            self._load = await loading
        self._ledger = self._load.ledger
        self._console.print(
            f"  {self._load.sent:,} records sent; reading all back", highlight=False
        )
        await read_all(self._cluster.bootstrap, TOPIC, self._ledger)
        for error in sorted(set(self._load.errors))[:5]:
            self._console.print(f"  [red]failed:[/] {error}", highlight=False)
        quiet = self._load.latencies.within(*self._quiet_s)
        quiet_p99_ms = percentile(quiet, 0.99)
        late = self._load.late.within(self._quiet_s[0], float("inf"))
        return RunFigures(
            quiet_samples=len(quiet),
            quiet_p50_ms=percentile(quiet, 0.5),
            quiet_p99_ms=quiet_p99_ms,
            quiet_cores=self._quiet_cores,
            late_p99_ms=percentile(late, 0.99),
            sent=self._load.sent,
            failed=self._load.latencies.failed,
            bytes_filled=self._settings.data_mb * 1_000_000,
            fill_s=fill_s,
            grow=self._figures_of(grow, quiet_p99_ms),
            shrink=self._figures_of(shrink, quiet_p99_ms),
            read_back=self._ledger.read_back(),
        )

    async def _fill(self) -> float:
        settings = self._settings
        await self._admin.create_topic(
            TOPIC, settings.partitions, REPLICATION_FACTOR, timeout_ms=CREATION_TIMEOUT_MS
        )
        await self._until_idle()
        fill_s = await fill(
            self._cluster.bootstrap,
            TOPIC,
            settings.partitions,
            settings.data_mb * 1_000_000,
            self._ledger,
        )
        self._console.print(f"  {settings.data_mb:,} MB written in {fill_s:.0f} s", highlight=False)
        await self._admin.set_throttle(settings.throttle)
        return fill_s

    async def _change(self, loading: asyncio.Task[Load]) -> tuple[_Moved, _Moved]:
        await self._pause(WARM_UP_S, loading)
        before = processor_time(self._cluster)
        await self._stay_quiet(loading)
        after = processor_time(self._cluster)
        self._quiet_s = (before.at_s, after.at_s)
        self._quiet_cores = cores(before, after)
        added = [self._cluster.add_broker() for _ in range(ADDED_BROKERS)]
        await self._cluster.ready(READY_TIMEOUT_S)
        await self._pause(WARM_UP_S, loading)
        grow = await self._move(
            f"adding brokers {', '.join(map(str, added))}",
            lambda admin, dry_run: admin.add_brokers(
                added, operation_id="" if dry_run else "grow", dry_run=dry_run
            ),
            removed=[],
        )
        await self._pause(WARM_UP_S, loading)
        removed = added[-1:]
        shrink = await self._move(
            f"removing broker {removed[0]}",
            lambda admin, dry_run: admin.remove_brokers(
                removed, operation_id="" if dry_run else "shrink", dry_run=dry_run
            ),
            removed=removed,
        )
        return grow, shrink

    async def _stay_quiet(self, loading: asyncio.Task[Load]) -> None:
        """Scrapes as often as during moves, so that the cost of scraping is the same."""
        end_s = time.perf_counter() + self._settings.quiet_s
        while (left_s := end_s - time.perf_counter()) > 0:
            await self._sample()
            await self._pause(min(SAMPLE_S, left_s), loading)

    async def _pause(self, seconds: float, loading: asyncio.Task[Load]) -> None:
        """Waits. If the load has died, ends early and raises its error."""
        await asyncio.wait([loading], timeout=seconds)
        if loading.done():
            loading.result()

    async def _move(self, what: str, request: Request, *, removed: Sequence[int]) -> _Moved:
        brokers = self._cluster.broker_ids
        staying = [broker for broker in brokers if broker not in removed]
        before = await self._until_idle()
        planned = (await request(self._admin, True)).plan
        _show_plan(what, planned, self._console)
        samples = [await self._sample()]
        processor = processor_time(self._cluster)
        begin_s = time.perf_counter()
        begun = (await request(self._admin, False)).operation
        assert begun is not None, "only a dry run has no operation"
        most_bytes = _bytes_to_receive(planned, samples[0].brokers, before)
        ended = await self._until_ended(begun.operation_id, most_bytes, samples)
        after = unelected = await self._with_balanced_leaders(staying, OWN_ELECTION_S)
        if spread(unelected.leaders_by_broker(staying)) > MAX_SPREAD:
            await self._admin.elect_preferred_leaders()  # as an operator would
            after = await self._with_balanced_leaders(staying, SETTLE_TIMEOUT_S)
        end_s = time.perf_counter()
        if len(samples) > 1 and end_s < samples[-1].at_s + SAMPLE_S / 2:
            del samples[-1]  # too short before the last sample for a rate
        samples.append(await self._sample())
        self._console.print(f"  {what}: {end_s - begin_s:.0f} s", highlight=False)
        return _Moved(
            begin_s=begin_s,
            end_s=end_s,
            staying=staying,
            removed=removed,
            planned=planned,
            ended=ended,
            samples=samples,
            processor=(processor, processor_time(self._cluster)),
            before=before,
            unelected=unelected,
            after=after,
        )

    def _figures_of(self, moved: _Moved, quiet_p99_ms: float) -> MoveFigures:
        """Returns the values. The load must have ended: requests that waited until then count."""
        before, after, staying = moved.before, moved.after, moved.staying
        at_begin, at_end = moved.samples[0].brokers, moved.samples[-1].brokers
        if moved.removed:
            fewest = fewest_to_remove(before, moved.removed)
            least_bytes = sum(at_begin[broker].log_size for broker in moved.removed)
        else:
            fewest = fewest_to_grow(before, staying)
            least_bytes = fewest * _mean_size(at_begin, before)
        duration_s = moved.end_s - moved.begin_s
        bytes_sent, bytes_received = copied_bytes(at_begin, at_end, REPLICATION_FACTOR)
        latencies = self._load.latencies.within(moved.begin_s, moved.end_s)
        p99_ms = percentile(latencies, 0.99)
        peak, rate_ratio = peaks(moved.samples, self._settings.throttle)
        replicas = after.replicas_by_broker(staying)
        leaders = after.leaders_by_broker(staying)
        return MoveFigures(
            operation=moved.ended.operation_id,
            duration_s=duration_s,
            samples=len(latencies),
            p50_ms=percentile(latencies, 0.5),
            p99_ms=p99_ms,
            longest_ms=latencies[-1],
            p99_ratio=p99_ms / quiet_p99_ms,
            replicas_planned=moved.planned.replicas_added,
            replicas_moved=copied(before, after),
            replicas_minimum=fewest,
            bytes_moved=bytes_sent,
            bytes_received=bytes_received,
            bytes_minimum=least_bytes,
            bytes_reported=moved.ended.progress.bytes_copied,
            replicas_by_broker=replicas,
            leaders_by_broker=leaders,
            replica_spread=spread(replicas),
            leader_spread=spread(leaders),
            leader_spread_before_election=spread(moved.unelected.leaders_by_broker(staying)),
            throttle_bytes_per_second=self._settings.throttle,
            bytes_per_second=bytes_received / duration_s,
            peak_bytes_per_second=peak,
            rate_ratio=rate_ratio,
            cores=cores(*moved.processor),
        )

    async def _until_ended(
        self, operation_id: str, most_bytes: float, samples: list[Sample]
    ) -> Operation:
        """Waits for the end of the operation, and adds samples.

        - `most_bytes`: the most that one broker has to receive.

        Raises `RuntimeError` if the operation failed, or did not end in time.
        """
        limit_s = OPERATION_TIMEOUT_S + 2 * most_bytes / self._settings.throttle
        give_up_s = time.perf_counter() + limit_s
        while True:
            operation = await self._admin.describe_operation(operation_id)
            if operation.state == "done":
                return operation
            if operation.has_ended or time.perf_counter() > give_up_s:
                progress = operation.progress
                raise RuntimeError(
                    f"operation {operation_id} is {operation.state} after {limit_s:.0f} s: "
                    f"{progress.moves_done} of {progress.moves} moves are done; "
                    f"{operation.reason or 'no reason is reported'}"
                )
            self._cluster.check_alive()
            if time.perf_counter() >= samples[-1].at_s + SAMPLE_S:
                samples.append(await self._sample())
            await asyncio.sleep(POLL_S)

    async def _with_balanced_leaders(self, brokers: Sequence[int], timeout_s: float) -> Holdings:
        """Returns as soon as leaders are balanced, or when the time is up."""
        give_up_s = time.perf_counter() + timeout_s
        while True:
            holdings = await self._until_idle()
            is_balanced = spread(holdings.leaders_by_broker(brokers)) <= MAX_SPREAD
            if is_balanced or time.perf_counter() > give_up_s:
                return holdings
            await asyncio.sleep(POLL_S)

    async def _until_idle(self) -> Holdings:
        """Returns once no partition moves, all are in sync, and each has a leader."""
        give_up_s = time.perf_counter() + SETTLE_TIMEOUT_S
        while True:
            found = await self._holdings()
            if found is not None and not found.moving and not found.out_of_sync:
                return found
            if time.perf_counter() > give_up_s:
                raise RuntimeError(
                    f"the cluster is not idle after {SETTLE_TIMEOUT_S:g} s: "
                    + (
                        "a topic is not described completely"
                        if found is None
                        else f"{found.moving} partitions move, {found.out_of_sync} replicas are "
                        "not in sync"
                    )
                )
            await asyncio.sleep(POLL_S)

    async def _holdings(self) -> Holdings | None:
        try:
            found = holdings_of(await self._admin.list_topics(internal=True))
        except TidelogError:
            return None
        is_complete = (
            sum(name.topic == TOPIC for name in found.replicas) == self._settings.partitions
        )
        return found if is_complete and min(found.leaders.values()) >= 0 else None

    async def _sample(self) -> Sample:
        cluster = self._cluster
        return await scrape(
            {broker: cluster.broker_metrics(broker) for broker in cluster.broker_ids}
        )


def _mean_size(traffic: Mapping[int, Traffic], holdings: Holdings) -> float:
    return sum(broker.log_size for broker in traffic.values()) / holdings.replica_count


def _bytes_to_receive(plan: Plan, traffic: Mapping[int, Traffic], holdings: Holdings) -> float:
    most = max(share.replicas_after - share.replicas_before for share in plan.brokers)
    return most * _mean_size(traffic, holdings)


def _show_plan(what: str, plan: Plan, console: Console) -> None:
    copies = f"{plan.replicas_added} replicas copied (at least {plan.minimum_replicas_added})"
    leaders = f"{plan.leaders_changed} partitions prefer another leader"
    table = Table(title=f"The plan of {what}: {copies}, {leaders}", title_justify="left")
    for column in ("broker", "replicas", "after", "preferred leader of", "after"):
        table.add_column(column, justify="right")
    for share in plan.brokers:
        table.add_row(
            str(share.broker_id),
            str(share.replicas_before),
            str(share.replicas_after),
            str(share.leaders_before),
            str(share.leaders_after),
        )
    console.print(table)
    for warning in plan.warnings:
        console.print(f"  [yellow]{warning}[/]", highlight=False)
