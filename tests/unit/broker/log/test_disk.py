"""The real disk, beyond what tests/contract checks of every disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog_broker.log.disk import OsDisk


def test_more_buffers_than_one_system_call_takes_are_written(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"%04d" % i for i in range(3000)])
    assert file.read_at(4, 4 * 2999) == b"2999"
    file.close()


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwritev

    def write_a_part(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        return whole_write(descriptor, [b"".join(buffers)[:3]], position)

    monkeypatch.setattr(os, "pwritev", write_a_part)
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"abcd", b"efgh"])
    assert file.read_at(100, 0) == b"abcdefgh"
    file.close()


@pytest.mark.parametrize("written_at_once", [64 << 10, 8 << 20], ids=["small", "large"])
def test_every_page_of_a_range_is_dropped_from_the_cache(
    written_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large write fills the cache with large folios, which the kernel drops only with a range
    that contains them. The range has partial pages at both ends."""
    dropped: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def recorded(descriptor: int, position: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            dropped.append((position, position + size))
        advise(descriptor, position, size, advice)

    data = os.urandom(8 << 20)
    file = OsDisk().open(tmp_path / "f", create=True)
    for position in range(0, len(data), written_at_once):
        file.write_at(position, [data[position : position + written_at_once]])
    file.sync()
    start, size = (3 << 20) + 1_000, (1 << 20) + 7
    assert file.read_cached(1, start)
    monkeypatch.setattr(os, "posix_fadvise", recorded)
    file.drop_cached(size, start)
    first, last = (at - at % mmap.PAGESIZE for at in (start, start + size - 1))
    assert all(begin <= first and end >= last + mmap.PAGESIZE for begin, end in dropped)
    # Pages near both ends are read again by the check that they were dropped.
    pages = range(first + (128 << 10), last, mmap.PAGESIZE)
    assert cached_pages(tmp_path / "f").isdisjoint(pages)
    assert file.read_at(size, start) == data[start : start + size]
    file.close()


def test_a_dirty_page_at_one_end_keeps_the_pages_before_the_other(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    piece = bytes(mmap.PAGESIZE)
    for position in range(0, 8 << 20, len(piece)):
        file.write_at(position, [piece])
    file.sync()
    start, size = 3 << 20, 1 << 20
    file.drop_cached(8 << 20, 0)
    file.read_ahead(1, 0)  # from here on only what is read is cached
    file.read_at(size, start - size)
    file.write_at(start + size - 1, [b"x"])
    file.drop_cached(size, start)
    assert start - mmap.PAGESIZE in cached_pages(tmp_path / "f")
    file.close()


def test_what_is_read_ahead_is_only_what_was_requested(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [bytes(8 << 20)])
    file.sync()
    file.drop_cached(8 << 20, 0)
    file.read_ahead(1 << 20, 1 << 20)
    file.read_at(1 << 20, 1 << 20)
    cached = cached_pages(tmp_path / "f")
    assert cached.issuperset(range(1 << 20, 2 << 20, mmap.PAGESIZE))
    assert 2 << 20 not in cached
    file.close()


def cached_pages(path: Path) -> set[int]:
    """Returns the positions of the file's pages in the page cache. Reads nothing."""
    size = path.stat().st_size
    held = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(size), held)
        del start
    assert not failed
    return {number * mmap.PAGESIZE for number, byte in enumerate(held) if byte & 1}
