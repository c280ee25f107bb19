"""A token bucket limits bytes per second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.token_bucket import BURST_MS, CHUNK_MS, TokenBucket

RATE = 10_000
CHUNK = RATE * CHUNK_MS // 1_000
BURST = RATE * BURST_MS // 1_000


def test_without_a_rate_any_number_passes() -> None:
    bucket = TokenBucket()
    bucket.take(1 << 40, None, 0)
    assert (bucket.available(None, 0), bucket.pause_ms(None, 0)) == (None, 0)


def test_the_bucket_fills_with_time_up_to_one_burst() -> None:
    bucket = TokenBucket()
    assert bucket.available(RATE, 1_000) == 0
    assert bucket.available(RATE, 1_100) == RATE // 10
    assert bucket.available(RATE, 60_000) == BURST


def test_less_than_a_chunk_does_not_pass() -> None:
    bucket = TokenBucket()
    bucket.available(RATE, 0)
    assert bucket.available(RATE, CHUNK_MS - 1) == 0
    assert bucket.pause_ms(RATE, CHUNK_MS - 1) == 1
    assert bucket.available(RATE, CHUNK_MS) == CHUNK


def test_a_larger_batch_is_paid_for_before_the_next() -> None:
    bucket = TokenBucket()
    bucket.available(RATE, 0)
    bucket.take(3 * RATE, RATE, 100)
    assert bucket.available(RATE, 2_900) == 0
    pause = bucket.pause_ms(RATE, 2_900)
    assert bucket.available(RATE, 2_900 + pause) == CHUNK


def test_a_lowered_rate_applies_at_once() -> None:
    bucket = TokenBucket()
    bucket.available(RATE, 0)
    assert bucket.available(RATE, 60_000) == BURST
    bucket.take(BURST, RATE, 60_000)
    assert bucket.available(10, 61_000) == 10 * BURST_MS // 1_000


def test_a_lifted_rate_ends_the_pause() -> None:
    bucket = TokenBucket()
    bucket.available(RATE, 0)
    bucket.take(RATE, RATE, 0)
    assert bucket.pause_ms(None, 1) == 0


@given(
    st.integers(1, 10**8),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 10**6)), min_size=1, max_size=50),
)
def test_over_any_time_at_most_the_rate_a_burst_and_one_batch_pass(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket()
    bucket.available(rate, 0)
    now_ms = passed = 0
    largest = max(batch for _, batch in steps)
    for wait_ms, batch in steps:
        now_ms += wait_ms
        if bucket.available(rate, now_ms):
            bucket.take(batch, rate, now_ms)
            passed += batch
        assert passed <= rate * now_ms / 1_000 + largest


@given(st.integers(1, 10**8), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_after_the_returned_pause_something_passes(rate: int, batches: list[int]) -> None:
    bucket = TokenBucket()
    now_ms = 0
    for batch in batches:
        now_ms += bucket.pause_ms(rate, now_ms)
        assert bucket.available(rate, now_ms)
        bucket.take(batch, rate, now_ms)


@given(st.integers(1, 10**6), st.lists(st.integers(1, 40), min_size=1, max_size=100))
def test_frequent_checks_lose_no_tokens(rate: int, waits_ms: list[int]) -> None:
    often, seldom = TokenBucket(), TokenBucket()
    often.available(rate, 0)
    seldom.available(rate, 0)
    often.take(10**9, rate, 0)
    seldom.take(10**9, rate, 0)
    now_ms = 0
    for wait_ms in waits_ms:
        now_ms += wait_ms
        often.pause_ms(rate, now_ms)
    assert often.pause_ms(rate, now_ms) == seldom.pause_ms(rate, now_ms)
