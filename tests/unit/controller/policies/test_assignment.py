from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.policies.assignment import check_assignment, sharing_a_rack
from tidelog_controller.policies.racks import RackedBroker

KNOWN = [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("assignment", "factor"),
    [({0: (1, 2), 1: (3, 1)}, None), ({5: (4, 2, 3)}, 3), ({0: [1]}, None)],
)
def test_good_assignments_pass(assignment: dict[int, tuple[int, ...]], factor: int | None) -> None:
    check_assignment("t", assignment, KNOWN, factor)


@pytest.mark.parametrize(
    ("assignment", "factor", "code", "problem"),
    [
        ({}, None, ErrorCode.INVALID_ASSIGNMENT, "no replicas are named for topic t"),
        ({0: ()}, None, ErrorCode.INVALID_ASSIGNMENT, "partition 0 of topic t has no replicas"),
        ({3: (2, 1, 2)}, None, ErrorCode.INVALID_ASSIGNMENT, "broker 2 2 times.* each once"),
        ({0: (1, 9)}, None, ErrorCode.UNKNOWN_BROKER, "broker 9.*those that can are 1, 2, 3, 4"),
        ({0: (-1,)}, None, ErrorCode.UNKNOWN_BROKER, "broker -1"),
        (
            {0: (1, 2), 1: (3,)},
            None,
            ErrorCode.INVALID_ASSIGNMENT,
            "partition 1 of topic t has 1 replicas and partition 0 has 2",
        ),
        ({0: (1, 2)}, 3, ErrorCode.INVALID_ASSIGNMENT, "has 2 replicas and the topic has 3"),
    ],
)
def test_bad_assignments_are_rejected_with_the_reason(
    assignment: dict[int, tuple[int, ...]], factor: int | None, code: ErrorCode, problem: str
) -> None:
    with pytest.raises(TidelogError, match=problem) as rejection:
        check_assignment("t", assignment, KNOWN, factor)
    assert rejection.value.code is code


def test_partitions_that_share_a_rack_while_another_is_free_are_reported() -> None:
    brokers = [RackedBroker(b, rack) for b, rack in zip(KNOWN, "aabc", strict=True)]
    assignment = {0: (1, 2), 1: (1, 3), 2: (1, 3, 4), 3: (1, 2, 3, 4), 4: (1, 2, 4)}
    assert sharing_a_rack(assignment, brokers) == [0, 4]
