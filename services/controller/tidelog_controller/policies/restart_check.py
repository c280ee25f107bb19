"""What stopping a broker now would do to each of its partitions. Pure functions.

"Controlled shutdown" in docs/internals/protocol.md. The check assumes a controlled shutdown, which
transfers leaderships before it ends, and that nothing else changes meanwhile.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidelog.model import NO_LEADER, TopicPartition


class Effect(enum.IntEnum):
    """The effect on a partition, worst first. The values are those of the wire."""

    UNAVAILABLE = 1  # no replica could lead it without loss
    UNDER_MIN_ISR = 2  # acks=all would be rejected
    LAST_REPLICA = 3  # a single replica would be left in sync
    LEADER_MOVES = 4  # its leader changes, and nothing else


class PartitionHealth(NamedTuple):
    """`isr`, `eligible`: members that may lead without loss if their brokers run."""

    replicas: tuple[int, ...]
    leader: int
    isr: Collection[int]
    eligible: Collection[int]
    min_isr: int


class Finding(NamedTuple):
    """`reason`: the cause and the remedy."""

    partition: TopicPartition
    effect: Effect
    reason: str


class RestartCheck(NamedTuple):
    """The result of the check.

    `findings`: ordered by effect, then by partition; unaffected partitions are left out.
    """

    findings: list[Finding]

    @property
    def safe(self) -> bool:
        """Whether no partition becomes unavailable or falls below min ISR."""
        return all(finding.effect > Effect.UNDER_MIN_ISR for finding in self.findings)

    @property
    def counts(self) -> Mapping[Effect, int]:
        return Counter(finding.effect for finding in self.findings)


def check_restart(
    broker_id: int,
    partitions: Mapping[TopicPartition, PartitionHealth],
    running: Collection[int],
) -> RestartCheck:
    """`running`: brokers that are registered and not stopping."""
    findings: list[Finding] = []
    for partition, state in sorted(partitions.items()):
        if broker_id in state.replicas:
            found = _effect(broker_id, state, running)
            if found is not None:
                findings.append(Finding(partition, *found))
    return RestartCheck(sorted(findings, key=lambda finding: finding.effect))


def _effect(
    broker_id: int, state: PartitionHealth, running: Collection[int]
) -> tuple[Effect, str] | None:
    if broker_id not in state.isr and broker_id not in state.eligible:
        return None
    rest = [b for b in state.replicas if b != broker_id and b in running]
    others = [b for b in rest if b in state.isr]
    spare = [b for b in rest if b in state.eligible]
    if state.leader == NO_LEADER:
        return (
            Effect.UNAVAILABLE,
            f"it has no leader, and broker {broker_id} holds all committed records: without it no "
            "leader may be elected; wait until the partition has a leader",
        )
    if not others and not spare:
        return Effect.UNAVAILABLE, _no_other_leader(broker_id, state, running)
    if broker_id not in state.isr:
        return None
    now, then = len(others) + 1, len(others) or 1
    if then < state.min_isr <= now:
        return Effect.UNDER_MIN_ISR, _under_min_isr(broker_id, state, running, then)
    if then == 1 < now:
        return (
            Effect.LAST_REPLICA,
            f"broker {others[0]} alone would be in sync, and if it fails no replica is; "
            + _remedy(broker_id, state, running),
        )
    if state.leader == broker_id:
        return Effect.LEADER_MOVES, f"broker {(others or spare)[0]} takes over"
    return None


def _no_other_leader(broker_id: int, state: PartitionHealth, running: Collection[int]) -> str:
    if len(state.replicas) == 1:
        return (
            f"its only replica is on broker {broker_id}; give the topic a higher replication "
            "factor, or move the partition first"
        )
    return f"no other replica is in sync and running; {_remedy(broker_id, state, running)}"


def _under_min_isr(
    broker_id: int, state: PartitionHealth, running: Collection[int], then: int
) -> str:
    would_be = "1 replica" if then == 1 else f"{then} replicas"
    return (
        f"{would_be} would be in sync where min_insync_replicas is {state.min_isr}, and writes "
        f"with acks=all would be rejected; {_remedy(broker_id, state, running)}"
    )


def _remedy(broker_id: int, state: PartitionHealth, running: Collection[int]) -> str:
    """How to get more replicas in sync."""
    others = [b for b in state.replicas if b != broker_id]
    away = [b for b in others if b not in running]
    behind = [b for b in others if b in running and b not in state.isr]
    if away:
        return f"start {_brokers(away)} first"
    if behind:
        return f"wait until {_brokers(behind)} has caught up"
    return "give the topic a higher replication factor"


def _brokers(broker_ids: Iterable[int]) -> str:
    return " or ".join(f"broker {broker_id}" for broker_id in broker_ids)
