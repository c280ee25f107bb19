"""A scrub reads the disk: everything that it reads was dropped from the page cache before."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tidelog_broker.log.segment_scrub import FramePosition, scrub_stretch
from unit.broker.log.builders import batch_at, encode_frame
from unit.broker.log.memory_disk import MemoryDisk, MemoryFile

PATH = PurePath("/data/segment.log")
CHUNK_BYTES = 1 << 20


class DroppingFile(MemoryFile):
    """Records the ranges that are dropped from the page cache, and which bytes were read before."""

    def drop_cached(self, size: int, position: int) -> None:
        DROPPED.append((position, position + size))

    def read_at(self, size: int, position: int) -> bytes:
        if not is_dropped(position, position + size):
            STALE.append((position, position + size))
        return super().read_at(size, position)

    def read_cached(self, size: int, position: int) -> bytes:
        """`CACHED` says whether there is anything. The scrub only probes."""
        return super().read_at(size, position) if CACHED else b""


class DroppingDisk(MemoryDisk):
    def open(self, path: PurePath, *, create: bool = False) -> MemoryFile:
        return DroppingFile(self, path, self.opened(path, create=create))


DROPPED: list[tuple[int, int]] = []
STALE: list[tuple[int, int]] = []
CACHED: list[bool] = []


def is_dropped(start: int, end: int) -> bool:
    at = start
    for first, behind in sorted(DROPPED):
        if first <= at < behind:
            at = behind
    return at >= end


def scrub(sizes: list[int], *, cached: bool) -> int:
    """Checks a segment with batches of these sizes chunk by chunk; returns its size."""
    CACHED[:] = [True] if cached else []
    disk = DroppingDisk()
    data = b"".join(encode_frame(batch_at(i, size=size)) for i, size in enumerate(sizes))
    disk.write_atomically(PATH, data, sync=True)
    place = FramePosition(0, 0)
    while place.position < len(data):
        DROPPED.clear()
        found = scrub_stretch(
            disk, PATH, place, end=len(data), up_to=len(sizes), max_bytes=CHUNK_BYTES
        )
        assert not found.fault
        assert found.bytes
        # In particular the last frame, which ends behind the chunk.
        assert is_dropped(place.position, found.next.position)
        place = found.next
    return len(data)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(1 << 20) - 100] * 4, id="nearly a chunk"),
        pytest.param([3 << 20, 100, 5 << 20], id="larger than a chunk"),
        pytest.param([300_000] * 20, id="across the end of a chunk"),
        pytest.param([100] * 12_000, id="small"),
    ],
)
@pytest.mark.rule("scrub-checks-every-batch")
def test_every_byte_is_dropped_from_the_cache_before_it_is_read(
    sizes: list[int], cached: bool
) -> None:
    STALE.clear()
    scrub(sizes, cached=cached)
    assert STALE == []


def test_what_was_not_cached_is_dropped_afterwards_with_all_that_was_read() -> None:
    """Otherwise the next chunk seems to be in use by readers, and stays in the cache."""
    scrub([300_000] * 3, cached=False)
    scrub_drops = list(DROPPED)
    scrub([300_000] * 3, cached=True)
    assert scrub_drops == [*DROPPED, (0, DROPPED[-1][1])]
