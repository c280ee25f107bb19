"""The results of `make bench-spark-read`: a table, and `out/bench-spark-read.json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.report import Measured, at_least, at_most, document
from bench.spark_read.records import Totals, totals_of
from bench.spark_read.settings import FULL, Settings

TIDELOG, KAFKA = "tidelog", "kafka"
BATCH, STREAM = "batch", "stream"
MIN_RATIO = 0.8
MIN_ROWS_PER_SECOND = 300_000.0
# A peak is a random maximum: a longer measurement is more likely to see the moment when prefetched
# data (16 MiB) exist twice, as messages and as decoded rows. Memory itself does not grow: after 28
# million records a task had the same as after the first.
MAX_GROWTH_MB = 32.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of all records. `pair`: counted from 1, among those of the same `way`."""

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
    """The measured values.

    - `set_up`: versions and settings of both sides, as texts.
    - `short`, `long`: a tenth of a partition, and all of it.
    """

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
    """Returns Tidelog's rows per second divided by Kafka's, by pair."""
    pairs = zip(rates(readings, TIDELOG, way), rates(readings, KAFKA, way), strict=True)
    return [ours / theirs for ours, theirs in pairs]


def miscounted(outcome: Outcome) -> list[str]:
    """Returns the readings whose totals differ from the logs."""
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
        expected = totals_of(records, settings.value_bytes)
        if task.totals != expected:
            found.append(f"{name}: {task.totals}, not {expected}")
    return found


def short_records(settings: Settings) -> int:
    return settings.task_records // 10


def verdicts(outcome: Outcome) -> list[Measured]:
    """Speed has bounds only in the full form: in shorter ones, most of the time is the start."""
    has_bounds = outcome.settings.records >= FULL.records
    readings = outcome.readings
    rate = median(rates(readings, TIDELOG, BATCH))
    ratio = median(ratios(readings, BATCH))
    name, ratio_name = "Tidelog, batch", "Tidelog over Kafka, batch"
    growth_mb = outcome.long.worker_peak_mb - outcome.short.worker_peak_mb
    bounded = [
        at_least(name, rate, MIN_ROWS_PER_SECOND, "rows/s")
        if has_bounds
        else Measured(name, rate, "rows/s"),
        at_least(ratio_name, ratio, MIN_RATIO, "")
        if has_bounds
        else Measured(ratio_name, ratio, ""),
        at_most("growth of a task's peak, tenfold range", growth_mb, MAX_GROWTH_MB, "MB"),
    ]
    lines = [
        Measured("Kafka, batch", median(rates(readings, KAFKA, BATCH)), "rows/s"),
        Measured("Tidelog, stream", median(rates(readings, TIDELOG, STREAM)), "rows/s"),
        Measured("Kafka, stream", median(rates(readings, KAFKA, STREAM)), "rows/s"),
        Measured("Tidelog over Kafka, stream", median(ratios(readings, STREAM)), ""),
        Measured("peak of a task, short range", outcome.short.worker_peak_mb, "MB"),
        Measured("peak of a task, tenfold range", outcome.long.worker_peak_mb, "MB"),
    ]
    return [*bounded, *lines]


def content(form: str, outcome: Outcome) -> dict[str, Any]:
    """Returns the keys of the file. `results` has medians of rows per second by source and way,
    their ratios as medians of pairs, and the peak memory of a task.

    - `set_up`: versions of Spark, of its source for Kafka and of Kafka; settings of Kafka's brokers
      and their JVM.
    - `miscounted`: readings that did not return exactly the written records.
    - `readings`: each reading; see below.
    - `one_task`: `rows` and `worker_peak_mb` of the two readings of a topic with one partition.
    """
    return {
        **document(form, asdict(outcome.settings), verdicts(outcome)),
        "set_up": dict(outcome.set_up),
        "miscounted": miscounted(outcome),
        "readings": [reading_as_json(reading) for reading in outcome.readings],
        "one_task": [
            {"rows": task.totals.rows, "worker_peak_mb": round(task.worker_peak_mb, 1)}
            for task in (outcome.short, outcome.long)
        ],
    }


def reading_as_json(reading: Reading) -> dict[str, Any]:
    """Returns the keys of a reading.

    - `source`: `tidelog` or `kafka`.
    - `way`: `batch` (`spark.read`) or `stream` (`spark.readStream` with `availableNow`).
    - `pair`: the number of the pair, counted from 1.
    - `rows`, `key_bytes`, `value_bytes`: totals of all rows.
    - `seconds`, `rows_per_second`: the duration and the speed.
    - `worker_peak_mb`: resident memory of the largest Python worker; 0: there was none.
    - `processor_seconds`: of Spark's JVM, of its Python workers, and of both clusters.
    """
    return {
        "source": reading.source,
        "way": reading.way,
        "pair": reading.pair,
        "rows": reading.totals.rows,
        "key_bytes": reading.totals.key_bytes,
        "value_bytes": reading.totals.value_bytes,
        "seconds": round(reading.seconds, 3),
        "rows_per_second": round(reading.rows_per_second),
        "worker_peak_mb": round(reading.worker_peak_mb, 1),
        "processor_seconds": dict(reading.processor_seconds),
    }
