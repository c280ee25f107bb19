"""The kills of a copy, and the check of its result: `out/spark-kills.json`.

records, partitions, master, seconds: what was copied, by which Spark, and how long it took
by_key: keys chose the partitions of the copy; otherwise each record kept its partition
drivers: how many were started, one for each killed one and the first
kills: {target: {point: how many}}; target is driver or executor, point one of `points.Point`
batches: {batch id: how many processes were killed in it}
counts: {source, target, table: records}
hashes: {source, target, table: of all keys and values in their order; by key, without order}
lost, duplicated: {target, table: records of the source that are missing, or there repeatedly}
passed: counts and hashes are equal, nothing is lost or duplicated, and every kill was made"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.spark_kills.points import Point, Target
from bench.spark_kills.records import Found, compared


class Kill(NamedTuple):
    """`seconds`: until the point was reached and the kill was done."""

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


def content(outcome: Outcome, wanted: Iterable[tuple[Target, Point]]) -> dict[str, Any]:
    done = Counter((kill.target, kill.point) for kill in outcome.kills)
    found = {"source": outcome.source, "target": outcome.target, "table": outcome.table}
    missing = {name: compared(outcome.source, found[name]) for name in ("target", "table")}
    document: dict[str, Any] = {
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
        "counts": {name: int(one.numbers.size) for name, one in found.items()},
        "hashes": {name: one.digest for name, one in found.items()},
        "lost": {name: one.lost for name, one in missing.items()},
        "duplicated": {name: one.duplicated for name, one in missing.items()},
    }
    document["passed"] = (
        done == Counter(wanted)
        and set(document["counts"].values()) == {outcome.records}
        and len(set(document["hashes"].values())) == 1
        and not any((*document["lost"].values(), *document["duplicated"].values()))
    )
    return document


def write(directory: Path, content: dict[str, Any], form: str) -> Path:
    directory.mkdir(exist_ok=True)
    by_key = "-by-key" if content["by_key"] else ""
    name = f"spark-kills{by_key}.json" if form == "full" else f"spark-kills{by_key}.{form}.json"
    path = directory / name
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
