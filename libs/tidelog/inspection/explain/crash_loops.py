"""Services that crash again and again, and that something starts again each time."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.controller_reports import ServiceCrashes
from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import FAULT, ClusterView
from tidelog.inspection.explain.formatting import ago, span
from tidelog.inspection.explain.observation import BROKER
from tidelog.inspection.state_reports import NOT_KNOWN, Finding
from tidelog.phrases import plural

# So many crashes are a pattern. A service that is killed once or twice, and started again, is none.
MANY_CRASHES = 3
# A loop is over after this time without a crash, or after twice the usual time between two.
OVER_AFTER_MS = 45_000


def crash_loops(view: ClusterView) -> Iterator[Finding]:
    """Yields one finding for each service. Each controller reports the crashes that it outlived:
    the longest series counts."""
    longest: dict[tuple[str, int, str], ServiceCrashes] = {}
    for state in view.observed.reporters:
        for crashes in state.controller.crashes if state.controller else ():
            key = (crashes.role, crashes.id, crashes.address)
            if key not in longest or crashes.count > longest[key].count:
                longest[key] = crashes
    for _, crashes in sorted(longest.items()):
        if crashes.count >= MANY_CRASHES and not _is_over(crashes):
            yield _finding(view, crashes)


def _is_over(crashes: ServiceCrashes) -> bool:
    usual_ms = (crashes.since_ms - crashes.last_ms) // max(1, crashes.count - 1)
    return crashes.last_ms > max(OVER_AFTER_MS, 2 * usual_ms)


def _finding(view: ClusterView, crashes: ServiceCrashes) -> Finding:
    is_broker = crashes.role == BROKER
    who = f"{crashes.role} {crashes.id}" if crashes.id != NOT_KNOWN else f"the {crashes.role}"
    place = f" at {crashes.address}" if crashes.address else ""
    evidence = [f"the last time {span(crashes.last_ms)} ago; each time it was started again"]
    if is_broker:
        evidence.append(
            "each time its partitions get other leaders, and it leaves and rejoins their ISRs"
        )
    reason = crashes.reason or (_fault(view, crashes) if is_broker else "")
    evidence.append(
        f"according to itself, it ended for this reason: {reason}"
        if reason
        else "its process left no reason of its end: it was killed, or ended by a signal"
    )
    return Finding(
        causes.CRASH_LOOP,
        causes.WARNING,
        f"{who}{place} has crashed {plural(crashes.count, 'time')} within the last "
        f"{span(crashes.since_ms)}",
        tuple(evidence),
        f"Check the end of the log of {who}, and the exit status that its supervisor (systemd, "
        "Docker, Kubernetes) has recorded: 137 is a kill for lack of memory, as a rule. Correct "
        "the reason, or stop it until then: clients and replicas suffer each time.",
        broker=crashes.id if is_broker else NOT_KNOWN,
    )


def _fault(view: ClusterView, crashes: ServiceCrashes) -> str:
    """Returns why the broker ended, if it reported that since the first of these crashes."""
    left = view.rejected_starts.get(crashes.id)
    if left is None or left.cause != FAULT or view.now_ms() - left.at_ms > crashes.since_ms:
        return ""
    return f"{left.reason} ({ago(left.at_ms, view.now_ms())})"
