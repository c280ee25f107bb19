"""The results of each way of producing, and their bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.report import Measured, at_least, at_most, of_ceiling
from bench.suite.matrix import AT_ONCE_BY_LEADER, ONE_REPLICA, USUAL, Case, size_text
from bench.suite.outcome import Chart, Line, Outcome, Point

# Shares of C for the usual case with factor 3 and with factor 1; the share of acks=all in acks=1.
MIN_RATIO = {USUAL: 1 / 4, ONE_REPLICA: 1 / 2}
MIN_SHARE_OF_ACKS_1 = 0.55
MAX_MEMORY_MB = 200.0


@dataclass(frozen=True, slots=True)
class Found:
    """The measured values of a case.

    - `ceiling`, `mb_per_second`: 10^6 bytes per second of values before compression.
    - `ratio`: the median of pairs.
    - `..._cpu_s_per_gb`: processor seconds of all brokers, and of the producing process.
    """

    case: Case
    ceiling: float
    mb_per_second: float
    records_per_second: float
    ratio: float
    failed: int
    brokers_cpu_s_per_gb: float
    client_cpu_s_per_gb: float

    def as_json(self) -> dict[str, object]:
        rest = asdict(self)
        del rest["case"]
        return self.case.as_json() | {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in rest.items()
        }


def outcome(found: Sequence[Found], larger: Mapping[int, float], memory_mb: float) -> Outcome:
    """Returns the outcome.

    - `larger`: ceilings with messages of other sizes, by size.
    - `memory_mb`: the peak memory of a broker.
    """
    by_case = {one.case: one for one in found}
    ceilings = [one.ceiling for one in found]
    results = [
        Measured("gRPC ceiling C, 64 KiB messages, 8 in flight", median(ceilings), "MB/s"),
        *(
            Measured(f"gRPC ceiling, {size_text(size)} messages", speed, "MB/s")
            for size, speed in larger.items()
        ),
        *map(_measured, found),
    ]
    if USUAL in by_case and AT_ONCE_BY_LEADER in by_case:
        share = by_case[USUAL].mb_per_second / by_case[AT_ONCE_BY_LEADER].mb_per_second
        results.append(
            at_least("acks=all of acks=1, 1 KiB, factor 3", share, MIN_SHARE_OF_ACKS_1, "")
        )
    results += [
        at_most("records that were not acknowledged", sum(one.failed for one in found), 0, ""),
        at_most(
            "broker memory under load, largest of three (peak RSS)",
            memory_mb,
            MAX_MEMORY_MB,
            "MB",
        ),
    ]
    details = {
        "cases": [one.as_json() for one in found],
        "larger_ceilings": {str(size): round(speed, 1) for size, speed in larger.items()},
    }
    return Outcome(results, charts(found), details)


def _measured(found: Found) -> Measured:
    name = f"produce {found.case.name}"
    bound = MIN_RATIO.get(found.case)
    if bound is None:
        return Measured(name, found.mb_per_second, "MB/s", found.ratio)
    return of_ceiling(name, found.mb_per_second, found.ratio, bound, "MB/s")


def charts(found: Sequence[Found]) -> list[Chart]:
    """Returns charts of the share of C over the size of a record.

    There is one chart for each compression and number of partitions, with a line for each case that
    was measured with several sizes.
    """
    several: dict[Case, list[Found]] = {}
    for one in found:
        if not one.case.by_record:
            several.setdefault(one.case._replace(record_bytes=0), []).append(one)
    pictures: dict[tuple[str, int], list[Line]] = {}
    for case, of_line in several.items():
        if len(of_line) > 1:
            label = f"acks={case.as_json()['acks']}, factor {case.factor}"
            points = sorted(Point(one.case.record_bytes, one.ratio) for one in of_line)
            key = case.codec.name.lower(), case.partitions
            pictures.setdefault(key, []).append(Line(label, points))
    return [
        Chart(
            name=f"throughput-{codec}-{partitions}",
            title=f"Producing: {partitions} partitions, compression {codec}",
            x="bytes of a record",
            y="of the no-op ceiling C",
            lines=lines,
            x_log=True,
        )
        for (codec, partitions), lines in pictures.items()
    ] + _one_parameter_changed(found)


def _one_parameter_changed(found: Sequence[Found]) -> list[Chart]:
    """Returns a chart of the usual case and those that differ from it in one parameter."""
    near = [one for one in found if _differences(one.case) <= 1]
    if len(near) < 2 or len(found) > len(near):
        return []
    line = Line("", [Point(number, one.mb_per_second) for number, one in enumerate(near)])
    names = [one.case.name for one in near]
    title = "Producing: the usual case, with one parameter changed"
    return [Chart("throughput", title, "", "MB/s", [line], ticks=names)]


def _differences(case: Case) -> int:
    return sum(one != other for one, other in zip(case, USUAL, strict=True))
