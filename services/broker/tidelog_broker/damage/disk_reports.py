"""Reports to the controller that this broker's disk rejects replicas, so that in-sync replicas on
other brokers take over their leadership ("Failing disks" in docs/internals/protocol.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Protocol

import structlog

from tidelog.model import NO_LEADER
from tidelog_broker.background import RunBlocking
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import Disk
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.disk_events import DiskEvents
from tidelog_broker.replication.transport import ControllerUnreachableError, DiskReportReceiver
from tidelog_runtime.broker_reports import DiskReport, FailingLeadership
from tidelog_runtime.clock import Clock

# The controller counts a report for several times as long.
REPORT_INTERVAL_MS = 1_000
# A shorter rejection transfers no leadership.
REPORTED_AFTER_MS = 1_000
MAX_REPORTED_LEADERSHIPS = 1_000
# A replica that is not led here may have nothing to append for a long time. If no append was tried
# for this long, a file of PROBE_BYTES is written to find out whether the disk has room.
PROBE_AFTER_MS = 10_000
PROBE_BYTES = 64 << 10
PROBE_NAME = "disk-probe"

_log = structlog.get_logger()


class ReportingBroker(Protocol):
    """The replicas of one broker."""

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...

    @property
    def disk(self) -> DiskEvents: ...

    def find(self, key: ReplicaKey) -> Partition | None: ...


def disk_probe(disk: Disk, data_dir: PurePath) -> Callable[[], None]:
    """Returns a function that writes, syncs and removes a small file.

    It raises `OSError`, also if the file takes space that appends may not use."""
    path = data_dir / PROBE_NAME

    def probe() -> None:
        try:
            disk.check_append_room()
            disk.write_atomically(path, bytes(PROBE_BYTES), sync=True)
            disk.check_append_room()
        finally:
            disk.remove(path)

    return probe


class DiskReports:
    """Sends one report at a time. A lost withdrawal expires at the controller."""

    def __init__(
        self,
        reporter: ReportingBroker,
        cache: MetadataCache,
        controllers: DiskReportReceiver,
        clock: Clock,
        probe: Callable[[], None],
        run_blocking: RunBlocking,
        check_syncs: Callable[[], bool] = lambda: False,
    ) -> None:
        """`check_syncs`: called before each report; notes syncs that hang, and returns whether any
        does."""
        self._reporter = reporter
        self._cache = cache
        self._controllers = controllers
        self._clock = clock
        self._probe = probe
        self._run_blocking = run_blocking
        self._check_syncs = check_syncs
        self._probed_ms = 0
        self._probing: asyncio.Task[None] | None = None
        self._reported = False
        self._is_rejection_logged = False

    async def run(self) -> None:
        # A probe may hang as well. The reports must not wait for it: the controller drops the last
        # one after a few seconds, and would then count the disk as healthy.
        async with asyncio.TaskGroup() as probes:
            while True:
                await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
                is_hanging = self._check_syncs()
                is_probing = self._probing is not None and not self._probing.done()
                untried = () if is_hanging or is_probing else self._untried()
                if untried:
                    self._probing = probes.create_task(self._probe_for(untried))
                report = self.report()
                if report.is_rejecting or self._reported:
                    await self._send(report)
                self._reported = report.is_rejecting

    def report(self) -> DiskReport:
        now_ms = self._clock.monotonic_ms()
        led: list[FailingLeadership] = []
        for key, rejection in self._reporter.disk.standing():
            partition = self._reporter.find(key)
            if partition is None or partition.leading is None or rejection.taken_since:
                continue
            for_ms = now_ms - rejection.since_ms
            if for_ms >= REPORTED_AFTER_MS and len(led) < MAX_REPORTED_LEADERSHIPS:
                led.append(
                    FailingLeadership(
                        partition.name,
                        partition.leader_epoch,
                        rejection.cause,
                        for_ms,
                        rejection.change,
                    )
                )
        return DiskReport(
            self._reporter.broker_id,
            self._reporter.broker_epoch,
            bool(self._reporter.disk),
            tuple(led),
        )

    def _untried(self) -> Sequence[tuple[ReplicaKey, str]]:
        """Returns for which replicas the disk is to be probed now, and which operation failed."""
        now_ms = self._clock.monotonic_ms()
        if not self._reporter.disk or now_ms - self._probed_ms < PROBE_AFTER_MS:
            return ()
        return [
            (key, rejection.what)
            for key, rejection in self._reporter.disk.standing()
            if now_ms - rejection.last_ms >= PROBE_AFTER_MS
            and not rejection.taken_since
            and not self._is_led(key)
        ]

    async def _probe_for(self, untried: Sequence[tuple[ReplicaKey, str]]) -> None:
        self._probed_ms = began_ms = self._clock.monotonic_ms()
        try:
            await self._run_blocking(self._probe)
        except OSError as error:
            _log.debug("disk_still_rejects", why=str(error))
            return
        for key, what in untried:
            rejection = self._reporter.disk.of(key)
            if rejection is not None and rejection.last_ms < began_ms:
                self._reporter.disk.took(key, what)

    def _is_led(self, key: ReplicaKey) -> bool:
        """Returns whether the replica is led here. Its producers try appends, or the next one
        does."""
        partition = self._reporter.find(key)
        return partition is not None and partition.leader_to_follow == NO_LEADER

    async def _send(self, report: DiskReport) -> None:
        controller = self._cache.controller
        if controller is None:
            return
        try:
            rejection = await self._controllers.report_disk(controller.address, report)
            why = rejection.message if rejection is not None else ""
        except ControllerUnreachableError as error:
            why = str(error)
        if why and not self._is_rejection_logged:
            _log.info("disk_not_reported", why=why)
        self._is_rejection_logged = bool(why)
