"""Compares files of an archive with their commits, on executors if there is much to read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidelog_pipeline.archive.core.commits import AddedFile
from tidelog_pipeline.archive.rows import PARTITIONED_BY
from tidelog_pipeline.job_command import first_line
from tidelog_pipeline.storage.directory import is_fault_of_file

# Errors of reading a Parquet file. A damaged name of a column is no longer UTF-8.
FILE_ERRORS = (OSError, pa.ArrowException, UnicodeDecodeError)
_BUFFER_BYTES = 1 << 20
_BATCH_ROWS = 8_192
# Files that the driver checks concurrently: each is a round trip to the file system.
_CONCURRENT_CHECKS = 16
# Up to this size, the driver reads files itself, which is faster than a Spark job.
_BYTES_OF_DRIVER = 64 << 20
# Approximate number of bytes that a task reads.
_BYTES_OF_TASK = 256 << 20

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def describe_files(
    spark: SparkSession, location: str, rows_of_files: Mapping[str, int]
) -> list[AddedFile]:
    """Returns files that were just written below `location`, with sizes and checksums."""
    sizes = {path: Path(location, path).stat().st_size for path in rows_of_files}
    paths = list(sizes)
    sums = _mapped(spark, lambda path: sha256_of(Path(location, path)), paths, sizes.values())
    return [
        AddedFile(path, rows_of_files[path], sizes[path], checksum)
        for path, checksum in zip(paths, sums, strict=True)
    ]


def absent_or_cut(root: Path, files: Iterable[AddedFile]) -> dict[str, str]:
    """Returns the faults of files, by path, according to their sizes."""
    listed = list(files)
    with ThreadPoolExecutor(_CONCURRENT_CHECKS) as pool:
        found = pool.map(lambda file: wrong_size(root, file), listed)
    return {file.path: why for file, why in zip(listed, found, strict=True) if why}


def find_damaged(spark: SparkSession, root: Path, files: Iterable[AddedFile]) -> dict[str, str]:
    """Returns the faults of files, by path, according to all of their bytes."""
    listed = list(files)
    found = map_files(spark, lambda file: damage(root, file), listed)
    return {file.path: why for file, why in zip(listed, found, strict=True) if why}


def find_foreign(root: Path, paths: Iterable[str], columns: Mapping[str, pa.DataType]) -> set[str]:
    """Returns the files that Spark cannot read as rows of the table.

    - `columns`: their types, except that any unit of a time will do.
    """
    return {path for path in paths if not _has_columns(root, path, columns)}


def as_found(root: Path, paths: Iterable[str]) -> tuple[list[AddedFile], dict[str, str]]:
    """Returns files that no commit names, as they are, for `find_damaged`.

    Also returns the faults of those that cannot be read, by path.
    """
    found: list[AddedFile] = []
    wrong: dict[str, str] = {}
    for path in paths:
        try:
            rows = pq.read_metadata(root / path).num_rows
            found.append(AddedFile(path, rows, (root / path).stat().st_size))
        except FILE_ERRORS as error:
            if not is_fault_of_file(error):
                raise
            wrong[path] = _unreadable(error)
    return found, wrong


def _has_columns(root: Path, path: str, columns: Mapping[str, pa.DataType]) -> bool:
    folders = [part.partition("=")[0] for part in path.split("/")[:-1]]
    if tuple(folders) != PARTITIONED_BY:
        return False
    try:
        with pq.ParquetFile(root / path) as file:
            found = {field.name: field.type for field in file.schema_arrow}
    except FILE_ERRORS as error:
        if not is_fault_of_file(error):
            raise
        return False
    return all(
        name in found
        and (kind == found[name] or {kind.id, found[name].id} == {pa.lib.Type_TIMESTAMP})
        for name, kind in columns.items()
    )


def wrong_size(root: Path, file: AddedFile) -> str:
    """Returns the fault of a file's size; empty: none.

    Raises `OSError` if the file system denies the answer, as `damage` does: a repair would remove
    the file and give up its rows.
    """
    try:
        size = (root / file.path).stat().st_size
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        if not is_fault_of_file(error):
            raise
        return f"it cannot be read ({error.strerror})"
    if size != file.size_bytes:
        return f"it has {size} bytes, and had {file.size_bytes} when it was committed"
    return ""


def damage(root: Path, file: AddedFile) -> str:
    """Reads the entire file, and returns its fault; empty: none.

    The file is compared with its checksum, or, if it was committed without one, with those of
    its Parquet pages.
    """
    problem = wrong_size(root, file)
    if problem:
        return problem
    try:
        if file.sha256:
            is_same = sha256_of(root / file.path) == file.sha256
            return "" if is_same else "its SHA-256 is not the one it was committed with"
        rows = _rows_by_pages(root / file.path)
    except FILE_ERRORS as error:
        if not is_fault_of_file(error):
            raise
        return _unreadable(error)
    return "" if rows == file.rows else f"it has {rows} rows, and by its commit {file.rows}"


def _unreadable(error: Exception) -> str:
    return f"it cannot be read ({first_line(error)})"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while read := file.read(_BUFFER_BYTES):
            digest.update(read)
    return digest.hexdigest()


def _rows_by_pages(path: Path) -> int:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return sum(len(batch) for batch in file.iter_batches(_BATCH_ROWS))


def map_files(
    spark: SparkSession, act: Callable[[AddedFile], _Found], files: Sequence[AddedFile]
) -> list[_Found]:
    """Returns results of reading entire files, in the order of `files`."""
    return _mapped(spark, act, files, [file.size_bytes for file in files])


def _mapped(
    spark: SparkSession,
    act: Callable[[_Item], _Found],
    items: Sequence[_Item],
    sizes: Iterable[int],
) -> list[_Found]:
    """Returns results in the order of `items`."""
    total = sum(sizes)
    if total <= _BYTES_OF_DRIVER:
        return [act(item) for item in items]
    tasks = min(len(items), max(spark.sparkContext.defaultParallelism, total // _BYTES_OF_TASK))
    return spark.sparkContext.parallelize(items, tasks).map(act).collect()
