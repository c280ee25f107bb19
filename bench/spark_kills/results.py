"""The kills of a copy, and the check of its result: `out/spark-kills.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import write_json
from bench.spark_kills.points import Point, Target
from bench.spark_kills.records import Found, compare


class Kill(NamedTuple):
    """A kill. `seconds`: until the point was reached and the kill was done."""

    target: Target
    point: Point
    batch_id: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    records: int
    partitions: int
    master: str
    seconds: float
    drivers: int
    kills: tuple[Kill, ...]
    by_key: bool
    source: Found
    target: Found
    table: Found


def content(outcome: Outcome, schedule: Iterable[tuple[Target, Point]]) -> dict[str, Any]:
    """Returns the keys of the file.

    - `records`, `partitions`, `master`, `seconds`: the copied records, Spark's master, and the
      duration.
    - `by_key`: keys chose the partitions of the copy; otherwise each record kept its partition.
    - `drivers`: the number of started drivers: the first one, and one for each that was killed.
    - `kills`: by target (`driver`, `executor`) and point (see `points.Point`), how many were made.
    - `batches`: by id of the micro-batch, how many processes were killed in it.
    - `counts`: the number of records in `source`, `target` and `table`.
    - `hashes`: of all keys and values in `source`, `target` and `table`, in the order of their
      offsets; with `by_key`, independent of the order.
    - `lost`, `duplicated`: in `target` and `table`, how many records of the source are missing, or
      exist more than once.
    - `passed`: counts and hashes are equal, no record is lost or duplicated, and all kills were
      made.
    """
    done = Counter((kill.target, kill.point) for kill in outcome.kills)
    found = {"source": outcome.source, "target": outcome.target, "table": outcome.table}
    missing = {name: compare(outcome.source, found[name]) for name in ("target", "table")}
    counts = {name: int(one.numbers.size) for name, one in found.items()}
    return {
        "records": outcome.records,
        "partitions": outcome.partitions,
        "master": outcome.master,
        "seconds": outcome.seconds,
        "by_key": outcome.by_key,
        "drivers": outcome.drivers,
        "kills": {
            target.value: {point.value: done[target, point] for point in Point} for target in Target
        },
        "batches": dict(sorted(Counter(kill.batch_id for kill in outcome.kills).items())),
        "counts": counts,
        "hashes": {name: one.digest for name, one in found.items()},
        "lost": {name: one.lost for name, one in missing.items()},
        "duplicated": {name: one.duplicated for name, one in missing.items()},
        "passed": done == Counter(schedule)
        and set(counts.values()) == {outcome.records}
        and len({one.digest for one in found.values()}) == 1
        and not any(one.lost or one.duplicated for one in missing.values()),
    }


def write(directory: Path, content: dict[str, Any], form: str) -> Path:
    by_key = "-by-key" if content["by_key"] else ""
    suffix = ".json" if form == "full" else f".{form}.json"
    return write_json(directory / f"spark-kills{by_key}{suffix}", content)
