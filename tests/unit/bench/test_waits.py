"""Verdicts on latencies."""

from bench.percentiles import Timed, timed
from bench.suite.waits import OneInFlight, Rate, outcome

QUICK_ONE = timed([1.0] * 990 + [4.0] * 9 + [20.0])
SLOW = timed([3.0] * 900 + [12.0] * 100)


def verdicts(alone: Timed) -> dict[str, bool | None]:
    one = OneInFlight(alone, QUICK_ONE, QUICK_ONE, SLOW)
    rates = [Rate(100, QUICK_ONE, SLOW), Rate(1_000, timed([1.0], failed=1), SLOW)]
    return {result.name: result.met for result in outcome(one, rates).results}


def test_one_in_flight_has_bounds_on_the_median_and_the_tail() -> None:
    what = "one in flight, acks=all, factor 3"
    quick, slow = verdicts(QUICK_ONE), verdicts(SLOW)

    assert (quick[f"{what}: p50"], quick[f"{what}: p99"]) == (True, True)
    assert (slow[f"{what}: p50"], slow[f"{what}: p99"]) == (False, False)
    assert quick[f"{what}: p99.9"] is None


def test_a_failed_send_at_a_fixed_rate_misses_the_target() -> None:
    results = verdicts(QUICK_ONE)

    assert results["100 records/s: failed sends"] is True
    assert results["1,000 records/s: failed sends"] is False


def test_distributions_are_drawn_over_the_fraction_of_requests() -> None:
    one = OneInFlight(QUICK_ONE, QUICK_ONE, QUICK_ONE, SLOW)
    shapes, over_rate = outcome(one, [Rate(100, QUICK_ONE, SLOW)]).charts

    assert shapes.lines[0].points[0] == (1.0, 1.0)
    assert max(point.x for line in shapes.lines for point in line.points) < 1_001
    assert {line.label for line in over_rate.lines} == {
        "p50 to ack",
        "p99 to ack",
        "p50 to consumer",
        "p99 to consumer",
    }
