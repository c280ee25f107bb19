"""The approximate duration of the parts. Pure."""

from __future__ import annotations

from bench.suite import matrix
from bench.suite.durability import DURABILITIES, IN_FLIGHT
from bench.suite.settings import Settings

# Seconds until a cluster is ready, and until it has stopped.
CLUSTER_S = 6.0
TOPIC_S = 0.4
FOLLOWING_S = 1.7
# The write and read rates of a machine with two cores, in 10^6 bytes per second.
WRITES_MB, READS_MB, READS_RECORDS_MB = 60.0, 300.0, 80.0
# For a real cluster, without fixed waits, and for each 1,000 partitions.
SIZE_S, SIZE_S_EACH_1000 = 32.0, 17.0
ALONE_S, ALONE_S_EACH_1000 = 1.2, 0.28
SLOW_S = {"restart": 60.0, "rolling": 60.0, "history": 40.0}


def seconds(part: str, settings: Settings) -> float:
    match part:
        case "throughput":
            return _throughput(settings)
        case "reading":
            return _reading(settings)
        case "latency":
            each = settings.one_in_flight_s + TOPIC_S
            at_rates = len(settings.rates) * (settings.open_loop_s + 1 + TOPIC_S + FOLLOWING_S)
            return 3 * each + FOLLOWING_S + at_rates
        case "durability":
            each = settings.in_flight_s + TOPIC_S
            return len(IN_FLIGHT) * len(DURABILITIES) * settings.repeats * each
        case "scale":
            by_clock = 2 * settings.settle_s + settings.idle_s + SIZE_S
            return sum(by_clock + SIZE_S_EACH_1000 * size / 1000 for size in settings.sizes)
        case "alone":
            return sum(ALONE_S + ALONE_S_EACH_1000 * size / 1000 for size in settings.alone_sizes)
        case _:
            return SLOW_S[part]


def text(seconds_in_total: float) -> str:
    """
    >>> text(50), text(100), text(3700)
    ('50 s', '2 min', '1 h 2 min')
    """
    if seconds_in_total < 60:
        return f"{seconds_in_total:.0f} s"
    minutes = -(-int(seconds_in_total) // 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _throughput(settings: Settings) -> float:
    cases = matrix.cases(all_of_them=settings.matrix)
    each = settings.repeats * (settings.ceiling_s + settings.produce_s + 0.5) + TOPIC_S
    return len(cases) * each + 2 * settings.ceiling_s


def _reading(settings: Settings) -> float:
    size = settings.read_mb
    each = settings.ceiling_s + 3 * size / READS_MB + size / READS_RECORDS_MB
    both = 3 * (settings.ceiling_s + settings.produce_s + FOLLOWING_S + TOPIC_S)
    return size / WRITES_MB + settings.repeats * each + both
