"""The traffic of brokers, from their metrics. Parsing is pure."""

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
# The burst that a throttle lets pass after a pause, in seconds of its rate.
THROTTLE_BURST_S = 0.2


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one broker in bytes: received from producers, received from leaders, and sent
    to followers since its start; and the current size of its logs."""

    produced: float
    replica_in: float
    replica_out: float
    log_size: float


class Sample(NamedTuple):
    """The traffic of all brokers. `at_s`: in seconds of one monotonic clock."""

    at_s: float
    brokers: Mapping[int, Traffic]


def parse_traffic(text: str) -> Traffic:
    """Parses metrics. Raises `ValueError` for those of another service."""
    flows = {flow: float(value) for flow, value in _BYTES.findall(text)}
    log_size = _LOG_SIZE.search(text)
    missing = {"produce", "replica_in", "replica_out"} - flows.keys()
    if missing or log_size is None:
        raise ValueError(f"no bytes of {sorted(missing)}, or no log size, among the metrics")
    return Traffic(flows["produce"], flows["replica_in"], flows["replica_out"], float(log_size[1]))


async def scrape(addresses: Mapping[int, str]) -> Sample:
    """Scrapes one broker after another. Prometheus distributes its targets over an interval, too:
    concurrent scrapes would keep every core busy and delay the measured requests."""
    at_s = time.perf_counter()
    traffic = {}
    for broker, address in addresses.items():
        traffic[broker] = parse_traffic(await asyncio.to_thread(_read, address))
    return Sample(at_s, traffic)


def copied_bytes(
    before: Mapping[int, Traffic], after: Mapping[int, Traffic], replication_factor: int
) -> tuple[float, float]:
    """Returns the bytes that leaders sent, and those that followers received, without the copies of
    produced data.

    All topics have this factor. Data that were copied twice count twice. Data for a follower that
    had given up count only as sent.
    """
    produced = sum(after[b].produced - before[b].produced for b in before)
    of_load = (replication_factor - 1) * produced
    sent = sum(after[b].replica_out - before[b].replica_out for b in before)
    received = sum(after[b].replica_in - before[b].replica_in for b in before)
    return sent - of_load, received - of_load


def peaks(samples: Sequence[Sample], throttle: int) -> tuple[float, float]:
    """Returns two maxima over all intervals between samples.

    The first is the highest rate at which a broker received, in bytes per second. The second is the
    ratio of received bytes to those that the throttle and the load allow: at most the entire load.
    """
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
