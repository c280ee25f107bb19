"""Decides which batches may replace unreadable ones ("Damaged batches" in
docs/internals/log-format.md)."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.batch import is_damaged, is_intact
from tidelog.log_format import frame_bytes
from tidelog.model import Batch
from tidelog_broker.log.leader_epochs import LeaderEpochs


def is_what_was_there(unreadable: Batch, batches: Sequence[Batch], epochs: LeaderEpochs) -> bool:
    """Returns whether the log held these batches where `unreadable` lies now.

    They have valid checksums, cover the same offsets and bytes, and are of the leader epochs that
    the log has there. All replicas hold the same batch at an offset of one epoch."""
    expected = unreadable.header.base_offset
    for batch in batches:
        header = batch.header
        if header.base_offset != expected or is_damaged(header) or not is_intact(batch):
            return False
        if header.leader_epoch != epochs.epoch_at(expected):
            return False
        expected = header.next_offset
    has_same_extent = expected == unreadable.header.next_offset and (
        sum(map(frame_bytes, batches)) == frame_bytes(unreadable)
    )
    return is_damaged(unreadable.header) and has_same_extent
