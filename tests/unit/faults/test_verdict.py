"""What makes a run fail, and what the result says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from faults.catalogue import Timings
from faults.effects import RULES
from faults.gaps import Window
from faults.plan import Fault, Step
from faults.verdict import (
    COUNTED,
    DoneStep,
    InjectedFault,
    Result,
    RunSeen,
    RunVerdict,
    Strike,
    judge_runs,
)
from tidelog.history import Anomaly, Outcome, Report
from tidelog.model import TopicPartition

TIMINGS = Timings(lease_ms=3_000, lag_ms=2_000)
LOAD = Window(0, 60_000)
SEA = TopicPartition("sea", 0)


def report(without: Window | None = None, every_ms: int = 50) -> Report:
    """Of a success every so often, but in one window."""
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
    strike = Strike("broker-1", begin_ms, end_ms)
    fault = InjectedFault(kind, 1, [strike], seen(kind) if measures is None else measures)
    step = Step(name or kind, (Fault(kind, 0, 4),))
    return DoneStep(step, [fault], Window(begin_ms, end_ms + 4_000), whole_s)


def judged(steps: Sequence[DoneStep], found: Report | None = None) -> RunVerdict:
    [verdict] = judge_runs([RunSeen(found or report(), steps, LOAD, TIMINGS)])
    return verdict


def test_a_run_in_which_all_is_well_has_no_problems() -> None:
    assert judged([done("kill_leader", 10_000)]).problems == []


@pytest.mark.parametrize("anomaly", Anomaly)
def test_any_anomaly_fails_the_run(anomaly: Anomaly) -> None:
    found = report()
    found.findings.counts[anomaly] = 2

    assert judged([], found).problems == [f"2 × {anomaly.value}"]


def test_a_fault_without_effect_fails_the_run() -> None:
    [problem] = judged([done("kill_leader", 10_000, measures={})]).problems

    assert problem.startswith("kill_leader on broker-1 had no effect")


def test_a_gap_within_its_bound_is_no_problem() -> None:
    steps = [done("kill_leader", 10_000)]

    assert judged(steps, report(without=Window(10_050, 11_000))).late == []


def test_a_gap_beyond_its_bound_is_told_with_the_bound() -> None:
    steps = [done("kill_leader", 10_000)]

    [problem] = judged(steps, report(without=Window(10_050, 11_100))).late

    assert problem == (
        "1050 ms without a write to sea/0 in kill_leader; at most 1000 ms (1 s, where the "
        "connection's end shows a crash)"
    )


def test_a_gap_beyond_its_bound_is_a_problem_but_on_a_busy_machine() -> None:
    verdict = judged([done("kill_leader", 10_000)], report(without=Window(10_050, 11_100)))

    assert len(Result([verdict]).problems(is_full=False)) == 1
    assert Result([verdict]).problems(is_full=False, bounds_gaps=False) == []


def test_what_is_ordinary_all_runs_tell_together() -> None:
    killed = [done("kill_controller", 10_000)]
    late = RunSeen(report(without=Window(10_050, 10_450)), killed, LOAD, TIMINGS)
    slow = RunSeen(report(without=Window(30_050, 30_450)), killed, LOAD, TIMINGS)

    assert [run.late for run in judge_runs([late, slow])] == [[], []]
    assert [len(run.late) for run in judge_runs([late])] == [1]


def test_the_third_crash_within_a_minute_has_the_lease_time_and_more() -> None:
    steps = [done("kill_leader", begin) for begin in (10_000, 20_000, 30_000)]

    assert judged(steps, report(without=Window(30_050, 34_900))).late == []


@pytest.mark.parametrize(
    ("times", "minutes_apart", "limit_ms"), [(3, 0.2, 5_000), (4, 0.2, 45_000), (4, 0.4, 5_000)]
)
def test_a_leader_cut_off_for_the_fourth_time_within_a_minute_may_stay_so_for_the_rest(
    times: int, minutes_apart: float, limit_ms: int
) -> None:
    begins = [round(10_000 + number * minutes_apart * 60_000) for number in range(times)]
    verdict = judged([done("cut_leader_from_followers", begin) for begin in begins])
    bound = verdict.gaps[-1].bound
    assert bound is not None
    assert bound.limit_ms == limit_ms


@pytest.mark.parametrize(
    ("target", "limit_ms"),
    [
        ("broker-3, broker-1", 5_000),
        ("broker-1: sea-0/00000.log", 5_000),
        ("broker-2; broker-12", 1_000),
    ],
)
def test_crashes_count_of_the_broker_that_crashes_again(target: str, limit_ms: int) -> None:
    before = [
        replace(step, faults=[replace(fault, strikes=[replace(fault.strikes[0], target=target)])])
        for step in (done("kill_leader", 10_000), done("kill_leader", 20_000))
        for fault in step.faults
    ]
    verdict = judged([*before, done("kill_leader", 30_000)])
    bound = verdict.gaps[-1].bound
    assert bound is not None
    assert bound.limit_ms == limit_ms


@pytest.mark.parametrize(
    ("targets", "limit_ms"),
    [
        ("12312", 1_000),
        ("12121", 5_000),
        ("11231", 5_000),
        ("11111", 5_000),
    ],
)
def test_a_bounced_cell_is_judged_by_how_often_each_broker_crashed(
    targets: str, limit_ms: int
) -> None:
    assert bounced(targets, every_ms=7_000) == limit_ms


def test_crashes_of_a_bounced_cell_that_are_a_minute_apart_are_forgotten() -> None:
    assert bounced("111", every_ms=40_000) == 1_000


def bounced(targets: str, every_ms: int) -> int:
    """The bound of a cell that strikes these brokers."""
    begins = range(10_000, 10_000 + len(targets) * every_ms, every_ms)
    strikes = [
        Strike(f"broker-{target}", begin, begin + 2_000)
        for target, begin in zip(targets, begins, strict=True)
    ]
    measures = {"lives_ended": len(targets)}
    fault = InjectedFault("kill_leader", len(targets), strikes, measures)
    step = Step("cell", (Fault("kill_leader", 0, 2, len(targets)),))
    window = Window(10_000, fault.end_ms + 4_000)
    bound = judged([DoneStep(step, [fault], window, 2.0)]).gaps[0].bound
    assert bound is not None
    return bound.limit_ms


def test_a_fault_that_came_fewer_times_than_it_should_have_fails_the_run() -> None:
    single = done("kill_leader", 10_000)
    bounced_once = replace(single, faults=[replace(single.faults[0], times=5)])

    [problem] = judged([bounced_once]).problems

    assert "lives_ended is 1, at least 5" in problem


@pytest.mark.parametrize(("told", "problems"), [(0, 1), (2, 0)])
def test_a_truncation_without_a_replica_that_was_truncated_fails_the_run(
    told: int, problems: int
) -> None:
    story = replace(done("kill_leader", 10_000, name="truncation"), told=told)

    assert len(judged([story]).problems) == problems


def test_the_second_crash_within_a_minute_has_not() -> None:
    steps = [done("kill_leader", begin) for begin in (10_000, 30_000)]

    assert judged(steps, report(without=Window(30_050, 34_900))).late


def test_gaps_of_mixtures_are_reported_and_not_judged() -> None:
    single = done("kill_leader", 10_000, name="mixed")
    faults = (*single.step.faults, Fault("pause_leader", 2, 4))
    mixed = replace(single, step=Step("mixed", faults))

    verdict = judged([mixed], report(without=Window(10_050, 19_000)))

    assert verdict.late == []
    assert verdict.gaps[0].worst.gap.length_ms == 8_950


def test_a_cluster_that_does_not_become_whole_fails_the_run() -> None:
    assert judged([done("kill_leader", 10_000, whole_s=None)]).problems == [
        "not whole within 60 s of kill_leader"
    ]


def test_partitions_without_final_reads_fail_the_run() -> None:
    found = report()
    found.undrained = [SEA]

    assert judged([], found).problems == ["no final reads of sea/0"]


def test_the_result_has_the_keys_that_were_asked_for_and_no_others() -> None:
    assert Result([judged([])]).as_json().keys() == {
        "acknowledged",
        "lost",
        "duplicated",
        "unseen",
        "aborted_reads",
        "hw_regressions",
        "divergent_replicas",
        "faults",
        "whole_again_seconds",
        "gaps_seconds",
    }


@pytest.mark.parametrize(("key", "anomaly"), COUNTED.items())
def test_each_class_is_counted_under_its_key(key: str, anomaly: Anomaly) -> None:
    found = report()
    found.findings.counts[anomaly] = 3

    assert Result([judged([], found), judged([], found)]).as_json()[key] == 6


def test_faults_are_counted_with_and_without_effect() -> None:
    steps = [done("kill_leader", 10_000), done("kill_leader", 20_000, measures={})]

    assert Result([judged(steps)]).as_json()["faults"] == {
        "kill_leader": {"injected": 2, "with_effect": 1}
    }


def test_the_longest_time_to_become_whole_counts() -> None:
    runs = [judged([done("kill_leader", 10_000, whole_s=seconds)]) for seconds in (3.0, 7.5)]

    assert Result(runs).as_json()["whole_again_seconds"] == 7.5


def test_gaps_are_told_by_kind_beside_that_without_any_fault() -> None:
    verdict = judged([done("kill_leader", 10_000)], report(without=Window(10_050, 10_800)))

    assert Result([verdict]).as_json()["gaps_seconds"] == {"none": 0.05, "kill_leader": 0.75}


def test_a_run_without_an_acknowledged_record_shows_nothing() -> None:
    found = report()
    found.sends.clear()

    assert Result([judged([], found)]).problems(is_full=False) == [
        "no record was acknowledged, so nothing was shown"
    ]


def test_a_full_proof_has_enough_kinds_and_records() -> None:
    problems = Result([judged([done("kill_leader", 10_000)])]).problems(is_full=True)

    assert problems == [
        "1 kinds of faults; a full proof has 12",
        "1,000 records were acknowledged; a full proof has 2,000,000",
    ]


def test_a_full_proof_on_containers_leaves_no_kind_out() -> None:
    result = Result([judged([])], left_out={"fill_disk": "this cluster lacks a disk"})

    problem = "fill_disk was left out: this cluster lacks a disk"
    assert problem in result.problems(is_full=True, needs_all=True)
    assert problem not in result.problems(is_full=True)


def test_a_full_proof_leaves_nothing_out_for_want_of_time() -> None:
    result = Result([judged([])], no_time=("round_trip",))

    assert "round_trip did not fit into the time" in result.problems(is_full=True)
    assert "round_trip did not fit into the time" not in result.problems(is_full=False)
