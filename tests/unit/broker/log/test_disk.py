"""The real disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog_broker.log.disk import OsDisk


def test_buffers_are_written_one_after_another(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"ab", b"", b"cd"])
    file.write_at(4, [b"ef"])
    assert file.read_at(6, 0) == b"abcdef"
    file.close()


def test_more_buffers_than_one_system_call_takes_are_written(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"%04d" % i for i in range(3000)])
    assert file.read_at(4, 4 * 2999) == b"2999"
    file.close()


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwritev

    def write_a_part(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        return whole_write(descriptor, [b"".join(buffers)[:3]], position)

    monkeypatch.setattr(os, "pwritev", write_a_part)
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"abcd", b"efgh"])
    assert file.read_at(100, 0) == b"abcdefgh"
    file.close()


def test_a_read_beyond_the_end_is_short(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"abc"])
    assert file.read_at(10, 1) == b"bc"
    assert file.read_at(10, 3) == b""
    file.close()


def test_a_file_is_not_made_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsDisk().open(tmp_path / "f")


def test_an_atomic_write_replaces_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.write_atomically(tmp_path / "f", b"old", sync=True)
    disk.write_atomically(tmp_path / "f", b"new", sync=False)
    assert disk.read_file(tmp_path / "f") == b"new"
    assert disk.list_names(tmp_path) == ["f"]


def test_removing_what_is_not_there_does_nothing(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.remove(tmp_path / "f")
    disk.remove_tree(tmp_path / "d")
    assert disk.list_names(tmp_path / "d") == []


def test_a_directory_is_renamed_with_its_files(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.make_directory(tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "b" / "f", create=True).close()
    disk.rename(tmp_path / "a", tmp_path / "c")
    disk.sync_directory(tmp_path / "c")
    assert disk.file_size(tmp_path / "c" / "b" / "f") == 0
