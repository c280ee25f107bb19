"""The combined result of all runs, and whether it is sufficient. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.catalogue import KINDS, NOISY_GAP_MS
from faults.effects import lacking
from faults.explanations import EXPLAINED, UNEXPLAINED
from faults.explicable import EXPLICABLE
from faults.injected import InjectedFault
from faults.verdict import RunVerdict
from tidelog.history import Anomaly

# Requirements of a full proof; a shorter run proves less, and reports that.
FULL_RUNS = 3
FULL_MINUTES = 6.0
FULL_KINDS = 12
FULL_ACKNOWLEDGED = 2_000_000
NOTHING_DONE = "none"
STIRRED = "none_stirred"

# The keys of the result that count anomalies, each with its class.
COUNTED = {
    "lost": Anomaly.LOST_WRITE,
    "duplicated": Anomaly.DUPLICATE,
    "unseen": Anomaly.UNSEEN,
    "aborted_reads": Anomaly.ABORTED_READ,
    "hw_regressions": Anomaly.HW_REGRESSION,
    "divergent_replicas": Anomaly.REPLICA_DIVERGENCE,
}


@dataclass(slots=True)
class Result:
    """The result of all runs together. `left_out`: kinds and steps, each with the reason, such as
    lack of time."""

    runs: list[RunVerdict] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    no_time: Sequence[str] = ()

    @property
    def acknowledged(self) -> int:
        return sum(run.acknowledged for run in self.runs)

    @property
    def failed(self) -> int:
        return sum(run.failed for run in self.runs)

    @property
    def unknown(self) -> int:
        return sum(run.unknown for run in self.runs)

    @property
    def unexplained(self) -> int:
        return sum(len(run.explained.unexplained) for run in self.runs)

    @property
    def misblamed(self) -> int:
        return sum(len(run.explained.misblamed) for run in self.runs)

    @property
    def injected_kinds(self) -> list[str]:
        present = {fault.kind for fault in self._injected}
        return [kind for kind in KINDS if kind in present]

    @property
    def _injected(self) -> list[InjectedFault]:
        return [fault for run in self.runs for done in run.steps for fault in done.faults]

    def count(self, anomaly: Anomaly) -> int:
        return sum(run.anomalies[anomaly] for run in self.runs)

    def problems(
        self, *, is_full: bool, needs_all: bool = False, bounds_gaps: bool = True, only: str = ""
    ) -> list[str]:
        """Why the result is insufficient. Empty: everything that was requested was shown.

        `needs_all`: a full proof leaves no kind out.
        `bounds_gaps`: False on a machine whose other work determines how long a write takes.
        `only`: the requested step; empty: all."""
        found = [
            f"run {number}: {problem}"
            for number, run in enumerate(self.runs, 1)
            for problem in (*run.problems, *(run.late if bounds_gaps else ()))
        ]
        if not self.acknowledged:
            found.append("no record was acknowledged, so nothing was shown")
        if not self.injected_kinds:
            found.append("no fault was injected, so nothing was shown")
        if only and only not in self._injected_steps:
            found.append(f"{only} was not injected")
        return found + (self._short_of_full(needs_all, bounds_gaps) if is_full else [])

    @property
    def _injected_steps(self) -> set[str]:
        return {done.step.name for run in self.runs for done in run.steps if done.faults}

    def _short_of_full(self, needs_all: bool, bounds_gaps: bool) -> list[str]:
        found = [f"{name} did not fit into the time" for name in self.no_time]
        found += [f"{kind} came, and never long enough to be explained" for kind in self._too_short]
        if bounds_gaps:
            found += self._noise
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

    @property
    def _noise(self) -> list[str]:
        """Why gaps of this machine are too noisy to be compared with their bounds."""
        gaps = self._gaps()
        return [
            f"the machine is too noisy to judge gaps: {name} is {gaps[name]:g} s, and at most "
            f"{NOISY_GAP_MS / 1000:g} s shows anything"
            for name in (NOTHING_DONE, STIRRED)
            if gaps.get(name, 0) * 1000 > NOISY_GAP_MS
        ]

    def as_json(self) -> dict[str, object]:
        """Returns the content of `out/faults.json`.

        - `acknowledged`, `failed`, `unknown`: records of all runs: written, not written, or with an
          outcome that the producer does not know.
        - `lost`, `duplicated`, `unseen`, `aborted_reads`, `hw_regressions`, `divergent_replicas`:
          anomalies that the history checker found, and the comparison of replicas.
        - `unexplained`: faults whose cause `tidelog explain` did not name while they lasted.
        - `misblamed`: findings of `tidelog explain` that blame a broker without a fault.
        - `explanations`: by kind, the number of faults that were `explained`, `unexplained`,
          `too_short` to be explained, or of a kind that no service can see (`nothing`).
        - `wrong_explanations`: each unexplained fault and wrong finding, with the report of
          `tidelog explain`.
        - `faults`: by kind, how many were `injected`, and how many of these had a measured effect
          (`with_effect`).
        - `whole_again_seconds`: the longest time from the end of a fault until the cluster was
          healthy, also between its repetitions; null: once it was not.
        - `gaps_seconds`: by step, the longest time without a successful write to a partition; see
          the table below.
        - `producer_gap_seconds`: the longest time in which one producer had no write acknowledged,
          over all its partitions.
        """
        return {
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "unknown": self.unknown,
            "lost": self.count(COUNTED["lost"]),
            "duplicated": self.count(COUNTED["duplicated"]),
            "unseen": self.count(COUNTED["unseen"]),
            "aborted_reads": self.count(COUNTED["aborted_reads"]),
            "hw_regressions": self.count(COUNTED["hw_regressions"]),
            "divergent_replicas": self.count(COUNTED["divergent_replicas"]),
            "unexplained": self.unexplained,
            "misblamed": self.misblamed,
            "explanations": self._explanations(),
            "wrong_explanations": [
                f"run {number}: {problem}"
                for number, run in enumerate(self.runs, 1)
                for problem in run.explained.problems
            ],
            "faults": self._faults(),
            "whole_again_seconds": self._whole_again(),
            "gaps_seconds": self._gaps(),
            "producer_gap_seconds": round(
                max((run.producer_gap_ms for run in self.runs), default=0) / 1000, 3
            ),
        }

    def _faults(self) -> dict[str, dict[str, int]]:
        faults: dict[str, dict[str, int]] = {}
        for fault in self._injected:
            counts = faults.setdefault(fault.kind, {"injected": 0, "with_effect": 0})
            counts["injected"] += len(fault.strikes)
            counts["with_effect"] += sum(
                not lacking(fault.kind, strike.measures) for strike in fault.strikes
            )
        return {kind: faults[kind] for kind in self.injected_kinds}

    def _explanations(self) -> dict[str, dict[str, int]]:
        total: dict[str, Counter[str]] = {}
        for run in self.runs:
            for kind, counts in run.explained.counts.items():
                total.setdefault(kind, Counter()).update(counts)
        return {kind: dict(total[kind]) for kind in self.injected_kinds if kind in total}

    @property
    def _too_short(self) -> list[str]:
        """Kinds that last long enough alone, and for which no explanation was judged."""
        return [
            kind
            for kind, counts in self._explanations().items()
            if any(KINDS[kind].seconds > e.grace_s for e in EXPLICABLE[kind].expected)
            and not counts.keys() & {EXPLAINED, UNEXPLAINED}
        ]

    def _whole_again(self) -> float | None:
        """The longest recovery; None: the cluster did not recover once."""
        longest = 0.0
        for run in self.runs:
            for done in run.steps:
                whole_s = done.longest_whole_s
                if whole_s is None:
                    return None
                longest = max(longest, whole_s)
        return round(longest, 2)

    def _gaps(self) -> dict[str, float]:
        worst: dict[str, int] = {}
        for run in self.runs:
            _raise(worst, NOTHING_DONE, run.quiet.none.gap.length_ms)
            _raise(worst, STIRRED, run.quiet.stirred.gap.length_ms)
            for gap in run.all_gaps:
                _raise(worst, gap.step, gap.worst.gap.length_ms)
        return {name: round(ms / 1000, 3) for name, ms in worst.items()}


def _raise(worst: dict[str, int], name: str, length_ms: int) -> None:
    worst[name] = max(worst.get(name, 0), length_ms)
