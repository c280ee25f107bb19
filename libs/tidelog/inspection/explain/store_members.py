"""Members of the metadata store that are cut off, where the others answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.observed import name_of
from tidelog.inspection.explain.store import services_that_waited
from tidelog.inspection.explain.words import listed, span
from tidelog.inspection.model import Finding, ServiceState, StoreMember

# A member that is asked by several services misses an answer now and then.
MEMBER_LOST_MIN_MS = 1_000


def unreachable(view: ClusterView) -> Iterator[Finding]:
    """One finding for each member that somebody misses, unless nobody reaches the store at all."""
    if view.everybody_lost_store():
        return
    for address, missing in sorted(_missed(view).items()):
        yield _finding(view, address, missing)


def explain_slowness(view: ClusterView) -> bool:
    """Whether all who had to wait for the store miss one of its members."""
    waited = services_that_waited(view)
    if not waited or view.everybody_lost_store():
        return False
    missing = {name_of(state) for states in _missed(view).values() for state in states}
    return all(name_of(state) in missing for state in waited)


def _missed(view: ClusterView) -> dict[str, list[ServiceState]]:
    """Who misses each member, by its address."""
    found: dict[str, list[ServiceState]] = {}
    for state in sorted(view.observed.tellers, key=name_of):
        if state.store.unreachable_ms >= 0:
            continue  # It has a finding of its own.
        for member in state.store.members:
            if member.unreachable_ms >= MEMBER_LOST_MIN_MS:
                found.setdefault(member.address, []).append(state)
    return found


def _finding(view: ClusterView, address: str, missing: Sequence[ServiceState]) -> Finding:
    reaching = [
        state
        for state in sorted(view.observed.tellers, key=name_of)
        if any(m.address == address and m.unreachable_ms < 0 for m in state.store.members)
    ]
    evidence = [_line(state, _member(state, address)) for state in missing]
    evidence += [
        f"{name_of(state)} waited up to {span(state.store.max_latency_ms)} for an answer of the "
        "store within the last minute"
        for state in services_that_waited(view)
        if state in missing
    ]
    if reaching:
        evidence.append(f"it answers {listed(map(name_of, reaching))}")
        who = listed(map(name_of, missing))
        summary = f"member {address} of the metadata store does not answer {who}, but others"
        next_step = f"Check the network from {who} to {address}."
    else:
        summary = (
            f"member {address} of the metadata store is down or cut off; the other members answer"
        )
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
    said = f': "{member.problem}"' if member.problem else ""
    return f"{name_of(state)} has had no answer of it for {span(member.unreachable_ms)}{said}"
