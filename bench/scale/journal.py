"""The state changes in the log files of a local cluster's services."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidelog.state_changes.event import StateChange
from tidelog.state_changes.log_lines import LogLines

POLL_S = 0.1
QUIET_S = 1.5


class Journal:
    """The log files of services. They are read only when events are requested: parsing the lines of
    ten thousand partitions takes time that the cluster needs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begin = self._sizes()

    def mark(self) -> None:
        """Excludes all events before this call."""
        self._begin = self._sizes()

    async def until_quiet(self, timeout_s: float) -> None:
        """Returns once no service has written a line for `QUIET_S`. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            quiet_s, sizes = 0.0, self._sizes()
            while quiet_s < QUIET_S:
                await asyncio.sleep(POLL_S)
                now = self._sizes()
                quiet_s = quiet_s + POLL_S if now == sizes else 0.0
                sizes = now

    def events(self) -> list[StateChange]:
        """Returns the events since the mark."""
        lines = LogLines()
        for path in self._sizes():
            with path.open("rb") as log:
                log.seek(self._begin.get(path, 0))
                lines.take(log)
        return lines.events

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in sorted(self._directory.glob("*.log"))}
