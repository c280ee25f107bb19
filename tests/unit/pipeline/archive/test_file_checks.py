"""Files as committed, and with one fault each."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from tidelog_pipeline.archive.core.commits import AddedFile
from tidelog_pipeline.archive.file_checks import (
    absent_or_cut,
    as_found,
    damage,
    find_foreign,
    sha256_of,
)
from tidelog_pipeline.archive.record_locations import ARROW_TYPES
from tidelog_pipeline.archive.salvage import salvaged_rows, sound_rows
from tidelog_pipeline.storage.directory import Directory

PATH = "topic=sea/date=2026-11-22/hour=10/a.parquet"
ROWS = 1_000


@pytest.fixture
def file(tmp_path: Path) -> AddedFile:
    """A file as Spark writes it: pages have checksums. A page holds a few dozen rows."""
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    values = [os.urandom(100) for _ in range(ROWS)]
    table = pa.table({"topic_id": ["id"] * ROWS, "offset": range(ROWS), "value": values})
    pq.write_table(
        table,
        path,
        write_page_checksum=True,
        data_page_size=4_096,
        write_batch_size=16,
        use_dictionary=False,
    )
    return AddedFile(PATH, ROWS, path.stat().st_size, sha256_of(path))


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(content)


def test_a_file_as_committed_is_intact(tmp_path: Path, file: AddedFile) -> None:
    assert damage(tmp_path, file) == ""
    assert damage(tmp_path, file._replace(sha256="")) == ""
    assert absent_or_cut(tmp_path, [file]) == {}


def test_a_missing_or_resized_file_is_found_without_reading_it(
    tmp_path: Path, file: AddedFile
) -> None:
    cut = file._replace(size_bytes=file.size_bytes + 1)
    gone = file._replace(path="b.parquet")
    assert absent_or_cut(tmp_path, [file, cut, gone]) == {
        PATH: f"it has {file.size_bytes} bytes, and had {file.size_bytes + 1} when it was "
        "committed",
        "b.parquet": "it is missing",
    }


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("is_summed", [True, False])
def test_a_flipped_bit_is_found_with_and_without_a_file_checksum(
    tmp_path: Path, file: AddedFile, at: float, is_summed: bool
) -> None:
    flip(tmp_path / PATH, at)
    wrong = damage(tmp_path, file if is_summed else file._replace(sha256=""))
    assert ("SHA-256" in wrong) if is_summed else wrong.startswith("it cannot be read")


def test_a_file_that_is_not_parquet_or_lacks_rows_is_found(tmp_path: Path, file: AddedFile) -> None:
    unsummed = file._replace(sha256="")
    assert damage(tmp_path, unsummed._replace(rows=ROWS + 1)).endswith(f"by its commit {ROWS + 1}")
    (tmp_path / PATH).write_bytes(b"x" * file.size_bytes)
    assert damage(tmp_path, unsummed).startswith("it cannot be read")


@pytest.mark.parametrize(("at", "least", "most"), [(0.5, 200, 600), (0.9, 700, ROWS - 1)])
def test_rows_before_a_damaged_page_are_recovered(
    tmp_path: Path, file: AddedFile, at: float, least: int, most: int
) -> None:
    schema = pa.schema([("offset", pa.int64()), ("value", pa.binary()), ("topic", pa.string())])
    before = pq.read_table(tmp_path / file.path, partitioning=None).column("value").to_pylist()
    flip(tmp_path / PATH, at)
    saved = pa.Table.from_batches(sound_rows(tmp_path / PATH, schema, {}), schema)
    assert least <= len(saved) <= most
    assert saved.column("value").to_pylist() == before[: len(saved)]
    assert set(saved.column("topic").to_pylist()) == {"sea"}
    (tmp_path / PATH).write_bytes(b"no footer")
    assert list(sound_rows(tmp_path / PATH, schema, {})) == []


@pytest.mark.rule("archive-lost-files-are-restored")
def test_a_file_whose_footer_has_a_damaged_column_name_is_damaged(
    tmp_path: Path, file: AddedFile
) -> None:
    """The name is not UTF-8, and a repair that failed would never remove the file."""
    path = tmp_path / PATH
    content = bytearray(path.read_bytes())
    content[content.index(b"topic_id")] ^= 0x80
    path.write_bytes(content)
    assert damage(tmp_path, file._replace(sha256="")).startswith("it cannot be read")
    assert list(sound_rows(path, pa.schema([("offset", pa.int64())]), {})) == []
    assert find_foreign(tmp_path, [PATH], {}) == {PATH}
    assert list(as_found(tmp_path, [PATH])[1]) == [PATH]


@pytest.mark.rule("archive-lost-files-are-restored")
def test_rows_of_a_file_in_another_topics_directory_are_of_their_own_topic(tmp_path: Path) -> None:
    """Somebody swapped two files, or moved one."""
    path = tmp_path / "topic=land/date=2026-11-22/hour=10/a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"offset": [1, 2, 3], "topic_id": ["id-sea", "id-land", "old"]}), path)
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string()), ("hour", pa.string())])
    [rows] = sound_rows(path, schema, {"id-sea": "sea", "id-land": "land"})
    assert rows.to_pydict() == {
        "offset": [1, 2, 3],
        "topic": ["sea", "land", "land"],
        "hour": ["10"] * 3,
    }


@pytest.mark.rule("archive-lost-files-are-restored")
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM])
@pytest.mark.parametrize("step", ["stat", "open"])
def test_a_file_that_may_not_be_read_now_is_not_damaged(
    tmp_path: Path, file: AddedFile, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    """A repair would remove it, and give up rows that the topic does not have any more."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(Path, step, fail)
        broken.setattr(pq, "ParquetFile", fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            damage(tmp_path, file)
        with pytest.raises(OSError, match=os.strerror(number)):
            list(sound_rows(tmp_path / PATH, pa.schema([]), {}))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA, errno.EILSEQ])
def test_a_file_on_a_bad_sector_is_damaged(
    tmp_path: Path, file: AddedFile, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", fail)
        assert "it cannot be read" in damage(tmp_path, file)


def test_files_without_the_rows_of_an_archive_are_foreign(tmp_path: Path) -> None:
    """Spark fails on them, or on all files because of the directory of one."""
    hour = "topic=sea/date=2026-11-22/hour=10"
    columns = {"topic_id": pa.string(), "partition": pa.int32(), "leader_epoch": pa.int32()}
    columns |= {"offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    assert columns == ARROW_TYPES
    own = pa.table({name: pa.array([], kind) for name, kind in columns.items()})
    nanos = own.set_column(4, "timestamp", pa.array([], pa.timestamp("ns")))
    tables = {
        f"{hour}/own.parquet": own,
        f"{hour}/nanos.parquet": nanos,
        "topic=sea/top.parquet": own,
        f"{hour}/deeper/own.parquet": own,
        f"{hour}/less.parquet": own.drop_columns("offset"),
        f"{hour}/other.parquet": own.set_column(3, "offset", pa.array([], pa.string())),
    }
    for path, table in tables.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / path)
    (tmp_path / hour / "README").write_text("notes")
    paths = [*tables, f"{hour}/README", f"{hour}/gone.parquet"]
    assert find_foreign(tmp_path, paths, ARROW_TYPES) == set(paths[2:])
    [found], wrong = as_found(tmp_path, [paths[0], f"{hour}/README", f"{hour}/gone.parquet"])
    assert damage(tmp_path, found) == ""
    assert sorted(wrong) == [f"{hour}/README", f"{hour}/gone.parquet"]
    assert all(why.startswith("it cannot be read (") for why in wrong.values())


def test_files_of_a_directory_that_cannot_be_listed_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "topic=sea").mkdir()
    scandir = os.scandir

    def fail(path: Any) -> Any:
        if str(path).endswith("topic=sea"):
            raise PermissionError(errno.EACCES, "denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(PermissionError):
        Directory(tmp_path).files(".")
    with pytest.raises(PermissionError):
        Directory(tmp_path).has_files(".")
    with pytest.raises(PermissionError):
        salvaged_rows(None, tmp_path, StructType(), {})  # type: ignore[arg-type]
    assert Directory(tmp_path / "gone").files(".") == []


def test_files_in_hidden_directories_are_not_files_of_a_table(tmp_path: Path) -> None:
    for folder in ("_temporary", ".snapshot"):
        path = tmp_path / "topic=sea" / folder / "a.parquet"
        path.parent.mkdir(parents=True)
        path.touch()
    directory = Directory(tmp_path)
    assert directory.files("topic=sea") == []
    assert not directory.has_files("topic=sea")
