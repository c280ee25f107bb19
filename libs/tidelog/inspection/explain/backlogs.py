"""Commands that a broker has not acknowledged yet. Pure functions of the active controller's
report."""

from __future__ import annotations

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.state_reports import BrokerBacklog

# A command that was sent is acknowledged within milliseconds.
BACKLOG_MIN_MS = 1_000
# A command carries up to 2,000 partitions and is answered as a whole. A broker that is short of
# CPU needs seconds for it. Controllers wait this long by default.
MOVES_WITHIN_MS = 10_000


def root_of(backlog: BrokerBacklog) -> Root:
    cause = causes.COMMAND_OVERDUE if backlog.overdue else causes.COMMAND_BACKLOG
    return Root(cause, backlog.broker_id)


def is_late(backlog: BrokerBacklog) -> bool:
    """Whether it is reported even without known effects."""
    return backlog.pending > 0 and (backlog.overdue or backlog.oldest_ms >= BACKLOG_MIN_MS)


def pending_of(view: ClusterView, broker_id: int) -> BrokerBacklog | None:
    """Returns the broker's backlog, or None if no unacknowledged command is reported."""
    backlog = view.backlogs.get(broker_id)
    return backlog if backlog is not None and backlog.pending else None


def late_of(view: ClusterView, broker_id: int) -> BrokerBacklog | None:
    backlog = pending_of(view, broker_id)
    return backlog if backlog is not None and is_late(backlog) else None


def is_worked_through(backlog: BrokerBacklog) -> bool:
    """Whether a broker that is alive only needs time for many states.

    It acknowledges one after the other, or the command is not overdue yet. False if it rejects
    some of them.
    """
    if any(pending.problem for pending in backlog.first):
        return False
    moves = backlog.acknowledged > 0 and backlog.last_acknowledged_ms <= MOVES_WITHIN_MS
    return moves or not (backlog.overdue or backlog.problem)


def states_a_second(backlog: BrokerBacklog) -> int:
    """0 if it is less than one, or none has been acknowledged."""
    return backlog.acknowledged * 1_000 // max(1, backlog.working_ms)
