"""Explains why a replica does not keep up with its leader."""

from __future__ import annotations

from tidelog.inspection.explain import backlogs, broker_pressures, causes, cut_offs, packet_loss
from tidelog.inspection.explain.causes import Reason, Root
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import brokers, name_of_key, span
from tidelog.inspection.explain.growth import growth_of
from tidelog.inspection.state_reports import (
    REJECTS_LEADER,
    FollowerProgress,
    FollowerState,
    PartitionKeyState,
    ReplicaState,
)
from tidelog.model import NO_LEADER
from tidelog.units import size_text

# For a follower that lacks records: its fetch is answered at once, and the next one follows.
FETCH_SILENCE_MS = 1_500
# For a follower that lacks nothing: its fetch may wait for replica_fetch_max_wait_ms, which brokers
# do not report. This is more than the highest value of that setting.
IDLE_FETCH_SILENCE_MS = 12_000
# A replica that had all records within this time lacks only those in transit.
RECENTLY_CAUGHT_UP_MS = 1_000
# Time from the change that began an epoch to a follower's first fetch in it: the command has to
# reach leader and follower.
FIRST_FETCH_MS = 3_000

_BY_LIVENESS = {
    Liveness.DEAD: Reason(Root(causes.REPLICA_DEAD), "is gone"),
    Liveness.PAUSED: Reason(Root(causes.BROKER_PAUSED), "accepts connections and does not answer"),
    Liveness.UNREACHABLE: Reason(Root(causes.BROKER_UNREACHABLE), "cannot be reached"),
}
_STARTING = "is starting"
_STOPPED = Reason(Root(causes.BROKER_STOPPED), "was stopped")
_CRASHED = Reason(Root(causes.REPLICA_DEAD), "has crashed")
_CANNOT_START = Reason(Root(causes.BROKER_CANNOT_START), "cannot start")
_OF_FAILURE = {
    "disk_full": (causes.DISK_FULL, "has no room on its disk"),
    "disk_error": (causes.DISK_ERROR, "has a disk that fails"),
    "corrupt": (causes.REPLICA_CORRUPT, "has found its replica damaged"),
    REJECTS_LEADER: (causes.REPLICA_REJECTS, "rejects batches of its leader"),
}


def why_broker_does_nothing(view: ClusterView, broker_id: int) -> Reason | None:
    """Returns a reason that applies to all replicas of the broker. None if it serves, or is only
    too busy to describe its state."""
    if view.is_starting(broker_id):
        return _why_starting(view, broker_id)
    return _why_no_answer(view, broker_id)


def _why_starting(view: ClusterView, broker_id: int) -> Reason:
    """The controller sends states to the registered address, where the broker may not answer."""
    if view.answers_elsewhere(broker_id):
        root = Root(causes.BROKER_UNREACHABLE, broker_id)
        return Reason(root, "cannot be reached at the address that it advertises")
    return Reason(Root(causes.BROKER_STARTING, broker_id), _STARTING)


def _why_no_answer(view: ClusterView, broker_id: int) -> Reason | None:
    liveness = view.liveness(broker_id)
    if liveness in (Liveness.ANSWERS, Liveness.BUSY):
        return None
    short = broker_pressures.why_silent(view, broker_id)
    if short is not None and liveness in (Liveness.PAUSED, Liveness.UNREACHABLE):
        return short
    found = _BY_LIVENESS[liveness]
    if liveness is Liveness.DEAD:
        found = _how_it_ended(view, broker_id)
    return Reason(Root(found.root.cause, broker_id), found.words)


def _how_it_ended(view: ClusterView, broker_id: int) -> Reason:
    if view.failed_start(broker_id) is not None:
        return _CANNOT_START
    if view.crash(broker_id) is not None:
        return _CRASHED
    return _STOPPED if view.was_stopped(broker_id) else _BY_LIVENESS[Liveness.DEAD]


def not_queried(view: ClusterView, broker_id: int) -> Reason:
    """Returns the reason of a busy broker for which no other reason is known."""
    short = broker_pressures.why_silent(view, broker_id) or packet_loss.why_late(view, broker_id)
    if short is not None:
        return short
    return Reason(Root(causes.BROKER_BUSY, broker_id), "did not answer in time")


def failure_of(replica: ReplicaState | None, broker_id: int) -> Reason | None:
    """Returns why a replica accepts no records, as its own broker reports it."""
    if replica is None:
        return None
    cause, words = _OF_FAILURE.get(replica.failure, ("", ""))
    if not cause:
        if replica.role != "damaged":
            return None
        cause, words = _OF_FAILURE["corrupt"]
    details = [f"{replica.topic}/{replica.partition}: broker-{broker_id} reports: "]
    details.append(f'"{replica.failure_message}"' if replica.failure_message else "out of service")
    if replica.failure_ms >= 0:
        details.append(f", for {span(replica.failure_ms)}")
    if replica.hang_over_in_ms > 0:
        words = "has a disk that hung a moment ago"
        details.append(
            f"; it returns again, and counts as recovered in {span(replica.hang_over_in_ms)} if it "
            "does not hang again"
        )
    return Reason(Root(cause, broker_id), words, ("".join(details),))


def why_behind(view: ClusterView, key: PartitionKeyState, broker_id: int) -> Reason | None:
    """Returns why a replica is not in the ISR, or holds back the high watermark. None if no service
    reports a reason, or if the reason is gone."""
    reason = _why_no_answer(view, broker_id)
    if reason is not None:
        return reason
    replica = view.replica(key, broker_id)
    failure = failure_of(replica, broker_id)
    if failure is not None:
        return failure
    if cut_offs.is_cut_off(view, broker_id):
        return Reason(cut_offs.root_of(broker_id), "is cut off from the other brokers")
    busy = view.liveness(broker_id) is Liveness.BUSY
    state_reason = None if busy else _by_state(view, broker_id)
    if state_reason is not None:
        return state_reason
    if key.leader == NO_LEADER:
        return None
    if busy:
        # A late fetch of a busy broker is no sign of the network.
        return _slow(view, key, broker_id) or not_queried(view, broker_id)
    if view.liveness(key.leader) is Liveness.BUSY:
        root = not_queried(view, key.leader).root
        return Reason(root, f"follows broker {key.leader}, which did not answer in time")
    if cut_offs.is_cut_off(view, key.leader):
        root = cut_offs.root_of(key.leader)
        return Reason(root, f"follows broker {key.leader}, which is cut off from the others")
    if view.has_unresolved_name(key.leader):
        root = Root(causes.BROKER_UNREACHABLE, key.leader)
        return Reason(root, f"follows broker {key.leader}, whose name does not resolve")
    if view.liveness(key.leader) is not Liveness.ANSWERS:
        # The follower has no leader to follow, which is not its fault.
        return None
    reason = _not_informed(view, key, replica, broker_id) or _not_served(
        view, key, replica, broker_id
    )
    if reason is None and rejection_of(view, key, broker_id) is None:
        reason = (
            _cut_off(view, key, replica, broker_id)
            or _slow(view, key, broker_id)
            or _not_admitted(view, key)
        )
    return reason


def _by_state(view: ClusterView, broker_id: int) -> Reason | None:
    """Returns a reason that a broker that answers reports for all of its replicas."""
    if view.broker_states[broker_id].state == "stopping":
        return Reason(Root(causes.BROKER_STOPPING, broker_id), "is stopping")
    if view.is_starting(broker_id):
        return _why_starting(view, broker_id)
    is_current = view.registry.store_answers and bool(view.registry.brokers)
    if is_current and broker_id not in view.registry.brokers:
        return Reason(Root(causes.BROKER_UNREGISTERED, broker_id), "is alive and not registered")
    return None


def _not_informed(
    view: ClusterView, key: PartitionKeyState, replica: ReplicaState | None, broker_id: int
) -> Reason | None:
    """The broker has not been commanded to follow this leader in this epoch."""
    backlog = backlogs.pending_of(view, broker_id)
    if backlog is None or (replica is not None and _has_its_leader(key, replica)):
        return None
    report = "reports no such replica"
    if replica is not None:
        report = f"reports leader epoch {replica.leader_epoch}"
    elif view.leaves_out(key, broker_id):
        progress = view.progress(key, broker_id)
        if progress is not None and progress.last_fetch_ms >= 0:
            return None
        report = "does not report it"
    return Reason(
        backlogs.root_of(backlog),
        "has not received its newest state",
        (
            f"{name_of_key(key)}: broker-{broker_id} {report}; the newest leader epoch is "
            f"{key.leader_epoch}",
        ),
    )


def _has_its_leader(key: PartitionKeyState, replica: ReplicaState) -> bool:
    return replica.leader_epoch >= key.leader_epoch


def rejection_of(
    view: ClusterView, key: PartitionKeyState, broker_id: int
) -> tuple[FollowerState, str] | None:
    """Returns the follower's state if its leader rejects its fetches, and a line of evidence."""
    replica = view.replica(key, broker_id)
    follower = None if replica is None else replica.follower
    if follower is None or not (follower.problem and follower.answered):
        return None
    if follower.leader != key.leader or (replica and replica.failure == REJECTS_LEADER):
        return None
    rejected_for = f" for {span(follower.problem_ms)}" if follower.problem_ms >= 0 else ""
    return follower, (
        f"{name_of_key(key)}: broker-{key.leader} has rejected the fetches of broker "
        f'{broker_id}{rejected_for}: "{follower.problem}"'
    )


def _not_served(
    view: ClusterView, key: PartitionKeyState, replica: ReplicaState | None, broker_id: int
) -> Reason | None:
    """The leader rejects the follower, or one of them has not received the leader's epoch. The
    reason is the one that lacks its newest state, which needs the store and a controller."""
    rejection, unaware = rejection_of(view, key, broker_id), _unaware_leader(view, key)
    evidence: tuple[str, ...] = ()
    how = f"follows broker {key.leader}"
    if rejection is not None:
        how, evidence = f"is rejected by its leader, broker {key.leader}", (rejection[1],)
    elif unaware is not None:
        evidence = (unaware,)
    elif replica is None or _has_its_leader(key, replica):
        return None
    of_leader = _why_not_up_to_date(view, key, key.leader) if rejection or unaware else None
    if of_leader is not None:
        return Reason(of_leader.root, f"{how}, which {of_leader.words}", evidence)
    of_follower = _why_not_up_to_date(view, key, broker_id)
    if of_follower is not None:
        return Reason(of_follower.root, f"{how}, and {of_follower.words}", evidence)
    if view.has_no_controller:
        root = Root(causes.NO_CONTROLLER)
        return Reason(root, f"{how}, and no controller reports the leader", evidence)
    return None


def _unaware_leader(view: ClusterView, key: PartitionKeyState) -> str | None:
    """Returns evidence that the leader does not report that it leads. None if it does, or if its
    report is missing."""
    replica = view.replica(key, key.leader)
    name = name_of_key(key)
    if replica is None:
        if view.leaves_out(key, key.leader):
            return None
        return f"{name}: broker-{key.leader}, the leader, reports no such replica"
    if replica.leader_epoch > key.leader_epoch:
        return None
    if replica.leader_epoch == key.leader_epoch and replica.leader is not None:
        return None
    return (
        f"{name}: broker-{key.leader}, the leader, has the role {replica.role!r} in leader epoch "
        f"{replica.leader_epoch}; the newest leader epoch is {key.leader_epoch}"
    )


def _why_not_up_to_date(view: ClusterView, key: PartitionKeyState, broker_id: int) -> Reason | None:
    """Returns why a broker that answers may lack the newest state of a partition."""
    reason = failure_of(view.replica(key, broker_id), broker_id) or _by_state(view, broker_id)
    if reason is not None:
        return reason
    if view.store_lost(broker_id):
        return Reason(view.store_root(broker_id), "does not reach the metadata store")
    backlog = backlogs.pending_of(view, broker_id)
    if backlog is None:
        return None
    return Reason(backlogs.root_of(backlog), "has not received its newest state")


def _cut_off(
    view: ClusterView, key: PartitionKeyState, replica: ReplicaState | None, broker_id: int
) -> Reason | None:
    """The follower reports that it cannot fetch, or the leader sees no fetch although both answer.

    Not used for a follower that its leader rejects: a rejection proves that the network works.
    """
    name = name_of_key(key)
    evidence: list[str] = []
    follower = None if replica is None else replica.follower
    if follower is not None and follower.problem and follower.leader == key.leader:
        problem_for = f" for {span(follower.problem_ms)}" if follower.problem_ms >= 0 else ""
        evidence.append(
            f"{name}: broker-{broker_id} cannot fetch from broker {key.leader}{problem_for}: "
            f'"{follower.problem}"'
        )
    progress = view.progress(key, broker_id)
    if progress is not None and _has_yet_to_fetch(view, key, progress):
        received = (
            "no fetch from it in this epoch"
            if progress.last_fetch_ms < 0
            else f"its last fetch {span(progress.last_fetch_ms)} ago"
        )
        line = f"{name}: broker-{key.leader}, the leader, has received {received}"
        busy = None if evidence else _too_busy_to_fetch(view, key, broker_id, line)
        if busy is not None:
            return busy
        is_informed = replica is None or _has_its_leader(key, replica)
        if _fetches_no_more(view, key, progress) and (evidence or is_informed):
            evidence.append(f"{line}; both answer")
    if not evidence:
        return None
    for end in (key.leader, broker_id):
        short = broker_pressures.why_unconnected(view, end)
        if short is not None:
            of_other = f"cannot fetch from broker {end}, which {short.words}"
            return Reason(
                short.root, of_other if end == key.leader else short.words, tuple(evidence)
            )
    lossy = packet_loss.why_late(view, broker_id, key.leader)
    if lossy is not None and not view.links.fail(broker_id, key.leader):
        return Reason(lossy.root, lossy.words, tuple(evidence))
    silent = view.silent_broker(key.leader)
    if silent is not None:
        evidence.append(
            f"broker-{key.leader} answers elsewhere, but its address {silent.address} "
            f"{silent.listening.value}"
        )
    return Reason(
        Root(causes.REPLICA_CUT_OFF, broker_id),
        f"cannot fetch from its leader, broker {key.leader}",
        tuple(evidence),
    )


def _too_busy_to_fetch(
    view: ClusterView, key: PartitionKeyState, broker_id: int, line: str
) -> Reason | None:
    """A broker that is behind with its commands is late with fetches, or with their answers."""
    own = backlogs.late_of(view, broker_id)
    if own is not None:
        return Reason(
            backlogs.root_of(own), "is behind with its commands, and with its fetches", (line,)
        )
    of_leader = backlogs.late_of(view, key.leader)
    if of_leader is None:
        return None
    return Reason(
        backlogs.root_of(of_leader),
        f"follows broker {key.leader}, which is behind with its commands",
        (line,),
    )


def _has_yet_to_fetch(
    view: ClusterView, key: PartitionKeyState, progress: FollowerProgress
) -> bool:
    return progress.last_fetch_ms < 0 or _fetches_no_more(view, key, progress)


def is_young(view: ClusterView, key: PartitionKeyState) -> bool:
    """Decides by the key's last change, which may be later than the one that began its epoch."""
    return key.changed_at_ms >= view.now_ms() - FIRST_FETCH_MS


def _fetches_no_more(view: ClusterView, key: PartitionKeyState, progress: FollowerProgress) -> bool:
    """Whether the follower has stopped fetching.

    No fetch in this epoch counts only if the epoch is known not to be young. The key's last change
    may be later than the epoch's beginning, never earlier.
    """
    if progress.last_fetch_ms < 0:
        return key.changed_at_ms > 0 and not is_young(view, key)
    limit_ms = FETCH_SILENCE_MS if _lacks_records(view, key, progress) else IDLE_FETCH_SILENCE_MS
    return progress.last_fetch_ms > limit_ms


def was_caught_up_recently(progress: FollowerProgress) -> bool:
    return 0 <= progress.last_caught_up_ms <= RECENTLY_CAUGHT_UP_MS


def _lacks_records(view: ClusterView, key: PartitionKeyState, progress: FollowerProgress) -> bool:
    leading = view.leading(key)
    end = progress.log_end_offset if leading is None else leading[0].log_end_offset
    return progress.lag_records > 0 or 0 <= progress.log_end_offset < end


def _slow(view: ClusterView, key: PartitionKeyState, broker_id: int) -> Reason | None:
    """It fetches and lacks records. An earlier state shows whether it catches up."""
    leading, progress = view.leading(key), view.progress(key, broker_id)
    if leading is None or progress is None or _fetches_no_more(view, key, progress):
        return None
    if progress.last_fetch_ms < 0:
        return None
    if not _lacks_records(view, key, progress) or was_caught_up_recently(progress):
        return None
    end = leading[0].log_end_offset
    lag = max(progress.lag_records, end - progress.log_end_offset)
    lacks = [f"{lag:,} records"]
    if progress.lag_bytes >= 0:
        lacks.append(size_text(progress.lag_bytes))
    if progress.lag_ms >= 0:
        lacks.append(f"the oldest of them written {span(progress.lag_ms)} ago")
    caught_up = (
        "it has not been caught up in this epoch"
        if progress.last_caught_up_ms < 0
        else f"it was caught up {span(progress.last_caught_up_ms)} ago"
    )
    evidence = [
        f"{name_of_key(key)}: broker-{key.leader}, the leader, reports: it fetches (last "
        f"{span(progress.last_fetch_ms)} ago) and lacks {', '.join(lacks)}; {caught_up}"
    ]
    growth = growth_of(view, key, end, progress)
    if growth is not None:
        evidence.append(f"{name_of_key(key)}: {growth}")
    if growth is not None and growth.gains > 0:
        left = span(lag * growth.within_ms // growth.gains)
        evidence.append(f"{name_of_key(key)}: at this rate it is caught up in about {left}")
        root = Root(causes.REPLICA_CATCHING_UP, broker_id)
        return Reason(root, "is catching up", tuple(evidence))
    late = broker_pressures.why_late(view, broker_id) or broker_pressures.why_late(view, key.leader)
    if late is not None:
        follows = "" if late.root.broker == broker_id else f"follows broker {key.leader}, which "
        return Reason(late.root, f"{follows}{late.words}", tuple(evidence))
    lossy = packet_loss.why_late(view, broker_id, key.leader)
    if lossy is not None:
        return Reason(lossy.root, lossy.words, tuple(evidence))
    kept_up = _kept_up_with(view, key.leader, broker_id)
    if kept_up:
        evidence.append(f"broker {broker_id} keeps up with {brokers(kept_up)}")
        root = Root(causes.LEADER_SLOW, key.leader)
        return Reason(root, f"does not catch up with broker {key.leader}", tuple(evidence))
    return Reason(
        Root(causes.REPLICA_SLOW, broker_id), "fetches and does not catch up", tuple(evidence)
    )


def _kept_up_with(view: ClusterView, leader: int, broker_id: int) -> list[int]:
    """Returns the other leaders that a follower keeps up with. Empty if it follows no other, or
    lags behind another one as well: then the follower itself is slow."""
    others = [b for b in view.links.fetched_from(broker_id) if b not in (leader, broker_id)]
    for other in others:
        for replica in view.replicas_of(other):
            for progress in replica.leader.followers if replica.leader else ():
                if progress.broker_id == broker_id and _lags(progress):
                    return []
    return others


def _lags(progress: FollowerProgress) -> bool:
    return progress.lag_records > 0 and not was_caught_up_recently(progress)


def _not_admitted(view: ClusterView, key: PartitionKeyState) -> Reason | None:
    """It has all records, and the leader cannot write the ISR into the store."""
    if not view.cannot_write_store(key.leader):
        return None
    return Reason(
        view.store_root(key.leader),
        "has every record, but its leader cannot write the ISR into the metadata store",
    )
