"""The parts of a broker, wired to each other and to the boundaries of the process."""

from __future__ import annotations

from pathlib import PurePath

from tidelog_broker.background import Faults
from tidelog_broker.boundaries import Boundaries
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.broker_listener import BrokerListener
from tidelog_broker.clock_check import ClockCheck, Reading, own_clocks, peer_clock_callback
from tidelog_broker.clock_doubt_events import ClockDoubtEvents
from tidelog_broker.controlled_shutdown import ControlledShutdown
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.range_digest import RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.start_progress import StartProgress
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
from tidelog_broker.log.log_errors import LogError
from tidelog_broker.maintenance import Maintenance
from tidelog_broker.membership.change_ids import ChangeIds
from tidelog_broker.membership.directory_binding import DirectoryBinding
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.registration import Registration
from tidelog_broker.membership.rejected_start import RejectedStartReport
from tidelog_broker.metrics.collector import BrokerCollector
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks
from tidelog_broker.metrics.vitals import (
    ConsumerWaiting,
    DigestCounts,
    DirectoryState,
    HighWatermarkStalled,
    broker_vitals,
)
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.replicas.stray_events import StrayEvents
from tidelog_broker.replication.fetch_state import FetchLimits
from tidelog_broker.replication.fetchers import Fetchers
from tidelog_broker.replication.isr_updates import IsrUpdates
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.replication.unreachable_leaders import LeaderReports, reported_after_ms
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.describe_producers import DescribeProducers
from tidelog_broker.requests.list_offsets import ListOffsets
from tidelog_broker.requests.produce import Produce
from tidelog_broker.requests.producer_ids import ProducerIds
from tidelog_broker.requests.producer_names import ProducerNames
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from tidelog_broker.storage.clock_file import read_clock, write_clock
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.log_syncer import LogSyncer
from tidelog_broker.storage.replica_digests import ReplicaDigests
from tidelog_broker.storage.scrub_pace import ScrubPace
from tidelog_broker.storage.scrub_state import ScrubStateFile
from tidelog_broker.storage.scrubber import Scrubber
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.store import MetadataStore


class BrokerParts:
    """The parts of a broker.

    Each part is constructed once and never changed afterwards. Where two parts need each other, the
    earlier one gets a function that finds the later one when it is called.
    """

    def __init__(self, config: BrokerConfig, boundaries: Boundaries) -> None:
        self._config = config
        self._keys = Keys(config.cluster)
        self._boundaries = boundaries
        self._clock = boundaries.clock
        self._disk = boundaries.disk
        self._rng = boundaries.rng
        self._run_blocking = boundaries.run_blocking
        self._data_directory = boundaries.data_directory
        self._data_path = PurePath(config.data_dir)
        self.state_changes = boundaries.state_changes
        self.faults = Faults()
        self.start = StartProgress()
        self.cache = MetadataCache(self._keys)
        self.registration: Registration | None = None  # set when the broker joins
        self._build_store(boundaries.store)
        self._build_clocks()
        self._build_logs()
        self._build_replicas()
        self._build_damage_checks()
        self._build_requests()
        self._build_background_work()
        self._build_reports()

    def _build_store(self, store: MetadataStore) -> None:
        config = self._config
        self._rejections = RejectedStartReport(
            store, self._keys, config.broker_id, config.lease_ttl_seconds
        )
        self.store = MeasuredStore(store, self._keys.cluster, self._clock, self.state_changes)
        self._binding = DirectoryBinding(
            self.store,
            self._keys,
            config.broker_id,
            self._data_directory,
            self._boundaries.host,
            config.replace_directory,
        )

    def _build_clocks(self) -> None:
        clock, boot_id = self._clock, self._data_directory.identity.boot_id
        events = ClockDoubtEvents(
            self._config.broker_id, lambda: self.manager.broker_epoch, self.state_changes
        )
        now = Reading(clock.wall_ms(), clock.monotonic_ms(), boot_id)
        check = ClockCheck(now, read_clock(self._disk, self._data_path), events.emit)
        self.clock_check = check
        self._note_clock = lambda: write_clock(
            self._disk, self._data_path, check.reading(clock.monotonic_ms(), boot_id)
        )
        self._steady_clock, self._append_clock, self._latest_clock = own_clocks(clock, check)

    def _build_logs(self) -> None:
        self._logs = LogDirectory(
            self._disk,
            self._data_path,
            self._steady_clock,
            digest_range_offsets=self._config.digest_range_offsets,
        )
        self._cold_reads = ColdReads(self._disk, self._run_blocking)
        self._digests = ReplicaDigests(self._disk, self._logs, self._cold_reads, self._run_blocking)

    def _build_replicas(self) -> None:
        config, clock = self._config, self._clock
        self._purgatory = Purgatory()
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
            self.state_changes,
        )
        self._log_syncer = LogSyncer(self._logs, self._boundaries.run_sync, clock, self)
        self.manager = ReplicaManager(
            config.broker_id,
            self._logs,
            self.cache,
            clock,
            BrokerListener(self._purgatory, self._isr_updates, self._log_syncer),
            self._new_fetchers,
            self.state_changes,
            replica_lag_max_bytes=config.replica_lag_max_bytes,
            on_failure=lambda key, error: self._repair.failed(key, error),
            on_clock=peer_clock_callback(clock, self.clock_check),
        )
        self.commands = ReplicaCommands(
            self.manager,
            self._logs,
            clock,
            self.state_changes,
            self._run_blocking,
            on_following=lambda key: self._repair.copy_missing(key),
            # A store below a revision that a command rests on was rolled back (rule
            # `other-or-older-store-rejected`).
            on_store_revision=self.store.observe_revision,
            on_full_state=self.start.count,
        )

    def _new_fetchers(self, manager: ReplicaManager) -> Fetchers:
        limits = FetchLimits(
            self._config.replica_fetch_max_wait_ms,
            self._config.replica_fetch_max_bytes,
            self._config.replica_fetch_partition_max_bytes,
        )
        self._fetchers = Fetchers(
            manager,
            self._boundaries.peers,
            limits,
            self._rng,
            self.faults,
            self._log_syncer.is_pending,
            self._move_throttle,
            self._digests,
        )
        return self._fetchers

    def _build_damage_checks(self) -> None:
        self.divergences = Divergences(
            self._disk,
            self._data_path / "evidence",
            self._logs,
            self.manager,
            self._steady_clock,
            self._run_blocking,
        )
        self._restores = BatchRestores(
            self._logs, self.manager, self._clock, self._cold_reads, self._run_blocking
        )
        self.digest_check = DigestCheck(
            self._digests, self.divergences, self.manager, self._restores
        )

    def _build_requests(self) -> None:
        config, given = self._config, self._boundaries
        checks = BatchChecks(given.check_batch, given.without_deltas, self._run_blocking)
        self.produce = Produce(
            self.manager, self._purgatory, self._append_clock, checks, self._latest_clock
        )
        self.consumer_fetch = ConsumerFetch(
            self.manager,
            self._purgatory,
            self._clock,
            self._cold_reads,
            self._restores.may_be_restored,
        )
        self.replica_fetch = ReplicaFetch(
            self.manager,
            self._purgatory,
            self._clock,
            self._move_throttle,
            self._cold_reads,
            self.digest_check.compare,
        )
        self.list_offsets = ListOffsets(
            self.manager, given.timestamps_of, self._cold_reads, self._run_blocking
        )
        self.producer_ids = ProducerIds(self.store, self._keys)
        self._producer_names = ProducerNames(
            self.store,
            self._keys,
            self.cache,
            self.manager.all,
            self._steady_clock,
            config.producer_name_expiration_ms,
        )
        self.describe_producers = DescribeProducers(
            self.manager, self._purgatory, self._latest_clock
        )

    def _build_background_work(self) -> None:
        config = self._config
        self._high_watermarks = HighWatermarkEvents(
            config.replica_lag_time_max_ms // 2, config.broker_id, self.state_changes
        )
        self._maintenance = self._new_maintenance()
        self.scrubber = Scrubber(
            self._disk,
            self._logs,
            ScrubStateFile(self._disk, self._data_path / "scrub-state"),
            self._clock,
            self._cold_reads,
            self._run_blocking,
            self.manager.log_unreadable,
            pace=ScrubPace(
                period_ms=config.scrub_period_ms,
                max_bytes_per_second=config.scrub_bytes_per_second,
                cpu_percent=config.scrub_cpu_percent,
            ),
            cpu_seconds=self._boundaries.cpu_seconds,
            digest_found=self._digest_found,
        )
        self._others = OtherReplicas(self.cache, config.broker_id)
        self._repair = self._new_repair()
        self._damage = StartDamage(
            config.broker_id,
            self._logs,
            self._repair,
            self._others,
            self.cache,
            self._run_blocking,
        )
        self._controlled_shutdown = ControlledShutdown(
            config.broker_id,
            self.manager,
            self.cache,
            self._change_ids,
            self.state_changes,
            config.shutdown_timeout_ms,
        )

    def _new_maintenance(self) -> Maintenance:
        data_directory = self._data_directory
        return Maintenance(
            self.manager,
            self._logs,
            self._isr_updates,
            self._high_watermarks,
            self._clock,
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

    def _new_repair(self) -> ReplicaRepair:
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
            self._clock,
            self._rng,
            self._run_blocking,
            self._maintenance.checkpoint,
            broker_id,
            self.state_changes,
            self._others,
        )

    def _build_reports(self) -> None:
        config = self._config
        self._leader_reports = LeaderReports(
            self.manager,
            self._fetchers,
            self.cache,
            self._boundaries.controllers,
            reported_after_ms(config.replica_fetch_max_wait_ms, config.replica_lag_time_max_ms),
        )
        self._disk_reports = DiskReports(
            self.manager,
            self.cache,
            self._boundaries.controllers,
            self._clock,
            disk_probe(self._disk, self._data_path),
            self._run_blocking,
            self._log_syncer.check_hangs,
        )
        self.inspection = self._new_inspection()
        self.collector = self._new_collector()

    def _new_inspection(self) -> BrokerInspection:
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
            self._clock,
            self.state_changes,
            lambda: self.store.health,
            self._boundaries.read_disk_use,
            self._run_blocking,
            self.start,
            silent_leaders=self._leader_reports.silent_ms,
            rejections=self.produce.rejections,
            key_placements=self.produce.key_placements,
            previous_end=self._data_directory.previous_end,
            boot_id=self._data_directory.identity.boot_id,
            clock_check=self.clock_check,
        )

    def _new_collector(self) -> BrokerCollector:
        vitals = broker_vitals(
            self.manager,
            self.cache,
            self._purgatory,
            self._isr_updates,
            self._log_syncer,
            HighWatermarkChecks(
                HighWatermarkStalled(
                    self._high_watermarks, self._clock, self._config.replica_lag_time_max_ms // 2
                ),
                ConsumerWaiting(self.consumer_fetch.waiting, self._clock),
            ),
            self.inspection.disk_use,
            lambda: self._maintenance.crowded_out,
            self._move_throttle.sent_bytes,
            lambda: self._logs.damaged_batches.count,
            self._digest_counts,
            self.scrubber.progress,
            self.scrubber.delay,
            self.clock_check,
            self._clock,
            self._directory_state,
        )
        return BrokerCollector(self.manager, vitals, self._latest_clock)

    def _directory_state(self) -> DirectoryState:
        registration = self.registration
        if registration is None:
            return DirectoryState()
        return DirectoryState(not registration.not_intact_reason, registration.is_waiting)

    @property
    def seen_revision(self) -> int:
        """The highest store revision that this or a previous incarnation has seen."""
        return max(self._data_directory.seen_revision, self.store.seen_revision)

    def has_topic(self, topic: str) -> bool:
        return topic in self.cache.topics

    # -- events of background work ---------------------------------------------------

    def log_synced(self, partition: Partition) -> None:
        """Called by the log syncer."""
        if self.manager.disk:
            self.manager.disk.took(partition.key, "synced")
        partition.log_synced()
        self._purgatory.log_synced(partition)
        self._fetchers.log_synced(partition)

    def sync_delayed(self, partition: Partition, error: LogError) -> None:
        """Called by the log syncer."""
        self.manager.disk.rejected(partition.key, error, "synced")

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
