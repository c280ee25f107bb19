"""Leaders that are alive, as far as is known, and answer late or not at all."""

from __future__ import annotations

from tidelog.inspection.explain import broker_pressures, causes
from tidelog.inspection.explain.causes import Reason, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import name_of_key
from tidelog.inspection.explain.replicas import not_queried, why_broker_does_nothing
from tidelog.inspection.state_reports import PartitionKeyState
from tidelog.model import NO_LEADER


def late_leader(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """Returns None for a leader that is dead or paused: `no_leader` reports it.

    Availability is lost if a leader did not answer and lacks CPU, files or connections, or if its
    followers get no answer either. Otherwise it may serve clients all the same.
    """
    if key.leader == NO_LEADER:
        return None
    reason = _why_late(view, key.leader)
    if reason is None:
        return None
    name = name_of_key(key)
    answers = view.liveness(key.leader) is Liveness.ANSWERS
    is_short = broker_pressures.is_pressure(reason.root)
    is_lost = not answers and (is_short or _followers_wait(view, key))
    return Symptom(
        causes.LEADER_LATE,
        causes.CRITICAL if is_lost else causes.WARNING,
        name,
        f"{name} is led by broker {key.leader}, which {reason.words}",
        f"are led by broker {key.leader}, which {reason.words}",
        "",
        (),
        (reason,),
        key.leader,
    )


def _why_late(view: ClusterView, broker_id: int) -> Reason | None:
    match view.liveness(broker_id):
        case Liveness.ANSWERS:
            return broker_pressures.why_silent(view, broker_id)
        case Liveness.BUSY:
            return not_queried(view, broker_id)
        case Liveness.UNREACHABLE:
            return why_broker_does_nothing(view, broker_id)
        case Liveness.DEAD | Liveness.PAUSED:
            return None


def _followers_wait(view: ClusterView, key: PartitionKeyState) -> bool:
    if view.is_alive_by_peers(key.leader):
        return False
    return any(view.links.silent_ms(b, key.leader) is not None for b in key.replicas)
