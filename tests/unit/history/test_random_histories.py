"""Random executions of a correct log show no anomaly. With one planted defect they show exactly
its anomaly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.history import (
    NO_PARTITION,
    Anomaly,
    Nemesis,
    Operation,
    Report,
    SendEnded,
    SendInvoked,
    check_history,
)
from tidelog.history.history_format import decode_operation, encode_operation
from unit.history.defects import DEFECTS, Defect
from unit.history.log_model import PARTITIONS, LogModel, Step
from unit.history.recording import found_in

KINDS = (
    "send",
    "send",
    "send",
    "poll",
    "poll",
    "bad_poll",
    "seek",
    "take_over_name",
    "fail_over",
    "read_high_watermark",
    "acknowledge_late",
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 7)), max_size=40
)
# Enough operations on partition 0 for each defect to have a place.
RICH: list[Step] = [
    ("seek", 0, 0),
    ("send", 0, 0),
    ("send", 0, 7),
    ("send", 0, 0),
    ("send", 0, 7),
    ("send", 0, 0),
    ("send", 0, 0),
    ("poll", 0, 1),
    ("poll", 0, 1),
    ("poll", 0, 3),
    ("poll", 0, 1),
]
LAST: list[Step] = [("send", 0, 0)]


@settings(max_examples=150)
@given(STEPS)
def test_a_correct_log_has_no_anomalies(steps: list[Step]) -> None:
    assert found_in(LogModel().run(steps).operations) == {}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.plant.__name__)
@settings(max_examples=25)
@given(before=STEPS, after=STEPS, choice=st.integers(0, 1 << 20))
def test_one_defect_shows_as_its_anomaly(
    defect: Defect, before: list[Step], after: list[Step], choice: int
) -> None:
    history = LogModel().run([*before, *RICH, *after, *LAST]).operations
    planted = list(defect.plant(history))
    found = found_in(planted[choice % len(planted)]).keys()
    assert defect.anomaly in found
    assert found <= {defect.anomaly, *defect.companions}


@settings(max_examples=50)
@given(STEPS, st.sampled_from(DEFECTS), st.integers(0, 1 << 20))
def test_partitions_may_be_checked_separately(
    steps: list[Step], defect: Defect, choice: int
) -> None:
    planted = list(defect.plant(LogModel().run([*steps, *RICH]).operations))
    # A send without a partition has to be placed first, by its value.
    numbered = list(enumerate(_placed(planted[choice % len(planted)]), 1))
    merged = Report()
    for partition in range(PARTITIONS):
        merged.merge(check_history(one for one in numbered if _is_of(one[1], partition)))
    whole = check_history(numbered)
    assert merged.findings == whole.findings
    assert (merged.sends, merged.polled_records) == (whole.sends, whole.polled_records)
    assert merged.longest_write_gap() == whole.longest_write_gap()


def _placed(history: list[Operation]) -> list[Operation]:
    places = {
        one.value: one.partition
        for one in history
        if isinstance(one, SendEnded) and one.partition != NO_PARTITION
    }
    return [
        one._replace(partition=places.get(one.value, 0))
        if isinstance(one, SendInvoked | SendEnded) and one.partition == NO_PARTITION
        else one
        for one in history
    ]


def _is_of(operation: Operation, partition: int) -> bool:
    return not isinstance(operation, Nemesis) and operation.partition == partition


def test_every_anomaly_has_a_defect() -> None:
    assert {defect.anomaly for defect in DEFECTS} == set(Anomaly)


@settings(max_examples=25)
@given(STEPS)
def test_operations_round_trip(steps: list[Step]) -> None:
    for operation in LogModel().run(steps).operations:
        assert decode_operation(encode_operation(operation)) == operation
