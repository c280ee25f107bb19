"""The result of all runs together, and what they lack of a full proof."""

from dataclasses import replace

import pytest

from faults.gaps import Window
from faults.result import COUNTED, Result
from tidelog.history import Anomaly, Outcome
from unit.faults.runs import done, judged, report


def test_the_result_has_exactly_the_required_keys() -> None:
    assert Result([judged([])]).as_json().keys() == {
        "acknowledged",
        "failed",
        "unknown",
        "lost",
        "duplicated",
        "unseen",
        "aborted_reads",
        "hw_regressions",
        "divergent_replicas",
        "unexplained",
        "misblamed",
        "explanations",
        "wrong_explanations",
        "faults",
        "whole_again_seconds",
        "gaps_seconds",
        "producer_gap_seconds",
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


def test_unacknowledged_records_and_the_longest_producer_wait_are_counted() -> None:
    found = report()
    found.sends.update({Outcome.FAIL: 20, Outcome.INFO: 3})
    reported = Result([judged([], found), judged([], found)]).as_json()

    assert [reported[key] for key in ("failed", "unknown", "producer_gap_seconds")] == [40, 6, 0.08]


def test_the_longest_recovery_time_counts() -> None:
    runs = [judged([done("kill_leader", 10_000, whole_s=seconds)]) for seconds in (3.0, 7.5)]

    assert Result(runs).as_json()["whole_again_seconds"] == 7.5


def test_the_recovery_time_between_two_repetitions_counts() -> None:
    step = done("kill_leader", 10_000, whole_s=3.0)
    bounced = replace(step, faults=[replace(step.faults[0], waits_s=[2.0, 9.5])])

    assert Result([judged([bounced])]).as_json()["whole_again_seconds"] == 9.5


def test_gaps_are_listed_by_kind_beside_the_quiet_one() -> None:
    verdict = judged([done("kill_leader", 10_000)], report(without=Window(10_050, 10_800)))

    assert Result([verdict]).as_json()["gaps_seconds"] == {
        "none": 0.05,
        "none_stirred": 0.05,
        "kill_leader": 0.75,
    }


def test_a_run_without_an_acknowledged_record_proves_nothing() -> None:
    found = report()
    found.sends.clear()

    assert Result([judged([done("kill_leader", 10_000)], found)]).problems(is_full=False) == [
        "no record was acknowledged, so nothing was shown"
    ]


def test_a_run_without_a_fault_proves_nothing() -> None:
    assert Result([judged([])]).problems(is_full=False, only="kill_all_etcd") == [
        "no fault was injected, so nothing was shown",
        "kill_all_etcd was not injected",
    ]
    assert Result([judged([done("kill_leader", 10_000)])]).problems(is_full=False) == []


@pytest.mark.parametrize("noisy", [Window(3_000, 4_050), Window(50_000, 51_050)])
def test_on_a_slow_machine_gaps_are_not_fully_judged(noisy: Window) -> None:
    result = Result([judged([done("kill_controller", 10_000)], report(without=noisy))])

    assert any("too noisy" in problem for problem in result.problems(is_full=True))
    assert not any("too noisy" in problem for problem in result.problems(is_full=False))
    quiet = Result([judged([], report(without=Window(3_000, 3_950)))])
    assert not any("too noisy" in problem for problem in quiet.problems(is_full=True))


def test_a_full_proof_has_enough_kinds_and_records() -> None:
    problems = Result([judged([done("kill_leader", 10_000)])]).problems(is_full=True)

    assert problems == [
        "kill_leader came, and never long enough to be explained",
        "1 kinds of faults; a full proof has 12",
        "1,000 records were acknowledged; a full proof has 2,000,000",
    ]


def test_a_full_proof_on_containers_omits_no_kind() -> None:
    result = Result([judged([])], left_out={"fill_disk": "this cluster lacks a disk"})

    problem = "fill_disk was left out: this cluster lacks a disk"
    assert problem in result.problems(is_full=True, needs_all=True)
    assert problem not in result.problems(is_full=True)


def test_a_full_proof_omits_nothing_for_lack_of_time() -> None:
    result = Result([judged([])], no_time=("round_trip",))

    assert "round_trip did not fit into the time" in result.problems(is_full=True)
    assert "round_trip did not fit into the time" not in result.problems(is_full=False)
