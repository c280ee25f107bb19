"""Copies large byte strings without blocking other threads. Pure functions.

Python copies bytes in one step, during which no other thread has the interpreter lock. For 64 MiB
that is about 40 milliseconds, the allocation included."""

from __future__ import annotations

import io

# A copy of this size takes about a millisecond.
_PIECE_BYTES = 1 << 20
# Data up to this size is copied in one step.
LARGE_BYTES = 4 << 20


def copied(data: bytes | bytearray | memoryview, start: int, end: int) -> bytes:
    """Returns bytes `start` to `end` (exclusive) of the data. More than LARGE_BYTES are copied in
    pieces, between which other threads may run."""
    if end - start <= LARGE_BYTES or (isinstance(data, bytes) and end - start == len(data)):
        return bytes(data[start:end])
    copy = io.BytesIO()
    with memoryview(data) as view:
        for position in range(start, end, _PIECE_BYTES):
            copy.write(view[position : min(position + _PIECE_BYTES, end)])
    # `getvalue` returns the buffer itself, not a copy of it.
    return copy.getvalue()
