"""Decides which shortages keep a running process from answering. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.inspection.resource_pressures import Pressing

FILES, MEMORY, CPU, CONNECTIONS = "open_files", "memory", "cpu", "connections"
DISK = "disk"
# With so few files left, neither a connection nor a segment can be opened reliably.
FEW_FILES_LEFT = 16
FEW_FILES_LEFT_PERCENT = 3


def has_no_files_left(pressure: Pressing | None) -> bool:
    if pressure is None or pressure.resource != FILES:
        return False
    left = pressure.limit - pressure.used
    return left <= max(FEW_FILES_LEFT, pressure.limit * FEW_FILES_LEFT_PERCENT // 100)


def silencing(pressures: Mapping[str, Pressing]) -> str:
    """Returns the resource whose shortage keeps a process from answering in time, or ""."""
    if has_no_files_left(pressures.get(FILES)):
        return FILES
    return next((resource for resource in (CONNECTIONS, CPU) if resource in pressures), "")
