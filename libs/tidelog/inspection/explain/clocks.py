"""Clocks of brokers and controllers that differ, and brokers that suspect their own clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.causes import Root
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import listed, span
from tidelog.inspection.explain.observation import BROKER, CONTROLLER, ReadClock
from tidelog.inspection.state_reports import NOT_KNOWN, Finding

# The skew that record timestamps and the order of events tolerate. The alert has the same bound.
MAX_SKEW_MS = 5_000
# A broker that is further behind uses the others' time for partitions that it leads
# (`clock_check`).
MAX_OWN_TIME_MS = 60_000

_PUT_RIGHT = (
    "Correct the clock of {which} (`chronyc tracking` and `timedatectl` on its machine show "
    "the state of its time service); nothing has to be restarted."
)


_HERE = ReadClock("", NOT_KNOWN, 0, 0)


class _Skew(NamedTuple):
    """By how much `other`'s clock is ahead of `broker`'s, as measured by `broker`."""

    broker: int
    other: int
    skew_ms: int


def findings(view: ClusterView) -> Iterator[Finding]:
    yield from _skews(view)
    yield from _of_controllers(view)
    yield from _doubts(view)


def services_ahead(view: ClusterView) -> dict[str, Root]:
    """Returns the controllers and brokers whose clocks are ahead of those of most other services,
    each with the root of its finding."""
    found = _unlike_most(view, view.observed.clocks)
    return {
        str(clock): Root(causes.CLOCK_SKEW, clock.id if clock.role == BROKER else -1)
        for clock, ahead_ms in found
        if ahead_ms > 0
    }


def _unlike_most(view: ClusterView, clocks: Sequence[ReadClock]) -> list[tuple[ReadClock, int]]:
    """Returns the clocks that differ from most others, and by how much they are ahead of them."""
    found = []
    for clock in clocks:
        others = [other for other in _all_clocks(view) if other != clock]
        unlike = [other for other in others if _apart_ms(clock, other) > MAX_SKEW_MS]
        if len(others) > 1 and 2 * len(unlike) > len(others):
            ahead = sorted(clock.ahead_ms - other.ahead_ms for other in unlike)
            found.append((clock, ahead[len(ahead) // 2]))
    return found


def _all_clocks(view: ClusterView) -> list[ReadClock]:
    """Returns all clocks, including that of the calling process."""
    read = list(view.observed.clocks)
    return read if any(clock.is_own for clock in read) else [*read, _HERE]


def _apart_ms(one: ReadClock, other: ReadClock) -> int:
    """Returns the minimal difference. If it is 0 or less, the clocks may agree."""
    return max(one.least_ahead_ms - other.most_ahead_ms, other.least_ahead_ms - one.most_ahead_ms)


def _of_controllers(view: ClusterView) -> Iterator[Finding]:
    """Checks controllers by the time in their answers: brokers do not receive replica fetches from
    them."""
    controllers = [clock for clock in view.observed.clocks if clock.role == CONTROLLER]
    for clock, ahead_ms in _unlike_most(view, controllers):
        how = f"{span(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'}"
        unlike = [c for c in _all_clocks(view) if _apart_ms(clock, c) > MAX_SKEW_MS]
        others = [str(c) if c is not _HERE else "the machine that runs explain" for c in unlike]
        yield Finding(
            causes.CLOCK_SKEW,
            causes.WARNING,
            f"the clock of controller {clock.id} is {how} those of most other services",
            (
                f"{clock} answered with a time that is {how} those of {listed(others)}",
                "the times of events that it publishes and prints are as wrong; brokers reject "
                "events of it that are too far ahead of their own clocks",
            ),
            _PUT_RIGHT.format(which=f"controller {clock.id}"),
        )


def _skews(view: ClusterView) -> Iterator[Finding]:
    heard = [
        _Skew(broker_id, clock.broker_id, clock.skew_ms)
        for broker_id, broker in sorted(view.broker_states.items())
        for clock in broker.clocks
    ]
    differing = [skew for skew in heard if abs(skew.skew_ms) > MAX_SKEW_MS]
    if not differing:
        return
    odd = _deviating(heard, differing)
    for broker_id in odd:
        about = [skew for skew in differing if broker_id in skew[:2]]
        ahead_ms = _ahead_of_others(broker_id, about)
        how = f"{span(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'}"
        yield Finding(
            causes.CLOCK_SKEW,
            causes.WARNING,
            f"the clock of broker {broker_id} is {how} those of the other brokers",
            (*map(_evidence, about), *_dated_by_others(broker_id, ahead_ms)),
            _PUT_RIGHT.format(which=f"broker {broker_id}"),
            broker=broker_id,
        )
    if not odd:
        ids = sorted({broker_id for skew in differing for broker_id in skew[:2]})
        which = " and ".join(map(str, ids)) if len(ids) == 2 else ", ".join(map(str, ids))
        yield Finding(
            causes.CLOCK_SKEW,
            causes.WARNING,
            f"the clocks of brokers {which} differ; which of them is wrong is not known",
            tuple(map(_evidence, differing)),
            _PUT_RIGHT.format(which="the one that differs from a time server's"),
        )


def _deviating(heard: list[_Skew], differing: list[_Skew]) -> list[int]:
    """Returns the brokers that differ from most of the others that they were compared with, if
    there are several of those."""
    compared: dict[int, set[int]] = {}
    apart: dict[int, set[int]] = {}
    for pairs, found in ((heard, compared), (differing, apart)):
        for broker, other, _ in pairs:
            found.setdefault(broker, set()).add(other)
            found.setdefault(other, set()).add(broker)
    return [
        broker_id
        for broker_id, others in sorted(apart.items())
        if len(compared[broker_id]) > 1 and 2 * len(others) > len(compared[broker_id])
    ]


def _ahead_of_others(broker_id: int, about: list[_Skew]) -> int:
    """Returns the median of the measurements."""
    ahead = sorted(skew.skew_ms if skew.other == broker_id else -skew.skew_ms for skew in about)
    return ahead[len(ahead) // 2]


def _dated_by_others(broker_id: int, ahead_ms: int) -> Iterator[str]:
    if ahead_ms < -MAX_OWN_TIME_MS:
        yield (
            f"broker-{broker_id} dates what it leads by the other brokers' time while it receives "
            "most of them ahead of its own; its retention deletes as much later"
        )


def _evidence(skew: _Skew) -> str:
    how = "ahead of" if skew.skew_ms > 0 else "behind"
    return (
        f"broker-{skew.broker} received the clock of broker {skew.other} {span(abs(skew.skew_ms))} "
        f"{how} its own, in their replica fetches"
    )


def _doubts(view: ClusterView) -> Iterator[Finding]:
    for broker_id, broker in sorted(view.broker_states.items()):
        doubt = broker.clock_doubt
        if doubt is None:
            continue
        yield Finding(
            causes.CLOCK_IN_DOUBT,
            causes.WARNING,
            f"broker {broker_id} deletes nothing for its age, because its clock is in doubt",
            (
                f"broker-{broker_id} reports about its clock: {doubt.reason}, by "
                f"{span(doubt.ahead_ms)}; it has been in doubt for {span(doubt.for_ms)}",
            ),
            f"Compare the clock of broker {broker_id} with a time server's (`chronyc tracking`). "
            "If it is wrong, correct it. If it is right, correct those of the others: it "
            "is trusted once another broker whose clock has not jumped has the same time, or "
            "once no broker has contradicted it for a day, or for 10 minutes after a reboot; "
            "retention_bytes applies in the meantime.",
            broker=broker_id,
        )
