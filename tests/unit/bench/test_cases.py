"""Verdicts on producer throughput."""

from dataclasses import replace

from bench.report import Measured
from bench.suite.cases import Found, outcome
from bench.suite.matrix import AT_ONCE_BY_LEADER, ONE_REPLICA, SIZES, USUAL, Case


def found(case: Case, ratio: float) -> Found:
    return Found(case, 400.0, 400.0 * ratio, 1000.0, ratio, 0, 2.0, 1.0)


def verdicts(*all_found: Found, memory_mb: float = 100.0) -> dict[str, Measured]:
    results = outcome(all_found, {1 << 20: 900.0}, memory_mb).results
    return {result.name: result for result in results}


def test_the_usual_and_the_single_replica_case_have_bounds_on_their_share_of_the_ceiling() -> None:
    results = verdicts(found(USUAL, 0.25), found(ONE_REPLICA, 0.49), found(AT_ONCE_BY_LEADER, 0.3))

    assert results[f"produce {USUAL.name}"].met is True
    assert results[f"produce {ONE_REPLICA.name}"].met is False
    assert results[f"produce {AT_ONCE_BY_LEADER.name}"].met is None


def test_acks_all_is_compared_with_acks_1() -> None:
    results = verdicts(found(USUAL, 0.1), found(AT_ONCE_BY_LEADER, 0.2))

    assert results["acks=all of acks=1, 1 KiB, factor 3"].value == 0.5
    assert results["acks=all of acks=1, 1 KiB, factor 3"].met is False


def test_unacknowledged_records_miss_the_target() -> None:
    results = verdicts(replace(found(USUAL, 0.3), failed=2))

    assert results["records that were not acknowledged"].met is False


def test_each_case_has_a_line_over_record_sizes() -> None:
    several = [found(USUAL._replace(record_bytes=size), size / 1e6) for size in reversed(SIZES)]
    (chart,) = [
        chart for chart in outcome(several, {}, 1.0).charts if chart.name.endswith("none-12")
    ]
    (line,) = chart.lines

    assert [point.x for point in line.points] == list(SIZES)
    assert line.label == "acks=all, factor 3"


def test_the_diagonal_is_drawn_as_bars() -> None:
    charts = outcome([found(USUAL, 0.3), found(ONE_REPLICA, 0.5)], {}, 1.0).charts

    assert [chart.name for chart in charts] == ["throughput"]
    assert charts[0].ticks == [USUAL.name, ONE_REPLICA.name]
