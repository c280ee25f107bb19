"""The contents of a file, and what of them is durable."""

from __future__ import annotations

from simulation.power_failure import PAGE_BYTES
from tidelog_broker.log.file_id import FileId


class Inode:
    """A file's contents, and what of them is durable.

    - `before`: what a power failure leaves, if it is not the first `synced_bytes` of `data`
    - `dropped`: the range that a failed sync could not write and the kernel takes for written
    - `cold`: pages that memory does not hold
    - `bad`: pages that cannot be read, whatever is written to them
    - `id`: of the file; None until it is first requested
    - `linked`: it has several names
    """

    __slots__ = ("bad", "before", "cold", "data", "dropped", "id", "linked", "synced_bytes")

    def __init__(self, data: bytes = b"", *, synced: bool = False) -> None:
        self.id: FileId | None = None
        self.linked = False
        self.data = bytearray(data)
        self.synced_bytes = len(data) if synced else 0
        self.before: bytes | None = None
        self.dropped: tuple[int, int] | None = None
        self.cold: set[int] = set()
        self.bad: set[int] = set()

    def keep_synced(self, position: int) -> None:
        """Saves what is synced before bytes from `position` on change."""
        if position < self.synced_bytes and self.before is None:
            self.before = bytes(self.data[: self.synced_bytes])

    def written(self, start: int, end: int) -> None:
        """Notes that a range was written again, and can be synced again."""
        if self.dropped is None:
            return
        first, last = self.dropped
        if start <= first:
            first = max(first, end)
        elif end >= last:
            last = min(last, start)
        self.dropped = (first, last) if first < last else None

    def evict(self) -> None:
        self.cold = set(range(-(-len(self.data) // PAGE_BYTES)))

    def touch(self, start: int, end: int) -> None:
        """Notes that a range is in memory from now on."""
        if self.cold:
            self.cold.difference_update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def first_cold(self, start: int, end: int) -> int:
        """Returns where memory ends, which is `end` at the latest."""
        pages = range(start // PAGE_BYTES, -(-end // PAGE_BYTES)) if self.cold else ()
        cold = next((page * PAGE_BYTES for page in pages if page in self.cold), end)
        return min(max(cold, start), end)

    def sync(self) -> None:
        self.before = None
        self.synced_bytes = len(self.data)
        if self.dropped is not None:
            first, last = self.dropped
            durable = self.data.copy()
            durable[first:last] = bytes(last - first)
            self.before = bytes(durable)

    def fail_sync(self) -> None:
        """Takes what was not synced for clean, although it is on no disk."""
        durable = self.durable
        pairs = enumerate(zip(durable, self.data, strict=False))
        shorter = min(len(durable), len(self.data))
        first = next((n for n, (before, now) in pairs if before != now), shorter)
        if self.dropped is not None:
            first = min(first, self.dropped[0])
        if first < len(self.data):
            self.dropped = (first, len(self.data))

    @property
    def durable(self) -> bytes:
        return bytes(self.data[: self.synced_bytes]) if self.before is None else self.before

    @property
    def is_synced(self) -> bool:
        return self.before is None and self.synced_bytes == len(self.data)
