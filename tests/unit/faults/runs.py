"""Fault runs to judge: regular successes, and the faults that struck."""

from collections.abc import Mapping, Sequence

from faults.catalogue import Timings
from faults.effects import RULES
from faults.gaps import Window
from faults.injected import DoneStep, InjectedFault, Strike
from faults.observed import Observation
from faults.plan import Fault, Step
from faults.verdict import IgnoredFence, RunSeen, RunVerdict, judge_runs
from tidelog.history import Outcome, Report
from tidelog.model import TopicPartition

TIMINGS = Timings(lease_ms=3_000, lag_ms=2_000)
LOAD = Window(0, 60_000)
STIRRED = Window(2_000, 4_000)
SEA = TopicPartition("sea", 0)


def report(without: Window | None = None, every_ms: int = 50) -> Report:
    """A report of regular successes, except in one window."""
    found = Report()
    found.sends[Outcome.OK] = 1_000
    found.success_times_ms = {
        SEA: [
            ms
            for ms in range(0, LOAD.end_ms + 1, every_ms)
            if without is None or not without.begin_ms < ms < without.end_ms
        ]
    }
    return found


def seen(kind: str) -> dict[str, float]:
    return {rule.measure: rule.least for rule in RULES[kind]}


def done(
    kind: str,
    begin_ms: int,
    *,
    measures: Mapping[str, float] | None = None,
    whole_s: float | None = 2.0,
    name: str = "",
) -> DoneStep:
    end_ms = begin_ms + 4_000
    strike = Strike("broker-1", begin_ms, end_ms, seen(kind) if measures is None else measures)
    fault = InjectedFault(kind, 1, [strike])
    step = Step(name or kind, (Fault(kind, 0, 4),))
    return DoneStep(step, [fault], Window(begin_ms, end_ms + 4_000), whole_s)


def judged(steps: Sequence[DoneStep], found: Report | None = None) -> RunVerdict:
    [verdict] = judge_runs([run(steps, found or report())])
    return verdict


READ = Observation({SEA: LOAD.end_ms}, 80)


def run(
    steps: Sequence[DoneStep],
    found: Report,
    ignored: Sequence[IgnoredFence] = (),
    observed: Observation = READ,
) -> RunSeen:
    return RunSeen(found, steps, LOAD, STIRRED, TIMINGS, observed, ignored_fences=ignored)
