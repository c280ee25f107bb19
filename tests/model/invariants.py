"""The invariants of every reachable state."""

from __future__ import annotations

from tidelog.model import NO_EPOCH

from .values import Entries, Ghost, Replica, Store, topic_of

COMMITTED_IN_ISR = "every committed record is with every ISR and eligible member"
COMMITTED_AT_LEADER = "every committed record is with every leader that was elected as clean"
AGREE_BELOW_HW = "logs agree below the high watermark"
ONE_LEADER = "an epoch is led once"
HW_IN_LOG = "the high watermark is within the log"
OWN_RECORDS = "a replica holds records of its own topic alone"
OBEYS_NEWEST = "a broker obeys no controller whose successor it has obeyed"
HEALS = "the cluster can heal to a writable one"


def is_prefix(short: Entries, log: Entries) -> bool:
    return log[: len(short)] == short


def broken_by(replica: Replica, store: Store, ghost: Ghost) -> str | None:
    """Returns the invariant that this replica breaks beside this store, or None."""
    if replica.high_watermark > len(replica.log):
        return HW_IN_LOG
    for topic, log in ((replica.topic, replica.log), *replica.shelf):
        if any(topic_of(logged) != topic for logged in log):
            return OWN_RECORDS
    value = store.value
    has_all = is_prefix(ghost.committed, replica.log_of(value.topic))
    if not has_all:
        sound = ghost.sound[replica.broker - 1]
        for broker, incarnation in (*value.isr, *value.eligible):
            if broker == replica.broker and sound <= incarnation:
                return COMMITTED_IN_ISR
        leads = replica.value if replica.leading is not None else None
        if leads is not None and (leads.epoch, leads.topic) == (value.epoch, value.topic):
            return COMMITTED_AT_LEADER
    if replica.topic != value.topic:
        return None
    agrees = is_prefix(replica.log[: replica.high_watermark], ghost.committed)
    if not agrees and (value.unclean == NO_EPOCH or _knows(replica, value.unclean)):
        return AGREE_BELOW_HW
    return None


def _knows(replica: Replica, unclean: int) -> bool:
    """Whether it has taken the epoch in which records were given up, or a later one."""
    return replica.value is not None and replica.value.epoch >= unclean


def broken_by_late(before: Replica, after: Replica, controller_epoch: int) -> str | None:
    """Returns the invariant that a command of this controller breaks by its changes, or None."""
    obeyed = after._replace(controller_epoch=before.controller_epoch) != before
    return OBEYS_NEWEST if obeyed and controller_epoch < before.controller_epoch else None


def noted(ghost: Ghost, before: Replica, after: Replica, store: Store) -> tuple[Ghost, str | None]:
    """Returns the ghost after a step of a replica, and the invariant that the step breaks.

    The ghost notes a leadership that began, and records that its leader counts as committed.
    """
    if after.leading is None or after.value is None:
        return ghost, None
    if after.topic != store.value.topic:
        # A topic that is deleted is not checked.
        return ghost, None
    epoch = after.value.epoch
    same = before.value is not None and (before.value.epoch, before.topic) == (epoch, after.topic)
    begins = before.leading is None or not same
    if begins:
        if ghost.led >> epoch & 1:
            return ghost, ONE_LEADER
        ghost = ghost._replace(led=ghost.led | 1 << epoch)
    if epoch < store.value.unclean:
        # What a leader from before an unclean election commits is lost and marked.
        return ghost, None
    below = after.log[: after.high_watermark]
    if len(below) > len(ghost.committed):
        if not is_prefix(ghost.committed, below):
            return ghost, AGREE_BELOW_HW
        return ghost._replace(committed=below), None
    return ghost, None if is_prefix(below, ghost.committed) else AGREE_BELOW_HW
