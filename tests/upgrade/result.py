"""The result of all runs, and whether it is sufficient. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from faults.gaps import Window, worst_in
from faults.result import COUNTED
from tidelog.history import Anomaly, Outcome
from upgrade.orders import ORDERS
from upgrade.roll import Roll
from upgrade.run import FinishedRun

FULL_RUNS = len(ORDERS)


def problems_of(run: FinishedRun) -> list[str]:
    """Why the run does not show that the releases work together. Empty: it does."""
    report = run.report
    found = list(run.problems)
    for outcome, what in ((Outcome.FAIL, "failed"), (Outcome.INFO, "of unknown outcome")):
        if report.sends[outcome]:
            found.append(f"{report.sends[outcome]} records {what}")
    for anomaly in Anomaly:
        if report.findings.counts[anomaly]:
            [finding, *_] = report.findings.of(anomaly)
            count = report.findings.counts[anomaly]
            found.append(f"{count} × {anomaly.value}, as {finding.headline}")
    if report.excused_count:
        found.append(
            f"{report.excused_count} anomalies were excused, and nothing excuses them here"
        )
    if report.undrained:
        found.append(f"no final reads of {', '.join(map(str, report.undrained))}")
    if report.without_offset:
        found.append(f"{report.without_offset} records were acknowledged without an offset")
    if not report.sends[Outcome.OK]:
        found.append("no record was acknowledged, so nothing was shown")
    if not run.kept_keys:
        found.append("no key was read, so its partition was not shown")
    return found


def of_run(run: FinishedRun) -> dict[str, object]:
    """Returns the keys of a run.

    - `order`: in which order the parts got the other release, by its name.
    - `acknowledged`, `failed`, `unknown`: records that were written, were not, or have an outcome
      that their producer does not know. All were sent with acks=all.
    - `lost`, `duplicated`, `unseen`, `aborted_reads`, `hw_regressions`, `divergent_replicas`:
      anomalies that the history checker found, and the comparison of replicas.
    - `other_anomalies`: all other ones, such as records of a producer out of order.
    - `keys`: keys whose records are all in one partition, whichever release sent them.
    - `rolls`: each roll, in order; see below.
    - `stopped`: what was done while the roll stood still: `failovers` of the controller,
      `killed_brokers`, `moved_leaders`, completed `operations`.
    - `problems`: everything that was wrong.
    """
    counts = run.report.findings.counts
    named = {key: counts[anomaly] for key, anomaly in COUNTED.items()}
    return {
        "order": run.order,
        "acknowledged": run.report.sends[Outcome.OK],
        "failed": run.report.sends[Outcome.FAIL],
        "unknown": run.report.sends[Outcome.INFO],
        "lost": named["lost"],
        "duplicated": named["duplicated"],
        "unseen": named["unseen"],
        "aborted_reads": named["aborted_reads"],
        "hw_regressions": named["hw_regressions"],
        "divergent_replicas": named["divergent_replicas"],
        "other_anomalies": counts.total() - sum(named.values()),
        "keys": run.kept_keys,
        "rolls": [of_roll(roll, run) for roll in run.rolls],
        "stopped": dict(run.counts),
        "problems": problems_of(run),
    }


def of_roll(roll: Roll, run: FinishedRun) -> dict[str, object]:
    """Returns the keys of a roll.

    - `name`: `forward`, `back`, `forward again`.
    - `seconds`: its duration, without the time in which it stood still.
    - `longest_gap_seconds`: the longest time without a successful write to a partition while parts
      were replaced, over partitions that were written all the time.
    - `stopped_seconds`: how long it stood still, with parts of both releases.
    - `stopped_gap_seconds`: as above, meanwhile: brokers and controllers are killed then.
    """
    return {
        "name": roll.name,
        "seconds": _seconds(sum(w.end_ms - w.begin_ms for w in roll.working)),
        "longest_gap_seconds": _longest_gap(run, roll.working),
        "stopped_seconds": _seconds(sum(w.end_ms - w.begin_ms for w in roll.stops)),
        "stopped_gap_seconds": _longest_gap(run, roll.stops),
    }


def content(
    runs: Sequence[FinishedRun],
    versions: tuple[str, str],
    commits: tuple[str, str],
    machine: object,
    failed: str = "",
) -> dict[str, object]:
    """Returns the content of `out/upgrade-test.json`.

    - `machine`: processor, cores, memory, Python, kernel.
    - `previous`, `current`: version and commit of both releases.
    - `acknowledged`, `failed`, `unknown`, `lost`, `duplicated`: the sums of all runs.
    - `longest_gap_seconds`: of all rolls.
    - `runs`: each run; see below.
    - `problems`: everything that was wrong; with any, the exit status is 1.
    """
    by_run = [of_run(run) for run in runs]
    sums: Counter[str] = Counter()
    for run in by_run:
        sums.update({key: int(str(run[key])) for key in SUMMED})
    gaps = [_longest_gap(run, roll.working) for run in runs for roll in run.rolls]
    return {
        "machine": machine,
        "previous": {"version": versions[0], "commit": commits[0]},
        "current": {"version": versions[1], "commit": commits[1]},
        "acknowledged": sums["acknowledged"],
        "failed": sums["failed"],
        "unknown": sums["unknown"],
        "lost": sums["lost"],
        "duplicated": sums["duplicated"],
        "longest_gap_seconds": max(gaps, default=0.0),
        "runs": by_run,
        "problems": [
            f"run {number} ({run.order}): {problem}"
            for number, run in enumerate(runs, 1)
            for problem in problems_of(run)
        ]
        + ([failed] if failed else []),
    }


SUMMED = ("acknowledged", "failed", "unknown", "lost", "duplicated")


def _longest_gap(run: FinishedRun, windows: Sequence[Window]) -> float:
    successes = run.paced_successes
    gaps = [worst_in(successes, w, run.load_end_ms).gap.length_ms for w in windows]
    return _seconds(max(gaps, default=0))


def _seconds(ms: int) -> float:
    return round(ms / 1000, 3)
