"""A machine with its clocks, and the state of its broker's clock check."""

from __future__ import annotations

from tidelog_broker.clock_check import (
    AppendClock,
    ClockCheck,
    Doubt,
    LatestClock,
    Reading,
    peer_clock_callback,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Machine:
    """The clocks of a machine, and the log of the doubt."""

    def __init__(
        self,
        last: Reading | None = None,
        boot_id: str = "boot",
        wall_ms: int = NOW_MS,
        monotonic_ms: int = 5_000,
    ) -> None:
        self.wall_ms, self.monotonic_ms = wall_ms, monotonic_ms
        self.reported: list[str] = []
        self.check = ClockCheck(
            Reading(self.wall_ms, self.monotonic_ms, boot_id), last, self._changed
        )

    def _changed(self, doubt: Doubt, end: str) -> None:
        self.reported.append(end or doubt.reason)

    def left(self, boot_id: str = "boot") -> Reading:
        """The state that it leaves for the next process."""
        return self.check.reading(self.monotonic_ms, boot_id)

    @property
    def append_ms(self) -> int:
        return AppendClock(Clocks(self), self.check).wall_ms()

    @property
    def latest_ms(self) -> int:
        return LatestClock(Clocks(self), self.check).wall_ms()

    @property
    def retention_ms(self) -> int:
        return self.check.retention_ms(self.wall_ms, self.monotonic_ms)

    def passes(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms

    def hears(self, broker_id: int, wall_ms: int) -> None:
        self.check.note_peer(broker_id, wall_ms, self.monotonic_ms)

    def fetched_by(self, broker_id: int, wall_ms: int) -> None:
        """Receive this time in replica fetches, and check the clock again."""
        peer_clock_callback(Clocks(self), self.check)(broker_id, wall_ms)

    def restarted(self, *, is_rebooted: bool, off_ms: int = 1_000) -> Machine:
        """A new process on the same clocks."""
        if is_rebooted:
            return Machine(self.left(), "next boot", self.wall_ms + off_ms, 500)
        return Machine(self.left(), "boot", self.wall_ms + off_ms, self.monotonic_ms + off_ms)

    @property
    def skews_ms(self) -> dict[int, int]:
        return self.check.skews_ms(self.wall_ms, self.monotonic_ms)

    @property
    def steady_ms(self) -> int:
        return self.check.steady_ms(self.wall_ms, self.monotonic_ms)

    @property
    def believes(self) -> bool:
        return self.check.check(self.wall_ms, self.monotonic_ms)


class Clocks:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def wall_ms(self) -> int:
        return self._machine.wall_ms

    def monotonic_ms(self) -> int:
        return self._machine.monotonic_ms
