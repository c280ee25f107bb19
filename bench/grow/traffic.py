"""What brokers have carried, from what Prometheus would scrape. Parsing is pure."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_BYTES = re.compile(r'^tidelog_data_bytes_total\{(?:[^}]*,)?flow="(\w+)"[^}]*\} (\S+)', re.M)
_LOG_SIZE = re.compile(r"^tidelog_log_size_bytes(?:\{[^}]*\})? (\S+)", re.M)
_TIMEOUT_S = 30.0
# What a throttle lets pass at once after a pause, in seconds of its rate.
THROTTLE_BURST_S = 0.2


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one broker, in bytes: got from producers, got from leaders and sent to followers since
    its start, and what its logs hold now."""

    produced: float
    replica_in: float
    replica_out: float
    log_size: float


class Sample(NamedTuple):
    """All brokers at a time, in seconds of one monotonic clock."""

    at_s: float
    brokers: Mapping[int, Traffic]


def parse_traffic(text: str) -> Traffic:
    """Raises `ValueError` for what is not a broker's."""
    flows = {flow: float(value) for flow, value in _BYTES.findall(text)}
    log_size = _LOG_SIZE.search(text)
    missing = {"produce", "replica_in", "replica_out"} - flows.keys()
    if missing or log_size is None:
        raise ValueError(f"no bytes of {sorted(missing)}, or no log size, among the metrics")
    return Traffic(flows["produce"], flows["replica_in"], flows["replica_out"], float(log_size[1]))


async def scrape(addresses: Mapping[int, str]) -> Sample:
    """One after the other, as Prometheus does it, which spreads its targets over an interval: all
    at once they would keep every core busy, and requests would wait for what measures them."""
    at_s = time.perf_counter()
    traffic = {}
    for broker, address in addresses.items():
        traffic[broker] = parse_traffic(await asyncio.to_thread(_read, address))
    return Sample(at_s, traffic)


def copied_bytes(
    before: Mapping[int, Traffic], after: Mapping[int, Traffic], replication_factor: int
) -> tuple[float, float]:
    """What leaders sent and what followers got, beyond what producers sent meanwhile to each of
    its followers. All topics have this factor. What was copied twice counts twice; what was
    sent to a follower that had given up is in the former alone."""
    produced = sum(after[b].produced - before[b].produced for b in before)
    of_load = (replication_factor - 1) * produced
    sent = sum(after[b].replica_out - before[b].replica_out for b in before)
    received = sum(after[b].replica_in - before[b].replica_in for b in before)
    return sent - of_load, received - of_load


def peaks(samples: Sequence[Sample], throttle: int) -> tuple[float, float]:
    """Of all stretches between two samples: bytes per second of the broker that received most,
    and how much that was of what throttle and load let it receive: at most all of the load."""
    fastest = most = 0.0
    for earlier, later in pairwise(samples):
        seconds = later.at_s - earlier.at_s
        before, after = earlier.brokers, later.brokers
        produced = sum(after[b].produced - before[b].produced for b in before)
        received = max(after[b].replica_in - before[b].replica_in for b in before)
        fastest = max(fastest, received / seconds)
        most = max(most, received / (throttle * (seconds + THROTTLE_BURST_S) + produced))
    return fastest, most


def _read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_TIMEOUT_S) as response:
        text: str = response.read().decode()
    return text
