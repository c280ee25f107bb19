"""Removes batches of a log, at its end or at its start."""

from __future__ import annotations

from tidelog_broker.log.checked_file import write_checked
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.log_base import LogBase
from tidelog_broker.log.log_errors import LogStorageError
from tidelog_broker.log.log_start import LOG_START_KIND, LOG_START_NAME
from tidelog_broker.log.retention import (
    MAX_DELETED_AT_ONCE,
    expired_segments,
    is_expired,
    is_roll_due,
)


class ShrinkableLog(LogBase):
    """The part of `Log` that cuts it at an offset, and deletes segments that are not kept any
    more."""

    def truncate_to(self, offset: int) -> None:
        """Cuts the batch that holds `offset`, and all after it. On disk on return."""
        self._check_usable()
        if offset < self.log_start_offset:
            self.reset_to(offset)
            return
        if offset > self.log_end_offset:
            return
        epochs_before = self._epochs.entries
        try:
            if offset < self.log_end_offset:
                self.before_cut(offset)
                self.producers.begin_cut(offset)
                self._begin_cut()
                self._segments.cut(offset)
                self.digests.cut(self.log_end_offset)
                self.producers.finish_cut()
            self._epochs.truncate_from_end(self.log_end_offset)
            if self._epochs.entries != epochs_before:
                self._epoch_file.replace(self._epochs.entries, sync=True)
        except OSError as error:
            raise self._fail(error, self.directory, f"cut to offset {offset} the log in") from error
        finally:
            self._progress.flushed_offset = min(self.flushed_offset, self.log_end_offset)

    def reset_to(self, offset: int) -> None:
        """Removes all batches; the log is empty and begins at `offset`. On disk on return."""
        self._check_usable()
        try:
            self.before_cut(offset)
            self._begin_cut()
            self.producers.begin_reset(offset)
            # Written first, so that the next start finishes an interrupted reset.
            self._write_log_start(offset)
            self.producers.finish_reset(offset)
            self._segments.restart_at(offset)
            self.digests.reset(offset)
            self._progress.name_changed()
            self._epochs = LeaderEpochs()
            self._epoch_file.replace((), sync=True)
        except OSError as error:
            raise self._fail(error, self.directory, "empty the log in") from error
        self._progress.flushed_offset = offset

    def _begin_cut(self) -> None:
        self._clean_state = None
        self._disk.sync_directory(self.directory)
        self._progress.begin_cut()

    def _write_log_start(self, offset: int) -> None:
        path = self.directory / LOG_START_NAME
        write_checked(self._disk, path, LOG_START_KIND, offset, sync=True)

    def delete_old_segments(self, now_ms: int | None, up_to: int, append_ms: int = 0) -> int:
        """Deletes segments below `up_to` that retention does not keep, as `_delete_oldest` does.
        Rolls the active segment if it is old. `now_ms` None: the clock is in doubt, and nothing is
        deleted for its age. `append_ms`: the clock that stamps appends, if that is another one."""
        self._check_usable()
        try:
            self._roll_if_old(now_ms, up_to, append_ms or now_ms)
            sealed = list(self._segments.sealed)
            count = expired_segments(
                [segment.summary for segment in sealed],
                self._segments.active.summary,
                config=self._config,
                now_ms=now_ms,
                up_to=up_to,
                last_append_ms=lambda index: sealed[index].last_append_time_ms(),
            )
            return self._delete_oldest(count)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete old segments in") from error

    def delete_below(self, offset: int) -> int:
        """Deletes segments that end at or below the offset, even the active one,
        MAX_DELETED_AT_ONCE at most, and returns how many."""
        self._check_usable()
        try:
            active = self._segments.active.summary
            if active.size > 0 and active.next_offset <= offset:
                self._clean_state = None
                self._roll()
            sealed = self._segments.sealed
            count = sum(segment.next_offset <= offset for segment in sealed)
            return self._delete_oldest(count)
        except OSError as error:
            raise LogStorageError.of(error, self.directory, "delete old segments in") from error

    def _delete_oldest(self, count: int) -> int:
        """Returns how many it deletes: MAX_DELETED_AT_ONCE at most. A later call continues."""
        count = min(count, MAX_DELETED_AT_ONCE)
        if count:
            self._clean_state = None
            start = self._segments.sealed[count - 1].next_offset
            self.producers.begin_deletion(start)
            self._write_log_start(start)
            self._segments.drop_oldest(count)
            self.producers.finish_deletion()
            self._progress.flushed_offset = max(self.flushed_offset, start)
            self._epochs.truncate_from_start(start)
            self._write_epochs()
        return count

    def _roll_if_old(self, now_ms: int | None, up_to: int, append_ms: int | None) -> None:
        active = self._segments.active
        expired = (
            now_ms is not None
            and active.next_offset <= up_to
            and is_expired(active.summary, self._config, now_ms, active.last_append_time_ms)
        )
        if expired or is_roll_due(active.summary, 0, self._config, append_ms):
            self._clean_state = None
            self._roll()
