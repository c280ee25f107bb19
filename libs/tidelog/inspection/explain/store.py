"""Problems of the metadata store, as services report them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.inspection.explain import causes, cut_offs
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import listed, span
from tidelog.inspection.explain.observation import BROKER, name_of
from tidelog.inspection.explain.reported_metadata import has_used_store
from tidelog.inspection.explain.root_causes import Following, effects
from tidelog.inspection.state_reports import STORE_SLOW_MS, Finding, ServiceState
from tidelog.phrases import plural

# Services are queried one after the other, and their ages count from then. Synchronized wall clocks
# differ by no more than this.
AGES_DIFFER_MS = 250
# A store is quick again after this time with quick answers and no slow one: within it each service
# uses the store twice, whether it needs to or not.
QUICK_AGAIN_MS = 10_000


def unreachable(view: ClusterView, following: Following) -> Iterator[Finding]:
    """Yields one finding if no service reaches the store, else one for each that does not."""
    if view.store_is_full:
        yield _full(view, following)
        return
    lost = [state for state in view.reporters if state.store.unreachable_ms >= 0]
    if not lost:
        return
    others = [s for s in view.reporters if s.store.unreachable_ms < 0 and has_used_store(s)]
    if view.store_lost_by_all():
        evidence = [*map(_line, lost), *_members_lost(lost)]
        if others:
            evidence.append(f"{listed(map(name_of, others))} may not have used it since")
        root = Root(causes.STORE_UNREACHABLE)
        evidence += effects(root, following.get(root, ()))
        because = _cut_off(view, lost)
        yield Finding(
            causes.STORE_UNREACHABLE,
            causes.CRITICAL,
            "the metadata store does not answer: data flows with the current leaders and ISRs, and "
            "no metadata can change",
            tuple(evidence),
            f"See {because[0]}: others may reach the store. Run explain through one of them, too."
            if because
            else "Check that etcd runs at the configured etcd_endpoints and has a quorum; all "
            "recovers by itself when it answers.",
            because=because,
        )
        return
    for state in lost:
        broker_id = state.id if state.role == BROKER else -1
        root = Root(causes.STORE_UNREACHABLE, broker_id)
        because = _cut_off(view, [state])
        yield Finding(
            causes.STORE_UNREACHABLE,
            causes.CRITICAL if state.role == BROKER else causes.WARNING,
            f"{name_of(state)} does not reach the metadata store, which others reach",
            (
                _line(state),
                f"it answers {listed(map(name_of, others))}",
                *(effects(root, following.get(root, ())) if broker_id >= 0 else ()),
            ),
            f"See {because[0]}."
            if because
            else f"Check the network from {name_of(state)} to etcd, and its etcd_endpoints.",
            broker=broker_id,
            because=because,
        )


def _cut_off(view: ClusterView, lost: Sequence[ServiceState]) -> tuple[str, ...]:
    """Returns the root of the only service without the store if it is cut off from all others."""
    alone = len(lost) == 1 and lost[0].role == BROKER and cut_offs.is_cut_off(view, lost[0].id)
    return (str(cut_offs.root_of(lost[0].id)),) if alone else ()


def _full(view: ClusterView, following: Following) -> Finding:
    root = view.lost_store_root
    rejected = [state for state in view.reporters if state.store.write_problem]
    return Finding(
        root.cause,
        causes.CRITICAL,
        "the metadata store is full: it answers reads and accepts no writes. Data flows with the "
        "current leaders and ISRs, and no metadata can change",
        (
            *map(_rejected, rejected),
            *effects(root, following.get(root, ())),
        ),
        "Make room in etcd: compact its history with `etcdctl compact REVISION` (the revision that "
        "`etcdctl endpoint status --write-out=json` shows), return the room with `etcdctl defrag "
        "--cluster`, and let it write again with `etcdctl alarm disarm`. All recovers by itself "
        "then. Where the keys themselves are too many, delete those of other programs, or raise "
        "--quota-backend-bytes; turn on --auto-compaction-retention.",
    )


def _rejected(state: ServiceState) -> str:
    since_ms = max(0, state.store.rejects_writes_ms)
    return f'{name_of(state)} reports, for {span(since_ms)}: "{state.store.write_problem}"'


def _members_lost(lost: Sequence[ServiceState]) -> list[str]:
    """Returns each member's last answer to the service that has not reached the store for the
    longest time. A member that runs without the others reports that."""
    longest = max(lost, key=lambda state: state.store.unreachable_ms)
    return [
        f"{name_of(longest)} reports about member {member.address}: "
        f'"{member.problem or "no answer"}"'
        for member in longest.store.members
    ]


def _line(state: ServiceState) -> str:
    problem = f': "{state.store.problem}"' if state.store.problem else ""
    return (
        f"{name_of(state)} has received no answer for {span(state.store.unreachable_ms)}{problem}"
    )


def services_that_waited(view: ClusterView) -> list[ServiceState]:
    """Returns services that had a slow answer within the last minute, or none, although the store
    answers them now."""
    return [
        state
        for state in view.reporters
        if state.store.unreachable_ms < 0 and state.store.max_latency_ms >= STORE_SLOW_MS
    ]


def slow(view: ClusterView) -> Iterator[Finding]:
    """Yields a finding about slow answers. The store itself is suspect unless another service had a
    quick answer in the same time; a service without a request then shows nothing."""
    waited = services_that_waited(view)
    if not waited:
        return
    longest = max(state.store.max_latency_ms for state in waited)
    answering = [state for state in view.reporters if state.store.unreachable_ms < 0]
    who = (
        "all services that use it"
        if len(waited) == len(answering)
        else listed(map(name_of, waited))
    )
    quick = [s for s in answering if s not in waited and any(_meanwhile(s, w) for w in waited)]
    evidence = [
        f"{name_of(state)}: at most {span(state.store.max_latency_ms)} within the last minute, "
        f"the last answer took {span(max(0, state.store.last_latency_ms))}"
        f"{_failed(state)}"
        for state in waited
    ]
    if quick:
        evidence.append(f"{listed(map(name_of, quick))} had quick answers in that time")
    elif len(waited) < len(answering):
        silent = listed(name_of(state) for state in answering if state not in waited)
        evidence.append(f"{silent} did not use it in that time, as far as they report")
    took = f"the metadata store took up to {span(longest)} to answer {who} within the last minute"
    where = (
        f"Check the network between {listed(map(name_of, waited))} and etcd."
        if quick
        else "Check etcd's process and disk (its fsync times), and the network to it."
    )
    broker = waited[0].id if quick and len(waited) == 1 and waited[0].role == BROKER else -1
    if all(map(_is_quick_again, waited)):
        severity, summary = causes.INFO, f"{took}, and is quick again"
        next_step = f"Nothing, unless it comes again. {where}"
    else:
        severity, next_step = causes.WARNING, where
        summary = f"{took}: elections and ISR changes take as long, and leases may end"
    yield Finding(causes.STORE_SLOW, severity, summary, tuple(evidence), next_step, broker=broker)


def _failed(state: ServiceState) -> str:
    tries = state.store.failed_tries
    return f"; {plural(tries, 'request')} had no answer within the last minute" if tries else ""


def _is_quick_again(state: ServiceState) -> bool:
    store = state.store
    since_ms = store.last_slow_ago_ms
    return since_ms >= QUICK_AGAIN_MS and any(age < since_ms for age in store.quick_answers_ms)


def _meanwhile(other: ServiceState, waited: ServiceState) -> bool:
    """Whether a service had a quick answer while another waited longest.

    It must hold by the ages of the answers and by the wall clocks, since a busy service may be
    described seconds after the others. A quick answer at the end of the wait shows nothing.
    """
    until_ms = waited.store.max_latency_ago_ms
    since_ms = until_ms + waited.store.max_latency_ms
    described_later_ms = other.now_ms - waited.now_ms

    def is_within(age_ms: int) -> bool:
        return until_ms + STORE_SLOW_MS + AGES_DIFFER_MS < age_ms < since_ms - AGES_DIFFER_MS

    return until_ms >= 0 and any(
        is_within(age_ms) and is_within(age_ms - described_later_ms)
        for age_ms in other.store.quick_answers_ms
    )
