"""Elections that come again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.observed import name_of
from tidelog.inspection.explain.words import span
from tidelog.inspection.model import Finding, RecentElections, ServiceState
from tidelog.wording import plural

# Within the window of the counts. In a rolling restart of three brokers a partition may have six
# elections: away from each of them, and back to its preferred leader.
MANY_CONTROLLERS = 3
MANY_REGISTRATIONS_LOST = 3
MANY_LEADERS = 8
# After so long without another the elections are over.
OVER_AFTER_MS = 45_000
# What may hold up the renewal of a lease.
_OF_THE_STORE = frozenset(
    {causes.STORE_UNREACHABLE, causes.STORE_SLOW, causes.STORE_MEMBER_UNREACHABLE}
)


def repeated_elections(view: ClusterView, found: Sequence[Finding]) -> Iterator[Finding]:
    """`found`: what else is wrong with the whole cluster; trouble with the store is what makes
    leases end again and again."""
    told = [
        (state, elections)
        for state in sorted(view.observed.tellers, key=name_of)
        if (elections := _elections_of(state)) is not None and _is_many(elections)
    ]
    if not told:
        return
    because = tuple(
        dict.fromkeys(str(Root(f.cause, f.broker)) for f in found if f.cause in _OF_THE_STORE)
    )
    controllers = max(elections.controllers for _, elections in told)
    leaders = max((elections for _, elections in told), key=lambda elections: elections.leaders)
    window = span(leaders.window_ms)
    words = []
    if controllers >= MANY_CONTROLLERS:
        words.append(f"the active controller has changed {controllers} times")
    if leaders.leaders >= MANY_LEADERS:
        name = f"{leaders.topic}/{leaders.partition}"
        words.append(f"{name} has had {plural(leaders.leaders, 'leader election')}")
    lost = [state for state, elections in told if _loses_registrations(elections)]
    if lost:
        words.append(f"{', '.join(map(name_of, lost))} lost the registration again and again")
    next_step = (
        "Correct what it follows from: leases end while the metadata store does not answer, and "
        "whatever is led changes hands."
        if because
        else "Look at etcd (its disk, its own elections), at the network to it and at what CPU the "
        "services get: leases that are not renewed in time end. A greater lease_ttl_seconds "
        "bridges longer gaps."
    )
    yield Finding(
        causes.REPEATED_ELECTIONS,
        causes.WARNING,
        f"elections are repeated: within the last {window} {', and '.join(words)}",
        tuple(_line(*each) for each in told),
        next_step,
        because=because,
    )


def _elections_of(state: ServiceState) -> RecentElections | None:
    return state.broker.elections if state.broker is not None else None


def _is_many(elections: RecentElections) -> bool:
    return 0 <= elections.last_ms <= OVER_AFTER_MS and (
        elections.controllers >= MANY_CONTROLLERS
        or elections.leaders >= MANY_LEADERS
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
        f"{name_of(state)} says: the controller has changed {plural(elections.controllers, 'time')}"
        f"{most}; its own registration was lost {plural(elections.registrations_lost, 'time')}; "
        f"the last of these {span(elections.last_ms)} ago"
    )
