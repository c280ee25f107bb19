"""What is logged of a batch of partitions that the store has taken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from tidelog.model import NO_LEADER
from tidelog_controller.state.commands import Level, Log
from tidelog_controller.state.transactions import PartitionWrite

_UNWELCOME = frozenset({"deposed", "left_without_leader", "elected_uncleanly"})


def told(writes: Sequence[PartitionWrite], deletions: Container[str], revision: int) -> list[Log]:
    """One line for a batch, however many partitions it holds, and one that names those that
    may have lost records. `deletions`: the topics that are being deleted."""
    kinds = [_kind_of(write, deletions) for write in writes]
    counts = Counter(kinds)
    level = Level.WARNING if counts.keys() & _UNWELCOME else Level.INFO
    span = {"first": str(writes[0].partition), "last": str(writes[-1].partition)}
    lines = [Log("partitions_changed", {**counts, **span, "revision": revision}, level)]
    deposed = {
        str(write.partition): (write.old.leader, write.new.leader)
        for write, kind in zip(writes, kinds, strict=True)
        if kind == "deposed" and write.old is not None and write.new is not None
    }
    if deposed:
        # Each with the leader that its followers could not reach, and the new one.
        fields = {"leaders": deposed, "revision": revision}
        lines.append(Log("cut_off_leaders_deposed", fields, Level.WARNING))
    unclean = {
        str(write.partition): write.new.leader
        for write, kind in zip(writes, kinds, strict=True)
        if kind == "elected_uncleanly" and write.new is not None
    }
    if unclean:
        fields = {"leaders": unclean, "revision": revision}
        lines.append(Log("elected_uncleanly", fields, Level.WARNING))
    return lines


def _kind_of(write: PartitionWrite, deletions: Container[str]) -> str:
    if write.new is None:
        return "deleted"
    if write.old is None:
        return "created"
    if write.old.leader_epoch == write.new.leader_epoch:
        return "isr_shrunk"
    if write.partition.topic in deletions:
        return "stopped"
    if write.deposes:
        return "deposed"
    if write.new.leader == NO_LEADER:
        return "left_without_leader"
    unclean = write.new.unclean_leader_epoch == write.new.leader_epoch
    return "elected_uncleanly" if unclean else "elected"
