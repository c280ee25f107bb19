"""Converts between rows of plain values and Arrow batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

Row = tuple[Any, ...]
Run = Callable[[Iterator[Row]], Iterator[Row]]

MAX_BATCH_ROWS = 8_192
MAX_BATCH_BYTES = 8 << 20

_TYPES = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "array<bigint>": pa.list_(pa.int64()),
}


class Columns:
    """Names and types of columns for Spark and Arrow. All columns are nullable."""

    def __init__(self, **types: str) -> None:
        """`types` are Spark's: bigint, boolean, string, binary, array<bigint>."""
        self.types = types
        self.names = tuple(types)
        self.ddl = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
        self._schema = pa.schema([(name, _TYPES[kind]) for name, kind in types.items()])
        self._large = [i for i, kind in enumerate(types.values()) if kind == "binary"]

    def row(self, **values: Any) -> Row:
        """Returns a row; missing values are null. Raises `KeyError` for an unknown column."""
        row = tuple(values.pop(name, None) for name in self.names)
        if values:
            raise KeyError(*values)
        return row

    def batches(self, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
        held: list[Row] = []
        held_bytes = 0
        for row in rows:
            held.append(row)
            held_bytes += sum(len(row[index] or b"") for index in self._large)
            if len(held) >= MAX_BATCH_ROWS or held_bytes >= MAX_BATCH_BYTES:
                yield self._batch(held)
                held, held_bytes = [], 0
        if held:
            yield self._batch(held)

    def map(self, frame: DataFrame, run: Run) -> DataFrame:
        """Returns the rows, of these columns, that `run` makes of the rows of each task."""
        return frame.mapInArrow(lambda batches: self.batches(run(rows_of(batches))), self.ddl)

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
