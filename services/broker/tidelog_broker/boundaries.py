"""What a broker gets from its process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.feature_levels import SUPPORTED, LevelRange
from tidelog_broker.background import RunBlocking
from tidelog_broker.log.disk import Disk
from tidelog_broker.replication.transport import Controllers, Peers
from tidelog_broker.requests.batch_checks import CheckBatch, WithoutDeltas
from tidelog_broker.requests.list_offsets import TimestampsOf
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_broker.storage.disk_use import UNKNOWN_DISK, ReadDiskUse
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.store import MetadataStore
from tidelog_runtime.telemetry.state_change_log import StateChangeLog


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """The environment of a broker. `__main__` passes the real ones, the simulator its own.

    - `run_sync`: like `run_blocking`, for the syncs that producers wait for. None of them waits for
      a thread: a sync that waits would count as one that hangs.
    - `read_disk_use`: returns the use of the data's file system.
    - `host`: the machine's name.
    - `cpu_seconds`: returns the CPU time of the calling thread.
    - `levels`: the feature levels of the release.
    """

    store: MetadataStore
    disk: Disk
    data_directory: DataDirectory
    peers: Peers
    controllers: Controllers
    clock: Clock
    rng: random.Random
    run_blocking: RunBlocking
    run_sync: RunBlocking
    check_batch: CheckBatch
    timestamps_of: TimestampsOf
    without_deltas: WithoutDeltas
    state_changes: StateChangeLog
    read_disk_use: ReadDiskUse = lambda: UNKNOWN_DISK
    host: str = ""
    cpu_seconds: Callable[[], float] = lambda: 0.0
    levels: LevelRange = SUPPORTED
