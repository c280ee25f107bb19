"""Checks whether batches continue a log. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.model import Batch
from tidelog_broker.log.errors import AppendOrderError


def require_order(batches: Sequence[Batch], *, offset: int, epoch: int, log: object) -> None:
    """Raises `AppendOrderError` unless the batches continue the log.

    The first one begins at `offset`, each later one where the one before ends, and no leader epoch
    falls. `epoch` is that of the log's last batch."""
    for batch in batches:
        header = batch.header
        if (
            header.base_offset != offset
            or header.record_count < 1
            or header.leader_epoch < max(epoch, 0)
        ):
            raise AppendOrderError(
                f"a batch of {header.record_count} records at offset {header.base_offset} in "
                f"leader epoch {header.leader_epoch} cannot follow; next in {log} is offset "
                f"{offset}, in epoch {epoch} or later"
            )
        offset, epoch = header.next_offset, header.leader_epoch
