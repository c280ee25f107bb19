"""How much may pass now, under a bound in bytes per second that may change at any time. Pure."""

from __future__ import annotations

# What has not passed may pass later, but no more than this time's worth of it at once.
BURST_MS = 200
# Less than this time's worth is not worth asking for: many small answers would cost more than
# they carry.
CHUNK_MS = 50


class TokenBucket:
    """A batch passes whole, so what has passed may be more than what was there; the excess is
    waited for before more passes. `rate`: bytes per second; None: no bound. `now_ms` never
    falls."""

    def __init__(self) -> None:
        # In thousandths of a byte, so that a millisecond's worth is whole at any rate.
        self._milli = 0
        # Up to when it was filled; None: nothing has been bound yet.
        self._filled_ms: int | None = None

    def available(self, rate: int | None, now_ms: int) -> int | None:
        """Bytes that may pass now, 0 where they are too few to ask for; None: any number."""
        if rate is None:
            return None
        self._fill(rate, now_ms)
        return self._milli // 1_000 if self._milli >= _chunk_milli(rate) else 0

    def pause_ms(self, rate: int | None, now_ms: int) -> int:
        """Until something may pass, as long as nothing else does; 0: it may."""
        if rate is None:
            return 0
        self._fill(rate, now_ms)
        return max(0, -((self._milli - _chunk_milli(rate)) // rate))

    def take(self, size: int, rate: int | None, now_ms: int) -> None:
        """So many bytes have passed."""
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
