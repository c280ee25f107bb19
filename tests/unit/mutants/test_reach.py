"""Execution counters are planted where a bug changed the code."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from mutants import reach
from mutants.reach import changed_lines, instrument


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    found: dict[str, int] = {}
    monkeypatch.setattr(reach, "_COUNTS", found)
    monkeypatch.setattr("atexit.register", lambda _: None)
    return found


def run(tmp_path: Path, text: str, *lines: int) -> dict[str, object]:
    path = tmp_path / "x.py"
    path.write_text(text)
    instrument(path, "x.py", list(lines))
    return runpy.run_path(str(path))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("a b c d", "a x c d", [2]),
        ("a b c d", "a c d", [2]),
        ("a b c d", "a b x y c d", [3, 4]),
        ("a b c d", "x b c", [1, 4]),
        ("a b c d", "a b c d", []),
    ],
)
def test_changed_lines_are_the_added_ones_and_the_one_behind_removed_ones(
    before: str, after: str, lines: list[int]
) -> None:
    assert changed_lines("\n".join(before.split()), "\n".join(after.split())) == lines


def test_a_statement_is_counted_each_time_it_runs(tmp_path: Path, counts: dict[str, int]) -> None:
    run(tmp_path, "for n in range(5):\n    if n > 2:\n        m = n\n", 3)
    assert counts == {"x.py: m = n": 2}


def test_a_part_of_a_longer_condition_is_counted_when_it_is_evaluated(
    tmp_path: Path, counts: dict[str, int]
) -> None:
    text = "found = [\n    n\n    for n in range(5)\n    if n > 1\n    and n != 3\n]\n"
    assert run(tmp_path, text, 5)["found"] == [2, 4]
    assert counts == {"x.py: and n != 3": 3}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for n in range(5):\n    if n > 9:\n        m = n\n", 2),
        (
            "for n in range(5):\n    if (\n        n > 7 and n < 9\n    ):\n        m = n\n",
            3,
        ),
        ("for n in range(5):\n    while n > 9:\n        m = n\n", 2),
        ("for n in range(5):\n    if n > 9:\n        m = n\n    elif n > 8:\n        m = 1\n", 4),
    ],
)
def test_a_condition_is_counted_whether_true_or_false(
    tmp_path: Path, counts: dict[str, int], text: str, line: int
) -> None:
    run(tmp_path, text, line)
    assert counts == {f"x.py: {text.splitlines()[line - 1].strip()}": 5}


def test_several_lines_of_one_statement_are_counted(tmp_path: Path, counts: dict[str, int]) -> None:
    run(tmp_path, "for n in range(5):\n    if n > 3:\n        m = n\n        m = 2\n", 3, 2, 4)
    assert counts == {"x.py: if n > 3:": 5, "x.py: m = n": 1, "x.py: m = 2": 1}


def test_the_head_of_a_function_is_counted_with_its_calls(
    tmp_path: Path, counts: dict[str, int]
) -> None:
    run(tmp_path, "def f(\n    n=1,\n):\n    return n\n\nf()\nf()\n", 2)
    assert counts == {"x.py: n=1,": 2}


def test_unexecuted_code_has_no_count(tmp_path: Path, counts: dict[str, int]) -> None:
    run(
        tmp_path, '"""Text."""\n\nfrom __future__ import annotations\n\ndef f():\n    return 1\n', 6
    )
    assert counts == {}


def test_the_counts_of_all_processes_are_added(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"x.py: n = 3": 2}')
    (tmp_path / "2.json").write_text('{"x.py: n = 3": 1, "x.py: n = 9": 4}')
    assert reach.collect(tmp_path) == {"x.py: n = 3": 3, "x.py: n = 9": 4}
