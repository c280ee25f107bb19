"""What a leader keeps of its epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog_broker.partition import isr
from tidelog_broker.partition.isr import FollowerProgress, SessionTime
from tidelog_runtime.metadata.schema import LeaderAndIsr


@dataclass(slots=True)
class Leading:
    """A leader's view of its epoch. `proposed` is the ISR change in flight: from its
    sending until the key's modification revision is known to have moved. `settled` are the
    sessions by which all followers, which are in sync, have told that they hold all that is in
    the log and committed; None: it is not known to be so, as after whatever may change it."""

    epoch_start: int
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    proposed: LeaderAndIsr | None = None
    settled: tuple[SessionTime, ...] | None = None
    # Appends with acks=all for want of replicas in sync, and the wall clock of the last.
    refused_below_min_isr: int = 0
    last_refused_ms: int = 0

    def knows_end(self, high_watermark: int) -> bool:
        """Whether it is known how far the log is committed: before the high watermark has
        reached the epoch's start, a former leader may have told more (KIP-207)."""
        return high_watermark >= self.epoch_start

    def note(self, follower: int, progress: FollowerProgress) -> None:
        """What is known of a follower now."""
        self.settled = None
        self.followers[follower] = progress

    def settle(self, log_end: int) -> None:
        """What followers told by leaving the partition out, up to now: before the log's end
        moves on, and before they are judged."""
        self.settled = None
        for broker_id, progress in self.followers.items():
            if progress.session is not None:
                self.followers[broker_id] = isr.told_again(progress, log_end)

    def sessions_if_settled(self, isr_size: int, log_end: int) -> tuple[SessionTime, ...] | None:
        """As `settled` is, which this finds anew; of a log that is committed to its end."""
        if self.proposed is not None or isr_size <= len(self.followers):
            return None
        told = self.followers.values()
        sessions = tuple(p.session for p in told if p.session and p.log_end_offset >= log_end)
        return sessions if len(sessions) == len(self.followers) else None

    def session_left(self, follower: int, session: SessionTime, log_end: int) -> None:
        progress = self.followers.get(follower)
        if progress is not None:
            self.note(follower, isr.left(progress, session, log_end))
