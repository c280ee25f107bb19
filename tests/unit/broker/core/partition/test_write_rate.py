from __future__ import annotations

import pytest

from tidelog_broker.core.partition.write_rate import MAX_PROBES, WriteRate, write_rate
from unit.broker.core.partition.test_lag import log_appended_at
from unit.broker.fake_log import FakeLog

NOW_MS = 100_000
# bytes of each appended batch
BYTES = 100


def test_a_steady_stream_has_its_rate() -> None:
    log = log_appended_at(*range(80_000, NOW_MS, 100))
    assert write_rate(log, NOW_MS) == WriteRate(BYTES * 10, BYTES * 10)


@pytest.mark.parametrize("ago_ms", [8_500, 5_000, 1_000])
def test_a_single_burst_is_no_stream(ago_ms: int) -> None:
    rate = write_rate(log_appended_at(*[NOW_MS - ago_ms] * 500), NOW_MS)
    assert rate is not None
    assert rate.usual == 0


def test_a_recent_stream_has_its_rate() -> None:
    rate = write_rate(log_appended_at(*range(95_500, NOW_MS, 100)), NOW_MS)
    assert rate is not None
    assert 0 < rate.usual < rate.most == BYTES * 10


def test_a_stream_of_bursts_has_its_rate() -> None:
    bursts = [time_ms for time_ms in range(85_500, NOW_MS, 2_000) for _ in range(20)]
    rate = write_rate(log_appended_at(*bursts), NOW_MS)
    assert rate is not None
    assert BYTES * 6 <= rate.usual <= rate.most <= BYTES * 14


def test_old_writes_do_not_count() -> None:
    assert write_rate(log_appended_at(*range(10_000, 20_000, 10)), NOW_MS) == (0, 0)


def test_an_empty_log_has_no_rate() -> None:
    assert write_rate(FakeLog(start=7), NOW_MS) == (0, 0)


def test_a_log_that_is_not_in_memory_has_no_known_rate() -> None:
    log = log_appended_at(*range(99_000, NOW_MS, 100))

    def cold(offset: int) -> int | None:  # noqa: ARG001
        return None

    log.append_time_of = cold  # type: ignore[method-assign]
    assert write_rate(log, NOW_MS) is None


def test_a_long_log_is_searched_within_the_bound() -> None:
    log = log_appended_at(*range(90_000, NOW_MS))
    probed: list[int] = []
    append_time_of = log.append_time_of

    def counted(offset: int) -> int | None:
        probed.append(offset)
        return append_time_of(offset)

    log.append_time_of = counted  # type: ignore[method-assign]
    assert write_rate(log, NOW_MS) == (BYTES * 1_000, BYTES * 1_000)
    assert len(probed) < MAX_PROBES
