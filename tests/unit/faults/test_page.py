"""The page holds what was found, and what was not shown."""

from faults.gaps import NOWHERE
from faults.report.page import RunPictures, page
from faults.report.pictures import Span, throughput
from faults.series import Point
from faults.verdict import Result, RunVerdict
from tidelog.history import Anomaly

POINTS = [Point(second, 100 * second, 2, 9) for second in range(10, 15)]
RUN = RunVerdict(1_234, dict.fromkeys(Anomaly, 0), [], [], NOWHERE)


def test_problems_are_told_first() -> None:
    text = page(Result([RUN]), [RunPictures(POINTS, 10.0)], None, ["a < b"], seed=7)

    assert "Failed (seed 7)" in text
    assert "<li>a &lt; b</li>" in text


def test_without_problems_all_is_well() -> None:
    text = page(Result([RUN]), [RunPictures(POINTS, 10.0)], None, [], seed=7)

    assert "All is well (seed 7): 1,234 records acknowledged." in text


def test_what_was_left_out_is_named() -> None:
    result = Result([RUN], {"skew_clock": "no clocks"})

    assert "<li>skew_clock: no clocks</li>" in page(
        result, [RunPictures(POINTS, 10.0)], None, [], seed=7
    )


def test_faults_are_drawn_where_they_were() -> None:
    picture = throughput(POINTS, [Span(0.0, 2.0, "kill_leader")], 10.0)

    assert '<rect x="60.0"' in picture
    assert 'width="465.0"' in picture
    assert "kill_leader" in picture
