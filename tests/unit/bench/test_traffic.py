"""Network traffic of brokers."""

import pytest

from bench.grow.processor import ProcessorTime, cores
from bench.grow.traffic import (
    THROTTLE_BURST_S,
    Sample,
    Traffic,
    copied_bytes,
    parse_traffic,
    peaks,
)

METRICS = """\
# HELP tidelog_data_bytes_total Bytes of records
# TYPE tidelog_data_bytes_total counter
tidelog_data_bytes_total{flow="produce"} 1.5e+06
tidelog_data_bytes_total{flow="fetch"} 7.0
tidelog_data_bytes_total{flow="replica_out"} 300.0
tidelog_data_bytes_total{flow="replica_in"} 200.0
tidelog_log_size_bytes 4096.0
tidelog_topic_log_size_bytes{topic="sea"} 1.0
"""


def test_metrics_have_the_bytes_of_each_flow_and_of_the_logs() -> None:
    assert parse_traffic(METRICS) == Traffic(1.5e6, 200, 300, 4096)


def test_foreign_metrics_are_rejected() -> None:
    with pytest.raises(ValueError, match="replica_in"):
        parse_traffic("up 1\n")


def test_copied_bytes_exclude_the_load() -> None:
    before = {1: Traffic(100, 50, 0, 0), 2: Traffic(0, 0, 0, 0), 3: Traffic(0, 0, 0, 0)}
    # Ten were produced and sent to two followers; of nine that were sent, seven were copies.
    after = {1: Traffic(110, 50, 29, 0), 2: Traffic(0, 10, 0, 0), 3: Traffic(0, 17, 0, 0)}

    assert copied_bytes(before, after, 3) == (9, 7)


def received(at_s: float, *replica_in: float, produced: float = 0) -> Sample:
    return Sample(at_s, {b: Traffic(produced, r, 0, 0) for b, r in enumerate(replica_in)})


def test_the_peak_rate_of_the_busiest_broker_is_used() -> None:
    samples = [received(0, 0, 0), received(2, 100, 40), received(4, 150, 440)]

    fastest, _ = peaks(samples, 1000)

    assert fastest == 200


def test_a_throttle_allows_its_rate_a_burst_at_once_and_the_load() -> None:
    samples = [received(0, 0), received(2, 300, produced=50)]

    assert peaks(samples, 100)[1] == 300 / (200 + 100 * THROTTLE_BURST_S + 50)


def test_processor_time_is_reported_in_cores() -> None:
    before = ProcessorTime(10.0, {"brokers": 3.0, "etcd": 1.0})
    after = ProcessorTime(14.0, {"brokers": 9.0, "etcd": 1.5})

    assert cores(before, after) == {"brokers": 1.5, "etcd": 0.125}
