"""Copies one partition: from its leader into segment files, up to a high watermark."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tidelog.backup.manifest import BackupError, PartitionBackup
from tidelog.backup.segments import SegmentWriter
from tidelog.backup.workers import OnProgress, Pace, TransferProgress, run_to_end
from tidelog.batch import UNKNOWN_MS, new_damaged_batch
from tidelog.client.clock import Clock
from tidelog.client.consumer import Consumer
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import MAX_INT32, NO_EPOCH, Batch, OffsetPosition, TopicPartition

# Duration of a poll without batches.
POLL_MS = 500
# A partition is given up after this time without a batch.
NO_PROGRESS_MS = 60_000


class CopyTask(NamedTuple):
    """A partition to copy. `before`: what the backup has of it, with the new high watermark."""

    partition: TopicPartition
    topic_id: str
    before: PartitionBackup


class PartitionCopier:
    """Copies partitions one after another with one consumer, which returns fences."""

    def __init__(
        self,
        consumer: Consumer,
        clock: Clock,
        pace: Pace,
        on_progress: OnProgress,
        *,
        no_progress_ms: int = NO_PROGRESS_MS,
    ) -> None:
        self._consumer = consumer
        self._clock = clock
        self._pace = pace
        self._on_progress = on_progress
        self._no_progress_ms = no_progress_ms

    async def copy(self, task: CopyTask, writer: SegmentWriter) -> PartitionBackup:
        """Returns what the backup then has; its `error` says why it is not everything. Raises
        `OSError`."""
        error = ""
        try:
            await run_to_end(writer.adopt)
            await self._copy(task, writer)
        except (TidelogError, BackupError) as failure:
            error = str(failure)
        except BaseException:
            writer.abandon()
            raise
        await run_to_end(writer.close)
        return writer.tally.result(error)

    async def _copy(self, task: CopyTask, writer: SegmentWriter) -> None:
        tally, end = writer.tally, task.before.high_watermark
        since_ms = self._clock.monotonic_ms()
        reached = -1
        seek, last = True, ""
        while tally.next_offset < end:
            if tally.next_offset > reached:
                reached, since_ms = tally.next_offset, self._clock.monotonic_ms()
            elif self._clock.monotonic_ms() - since_ms >= self._no_progress_ms:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader of {task.partition} returned a batch from offset "
                    f"{tally.next_offset} on for {self._no_progress_ms} ms{last}; "
                    "run tidelog explain",
                )
            try:
                if seek:
                    await self._seek(task, writer)
                    seek = False
                fetched = await self._consumer.poll_batches(POLL_MS)
            except TidelogError as error:
                await self._continue(task, writer, error)
                seek, last = True, f"; the last error: {error.message}"
                continue
            batches = [one.batch for one in fetched if one.header.base_offset < end]
            if batches:
                await self._write(writer, batches)

    async def _seek(self, task: CopyTask, writer: SegmentWriter) -> None:
        # Only one partition at a time, so that an error of the consumer is of this one.
        self._consumer.assign([])
        await self._consumer.resume(
            task.partition,
            writer.tally.next_offset,
            topic_id=task.topic_id,
            read_epoch=writer.tally.last_epoch,
            end_offset=task.before.high_watermark,
        )

    async def _write(self, writer: SegmentWriter, batches: list[Batch]) -> None:
        before = writer.tally.next_offset
        written = await run_to_end(writer.append, batches)
        self._on_progress(TransferProgress(written, writer.tally.next_offset - before))
        await self._pace.spend(written)

    async def _continue(self, task: CopyTask, writer: SegmentWriter, error: TidelogError) -> None:
        """Records why batches are missing. Raises the error if the copy cannot continue."""
        if isinstance(error, RecordsDamagedError):
            await self._write(writer, [_placeholder(writer, error.next_offset)])
            return
        if error.code is ErrorCode.CORRUPT_BATCH:
            # The leader may get an intact batch from another replica, or a new leader be elected.
            await asyncio.sleep(POLL_MS / 1000)
            return
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or isinstance(error, LogTruncatedError):
            raise error
        found = await self._consumer.offsets_with_epochs(OffsetPosition.EARLIEST, [task.partition])
        earliest = found[task.partition]
        if earliest.topic_id != task.topic_id or earliest.offset <= writer.tally.next_offset:
            raise error
        removed_to = min(earliest.offset, task.before.high_watermark)
        await run_to_end(writer.skip_to, removed_to)


def _placeholder(writer: SegmentWriter, next_offset: int) -> Batch:
    """Returns a batch without records for those that are damaged, as brokers keep one."""
    first = writer.tally.next_offset
    if not 0 < next_offset - first <= MAX_INT32:
        raise BackupError(f"the leader reports damage up to offset {next_offset}, before {first}")
    return new_damaged_batch(
        b"",
        first_offset=first,
        next_offset=next_offset,
        leader_epoch=max(writer.tally.last_epoch, NO_EPOCH + 1),
        append_time_ms=UNKNOWN_MS,
    )
