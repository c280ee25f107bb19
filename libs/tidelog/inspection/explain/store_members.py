"""Members of the metadata store that are cut off while the others answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import listed, span
from tidelog.inspection.explain.observation import name_of
from tidelog.inspection.explain.store import services_that_waited
from tidelog.inspection.state_reports import WITHOUT_MAJORITY, Finding, ServiceState, StoreMember

# Members are probed every 2 s with a timeout of 1 s. Two missed answers in a row make a member lost
# (`etcd_endpoints.MIN_FAILED_ATTEMPTS`). One is missed occasionally, for example while etcd elects
# its leader.
MEMBER_LOST_MIN_MS = 3_000
# If only one service loses it, two probes in a row must fail: each may take 2 s, and they are 2 s
# apart. A single late probe may be the fault of that service as well.
MEMBER_LOST_ALONE_MS = 4_500
# A member that answers with an error of its own has lost the other members. All members do that
# for a moment while they elect their leader.
ITS_OWN_ERROR = "etcdserver:"
WITHOUT_LEADER_MIN_MS = 10_000
# Within this time every service has probed each member again.
MEMBER_SPREAD_MS = 6_000


def unreachable(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each member that any service does not reach, unless no service reaches
    the store."""
    if view.store_lost_by_all():
        return
    for address, missing in sorted(_missed(view).items()):
        yield _finding(view, address, missing)


def explain_slowness(view: ClusterView) -> bool:
    """Whether every service that waited for the store also missed an answer of a lost member. One
    missed answer is enough: it explains the wait."""
    waited = services_that_waited(view)
    if not waited or view.store_lost_by_all():
        return False
    lost = _missed(view)
    return all(
        any(m.address in lost and (m.problem or m.unreachable_ms >= 0) for m in state.store.members)
        for state in waited
    )


def _missed(view: ClusterView) -> dict[str, list[ServiceState]]:
    """Returns the services that do not reach each member, by its address."""
    found: dict[str, list[ServiceState]] = {}
    for state in view.reporters:
        if state.store.unreachable_ms >= 0:
            continue  # It has a finding of its own.
        for member in state.store.members:
            min_ms = WITHOUT_LEADER_MIN_MS if _answers(member) else MEMBER_LOST_MIN_MS
            if member.unreachable_ms >= min_ms:
                found.setdefault(member.address, []).append(state)
    return {address: missing for address, missing in found.items() if _is_lost(address, missing)}


def _answers(member: StoreMember) -> bool:
    """Whether the member answers requests that need no majority."""
    return ITS_OWN_ERROR in member.problem or WITHOUT_MAJORITY in member.problem


def _is_lost(address: str, missing: Sequence[ServiceState]) -> bool:
    lost_ms = max(_member(state, address).unreachable_ms for state in missing)
    return len(missing) > 1 or lost_ms >= MEMBER_LOST_ALONE_MS


def _finding(view: ClusterView, address: str, missing: Sequence[ServiceState]) -> Finding:
    reaching = [
        state
        for state in view.reporters
        if any(m.address == address and m.unreachable_ms < 0 for m in state.store.members)
    ]
    evidence = [_line(state, _member(state, address)) for state in missing]
    evidence += [
        f"{name_of(state)} waited up to {span(state.store.max_latency_ms)} for an answer from the "
        "store within the last minute"
        for state in services_that_waited(view)
        if state in missing
    ]
    is_old = max(_member(s, address).unreachable_ms for s in missing) >= MEMBER_SPREAD_MS
    if reaching and not is_old:
        evidence.append(f"{listed(map(name_of, reaching))} may not have used it since")
    if reaching and is_old:
        evidence.append(f"it answers {listed(map(name_of, reaching))}")
        who = listed(map(name_of, missing))
        summary = f"member {address} of the metadata store does not answer {who}, but others"
        next_step = f"Check the network from {who} to {address}."
    elif any(_answers(_member(state, address)) for state in missing):
        summary = (
            f"member {address} of the metadata store runs and has no leader: it has lost the "
            "majority of the members"
        )
        next_step = (
            "Check the etcd processes of the other members and the network between them and "
            f"{address} (etcdctl endpoint status --cluster)."
        )
    else:
        others = (
            member.unreachable_ms < 0
            for state in view.observed.reporters
            for member in state.store.members
            if member.address != address
        )
        summary = f"member {address} of the metadata store is down or cut off"
        summary += "; the other members answer" if any(others) else ""
        next_step = (
            f"Check the etcd process at {address} and the network between it and the other members "
            "(etcdctl endpoint status --cluster). The store answers as long as a majority of its "
            "members does."
        )
    return Finding(
        causes.STORE_MEMBER_UNREACHABLE, causes.WARNING, summary, tuple(evidence), next_step
    )


def _member(state: ServiceState, address: str) -> StoreMember:
    return next(member for member in state.store.members if member.address == address)


def _line(state: ServiceState, member: StoreMember) -> str:
    problem = f': "{member.problem}"' if member.problem else ""
    unreachable_for = span(member.unreachable_ms)
    return f"{name_of(state)} has received no answer from it for {unreachable_for}{problem}"
