from __future__ import annotations

import random

import pytest

from bench.digest_cost import PAIRS, Side, interval, results
from bench.report import missed_names

# The cost of digests is within noise, because broker processes differ from pair to pair.
_NOISE = random.Random(1)


def sides(cpu: float, throughput: float) -> dict[str, list[Side]]:
    """Measurements of clusters with digests relative to those without."""
    off = [Side(50 * _NOISE.uniform(0.9, 1.1), 8 * _NOISE.uniform(0.9, 1.1)) for _ in range(PAIRS)]
    return {
        "on": [Side(side.throughput * throughput, side.cpu * cpu) for side in off],
        "off": off,
    }


def test_ratios_are_of_pairs_and_have_bounds() -> None:
    found = {r.name: r for r in results(sides(1.004, 0.998), append_us=1.0)}
    assert missed_names(list(found.values())) == []
    cpu = found[f"digests: processor on / off, median of {PAIRS} alternated pairs"]
    assert cpu.value == pytest.approx(1.004)
    throughput = found[f"digests: throughput on / off, median of {PAIRS} alternated pairs"]
    assert throughput.value == pytest.approx(0.998)


def test_a_cost_above_one_percent_is_named() -> None:
    assert missed_names(results(sides(1.02, 0.98), append_us=100.0)) == [
        f"digests: processor on / off, median of {PAIRS} alternated pairs",
        f"digests: throughput on / off, median of {PAIRS} alternated pairs",
        "digests: appends, of the processor of three brokers",
    ]


def test_the_interval_reflects_the_spread_of_pairs() -> None:
    assert interval([1.01] * PAIRS) == 0
    narrow = [1 + 0.01 * _NOISE.gauss() for _ in range(PAIRS)]
    wide = [1 + 10 * (ratio - 1) for ratio in narrow]
    assert 0.001 < interval(narrow) < 0.01
    assert interval(wide) == pytest.approx(10 * interval(narrow))
