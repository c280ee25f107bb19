"""An integration test names each cause that `explain` can report, with real processes and a real
fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.inspection.explain import causes

INTEGRATION = Path(__file__).parents[3] / "integration"
# Never separate findings: they are reported under their roots.
UNDER_THEIR_ROOTS = {
    causes.TAKES_NO_RECORDS,
    causes.LEADERSHIP_LEFT,
    causes.LEADER_LATE,
    causes.IN_ISR_AND_GONE,
}


def all_causes() -> set[str]:
    """All causes in the order of findings, then those that only a move can have."""
    return {*causes.ORDER, *causes.BOUNDS_ON_MOVES} - UNDER_THEIR_ROOTS


def named_in_tests() -> set[str]:
    """The causes that tests name, by the word or by the name of its constant."""
    words: set[str] = set()
    for path in INTEGRATION.glob("*.py"):
        words.update(re.findall(r"\w+", path.read_text()))
    return {cause for cause in all_causes() if cause in words or cause.upper() in words}


@pytest.mark.parametrize("cause", sorted(all_causes()))
def test_every_cause_has_an_integration_test(cause: str) -> None:
    assert cause in named_in_tests(), f"no integration test names {cause}"


def test_every_cause_has_a_rank() -> None:
    words = {
        value
        for name, value in vars(causes).items()
        if name.isupper() and isinstance(value, str) and value not in causes.SEVERITIES
    }
    assert words - all_causes() == UNDER_THEIR_ROOTS
