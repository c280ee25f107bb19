"""A bound in bytes per second that may change at any time. Pure."""

from __future__ import annotations

# Unused bytes may pass later, but no more than this time's worth at once.
BURST_MS = 200
# Less than this time's worth is not requested: many small answers would cost more than they carry.
CHUNK_MS = 50


class TokenBucket:
    """A token bucket.

    A batch passes in full, so more may pass than there was room for. The excess is waited for
    before more passes. `rate`: bytes per second; None: no bound. `now_ms` never decreases.
    """

    def __init__(self) -> None:
        # In thousandths of a byte: so a millisecond's worth is an integer at any rate.
        self._milli = 0
        # When it was last filled; None: no bound has applied yet.
        self._filled_ms: int | None = None

    def available(self, rate: int | None, now_ms: int) -> int | None:
        """Returns the bytes that may pass now, 0 if too few to request; None: any number."""
        if rate is None:
            return None
        self._fill(rate, now_ms)
        return self._milli // 1_000 if self._milli >= _chunk_milli(rate) else 0

    def pause_ms(self, rate: int | None, now_ms: int) -> int:
        """Returns the time until something may pass if nothing else does; 0: it may now."""
        if rate is None:
            return 0
        self._fill(rate, now_ms)
        return max(0, -((self._milli - _chunk_milli(rate)) // rate))

    def take(self, size: int, rate: int | None, now_ms: int) -> None:
        """Notes that this many bytes have passed."""
        if rate is not None:
            self._fill(rate, now_ms)
            self._milli -= 1_000 * size

    def _fill(self, rate: int, now_ms: int) -> None:
        if self._filled_ms is not None:
            filled = self._milli + rate * (now_ms - self._filled_ms)
            self._milli = min(filled, max(1_000, rate * BURST_MS))
        self._filled_ms = now_ms


def _chunk_milli(rate: int) -> int:
    return max(1_000, rate * CHUNK_MS)
