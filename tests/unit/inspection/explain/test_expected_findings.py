"""The check of integration tests that `explain` reports a fault and nothing else."""

from __future__ import annotations

import pytest

from integration.explaining import assert_follows_from, only, others
from tidelog.inspection.explain import causes
from tidelog.inspection.state_reports import Explanation, Finding

DEAD = (causes.REPLICA_DEAD, 3)
BELOW_MIN_ISR = (causes.UNDER_MIN_ISR, -1)


def found(cause: str, broker: int, severity: str = causes.WARNING, *roots: str) -> Finding:
    return Finding(cause, severity, "", (), "", broker=broker, because=roots)


def test_findings_that_are_expected_pass() -> None:
    explanation = Explanation((found(*DEAD), found(*BELOW_MIN_ISR)))
    only(explanation, DEAD, BELOW_MIN_ISR)
    only(explanation, DEAD, BELOW_MIN_ISR, (causes.NO_STANDBY, -1))


def test_notes_are_no_faults() -> None:
    only([found(causes.NOT_PREFERRED_LEADER, 2, causes.INFO)])


@pytest.mark.parametrize(
    "invented",
    [
        found(causes.BROKER_PAUSED, 2),
        found(causes.REPLICA_DEAD, 2),
        found(*DEAD),
        found(*BELOW_MIN_ISR, causes.CRITICAL, "replica_dead of broker 3"),
    ],
    ids=["of another broker", "the same of another broker", "twice", "a symptom twice"],
)
def test_one_finding_more_fails(invented: Finding) -> None:
    findings = [found(*DEAD), found(*BELOW_MIN_ISR), invented]
    assert others(findings, DEAD, BELOW_MIN_ISR) == [invented]
    with pytest.raises(AssertionError, match=invented.cause):
        only(findings, DEAD, BELOW_MIN_ISR)


def test_the_roots_of_a_finding_are_compared_exactly() -> None:
    finding = found(*BELOW_MIN_ISR, causes.CRITICAL, "replica_dead of broker 3")
    assert_follows_from(finding, "replica_dead of broker 3")
    for roots in ((), ("replica_dead of broker 3", causes.NO_CONTROLLER)):
        with pytest.raises(AssertionError):
            assert_follows_from(finding, *roots)
