"""Whether this broker's wall clock can be believed, before data is deleted for its age. Pure.

It is compared with monotonic progress, in this process and, by what the last one left, across a
restart; and with the clocks of other brokers, as their replica fetches and answers carry them.
While it is in doubt, time-based retention pauses: for MAX_DOUBT_MS at the most, since a clock that
is not put right may be right. Ages are counted by monotonic progress meanwhile (`SteadyClock`).
Appends are dated by the later of the two times (`AppendClock`): a clock that is behind makes no
record look old, and one that is right after a long pause rejects no producer's timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog_runtime.clock import Clock

# Time servers step a clock by less, and no retention is that exact.
MAX_STEP_MS = 60_000
# A clock that is further from another broker's is one of the two that is wrong.
MAX_SKEW_MS = 60_000
# What a broker heard of another's clock counts for so long.
PEER_VALID_MS = 120_000
# After another boot nothing tells how long the machine was off: longer than this is doubted.
MAX_OFF_MS = 24 * 3_600_000
MAX_DOUBT_MS = 24 * 3_600_000


class Reading(NamedTuple):
    """Both clocks at one moment, and the boot to which the monotonic one belongs (empty: not
    known)."""

    wall_ms: int
    monotonic_ms: int
    boot_id: str


class PeerClock(NamedTuple):
    """`wall_ms`: what it said. `heard_ms`: when, by this broker's monotonic clock, which alone says
    what it says now: its wall clock may have jumped since."""

    wall_ms: int
    heard_ms: int


class Doubt(NamedTuple):
    """`ahead_ms`: by how much the clock seems to be ahead. `since_ms`: monotonic."""

    reason: str
    ahead_ms: int
    since_ms: int


class ClockCheck:
    """`doubt`: None while the clock is believed. `on_change` is called when that changes: with the
    doubt, and how it ended (empty: it begins)."""

    def __init__(
        self,
        now: Reading,
        last: Reading | None = None,
        on_change: Callable[[Doubt, str], None] = lambda _doubt, _end: None,
    ) -> None:
        self.doubt: Doubt | None = None
        self.peers: dict[int, PeerClock] = {}
        self._on_change = on_change
        self._offset_ms = now.wall_ms - now.monotonic_ms
        # Since when, by the monotonic clock, the wall clock is behind; None: it is not.
        self._behind_since_ms: int | None = None
        if last is None:
            return
        if last.boot_id and last.boot_id == now.boot_id:
            self._offset_ms = last.wall_ms - last.monotonic_ms
        elif not -MAX_STEP_MS <= now.wall_ms - last.wall_ms <= MAX_OFF_MS:
            # As though no time had passed.
            self._offset_ms = last.wall_ms - now.monotonic_ms

    def heard(self, broker_id: int, wall_ms: int, monotonic_ms: int) -> None:
        """What another broker's clock said when its message was sent, a moment ago; 0: it does not
        say."""
        if wall_ms > 0:
            self.peers[broker_id] = PeerClock(wall_ms, monotonic_ms)

    def skews_ms(self, wall_ms: int, monotonic_ms: int) -> dict[int, int]:
        """By how much the clocks of the brokers that were heard lately are ahead of this one's,
        less what the messages took."""
        return {
            broker_id: peer.wall_ms + monotonic_ms - peer.heard_ms - wall_ms
            for broker_id, peer in sorted(self.peers.items())
            if monotonic_ms - peer.heard_ms <= PEER_VALID_MS
        }

    def check(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether the clock can be believed now."""
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
        skews = self.skews_ms(wall_ms, monotonic_ms).values()
        behind = sum(skew < -MAX_SKEW_MS for skew in skews)
        agreeing = sum(abs(skew) <= MAX_SKEW_MS for skew in skews)
        if behind and behind >= agreeing:
            least = -max(skew for skew in skews if skew < -MAX_SKEW_MS)
            reason = f"it is ahead of {behind} of the {len(skews)} other brokers that were heard"
            self._begin(Doubt(reason, least, monotonic_ms))
        elif ahead_ms <= MAX_STEP_MS:
            self._end("the clock is right again")
            ahead = sum(skew > MAX_SKEW_MS for skew in skews)
            self._note_behind(ahead_ms, monotonic_ms, is_right=agreeing > ahead)
        elif agreeing > behind:
            self._accept(ahead_ms, f"{agreeing} other brokers have the same time")
        else:
            reason = "it has jumped ahead of monotonic time"
            self._begin(Doubt(reason, ahead_ms, monotonic_ms))
        doubt = self.doubt
        if doubt is not None and monotonic_ms - doubt.since_ms >= MAX_DOUBT_MS:
            self._accept(ahead_ms, "it has lasted as long as it may")
            # Until the other brokers that are behind are heard again.
            self.peers.clear()
        return self.doubt is None

    def _note_behind(self, ahead_ms: int, monotonic_ms: int, *, is_right: bool) -> None:
        """A clock that jumped back counts once other brokers have the same time, or after
        MAX_DOUBT_MS."""
        if ahead_ms >= -MAX_STEP_MS:
            self._behind_since_ms = None
            return
        if self._behind_since_ms is None:
            self._behind_since_ms = monotonic_ms
        if is_right or monotonic_ms - self._behind_since_ms >= MAX_DOUBT_MS:
            self._offset_ms += ahead_ms
            self._behind_since_ms = None

    def steady_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The wall clock's time, or what monotonic progress makes of the believed one while the
        two are further apart than a time server steps a clock."""
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
        return wall_ms if abs(ahead_ms) <= MAX_STEP_MS else wall_ms - ahead_ms

    def is_steady(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether there is nothing that another look at the other brokers' clocks may settle."""
        return self.doubt is None and abs(self._ahead_ms(wall_ms, monotonic_ms)) <= MAX_STEP_MS

    def _ahead_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Of the wall clock, beside monotonic progress since it was believed."""
        return wall_ms - monotonic_ms - self._offset_ms

    def believed(self, monotonic_ms: int) -> tuple[int, int]:
        """The wall time that goes with this monotonic time, as far as the clock is believed; and
        that time: for the next process to compare with."""
        return monotonic_ms + self._offset_ms, monotonic_ms

    def _begin(self, doubt: Doubt) -> None:
        if self.doubt is None:
            self.doubt = doubt
            self._on_change(doubt, "")
        else:
            self.doubt = doubt._replace(since_ms=self.doubt.since_ms)

    def _accept(self, ahead_ms: int, why: str) -> None:
        self._offset_ms += max(ahead_ms, 0)
        self._end(why)

    def _end(self, why: str) -> None:
        if self.doubt is not None:
            doubt, self.doubt = self.doubt, None
            self._on_change(doubt, why)


def hearing(clock: Clock, check: ClockCheck) -> Callable[[int, int], None]:
    """For each other broker's clock that is heard: looks again where that may settle something."""

    def heard(broker_id: int, wall_ms: int) -> None:
        own_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
        check.heard(broker_id, wall_ms, monotonic_ms)
        if not check.is_steady(own_ms, monotonic_ms):
            check.check(own_ms, monotonic_ms)

    return heard


class SteadyClock:
    """A `Clock` whose wall time does not take part in jumps: for how old something is."""

    def __init__(self, clock: Clock, check: ClockCheck) -> None:
        self._clock = clock
        self._check = check

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._check.steady_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


class AppendClock(SteadyClock):
    """For what is appended. Its wall time does not take part in jumps back. It does in
    jumps ahead: the clock may be right, as after the machine was suspended, and retention takes no
    time for evidence that is in the future (`log/retention.py`)."""

    def wall_ms(self) -> int:
        return max(self._clock.wall_ms(), super().wall_ms())
