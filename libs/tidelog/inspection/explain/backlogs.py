"""What the commands say of a broker that it has yet to acknowledge. Pure functions of what the
active controller tells."""

from __future__ import annotations

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.model import BrokerBacklog

# A command that was sent is acknowledged within milliseconds.
BACKLOG_MIN_MS = 1_000
# A command carries up to 2,000 partitions and is answered as a whole, which a broker that is
# short of CPU needs seconds for; this is what controllers give it, unless they are told otherwise.
MOVES_WITHIN_MS = 10_000


def root_of(backlog: BrokerBacklog) -> Root:
    cause = causes.COMMAND_OVERDUE if backlog.overdue else causes.COMMAND_BACKLOG
    return Root(cause, backlog.broker_id)


def is_late(backlog: BrokerBacklog) -> bool:
    """It is told, also where nothing is known to follow from it."""
    return backlog.pending > 0 and (backlog.overdue or backlog.oldest_ms >= BACKLOG_MIN_MS)


def pending_of(view: ClusterView, broker_id: int) -> BrokerBacklog | None:
    """None: there is nothing that it has yet to acknowledge, as far as anybody tells."""
    backlog = view.backlogs.get(broker_id)
    return backlog if backlog is not None and backlog.pending else None


def late_of(view: ClusterView, broker_id: int) -> BrokerBacklog | None:
    backlog = pending_of(view, broker_id)
    return backlog if backlog is not None and is_late(backlog) else None


def is_worked_through(backlog: BrokerBacklog) -> bool:
    """A broker that lives needs time for many states: it takes one after the other, or the
    command has not had its time yet. Not where it refuses some."""
    if any(pending.problem for pending in backlog.first):
        return False
    moves = backlog.acknowledged > 0 and backlog.last_acknowledged_ms <= MOVES_WITHIN_MS
    return moves or not (backlog.overdue or backlog.problem)


def states_a_second(backlog: BrokerBacklog) -> int:
    """0: fewer than one, or none yet."""
    return backlog.acknowledged * 1_000 // max(1, backlog.working_ms)
