"""Decides from its use of resources which ones a process is short of. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog_runtime.pressure.records import Pressure
from tidelog_runtime.pressure.segments import Segments, TcpConnection, within

OPEN_FILES, MEMORY, CPU, CONNECTIONS = "open_files", "memory", "cpu", "connections"
DISK, NETWORK = "disk", "network"
# The duration of a sync or write at which a disk counts as slow. Rotating disks under load take a
# tenth of it.
SLOW_DISK_MS = 1_000
# In percent of the limit. A shortage begins at the first and ends below the second, so that it does
# not change with each connection.
BEGINS_PERCENT = {OPEN_FILES: 80, MEMORY: 90, CPU: 60, CONNECTIONS: 80, DISK: 100, NETWORK: 5}
ENDS_PERCENT = {OPEN_FILES: 75, MEMORY: 85, CPU: 40, CONNECTIONS: 70, DISK: 50, NETWORK: 2}
# This many TCP segments that were sent again show packet loss. Fewer may come from connections to a
# machine that has just failed. Half of them are enough for the loss to continue.
MIN_RESENT_SEGMENTS = 20
# CPU waits and segments are counted over this window: a shorter one may be a single busy moment.
CPU_WINDOW_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A process's use of resources. Cumulative values never decrease.

    - `top_peer`: the address with the most connections, if there are many connections.
    - `cpu_wait_ms`: cumulative time in which the event loop's thread was ready but had no CPU.
    - `throttled_periods`, `periods`: cumulative, of the control group.
    - `disk_ms`: duration of `disk_operation`, the operation at which the disk is slowest.
    - `stood_still_ms`: cumulative time in which the process did not run at all.
    - `segments`: of each TCP connection, cumulative.
    """

    open_files: int = 0
    open_files_limit: int = 0
    sockets: int = 0
    top_peer: str = ""
    top_peer_connections: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    cpu_wait_ms: int = 0
    throttled_periods: int = 0
    periods: int = 0
    disk_ms: int = 0
    disk_operation: str = ""
    stood_still_ms: int = 0
    segments: Mapping[TcpConnection, Segments] = field(default_factory=dict)


class PressureDetector:
    """Judges repeated measurements of a process.

    - `max_connections`: the limit for one client address; 0: no limit.
    """

    def __init__(self, max_connections: int = 0) -> None:
        self._max_connections = max_connections
        self._since_ms: dict[str, int] = {}
        self._samples: deque[tuple[int, Usage]] = deque()

    def take(self, usage: Usage, monotonic_ms: int, wall_ms: int) -> tuple[Pressure, ...]:
        """Returns the current shortages, ordered by resource."""
        while len(self._samples) > 1 and self._samples[1][0] <= monotonic_ms - CPU_WINDOW_MS:
            self._samples.popleft()
        self._samples.append((monotonic_ms, usage))
        found: list[Pressure] = []
        for resource, used, limit, detail in self._uses(usage, monotonic_ms):
            known = resource in self._since_ms
            percent = (ENDS_PERCENT if known else BEGINS_PERCENT)[resource]
            if limit <= 0 or used * 100 < limit * percent:
                self._since_ms.pop(resource, None)
                continue
            since_ms = self._since_ms.setdefault(resource, wall_ms)
            found.append(Pressure(resource, used, limit, since_ms, detail))
        return tuple(sorted(found))

    def _uses(self, usage: Usage, now_ms: int) -> Iterable[tuple[str, int, int, str]]:
        yield OPEN_FILES, usage.open_files, usage.open_files_limit, _of_files(usage)
        of_one = f"from {usage.top_peer}"
        yield CONNECTIONS, usage.top_peer_connections, self._max_connections, of_one
        yield MEMORY, usage.memory_bytes, usage.memory_limit_bytes, ""
        yield DISK, usage.disk_ms, SLOW_DISK_MS, usage.disk_operation
        began_ms, before = self._samples[0]
        passed_ms = now_ms - began_ms
        if passed_ms < CPU_WINDOW_MS * 9 // 10:
            return
        lost = within(before.segments, usage.segments)
        known = NETWORK in self._since_ms
        if lost.resent >= (MIN_RESENT_SEGMENTS // 2 if known else MIN_RESENT_SEGMENTS):
            yield NETWORK, lost.resent, lost.sent, lost.peers
        else:
            yield NETWORK, 0, 1, ""
        waited_ms = usage.cpu_wait_ms - before.cpu_wait_ms
        periods = usage.periods - before.periods
        throttled_ms = (
            passed_ms * (usage.throttled_periods - before.throttled_periods) // periods
            if periods > 0
            else 0
        )
        stood_still_ms = usage.stood_still_ms - before.stood_still_ms
        used_ms, detail = max(
            (waited_ms, "it was ready to run, and others had the CPU"),
            (throttled_ms, "its control group is throttled (cpu.max)"),
            (stood_still_ms, "its process, or its machine, was paused repeatedly"),
            key=lambda waits: waits[0],
        )
        yield CPU, used_ms, passed_ms, detail


def _of_files(usage: Usage) -> str:
    if not usage.sockets:
        return ""
    text = f"{usage.sockets:,} of them are connections"
    if usage.top_peer_connections * 2 > usage.sockets:
        text += f", {usage.top_peer_connections:,} of these with {usage.top_peer}"
    return text
