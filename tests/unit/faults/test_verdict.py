"""Conditions that fail a run."""

from dataclasses import replace

import pytest

from faults.gaps import Window
from faults.injected import DoneStep, InjectedFault, Strike
from faults.observed import Observation, ReaderSeen
from faults.plan import TRUNCATION, Fault, Step
from faults.result import Result
from faults.verdict import IgnoredFence, RunVerdict, judge_runs
from tidelog.history import Anomaly
from tidelog.model import TopicPartition
from unit.faults.runs import LOAD, SEA, done, judged, report, run, seen


def test_a_clean_run_has_no_problems() -> None:
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


def test_a_gap_beyond_its_bound_is_reported_with_the_bound() -> None:
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


def test_ordinary_gaps_are_taken_over_all_runs() -> None:
    killed = [done("kill_controller", 10_000)]
    late = run(killed, report(without=Window(10_050, 10_450)))
    slow = run(killed, report(without=Window(30_050, 30_450)))

    assert [run.late for run in judge_runs([late, slow])] == [[], []]
    assert [len(run.late) for run in judge_runs([late])] == [1]


def test_gaps_under_other_load_are_reported_separately_and_raise_the_bound() -> None:
    killed = [done("kill_controller", 10_000)]
    stirred = run(killed, report(without=Window(3_000, 3_400)))
    late = run(killed, report(without=Window(10_050, 10_450)))
    verdicts = judge_runs([stirred, late])

    assert [gap.gap.length_ms for gap in verdicts[0].quiet] == [50, 400]
    assert [verdict.late for verdict in verdicts] == [[], []]


@pytest.mark.parametrize(
    ("times", "minutes_apart", "limit_ms"), [(3, 0.2, 5_000), (4, 0.2, 45_000), (4, 0.4, 5_000)]
)
def test_a_leader_isolated_four_times_within_a_minute_may_stay_so_for_the_rest(
    times: int, minutes_apart: float, limit_ms: int
) -> None:
    begins = [round(10_000 + number * minutes_apart * 60_000) for number in range(times)]
    verdict = judged([done("cut_leader_from_followers", begin) for begin in begins])
    bound = verdict.all_gaps[-1].bound
    assert bound is not None
    assert bound.limit_ms == limit_ms


@pytest.mark.parametrize(
    ("at_ms", "broker", "limit_ms"),
    [
        (30_100, "broker-1", 5_000),
        (30_100, "broker-2", 1_000),
        (29_900, "broker-1", 1_000),
        (40_000, "broker-1", 1_000),
    ],
)
def test_the_lease_expiry_is_the_bound_where_the_controller_ignored_this_crash(
    at_ms: int, broker: str, limit_ms: int
) -> None:
    steps = [done("kill_leader", begin) for begin in (10_000, 20_000, 30_000)]
    [verdict] = judge_runs([run(steps, report(), [IgnoredFence(at_ms, broker)])])
    bound = verdict.all_gaps[-1].bound
    assert bound is not None
    assert bound.limit_ms == limit_ms


BOUNCED = [
    Strike("broker-1", begin, begin + 2_000, seen("kill_leader"))
    for begin in (10_000, 20_000, 30_000)
]


def bounced(without: Window) -> RunVerdict:
    """Three crashes, of which the controller ignored only the third."""
    step = Step("cell", (Fault("kill_leader", 0, 2, len(BOUNCED)),))
    cell = DoneStep(
        step, [InjectedFault("kill_leader", len(BOUNCED), BOUNCED)], Window(10_000, 40_000), 2.0
    )
    [verdict] = judge_runs([run([cell], report(without), [IgnoredFence(30_100, "broker-1")])])
    return verdict


def test_each_strike_is_compared_with_its_own_bound() -> None:
    assert bounced(Window(30_050, 34_900)).late == []
    [late] = bounced(Window(20_050, 24_900)).late
    assert "at most 1000 ms" in late


def test_a_gap_that_lasts_into_the_next_strike_counts_for_that_one() -> None:
    verdict = bounced(Window(29_950, 34_900))

    assert verdict.late == []
    assert [gap.worst.gap.length_ms for gap in verdict.all_gaps] == [50, 50, 4_950]


def test_too_few_repetitions_of_a_fault_fail_the_run() -> None:
    single = done("kill_leader", 10_000)
    bounced_once = replace(single, faults=[replace(single.faults[0], times=5)])

    [problem] = judged([bounced_once]).problems

    assert "it came 1 of 5 times" in problem


def test_one_repetition_does_not_lend_its_effect_to_another() -> None:
    single = done("kill_controller", 10_000).faults[0].strikes[0]
    unseen = replace(single, measures={"processes_ended": 1, "other_active": 0})
    fault = InjectedFault("kill_controller", 2, [single, unseen])

    assert len(fault.lacks) == 1


@pytest.mark.parametrize(("logged", "problems"), [(0, 1), (1, 1), (2, 0)])
def test_a_truncation_story_without_a_truncated_replica_fails_the_run(
    logged: int, problems: int
) -> None:
    story = replace(done("kill_leader", 10_000), step=TRUNCATION, logged=logged)

    assert len(judged([story]).problems) == problems


@pytest.mark.parametrize(
    ("reader", "problems"),
    [
        (ReaderSeen("consumer-1", {}, 0, {"UNAVAILABLE": 7}), []),
        (
            ReaderSeen("consumer-1", {"sea/0": (0, 400)}, 0, {}),
            ["consumer-1 stands at 0 of sea/0 30 s after the load, and 400 were acknowledged"],
        ),
        (
            ReaderSeen("consumer-1", {}, 1, {}),
            ["consumer-1 was informed 1 times that records that it had read are gone"],
        ),
    ],
)
def test_a_consumer_that_misses_acknowledged_records_fails_the_run(
    reader: ReaderSeen, problems: list[str]
) -> None:
    observed = Observation({SEA: LOAD.end_ms}, 80, [reader])
    [verdict] = judge_runs([run([done("kill_leader", 10_000)], report(), observed=observed)])

    assert verdict.problems == problems


@pytest.mark.parametrize(("read_ms", "problems"), [({}, 1), ({SEA: 13_999}, 1), ({SEA: 14_000}, 0)])
def test_a_high_watermark_unread_after_the_last_fault_fails_the_run(
    read_ms: dict[TopicPartition, int], problems: int
) -> None:
    observed = Observation(read_ms, 80)
    [verdict] = judge_runs([run([done("kill_leader", 10_000)], report(), observed=observed)])

    assert len(verdict.problems) == problems


def test_gaps_of_mixtures_are_reported_and_not_judged() -> None:
    single = done("kill_leader", 10_000, name="mixed")
    faults = (*single.step.faults, Fault("pause_leader", 2, 4))
    mixed = replace(single, step=Step("mixed", faults))

    verdict = judged([mixed], report(without=Window(10_050, 19_000)))

    assert verdict.late == []
    assert verdict.all_gaps[0].worst.gap.length_ms == 8_950


def test_an_unrecovered_cluster_fails_the_run() -> None:
    assert judged([done("kill_leader", 10_000, whole_s=None)]).problems == [
        "not whole within 60 s of kill_leader"
    ]


def test_a_slow_recovery_between_two_repetitions_fails_the_run() -> None:
    step = done("kill_leader", 10_000)
    bounced = replace(step, faults=[replace(step.faults[0], waits_s=[61.0])])

    assert judged([bounced]).problems == ["not whole within 60 s of kill_leader"]


def test_partitions_without_final_reads_fail_the_run() -> None:
    found = report()
    found.undrained = [SEA]

    assert judged([], found).problems == ["no final reads of sea/0"]


def test_acknowledgements_without_offsets_fail_the_run() -> None:
    found = report()
    found.without_offset = 3

    assert judged([], found).problems == ["3 sends were acknowledged without an offset"]
