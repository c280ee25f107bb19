"""Conditions that hold back a replica or the high watermark."""

from __future__ import annotations

import pytest

from simulation.held_back import (
    BELOW_EPOCH_START,
    BELOW_HIGH_WATERMARK,
    BY_MIN_ISR,
    BY_PENDING_CHANGE,
    why_held,
    why_not_joined,
)
from tidelog.model import NO_OFFSET


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (NO_OFFSET, None),
        (4, BELOW_HIGH_WATERMARK),
        (5, BELOW_EPOCH_START),
        (7, BELOW_EPOCH_START),
        (8, None),
    ],
)
def test_a_replica_is_not_admitted_below_the_high_watermark_and_the_start_of_the_epoch(
    end: int, why: str | None
) -> None:
    assert why_not_joined(end, high_watermark=5, epoch_start=8) == why


@pytest.mark.parametrize(
    ("committed", "proposed", "min_isr", "why"),
    [
        # Brokers 1 and 2 have 9; broker 3 has 5, like the high watermark.
        ((1, 2), None, 2, None),
        ((1,), None, 2, BY_MIN_ISR),
        ((1, 2), (1, 2, 3), 2, BY_PENDING_CHANGE),
        ((1, 2, 3), (1, 2), 2, BY_PENDING_CHANGE),
        ((1, 3), (1, 2, 3), 2, None),
        ((3,), None, 2, None),
    ],
)
def test_the_high_watermark_is_held_back_by_the_maximal_isr(
    committed: tuple[int, ...], proposed: tuple[int, ...] | None, min_isr: int, why: str | None
) -> None:
    held = 9 if why is None and committed == (1, 2) else 5
    assert (
        why_held(held, {1: 9, 2: 9, 3: 5}, committed=committed, proposed=proposed, min_isr=min_isr)
        == why
    )
