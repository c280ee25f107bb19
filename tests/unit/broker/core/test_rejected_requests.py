"""Requests that are rejected for good are counted, within bounds."""

from __future__ import annotations

import pytest

from tidelog.client.partition_queue import Idempotence
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import RejectedRequests
from tidelog_broker.core.rejected_requests import (
    MAX_COUNTED,
    MAX_KEPT,
    SETTLED_BY_PRODUCERS,
    WINDOW_MS,
    RejectionCounts,
)
from unit.client.test_accumulator import P0, Bench

TOO_LARGE = TidelogError(ErrorCode.BATCH_TOO_LARGE, "9 bytes; at most 5")


def test_rejections_are_counted_by_topic_and_reason() -> None:
    counts = RejectionCounts()
    for at_ms in (1_000, 1_500):
        counts.add("sea", TOO_LARGE, at_ms)
    counts.add("bay", TOO_LARGE, 1_600)
    assert list(counts.recent(2_000)) == [
        RejectedRequests("bay", "BATCH_TOO_LARGE", 1, 400, "9 bytes; at most 5"),
        RejectedRequests("sea", "BATCH_TOO_LARGE", 2, 500, "9 bytes; at most 5"),
    ]


def test_retriable_rejections_are_not_counted() -> None:
    counts = RejectionCounts()
    counts.add("sea", TidelogError(ErrorCode.NOT_LEADER, "elsewhere"), 1)
    assert list(counts.recent(2)) == []


@pytest.mark.parametrize("code", SETTLED_BY_PRODUCERS, ids=lambda code: code.name)
def test_rejections_that_a_producer_handles_itself_are_not_counted(code: ErrorCode) -> None:
    """`Accumulator.failed`: the batch is sent again or delivered, and no record fails."""
    bench = Bench(idempotence=Idempotence.UNNAMED)
    bench.accumulator.identified(Identity(7, 0))
    bench.seal(P0, b"first")
    first = bench.drain_group()
    bench.seal(P0, b"second")
    error = TidelogError(code, "sent again or delivered")
    bench.fail(bench.drain_group(), error)
    assert not any(isinstance(outcome, TidelogError) for _, outcome in bench.settled)
    bench.fail(first, error)
    assert not any(isinstance(outcome, TidelogError) for _, outcome in bench.settled)
    counts = RejectionCounts()
    counts.add("sea", error, 1)
    assert list(counts.recent(2)) == []


def test_rejections_are_forgotten_after_the_window() -> None:
    counts = RejectionCounts()
    counts.add("sea", TOO_LARGE, 1_000)
    assert len(list(counts.recent(999 + WINDOW_MS))) == 1
    assert list(counts.recent(1_000 + WINDOW_MS)) == []


def test_names_that_clients_make_up_do_not_fill_the_memory() -> None:
    counts = RejectionCounts()
    for number in range(MAX_KEPT + 50):
        counts.add(f"topic-{number}", TOO_LARGE, number)
    kept = [entry.topic for entry in counts.recent(1_000)]
    assert len(kept) == MAX_KEPT
    assert "topic-0" not in kept
    for at_ms in range(MAX_COUNTED + 50):
        counts.add("sea", TOO_LARGE, at_ms)
    [entry] = [entry for entry in counts.recent(MAX_COUNTED + 50) if entry.topic == "sea"]
    assert entry.count == MAX_COUNTED
