"""Segment files as dump-log reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log_dump import dump_log, dump_segment
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.log_config import LogConfig
from unit.broker.log.builders import batches_from, open_log


def written(directory: Path) -> list[Path]:
    log = open_log(OsDisk(), directory=directory, config=LogConfig(segment_bytes=400))
    for batch in batches_from(0, 5):
        log.append([batch])
    log.close()
    return sorted(directory.glob("*.log"))


def test_a_partition_is_dumped_segment_by_segment(tmp_path: Path) -> None:
    segments = written(tmp_path / "p")
    dumped = list(dump_log(tmp_path / "p"))
    assert [info.header.base_offset for _, info in dumped if info.header] == [0, 1, 2, 3, 4]
    assert sorted({path for path, _ in dumped}) == segments


def test_one_segment_is_dumped_by_its_path(tmp_path: Path) -> None:
    last = written(tmp_path / "p")[-1]
    assert [info.fault for info in dump_segment(last)] == [None]


def test_trailing_garbage_is_shown(tmp_path: Path) -> None:
    last = written(tmp_path / "p")[-1]
    with last.open("ab") as file:
        file.write(b"garbage")
    assert [info.size for info in dump_segment(last) if info.fault is not None] == [7]


def test_a_directory_without_segments_is_rejected_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="name a partition's directory"):
        list(dump_log(tmp_path))
