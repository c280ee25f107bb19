"""Large copies have the same bytes as small ones, and let other threads run."""

from __future__ import annotations

import random
import sys
import threading
import time

import pytest

from tidelog.copies import LARGE_BYTES, copied
from tidelog.record_batch import decode, encode

_DATA = random.Random(1).randbytes(3 * LARGE_BYTES)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (0, 0),
        (5, 12),
        (0, len(_DATA)),
        (1, len(_DATA)),
        (3, 3 + LARGE_BYTES),
        (3, 4 + LARGE_BYTES),
        (7, len(_DATA) - 9),
    ],
)
def test_a_copy_has_the_bytes_of_its_range(kind: type, start: int, end: int) -> None:
    assert copied(kind(_DATA), start, end) == _DATA[start:end]


def turns_of_another_thread_while(data: bytes) -> int:
    """How often another thread runs while most of the data is copied."""
    turns = 0
    ended = threading.Event()

    def run() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        other.start()
        before = turns
        copied(data, 1, len(data))
        return turns - before
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        other.join()


def test_another_thread_runs_during_a_large_copy() -> None:
    # A copy in one step lets it run once before and once after.
    assert turns_of_another_thread_while(bytes(64 << 20)) > 5


@pytest.mark.parametrize("records", [1, 3, 40])
def test_large_values_are_what_was_encoded(records: int) -> None:
    size = len(_DATA) // records
    values = [_DATA[size * n : size * (n + 1)] for n in range(records)]
    with_null: list[bytes | None] = [*values, None]
    assert decode(encode(values, timestamps_ms=1)).values == values
    assert decode(encode(with_null, with_null, timestamps_ms=1)).keys == with_null
