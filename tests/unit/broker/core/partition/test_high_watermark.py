import pytest

from tidelog_broker.core.partition.high_watermark import advanced, followed


def advance(
    ends: dict[int, int], maximal: set[int], *, committed: int = 2, current: int = 3
) -> int:
    return advanced(current, ends, maximal_isr=maximal, committed_isr_size=committed, min_isr=2)


def test_the_high_watermark_is_the_smallest_end_in_the_maximal_isr() -> None:
    assert advance({1: 9, 2: 7, 3: 4}, {1, 2}) == 7


def test_a_proposed_member_holds_back_the_high_watermark() -> None:
    assert advance({1: 9, 2: 7, 3: 4}, {1, 2, 3}) == 4


def test_a_member_without_a_reported_end_stops_the_high_watermark() -> None:
    assert advance({1: 9}, {1, 2}) == 3


def test_the_high_watermark_never_falls() -> None:
    assert advance({1: 9, 2: 1}, {1, 2}) == 3


@pytest.mark.rule("hw-held-below-min-isr")
def test_below_min_isr_the_high_watermark_does_not_advance() -> None:
    assert advance({1: 9}, {1}, committed=1) == 3


@pytest.mark.rule("unanswered-isr-change-is-pending")
def test_a_proposed_joiner_does_not_make_up_for_a_missing_member() -> None:
    assert advance({1: 9, 2: 9}, {1, 2}, committed=1) == 3


def test_a_followers_high_watermark_never_exceeds_its_own_log() -> None:
    assert followed(2, leader_high_watermark=9, log_end=5) == 5


def test_a_followers_high_watermark_does_not_fall_with_that_of_a_new_leader() -> None:
    assert followed(6, leader_high_watermark=4, log_end=9) == 6
