"""A fault counts if it had an effect, and a seed continues until enough of them had."""

from __future__ import annotations

import pytest

from simulation import scenario
from simulation.fault_effects import struck
from simulation.faults import Fault
from simulation.scenario import MAX_MORE_FAULTS, MIN_FAULTS, run_seed

SEED = 1
ROOM = 1 << 30
# A fault with an effect, beside one without.
DONE = Fault(5_000, "crash_broker", ("broker-1",), 3_000)


@pytest.mark.parametrize(
    "idle",
    [
        Fault(6_000, "crash_broker", ("broker-1",), 500),
        Fault(6_000, "pause_broker", ("broker-1",), 500),
        Fault(6_000, "cut_pair", ("broker-9", "broker-2"), 500),
        Fault(6_000, "disk_full", ("broker-2", ROOM), 2_000),
        Fault(6_000, "failed_fsync", ("broker-1", 1), 500),
        Fault(1, "bit_flip", ("broker-2",), 0),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_that_strikes_nothing_does_not_count(idle: Fault) -> None:
    result = run_seed(SEED, sorted([DONE, idle]))
    assert (result.violation, dict(result.faults)) == (None, {DONE.kind: 1})


@pytest.mark.parametrize(
    "fault",
    [
        Fault(6_000, "disk_full", ("broker-2", 0), 3_000),
        Fault(6_000, "cut_from_brokers", ("broker-2",), 1_000),
        Fault(6_000, "etcd_leaderless", (), 2_000),
        Fault(6_000, "compaction", (), 1_000),
        Fault(6_000, "bit_flip", ("broker-2",), 0),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_that_strikes_counts(fault: Fault) -> None:
    result = run_seed(SEED, [DONE, fault])
    assert (result.violation, dict(result.faults)) == (None, {DONE.kind: 1, fault.kind: 1})


def test_a_seed_goes_on_until_enough_faults_had_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "draw_plan", lambda *_: [DONE])
    result = run_seed(SEED)
    assert (result.violation, struck(result.faults)) == (None, MIN_FAULTS)
    assert len(result.plan) <= 1 + MAX_MORE_FAULTS
    again = run_seed(SEED, result.plan)
    assert again.faults == result.faults


def test_a_plan_that_is_given_does_not_go_on() -> None:
    assert run_seed(SEED, [DONE]).plan == [DONE]
