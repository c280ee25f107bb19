"""Results by size: a row for each quantity, a column for each size. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.report import Measured

_OF_SIZE = re.compile(r"^([\d,]+) partitions: (.*)$", re.S)


def name_of(partitions: int, text: str) -> str:
    return f"{partitions:,} partitions: {text}"


class Row(NamedTuple):
    text: str
    unit: str
    target: str
    by_size: Mapping[int, Measured]


class BySize(NamedTuple):
    sizes: Sequence[int]
    rows: Sequence[Row]


def arranged(results: Iterable[Measured]) -> tuple[BySize, Sequence[Measured]]:
    """Returns the results by size, and the results that belong to no size."""
    rows: dict[str, dict[int, Measured]] = {}
    others = []
    for result in results:
        match = _OF_SIZE.match(result.name)
        if match is None:
            others.append(result)
        else:
            size = int(match[1].replace(",", ""))
            rows.setdefault(match[2], {})[size] = result
    sizes = sorted({size for row in rows.values() for size in row})
    return BySize(sizes, [_row(text, row) for text, row in rows.items()]), others


def _row(text: str, by_size: Mapping[int, Measured]) -> Row:
    units = {result.unit for result in by_size.values()}
    target = "; ".join(
        f"{result.target} at {size:,}" for size, result in by_size.items() if result.target
    )
    return Row(text, units.pop() if len(units) == 1 else "", target, by_size)
