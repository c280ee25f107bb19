"""Which replica leads a partition when none can lead it without loss. Pure functions.

Rule `best-last-known-log-leads`. Only a partition without a leader is recovered.
Its replicas neither append nor follow, so that the description of a log at the key's revision is
still valid when the election is written at that revision.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_controller.policies.electability import (
    ElectionRules,
    LiveBroker,
    has_clean_candidate,
    is_running,
    last_known,
)
from tidelog_runtime.metadata.schema import (
    NOT_WHOLE,
    LeaderAndIsr,
    RecoveryConsent,
)
from tidelog_runtime.replica_control import ReplicaSummary

# By broker: the extent of its log; None: it answered that it has none.
Logs = Mapping[int, ReplicaSummary | None]


class _Among(enum.Enum):
    """Which logs are compared."""

    LAST_KNOWN = enum.auto()  # and those that extend the best of theirs
    LIVE = enum.auto()
    CHOSEN = enum.auto()  # a single one, whatever the others hold


def needs_descriptions(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    consent: RecoveryConsent | None,
) -> tuple[int, ...]:
    """Returns the brokers whose logs have to be known before an unclean election.

    Empty: there is no unclean election to hold now. Otherwise these are all running replicas: a
    replica outside the last-known members may extend the best of their logs.
    """
    if _among(state, live, rules, consent) is None:
        return ()
    return tuple(broker_id for broker_id in state.replicas if is_running(broker_id, live))


def unclean_leader(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    consent: RecoveryConsent | None,
    logs: Logs,
) -> int | None:
    """Returns the broker to elect although records may be lost. None: there is none, or not yet."""
    asked = needs_descriptions(state, live, rules, consent)
    if _among(state, live, rules, consent) is _Among.CHOSEN:
        assert consent is not None, "somebody chose"
        return consent.broker_id if logs.get(consent.broker_id) is not None else None
    if not asked or any(broker_id not in logs for broker_id in asked):
        return None
    described = {b: log for b in asked if (log := logs[b]) is not None}
    damaged = _damaged(state)
    if _among(state, live, rules, consent) is _Among.LIVE:
        return _best(described, described, damaged)
    members = last_known(state)
    if any(broker_id not in described for broker_id in members):
        # The unreadable log may be the longest: the election needs a consent.
        return None
    best = _best(members, described, damaged)
    if best is None:
        return None
    outside = [b for b in described if b not in members and _extends(described[b], described[best])]
    return _best([best, *outside], described, damaged)


def records_given_up(
    state: LeaderAndIsr, leader: int, logs: Mapping[int, ReplicaSummary | None]
) -> int:
    """Returns how many records the new leader's log lacks that another described log holds.

    Records that a damaged log held before it was cut count too. -1: the number is unknown, because
    the log of a last-known member is unknown or has lost an unknown number of records.
    """
    elected = logs.get(leader)
    if elected is None or any(logs.get(b) is None for b in last_known(state)):
        return -1
    damaged = _damaged(state)
    given_up = 0
    for broker_id, log in logs.items():
        if log is None or (broker_id == leader and broker_id not in damaged):
            continue
        held = _before_cut(log) if broker_id in damaged else log
        if held is None:
            return -1
        given_up = max(given_up, held.log_end_offset - _shared_end(held, elected))
    return given_up


def _damaged(state: LeaderAndIsr) -> set[int]:
    """The last-known members that have resigned because they lost data."""
    return {m.broker_id for m in (*state.isr, *state.eligible) if m.broker_epoch == NOT_WHOLE}


def _before_cut(log: ReplicaSummary) -> ReplicaSummary | None:
    """The log as it was before it was cut; None: unknown."""
    before = log.before_cut
    if before is None:
        return None
    return log._replace(log_end_offset=before.log_end_offset, epochs=before.epochs)


def _shared_end(log: ReplicaSummary, other: ReplicaSummary) -> int:
    """The offset up to which two logs are the same.

    It is the end of the newest epoch that both have, in the log where that epoch ends first. Logs
    without a common epoch have nothing in common.
    """
    ends, other_ends = _epoch_ends(log), _epoch_ends(other)
    shared = [epoch for epoch in ends if epoch in other_ends]
    if not shared:
        return log.log_start_offset
    return min(ends[max(shared)], other_ends[max(shared)])


def _epoch_ends(log: ReplicaSummary) -> dict[int, int]:
    next_starts = [start for _, start in log.epochs[1:]]
    ends = [*next_starts, log.log_end_offset]
    return {epoch: ends[number] for number, (epoch, _) in enumerate(log.epochs)}


def _among(
    state: LeaderAndIsr,
    live: Mapping[int, LiveBroker],
    rules: ElectionRules,
    consent: RecoveryConsent | None,
) -> _Among | None:
    if state.leader != NO_LEADER or state.leader_epoch == NO_EPOCH:
        return None
    members = last_known(state)
    if not members:
        return None
    if has_clean_candidate(state, live, rules):
        return None
    if consent is not None and consent.topic_id != state.topic_id:
        consent = None
    if consent is not None and consent.broker_id != NO_LEADER:
        can_lead = consent.broker_id in state.replicas and is_running(consent.broker_id, live)
        return _Among.CHOSEN if can_lead else None
    if rules.unclean_leader_election or (consent is not None and consent.from_live_replicas):
        return _Among.LIVE
    if not all(is_running(broker_id, live) for broker_id in members):
        return None
    if rules.recovery == "manual" and consent is None:
        return None
    return _Among.LAST_KNOWN


def _best(
    broker_ids: Iterable[int], logs: Mapping[int, ReplicaSummary], damaged: Collection[int]
) -> int | None:
    """Returns the broker of the longest log in the newest epoch.

    Of equal logs, one that was not found damaged comes first: it may have what the damaged one
    cannot read. Among those the first in `broker_ids` wins.
    """

    def value(broker_id: int) -> tuple[int, int, bool]:
        log = logs[broker_id]
        return _last_epoch(log), log.log_end_offset, broker_id not in damaged

    return max(broker_ids, key=value, default=None)


def _last_epoch(log: ReplicaSummary) -> int:
    return log.epochs[-1][0] if log.epochs else NO_EPOCH


def _extends(log: ReplicaSummary, member: ReplicaSummary) -> bool:
    """Whether `log` contains the member's log.

    It does if it has the member's last epoch up to the member's log end: within an epoch all logs
    are the same.
    """
    epoch = _last_epoch(member)
    if epoch == NO_EPOCH:
        return True
    later = [start for e, start in log.epochs if e > epoch]
    knows_epoch = any(e == epoch for e, _ in log.epochs)
    end = later[0] if later else log.log_end_offset
    return knows_epoch and log.log_start_offset <= member.log_end_offset <= end
