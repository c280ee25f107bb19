"""Explains why a partition has no leader, and what an unclean election may have cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tidelog.inspection.explain import causes, next_steps, reboots
from tidelog.inspection.explain.causes import Reason, Root, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import ago, brokers, listed, name_of_key, since
from tidelog.inspection.explain.replicas import failure_of, why_broker_does_nothing
from tidelog.inspection.state_reports import NOT_KNOWN, InSyncMember, PartitionKeyState
from tidelog.model import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.phrases import plural

# Stored in place of the broker epoch in which a member was admitted.
LOST_DATA = 0


def no_leader(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    if key.leader != NO_LEADER:
        return _leader_gone(view, key)
    name = name_of_key(key)
    if key.leader_epoch == NO_EPOCH:
        return _never_led(view, key)
    members = (*key.isr, *key.eligible)
    if not members:
        # No replica is to lead it: the topic is being deleted.
        return None
    candidates = _candidates(view, key)
    evidence = [_without_leader_since(view, key), *(candidate.evidence for candidate in candidates)]
    reasons = [candidate.reason for candidate in candidates if candidate.reason is not None]
    reasons += reboots.of_lost_data(view, key, members)
    unavailable = [candidate.member for candidate in candidates if candidate.reason is not None]
    if view.has_no_controller:
        reasons.append(_no_controller_to_elect())
    many = _waits_for(key, unavailable)
    return Symptom(
        causes.NO_LEADER,
        causes.CRITICAL,
        name,
        f"{name} has no leader: it can be neither written nor read; {many}",
        f"have no leader; each {many}",
        partial(
            _next_step, key, unavailable, _paused(candidates), _with_running_broker(candidates)
        ),
        tuple(evidence),
        tuple(reasons),
    )


def _waits_for(key: PartitionKeyState, unavailable: Sequence[InSyncMember]) -> str:
    """Continues a sentence "it …"."""
    if key.unclean_leader_election:
        return "waits for any of its replicas, because unclean_leader_election is set"
    if unavailable:
        return f"waits for {_unavailable_members(unavailable)}"
    if key.recovery == "manual":
        return (
            "waits for consent: all that were in sync are back, none of them is intact, and "
            "its recovery is manual"
        )
    return "waits for the controller: all that were in sync are available"


def _next_step(
    key: PartitionKeyState,
    unavailable: Sequence[InSyncMember],
    paused: Sequence[int],
    running: Sequence[int],
    names: Sequence[TopicPartition],
) -> str:
    """Returns the next step for all partitions of these names, which wait for the same as that of
    `key`.

    - `paused`: brokers that must not be started, because their processes exist.
    - `running`: brokers that serve, and whose replicas do not.
    """
    return " ".join((*map(next_steps.of_paused, paused), _step(key, unavailable, running, names)))


def _paused(candidates: Sequence[_CandidateState]) -> list[int]:
    return sorted(
        candidate.member.broker_id
        for candidate in candidates
        if candidate.reason is not None and candidate.reason.root.cause == causes.BROKER_PAUSED
    )


def _with_running_broker(candidates: Sequence[_CandidateState]) -> list[int]:
    return [c.member.broker_id for c in candidates if c.is_broker_running]


def _step(
    key: PartitionKeyState,
    unavailable: Sequence[InSyncMember],
    running: Sequence[int],
    names: Sequence[TopicPartition],
) -> str:
    if key.unclean_leader_election:
        return f"Start any of brokers {listed(key.replicas)}."
    if unavailable:
        return _bring_back(unavailable, running, next_steps.recover(names, "--from-live-replicas"))
    if key.recovery == "manual":
        return f"Accept the loss of records that no replica has: {next_steps.recover(names)}"
    return "Check the findings about controller and store; the election follows by itself."


def _intact(unavailable: Sequence[InSyncMember]) -> list[int]:
    """Returns members any one of which can be elected without loss when it is back."""
    return sorted(m.broker_id for m in unavailable if m.broker_epoch != LOST_DATA)


def _damaged(unavailable: Sequence[InSyncMember]) -> list[int]:
    return sorted(m.broker_id for m in unavailable if m.broker_epoch == LOST_DATA)


def _start(broker_ids: Sequence[int], running: Sequence[int], conjunction: str) -> str:
    """Begins a sentence that names what brings replicas back."""
    steps = []
    stopped = [broker_id for broker_id in broker_ids if broker_id not in running]
    if stopped:
        named = brokers(stopped)
        if conjunction == "or":
            named = " or ".join(f"broker {broker_id}" for broker_id in stopped)
        steps.append(f"start {named}")
    steps += [
        f"correct what broker {broker_id} reports about its replica, which it then opens again "
        "within a minute"
        for broker_id in broker_ids
        if broker_id in running
    ]
    step = f" {conjunction} ".join(steps)
    return step[:1].upper() + step[1:]


def _bring_back(unavailable: Sequence[InSyncMember], running: Sequence[int], recover: str) -> str:
    """The step without loss comes first."""
    intact = _intact(unavailable)
    lossy = (
        f"{recover}, which elects the best log among the live replicas; "
        "records that only the lost ones hold are lost"
    )
    if len(intact) > 1:
        return (
            f"{_start(intact, running, 'or')}: one of them is enough, and no record is lost where "
            f"its data directory is intact. Only if all of them are lost for good: {lossy}."
        )
    if intact:
        return (
            f"{_start(intact, running, 'or')}: it is enough, and no record is lost where its data "
            f"directory is intact. Only if it is lost for good: {lossy}."
        )
    return (
        f"{_start(_damaged(unavailable), running, 'and')}: the best log among all replicas is then "
        f"elected. If one of them is lost for good: {lossy}."
    )


def _unavailable_members(unavailable: Sequence[InSyncMember]) -> str:
    """One intact member is enough; members that are known to have lost data are all compared."""
    damaged, intact = _damaged(unavailable), _intact(unavailable)
    if len(intact) > 1:
        return f"any one of {brokers(intact)}, each last known to hold every committed record"
    if intact:
        return f"{brokers(intact)}, last known to hold every committed record"
    return (
        f"{brokers(damaged)}, which {'is' if len(damaged) == 1 else 'are'} known to have lost "
        "data, and may yet hold what no other has"
    )


def _without_leader_since(view: ClusterView, key: PartitionKeyState) -> str:
    when = f" {since(key.changed_at_ms, view.now_ms())}" if key.changed_at_ms else ""
    why = f", because of {key.change_cause}" if key.change_cause else ""
    change = f" (change {key.change_id})" if key.change_id else ""
    epoch = key.leader_epoch
    return f"{name_of_key(key)}: its key has no leader in leader epoch {epoch}{when}{why}{change}"


class _CandidateState(NamedTuple):
    """The state of a last-known member.

    - `reason`: why it does not serve; None if it does.
    - `can_lead`: whether it is elected without loss when the leader is gone.
    - `is_broker_running`: its broker serves, and only this replica does not.
    """

    member: InSyncMember
    evidence: str
    reason: Reason | None = None
    can_lead: bool = False
    is_broker_running: bool = False


def _candidates(view: ClusterView, key: PartitionKeyState) -> list[_CandidateState]:
    return [_candidate_state(view, key, member) for member in (*key.isr, *key.eligible)]


def _candidate_state(
    view: ClusterView, key: PartitionKeyState, member: InSyncMember
) -> _CandidateState:
    broker_id = member.broker_id
    was = f"broker {broker_id} was {'in the ISR' if member in key.isr else 'eligible'}"
    if member.broker_epoch == LOST_DATA:
        was += " and is known to have lost data"
    elif member.broker_epoch != NOT_KNOWN:
        was += f" in its incarnation {member.broker_epoch}"
    reason = why_broker_does_nothing(view, broker_id)
    if reason is not None:
        departure = view.departures.get(broker_id)
        gone = (
            f"gone {since(departure.at_ms, view.now_ms())}, by {departure.cause}"
            if departure is not None
            else f"it {reason.words}"
        )
        return _CandidateState(member, f"{was}; {gone}", reason)
    failure = failure_of(view.replica(key, broker_id), broker_id)
    if failure is not None:
        words = f"{was}; it {failure.words}"
        return _CandidateState(member, words, failure, is_broker_running=True)
    registered = view.registry.brokers.get(broker_id)
    if registered is None:
        root = Root(causes.BROKER_UNREGISTERED, broker_id)
        not_registered = Reason(root, "is not registered")
        return _CandidateState(member, f"{was}; it is alive and not registered", not_registered)
    if registered.state == "stopping":
        root = Root(causes.BROKER_STOPPING, broker_id)
        return _CandidateState(member, f"{was}; it is stopping", Reason(root, "is stopping"))
    intact_since = registered.synced_whole_since if key.synced else registered.whole_since
    if intact_since and 0 < member.broker_epoch < intact_since:
        return _CandidateState(
            member,
            f"{was}; it is back in incarnation {registered.broker_epoch}, and has lost data: it "
            f"is intact only since incarnation {intact_since}",
        )
    return _CandidateState(
        member,
        f"{was}; it is available in incarnation {registered.broker_epoch}",
        can_lead=member.broker_epoch != LOST_DATA,
    )


def _no_controller_to_elect() -> Reason:
    return Reason(Root(causes.NO_CONTROLLER), "there is no active controller to elect a leader")


def _why_no_election(view: ClusterView) -> list[Reason]:
    """Returns what keeps any controller from changing the partition, or nothing."""
    if view.has_no_controller:
        return [_no_controller_to_elect()]
    if not view.store_accepts_changes:
        return [Reason(view.lost_store_root, "accepts no changes")]
    return []


def _leader_gone(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """The key names a leader that serves no client, and no other has been elected yet."""
    liveness = view.liveness(key.leader)
    starts = view.is_starting(key.leader) and view.leading(key) is None
    if liveness not in (Liveness.DEAD, Liveness.PAUSED) and not starts:
        return None
    reason = why_broker_does_nothing(view, key.leader)
    assert reason is not None
    name = name_of_key(key)
    reasons = [reason, *_why_no_election(view)]
    next_step = next_steps.of_leader_gone(
        key.leader,
        is_paused=liveness is Liveness.PAUSED,
        store_unreachable=view.registry.reporter is not None and not view.store_accepts_changes,
        has_controller=not view.has_no_controller,
    )
    if view.has_no_controller:
        waits = "no other is elected, because no controller is active"
    elif not view.store_accepts_changes:
        waits = "no other can be elected while the metadata store accepts no changes"
    elif starts:
        waits = "it leads again once the controller has commanded it, or another is elected"
    elif candidates := _without_successor(view, key):
        return _leader_gone_for_good(key, reason, candidates, paused=liveness is Liveness.PAUSED)
    else:
        waits = "another is elected once its registration has ended"
    return Symptom(
        causes.NO_LEADER,
        causes.CRITICAL,
        name,
        f"{name} is led by broker {key.leader}, which {reason.words}; {waits}",
        f"are led by broker {key.leader}, which {reason.words}; {waits}",
        next_step,
        (_named_leader(key),),
        tuple(reasons),
        key.leader,
    )


def _named_leader(key: PartitionKeyState) -> str:
    return f"its key names broker {key.leader} as the leader in epoch {key.leader_epoch}"


def _without_successor(view: ClusterView, key: PartitionKeyState) -> list[_CandidateState]:
    """Returns the states of all members that may lead without loss, if none of them can. Empty if
    another broker is elected once the leader's registration has ended."""
    if key.unclean_leader_election:
        others = [b for b in key.replicas if b != key.leader]
        if any(why_broker_does_nothing(view, broker_id) is None for broker_id in others):
            return []
    candidates = _candidates(view, key)
    return [] if any(candidate.can_lead for candidate in candidates) else candidates


def _leader_gone_for_good(
    key: PartitionKeyState,
    why_leader_is_gone: Reason,
    candidates: Sequence[_CandidateState],
    *,
    paused: bool,
) -> Symptom:
    """No broker can replace the leader, and soon the key has none. The partition waits for the same
    before and after that."""
    name = name_of_key(key)
    unavailable = [candidate.member for candidate in candidates if candidate.reason is not None]
    gone = f"broker {key.leader}, which {why_leader_is_gone.words}"
    waits = _waits_for(key, unavailable)
    paused_brokers = sorted({*_paused(candidates), *([key.leader] if paused else [])})
    running = _with_running_broker(candidates)
    return Symptom(
        causes.NO_LEADER,
        causes.CRITICAL,
        name,
        f"{name} is led by {gone}, and no other can be elected; it {waits}",
        f"are led by {gone}, and no other can be elected; each {waits}",
        partial(_next_step, key, unavailable, paused_brokers, running),
        (_named_leader(key), *(candidate.evidence for candidate in candidates)),
        tuple(candidate.reason for candidate in candidates if candidate.reason is not None),
        key.leader,
    )


def _never_led(view: ClusterView, key: PartitionKeyState) -> Symptom:
    name = name_of_key(key)
    if not key.replicas:
        return _without_replicas(view, key)
    found = [why_broker_does_nothing(view, broker_id) for broker_id in key.replicas]
    reasons = [reason for reason in found if reason is not None]
    if len(reasons) == len(found):
        why = "none of its replicas is available"
        next_step = f"Start any of brokers {listed(key.replicas)}."
    else:
        why = "it waits for its first election"
        next_step = "Check the findings about controller and store; it follows by itself."
    answering = [b for b, reason in zip(key.replicas, found, strict=True) if reason is None]
    return Symptom(
        causes.NO_LEADER,
        causes.CRITICAL,
        name,
        f"{name} has never had a leader: {why}",
        f"have never had a leader: of each, {why}",
        next_step,
        (
            f"{name}: its replicas are assigned to {brokers(key.replicas)}; of these "
            f"{listed(answering)} answer",
        ),
        (*reasons, *_why_no_election(view)),
    )


def _without_replicas(view: ClusterView, key: PartitionKeyState) -> Symptom:
    """With enough brokers and an active controller, a partition gets its replicas within
    moments."""
    name, factor = name_of_key(key), key.replication_factor
    running = sum(1 for b in view.registry.brokers.values() if b.state == "running")
    reasons = _why_no_election(view)
    severity = causes.CRITICAL
    if not 0 < factor <= running:
        why = "fewer brokers run than its replication factor needs"
        next_step = (
            "Start brokers until as many run as the topic's replication factor; the active "
            "controller does the rest."
        )
    elif reasons:
        why = "no controller has chosen them"
        next_step = "Check the findings about controller and store; it follows by itself."
    else:
        severity = causes.INFO
        why = "the controller is placing them"
        next_step = "Run explain again in a moment; the active controller continues."
    required = f", and the replication factor is {factor}" if factor else ""
    return Symptom(
        causes.NO_LEADER,
        severity,
        name,
        f"{name} has no replicas yet: {why}",
        f"have no replicas yet: {why}",
        next_step,
        (f"{plural(running, 'broker')} {'is' if running == 1 else 'are'} running{required}",),
        tuple(reasons),
    )


def unclean_election(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """Reported only during the epoch that began with the unclean election."""
    if key.unclean_leader_epoch == NO_EPOCH or key.unclean_leader_epoch != key.leader_epoch:
        return None
    name = name_of_key(key)
    at_ms = key.unclean_elected_at_ms
    when = f" {ago(at_ms, view.now_ms())}" if at_ms else ", at a time that its key does not contain"
    evidence = [
        f"{name}: broker {key.leader} was elected in leader epoch {key.leader_epoch}{when}, though "
        "it may lack committed records"
    ]
    evidence.append(f"{name}: {_loss(key)}")
    leading = view.leading(key)
    if leading is not None:
        evidence.append(
            f"{name}: its log begins at {leading[0].log_start_offset} and ends now at "
            f"{leading[0].log_end_offset}"
        )
    return Symptom(
        causes.UNCLEAN_ELECTION,
        causes.WARNING,
        name,
        f"the present leader epoch {key.leader_epoch} of {name} began with an unclean election: "
        "committed records may be lost",
        "are in leader epochs that began with an unclean election: committed records may be lost",
        partial(next_steps.of_unclean_election, elected_at_ms=at_ms),
        tuple(evidence),
        reboots.of_unclean_election(view, key),
        key.leader,
    )


def _loss(key: PartitionKeyState) -> str:
    if key.lost_records > 0:
        lost = plural(key.lost_records, "record")
        return f"{lost} that replicas were known to hold were truncated"
    if key.lost_records == 0:
        # No log shows what a machine lost when it was rebooted.
        return (
            "no log that was compared held more than its own; records that every replica had lost "
            "before are not counted"
        )
    return (
        "how many records were lost is not known: a replica had lost data before, or not all "
        "logs could be compared"
    )
