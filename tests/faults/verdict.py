"""The verdict on a run, and whether its gaps are within their bounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from faults.catalogue import KINDS, Bound, Circumstances, Timings
from faults.explanations import ExplainVerdict, TimedExplanation, judge_explanations
from faults.gaps import PartitionGap, Window, ordinary, worst_in
from faults.injected import DoneStep, Strike
from faults.observed import Observation
from tidelog.history import Anomaly, Outcome, Report

WHOLE_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class JudgedGap:
    """The gap of one strike that has its own bound, or of a whole step. The `bound` of a step is
    None: its gap is only reported."""

    step: str
    target: str
    worst: PartitionGap
    bound: Bound | None = None

    @property
    def is_met(self) -> bool:
        return self.bound is None or self.worst.gap.length_ms <= self.bound.limit_ms


class QuietGaps(NamedTuple):
    """`none`: while nothing was done.
    `stirred`: while processes outside the cluster were started and killed, as faults do."""

    none: PartitionGap
    stirred: PartitionGap


@dataclass(slots=True)
class RunVerdict:
    """The verdict on a run.

    `acknowledged`, `failed`, `unknown`: records.
    `producer_gap_ms`: the longest time in which one producer had no write acknowledged.
    `anomalies`: all unexcused ones, by class.
    `gaps`: of each step, in order.
    `unchecked`: what could not be judged, which counts as a failure."""

    acknowledged: int
    anomalies: dict[Anomaly, int]
    steps: Sequence[DoneStep]
    gaps: list[list[JudgedGap]]
    quiet: QuietGaps
    failed: int = 0
    unknown: int = 0
    producer_gap_ms: int = 0
    unchecked: list[str] = field(default_factory=list)
    explained: ExplainVerdict = field(default_factory=ExplainVerdict)

    @property
    def all_gaps(self) -> list[JudgedGap]:
        return [gap for gaps in self.gaps for gap in gaps]

    @property
    def problems(self) -> list[str]:
        found = [f"{count} × {anomaly.value}" for anomaly, count in self.anomalies.items() if count]
        found += self.unchecked
        found += self.explained.problems
        for done in self.steps:
            found += [
                f"{fault.kind} on {fault.target} had no effect: {lack}"
                for fault in done.faults
                for lack in fault.lacks
            ]
            found += [f"{done.step.name} had no effect: {lack}" for lack in done.lacks]
            whole_s = done.longest_whole_s
            if whole_s is None or whole_s > WHOLE_AGAIN_S:
                found.append(f"not whole within {WHOLE_AGAIN_S:g} s of {done.step.name}")
        return found

    @property
    def late(self) -> list[str]:
        """The gaps that exceed their bounds."""
        return [
            f"{gap.worst.gap.length_ms} ms without a write to {gap.worst.partition} in {gap.step}; "
            f"at most {gap.bound.limit_ms} ms ({gap.bound.why})"
            for gap in self.all_gaps
            if gap.bound is not None and not gap.is_met
        ]


class IgnoredFence(NamedTuple):
    """The controller logged that it left a broker to its lease, because it had been removed
    recently."""

    at_ms: int
    broker: str


@dataclass(frozen=True, slots=True)
class RunSeen:
    """The observations of a run.

    `load`: the time in which writes were tried.
    `stirred`: the time in which processes outside the cluster were started and killed.
    `unchecked`: the checks that were not done."""

    report: Report
    steps: Sequence[DoneStep]
    load: Window
    stirred: Window
    timings: Timings
    observed: Observation
    unchecked: Sequence[str] = ()
    explanations: Sequence[TimedExplanation] = ()
    ignored_fences: Sequence[IgnoredFence] = ()

    @property
    def quiet(self) -> QuietGaps:
        times = self.report.success_times_ms
        windows = [done.window for done in self.steps]
        return QuietGaps(
            ordinary(times, [self.stirred, *windows], self.load),
            worst_in(times, self.stirred, self.load.end_ms),
        )


def judge_runs(runs: Sequence[RunSeen]) -> list[RunVerdict]:
    """Judges all runs. The ordinary gap is taken from all of them together, because each has only a
    short time without faults."""
    ordinary_ms = max((gap.gap.length_ms for run in runs for gap in run.quiet), default=0)
    return [
        _judge_run(run, ordinary_ms, [done for other in runs[:number] for done in other.steps])
        for number, run in enumerate(runs)
    ]


def _judge_run(run: RunSeen, ordinary_ms: int, earlier: Sequence[DoneStep]) -> RunVerdict:
    report = run.report
    unchecked = list(run.unchecked)
    if report.undrained:
        unchecked.append(f"no final reads of {', '.join(map(str, report.undrained))}")
    if report.unplaced_sends:
        unchecked.append(f"{report.unplaced_sends} sends of unknown partitions")
    if report.without_offset:
        # Brokers remember the batches that this load has in flight.
        unchecked.append(f"{report.without_offset} sends were acknowledged without an offset")
    unchecked += _unread(run)
    return RunVerdict(
        acknowledged=report.sends[Outcome.OK],
        anomalies={anomaly: report.findings.counts[anomaly] for anomaly in Anomaly},
        steps=run.steps,
        gaps=[_judge_gaps(done, run, ordinary_ms) for done in run.steps],
        quiet=run.quiet,
        failed=report.sends[Outcome.FAIL],
        unknown=report.sends[Outcome.INFO],
        producer_gap_ms=run.observed.producer_gap_ms,
        unchecked=unchecked,
        explained=judge_explanations(run.explanations, run.steps, earlier),
    )


def _unread(run: RunSeen) -> list[str]:
    """What consumers should have read and did not; without it many anomalies stay hidden."""
    found = [problem for reader in run.observed.readers for problem in reader.problems]
    ends_ms = [fault.end_ms for done in run.steps for fault in done.faults]
    last_ms = max(ends_ms, default=run.load.begin_ms)
    return found + [
        f"no high watermark of {partition} was read after the last fault"
        for partition in sorted(run.report.success_times_ms)
        if run.observed.hw_read_ms.get(partition, -1) < last_ms
    ]


def _judge_gaps(done: DoneStep, run: RunSeen, ordinary_ms: int) -> list[JudgedGap]:
    times = run.report.success_times_ms
    bound_of = KINDS[done.faults[0].kind].bound if done.step.is_single and done.faults else None
    if bound_of is None:
        targets = "; ".join(fault.target for fault in done.faults)
        worst = worst_in(times, done.window, run.load.end_ms)
        return [JudgedGap(done.step.name, targets, worst)]
    gaps = []
    strikes = done.faults[0].strikes
    for strike, after in zip(strikes, [*strikes[1:], None], strict=True):
        # A gap that lasts into the next strike belongs to that strike from there on.
        own = Window(strike.begin_ms, after.begin_ms if after else done.window.end_ms)
        worst = worst_in(times, own, after.begin_ms if after else run.load.end_ms)
        bound = bound_of(_circumstances(strike, own, run, ordinary_ms))
        gaps.append(JudgedGap(done.step.name, strike.target, worst, bound))
    return gaps


def _circumstances(strike: Strike, own: Window, run: RunSeen, ordinary_ms: int) -> Circumstances:
    depositions_ms = tuple(
        strike.begin_ms - earlier.end_ms
        for done in run.steps
        for fault in done.faults
        if KINDS[fault.kind].deposes_leaders
        for earlier in fault.strikes
        if earlier.end_ms <= strike.begin_ms
    )
    is_fence_ignored = any(
        fence.broker in strike.brokers and own.begin_ms <= fence.at_ms < own.end_ms
        for fence in run.ignored_fences
    )
    return Circumstances(run.timings, ordinary_ms, is_fence_ignored, depositions_ms)
