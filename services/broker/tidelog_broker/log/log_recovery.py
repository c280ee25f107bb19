"""Loads a partition's directory when a log is opened ("Intact or not" in
docs/internals/protocol.md).

After a clean stop only small files and the header of the last batch are read. After any other stop
the segments from the recovery point on are read completely, and cut at the first fault that cannot
become an unreadable batch. `UnsyncedWrites` defines how writes that were not synced are treated.
Files are opened separately here, so that logs can be opened in several threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from tidelog.log_format import frame_at
from tidelog_broker.log.bad_sectors import BadSectorReader
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.epoch_file import EpochFile, epochs_of, read_epochs
from tidelog_broker.log.leader_epochs import LeaderEpochs
from tidelog_broker.log.log_check import LogCheck, LogContent, MisplacedError
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.log_start import BeforeLoss, find_segments
from tidelog_broker.log.quarantine import (
    Evidence,
    discard_evidence,
)
from tidelog_broker.log.segment import (
    segment_path,
)
from tidelog_broker.log.segment_arrangement import (
    arrange_segments,
)
from tidelog_broker.log.unsynced_writes import UnsyncedWrites


def load_content(
    disk: Disk,
    directory: PurePath,
    epoch_file: EpochFile,
    *,
    recovery_point: int,
    index_interval_bytes: int,
    before_loss: BeforeLoss,
    unsynced: UnsyncedWrites,
    check_all: bool,
    clean_state: CleanLog | None = None,
    evidence: Evidence = discard_evidence,
    min_end_offset: int = 0,
) -> LogContent:
    """Reads the content of a log. Leaves the directory consistent, but creates nothing.

    Damage is cut or made unreadable, and reported. `Log.open` explains the parameters. Raises
    `OSError`, and `UndecidedDamageError` as `unsynced` says."""
    least_end = max(recovery_point, min_end_offset)
    start, bases, gap, is_interrupted = find_segments(
        disk, directory, before_loss, unsynced, least_end
    )
    epochs = read_epochs(epoch_file) if bases else LeaderEpochs()
    if (
        clean_state is not None
        and clean_state.end_offset == recovery_point
        and not check_all
        and _matches_clean_state(disk, directory, clean_state, bases)
    ):
        if epochs is None:
            epochs = epochs_of(disk, directory, clean_state.segments)
        content = LogContent(start, list(clean_state.segments), epochs, clean_state)
        content.epochs.clip(start, content.log_end_offset)
        return content
    check = LogCheck(
        disk,
        directory,
        bases,
        recovery_point,
        index_interval_bytes,
        gap,
        before_loss,
        unsynced,
        check_all,
        evidence,
        least_end,
    )
    try:
        if is_interrupted:
            check.require_order("an arrangement of the segments was interrupted")
        return check.run(start, epochs)
    except MisplacedError as found:
        if unsynced.is_undecided:
            raise UndecidedDamageError(*found.args) from None
    bases = arrange_segments(
        disk,
        directory,
        start=start,
        epochs=read_epochs(epoch_file),
        min_end_offset=least_end,
        evidence=evidence,
    )
    made = {damaged.first_offset: damaged for damaged in check.damaged}
    check = replace(check, bases=bases, made_unreadable=made, damaged=[], trusted=[], batches=0)
    return check.run(start, read_epochs(epoch_file))


def _matches_clean_state(
    disk: Disk, directory: PurePath, clean_state: CleanLog, bases: list[int]
) -> bool:
    if [segment.base_offset for segment in clean_state.segments] != bases or any(
        disk.file_size(segment_path(directory, base)) != summary.size
        for base, summary in clean_state.segments
    ):
        return False
    filled = next(
        (segment for segment in reversed(clean_state.segments) if segment.summary.size), None
    )
    if filled is None or clean_state.last is None:
        return filled is None and clean_state.last is None and bool(clean_state.segments)
    base, summary = filled
    file = disk.open(segment_path(directory, base))
    try:
        found = frame_at(BadSectorReader(file).read_at, clean_state.last.position, summary.size)
    finally:
        file.close()
    return (
        found is not None
        and (found.broker_crc32c, found.crc32c)
        == (clean_state.last.broker_crc32c, clean_state.last.crc32c)
        and found.next_offset == summary.next_offset
    )
