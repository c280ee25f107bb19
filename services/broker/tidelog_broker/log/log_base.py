"""What the parts of a log share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import PurePath

from tidelog_broker.core.partition.range_digest import LogDigests
from tidelog_broker.core.partition.replica_log import CachedBatches
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.epoch_file import EpochFile
from tidelog_broker.log.flush import FlushProgress
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogFailedError
from tidelog_broker.log.producer_history import ProducerHistory
from tidelog_broker.log.segment import Segment
from tidelog_broker.log.segments import Segments

BeforeCut = Callable[[int], None]


class LogBase(ABC):
    """The fields of `Log`, and those of its methods that more than one part calls."""

    directory: PurePath
    digests: LogDigests
    producers: ProducerHistory
    failed: LogFailedError | None
    before_cut: BeforeCut
    _disk: Disk
    _config: LogConfig
    _segments: Segments
    _epochs: LeaderEpochs
    _epoch_file: EpochFile
    _progress: FlushProgress
    # What a clean stop left, as long as the log has not changed since.
    _clean_state: CleanLog | None

    @property
    @abstractmethod
    def log_start_offset(self) -> int: ...

    @property
    @abstractmethod
    def log_end_offset(self) -> int: ...

    @property
    @abstractmethod
    def flushed_offset(self) -> int: ...

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    def _read(self, offset: int, max_bytes: int, up_to: int, *, waits: bool) -> CachedBatches: ...

    @abstractmethod
    def _check_usable(self) -> None: ...

    @abstractmethod
    def _fail(self, error: OSError, path: PurePath, action: str) -> LogFailedError: ...

    @abstractmethod
    def _roll(self) -> Segment: ...

    @abstractmethod
    def _write_epochs(self) -> None: ...
