"""What a write of the partition's key does to everything else, and what it must keep."""

from __future__ import annotations

from tidelog.model import NO_EPOCH, NO_LEADER

from .values import (
    MIN_ISR,
    NEVER,
    UNTIL_ADMITTED,
    Command,
    ElectionWrite,
    Ghost,
    IsrWrite,
    MemberKey,
    Message,
    Registrations,
    Replica,
    Store,
    Value,
    is_stopped,
)
from .world import Parts


def is_swap(message: Message) -> bool:
    """Whether it names the key's present revision, and is void once that has moved."""
    return isinstance(message, IsrWrite | ElectionWrite)


def aged(
    replicas: list[Replica], messages: tuple[Message, ...], numbers: Parts[tuple[Message, ...]]
) -> tuple[list[Replica], int]:
    """Renumbers revisions once the key has moved.

    Only the order of those counts that a broker has taken, or may still receive.
    """
    kept: list[Message] = [m for m in messages if not isinstance(m, Command)]
    older = []
    for replica in replicas:
        commands = [m for m in messages if isinstance(m, Command) and m.broker == replica.broker]
        known = {replica.revision, *(at for _, at in replica.stopped)}
        revisions = sorted({*known, *(c.revision for c in commands)} - {NEVER})
        rank = {revision: number for number, revision in enumerate(revisions, 1)}
        kept += [c._replace(revision=rank[c.revision]) for c in commands]
        stopped = tuple((topic, rank[at]) for topic, at in replica.stopped)
        older.append(replica._replace(revision=rank.get(replica.revision, NEVER), stopped=stopped))
    return older, numbers.number(tuple(sorted(kept, key=repr)))


def after_write(
    ghost: Ghost, old: Value, new: Value, replicas: tuple[Replica, Replica, Replica]
) -> Ghost:
    if new.topic != old.topic:
        return Ghost((), ghost.sound, 0)
    committed = ghost.committed
    if new.unclean == new.epoch != old.epoch and new.leader != NO_LEADER:
        # Marked: what the new leader lacks is lost, and clients are informed of it.
        committed = common_prefix(committed, replicas[new.leader - 1].log)
    before = {*old.isr, *old.eligible}
    sound = list(ghost.sound)
    for broker, incarnation in (*new.isr, *new.eligible):
        admitted = (broker, incarnation) not in before and incarnation > 0
        if (
            admitted
            and sound[broker - 1] == UNTIL_ADMITTED
            and replicas[broker - 1].own == incarnation
        ):
            sound[broker - 1] = incarnation
    return ghost._replace(committed=committed, sound=(sound[0], sound[1], sound[2]))


def assigned_again(value: Value) -> Value:
    """Returns the value with a new epoch, in which the replica is assigned again.

    The leader may never have learned that the replica was gone. In the same epoch, what it
    knows of the replica would count, since the broker's incarnation is the same.
    """
    return value._replace(epoch=value.epoch + 1)


def common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]


def broken_by_joiners(registered: Registrations, joiners: tuple[MemberKey, ...]) -> str | None:
    """Returns a violation if a joiner does not run: it would hold up every write."""
    for broker, incarnation in joiners:
        found = registered[broker - 1]
        if found is None or (found.incarnation, found.running) != (incarnation, True):
            return "a broker that joins the ISR is running, in the incarnation in which it joins"
    return None


def broken_by_giving_up(store: Store, new: Value, sound: tuple[int, int, int]) -> str | None:
    """Returns a violation if an unclean election takes place although an intact member runs."""
    if new.unclean == store.value.unclean:
        return None
    for broker, incarnation in (*store.value.isr, *store.value.eligible):
        found = store.registered[broker - 1]
        if found is not None and found.running and sound[broker - 1] <= incarnation:
            return "an unclean election is held only if no live replica lost nothing"
    return None


def broken_by_write(store: Store, new: Value) -> str | None:
    """Returns the invariant of the key that a write would break, or None."""
    old = store.value
    isr, eligible = dict(new.isr), dict(new.eligible)
    if new.topic != old.topic:
        return None if is_stopped(old) else "a topic is stopped before it is gone"
    if new.leader != NO_LEADER and new.leader not in isr:
        return "the leader is in the ISR"
    if set(isr) & set(eligible) or not {*isr, *eligible} <= set(new.replicas):
        return "ISR and eligible set are apart and of assigned replicas"
    if new.epoch < old.epoch or (new.epoch == old.epoch and new.leader != old.leader):
        return "every election takes a new leader epoch"
    if old.target and not new.target:
        broken = _broken_by_end(old, new)
        if broken is not None:
            return broken
    if new.unclean not in (old.unclean, new.epoch) or (
        new.unclean != old.unclean and new.unclean == NO_EPOCH
    ):
        return "the unclean mark names the epoch of its election"
    if new.leader != NO_LEADER and eligible:
        known = {b for b, _ in (*old.isr, *old.eligible)}
        if len(isr) >= MIN_ISR or not set(eligible) <= known - set(isr):
            return "the eligible set is what left a too small ISR"
    return None


def _broken_by_end(old: Value, new: Value) -> str | None:
    """Returns the invariant that the end of a move breaks, or None."""
    if new.epoch == old.epoch:
        return "every end of a move takes a new leader epoch"
    switches = new.replicas == old.target != old.original
    if switches and {broker for broker, _ in new.isr} != set(new.replicas):
        return "a move switches when its whole target is in the ISR"
    return None
