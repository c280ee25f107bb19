"""Which changes of the ISR a leader made."""

from __future__ import annotations

import pytest

from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_broker.metrics.broker_metrics import IsrMeter
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot


def sheet_after(kind: Kind, stage: Stage, cause: Cause) -> MetricsSnapshot:
    meter, snapshot = IsrMeter(), MetricsSnapshot(BROKER_METRICS)
    meter.take(StateChange(1, "broker-1", kind, stage, cause))
    meter.write_to(snapshot)
    return snapshot


@pytest.mark.parametrize(
    ("stage", "count"), [(Stage.REQUESTED, 0), (Stage.COMPLETED, 1), (Stage.FAILED, 0)]
)
def test_a_shrink_counts_by_its_cause_once_the_store_has_applied_it(
    stage: Stage, count: int
) -> None:
    shrinks = sheet_after(Kind.ISR_SHRINK, stage, Cause.LAG_BYTES).values[
        "tidelog_isr_shrinks_total"
    ]

    assert shrinks["lag_bytes",] == count
    assert sum(shrinks.values()) == count


def test_an_expand_counts_as_such() -> None:
    snapshot = sheet_after(Kind.ISR_EXPAND, Stage.COMPLETED, Cause.CAUGHT_UP)

    assert snapshot.values["tidelog_isr_expands_total"] == {(): 1}
    assert not any(snapshot.values["tidelog_isr_shrinks_total"].values())
