"""Which shortages keep a process that runs from answering. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.inspection.pressures import Pressing

FILES, MEMORY, CPU, CONNECTIONS = "open_files", "memory", "cpu", "connections"
DISK = "disk"
# With so few files left neither a connection nor a segment gets one reliably.
FEW_FILES_LEFT = 16
FEW_FILES_LEFT_PERCENT = 3


def has_no_files_left(pressure: Pressing | None) -> bool:
    if pressure is None or pressure.resource != FILES:
        return False
    left = pressure.limit - pressure.used
    return left <= max(FEW_FILES_LEFT, pressure.limit * FEW_FILES_LEFT_PERCENT // 100)


def silencing(pressures: Mapping[str, Pressing]) -> str:
    """The resource for whose lack a process gives no answer in time, of those that it is short of;
    empty: none."""
    if has_no_files_left(pressures.get(FILES)):
        return FILES
    return next((resource for resource in (CONNECTIONS, CPU) if resource in pressures), "")
