"""The lifecycle of a broker.

Start: the edge listens, `prepare` opens and recovers the logs, `join` reads the metadata, lets
damaged replicas resign, and registers. `start` has the progress, and whether requests are accepted.
Shutdown: `hand_over`, `leave`, the edge stops, `stop` closes the logs cleanly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from tidelog.inspection.state_reports import OPENS_LOGS, READS_METADATA, REGISTERS, TAKES_STATES
from tidelog.version import installed_version
from tidelog_broker.assembly import BrokerParts
from tidelog_broker.background import first_of, retry_pause
from tidelog_broker.boundaries import Boundaries
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.membership.cluster_watch import ClusterWatch
from tidelog_broker.membership.registration import Registration
from tidelog_broker.membership.rejected_start import NOT_REGISTERED
from tidelog_broker.storage.data_directory import DataDirectoryError
from tidelog_runtime.metadata.broker_directories import RejectedStart, RejectionCause
from tidelog_runtime.metadata.cluster_id import HeldCluster, ensure_cluster, held_cluster
from tidelog_runtime.metadata.schema import RUNNING, BrokerRegistration
from tidelog_runtime.metadata.store import (
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)

STORE_RETRY_DELAY_S = 0.3
STORE_FAREWELL_TIMEOUT_S = 2.0

_log = structlog.get_logger()


@contextmanager
def _rolled_back_store_rejected() -> Iterator[None]:
    """Rejects a start whose store goes back to an older revision meanwhile."""
    try:
        yield
    except StoreRolledBackError as error:
        raise DataDirectoryError(str(error), RejectionCause.STORE) from error


class Broker(BrokerParts):
    """The lifecycle of a broker: start, join, leave, stop."""

    def __init__(self, config: BrokerConfig, boundaries: Boundaries) -> None:
        super().__init__(config, boundaries)
        self.stopped = asyncio.Event()
        self._registering: asyncio.Task[None] | None = None
        self._watch: ClusterWatch | None = None
        self._opened = False
        self._tasks: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Waits until the store answers, and opens every log. Raises `DataDirectoryError` if the
        data belongs to another cluster, if the store holds no cluster, or if the broker id
        belongs to another data directory; and `UnsupportedLevelError`."""
        with _rolled_back_store_rejected():
            held = await self._held_cluster()
            self._data_directory.join_cluster(
                held.cluster_id if held else None, self._config.cluster
            )
            self.start.enter(OPENS_LOGS)
            await self._end_previous_incarnation()
        await self._data_directory.sync_copy(self._run_blocking)
        identity = self._data_directory.identity
        intact = identity.whole_since > 0 and not identity.copied
        await self._damage.open_logs(self.start, intact=intact)
        await self._run_blocking(self.divergences.load)
        self._opened = True
        self.start.enter(READS_METADATA)

    async def _end_previous_incarnation(self) -> None:
        """Deletes the previous registration, so that others lead while this broker opens its
        logs. If the store is unavailable, the lease or the next registration ends it. A
        rolled-back store is not written to: new revisions would hide the rollback."""
        self._data_directory.require_revision(self.store.seen_revision)
        try:
            held = await self._binding.read()
            self._binding.require_ownership(held)
            await self._binding.end_previous(held)
            if self._binding.supersedes(held.rejected, self.inspection.address):
                await self._report(RejectionCause.UNFINISHED, NOT_REGISTERED)
        except StoreUnavailableError:
            pass  # the store has reported its outage itself

    async def _held_cluster(self) -> HeldCluster | None:
        """A directory that has been in a cluster creates no other one: that would hide that the
        store was wiped (rule `other-or-older-store-rejected`)."""
        levels = self._boundaries.levels
        while True:
            try:
                if self._data_directory.identity.cluster_id:
                    return await held_cluster(self.store, self._keys, levels)
                return await ensure_cluster(self.store, self._keys, self._rng, levels)
            except StoreUnavailableError:
                # The store has reported its outage itself.
                await retry_pause(STORE_RETRY_DELAY_S, self._rng)

    async def join(self, address: str) -> None:
        """Registers under `address`, where the edge already listens, and starts the background
        tasks. Raises `DataDirectoryError` if the store was rolled back."""
        self.inspection.address = address
        self.registration = registration = self._new_registration(address)
        self._watch = watch = ClusterWatch(
            self.store,
            self._keys,
            self.cache,
            self.manager,
            registration,
            self._rng,
            self._note_level,
        )
        config, maintenance = self._config, self._maintenance
        watching = self._start("cluster-watch", watch.run())
        self._start("store-probe", self.store.probe())
        self._start("isr-updates", self._isr_updates.run())
        self._start(
            "isr-timer", maintenance.evaluate_isrs(max(100, config.replica_lag_time_max_ms // 4))
        )
        await first_of(watch.ready.wait(), asyncio.wait([watching]))
        with _rolled_back_store_rejected():
            if watching.done():
                watching.result()
        # This incarnation's registration will have a higher creation revision. Commands for lower
        # broker epochs are for a previous incarnation.
        self.manager.broker_epoch = max(self.manager.broker_epoch, self.cache.revision + 1)
        self._data_directory.require_revision(self.cache.revision)
        self.start.enter(REGISTERS)
        with _rolled_back_store_rejected():
            await self._damage.resign()
        # Checkpoints that name the damage may be overwritten only after the resignation.
        self._maintenance.checkpoint()
        self._start_background()
        self._registering = self._start("registration", registration.run())

    def _new_registration(self, address: str) -> Registration:
        identity = self._data_directory.identity
        return Registration(
            self.store,
            self._keys,
            self._config.broker_id,
            BrokerRegistration(
                address=address,
                rack=self._config.rack,
                node_uuid=identity.node_uuid,
                state=RUNNING,
                whole_since=0,
                synced_whole_since=0,
                external_address=self._config.external_address,
                version=installed_version(),
                levels=self._boundaries.levels,
            ),
            self._data_directory,
            self._binding,
            self._config.lease_ttl_seconds,
            self._rng,
            self._registered,
            self.state_changes,
            self._report_waiting,
        )

    def _start_background(self) -> None:
        """Starts the background work, just before the broker is registered."""
        config, maintenance = self._config, self._maintenance
        self._start("checkpoints", maintenance.write_checkpoints(config.checkpoint_interval_ms))
        self._start("log-syncer", self._log_syncer.run())
        self._start("cold-reads", self._cold_reads.run())
        self._start("flush", maintenance.flush(config.flush_interval_ms))
        retention_ms = config.retention_check_interval_ms
        self._start("retention", maintenance.delete_old(retention_ms))
        self._start("strays", maintenance.delete_strays(retention_ms, config.stray_retention_ms))
        self._start(
            "producer-expiry",
            maintenance.expire_producers(
                retention_ms,
                config.producer_id_expiration_ms,
                lambda: self.cache.producer_epochs,
            ),
        )
        self._start("producer-names", self._producer_names.run(self._rng))
        self._start("resignations", self._repair.resign_failed())
        self._start("leader-reports", self._leader_reports.run())
        self._start("disk-reports", self._disk_reports.run())
        self._start("producer-ids", self.producer_ids.keep_stocked(self._rng))
        self._start("repairs", self._repair.repair_resigned())
        self._start("scrub", self.scrubber.run())
        self._start("batch-sealer", self._repair.quarantine_only_copies())
        self._start("digest-reads", self._digests.run())
        self._start("divergences", self.divergences.run())
        self._start("batch-restores", self._restores.run())

    def _registered(self, broker_epoch: int) -> None:
        self.manager.broker_epoch = max(self.manager.broker_epoch, broker_epoch)
        try:
            self._data_directory.registered(broker_epoch)
        except OSError as error:
            # The file keeps its older and weaker claim, which is safe.
            _log.error("identity_not_written", why=str(error))
        self.start.enter(TAKES_STATES)

    def _note_level(self, level: int) -> None:
        """Records the cluster's level in the data directory, before any file has its format."""
        try:
            self._data_directory.note_level(level)
        except OSError as error:
            # It may be too full for any file. A level that changes a format has to wait for this.
            _log.error("identity_not_written", why=str(error))

    async def _report_waiting(self, reason: str) -> None:
        """Reports for `explain` that this process waits. Its registration deletes the report."""
        await self._report(RejectionCause.WAITS_FOR_LEASE, reason)

    async def _report(self, cause: RejectionCause, reason: str) -> None:
        rejected = RejectedStart(
            cause,
            reason,
            self._clock.wall_ms(),
            self.inspection.address,
            self._boundaries.host,
            str(self._config.data_dir),
            self._data_directory.identity.directory_id,
        )
        await self._rejections.write(rejected)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self.faults.on_end)
        self._tasks.append(task)
        return task

    async def report_fault(self) -> None:
        """Stores the fault that ends this process. Without it the end looks like an orderly
        stop."""
        if self.registration is None or self.store.health.unreachable_ms >= 0:
            return
        await self._report(RejectionCause.FAULT, self.faults.reason)

    async def hand_over(self) -> None:
        """Requests to lead no partition and to be in no ISR. Waits while another broker can take
        over, a controller is active, and the time allows. Until then this broker serves all
        requests, and follows where it is still in sync."""
        if self.registration is None or self._watch is None or self.cache.controller is None:
            return
        self.inspection.is_stopping = True
        self._fetchers.follow_only_in_sync()
        await self._controlled_shutdown.hand_over(self.registration, self._watch)

    async def leave(self) -> None:
        """Ends leadership and registration, before the edge stops. Waiting clients get an error
        that sends them to another leader. If the edge ended first, that would look like a crash,
        and this broker would register again."""
        if self.stopped.is_set():
            return
        for partition in list(self.manager.led()):
            partition.stop_leading()
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
        if self.registration is not None:
            try:
                async with asyncio.timeout(STORE_FAREWELL_TIMEOUT_S):
                    await self.registration.withdraw()
            except (StoreError, TimeoutError) as error:
                _log.warning("lease_left_to_expire", why=str(error) or "etcd did not answer")
        self.stopped.set()

    async def stop(self) -> None:
        """Ends the background tasks and closes the logs, after the edge has stopped."""
        await self.leave()
        await self.commands.close()
        await self._fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_logs()
        await self._boundaries.peers.close()
        await self._boundaries.controllers.close()
        await self.store.close()

    async def _close_logs(self) -> None:
        """Closes the logs. The stop is clean only if every log was opened, and is closed
        completely: a log that was never checked may have lost its tail."""
        if not self._opened:
            return
        await self._maintenance.flush_once()
        if not self._damage.found:
            self._maintenance.checkpoint()
        unclean: list[str] = []
        await self._run_blocking(lambda: unclean.extend(self._logs.close()))
        if unclean:
            _log.error("stopped_uncleanly", logs=len(unclean), first=unclean[0])
            return
        if self._damage.found:
            return  # damaged replicas have not resigned: the next start must find them
        try:
            self._data_directory.stopped_cleanly(self.seen_revision)
        except OSError as error:
            _log.error("identity_not_written", why=str(error))
            return
        await self._confirm_clean_stop()

    async def _confirm_clean_stop(self) -> None:
        """Records the clean stop in the store. Otherwise only this directory counts as stopped
        cleanly, and no copy of it."""
        if self.registration is None or not self.registration.broker_epoch:
            return
        try:
            async with asyncio.timeout(STORE_FAREWELL_TIMEOUT_S):
                await self._binding.stopped_cleanly(self.registration.broker_epoch)
        except (StoreError, TimeoutError) as error:
            _log.warning("clean_stop_not_in_store", why=str(error) or "etcd did not answer")
