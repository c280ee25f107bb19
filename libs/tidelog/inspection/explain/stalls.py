"""High watermarks that do not advance, and consumers that wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import broker_pressures, causes
from tidelog.inspection.explain.causes import Reason, Root, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers, ids, listed, name_of_key, span
from tidelog.inspection.explain.replicas import failure_of, why_behind
from tidelog.inspection.state_reports import (
    FollowerProgress,
    LeaderState,
    PartitionKeyState,
    ReplicaState,
)
from tidelog.model import TopicPartition
from tidelog.phrases import plural

# In every partition with writes, records wait for the high watermark as long as a replica fetch
# takes.
HW_STALLED_MIN_MS = 1_000

# The leader's replica, and what it reports as the leader.
Leading = tuple[ReplicaState, LeaderState]


def stalled(
    view: ClusterView,
    key: PartitionKeyState,
    leading: Leading,
    why_missing: tuple[Reason, ...],
    *,
    under_min_isr: bool,
) -> Iterator[Symptom]:
    """Yields symptoms of a high watermark that does not advance. `why_missing`: why replicas are
    not in the ISR."""
    replica, leader = leading
    if leader.hw_stalled_ms < HW_STALLED_MIN_MS:
        return
    name = name_of_key(key)
    progress_line = (
        f"{name}: broker-{key.leader}, the leader, reports: its high watermark is "
        f"{replica.high_watermark}, its log ends at {replica.log_end_offset}, and nothing has "
        f"moved for {span(leader.hw_stalled_ms)}"
    )
    if under_min_isr:
        why, reasons = "the ISR is below min ISR", why_missing
        lines: tuple[str, ...] = ()
    else:
        why, lines, reasons = _holders(view, key, leading)
    yield Symptom(
        causes.HW_STALLED,
        causes.CRITICAL,
        name,
        f"the high watermark of {name} does not advance from {replica.high_watermark} because "
        f"{why}: {plural(replica.log_end_offset - replica.high_watermark, 'record')} wait to be "
        "committed",
        f"have a high watermark that does not advance because {why}",
        _next_step(view, key, leading, under_min_isr=under_min_isr),
        (progress_line, *lines),
        reasons,
        key.leader,
    )
    if leader.waiting_consumers:
        yield _consumers_wait(name, key, replica, leader, why, reasons)


def _next_step(
    view: ClusterView, key: PartitionKeyState, leading: Leading, *, under_min_isr: bool
) -> str:
    store_unreachable = view.cannot_write_store(key.leader)
    if under_min_isr:
        return _below_min_isr(key, store_unreachable=store_unreachable)
    followers = [follower.broker_id for follower in _holding(leading)]
    if not followers:
        return f"Check broker {key.leader}, its leader, and its disk: no follower causes it."
    holding = brokers(followers)
    if store_unreachable:
        return (
            f"Repair {holding}, or restore the metadata store: without it no replica can be "
            "removed from the ISR."
        )
    if len(leading[1].maximal_isr) - len(followers) < key.min_isr:
        return (
            f"Repair {holding}: without {holding} the ISR is below min ISR, so that the high "
            "watermark advances only when enough replicas are back."
        )
    return (
        "See what it follows from; a follower that cannot keep up leaves the ISR after "
        "replica_lag_time_max_ms, and the high watermark advances."
    )


def _below_min_isr(key: PartitionKeyState, *, store_unreachable: bool) -> str:
    in_sync = ids(key.isr)
    missing = sorted(b for b in key.replicas if b not in in_sync)
    step = (
        f"bring {brokers(missing)} back into the ISR"
        if missing
        else "compare the topic's min_insync_replicas with its replication factor"
    )
    if store_unreachable:
        step = (
            "restore access to the metadata store, without which no replica joins the ISR; "
            f"then {step}"
        )
    return (
        f"{step[0].upper()}{step[1:]}. The high watermark advances when {key.min_isr} replicas "
        "are in sync, and not before."
    )


def _holding(leading: Leading) -> list[FollowerProgress]:
    """Returns the members of the ISR that hold back the high watermark, by broker id."""
    replica, leader = leading
    members = set(leader.maximal_isr)
    holding = [
        f
        for f in leader.followers
        if f.broker_id in members and f.log_end_offset <= replica.high_watermark
    ]
    return sorted(holding, key=lambda f: f.broker_id)


def _holders(
    view: ClusterView, key: PartitionKeyState, leading: Leading
) -> tuple[str, tuple[str, ...], tuple[Reason, ...]]:
    """Returns what holds back the high watermark: in words, with evidence, and the reasons."""
    replica, _ = leading
    holding = _holding(leading)
    if not holding:
        own = failure_of(replica, key.leader)
        if own is not None:
            return f"broker {key.leader}, its leader, {own.words}", own.evidence, (own,)
        if replica.synced and replica.flushed_offset <= replica.high_watermark:
            line = f"broker-{key.leader} has synced its own log only up to {replica.flushed_offset}"
            late = broker_pressures.why_late(view, key.leader)
            return (
                f"the disk of broker {key.leader}, its leader, syncs no further",
                (line,),
                () if late is None else (late,),
            )
        return "no follower that the leader reports holds it back", (), ()
    found = [(f.broker_id, why_behind(view, key, f.broker_id)) for f in holding]
    lines = [
        f"broker {f.broker_id} holds it back: "
        + (
            f"its log ends at {f.log_end_offset}, according to its last fetch"
            if f.log_end_offset >= 0
            else "its leader has received no fetch from it in this epoch"
        )
        for f in holding
    ]
    reasons = [reason for _, reason in found if reason is not None]
    if reasons and view.cannot_write_store(key.leader):
        stuck = (
            "its leader cannot remove it from the ISR, because the metadata store is unreachable"
        )
        lines.append(stuck)
        reasons.append(Reason(view.store_root(key.leader), "accepts no ISR change"))
    words = ", ".join(
        f"broker {broker_id} {reason.words if reason else 'has not fetched the newest records'}"
        for broker_id, reason in found
    )
    return words, tuple(lines), tuple(reasons)


def _consumers_wait(
    name: TopicPartition,
    key: PartitionKeyState,
    replica: ReplicaState,
    leader: LeaderState,
    why: str,
    reasons: tuple[Reason, ...],
) -> Symptom:
    waiting = sorted(leader.waiting_consumers, key=lambda w: w.offset)
    evidence = tuple(
        f"{name}: {plural(w.fetches, 'fetch', 'fetches')} at offset {w.offset} answered empty, "
        f"the last {span(w.last_ms)} ago"
        for w in waiting[:3]
    )
    between = (
        f"between the high watermark ({replica.high_watermark}) and the log's end "
        f"({replica.log_end_offset})"
    )
    return Symptom(
        causes.CONSUMER_WAITS,
        causes.WARNING,
        name,
        f"consumers of {name} at offset {listed([w.offset for w in waiting])} get nothing: that "
        f"lies {between}, which does not advance because {why}",
        f"have consumers that get nothing, because the high watermark does not advance: {why}",
        "Nothing is wrong with the consumer; it continues when the high watermark advances.",
        evidence,
        (*reasons, Reason(Root(causes.HW_STALLED, key.leader), "holds back records")),
        key.leader,
    )
