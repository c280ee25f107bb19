"""Copies of many bytes that let other threads run. Pure.

Python copies bytes in one step, during which no other thread has the interpreter: of 64 MiB, with
the memory that the copy needs, some 40 milliseconds."""

from __future__ import annotations

import io

# A copy of so many takes about a millisecond.
_PIECE_BYTES = 1 << 20
# What is shorter is copied at once.
LARGE_BYTES = 4 << 20


def copied(data: bytes | bytearray | memoryview, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive) of the data. What is longer than LARGE_BYTES is copied in
    pieces, between which another thread may run."""
    if end - start <= LARGE_BYTES or (isinstance(data, bytes) and end - start == len(data)):
        return bytes(data[start:end])
    copy = io.BytesIO()
    with memoryview(data) as view:
        for position in range(start, end, _PIECE_BYTES):
            copy.write(view[position : min(position + _PIECE_BYTES, end)])
    # Its own buffer, not a copy of it.
    return copy.getvalue()
