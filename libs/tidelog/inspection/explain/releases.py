"""Processes of different releases, and a feature level that can be raised."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.feature_levels import MAX_RELEASES_APART, releases_apart
from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import gateway_name, listed, span
from tidelog.inspection.explain.observation import name_of
from tidelog.inspection.gateway_reports import ALIVE, known_gateways, state_of
from tidelog.inspection.state_reports import Finding

# An upgrade of all processes usually takes less than this.
MIXED_FOR_MS = 24 * 3_600_000


def mixed(view: ClusterView) -> Iterator[Finding]:
    """Yields a finding if processes of several releases have run beside each other for longer than
    an upgrade takes, or if the releases do not work together."""
    running = _running(view)
    if len({version for version, _ in running.values()}) < 2:
        return
    versions = sorted({version for version, _ in running.values()})
    too_far = any(
        (releases_apart(one, other) or 0) > MAX_RELEASES_APART
        for one in versions
        for other in versions
    )
    # Since the last process of any release but the oldest-started one was started, at the latest.
    first_start = {
        version: min(at for v, at in running.values() if v == version) for version in versions
    }
    mixed_ms = view.now_ms() - max(first_start.values())
    if not too_far and mixed_ms < MIXED_FOR_MS:
        return
    evidence = tuple(
        f"{version}: {listed(name for name, (v, _) in running.items() if v == version)}"
        for version in versions
    )
    summary = f"processes of releases {listed(versions)} run in one cluster"
    if too_far:
        yield Finding(
            causes.RELEASES_DIFFER,
            causes.WARNING,
            f"{summary}, and only neighbouring minor releases work together",
            evidence,
            "Bring all processes to one release, one minor release at a time.",
        )
        return
    yield Finding(
        causes.RELEASES_DIFFER,
        causes.INFO,
        f"{summary} for {span(mixed_ms)} at least",
        evidence,
        "Finish the upgrade, or take it back: until then the feature level cannot be raised.",
    )


def _running(view: ClusterView) -> dict[str, tuple[str, int]]:
    """Returns the version and the start of each process that reports them, by its name."""
    found = {
        name_of(state): (state.version, state.started_at_ms)
        for state in view.reporters
        if state.version
    }
    for gateway in known_gateways(view.observed.states):
        if gateway.version and state_of(gateway) == ALIVE:
            found[gateway_name(gateway)] = (gateway.version, gateway.started_at_ms)
    return found


def raisable(view: ClusterView) -> Iterator[Finding]:
    """Yields a note if all registered processes support a higher level than the cluster has."""
    level, raisable_level = view.control.feature_level, view.control.raisable_level
    if 0 < level < raisable_level:
        yield Finding(
            causes.LEVEL_RAISABLE,
            causes.INFO,
            f"the cluster is at feature level {level}, and all brokers and controllers support "
            f"level {raisable_level}",
            (f"at level {level} the previous release can still be started again",),
            "If no way back to the previous release is needed: tidelog cluster upgrade.",
        )
