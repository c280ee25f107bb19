"""Percentiles that the number of values supports."""

from bench.percentiles import distribution, percentile, percentiles, timed


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]

    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 1.0) == 100.0


def test_a_percentile_needs_enough_values() -> None:
    assert set(percentiles([1.0] * 50)) == {"p50"}
    assert set(percentiles([1.0] * 100)) == {"p50", "p99"}
    assert set(percentiles([1.0] * 1000)) == {"p50", "p99", "p99.9"}


def test_a_distribution_ends_with_the_maximum() -> None:
    shape = distribution([1.0, 2.0, 3.0, 4.0])

    assert shape[0] == (0.0, 1.0)
    assert shape[-1] == (1.0, 4.0)
    assert [share for share, _ in shape] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_failures_are_counted_separately() -> None:
    assert timed([2.0, 3.0], failed=1).samples == 2
    assert timed([], failed=1).p == {}
