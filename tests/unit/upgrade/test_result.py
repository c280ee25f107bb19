"""What a run has to show, and its figures."""

from __future__ import annotations

from typing import Any

import pytest

from faults.gaps import Window
from tidelog.history import Outcome, Report
from tidelog.model import TopicPartition
from upgrade.result import content, of_roll, problems_of
from upgrade.roll import Roll
from upgrade.run import PLAIN, REST, FinishedRun

ROLL = Roll("forward", Window(0, 10_000), [Window(4_000, 7_000)])
SUCCESSES = {
    TopicPartition(PLAIN, 0): [0, 500, 2_000, 3_900, 7_100, 8_000, 10_000],
    # Not written all the time: its gaps say nothing about the cluster.
    TopicPartition(REST, 0): [0, 10_000],
}


def finished(**changed: Any) -> FinishedRun:
    report = Report(success_times_ms=dict(SUCCESSES))
    report.sends[Outcome.OK] = 7
    run = FinishedRun("documented", [ROLL], report, 10_000, kept_keys=20)
    for name, value in changed.items():
        setattr(run, name, value)
    return run


def test_a_run_that_acknowledged_all_records_once_has_no_problem() -> None:
    assert problems_of(finished()) == []


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.INFO])
def test_one_record_without_acknowledgement_is_a_problem(outcome: Outcome) -> None:
    run = finished()
    run.report.sends[outcome] = 1
    assert len(problems_of(run)) == 1


def test_a_run_that_shows_nothing_is_a_problem() -> None:
    run = finished(kept_keys=0)
    run.report.sends.clear()
    assert len(problems_of(run)) == 2


def test_the_time_in_which_a_roll_stood_still_has_a_gap_of_its_own() -> None:
    figures = of_roll(ROLL, finished())
    assert (figures["seconds"], figures["longest_gap_seconds"]) == (7.0, 3.2)
    assert (figures["stopped_seconds"], figures["stopped_gap_seconds"]) == (3.0, 3.2)


def test_the_document_sums_runs_and_names_the_unfinished_one() -> None:
    document = content([finished(), finished()], ("0.1.0", "0.2.0"), ("a", "b"), {}, "run 3 broke")
    assert (document["acknowledged"], document["lost"]) == (14, 0)
    assert document["problems"] == ["run 3 broke"]
