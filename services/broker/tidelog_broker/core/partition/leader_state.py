"""The state that a leader keeps for its epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.isr import FollowerProgress, SessionTime
from tidelog_runtime.metadata.schema import LeaderAndIsr


@dataclass(slots=True)
class LeaderState:
    """A leader's view of its epoch.

    - `proposed`: the ISR change in flight, from its sending until the key's modification revision
      is known to have changed.
    - `quiescent_sessions`: the sessions of all followers, if all are in sync and have reported that
      they hold the entire log, which is committed; None: unknown, as after each change.
    """

    epoch_start: int
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    proposed: LeaderAndIsr | None = None
    quiescent_sessions: tuple[SessionTime, ...] | None = None
    # Rejected appends with acks=all because the ISR was too small, and the time of the last.
    rejected_below_min_isr: int = 0
    last_rejected_ms: int = 0

    def knows_end(self, high_watermark: int) -> bool:
        """Returns whether the committed end is known.

        Before the high watermark reaches the start of the epoch, a previous leader may have
        returned a higher one (KIP-207)."""
        return high_watermark >= self.epoch_start

    def note(self, follower: int, progress: FollowerProgress) -> None:
        """Stores the progress of a follower."""
        self.quiescent_sessions = None
        self.followers[follower] = progress

    def fold_session_progress(self, log_end: int) -> None:
        """Applies the sessions' requests that left the partition out, up to now.

        It is called before the log's end changes, and before the followers are evaluated."""
        self.quiescent_sessions = None
        for broker_id, progress in self.followers.items():
            if progress.session is not None:
                self.followers[broker_id] = isr.apply_session_heartbeat(progress, log_end)

    def sessions_if_quiescent(self, isr_size: int, log_end: int) -> tuple[SessionTime, ...] | None:
        """Computes `quiescent_sessions` for a log that is committed to its end."""
        if self.proposed is not None or isr_size <= len(self.followers):
            return None
        progress = self.followers.values()
        sessions = tuple(p.session for p in progress if p.session and p.log_end_offset >= log_end)
        return sessions if len(sessions) == len(self.followers) else None

    def detach_session(self, follower: int, session: SessionTime, log_end: int) -> None:
        progress = self.followers.get(follower)
        if progress is not None:
            self.note(follower, isr.detach_session(progress, session, log_end))
