"""Whether this broker's wall clock can be believed, before data is deleted for its age. Pure.

It is compared with monotonic progress, in this process and, by what the last one left, across a
restart; and with the clocks of other brokers, as their replica fetches and answers carry them.
While it is in doubt, time-based retention pauses until the clocks agree. That of a broker which
jumped as well confirms no jump: one time server may have put both wrong. A clock that no other
broker contradicts may be right, though it has jumped: it is believed after MAX_DOUBT_MS. What
another broker said last stands for as long: that it falls silent ends no doubt before. Ages are
counted by monotonic progress meanwhile (`SteadyClock`).

Appends are dated so that none looks old too early: a clock that is behind most others takes the
middle time of all (`AppendClock`, `LatestClock`), and one that is right after a long pause rejects
no producer's timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog_runtime.clock import Clock

# Time servers step a clock by less, and no retention is that exact.
MAX_STEP_MS = 60_000
# A clock that is further from another broker's is one of the two that is wrong.
MAX_SKEW_MS = 60_000
# For so long another broker's clock, once heard, can show that this one is right. That this one is
# wrong it shows for MAX_DOUBT_MS.
PEER_VALID_MS = 120_000
# After another boot nothing tells how long the machine was off: longer than this is doubted.
MAX_OFF_MS = 24 * 3_600_000
MAX_DOUBT_MS = 24 * 3_600_000


class PeerClock(NamedTuple):
    """`wall_ms`: what it said. `heard_ms`: when, by this broker's monotonic clock, which alone says
    what it says now: its wall clock may have jumped since."""

    wall_ms: int
    heard_ms: int

    @property
    def ahead_ms(self) -> int:
        """Of this broker's monotonic time."""
        return self.wall_ms - self.heard_ms


class Reading(NamedTuple):
    """Both clocks at one moment, and the boot to which the monotonic one belongs (empty: not
    known). `doubted_ms`: for how long the wall clock has been in doubt, in all processes that
    doubted it since it was believed; 0: it is not. `peers`: other brokers' clocks, by their ids."""

    wall_ms: int
    monotonic_ms: int
    boot_id: str
    doubted_ms: int = 0
    peers: tuple[tuple[int, PeerClock], ...] = ()


class Doubt(NamedTuple):
    """`ahead_ms`: by how much the clock seems to be ahead. `since_ms`: monotonic, earlier by what
    former processes have doubted it."""

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
        # By former processes, until this one finds whether it doubts the clock as well.
        self._doubted_ms = 0
        # How far other brokers' clocks were ahead of this one's monotonic time when they agreed
        # with the believed time last.
        self._agreed_ms: dict[int, int] = {}
        if last is None:
            return
        self._doubted_ms = last.doubted_ms
        if last.boot_id and last.boot_id == now.boot_id:
            self._offset_ms = last.wall_ms - last.monotonic_ms
            self.peers.update(last.peers)
        elif last.doubted_ms or not -MAX_STEP_MS <= now.wall_ms - last.wall_ms <= MAX_OFF_MS:
            # As though no time had passed.
            self._offset_ms = last.wall_ms - now.monotonic_ms
        if last.doubted_ms and last.boot_id != now.boot_id:
            # Too old to agree with anything.
            passed_ms = now.monotonic_ms - PEER_VALID_MS - 1 - last.monotonic_ms
            for broker_id, peer in last.peers:
                self.heard(broker_id, peer.wall_ms - PEER_VALID_MS - 1, peer.heard_ms + passed_ms)
        self._remember_agreed(last, is_same_boot=last.boot_id == now.boot_id)

    def _remember_agreed(self, last: Reading, *, is_same_boot: bool) -> None:
        """A doubt outlives the process only while no broker that agreed with the clock in doubt
        could confirm it: such a one had jumped as well."""
        believed_ms = last.wall_ms - last.monotonic_ms
        for broker_id, peer in last.peers:
            if abs(peer.ahead_ms - believed_ms) > MAX_SKEW_MS:
                if last.doubted_ms:
                    self._agreed_ms[broker_id] = self._offset_ms
            elif is_same_boot:
                self._agreed_ms[broker_id] = peer.ahead_ms

    def heard(self, broker_id: int, wall_ms: int, monotonic_ms: int) -> None:
        """What another broker's clock said when its message was sent, a moment ago; 0: it does not
        say."""
        if wall_ms > 0:
            peer = self.peers[broker_id] = PeerClock(wall_ms, monotonic_ms)
            if abs(peer.ahead_ms - self._offset_ms) <= MAX_SKEW_MS:
                self._agreed_ms[broker_id] = peer.ahead_ms

    def skews_ms(
        self, wall_ms: int, monotonic_ms: int, within_ms: int | None = None
    ) -> dict[int, int]:
        """By how much the clocks of the brokers that were heard lately are ahead of this one's,
        less what the messages took."""
        within_ms = PEER_VALID_MS if within_ms is None else within_ms
        return {
            broker_id: peer.ahead_ms + monotonic_ms - wall_ms
            for broker_id, peer in sorted(self.peers.items())
            if monotonic_ms - peer.heard_ms <= within_ms
        }

    def check(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether the clock can be believed now."""
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
        skews = self.skews_ms(wall_ms, monotonic_ms)
        agreeing = {peer for peer, skew in skews.items() if abs(skew) <= MAX_SKEW_MS}
        is_right = len(agreeing) > sum(skew > MAX_SKEW_MS for skew in skews.values())
        if self._is_doubted:
            # That the others fall silent takes back nothing that they said.
            skews = self.skews_ms(wall_ms, monotonic_ms, MAX_DOUBT_MS)
        behind = {peer: -skew for peer, skew in skews.items() if skew < -MAX_SKEW_MS}
        if behind and len(behind) >= len(agreeing):
            of_them = f"{len(behind)} of the {len(skews)} other brokers that were heard"
            self._begin(Doubt(f"it is ahead of {of_them}", min(behind.values()), monotonic_ms))
        elif agreeing and (ahead_ms <= MAX_STEP_MS or any(map(self._stood, agreeing))):
            self._accept(ahead_ms, f"{len(agreeing)} other brokers have the same time")
        elif ahead_ms > MAX_STEP_MS:
            reason = "it has jumped ahead of monotonic time"
            self._begin(Doubt(reason, ahead_ms, monotonic_ms))
        else:
            self._end("nothing contradicts the clock any more")
        doubt = self.doubt
        if doubt is not None and not behind and monotonic_ms - doubt.since_ms >= MAX_DOUBT_MS:
            self._accept(ahead_ms, "no other broker has contradicted it for a day")
        if self.doubt is None:
            self._note_behind(wall_ms, monotonic_ms, is_right=is_right)
        return self.doubt is None

    def _stood(self, broker_id: int) -> bool:
        """Whether that broker's clock has not jumped since it agreed with the believed time."""
        ahead_ms = self.peers[broker_id].ahead_ms
        return abs(ahead_ms - self._agreed_ms.get(broker_id, ahead_ms)) <= MAX_STEP_MS

    @property
    def _is_doubted(self) -> bool:
        """Also by the last process, until this one has looked."""
        return self.doubt is not None or self._doubted_ms > 0

    def _note_behind(self, wall_ms: int, monotonic_ms: int, *, is_right: bool) -> None:
        """A clock that jumped back counts once other brokers have the same time, or after
        MAX_DOUBT_MS."""
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
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

    def append_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """What records are dated by: the steady time, or a later one that most brokers have."""
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=False)
        return max(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def latest_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """The same, and where only one other broker is heard, the later of the two clocks: what
        is dated by it is too old for neither."""
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=True)
        return max(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def retention_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """What ages are judged by, while the clock is not in doubt: a clock that went back may have
        been wrong before, so the steady time needs another broker that has it."""
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=True)
        return min(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def _behind_ms(self, wall_ms: int, monotonic_ms: int, *, is_tie_lost: bool) -> int:
        """How far the clock is behind the middle one of all that were heard and itself; the later
        or earlier of two in the middle, as a tie is lost or not. 0: by no more than clocks are."""
        ahead = sorted((0, *self.skews_ms(wall_ms, monotonic_ms, MAX_DOUBT_MS).values()))
        middle_ms = ahead[len(ahead) // 2 if is_tie_lost else (len(ahead) - 1) // 2]
        return middle_ms if middle_ms > MAX_SKEW_MS else 0

    def is_steady(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether there is nothing that another look at the other brokers' clocks may settle."""
        return self.doubt is None and abs(self._ahead_ms(wall_ms, monotonic_ms)) <= MAX_STEP_MS

    def _ahead_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Of the wall clock, beside monotonic progress since it was believed."""
        return wall_ms - monotonic_ms - self._offset_ms

    def reading(self, monotonic_ms: int, boot_id: str) -> Reading:
        """For the next process to compare with: the wall time that goes with this monotonic time,
        as far as the clock is believed."""
        return Reading(
            monotonic_ms + self._offset_ms,
            monotonic_ms,
            boot_id,
            self._doubted_for(monotonic_ms),
            tuple(self.peers.items()),
        )

    def _doubted_for(self, monotonic_ms: int) -> int:
        if self.doubt is None:
            return self._doubted_ms
        return max(1, monotonic_ms - self.doubt.since_ms)

    def _begin(self, doubt: Doubt) -> None:
        if self.doubt is None:
            # A restart is no reason to begin again: retention would never run on a broker that is
            # restarted every day.
            self.doubt = doubt._replace(since_ms=doubt.since_ms - self._doubted_ms)
            self._on_change(self.doubt, "")
        else:
            self.doubt = doubt._replace(since_ms=self.doubt.since_ms)

    def _accept(self, ahead_ms: int, why: str) -> None:
        self._offset_ms += max(ahead_ms, 0)
        self._end(why)

    def _end(self, why: str) -> None:
        self._doubted_ms = 0
        if self.doubt is not None:
            doubt, self.doubt = self.doubt, None
            self._on_change(doubt, why)


def hearing(clock: Clock, check: ClockCheck) -> Callable[[int, int], None]:
    """For each other broker's clock that is heard: looks again where that may settle something."""

    def heard(broker_id: int, wall_ms: int) -> None:
        own_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
        check.heard(broker_id, wall_ms, monotonic_ms)
        differs = wall_ms > 0 and abs(wall_ms - own_ms) > MAX_SKEW_MS
        if differs or not check.is_steady(own_ms, monotonic_ms):
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
    """For the timestamps of records. Its wall time does not take part in jumps back, and is not
    behind that of most brokers. It does take part in jumps ahead: the clock may be right, as after
    the machine was suspended, and retention takes no time for evidence that is in the future
    (`log/retention.py`)."""

    def wall_ms(self) -> int:
        return self._check.append_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


class LatestClock(SteadyClock):
    """For the times of appends, by which retention deletes, and for which timestamps are accepted:
    too late a time does no harm there."""

    def wall_ms(self) -> int:
        return self._check.latest_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


class OwnClocks(NamedTuple):
    steady: SteadyClock
    append: AppendClock
    latest: LatestClock


def own_clocks(clock: Clock, check: ClockCheck) -> OwnClocks:
    return OwnClocks(
        SteadyClock(clock, check), AppendClock(clock, check), LatestClock(clock, check)
    )
