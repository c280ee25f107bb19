"""Reads rows of files that `repair` has removed from the table.

For damaged files, these are the rows before the first damaged page of each row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog_pipeline.archive.file_checks import FILE_ERRORS
from tidelog_pipeline.archive.rows import PARTITIONED_BY, hour_columns
from tidelog_pipeline.storage.directory import Directory, is_fault_of_file

# The batch of rows in which a damaged page is found is lost.
_BATCH_ROWS = 256


def salvaged_rows(
    spark: SparkSession, root: Path, schema: StructType, topics: Mapping[str, str]
) -> DataFrame | None:
    """Returns the distinct rows of the Parquet files below `root`; None: there are no files.

    A file may have been moved to another directory, so a row's own content decides about its topic
    and its hour.

    - `schema`: of the archive's rows. The paths end like those of the table.
    - `topics`: names of topics by their ids; rows of other topics are of their directory's.
    """
    # Unlike `rglob`, it raises an error for a directory that cannot be listed.
    files_below = Directory(root).files(".")
    paths = [(str(root / path),) for path in files_below if path.endswith(".parquet")]
    if not paths:
        return None
    as_arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from sound_rows(Path(path), as_arrow, topics)

    files = spark.createDataFrame(paths, "path string").repartition(len(paths))
    rows = files.mapInArrow(read, schema).withColumns(hour_columns())
    return rows.dropDuplicates(["topic_id", "partition", "leader_epoch", "offset"])


def sound_rows(
    path: Path, schema: pa.Schema, topics: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file in the form of the table, including its directories as columns.

    Raises `OSError` as `damage` does. `topics`: as in `salvaged_rows`.
    """
    folders = dict(part.split("=", 1) for part in path.parts if "=" in part)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except FILE_ERRORS as error:
        if not is_fault_of_file(error):
            raise
        return
    with file:
        for group in range(file.num_row_groups):
            for batch in _sound_batches(file, group):
                try:
                    yield _as_rows(batch, schema, folders, topics)
                except (KeyError, pa.ArrowException, UnicodeDecodeError):
                    return


def _sound_batches(file: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(_BATCH_ROWS, row_groups=[group])
    except FILE_ERRORS as error:
        if not is_fault_of_file(error):
            raise


def _as_rows(
    batch: pa.RecordBatch, schema: pa.Schema, folders: dict[str, str], topics: Mapping[str, str]
) -> pa.RecordBatch:
    """Raises `KeyError` and `ArrowException` for a file that is not of an archive."""
    columns = []
    for field in schema:
        folder = _folder(folders, field.name)
        if field.name == "topic":
            ids = batch.column("topic_id").to_pylist()
            columns.append(pa.array([topics.get(one, folder) for one in ids], field.type))
        elif field.name in PARTITIONED_BY:
            columns.append(pa.array([folder] * len(batch), field.type))
        else:
            columns.append(batch.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _folder(folders: dict[str, str], name: str) -> str | None:
    """Spark uses a special directory name for null."""
    value = folders.get(name)
    return None if value == "__HIVE_DEFAULT_PARTITION__" else value
