"""The results: a table, and `out/bench-spark-read.json`, whose keys docs/reference/make-targets.md
explains. Pure, but for `write`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import Measured, at_least, at_most, machine, not_met, rows
from bench.spark_read.records import Totals, totals_of
from bench.spark_read.settings import FULL, Settings

TIDELOG, KAFKA = "tidelog", "kafka"
BATCH, STREAM = "batch", "stream"
WANTED_RATIO = 0.8
WANTED_ROWS_PER_SECOND = 300_000.0
# A peak is a random maximum: a longer measurement is more likely to see the moment when prefetched
# data (16 MiB) exist twice, as messages and as decoded rows. Memory itself does not grow: after 28
# million records a task had the same as after the first.
WANTED_GROWTH_MB = 32.0


@dataclass(frozen=True, slots=True)
class Reading:
    """`pair`: counted from 1, among those of the same `way`.
    `worker_peak_mb` and `processor_seconds` as in `driver.Answer`."""

    source: str
    way: str
    pair: int
    totals: Totals
    seconds: float
    worker_peak_mb: float
    processor_seconds: Mapping[str, float]

    @property
    def rows_per_second(self) -> float:
        return self.totals.rows / self.seconds


@dataclass(frozen=True, slots=True)
class OneTask:
    """A range of one partition, which one task has read."""

    totals: Totals
    worker_peak_mb: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """`set_up`: releases and settings of both sides, as texts.
    `short`, `long`: a tenth of a partition, and all of it."""

    settings: Settings
    set_up: Mapping[str, object]
    readings: Sequence[Reading]
    short: OneTask
    long: OneTask


def rates(readings: Sequence[Reading], source: str, way: str) -> list[float]:
    return [
        reading.rows_per_second
        for reading in sorted(readings, key=lambda reading: reading.pair)
        if (reading.source, reading.way) == (source, way)
    ]


def ratios(readings: Sequence[Reading], way: str) -> list[float]:
    """By pair, Tidelog's rows per second divided by Kafka's."""
    pairs = zip(rates(readings, TIDELOG, way), rates(readings, KAFKA, way), strict=True)
    return [ours / theirs for ours, theirs in pairs]


def miscounted(outcome: Outcome) -> list[str]:
    """The readings whose totals differ from the logs."""
    settings = outcome.settings
    of_all = totals_of(settings.records, settings.value_bytes)
    found = [
        f"{reading.source}, {reading.way} {reading.pair}: {reading.totals}, not {of_all}"
        for reading in outcome.readings
        if reading.totals != of_all
    ]
    for name, task, records in (
        ("a tenth of a partition", outcome.short, short_records(settings)),
        ("a partition", outcome.long, settings.task_records),
    ):
        wanted = totals_of(records, settings.value_bytes)
        if task.totals != wanted:
            found.append(f"{name}: {task.totals}, not {wanted}")
    return found


def short_records(settings: Settings) -> int:
    return settings.task_records // 10


def verdicts(outcome: Outcome) -> list[Measured]:
    """Speed has bounds only in the full form: in shorter ones the start is a large part of the
    time."""
    is_judged = outcome.settings.records >= FULL.records
    readings = outcome.readings
    rate = median(rates(readings, TIDELOG, BATCH))
    ratio = median(ratios(readings, BATCH))
    name, ratio_name = "Tidelog, batch", "Tidelog over Kafka, batch"
    growth_mb = outcome.long.worker_peak_mb - outcome.short.worker_peak_mb
    judged = [
        at_least(name, rate, WANTED_ROWS_PER_SECOND, "rows/s")
        if is_judged
        else Measured(name, rate, "rows/s"),
        at_least(ratio_name, ratio, WANTED_RATIO, "")
        if is_judged
        else Measured(ratio_name, ratio, ""),
        at_most("growth of a task's peak, tenfold range", growth_mb, WANTED_GROWTH_MB, "MB"),
    ]
    lines = [
        Measured("Kafka, batch", median(rates(readings, KAFKA, BATCH)), "rows/s"),
        Measured("Tidelog, stream", median(rates(readings, TIDELOG, STREAM)), "rows/s"),
        Measured("Kafka, stream", median(rates(readings, KAFKA, STREAM)), "rows/s"),
        Measured("Tidelog over Kafka, stream", median(ratios(readings, STREAM)), ""),
        Measured("peak of a task, short range", outcome.short.worker_peak_mb, "MB"),
        Measured("peak of a task, tenfold range", outcome.long.worker_peak_mb, "MB"),
    ]
    return [*judged, *lines]


def content(form: str, outcome: Outcome) -> dict[str, Any]:
    results = verdicts(outcome)
    return {
        "machine": machine(),
        "form": form,
        "settings": asdict(outcome.settings),
        "set_up": dict(outcome.set_up),
        "results": rows(results),
        "not_met": not_met(results),
        "miscounted": miscounted(outcome),
        "readings": [_reading(reading) for reading in outcome.readings],
        "one_task": [
            {"rows": task.totals.rows, "worker_peak_mb": round(task.worker_peak_mb, 1)}
            for task in (outcome.short, outcome.long)
        ],
    }


def write(directory: Path, what: Mapping[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    name = "bench-spark-read.json" if what["form"] == "full" else "bench-spark-read.partial.json"
    path = directory / name
    path.write_text(json.dumps(what, indent=2) + "\n")
    return path


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "source": reading.source,
        "way": reading.way,
        "pair": reading.pair,
        **reading.totals._asdict(),
        "seconds": round(reading.seconds, 3),
        "rows_per_second": round(reading.rows_per_second),
        "worker_peak_mb": round(reading.worker_peak_mb, 1),
        "processor_seconds": dict(reading.processor_seconds),
    }
