"""The report page has the findings and the omitted faults."""

from dataclasses import replace

from faults.gaps import NOWHERE, PartitionGap, Window
from faults.injected import DoneStep
from faults.plan import ROUND_TRIP
from faults.report.page import RunPictures, page
from faults.report.pictures import Span, throughput
from faults.result import Result
from faults.series import Point
from faults.verdict import JudgedGap, QuietGaps, RunVerdict
from tidelog.history import Anomaly
from tidelog.history.write_gaps import WriteGap

POINTS = [Point(second, 100 * second, 2, 9) for second in range(10, 15)]
RUN = RunVerdict(1_234, dict.fromkeys(Anomaly, 0), [], [], QuietGaps(NOWHERE, NOWHERE))


def test_problems_are_listed_first() -> None:
    text = page(Result([RUN]), [RunPictures(POINTS, 10.0)], None, ["a < b"], seed=7)

    assert "Failed (seed 7)" in text
    assert "<li>a &lt; b</li>" in text


def test_a_run_without_problems_is_reported_as_passed() -> None:
    text = page(Result([RUN]), [RunPictures(POINTS, 10.0)], None, [], seed=7)

    assert "Passed (seed 7): 1,234 records acknowledged." in text


def test_omitted_faults_are_named() -> None:
    result = Result([RUN], {"skew_clock": "no clocks"})

    assert "<li>skew_clock: no clocks</li>" in page(
        result, [RunPictures(POINTS, 10.0)], None, [], seed=7
    )


def test_faults_are_drawn_at_their_times() -> None:
    picture = throughput(POINTS, [Span(0.0, 2.0, "kill_leader")], 10.0)

    assert '<rect x="60"' in picture
    assert 'width="465"' in picture
    assert "kill_leader" in picture


def test_a_gap_without_a_bound_is_not_shown_as_within_it() -> None:
    step = DoneStep(ROUND_TRIP, [], Window(0, 1), 2.0)
    run = replace(RUN, steps=[step], gaps=[[JudgedGap(ROUND_TRIP.name, "", NOWHERE)]])
    text = page(Result([run]), [RunPictures(POINTS, 10.0)], None, [], seed=7)

    assert "<td></td>\n<td>–</td>" in text


def test_ordinary_gaps_are_shown_quiet_and_disturbed() -> None:
    quiet = QuietGaps(PartitionGap(WriteGap(0, 70), None), PartitionGap(WriteGap(0, 410), None))
    run = replace(RUN, quiet=quiet, producer_gap_ms=1_250)
    text = page(Result([run]), [RunPictures(POINTS, 10.0)], None, [], seed=7)

    assert "0.070 s (none)" in text
    assert "0.410 s (none_stirred)" in text
    assert "over all its partitions: 1.250 s" in text
