"""Turns symptoms and roots into findings: grouped, within the scope, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tidelog.inspection.explain import (
    broker_pressures,
    causes,
    clocks,
    contested_ids,
    controllers,
    crash_loops,
    cut_offs,
    instability,
    key_placements,
    limited_clients,
    packet_loss,
    reboots,
    rejections,
    releases,
    repairs,
    root_causes,
    service_pressures,
    silent_gateways,
    single_replicas,
    standbys,
    store,
    store_members,
    waiting_operations,
)
from tidelog.inspection.explain.causes import Root, Symptom
from tidelog.inspection.explain.cluster_view import ClusterView, Liveness
from tidelog.inspection.explain.formatting import MAX_NAMED, ids, listed
from tidelog.inspection.explain.observation import Observation
from tidelog.inspection.explain.partitions import symptoms
from tidelog.inspection.explain.replicas import not_queried, why_broker_does_nothing
from tidelog.inspection.state_reports import Finding, Scope

_WHOLE = Scope()
# Symptoms that are reported under their roots, if these have findings.
_REPORTED_BY_ROOT = frozenset(
    {
        causes.REPLICA_OUT_OF_ISR,
        causes.TAKES_NO_RECORDS,
        causes.LEADERSHIP_LEFT,
        causes.LEADER_LATE,
        causes.IN_ISR_AND_GONE,
    }
)
# Findings about one broker that change the leaders of all its partitions again and again.
_CHANGES_LEADERS = frozenset({causes.CRASH_LOOP, causes.REPEATED_ELECTIONS})


def explain(observed: Observation) -> tuple[Finding, ...]:
    """Returns problems by severity, roots before their effects. Empty if no service that answered
    reports a problem."""
    view = ClusterView(observed)
    # If no service describes the requested part, the findings about the whole cluster are returned.
    scope = observed.scope if observed.states else _WHOLE
    seen = [symptom for symptom in symptoms(view) if _concerns(symptom, scope)]
    following = root_causes.following(seen)
    found = [*_roots(view, following, scope), *_groups(seen)]
    of_parts = (
        *rejections.rejected(view),
        *key_placements.partitioners_differ(view),
        *repairs.repaired(view),
        *controllers.deletions(view),
        *waiting_operations.waiting(view),
    )
    found += [f for f in of_parts if _in_scope(f, scope)]
    # The roots of findings are reported with them, in every scope.
    named = {*map(str, following), *(because for finding in found for because in finding.because)}
    found += [
        f
        for f in controllers.unacknowledged(view, following)
        if _in_scope(f, scope) or _is_root(f, named)
    ]
    found += [
        f
        for f in (*contested_ids.contested_brokers(view), *contested_ids.not_intact(view))
        if _belongs(view, f, scope, named)
    ]
    cluster_wide = list(_whole_cluster(view, following))
    repeated = list(instability.repeated_elections(view, (*found, *cluster_wide)))
    found = list(instability.with_repeated_elections(found, repeated))
    named |= {because for finding in found for because in finding.because}
    cluster_wide += repeated
    cluster_wide += limited_clients.limited(view, scope)
    found += [f for f in cluster_wide if _belongs(view, f, scope, named)]
    found += single_replicas.single_replicas(observed.topics)
    return tuple(sorted(found, key=_rank))


def _rank(finding: Finding) -> tuple[int, int, int, str, int]:
    return (
        causes.SEVERITIES.index(finding.severity),
        causes.ORDER.index(finding.cause),
        -finding.partition_count,
        finding.topic,
        finding.broker,
    )


def _concerns(symptom: Symptom, scope: Scope) -> bool:
    if scope.topic and symptom.name.topic != scope.topic:
        return False
    if scope.partition is not None and symptom.name.partition != scope.partition:
        return False
    return scope.broker is None or (
        symptom.broker == scope.broker or any(root.broker == scope.broker for root in symptom.roots)
    )


def _in_scope(finding: Finding, scope: Scope) -> bool:
    if scope.broker is not None and finding.broker != scope.broker:
        return False
    if not scope.topic:
        return True
    if scope.partition is None:
        named = any(name.rpartition("/")[0] == scope.topic for name in finding.partitions)
    else:
        named = f"{scope.topic}/{scope.partition}" in finding.partitions
    return named or finding.topic == scope.topic


def _is_root(finding: Finding, named: Set[str]) -> bool:
    return str(Root(finding.cause, finding.broker)) in named


def _whole_cluster(view: ClusterView, following: root_causes.Following) -> Iterator[Finding]:
    yield from store.unreachable(view, following)
    yield from reboots.machine_rebooted(view, following)
    yield from clocks.findings(view)
    yield from store_members.unreachable(view)
    if not store_members.explain_slowness(view):
        yield from store.slow(view)
    if view.observed.reporters:
        yield from controllers.no_controller(view)
        yield from cut_offs.controller_cut_off(view)
        yield from contested_ids.contested_controllers(view)
        yield from standbys.no_standby(view)
        yield from silent_gateways.silent(view)
        yield from crash_loops.crash_loops(view)
        yield from service_pressures.of_controllers(view)
        yield from service_pressures.of_gateways(view)
        yield from releases.mixed(view)
        yield from releases.raisable(view)
    if not view.observed.states:
        yield from controllers.no_report(view)


def _belongs(view: ClusterView, finding: Finding, scope: Scope, named: Set[str]) -> bool:
    """A finding about the whole cluster belongs to a scope only if that part is affected. A broker
    is affected if no service reaches the store, whatever its partitions do."""
    if scope == _WHOLE or _is_root(finding, named):
        return True
    if scope.topic and finding.cause in _CHANGES_LEADERS:
        return finding.broker in (_brokers_of(view, scope) or ())
    if scope.topic or scope.broker is None:
        return False
    if finding.cause in (causes.STORE_UNREACHABLE, causes.STORE_FULL) and view.store_lost_by_all():
        return True
    return finding.broker == scope.broker


def _roots(view: ClusterView, following: root_causes.Following, scope: Scope) -> Iterator[Finding]:
    found = {
        root: follows
        for root, follows in following.items()
        if root_causes.is_reported_as_root(root)
    }
    serving = _brokers_of(view, scope)
    of_brokers = (
        *_dead_brokers(view),
        *broker_pressures.roots(view),
        *cut_offs.roots(view),
        *packet_loss.roots(view),
    )
    for root in of_brokers:
        if scope.broker is not None and root.broker != scope.broker:
            continue
        if serving is None or root.broker in serving:
            found.setdefault(root, [])
    for root, follows in found.items():
        if scope.broker is None or root.broker == scope.broker or follows:
            yield root_causes.finding(view, root, follows)


def _brokers_of(view: ClusterView, scope: Scope) -> set[int] | None:
    """Returns leaders and members of the ISRs of the partitions in scope.

    None: all brokers, for the whole cluster, and for a topic that no service describes, because the
    brokers are then all that can be reported.
    """
    if not scope.topic or not any(name.topic == scope.topic for name in view.keys):
        return None
    found: set[int] = set()
    for name, key in view.keys.items():
        if name.topic == scope.topic and scope.partition in (None, name.partition):
            found.update((key.leader, *ids(key.isr)))
    return found


def _dead_brokers(view: ClusterView) -> Iterator[Root]:
    """Yields brokers that do nothing, even if no partition is affected yet.

    A broker that was stopped cleanly and is not needed is left out. Departures hold only brokers
    that are not back, so that an old one does not hide a broker that has registered since.
    """
    failed = {
        b
        for b in view.rejected_starts
        if (view.failed_start(b) or view.crash(b)) and not view.runs_as_another(b)
    }
    stopped = {b for b in view.departures if view.was_stopped(b) and b not in view.brokers}
    stopped -= failed
    known = {s.id for s in view.observed.silent if s.role == "broker" and s.id >= 0}
    known.update(view.brokers)
    for broker_id in sorted({*view.departures, *known, *view.registry.brokers, *failed} - stopped):
        if view.liveness(broker_id) is Liveness.BUSY:
            yield not_queried(view, broker_id).root
        reason = why_broker_does_nothing(view, broker_id)
        if reason is not None:
            yield reason.root
        elif view.has_unresolved_name(broker_id):
            yield Root(causes.BROKER_UNREACHABLE, broker_id)


def _groups(seen: Sequence[Symptom]) -> Iterator[Finding]:
    groups: dict[tuple[object, ...], list[Symptom]] = {}
    for symptom in seen:
        if symptom.cause in _REPORTED_BY_ROOT and symptom.roots:
            continue
        key = (symptom.cause, symptom.severity, symptom.roots, symptom.many)
        groups.setdefault(key, []).append(symptom)
    for group in groups.values():
        yield _finding(group)


def _finding(group: Sequence[Symptom]) -> Finding:
    first = group[0]
    names = [symptom.name for symptom in group]
    alone = len(group) == 1
    topics = {name.topic for name in names}
    evidence: list[str] = []
    for symptom in group[: root_causes.MAX_DESCRIBED]:
        evidence += symptom.evidence
    if not alone:
        evidence.append(f"partitions: {listed(names)}")
    broker_ids = {symptom.broker for symptom in group}
    step = first.next_step
    return Finding(
        first.cause,
        first.severity,
        first.one if alone else f"{len(group):,} partitions {first.many}",
        tuple(dict.fromkeys(evidence)),
        step if isinstance(step, str) else step(names),
        first.name.topic if len(topics) == 1 else "",
        first.name.partition if alone else -1,
        first.broker if len(broker_ids) == 1 else -1,
        tuple(map(str, names[:MAX_NAMED])),
        len(group),
        tuple(map(str, first.roots)),
    )
