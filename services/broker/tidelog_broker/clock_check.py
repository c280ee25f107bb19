"""Whether the wall clock of this broker can be trusted, before data is deleted by its age. Pure.

The clock is compared with:

- monotonic progress: in this process and, by the reading that the previous process saved, across a
  restart.
- the clocks of other brokers, which replica fetches and their answers carry.

While the clock is in doubt, time-based retention pauses until the clocks agree. A broker whose
clock jumped as well cannot confirm a jump: one time server may have set both wrong. Nor can one
that was first heard after the jump. A clock that
jumped and that no other broker contradicts may be right: it is trusted after MAX_DOUBT_MS. The last
reading of another broker counts for the same time, so its silence does not end the doubt earlier.
After a reboot the clock is ahead of the last reading by the time that the machine was off, and by
the error of its hardware clock, for example one that keeps local time, until a time server corrects
it. Without another broker that agrees it is trusted after MAX_REBOOT_DOUBT_MS.
Meanwhile ages are measured by monotonic progress (`SteadyClock`).

Appends get times at which no record looks too old: a clock that is behind most others uses the
median of all (`AppendClock`, `LatestClock`), and a correct clock after a long pause rejects no
producer's timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tidelog_runtime.clock import MAX_SKEW_MS, Clock

# Time servers step a clock by less than this, and no retention is more exact.
MAX_STEP_MS = 60_000
# For this time after it was heard, another broker's clock can confirm this one. While this clock is
# in doubt, the other one can contradict it for MAX_DOUBT_MS.
PEER_VALID_MS = 120_000
# After another boot it is unknown how long the machine was off. Up to this time the doubt lasts for
# MAX_REBOOT_DOUBT_MS, in which time servers have corrected a hardware clock.
MAX_OFF_MS = 24 * 3_600_000
MAX_REBOOT_DOUBT_MS = 600_000
MAX_DOUBT_MS = 24 * 3_600_000


class PeerClock(NamedTuple):
    """What another broker's clock showed.

    - `wall_ms`: its wall time.
    - `heard_ms`: this broker's monotonic time when it was received. The wall clock here may have
      jumped since, so only the monotonic clock can project `wall_ms` to the present.
    """

    wall_ms: int
    heard_ms: int

    @property
    def ahead_ms(self) -> int:
        """How far it is ahead of this broker's monotonic time."""
        return self.wall_ms - self.heard_ms


class Reading(NamedTuple):
    """Both clocks at one moment.

    - `boot_id`: the boot to which `monotonic_ms` belongs; empty if it is not known.
    - `doubted_ms`: how long the wall clock has been in doubt, added up over the processes that
      doubted it since it was last trusted; 0 if it is trusted.
    - `peers`: clocks of other brokers, by broker id.
    - `is_rebooted`: the machine has rebooted, and a time server may still correct the wall clock.
    """

    wall_ms: int
    monotonic_ms: int
    boot_id: str
    doubted_ms: int = 0
    peers: tuple[tuple[int, PeerClock], ...] = ()
    is_rebooted: bool = False


class Doubt(NamedTuple):
    """A doubt about the wall clock.

    - `ahead_ms`: by how much the clock seems to be ahead.
    - `since_ms`: monotonic time, moved back by the time that previous processes were in doubt.
    """

    reason: str
    ahead_ms: int
    since_ms: int


class ClockCheck:
    """Decides whether the wall clock is trusted.

    - `doubt`: None while the clock is trusted.
    - `on_change`: called with the doubt and with how it ended; the latter is empty when it begins.
    """

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
        # Monotonic time since which the wall clock is behind; None if it is not.
        self._behind_since_ms: int | None = None
        # How long previous processes were in doubt, until this process trusts the clock.
        self._doubted_ms = 0
        # Whether the machine has rebooted since the clock was accepted, and may still be corrected.
        # A hardware clock without a battery is behind until then, and not doubted.
        self._is_rebooted = last is not None and last.is_rebooted
        # How far the clock of each other broker was ahead of this broker's monotonic time when it
        # last agreed with the trusted time; if it never did, when it was first heard while this
        # clock was trusted. A broker that is first heard during a doubt may have jumped as well.
        self._before_jump_ms: dict[int, int] = {}
        if last is None:
            return
        self._doubted_ms = last.doubted_ms
        if last.boot_id and last.boot_id == now.boot_id:
            self._offset_ms = last.wall_ms - last.monotonic_ms
            self.peers.update(last.peers)
        elif last.doubted_ms or abs(now.wall_ms - last.wall_ms) > MAX_STEP_MS:
            # As if no time had passed.
            self._offset_ms = last.wall_ms - now.monotonic_ms
            self._is_rebooted = last.is_rebooted or not last.doubted_ms
        if last.doubted_ms and last.boot_id != now.boot_id:
            # These readings become too old to confirm anything.
            passed_ms = now.monotonic_ms - PEER_VALID_MS - 1 - last.monotonic_ms
            for broker_id, peer in last.peers:
                self.note_peer(
                    broker_id, peer.wall_ms - PEER_VALID_MS - 1, peer.heard_ms + passed_ms
                )
        self._remember_agreed(last, is_same_boot=last.boot_id == now.boot_id)

    def _remember_agreed(self, last: Reading, *, is_same_boot: bool) -> None:
        """Restores what the clocks of other brokers showed before a jump.

        A broker that agreed with a doubted clock had jumped as well, and must not confirm that
        clock after a restart.
        """
        believed_ms = last.wall_ms - last.monotonic_ms
        for broker_id, peer in last.peers:
            if last.doubted_ms and abs(peer.ahead_ms - believed_ms) > MAX_SKEW_MS:
                self._before_jump_ms[broker_id] = self._offset_ms
            elif is_same_boot:
                self._before_jump_ms[broker_id] = peer.ahead_ms

    def note_peer(
        self, broker_id: int, wall_ms: int, monotonic_ms: int, *, is_steady: bool = True
    ) -> None:
        """Notes what another broker's clock showed when its message was sent, a moment ago.

        `wall_ms` 0: the message carries no time. `is_steady`: the clock here has not jumped, as far
        as it shows now.
        """
        if wall_ms > 0:
            peer = self.peers[broker_id] = PeerClock(wall_ms, monotonic_ms)
            if abs(peer.ahead_ms - self._offset_ms) <= MAX_SKEW_MS:
                self._before_jump_ms[broker_id] = peer.ahead_ms
            elif is_steady and not self._is_doubted:
                self._before_jump_ms.setdefault(broker_id, peer.ahead_ms)

    def skews_ms(
        self, wall_ms: int, monotonic_ms: int, within_ms: int | None = None
    ) -> dict[int, int]:
        """Returns by how much the clocks of recently heard brokers are ahead of this one.

        That is reduced by the time that their messages took. `within_ms`: how recently; None:
        PEER_VALID_MS.
        """
        within_ms = PEER_VALID_MS if within_ms is None else within_ms
        return {
            broker_id: peer.ahead_ms + monotonic_ms - wall_ms
            for broker_id, peer in sorted(self.peers.items())
            if monotonic_ms - peer.heard_ms <= within_ms
        }

    def check(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Updates `doubt`. Returns whether the clock can be trusted now."""
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
        skews = self.skews_ms(wall_ms, monotonic_ms)
        agreeing = {peer for peer, skew in skews.items() if abs(skew) <= MAX_SKEW_MS}
        is_right = len(agreeing) > sum(skew > MAX_SKEW_MS for skew in skews.values())
        if self._is_doubted:
            # The silence of other brokers does not withdraw what they reported.
            skews = self.skews_ms(wall_ms, monotonic_ms, MAX_DOUBT_MS)
        behind = {peer: -skew for peer, skew in skews.items() if skew < -MAX_SKEW_MS}
        if behind and len(behind) >= len(agreeing):
            of_them = f"{len(behind)} of the {len(skews)} other brokers whose clocks are known"
            self._begin(Doubt(f"it is ahead of {of_them}", min(behind.values()), monotonic_ms))
        elif agreeing and (ahead_ms <= MAX_STEP_MS or self._confirm_jump(agreeing)):
            self._accept(ahead_ms, f"{len(agreeing)} other brokers have the same time")
        elif ahead_ms > MAX_STEP_MS:
            reason = "it has jumped ahead of monotonic time"
            if self._is_after_reboot(ahead_ms):
                reason = "after a reboot of its machine it is ahead of the last known time"
            self._begin(Doubt(reason, ahead_ms, monotonic_ms))
        else:
            self._end("nothing contradicts the clock any more")
        doubt = self.doubt
        if doubt is not None and not behind:
            is_after_reboot = self._is_after_reboot(ahead_ms)
            most_ms = MAX_REBOOT_DOUBT_MS if is_after_reboot else MAX_DOUBT_MS
            if monotonic_ms - doubt.since_ms >= most_ms:
                how_long = "10 minutes after a reboot" if is_after_reboot else "a day"
                self._accept(ahead_ms, f"no other broker has contradicted it for {how_long}")
        if self.doubt is None:
            self._is_rebooted = self._is_rebooted and monotonic_ms < MAX_REBOOT_DOUBT_MS
            self._note_behind(wall_ms, monotonic_ms, is_right=is_right)
        return self.doubt is None

    def _is_after_reboot(self, ahead_ms: int) -> bool:
        """Whether the time that the machine was off may explain how far the clock is ahead."""
        return self._is_rebooted and ahead_ms <= MAX_OFF_MS

    def _confirm_jump(self, agreeing: Collection[int]) -> bool:
        """Whether these brokers, which have this time now, had it before this clock jumped.

        Without one that was heard before, only a reboot explains the jump.
        """
        known = self._before_jump_ms.keys() & agreeing
        if not known:
            return self._is_rebooted
        return all(
            abs(self.peers[b].ahead_ms - self._before_jump_ms[b]) <= MAX_STEP_MS for b in known
        )

    @property
    def _is_doubted(self) -> bool:
        """Includes the doubt of the previous process, until this one has checked the clock."""
        return self.doubt is not None or self._doubted_ms > 0

    def _note_behind(self, wall_ms: int, monotonic_ms: int, *, is_right: bool) -> None:
        """Accepts a clock that jumped back if others have the same time, or after MAX_DOUBT_MS."""
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
        """Returns a time without jumps.

        That is the wall time, or the trusted time plus monotonic progress while the two differ by
        more than MAX_STEP_MS.
        """
        ahead_ms = self._ahead_ms(wall_ms, monotonic_ms)
        return wall_ms if abs(ahead_ms) <= MAX_STEP_MS else wall_ms - ahead_ms

    def append_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Returns the time for records: the steady time, or a later one that most brokers have."""
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=False)
        return max(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def latest_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Like `append_ms`, but with one other clock the later of the two counts.

        A record of that time is too old for neither broker.
        """
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=True)
        return max(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def retention_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Returns the time by which ages are judged while the clock is not in doubt.

        A clock that was set back may have been wrong before, so the steady time needs another
        broker that has it.
        """
        others_ms = wall_ms + self._behind_ms(wall_ms, monotonic_ms, is_tie_lost=True)
        return min(others_ms, self.steady_ms(wall_ms, monotonic_ms))

    def _behind_ms(self, wall_ms: int, monotonic_ms: int, *, is_tie_lost: bool) -> int:
        """Returns how far the clock is behind the median, or 0 up to MAX_SKEW_MS.

        The median is that of this clock and all others that were heard. Of two clocks in the middle
        the later one is taken if `is_tie_lost`, else the earlier one.
        """
        ahead = sorted((0, *self.skews_ms(wall_ms, monotonic_ms, MAX_DOUBT_MS).values()))
        middle_ms = ahead[len(ahead) // 2 if is_tie_lost else (len(ahead) - 1) // 2]
        return middle_ms if middle_ms > MAX_SKEW_MS else 0

    def is_steady(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether another check against the clocks of other brokers cannot change the result."""
        return self.doubt is None and abs(self._ahead_ms(wall_ms, monotonic_ms)) <= MAX_STEP_MS

    def _ahead_ms(self, wall_ms: int, monotonic_ms: int) -> int:
        """Returns how far the wall clock has run ahead of monotonic time since it was trusted."""
        return wall_ms - monotonic_ms - self._offset_ms

    def reading(self, monotonic_ms: int, boot_id: str) -> Reading:
        """Returns the trusted wall time at this monotonic time, for the next process."""
        return Reading(
            monotonic_ms + self._offset_ms,
            monotonic_ms,
            boot_id,
            self._doubted_for(monotonic_ms),
            tuple(self.peers.items()),
            self._is_rebooted,
        )

    def _doubted_for(self, monotonic_ms: int) -> int:
        if self.doubt is None:
            return self._doubted_ms
        return max(1, monotonic_ms - self.doubt.since_ms)

    def _begin(self, doubt: Doubt) -> None:
        if self.doubt is None:
            # A restart does not start the doubt from zero: otherwise retention would never run on a
            # broker that is restarted every day.
            self.doubt = doubt._replace(since_ms=doubt.since_ms - self._doubted_ms)
            self._on_change(self.doubt, "")
        else:
            self.doubt = doubt._replace(since_ms=self.doubt.since_ms)

    def _accept(self, ahead_ms: int, why: str) -> None:
        self._offset_ms += max(ahead_ms, 0)
        self._is_rebooted = False
        self._end(why)

    def _end(self, why: str) -> None:
        self._doubted_ms = 0
        if self.doubt is not None:
            doubt, self.doubt = self.doubt, None
            self._on_change(doubt, why)


def peer_clock_callback(clock: Clock, check: ClockCheck) -> Callable[[int, int], None]:
    """Returns a callback for the clocks that other brokers send.

    It repeats the check where the result may change.
    """

    def note_peer(broker_id: int, wall_ms: int) -> None:
        own_ms, monotonic_ms = clock.wall_ms(), clock.monotonic_ms()
        is_steady = check.is_steady(own_ms, monotonic_ms)
        check.note_peer(broker_id, wall_ms, monotonic_ms, is_steady=is_steady)
        differs = wall_ms > 0 and abs(wall_ms - own_ms) > MAX_SKEW_MS
        if differs or not check.is_steady(own_ms, monotonic_ms):
            check.check(own_ms, monotonic_ms)

    return note_peer


class SteadyClock:
    """A `Clock` whose wall time has no jumps, for ages."""

    def __init__(self, clock: Clock, check: ClockCheck) -> None:
        self._clock = clock
        self._check = check

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._check.steady_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


class AppendClock(SteadyClock):
    """A clock for timestamps of records.

    Its wall time has no jumps back and is not behind that of most brokers. It follows jumps ahead:
    the clock may be right, as after the machine was suspended, and retention does not accept a time
    in the future as evidence (`log/retention.py`).
    """

    def wall_ms(self) -> int:
        return self._check.append_ms(self._clock.wall_ms(), self._clock.monotonic_ms())


class LatestClock(SteadyClock):
    """A clock for the times of appends and for the limit on timestamps.

    Retention deletes by times of appends. A time that is too late does no harm there.
    """

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
