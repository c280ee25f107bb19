"""Which ranges of a history file own which lines."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.history import HistoryError, HistoryWriter, Nemesis
from tidelog.history.history_format import header_line
from tidelog_pipeline.check import history_files
from tidelog_pipeline.check.history_files import (
    HistoryFile,
    HistoryNotFoundError,
    count_lines,
    find_files,
    lines_of,
    ranges_of,
)

LINES = st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b" ") + b"\n"))


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(LINES, min_size=1, max_size=3), range_bytes=st.integers(1, 40))
def test_every_line_belongs_to_one_range_whatever_their_size(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[bytes]], range_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("history")
    files = []
    for number, lines in enumerate(parts):
        path = directory / f"part-{number}"
        path.write_bytes(b"".join(lines))
        files.append(HistoryFile(str(path), path.stat().st_size))
    ranges = ranges_of(files, range_bytes)
    of_ranges = [list(lines_of(span)) for span in ranges]
    assert [line for of_one in of_ranges for line in of_one] == list(chain(*parts))
    assert [count_lines(span) for span in ranges] == [len(of_one) for of_one in of_ranges]


def test_a_last_line_without_a_newline_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"one\ntwo\nthr")
    ranges = ranges_of([HistoryFile(str(path), 11)], 6)
    assert [list(lines_of(span)) for span in ranges] == [[b"one\n", b"two\n"], [b"thr"]]
    assert [count_lines(span) for span in ranges] == [2, 1]


def test_a_truncated_line_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_files, "MAX_LINE_BYTES", 4)
    path = tmp_path / "history"
    path.write_bytes(b"a" * 100)
    assert next(lines_of(ranges_of([HistoryFile(str(path), 100)])[0])) == b"aaaa"


def test_a_directory_is_one_history_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "part-1").write_bytes(b"{}\n")
    (tmp_path / "part-0").write_bytes(header_line())
    (tmp_path / "part-2").write_bytes(b"")
    (tmp_path / "_SUCCESS").write_bytes(b"x")
    (tmp_path / ".part-0.crc").write_bytes(b"x")
    assert [Path(file.uri).name for file in find_files(str(tmp_path))] == ["part-0", "part-1"]


def test_a_file_may_be_given_as_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryWriter(path) as history:
        history.write(Nemesis(0, "kill"))
    (file,) = find_files(path.as_uri())
    assert list(lines_of(ranges_of([file])[0])) == path.read_bytes().splitlines(keepends=True)


def test_an_invalid_history_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HistoryNotFoundError, match=r"there is no history .*give a file"):
        find_files(str(tmp_path / "none"))
    with pytest.raises(HistoryError, match="is empty"):
        find_files(str(tmp_path))
    (tmp_path / "log").write_bytes(b'{"k":"send"}\n')
    with pytest.raises(HistoryError, match=r"line 1: the first line of a history is"):
        find_files(str(tmp_path))
    with pytest.raises(HistoryNotFoundError, match="cannot be opened"):
        find_files("nowhere://x/y")
