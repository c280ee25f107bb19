"""Kafka's own performance tools: their commands, and the parsing of their output. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END = "org.apache.kafka.tools.EndToEndLatency"

_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", re.M)
_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99\.9th = ([\d.]+)")


class ToolError(Exception):
    """A tool has failed, or has printed unexpected output; `str(error)` has that output."""


def producing(
    bootstrap: str,
    topic: str,
    records: int,
    record_bytes: int,
    settings: Mapping[str, str],
    warm_up: int,
) -> list[str]:
    properties = {"bootstrap.servers": bootstrap, **settings}
    return [
        "--topic",
        topic,
        "--num-records",
        str(records + warm_up),
        "--warmup-records",
        str(warm_up),
        "--record-size",
        str(record_bytes),
        "--throughput",
        "-1",
        "--command-property",
        *(f"{name}={value}" for name, value in properties.items()),
    ]


def records_per_second(output: str) -> float:
    """From the last summary line of the producing tool, after its warm-up."""
    found = _SENT.findall(output)
    if not found:
        raise ToolError(output)
    return float(found[-1][1])


def consuming(bootstrap: str, topic: str, records: int) -> list[str]:
    command = ("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records))
    return [*command, "--timeout", "30000"]


def fetched_per_second(output: str) -> float:
    """Records per second of the consuming tool, without the time of group balancing."""
    lines = [line for line in output.splitlines() if line.count(",") >= 9]
    rows = list(csv.DictReader(lines, skipinitialspace=True))
    if not rows:
        raise ToolError(output)
    return float(rows[-1]["fetch.nMsg.sec"])


def end_to_end(bootstrap: str, topic: str, records: int, record_bytes: int) -> list[str]:
    return [bootstrap, topic, str(records), "all", str(record_bytes)]


def latencies(output: str) -> Sequence[float]:
    """p50, p99 and p99.9 in milliseconds, to the consumer."""
    found = _PERCENTILES.search(output)
    if found is None:
        raise ToolError(output)
    return [float(value) for value in found.groups()]
