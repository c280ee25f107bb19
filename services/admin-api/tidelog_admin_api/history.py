"""The history of a cluster's figures, in a ring of samples of bounded size. Pure.

Samples of the last FINE_MS are kept as they were taken. Older ones are merged into one for each
COARSE_STEP_MS, by the rule of each figure: rates by their mean, counts and lags by their highest
value, so that a short peak stays visible, and sizes by their last value.

A sample is one array of numbers for each rule, with a column for each series. So 9,000 series cost
36 to 72 kB a sample, and no objects.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_admin_api.history_figures import LAG, Key

FINE_MS = 300_000
COARSE_STEP_MS = 10_000
HISTORY_MS = 3_600_000
MAX_FINE_SAMPLES = 200
MAX_COARSE_SAMPLES = HISTORY_MS // COARSE_STEP_MS
# Series of followers' lags, and series of the other figures for each rule. Those of followers
# beyond it are not kept.
MAX_LAG_SERIES = 20_000
MAX_SERIES = 5_000
# Beyond it the oldest samples go, so that the history becomes shorter.
MAX_BYTES = 48 << 20
# A clock that goes back by more than this makes the history begin again.
MAX_CLOCK_STEP_MS = 5_000

# All figures are 0 or more.
_UNKNOWN = -1.0
_ROW_BYTES = 400
# Key, column and entry of the table.
_SERIES_BYTES = 350

_MEAN = ("records_per_second", "bytes_per_second")
_HIGHEST = ("under_replicated", "without_leader", "max_lag_records")


class Sample(NamedTuple):
    """Known figures at one time.

    - `at_ms`: by the wall clock
    - `follows`: whether the sample before is the previous one; False: there is a gap between them
    """

    at_ms: int
    follows: bool
    figures: Mapping[Key, float]
    lags: Mapping[Key, float]


class Points(NamedTuple):
    """`values`: of each requested series, one for each time. None: not known."""

    times_ms: list[int]
    values: list[list[int | float | None]]


class _Row(NamedTuple):
    """`first_ms`: time of the first of the merged samples; `at_ms`: of the last."""

    first_ms: int
    at_ms: int
    follows: bool
    blocks: tuple[array[float], ...]

    @property
    def size_bytes(self) -> int:
        return _ROW_BYTES + sum(len(block) * block.itemsize for block in self.blocks)


@dataclass(slots=True)
class _Column:
    """The place of a series. Values of earlier rows are those of a series that had it before."""

    index: int
    since_ms: int
    seen_ms: int


class _Block:
    """The series of one rule.

    - `typecode`: of the arrays. Single precision is exact up to 16.7 million records.
    """

    def __init__(
        self,
        typecode: str,
        max_series: int,
        merge: Callable[[Sequence[array[float]]], array[float]],
    ) -> None:
        self._typecode = typecode
        self._max_series = max_series
        self._merge = merge
        # The series seen last is at the end.
        self._columns: OrderedDict[Key, _Column] = OrderedDict()

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, figures: Mapping[Key, float], at_ms: int) -> array[float]:
        places = [self._place(key, at_ms) for key in figures]
        row = array(self._typecode, [_UNKNOWN]) * len(self._columns)
        for place, value in zip(places, figures.values(), strict=True):
            if place is not None:
                row[place] = value
        return row

    def _place(self, key: Key, at_ms: int) -> int | None:
        column = self._columns.get(key)
        if column is None:
            index = len(self._columns)
            if index >= self._max_series:
                # The series that was not seen for the longest time gives its place.
                oldest = next(iter(self._columns.values()))
                if oldest.seen_ms >= at_ms:
                    return None
                self._columns.popitem(last=False)
                index = oldest.index
            column = self._columns[key] = _Column(index, at_ms, at_ms)
        column.seen_ms = at_ms
        self._columns.move_to_end(key)
        return column.index

    def merged(self, rows: Sequence[array[float]]) -> array[float]:
        width = len(rows[-1])
        filled = [
            row + array(self._typecode, [_UNKNOWN]) * (width - len(row))
            if len(row) < width
            else row
            for row in rows
        ]
        return self._merge(filled)

    def column(self, key: Key) -> _Column | None:
        return self._columns.get(key)

    def clear(self) -> None:
        self._columns.clear()


def _highest(rows: Sequence[array[float]]) -> array[float]:
    return rows[0] if len(rows) == 1 else array(rows[0].typecode, map(max, *rows))


def _mean(rows: Sequence[array[float]]) -> array[float]:
    def mean(values: Sequence[float]) -> float:
        known = [value for value in values if value != _UNKNOWN]
        return sum(known) / len(known) if known else _UNKNOWN

    return array(rows[0].typecode, map(mean, zip(*rows, strict=True)))


def _last(rows: Sequence[array[float]]) -> array[float]:
    return rows[-1]


class History:
    """The ring. One thread adds samples; another one may read meanwhile, since rows never change
    and `_rows` is replaced as a whole."""

    def __init__(
        self,
        max_lag_series: int = MAX_LAG_SERIES,
        max_series: int = MAX_SERIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._max_bytes = max_bytes
        self._blocks = (
            _Block("f", max_lag_series, _highest),
            _Block("d", max_series, _highest),
            _Block("d", max_series, _mean),
            _Block("d", max_series, _last),
        )
        self._fine: deque[_Row] = deque()
        self._coarse: deque[_Row] = deque()
        self._rows: tuple[_Row, ...] = ()
        self.size_bytes = 0

    @property
    def began_ms(self) -> int | None:
        """Time of the oldest sample; None: there is none."""
        return self._rows[0].at_ms if self._rows else None

    def add(self, sample: Sample) -> None:
        at_ms = self._ascending(sample.at_ms)
        given: tuple[dict[Key, float], ...] = tuple({} for _ in self._blocks)
        given[0].update(sample.lags)
        for key, value in sample.figures.items():
            given[_block_of(key)][key] = value
        blocks = tuple(
            block.row(figures, at_ms) for block, figures in zip(self._blocks, given, strict=True)
        )
        self._fine.append(_Row(at_ms, at_ms, sample.follows, blocks))
        self._coarsen(at_ms)
        self._limit(at_ms)
        self._rows = (*self._coarse, *self._fine)

    def _ascending(self, at_ms: int) -> int:
        last_ms = self._rows[-1].at_ms if self._rows else at_ms - 1
        if at_ms < last_ms - MAX_CLOCK_STEP_MS:
            self._fine.clear()
            self._coarse.clear()
            for block in self._blocks:
                block.clear()
            return at_ms
        return max(at_ms, last_ms + 1)

    def _coarsen(self, now_ms: int) -> None:
        while self._fine:
            slot = self._fine[0].at_ms // COARSE_STEP_MS
            is_old = (slot + 1) * COARSE_STEP_MS <= now_ms - FINE_MS
            if not is_old and len(self._fine) <= MAX_FINE_SAMPLES:
                return
            group = [self._fine.popleft()]
            while (
                self._fine
                and self._fine[0].follows
                and self._fine[0].at_ms // COARSE_STEP_MS == slot
            ):
                group.append(self._fine.popleft())
            self._coarse.append(self._merged(group))

    def _merged(self, group: Sequence[_Row]) -> _Row:
        blocks = tuple(
            block.merged([row.blocks[n] for row in group]) for n, block in enumerate(self._blocks)
        )
        return _Row(group[0].first_ms, group[-1].at_ms, group[0].follows, blocks)

    def _limit(self, now_ms: int) -> None:
        series = sum(map(len, self._blocks)) * _SERIES_BYTES
        size = series + sum(row.size_bytes for row in (*self._coarse, *self._fine))
        while self._coarse and (
            size > self._max_bytes
            or len(self._coarse) > MAX_COARSE_SAMPLES
            or self._coarse[0].at_ms < now_ms - HISTORY_MS
        ):
            size -= self._coarse.popleft().size_bytes
        while size > self._max_bytes and len(self._fine) > 1:
            size -= self._fine.popleft().size_bytes
        self.size_bytes = size

    def read(self, keys: Sequence[Key], since_ms: int) -> Points:
        """Returns the samples after `since_ms`. A gap is a point of its own without values."""
        times_ms: list[int] = []
        # None: a gap.
        rows: list[_Row | None] = []
        before_ms: int | None = None
        for row in self._rows:
            if row.at_ms > since_ms:
                if before_ms is not None and not row.follows:
                    times_ms.append(max(before_ms, since_ms) + 1)
                    rows.append(None)
                times_ms.append(row.at_ms)
                rows.append(row)
            before_ms = row.at_ms
        return Points(times_ms, [self._values(rows, key) for key in keys])

    def _values(self, rows: Sequence[_Row | None], key: Key) -> list[int | float | None]:
        column = self._column(key)
        if column is None:
            return [None] * len(rows)
        return [None if row is None else _value(row, *column) for row in rows]

    def _column(self, key: Key) -> tuple[int, _Column] | None:
        block = _block_of(key)
        column = self._blocks[block].column(key)
        return None if column is None else (block, column)


def _block_of(key: Key) -> int:
    name = key[0]
    if name == LAG:
        return 0
    if name in _HIGHEST:
        return 1
    return 2 if name in _MEAN else 3


def _value(row: _Row, block: int, column: _Column) -> int | float | None:
    values = row.blocks[block]
    if row.first_ms < column.since_ms or column.index >= len(values):
        return None
    value = values[column.index]
    if value == _UNKNOWN:
        return None
    return int(value) if value.is_integer() else round(value, 3)
