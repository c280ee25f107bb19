"""An archive keeps the form of its values, whichever of its files is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.commits import Commit
from tidelog_pipeline.archive.core.value_format import ValueFormat, format_to_json
from tidelog_pipeline.archive.format_files import COPY, FORM, store_format, stored_format
from tidelog_pipeline.job_command import JobError
from tidelog_pipeline.storage.directory import Directory

JSON = ValueFormat.of_json(StructType([StructField("id", LongType())]))


@pytest.fixture
def log(tmp_path: Path) -> ArchiveLog:
    own = Directory(tmp_path / "archive.state")
    log = ArchiveLog(Directory(tmp_path / "archive"), lambda: own)
    store_format(own, JSON)
    log.commit(Commit(log.stage(), 0))
    return log


@pytest.mark.parametrize("name", [FORM, COPY])
@pytest.mark.parametrize("damage", [None, b"", b"{}", "a bad sector"])
def test_one_of_the_two_files_is_enough_and_the_writer_repairs_the_other(
    log: ArchiveLog, name: str, damage: bytes | str | None
) -> None:
    hurt = log.state_directory.at(name)
    hurt.unlink()
    if isinstance(damage, bytes):
        hurt.write_bytes(damage)
    elif damage:
        # The error of reading a directory is of the same kind.
        hurt.mkdir()
    assert stored_format(log) == JSON
    store_format(log.state_directory, JSON)
    assert hurt.read_bytes() == format_to_json(JSON)


def test_an_archive_of_a_previous_release_gets_the_second_file(log: ArchiveLog) -> None:
    log.state_directory.remove(COPY)
    store_format(log.state_directory, JSON)
    log.state_directory.remove(FORM)
    assert stored_format(log) == JSON


def test_without_both_files_no_other_form_is_accepted(log: ArchiveLog) -> None:
    log.state_directory.remove(FORM)
    log.state_directory.remove(COPY)
    with pytest.raises(JobError, match=r"form\.json and .* are missing, .* restore one of them"):
        stored_format(log)


def test_with_both_files_unreadable_no_other_form_is_accepted(log: ArchiveLog) -> None:
    for name in (FORM, COPY):
        log.state_directory.at(name).write_bytes(b"{}")
    with pytest.raises(OptionError, match="restore it"):
        stored_format(log)


def test_an_archive_without_commits_has_no_form_yet(tmp_path: Path) -> None:
    log = ArchiveLog(Directory(tmp_path), lambda: Directory(tmp_path / "state"))
    assert stored_format(log) is None


@pytest.mark.parametrize(("value", "is_raw"), [(b"x", True), ({"id": 1}, False)])
def test_without_form_and_commits_the_files_show_whether_values_are_raw(
    tmp_path: Path, value: Any, is_raw: bool
) -> None:
    """Otherwise a repair would remove all files, and could read no row of them as raw values."""
    log = ArchiveLog(Directory(tmp_path), lambda: Directory(tmp_path / "state"))
    hour = tmp_path / "topic=sea/date=2026-11-22/hour=10"
    hour.mkdir(parents=True)
    pq.write_table(pa.table({"value": [value]}), hour / "a.parquet")
    (hour / "b.parquet").write_bytes(b"")
    if is_raw:
        assert stored_format(log) is None
    else:
        with pytest.raises(JobError, match="restore one of them"):
            stored_format(log)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_files_that_may_not_be_read_now_do_not_count_as_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A repair would remove all files, since it finds no row of raw values in them."""
    log = ArchiveLog(Directory(tmp_path), lambda: Directory(tmp_path / "state"))
    hour = tmp_path / "topic=sea/date=2026-11-22/hour=10"
    hour.mkdir(parents=True)
    (hour / "a.parquet").touch()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pq, "read_schema", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        stored_format(log)


def test_a_file_with_a_damaged_column_name_does_not_show_the_form(tmp_path: Path) -> None:
    log = ArchiveLog(Directory(tmp_path), lambda: Directory(tmp_path / "state"))
    path = tmp_path / "topic=sea/date=2026-11-22/hour=10/a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"topic_id": ["x"]}), path)
    content = bytearray(path.read_bytes())
    content[content.index(b"topic_id")] ^= 0x80
    path.write_bytes(content)
    assert stored_format(log) is None
