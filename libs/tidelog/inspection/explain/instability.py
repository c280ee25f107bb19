"""Elections that repeat because the leases of one broker or of many services end repeatedly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import brokers, span
from tidelog.inspection.explain.observation import name_of
from tidelog.inspection.explain.replicas import failure_of
from tidelog.inspection.state_reports import (
    Finding,
    PartitionKeyState,
    RecentElections,
    ServiceState,
)
from tidelog.model import TopicPartition
from tidelog.phrases import plural

# Counts within the window. In a rolling restart of three brokers a partition may have six
# elections: away from each of them, and back to its preferred leader.
MANY_CONTROLLERS = 3
MANY_REGISTRATIONS_LOST = 3
MANY_LEADERS = 8
# A broker whose lease ended only once is not part of a pattern.
FEW_LEASES_ENDED = 2
# The elections are over after this time without another.
OVER_AFTER_MS = 45_000
# Causes that may delay the renewal of a lease.
_OF_THE_STORE = frozenset(
    {
        causes.STORE_UNREACHABLE,
        causes.STORE_FULL,
        causes.STORE_SLOW,
        causes.STORE_MEMBER_UNREACHABLE,
    }
)
# Causes of one broker that may keep it from renewing its lease.
_OF_A_BROKER = frozenset(
    {
        causes.BROKER_PAUSED,
        causes.BROKER_UNREACHABLE,
        causes.BROKER_BUSY,
        causes.PACKETS_LOST,
        causes.CPU_STARVED,
        causes.MEMORY_SHORT,
        causes.STORE_UNREACHABLE,
        causes.STORE_SLOW,
    }
)
# Causes that move leaderships away from a broker: all that it leads, or those of failing replicas.
_MOVES_ALL = frozenset(
    {
        causes.REPLICA_DEAD,
        causes.BROKER_STOPPED,
        causes.BROKER_CANNOT_START,
        causes.BROKER_PAUSED,
        causes.BROKER_UNREACHABLE,
        causes.BROKER_CUT_OFF,
        causes.BROKER_BUSY,
        causes.BROKER_UNREGISTERED,
        causes.BROKER_STARTING,
        causes.BROKER_ID_CONTESTED,
        causes.CRASH_LOOP,
        causes.CPU_STARVED,
        causes.MEMORY_SHORT,
        causes.OPEN_FILES,
        causes.MANY_CONNECTIONS,
        causes.DISK_SLOW,
        causes.PACKETS_LOST,
    }
)
# Problems for some seconds around each election.
_EFFECTS = frozenset(
    {
        causes.BROKER_UNREGISTERED,
        causes.NO_LEADER,
        causes.UNDER_MIN_ISR,
        causes.REPLICA_OUT_OF_ISR,
    }
)
_MOVES_FAILING = frozenset({causes.DISK_ERROR, causes.DISK_FULL, causes.REPLICA_CORRUPT})


class _LeaseLoss(NamedTuple):
    """How often a broker's lease has ended, by its own count or the controller's, whichever is
    higher.

    - `last_ms`: the time since the last end, or, by its own count, since the last event that it
      counts.
    - `own`: the broker's own counts; None if it does not answer.
    """

    broker_id: int
    ended: int
    last_ms: int
    window_ms: int
    own: RecentElections | None

    @property
    def was_paused(self) -> bool:
        """Whether it was paused often enough to explain it: a pause ends a lease or falls between
        two ends."""
        return self.own is not None and self.own.standstills >= max(
            FEW_LEASES_ENDED, self.ended - 1
        )


def repeated_elections(view: ClusterView, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yields findings about repeated elections. `found`: the other findings.

    Trouble with the store ends leases of many services. If the leases of a single broker end, or of
    one that was paused, the reason is its own process or machine.
    """
    reports = [
        (state, elections)
        for state in view.reporters
        if (elections := _elections_of(state)) is not None
    ]
    losses = _lease_losses(view, reports)
    single = _of_single_brokers(losses, reports, found)
    for loss in single:
        yield _of_broker(loss, found, _led_most(reports))
    explained = {loss.broker_id for loss in single}
    are_explained = bool(single) or any(f.cause == causes.CRASH_LOOP for f in found)
    rest = [
        (state, elections)
        for state, elections in reports
        if _is_many(elections, leaders_explained=are_explained) and state.id not in explained
    ]
    if rest:
        yield _of_many(rest, found, _single_movers(view, rest, found))


def with_repeated_elections(
    found: Sequence[Finding], repeated: Sequence[Finding]
) -> Iterator[Finding]:
    """Yields `found`, where problems of partitions without a known reason follow from elections
    that repeat in the whole cluster: each election begins with the replicas that are registered at
    that moment, and the others join the ISR later."""
    roots = tuple(str(Root(f.cause, f.broker)) for f in repeated if f.broker < 0)
    for finding in found:
        follows = finding.cause in _EFFECTS and not finding.because
        yield replace(finding, because=roots) if roots and follows else finding


def _lease_losses(
    view: ClusterView, reports: Sequence[tuple[ServiceState, RecentElections]]
) -> list[_LeaseLoss]:
    found = {
        state.id: _LeaseLoss(state.id, own.registrations_lost, own.last_ms, own.window_ms, own)
        for state, own in reports
    }
    for ends in view.control.lease_ends:
        known = found.get(ends.broker_id)
        if known is None or known.ended <= ends.count:
            own = known.own if known is not None else None
            found[ends.broker_id] = _LeaseLoss(
                ends.broker_id, ends.count, ends.last_ms, ends.window_ms, own
            )
    return [found[b] for b in sorted(found) if found[b].ended >= FEW_LEASES_ENDED]


def _of_single_brokers(
    losses: Sequence[_LeaseLoss],
    reports: Sequence[tuple[ServiceState, RecentElections]],
    found: Sequence[Finding],
) -> list[_LeaseLoss]:
    """Returns brokers whose own trouble ends their leases: they were paused, or only their leases
    end while the store serves all others."""
    leaders = max(
        (own.leaders for _, own in reports if 0 <= own.last_ms <= OVER_AFTER_MS), default=0
    )
    controllers = max((elections.controllers for _, elections in reports), default=0)
    others = {state.id for state, _ in reports} - {loss.broker_id for loss in losses}
    store_suspect = any(
        f.cause in _OF_THE_STORE and f.broker < 0 and f.severity != causes.INFO for f in found
    )
    alone = len(losses) == 1 and bool(others) and controllers < MANY_CONTROLLERS
    alone = alone and not store_suspect
    return [
        loss
        for loss in losses
        if 0 <= loss.last_ms <= OVER_AFTER_MS
        and (loss.ended >= MANY_REGISTRATIONS_LOST or leaders >= MANY_LEADERS)
        and (alone or loss.was_paused)
    ]


def _led_most(reports: Sequence[tuple[ServiceState, RecentElections]]) -> RecentElections | None:
    counts = [own for _, own in reports if own.leaders]
    return max(counts, key=lambda own: own.leaders, default=None)


def _of_broker(
    loss: _LeaseLoss, found: Sequence[Finding], led_most: RecentElections | None
) -> Finding:
    who, own = f"broker {loss.broker_id}", loss.own
    because = tuple(
        dict.fromkeys(
            str(Root(f.cause, f.broker))
            for f in found
            if f.cause in _OF_A_BROKER and f.broker == loss.broker_id
        )
    )
    summary = (
        f"the lease of {who} has ended {plural(loss.ended, 'time')} within the last "
        f"{span(loss.window_ms)}, while other brokers kept theirs"
    )
    evidence = ["each time its partitions get other leaders, and it registers again"]
    if own is not None:
        evidence.append(
            f"broker-{loss.broker_id} reports: its own registration was lost "
            f"{plural(own.registrations_lost, 'time')}"
        )
    if led_most is not None:
        evidence.append(
            f"{led_most.topic}/{led_most.partition} has had "
            f"{plural(led_most.leaders, 'leader election')}"
        )
    if loss.was_paused:
        assert own is not None
        summary = (
            f"{who} is paused repeatedly, so that its lease has ended "
            f"{plural(loss.ended, 'time')} within the last {span(loss.window_ms)}"
        )
        evidence.append(
            f"broker-{loss.broker_id} reports: its process did not run for a second or longer "
            f"{plural(own.standstills, 'time')}, the longest {span(own.longest_standstill_ms)}"
        )
        next_step = _TO_LET_RUN.format(who=who)
    elif own is None:
        evidence.append(f"{who} does not answer: it does not report whether its process was paused")
        next_step = f"{_TO_LET_RUN.format(who=who)} {_TO_CONNECT.format(who=who)}"
    else:
        evidence.append(
            f"broker-{loss.broker_id} reports: its process was paused for a second or longer "
            f"{plural(own.standstills, 'time')}, which does not explain it"
        )
        next_step = _TO_CONNECT.format(who=who)
    return Finding(
        causes.REPEATED_ELECTIONS,
        causes.WARNING,
        summary,
        tuple(evidence),
        next_step,
        broker=loss.broker_id,
        because=because,
    )


_TO_LET_RUN = (
    "Find what stops the process or the machine of {who}: a container or virtual machine that is "
    "paused, moved or saved (docker pause, snapshots, live migration), a frozen control group, "
    "kill -STOP or a debugger, swapping, or a CPU that other processes take. Logs of the kernel "
    "and of the host show it. A longer lease_ttl_seconds of {who} tolerates pauses that cannot be "
    "avoided."
)
_TO_CONNECT = (
    "Check the network between {who} and the metadata store, which serves the other brokers: the "
    "interface, routes and firewall of its machine, and its etcd_endpoints."
)


_TO_CORRECT_THE_STORE = (
    "Correct what it follows from: leases end while the metadata store does not answer, and "
    "leaderships change."
)
_TO_CORRECT_BROKERS = (
    "Correct what is wrong with {who}: partitions get other leaders each time that it leads and "
    "fails."
)
_TO_FIND_THE_CAUSE = (
    "Check etcd (its disk, its own elections), the network to it and what CPU the "
    "services get: leases that are not renewed in time end. A longer lease_ttl_seconds "
    "tolerates longer gaps."
)


def _single_movers(
    view: ClusterView,
    reports: Sequence[tuple[ServiceState, RecentElections]],
    found: Sequence[Finding],
) -> list[Root]:
    """Returns the problems of brokers that each hold a replica of every partition with repeated
    elections. Empty if more than leaders changes, which no single broker causes."""
    if any(own.controllers >= MANY_CONTROLLERS or _loses_registrations(own) for _, own in reports):
        return []
    names = {
        TopicPartition(own.topic, own.partition)
        for _, own in reports
        if own.leaders >= MANY_LEADERS and own.topic
    }
    keys = [view.keys[name] for name in names if name in view.keys]
    roots = dict.fromkeys(Root(f.cause, f.broker) for f in found if f.broker >= 0)
    return [root for root in roots if keys and all(_moves(view, root, key) for key in keys)]


def _moves(view: ClusterView, root: Root, key: PartitionKeyState) -> bool:
    if root.cause not in _MOVES_FAILING:
        return root.cause in _MOVES_ALL and root.broker in key.replicas
    replica = view.replica(key, root.broker)
    return replica is not None and failure_of(replica, root.broker) is not None


def _of_many(
    reports: Sequence[tuple[ServiceState, RecentElections]],
    found: Sequence[Finding],
    movers: Sequence[Root],
) -> Finding:
    """`movers`: problems of single brokers that explain all elections."""
    because = tuple(
        dict.fromkeys(str(Root(f.cause, f.broker)) for f in found if f.cause in _OF_THE_STORE)
    )
    moving = sorted({root.broker for root in movers}) if not because else []
    controllers = max(elections.controllers for _, elections in reports)
    leaders = max((elections for _, elections in reports), key=lambda elections: elections.leaders)
    window = span(leaders.window_ms)
    words = []
    if controllers >= MANY_CONTROLLERS:
        words.append(f"the active controller has changed {controllers} times")
    if leaders.leaders >= MANY_LEADERS:
        name = f"{leaders.topic}/{leaders.partition}"
        words.append(f"{name} has had {plural(leaders.leaders, 'leader election')}")
    lost = [state for state, elections in reports if _loses_registrations(elections)]
    if lost:
        words.append(f"{', '.join(map(name_of, lost))} lost the registration repeatedly")
    next_step = _TO_FIND_THE_CAUSE
    if because:
        next_step = _TO_CORRECT_THE_STORE
    elif moving:
        next_step = _TO_CORRECT_BROKERS.format(who=brokers(moving))
    return Finding(
        causes.REPEATED_ELECTIONS,
        causes.WARNING,
        f"elections are repeated: within the last {window} {', and '.join(words)}",
        tuple(_line(*each) for each in reports),
        next_step,
        broker=moving[0] if len(moving) == 1 else -1,
        because=because or tuple(map(str, movers)),
    )


def _elections_of(state: ServiceState) -> RecentElections | None:
    return state.broker.elections if state.broker is not None else None


def _is_many(elections: RecentElections, *, leaders_explained: bool) -> bool:
    """`leaders_explained`: leaders change because of single brokers that come and go."""
    return 0 <= elections.last_ms <= OVER_AFTER_MS and (
        elections.controllers >= MANY_CONTROLLERS
        or (elections.leaders >= MANY_LEADERS and not leaders_explained)
        or _loses_registrations(elections)
    )


def _loses_registrations(elections: RecentElections) -> bool:
    return elections.registrations_lost >= MANY_REGISTRATIONS_LOST


def _line(state: ServiceState, elections: RecentElections) -> str:
    most = (
        f"; one partition has had {plural(elections.leaders, 'leader election')}"
        if elections.leaders
        else ""
    )
    return (
        f"{name_of(state)} reports: the controller has changed "
        f"{plural(elections.controllers, 'time')}{most}; its own registration was lost "
        f"{plural(elections.registrations_lost, 'time')}; the last of these "
        f"{span(elections.last_ms)} ago"
    )
