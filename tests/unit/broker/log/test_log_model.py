"""Random histories of a log compared with the simplest model: a list of batches."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.model import NO_EPOCH, Batch
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogStorageError
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import START_MS, batch_at, ended, open_log, read_clean_logs
from unit.broker.log.memory_disk import MemoryDisk

CONFIG = LogConfig(
    segment_bytes=600, segment_ms=1 << 40, retention_bytes=1000, index_interval_bytes=150
)


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()

        self.batches: list[Batch] = []
        self.start = 0
        self.flushed = 0
        self.epoch = 0
        self.clean_state: CleanLog | None = None
        self.reopen(0)

    def reopen(
        self,
        recovery_point: int,
        clean_state: CleanLog | None = None,
        unsynced: UnsyncedWrites = UnsyncedWrites.REWRITTEN,
    ) -> None:
        self.log = open_log(
            self.disk,
            config=CONFIG,
            recovery_point=recovery_point,
            clean_state=clean_state,
            unsynced=unsynced,
        )

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start

    def next_batches(self, shapes: list[tuple[int, int]], new_epoch: bool) -> list[Batch]:
        self.epoch += new_epoch
        batches, offset = [], self.end
        for count, size in shapes:
            batches.append(
                batch_at(
                    offset,
                    count=count,
                    epoch=self.epoch,
                    size=size,
                    timestamp_ms=START_MS + (offset * 7) % 40,
                )
            )
            offset += count
        return batches

    shapes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 250)), min_size=1, max_size=4)

    @rule(shapes=shapes, new_epoch=st.booleans())
    def append(self, shapes: list[tuple[int, int]], new_epoch: bool) -> None:
        batches = self.next_batches(shapes, new_epoch)
        self.log.append(batches)
        self.batches += batches

    @rule(shapes=shapes, new_epoch=st.booleans(), space=st.integers(0, 300))
    def append_with_little_space(
        self, shapes: list[tuple[int, int]], new_epoch: bool, space: int
    ) -> None:
        batches = self.next_batches(shapes, new_epoch)
        self.disk.space = space
        try:
            self.log.append(batches)
        except LogStorageError:
            pass
        else:
            self.batches += batches
        self.disk.space = None

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        self.log.truncate_to(offset)
        self.epoch += 1  # a cut is ordered by another leader
        self.batches = [b for b in self.batches if b.header.next_offset <= offset]
        self.flushed = min(self.flushed, self.end)

    @rule(offset=st.integers(0, 100))
    def reset(self, offset: int) -> None:
        self.log.reset_to(offset)
        self.epoch += 1
        self.batches, self.start, self.flushed = [], offset, offset

    @rule(back=st.integers(0, 8))
    def delete_old(self, back: int) -> None:
        self.log.delete_old_segments(START_MS, up_to=self.end - back)
        self.start = self.log.log_start_offset
        assert self.start <= max(self.end - back, self.log.log_start_offset)
        self.batches = [b for b in self.batches if b.header.base_offset >= self.start]
        self.flushed = max(self.flushed, self.start)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def stop_cleanly(self) -> None:
        self.clean_state = ended(self.log)
        self.flushed = self.end
        self.reopen(self.flushed, self.clean_state)
        assert self.log.recovery is None

    @rule(torn=st.integers(0, 200))
    def crash(self, torn: int) -> None:
        """The process dies, perhaps within a write, which leaves a part of a batch at the end."""
        active = max(path for path in self.disk.names if path.suffix == ".log")
        part = b"".join(
            bytes(batch.records) for batch in self.next_batches([(1, torn)], new_epoch=False)
        )
        self.disk.names[active].data += part
        self.reopen(self.flushed, self.clean_state)
        assert self.log.recovery is None or not self.log.recovery.lost_data

    @rule(rng=st.none() | st.randoms(use_true_random=False), checkpoint_age=st.integers(0, 30))
    def lose_power(self, rng: random.Random | None, checkpoint_age: int) -> None:
        """Everything flushed must survive, however old the recovery point is. Data beyond it is
        valid.
        """
        self.disk.power_failure(rng)
        self.reopen(
            max(0, self.flushed - checkpoint_age),
            self.clean_state,
            unsynced=UnsyncedWrites.LOST_CUT,
        )
        assert self.log.log_end_offset >= self.flushed
        kept = read_clean_logs(self.log)
        assert kept == self.batches[: len(kept)]
        self.batches = kept
        # No sync follows, so only the recovery point counts.
        self.flushed = min(self.flushed, self.log.flushed_offset)

    @invariant()
    def log_is_the_list(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert self.flushed <= log.flushed_offset <= self.end
        assert read_clean_logs(log) == self.batches
        assert log.failed is None

    @invariant()
    def every_offset_is_found(self) -> None:
        for batch in self.batches[-6:]:
            offset = batch.header.next_offset - 1
            assert self.log.read(offset, max_bytes=1, up_to=self.end) == [batch]

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(batch.header.leader_epoch, batch.header.base_offset)
        for epoch, start in starts.items():
            assert self.log.epoch_start(epoch) == start
        if self.batches:
            assert self.log.latest_epoch == self.batches[-1].header.leader_epoch
        elif self.start == 0:
            assert self.log.latest_epoch == NO_EPOCH

    @invariant()
    def times_are_found(self) -> None:
        asked = START_MS + 20
        expected = next((b for b in self.batches if b.header.max_timestamp_ms >= asked), None)
        assert self.log.offset_for_timestamp(asked, up_to=self.end) == expected


TestLogModel = pytest.mark.timeout(120)(LogModel.TestCase)
TestLogModel.settings = settings(max_examples=60, stateful_step_count=25)
