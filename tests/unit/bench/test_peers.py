"""The same workload on peers: tool output, server setup and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bench.peers import kafka_tools, results
from bench.peers.kafka_tools import ToolError
from bench.peers.nats_settings import Server, configuration
from bench.peers.results import Done
from bench.peers.settings import (
    FULL,
    KAFKA,
    KAFKA_TOOLS,
    NATS,
    ONE_IN_FLIGHT,
    PRODUCE_ALL,
    QUICK,
    RECORDS,
    SPEED,
    TIDELOG,
)
from bench.report import Measured, missed_names

PRODUCER_SAID = """\
100000 records sent, 60000.0 records/sec (58.59 MB/sec), 10.0 ms avg latency, 90.0 ms max latency.
600000 records sent, 71000.5 records/sec (69.34 MB/sec), 4.1 ms avg latency, 95.0 ms max latency, \
3 ms 50th, 9 ms 95th, 20 ms 99th, 60 ms 99.9th.
"""
CONSUMER_SAID = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-23 22:00:00:000, 2026-11-23 22:00:02:000, 57.2, 28.6, 58594, 29297.0, 500, 1500, 38.1, \
39062.6
"""
END_TO_END_SAID = "0\t3.1\nAvg latency: 2.5 ms\nPercentiles: 50th = 2, 99th = 7, 99.9th = 12\n"


def test_the_last_summary_of_the_producer_tool_is_used() -> None:
    assert kafka_tools.records_per_second(PRODUCER_SAID) == 71000.5


def test_the_consumer_tool_is_timed_without_its_group_setup() -> None:
    assert kafka_tools.fetched_per_second(CONSUMER_SAID) == 39062.6


def test_the_latency_tool_yields_three_percentiles() -> None:
    assert kafka_tools.latencies(END_TO_END_SAID) == [2.0, 7.0, 12.0]


@pytest.mark.parametrize(
    "read",
    [kafka_tools.records_per_second, kafka_tools.fetched_per_second, kafka_tools.latencies],
)
def test_unexpected_tool_output_is_reported(read: object) -> None:
    assert callable(read)
    with pytest.raises(ToolError, match="no such topic"):
        read("no such topic")


def test_warm_up_records_are_sent_besides_measured_ones() -> None:
    words = kafka_tools.producing("k:1", "sea", 500, 1024, {"acks": "all"}, 100)
    given = dict(zip(words[:-3:2], words[1:-2:2], strict=True))
    assert (given["--num-records"], given["--warmup-records"]) == ("600", "100")
    assert words[-2:] == ["bootstrap.servers=k:1", "acks=all"]


def test_every_server_of_nats_knows_the_routes_of_all() -> None:
    servers = [Server("nats-1", 1, 2), Server("nats-2", 3, 4)]
    text = configuration(servers[1], servers, "/data")
    assert 'listen: "127.0.0.1:3"' in text
    assert 'routes: ["nats://127.0.0.1:2", "nats://127.0.0.1:4"]' in text
    assert 'store_dir: "/data"' in text


def found(speeds: Mapping[str, float], pairs: int = FULL.pairs) -> list[Measured]:
    """Measurements of all peers. `speeds`: those that differ from the common speed of 100."""
    done = [
        Done(work, peer, number, {SPEED: speeds.get(f"{work}|{peer}", 100.0)})
        for number in range(1, pairs + 1)
        for work, peers in (
            (PRODUCE_ALL, (TIDELOG, KAFKA, KAFKA_TOOLS, NATS)),
            (RECORDS, (TIDELOG, KAFKA)),
        )
        for peer in peers
    ]
    done += [
        Done(ONE_IN_FLIGHT, peer, number, {"p50": 1.0, "p99": speeds.get(f"p99|{peer}", 5.0)})
        for number in range(1, pairs + 1)
        for peer in (TIDELOG, KAFKA, NATS)
    ]
    return results.verdicts(replace(FULL, pairs=pairs), done, [500.0])


def test_equal_speed_meets_the_target() -> None:
    assert missed_names(found({})) == []


@pytest.mark.parametrize(
    "slow",
    [
        {f"{PRODUCE_ALL}|{KAFKA}": 101.0},
        {f"{PRODUCE_ALL}|{KAFKA_TOOLS}": 101.0},
        {f"{RECORDS}|{KAFKA}": 101.0},
        {f"p99|{KAFKA}": 4.9},
    ],
)
def test_each_faster_peer_is_reported(slow: dict[str, float]) -> None:
    (missed,) = missed_names(found(slow))
    assert f"Tidelog over {next(iter(slow)).partition('|')[2]}" in missed


def test_nats_is_a_ratio_without_a_bound_and_the_quick_form_has_none() -> None:
    assert missed_names(found({f"{PRODUCE_ALL}|{NATS}": 900.0})) == []
    assert missed_names(found({f"{PRODUCE_ALL}|{KAFKA}": 900.0}, QUICK.pairs)) == []


def test_unacknowledged_records_fail_the_whole_run() -> None:
    done = [Done(PRODUCE_ALL, TIDELOG, 1, {SPEED: 1.0, "failed": 2.0})]
    missed = missed_names(results.verdicts(QUICK, done, [1.0]))
    assert missed == ["records that were not acknowledged"]
