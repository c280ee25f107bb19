"""How far a partition is committed ("High watermark" in docs/internals/protocol.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.model import NO_OFFSET


def counted_end(*, log_end: int, flushed_offset: int, synced: bool) -> int:
    """Returns how far a replica's log counts, for high watermark and ISR alike.

    That is its end, or with durability `synced` only what is synced to disk (rule
    `damaged-replica-resigns-first`)."""
    return min(log_end, flushed_offset) if synced else log_end


def advanced(
    high_watermark: int,
    end_offsets: Mapping[int, int],
    *,
    maximal_isr: Collection[int],
    committed_isr_size: int,
    min_isr: int,
) -> int:
    """Returns the smallest end offset in the maximal ISR.

    It never falls, and does not change while the committed ISR is below min ISR (KIP-966).
    `end_offsets` has the `counted_end` by broker, also the leader's own; a missing broker has
    reported none in this epoch."""
    if committed_isr_size < min_isr:
        return high_watermark
    lowest = min((end_offsets.get(broker, NO_OFFSET) for broker in maximal_isr), default=NO_OFFSET)
    return max(high_watermark, lowest)


def followed(high_watermark: int, *, leader_high_watermark: int, log_end: int) -> int:
    """Returns a follower's high watermark: its leader's, up to what counts of its own log."""
    return max(high_watermark, min(leader_high_watermark, log_end))
