"""What a run has shown, and whether that is enough. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faults.catalogue import KINDS, Bound, Circumstances, Timings
from faults.effects import lacking, lacking_of_story
from faults.gaps import PartitionGap, Window, ordinary, worst_in
from faults.plan import Step
from tidelog.history import Anomaly, Outcome, Report

WHOLE_AGAIN_S = 60.0
# Of a full proof; a short run proves less, and says so.
FULL_RUNS = 3
FULL_MINUTES = 5.0
FULL_KINDS = 12
FULL_ACKNOWLEDGED = 2_000_000
NO_FAULT = "none"

# The keys of the result that count anomalies, each with its class.
COUNTED = {
    "lost": Anomaly.LOST_WRITE,
    "duplicated": Anomaly.DUPLICATE,
    "unseen": Anomaly.UNSEEN,
    "aborted_reads": Anomaly.ABORTED_READ,
    "hw_regressions": Anomaly.HW_REGRESSION,
    "divergent_replicas": Anomaly.REPLICA_DIVERGENCE,
}


@dataclass(frozen=True, slots=True)
class Strike:
    """One time that a fault came. Times of one monotonic clock; `end_ms`: when it was healed."""

    target: str
    begin_ms: int
    end_ms: int

    @property
    def brokers(self) -> frozenset[str]:
        """Those that it struck; `target` tells people more."""
        return frozenset(re.findall(r"\bbroker-\d+\b", self.target))


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One fault as it came. `times`: that it was to come; `strikes`, at least one: those that it
    did, in order. `measures`: of all of them together."""

    kind: str
    times: int
    strikes: Sequence[Strike]
    measures: Mapping[str, float]

    @property
    def target(self) -> str:
        return "; ".join(dict.fromkeys(strike.target for strike in self.strikes))

    @property
    def end_ms(self) -> int:
        return self.strikes[-1].end_ms

    @property
    def lacks(self) -> list[str]:
        return lacking(self.kind, self.measures, self.times)


@dataclass(frozen=True, slots=True)
class DoneStep:
    """`whole_s`: from the end of its last fault until the cluster was whole; None: it was not
    within the time. `told`: how often brokers told what a story is to bring about."""

    step: Step
    faults: Sequence[InjectedFault]
    window: Window
    whole_s: float | None
    told: int = 0

    @property
    def lacks(self) -> list[str]:
        """What its faults together did not show."""
        return lacking_of_story(self.step.name, self.told)


@dataclass(frozen=True, slots=True)
class JudgedGap:
    """`bound` is None where the gap is reported alone."""

    step: str
    kinds: tuple[str, ...]
    worst: PartitionGap
    bound: Bound | None

    @property
    def is_met(self) -> bool:
        return self.bound is None or self.worst.gap.length_ms <= self.bound.limit_ms


@dataclass(slots=True)
class RunVerdict:
    """`acknowledged`: records. `anomalies`: all that nothing excuses, by class. `unchecked`:
    what could not be judged, which is as bad as a fault that was found."""

    acknowledged: int
    anomalies: dict[Anomaly, int]
    steps: Sequence[DoneStep]
    gaps: list[JudgedGap]
    ordinary: PartitionGap
    unchecked: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        found = [f"{count} × {anomaly.value}" for anomaly, count in self.anomalies.items() if count]
        found += self.unchecked
        for done in self.steps:
            found += [
                f"{fault.kind} on {fault.target} had no effect: {lack}"
                for fault in done.faults
                for lack in fault.lacks
            ]
            found += [f"{done.step.name} had no effect: {lack}" for lack in done.lacks]
            if done.whole_s is None or done.whole_s > WHOLE_AGAIN_S:
                found.append(f"not whole within {WHOLE_AGAIN_S:g} s of {done.step.name}")
        return found

    @property
    def late(self) -> list[str]:
        """The gaps that are beyond their bounds."""
        return [
            f"{gap.worst.gap.length_ms} ms without a write to {gap.worst.partition} in {gap.step}; "
            f"at most {gap.bound.limit_ms} ms ({gap.bound.why})"
            for gap in self.gaps
            if gap.bound is not None and not gap.is_met
        ]


@dataclass(frozen=True, slots=True)
class RunSeen:
    """What is judged of a run. `load`: while writing was tried. `unchecked`: what was not done."""

    report: Report
    steps: Sequence[DoneStep]
    load: Window
    timings: Timings
    unchecked: Sequence[str] = ()

    @property
    def ordinary(self) -> PartitionGap:
        windows = [done.window for done in self.steps]
        return ordinary(self.report.success_times_ms, windows, self.load)


def judge_runs(runs: Sequence[RunSeen]) -> list[RunVerdict]:
    """What is ordinary all of them tell together, for each is without a fault but briefly."""
    ordinary_ms = max((run.ordinary.gap.length_ms for run in runs), default=0)
    return [_judge_run(run, ordinary_ms) for run in runs]


def _judge_run(run: RunSeen, ordinary_ms: int) -> RunVerdict:
    report = run.report
    unchecked = list(run.unchecked)
    if report.undrained:
        unchecked.append(f"no final reads of {', '.join(map(str, report.undrained))}")
    if report.unplaced_sends:
        unchecked.append(f"{report.unplaced_sends} sends of unknown partitions")
    return RunVerdict(
        acknowledged=report.sends[Outcome.OK],
        anomalies={anomaly: report.findings.counts[anomaly] for anomaly in Anomaly},
        steps=run.steps,
        gaps=[_judge_gap(done, run, ordinary_ms) for done in run.steps],
        ordinary=run.ordinary,
        unchecked=unchecked,
    )


def _judge_gap(done: DoneStep, run: RunSeen, ordinary_ms: int) -> JudgedGap:
    worst = worst_in(run.report.success_times_ms, done.window, run.load.end_ms)
    kinds = tuple(fault.kind for fault in done.faults)
    bound_of = KINDS[kinds[0]].bound if done.step.is_single and done.faults else None
    if bound_of is None:
        return JudgedGap(done.step.name, kinds, worst, None)
    # Each strike has its bound, and the step's one gap may be any one's.
    bounds = [
        bound_of(_circumstances(strike, run, ordinary_ms)) for strike in done.faults[0].strikes
    ]
    return JudgedGap(done.step.name, kinds, worst, max(bounds, key=lambda one: one.limit_ms))


def _circumstances(strike: Strike, run: RunSeen, ordinary_ms: int) -> Circumstances:
    before = [
        (KINDS[fault.kind], earlier)
        for done in run.steps
        for fault in done.faults
        for earlier in fault.strikes
        if earlier.end_ms <= strike.begin_ms
    ]
    return Circumstances(
        run.timings,
        ordinary_ms,
        # The controller counts each broker's removals for itself.
        tuple(
            strike.begin_ms - earlier.end_ms
            for kind, earlier in before
            if kind.removes_brokers and earlier.brokers & strike.brokers
        ),
        tuple(strike.begin_ms - earlier.end_ms for kind, earlier in before if kind.deposes_leaders),
    )


@dataclass(slots=True)
class Result:
    """Of all runs together. `left_out`: kinds and steps with why, those for want of time among
    them."""

    runs: list[RunVerdict] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    no_time: Sequence[str] = ()

    @property
    def acknowledged(self) -> int:
        return sum(run.acknowledged for run in self.runs)

    @property
    def injected_kinds(self) -> list[str]:
        present = {fault.kind for run in self.runs for done in run.steps for fault in done.faults}
        return [kind for kind in KINDS if kind in present]

    def count(self, anomaly: Anomaly) -> int:
        return sum(run.anomalies[anomaly] for run in self.runs)

    def problems(
        self, *, is_full: bool, needs_all: bool = False, bounds_gaps: bool = True
    ) -> list[str]:
        """Empty: all that was asked for was shown. `needs_all`: a full proof leaves no kind out.
        `bounds_gaps`: False on a machine whose other work says how long a write takes."""
        found = [
            f"run {number}: {problem}"
            for number, run in enumerate(self.runs, 1)
            for problem in (*run.problems, *(run.late if bounds_gaps else ()))
        ]
        if not self.acknowledged:
            found.append("no record was acknowledged, so nothing was shown")
        if is_full:
            found += [f"{name} did not fit into the time" for name in self.no_time]
            if needs_all:
                found += [f"{name} was left out: {why}" for name, why in self.left_out.items()]
            kinds = len(self.injected_kinds)
            if kinds < FULL_KINDS:
                found.append(f"{kinds} kinds of faults; a full proof has {FULL_KINDS}")
            if self.acknowledged < FULL_ACKNOWLEDGED:
                found.append(
                    f"{self.acknowledged:,} records were acknowledged; a full proof has "
                    f"{FULL_ACKNOWLEDGED:,}"
                )
        return found

    def as_json(self) -> dict[str, object]:
        """What `out/faults.json` holds. `faults`: by kind, how many came and had their effect.
        `gaps_seconds`: by step, and so by kind where it came alone, the worst; without any fault
        as "none"."""
        return {
            "acknowledged": self.acknowledged,
            **{key: self.count(anomaly) for key, anomaly in COUNTED.items()},
            "faults": self._faults(),
            "whole_again_seconds": self._whole_again(),
            "gaps_seconds": self._gaps(),
        }

    def _faults(self) -> dict[str, dict[str, int]]:
        faults: dict[str, dict[str, int]] = {}
        for run in self.runs:
            for done in run.steps:
                for fault in done.faults:
                    counts = faults.setdefault(fault.kind, {"injected": 0, "with_effect": 0})
                    counts["injected"] += len(fault.strikes)
                    counts["with_effect"] += 0 if fault.lacks else len(fault.strikes)
        return {kind: faults[kind] for kind in self.injected_kinds}

    def _whole_again(self) -> float | None:
        """The longest; None: once it was not at all."""
        longest = 0.0
        for run in self.runs:
            for done in run.steps:
                if done.whole_s is None:
                    return None
                longest = max(longest, done.whole_s)
        return round(longest, 2)

    def _gaps(self) -> dict[str, float]:
        worst: dict[str, int] = {}
        for run in self.runs:
            _raise(worst, NO_FAULT, run.ordinary.gap.length_ms)
            for gap in run.gaps:
                _raise(worst, gap.step, gap.worst.gap.length_ms)
        return {name: round(ms / 1000, 3) for name, ms in worst.items()}


def _raise(worst: dict[str, int], name: str, length_ms: int) -> None:
    worst[name] = max(worst.get(name, 0), length_ms)
