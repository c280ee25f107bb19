"""What a broker reports of a disk that rejects writes, and when."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tidelog.errors import TidelogError
from tidelog.state_changes.event import Cause
from tidelog_broker.core.disk_rejections import STEADY_AFTER_HANG_MS, STEADY_MS
from tidelog_broker.damage.disk_reports import (
    PROBE_AFTER_MS,
    REPORT_INTERVAL_MS,
    REPORTED_AFTER_MS,
    DiskReports,
    disk_probe,
)
from tidelog_broker.log.log_errors import LogStorageError, SyncHangsError
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.transport import ControllerUnreachableError
from tidelog_runtime.broker_reports import DiskReport
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ControllerEntry
from unit.broker.broker_parts import DATA, KEY, Replicas, at_work
from unit.broker.fake_log import NAME, state
from unit.metadata.virtual_time import virtual_clock

FULL = LogStorageError(PurePath("log"), errno.ENOSPC, "append to")
CONTROLLER = ControllerEntry(1, "10.0.0.9:7600")


class Reporting:
    def __init__(self) -> None:
        self.replicas = Replicas()
        self.sent: list[DiskReport] = []
        self.probes = 0
        self.has_room = False
        self.is_reachable = True
        self.has_hanging_sync = False
        self.probes_end = asyncio.Event()
        self.probes_end.set()
        cache = MetadataCache(Keys("test"))
        cache.controller = CONTROLLER
        self._cache = cache
        self.reports = self.new_reports(self.check_syncs)

    def new_reports(self, check_syncs: Callable[[], bool]) -> DiskReports:
        return DiskReports(
            self.replicas.manager,
            self._cache,
            self,
            virtual_clock(),
            self.probe,
            self.run_blocking,
            check_syncs,
        )

    async def run_blocking(self, work: Callable[[], None]) -> None:
        self.probes += 1
        await self.probes_end.wait()
        work()

    def check_syncs(self) -> bool:
        if self.has_hanging_sync:
            self.replicas.manager.disk.rejected(KEY, SyncHangsError("a sync hangs"), "synced")
        return self.has_hanging_sync

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        assert address == CONTROLLER.address
        self.sent.append(report)
        if not self.is_reachable:
            raise ControllerUnreachableError("no answer")
        return None

    def probe(self) -> None:
        if not self.has_room:
            raise OSError(errno.ENOSPC, "no room")


async def intervals(count: int) -> None:
    await asyncio.sleep((count * REPORT_INTERVAL_MS + 1) / 1000)


async def test_a_leader_is_reported_with_its_epoch_and_the_duration_of_its_failure() -> None:
    world = Reporting()
    partition = await world.replicas.lead()
    world.replicas.manager.replica_failed(partition, FULL)
    await asyncio.sleep(REPORTED_AFTER_MS / 1000)
    report = world.reports.report()
    (failing,) = report.led
    assert report.is_rejecting
    assert (failing.partition, failing.leader_epoch) == (NAME, partition.leader_epoch)
    assert (failing.cause, failing.failing_for_ms) == (Cause.DISK_FULL, REPORTED_AFTER_MS)
    assert failing.change.id != ""


async def test_a_momentary_rejection_moves_no_leadership() -> None:
    world = Reporting()
    partition = await world.replicas.lead()
    world.replicas.manager.replica_failed(partition, FULL)
    assert world.reports.report().led == ()


async def test_a_leader_whose_disk_has_accepted_since_is_not_reported() -> None:
    world = Reporting()
    partition = await world.replicas.lead()
    world.replicas.manager.replica_failed(partition, FULL)
    await asyncio.sleep(REPORTED_AFTER_MS / 1000)
    world.replicas.manager.disk.took(KEY, "written")
    report = world.reports.report()
    assert (report.is_rejecting, report.led) == (True, ())


async def test_it_is_reported_every_second_and_withdrawn_once() -> None:
    world = Reporting()
    partition = await world.replicas.lead()
    async with at_work(world.reports.run()):
        await intervals(2)
        assert world.sent == []
        world.replicas.manager.replica_failed(partition, FULL)
        await intervals(3)
        assert [report.is_rejecting for report in world.sent] == [True, True, True]
        world.replicas.manager.disk.took(KEY, "written")
        await asyncio.sleep(STEADY_MS / 1000)
        world.replicas.manager.disk.judge()
        world.sent.clear()
        await intervals(3)
    assert [report.is_rejecting for report in world.sent] == [False]


@pytest.mark.rule("failing-disk-transfers-leadership")
async def test_a_leader_whose_sync_hangs_is_reported_until_a_minute_after_it_returned() -> None:
    world = Reporting()
    await world.replicas.lead()
    disk = world.replicas.manager.disk
    world.has_hanging_sync = True
    async with at_work(world.reports.run()):
        await intervals(3)
        assert [failing.cause for failing in world.sent[-1].led] == [Cause.DISK_ERROR]
        await intervals(PROBE_AFTER_MS // REPORT_INTERVAL_MS)
        disk.judge()
        assert world.sent[-1].led != ()
        world.has_hanging_sync = False
        disk.took(KEY, "synced")
        await asyncio.sleep(STEADY_AFTER_HANG_MS / 1000 - 5)
        disk.judge()
        await intervals(1)
        assert (world.sent[-1].is_rejecting, world.sent[-1].led) == (True, ())
        await intervals(5)
        disk.judge()
        await intervals(1)
        assert not world.sent[-1].is_rejecting
    assert world.probes == 0


async def test_an_unavailable_controller_ends_no_report() -> None:
    world = Reporting()
    partition = await world.replicas.lead()
    world.is_reachable = False
    world.replicas.manager.replica_failed(partition, FULL)
    async with at_work(world.reports.run()):
        await intervals(3)
    assert len(world.sent) == 3


async def follow(world: Reporting) -> None:
    partition = await world.replicas.lead()
    world.replicas.manager.replica_failed(partition, FULL)
    led_by_2 = state(leader=2, epoch=partition.leader_epoch + 1)
    await world.replicas.take(led_by_2, revision=20)
    assert partition.leader_to_follow == 2


@pytest.mark.rule("failing-disk-transfers-leadership")
@pytest.mark.parametrize(("has_room", "is_over"), [(True, True), (False, False)])
async def test_a_follower_without_new_records_probes_the_disk(
    has_room: bool,
    is_over: bool,
) -> None:
    world = Reporting()
    await follow(world)
    world.has_room = has_room
    async with at_work(world.reports.run()):
        await asyncio.sleep(PROBE_AFTER_MS / 1000 - 1)
        assert world.probes == 0
        await intervals(2)
        assert world.probes == 1
        await asyncio.sleep(STEADY_MS / 1000)
        world.replicas.manager.disk.judge()
    assert bool(world.replicas.manager.disk) is not is_over


@pytest.mark.rule("failing-disk-transfers-leadership")
async def test_reports_continue_while_a_probe_hangs() -> None:
    world = Reporting()
    await follow(world)
    world.probes_end.clear()
    world.has_room = True
    async with at_work(world.reports.run()):
        await asyncio.sleep(PROBE_AFTER_MS / 1000)
        world.sent.clear()
        await intervals(2 * PROBE_AFTER_MS // REPORT_INTERVAL_MS)
        assert world.probes == 1
        assert len(world.sent) >= 2 * PROBE_AFTER_MS // REPORT_INTERVAL_MS
        assert all(report.is_rejecting for report in world.sent)
        world.probes_end.set()
        await intervals(1)
        await asyncio.sleep(STEADY_MS / 1000)
        world.replicas.manager.disk.judge()
        assert not world.replicas.manager.disk


async def test_a_probe_does_not_end_a_rejection_that_is_newer_than_its_begin() -> None:
    world = Reporting()
    await follow(world)
    world.probes_end.clear()
    world.has_room = True
    async with at_work(world.reports.run()):
        await asyncio.sleep(PROBE_AFTER_MS / 1000 + 1)
        assert world.probes == 1
        world.replicas.manager.disk.rejected(KEY, FULL, "written")
        world.probes_end.set()
        await asyncio.sleep(STEADY_MS / 1000)
        world.replicas.manager.disk.judge()
    assert world.replicas.manager.disk


async def test_no_probe_is_written_while_a_sync_hangs() -> None:
    world = Reporting()
    await follow(world)
    world.reports = world.new_reports(lambda: True)
    async with at_work(world.reports.run()):
        await asyncio.sleep(2 * PROBE_AFTER_MS / 1000)
    assert world.probes == 0
    assert all(report.is_rejecting for report in world.sent)


async def test_the_probe_leaves_nothing_behind() -> None:
    disk = Replicas().memory
    before = disk.list_names(DATA)
    disk_probe(disk, DATA)()
    assert disk.list_names(DATA) == before
