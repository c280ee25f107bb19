"""Limits of a running process that it reaches or nearly reaches."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FEW_CONNECTIONS = 24


@contextmanager
def without_open_files(pid: int, address: str) -> Iterator[int]:
    """Yields the limit; at the end the limit is raised, as `explain` suggests for a running
    process."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_ones = [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()]
    # The limit is on descriptor numbers, and lower ones than the highest may be free.
    limit = max(open_ones) + 1 + FEW_CONNECTIONS
    host, _, port = address.rpartition(":")
    with ExitStack() as connections:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
        try:
            # More connections wait, and take each descriptor that the process closes meanwhile.
            for _ in range(limit - len(open_ones) + FEW_CONNECTIONS):
                connections.enter_context(socket.create_connection((host, int(port))))
            yield limit
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


# For the environment: otherwise the first allocation of each thread may reserve 64 MiB of
# addresses, which is more than `limit_memory` leaves.
ONE_ARENA = ("MALLOC_ARENA_MAX", "1")


def limit_memory(pid: int, used_percent: int) -> None:
    """Limits memory so that the current use is this share of the limit."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    limit = int(pages) * resource.getpagesize() * 100 // used_percent
    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, hard))
