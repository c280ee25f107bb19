"""Finds problems of partitions, each with its reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tidelog.inspection.explain import causes, next_steps
from tidelog.inspection.explain.causes import Reason, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.divergences import diverged_replicas
from tidelog.inspection.explain.elections import no_leader, unclean_election
from tidelog.inspection.explain.formatting import brokers, ids, listed, name_of_key, span
from tidelog.inspection.explain.late_leaders import late_leader
from tidelog.inspection.explain.moves import move_waits
from tidelog.inspection.explain.replicas import (
    FIRST_FETCH_MS,
    failure_of,
    is_young,
    rejection_of,
    was_caught_up_recently,
    why_behind,
    why_broker_does_nothing,
)
from tidelog.inspection.explain.stalls import stalled
from tidelog.inspection.state_reports import FollowerProgress, PartitionKeyState, ReplicaState
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.phrases import plural

# These do not apply to a replica that its leader reports as in sync: the leader was queried at
# another moment than the service that reported the key.
_PASSING = frozenset({causes.BROKER_BUSY, causes.COMMAND_BACKLOG, causes.COMMAND_OVERDUE})
_DISK_FAILURES = frozenset({"disk_full", "disk_error"})


def symptoms(view: ClusterView) -> Iterator[Symptom]:
    for key in view.keys.values():
        without_leader = no_leader(view, key)
        if without_leader is not None:
            yield without_leader
        else:
            yield from _of_led(view, key)
    yield from _failures(view)
    yield from _damaged_records(view)
    yield from diverged_replicas(view)


def _of_led(view: ClusterView, key: PartitionKeyState) -> Iterator[Symptom]:
    if key.leader == NO_LEADER:
        return
    in_sync = ids(key.isr)
    # A replica that a move adds is not missing before the switch.
    expected = key.move.original if key.move else key.replicas
    missing = [b for b in expected if b not in in_sync]
    why_missing = {broker_id: why_behind(view, key, broker_id) for broker_id in missing}
    if _leader_reports_healthy(view, key):
        joined = [b for b in missing if _has_passed(why_missing[b])]
        missing = [b for b in missing if b not in joined]
        in_sync += joined
    for broker_id in missing:
        yield _out_of_isr(view, key, broker_id, why_missing[broker_id])
    yield from _gone_from_isr(view, key)
    reasons = tuple(reason for b in missing if (reason := why_missing[b]) is not None)
    under_min_isr = len(in_sync) < key.min_isr
    if under_min_isr:
        yield _under_min_isr(view, key, in_sync, missing, reasons)
    leading = view.leading(key)
    if leading is not None:
        yield from stalled(view, key, leading, reasons, under_min_isr=under_min_isr)
    for symptom in (
        late_leader(view, key),
        unclean_election(view, key),
        move_waits(view, key),
        _not_preferred(view, key),
    ):
        if symptom is not None:
            yield symptom


def _leader_reports_healthy(view: ClusterView, key: PartitionKeyState) -> bool:
    """Whether the leader did not report the partition as unhealthy.

    The controller read the key at another moment. A leader that reaches the store reports all of
    its partitions with an incomplete ISR.
    """
    leaves_out = view.leaves_out(key, key.leader) and not view.is_starting(key.leader)
    return leaves_out and not view.store_lost(key.leader)


def _has_passed(reason: Reason | None) -> bool:
    return reason is None or reason.root.cause in _PASSING


def _out_of_isr(
    view: ClusterView, key: PartitionKeyState, broker_id: int, reason: Reason | None
) -> Symptom:
    name = name_of_key(key)
    severity = causes.WARNING
    evidence: tuple[str, ...] = ()
    next_step = f"tidelog explain --broker {broker_id}"
    why = f"it {reason.words}" if reason else "no service reports why"
    progress = view.progress(key, broker_id)
    rejection = rejection_of(view, key, broker_id)
    if reason is None and progress is not None and _has_all(progress):
        severity = causes.INFO
        why = (
            "it has every record and is about to be admitted"
            if progress.lag_records == 0
            else "it had every record a moment ago and is about to be admitted"
        )
        next_step = "Run explain again in a moment."
        evidence = (
            f"{name}: broker-{key.leader}, the leader, reports: its log ends at "
            f"{progress.log_end_offset}, its last fetch was {span(progress.last_fetch_ms)} ago",
        )
    elif reason is not None and reason.root.cause == causes.REPLICA_CATCHING_UP:
        severity = causes.INFO
    elif reason is None and rejection is not None:
        follower, line = rejection
        why = f"its leader, broker {key.leader}, rejects its fetches"
        evidence = (line,)
        next_step = (
            f"Run explain again in some seconds; if this remains, check the log of broker "
            f"{key.leader}."
        )
        if follower.problem_ms < FIRST_FETCH_MS:
            severity = causes.INFO
    elif reason is None and progress is not None and progress.last_fetch_ms < 0:
        why = "its leader has received no fetch from it in this epoch yet"
        next_step = "Run explain again in some seconds."
        if is_young(view, key):
            severity = causes.INFO
    elif reason is None and view.leading(key) is None:
        why = f"its leader, broker {key.leader}, does not report it"
        next_step = f"tidelog explain --broker {key.leader}"
    return Symptom(
        causes.REPLICA_OUT_OF_ISR,
        severity,
        name,
        f"broker {broker_id} is not in the ISR of {name}: {why}",
        f"lack broker {broker_id} in their ISR: {why}",
        next_step,
        evidence,
        () if reason is None else (reason,),
        broker_id,
    )


def _gone_from_isr(view: ClusterView, key: PartitionKeyState) -> Iterator[Symptom]:
    """Yields members of the ISR that do nothing, according to all reports. Nothing is committed
    until the leader removes them, which it cannot while the store is unavailable."""
    name = name_of_key(key)
    for broker_id in ids(key.isr):
        reason = why_broker_does_nothing(view, broker_id)
        if reason is None or view.is_alive_by_peers(broker_id):
            continue
        reasons = [reason]
        leaves = "its leader removes it from the ISR, after replica_lag_time_max_ms"
        if view.cannot_write_store(key.leader):
            reasons.append(Reason(view.store_root(key.leader), "accepts no ISR change"))
            leaves = "the metadata store is back, and then until " + leaves
        yield Symptom(
            causes.IN_ISR_AND_GONE,
            causes.WARNING,
            name,
            f"broker {broker_id} is in the ISR of {name}, and {reason.words}",
            f"have broker {broker_id} in their ISR, which {reason.words}",
            f"What is written with acks=all waits until {leaves}.",
            (),
            tuple(reasons),
            broker_id,
        )


def _has_all(progress: FollowerProgress) -> bool:
    has_all = progress.lag_records == 0 or was_caught_up_recently(progress)
    return has_all and progress.last_fetch_ms >= 0


def _under_min_isr(
    view: ClusterView,
    key: PartitionKeyState,
    in_sync: list[int],
    missing: list[int],
    reasons: tuple[Reason, ...],
) -> Symptom:
    name = name_of_key(key)
    evidence = [
        f"{name}: the ISR is {listed(in_sync)}, {len(in_sync)} of {len(key.replicas)} replicas; "
        f"min ISR is {key.min_isr}"
    ]
    leading = view.leading(key)
    if leading is not None and leading[1].refused_below_min_isr:
        last = leading[1].last_refused_ms
        evidence.append(
            f"{name}: broker-{key.leader}, the leader, has rejected "
            f"{plural(leading[1].refused_below_min_isr, 'append')} with acks=all in this epoch"
            + (f", the last {span(last)} ago" if last >= 0 else "")
        )
    return Symptom(
        causes.UNDER_MIN_ISR,
        causes.CRITICAL,
        name,
        f"{name} has fewer replicas in sync ({len(in_sync)}) than its min ISR ({key.min_isr}): "
        f"acks=all is rejected and nothing is committed",
        "have fewer replicas in sync than their min ISR: acks=all is rejected and nothing is "
        "committed",
        f"Bring {brokers(sorted(missing))} back into the ISR; see what it follows from."
        if missing
        else "Compare the topic's min_insync_replicas with its replication factor.",
        tuple(evidence),
        reasons,
        key.leader,
    )


def _not_preferred(view: ClusterView, key: PartitionKeyState) -> Symptom | None:
    """Reported if the preferred replica could lead. If it could not, that has its own cause."""
    if key.move is not None:
        # The move decides which replica leads, and the preferred replica changes with it.
        return None
    preferred = key.replicas[0] if key.replicas else key.leader
    if preferred == key.leader or preferred not in ids(key.isr):
        return None
    if view.liveness(preferred) is not Liveness.ANSWERS:
        return None
    name = name_of_key(key)
    leads = f"{name} is led by broker {key.leader}, and broker {preferred}"
    if preferred in view.control.in_maintenance:
        summary = f"{leads}, its preferred leader, is in maintenance"
        of_all = f"are not led by their preferred leader, broker {preferred}: it is in maintenance"
        next_step = partial(next_steps.of_maintenance, preferred)
    else:
        summary = f"{leads} is its preferred leader"
        of_all = f"are not led by their preferred leader, broker {preferred}"
        next_step = partial(next_steps.of_not_preferred, has_controller=not view.has_no_controller)
    return Symptom(
        causes.NOT_PREFERRED_LEADER,
        causes.INFO,
        name,
        summary,
        of_all,
        next_step,
        (
            f"{name}: the replicas are {listed(key.replicas)}, the ISR is {listed(ids(key.isr))}, "
            f"and broker {key.leader} leads in epoch {key.leader_epoch}",
        ),
        broker=preferred,
    )


def _failures(view: ClusterView) -> Iterator[Symptom]:
    """Yields replicas that accept no records, whatever the effects are so far."""
    for broker_id, replica in view.replicas():
        reason = failure_of(replica, broker_id)
        if reason is None:
            continue
        name = TopicPartition(replica.topic, replica.partition)
        key = view.keys.get(name)
        leads = replica.role == "leader" or (key is not None and key.leader == broker_id)
        cause, reason = _failing_leadership(view, name, broker_id, replica, reason)
        severity = causes.CRITICAL if leads else causes.WARNING
        yield Symptom(
            cause,
            causes.INFO if replica.hang_over_in_ms > 0 else severity,
            name,
            f"broker {broker_id} {reason.words}",
            f"are held by broker {broker_id}, which {reason.words}",
            "",
            (),
            (reason,),
            broker_id,
        )


def _failing_leadership(
    view: ClusterView,
    name: TopicPartition,
    broker_id: int,
    replica: ReplicaState,
    reason: Reason,
) -> tuple[str, Reason]:
    """Returns the effect of a failing disk on the partition's leadership, and its evidence."""
    key = view.keys.get(name)
    if key is None or replica.failure not in _DISK_FAILURES:
        return causes.TAKES_NO_RECORDS, reason
    if 0 <= replica.failed_leader_epoch < key.leader_epoch and key.leader != NO_LEADER:
        failing = f" for {span(replica.failure_ms)}" if replica.failure_ms >= 0 else ""
        line = (
            f"{name}: broker {broker_id} led it in epoch {replica.failed_leader_epoch}, its "
            f"writes have failed{failing}, and broker {key.leader} leads it now, in epoch "
            f"{key.leader_epoch}"
        )
        return causes.LEADERSHIP_LEFT, replace(reason, evidence=(line, *reason.evidence))
    return causes.TAKES_NO_RECORDS, reason


def _damaged_records(view: ClusterView) -> Iterator[Symptom]:
    """Yields records that no replica can read.

    Damage that a starting broker has found, or in a replica out of service, may still be repaired
    from another replica.
    """
    for broker_id, replica in view.replicas():
        if view.is_starting(broker_id) or not replica.damaged or failure_of(replica, broker_id):
            continue
        name = TopicPartition(replica.topic, replica.partition)
        ranges = listed(f"{d.first_offset} to {d.next_offset - 1}" for d in replica.damaged)
        yield Symptom(
            causes.RECORDS_DAMAGED,
            causes.CRITICAL,
            name,
            f"records of {name} at offsets {ranges} cannot be read: the disk of broker "
            f"{broker_id}, the last that held them, damaged them",
            f"have records that the disk of broker {broker_id}, the last that held them, damaged",
            partial(next_steps.of_damaged_records, broker_id),
            (
                f"{name}: broker-{broker_id} reports: offsets {ranges} are damaged; all others "
                f"from {replica.log_start_offset} to {replica.log_end_offset - 1} can be read",
            ),
            (),
            broker_id,
        )
