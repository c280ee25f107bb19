"""A broker with its store, disk, peers and clock as parameters. `__main__` passes the real ones,
the simulator its own.

Start: the edge listens, `prepare` opens and recovers the logs, `join` reads the metadata, lets
damaged replicas resign, and registers. `start` has the progress, and whether requests are accepted.
Shutdown: `hand_over`, `leave`, the edge stops, `stop` closes the logs cleanly.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import PurePath
from typing import Any

import structlog

from tidelog.inspection.model import OPENS_LOGS, READS_METADATA, REGISTERS, TAKES_STATES
from tidelog.state_changes.event import NO_CHANGE, Cause, Kind, Stage
from tidelog_broker.background import Faults, RunBlocking, retry_pause
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.broker_listener import BrokerListener
from tidelog_broker.clock_check import ClockCheck, Doubt, Reading, own_clocks, peer_clock_callback
from tidelog_broker.controlled_shutdown import ControlledShutdown
from tidelog_broker.damage.batch_restores import BatchRestores
from tidelog_broker.damage.digest_check import DigestCheck
from tidelog_broker.damage.disk_reports import DiskReports, disk_probe
from tidelog_broker.damage.divergences import Divergences
from tidelog_broker.damage.other_replicas import OtherReplicas
from tidelog_broker.damage.replica_repair import ReplicaRepair
from tidelog_broker.damage.resignations import Resignations
from tidelog_broker.damage.start_damage import StartDamage
from tidelog_broker.damage.stray_check import StrayCheck
from tidelog_broker.inspection.broker_state import BrokerInspection
from tidelog_broker.inspection.replica_knowledge import ReplicaKnowledge
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.maintenance import Maintenance
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.cluster_watch import ClusterWatch
from tidelog_broker.membership.directory_binding import DirectoryBinding
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.registration import Registration
from tidelog_broker.membership.rejected_start import NOT_REGISTERED, RejectedStartReport
from tidelog_broker.metrics.collector import BrokerCollector
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks
from tidelog_broker.metrics.vitals import (
    ConsumerWaiting,
    DigestCounts,
    DirectoryState,
    HighWatermarkStalled,
    broker_vitals,
)
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.range_digest import RangeDigest
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replicas.stray_events import StrayEvents
from tidelog_broker.replication.fetch_state import FetchLimits
from tidelog_broker.replication.fetchers import Fetchers
from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.replication.transport import Controllers, Peers
from tidelog_broker.replication.unreachable_leaders import LeaderReports, reported_after_ms
from tidelog_broker.requests.batch_checks import BatchChecks, CheckBatch, WithoutDeltas
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.describe_producers import DescribeProducers
from tidelog_broker.requests.list_offsets import ListOffsets, TimestampsOf
from tidelog_broker.requests.produce import Produce
from tidelog_broker.requests.producer_ids import ProducerIds
from tidelog_broker.requests.producer_names import ProducerNames
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from tidelog_broker.start_progress import StartProgress
from tidelog_broker.storage.clock_file import read_clock, write_clock
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.data_directory import DataDirectory, DataDirectoryError
from tidelog_broker.storage.disk_use import UNKNOWN_DISK, ReadDiskUse
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.log_syncer import LogSyncer
from tidelog_broker.storage.replica_digests import ReplicaDigests
from tidelog_broker.storage.scrub_state import ScrubStateFile
from tidelog_broker.storage.scrubber import Scrubber
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.broker_directories import RejectedStart, RejectionCause
from tidelog_runtime.metadata.cluster_id import ensure_cluster, held_cluster
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import RUNNING, BrokerRegistration
from tidelog_runtime.metadata.store import (
    MetadataStore,
    StoreError,
    StoreRolledBackError,
    StoreUnavailableError,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

STORE_RETRY_DELAY_S = 0.3
STORE_FAREWELL_TIMEOUT_S = 2.0

_log = structlog.get_logger()


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MetadataStore,
        disk: Disk,
        data_directory: DataDirectory,
        peers: Peers,
        controllers: Controllers,
        clock: Clock,
        rng: random.Random,
        run_blocking: RunBlocking,
        check_batch: CheckBatch,
        timestamps_of: TimestampsOf,
        without_deltas: WithoutDeltas,
        state_changes: StateChangeLog,
        read_disk_use: ReadDiskUse = lambda: UNKNOWN_DISK,
        host: str = "",
        cpu_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`read_disk_use` returns the use of the data's file system, and `cpu_seconds` the CPU
        time of the calling thread. `host` is the machine's name."""
        self._host = host
        self._config = config
        self._keys = Keys(config.cluster)
        self._rejections = RejectedStartReport(
            store, self._keys, config.broker_id, config.lease_ttl_seconds
        )
        self.store = MeasuredStore(store, self._keys.cluster, clock, state_changes)
        self.state_changes = state_changes
        self._clock = clock
        self._peers = peers
        self._controllers = controllers
        self._rng = rng
        self._disk = disk
        self._run_blocking = run_blocking
        self._data_directory = data_directory
        self._binding = DirectoryBinding(
            self.store,
            self._keys,
            config.broker_id,
            data_directory,
            host,
            config.replace_directory,
        )
        self.clock_check = self._new_clock_check(disk, clock)
        steady_clock, append_clock, latest_clock = own_clocks(clock, self.clock_check)
        self._latest_clock = latest_clock
        self._logs = LogDirectory(
            disk,
            PurePath(config.data_dir),
            steady_clock,
            digest_range_offsets=config.digest_range_offsets,
        )
        self._digests = ReplicaDigests(disk, self._logs, run_blocking)
        self.faults = Faults()
        self.start = StartProgress()
        self._purgatory = Purgatory()
        self.cache = MetadataCache(self._keys)
        self._move_throttle = MoveThrottle(
            config.broker_id, self.cache, clock, lambda: self.cache.throttle.bytes_per_second
        )
        self._change_ids = ChangeIds(config.broker_id, lambda: self.manager.broker_epoch, clock)
        self._isr_updates = IsrUpdates(
            self.store,
            self._keys,
            self.cache,
            clock,
            config.replica_lag_time_max_ms,
            self._change_ids,
            state_changes,
        )
        self._log_syncer = LogSyncer(self._logs, run_blocking, clock, self)
        self._listener = BrokerListener(self._purgatory, self._isr_updates, self._log_syncer)
        self.manager = ReplicaManager(
            config.broker_id,
            self._logs,
            self.cache,
            clock,
            self._listener,
            self._new_fetchers,
            state_changes,
            run_blocking,
        )
        self.divergences = Divergences(
            disk,
            PurePath(config.data_dir) / "evidence",
            self._logs,
            self.manager,
            steady_clock,
            run_blocking,
        )
        restores = BatchRestores(self._logs, self.manager, clock)
        self.digest_check = DigestCheck(self._digests, self.divergences, self.manager, restores)
        self._cold_reads = ColdReads(disk, run_blocking)
        checks = BatchChecks(check_batch, without_deltas, run_blocking)
        self.produce = Produce(self.manager, self._purgatory, append_clock, checks, latest_clock)
        self.consumer_fetch = ConsumerFetch(
            self.manager, self._purgatory, clock, self._cold_reads, restores.may_be_restored
        )
        self.replica_fetch = ReplicaFetch(
            self.manager,
            self._purgatory,
            clock,
            self._move_throttle,
            self._cold_reads,
            self.digest_check.compare,
        )
        self.list_offsets = ListOffsets(self.manager, timestamps_of, self._cold_reads, run_blocking)
        self.producer_ids = ProducerIds(self.store, self._keys)
        self._producer_names = ProducerNames(
            self.store,
            self._keys,
            self.cache,
            self.manager.all,
            steady_clock,
            config.producer_name_expiration_ms,
        )
        self.describe_producers = DescribeProducers(self.manager, self._purgatory, latest_clock)
        self._high_watermarks = HighWatermarkEvents(
            config.replica_lag_time_max_ms // 2, config.broker_id, state_changes
        )
        self.manager.on_clock = peer_clock_callback(clock, self.clock_check)
        self._maintenance = self._new_maintenance(clock)
        self.scrubber = Scrubber(
            disk,
            self._logs,
            ScrubStateFile(disk, PurePath(config.data_dir) / "scrub-state"),
            clock,
            run_blocking,
            self.manager.log_unreadable,
            period_ms=config.scrub_period_ms,
            max_bytes_per_second=config.scrub_bytes_per_second,
            cpu_seconds=cpu_seconds,
            digest_found=self._digest_found,
        )
        self._others = OtherReplicas(self.cache, config.broker_id)
        self._repair = self._new_repair(clock)
        self.inspection = self._new_inspection(clock, read_disk_use)
        self.inspection.clock_check = self.clock_check
        self.inspection.describe_requests(self.produce)
        self.inspection.previous_end = data_directory.previous_end
        self.inspection.boot_id = data_directory.identity.boot_id
        self.collector = self._new_collector(clock)
        self.manager.replica_lag_max_bytes = config.replica_lag_max_bytes
        self.manager.on_failure = self._repair.failed
        self.manager.on_following = self._repair.copy_missing
        # A store below a revision that a command rests on was rolled back (rule
        # `other-or-older-store-rejected`).
        self.manager.on_store_revision = self.store.observe_revision
        self.manager.on_full_state = self.start.count
        self._damage = StartDamage(
            config.broker_id, self._logs, self._repair, self._others, self.cache, run_blocking
        )
        self._controlled_shutdown = ControlledShutdown(
            config.broker_id,
            self.manager,
            self.cache,
            self._change_ids,
            state_changes,
            config.shutdown_timeout_ms,
        )
        self._clock_change = NO_CHANGE
        self._registration: Registration | None = None
        self._registering: asyncio.Task[None] | None = None
        self._watch: ClusterWatch | None = None
        self._opened = False
        self._tasks: list[asyncio.Task[None]] = []
        self.stopped = asyncio.Event()

    def _new_maintenance(self, clock: Clock) -> Maintenance:
        data_directory = self._data_directory
        return Maintenance(
            self.manager,
            self._logs,
            self._isr_updates,
            self._high_watermarks,
            clock,
            self._run_blocking,
            confirm_strays=StrayCheck(
                self.store,
                self._keys,
                self._config.broker_id,
                cluster_id=lambda: data_directory.identity.cluster_id,
                seen_revision=lambda: self.seen_revision,
            ),
            note_revision=lambda: data_directory.note_revision(self.seen_revision),
            stray_events=StrayEvents(self.manager, lambda: self.cache.revision, self.state_changes),
            clock_check=self.clock_check,
            note_clock=self._note_clock,
        )

    def _new_clock_check(self, disk: Disk, clock: Clock) -> ClockCheck:
        directory, boot_id = PurePath(self._config.data_dir), self._data_directory.identity.boot_id
        now = Reading(clock.wall_ms(), clock.monotonic_ms(), boot_id)
        check = ClockCheck(now, read_clock(disk, directory), self._tell_clock)
        self._note_clock = lambda: write_clock(
            disk, directory, check.reading(clock.monotonic_ms(), boot_id)
        )
        return check

    def _tell_clock(self, doubt: Doubt, end: str) -> None:
        """Emits that deletion by age pauses, or that it resumes (`end` is not empty)."""
        if not end:
            self._clock_change = self.state_changes.condition_change("clock", Cause.NONE)
        self.state_changes.emit(
            Kind.CLOCK_IN_DOUBT,
            Stage.COMPLETED if end else Stage.REQUESTED,
            change=self._clock_change,
            broker=self._config.broker_id,
            broker_epoch=self.manager.broker_epoch,
            details={"reason": doubt.reason, "ahead_ms": doubt.ahead_ms, "end": end},
        )

    def _new_repair(self, clock: Clock) -> ReplicaRepair:
        broker_id = self._config.broker_id
        return ReplicaRepair(
            self._logs,
            self.manager,
            Resignations(
                self.store,
                self._keys,
                self.cache,
                broker_id,
                self._rng,
                self._change_ids,
                self.state_changes,
            ),
            clock,
            self._rng,
            self._run_blocking,
            self._maintenance.checkpoint,
            broker_id,
            self.state_changes,
            self._others,
        )

    def _new_inspection(self, clock: Clock, read_disk_use: ReadDiskUse) -> BrokerInspection:
        return BrokerInspection(
            self.manager,
            self._logs,
            self.cache,
            ReplicaKnowledge(
                self.manager,
                self._repair,
                self._fetchers,
                self.replica_fetch,
                self.consumer_fetch,
                self._high_watermarks,
                self._latest_clock,
                self._logs.damaged_batches,
                self.divergences,
            ),
            clock,
            self.state_changes,
            lambda: self.store.health,
            read_disk_use,
            self._run_blocking,
            self.start,
        )

    @property
    def seen_revision(self) -> int:
        """The highest store revision that this or a previous incarnation has seen."""
        return max(self._data_directory.seen_revision, self.store.seen_revision)

    def has_topic(self, topic: str) -> bool:
        return topic in self.cache.topics

    def _new_collector(self, clock: Clock) -> BrokerCollector:
        vitals = broker_vitals(
            self.manager,
            self.cache,
            self._purgatory,
            self._isr_updates,
            self._log_syncer,
            HighWatermarkChecks(
                HighWatermarkStalled(
                    self._high_watermarks, clock, self._config.replica_lag_time_max_ms // 2
                ),
                ConsumerWaiting(self.consumer_fetch.waiting, clock),
            ),
            self.inspection.disk_use,
            lambda: self._maintenance.crowded_out,
            self._move_throttle.sent_bytes,
            lambda: self._logs.damaged_batches.count,
            self._digest_counts,
            self.scrubber.progress,
            self.clock_check,
            clock,
            self._directory_state,
        )
        return BrokerCollector(self.manager, vitals, self._latest_clock)

    def _directory_state(self) -> DirectoryState:
        registration = self._registration
        if registration is None:
            return DirectoryState()
        return DirectoryState(not registration.not_intact_reason, registration.is_waiting)

    def _new_fetchers(self, manager: ReplicaManager) -> Fetchers:
        limits = FetchLimits(
            self._config.replica_fetch_max_wait_ms,
            self._config.replica_fetch_max_bytes,
            self._config.replica_fetch_partition_max_bytes,
        )
        self._fetchers = Fetchers(
            manager,
            self._peers,
            limits,
            self._rng,
            self.faults,
            self._log_syncer.is_pending,
            self._move_throttle,
            self._digests,
        )
        return self._fetchers

    def log_synced(self, partition: Partition) -> None:
        """Called by the log syncer."""
        if self.manager.disk:
            self.manager.disk.took(partition.key, "synced")
        partition.log_synced()
        self._purgatory.log_synced(partition)
        self._fetchers.log_synced(partition)

    def sync_postponed(self, partition: Partition, error: LogError) -> None:
        """Called by the log syncer."""
        self.manager.disk.refused(partition.key, error, "synced")

    def sync_failed(self, partition: Partition, error: LogError) -> None:
        """Called by the log syncer."""
        self.manager.replica_failed(partition, error)
        self._fetchers.log_synced(partition)

    def _digest_found(self, key: ReplicaKey, found: RangeDigest) -> None:
        """Called by the scrubber with a digest of a local replica, read from the disk."""
        self.digest_check.scrubbed(key, found)
        partition = self.manager.find(key)
        if partition is not None:
            self._fetchers.digest_found(partition)

    def _digest_counts(self) -> DigestCounts:
        check, divergences = self.digest_check, self.divergences
        return DigestCounts(
            check.compared, check.not_compared, divergences.found_total, divergences.count
        )

    async def prepare(self) -> None:
        """Waits until the store answers, and opens every log. Raises `DataDirectoryError` if the
        data belongs to another cluster, if the store holds no cluster, or if the broker id
        belongs to another data directory."""
        self._data_directory.join_cluster(await self._cluster_id(), self._config.cluster)
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
        except StoreRolledBackError as error:
            raise DataDirectoryError(str(error), RejectionCause.STORE) from error

    async def _cluster_id(self) -> str | None:
        """A directory that has been in a cluster creates no other one: that would hide that the
        store was wiped (rule `other-or-older-store-rejected`)."""
        while True:
            try:
                if self._data_directory.identity.cluster_id:
                    return await held_cluster(self.store, self._keys)
                return await ensure_cluster(self.store, self._keys, self._rng)
            except StoreUnavailableError:
                # The store has reported its outage itself.
                await retry_pause(STORE_RETRY_DELAY_S, self._rng)

    async def join(self, address: str) -> None:
        """Registers under `address`, where the edge already listens, and starts the background
        tasks. Raises `DataDirectoryError` if the store was rolled back."""
        self.inspection.address = address
        self._registration = registration = self._new_registration(address)
        watch = ClusterWatch(
            self.store, self._keys, self.cache, self.manager, registration, self._rng
        )
        self._watch = watch
        config, maintenance = self._config, self._maintenance
        self._start("cluster-watch", watch.run())
        self._start("store-probe", self.store.probe())
        self._start("isr-updates", self._isr_updates.run())
        self._start(
            "isr-timer", maintenance.evaluate_isrs(max(100, config.replica_lag_time_max_ms // 4))
        )
        await watch.ready.wait()
        # This incarnation's registration will have a higher creation revision. Commands for lower
        # broker epochs are for a previous incarnation.
        self.manager.broker_epoch = max(self.manager.broker_epoch, self.cache.revision + 1)
        self._data_directory.require_revision(self.cache.revision)
        self.start.enter(REGISTERS)
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
        reports = LeaderReports(
            self.manager,
            self._fetchers,
            self.cache,
            self._controllers,
            reported_after_ms(config.replica_fetch_max_wait_ms, config.replica_lag_time_max_ms),
        )
        self.inspection.silent_leaders = reports.silent_ms
        self._start("leader-reports", reports.run())
        disk_reports = DiskReports(
            self.manager,
            self.cache,
            self._controllers,
            self._clock,
            disk_probe(self._disk, PurePath(config.data_dir)),
            self._run_blocking,
        )
        self._start("disk-reports", disk_reports.run())
        self._start("producer-ids", self.producer_ids.keep_stocked(self._rng))
        self._start("repairs", self._repair.repair_resigned())
        self._start("scrub", self.scrubber.run())
        self._start("batch-sealer", self._repair.quarantine_only_copies())
        self._start("digest-reads", self._digests.run())
        self._start("divergences", self.divergences.run())

    def _registered(self, broker_epoch: int) -> None:
        self.manager.broker_epoch = max(self.manager.broker_epoch, broker_epoch)
        try:
            self._data_directory.registered(broker_epoch)
        except OSError as error:
            # The file keeps its older and weaker claim, which is safe.
            _log.error("identity_not_written", why=str(error))
        self.start.enter(TAKES_STATES)

    async def _report_waiting(self, reason: str) -> None:
        """Reports for `explain` that this process waits. Its registration deletes the report."""
        await self._report(RejectionCause.WAITS_FOR_LEASE, reason)

    async def _report(self, cause: RejectionCause, reason: str) -> None:
        rejected = RejectedStart(
            cause,
            reason,
            self._clock.wall_ms(),
            self.inspection.address,
            self._host,
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
        if self._registration is None or self.store.health.unreachable_ms >= 0:
            return
        await self._report(RejectionCause.FAULT, self.faults.reason)

    async def hand_over(self) -> None:
        """Requests to lead no partition and to be in no ISR. Waits while another broker can take
        over, a controller is active, and the time allows. Until then this broker serves all
        requests, and follows where it is still in sync."""
        if self._registration is None or self._watch is None or self.cache.controller is None:
            return
        self.inspection.is_stopping = True
        self._fetchers.follow_only_in_sync()
        await self._controlled_shutdown.hand_over(self._registration, self._watch)

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
        if self._registration is not None:
            try:
                async with asyncio.timeout(STORE_FAREWELL_TIMEOUT_S):
                    await self._registration.withdraw()
            except (StoreError, TimeoutError) as error:
                _log.warning("lease_left_to_expire", why=str(error) or "etcd did not answer")
        self.stopped.set()

    async def stop(self) -> None:
        """Ends the background tasks and closes the logs, after the edge has stopped."""
        await self.leave()
        await self.manager.close()
        await self._fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_logs()
        await self._peers.close()
        await self._controllers.close()
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
        if self._registration is None or not self._registration.broker_epoch:
            return
        try:
            async with asyncio.timeout(STORE_FAREWELL_TIMEOUT_S):
                await self._binding.stopped_cleanly(self._registration.broker_epoch)
        except (StoreError, TimeoutError) as error:
            _log.warning("clean_stop_not_in_store", why=str(error) or "etcd did not answer")
