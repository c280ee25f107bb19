"""Counters are planted where a patch changed the code."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from mutants import reach
from mutants.reach import changed_lines, instrument

PATCH = """\
Rule: a rule

--- a/libs/x.py
+++ b/libs/x.py
@@ -10,3 +10,3 @@
 before
-old
+new
 after
@@ -20,3 +20,2 @@
 before
-gone
 after
--- a/libs/y.py
+++ b/libs/y.py
@@ -1 +1,3 @@
 before
+one
+two
"""


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


def test_changed_lines_are_those_added_and_the_one_behind_those_removed() -> None:
    assert changed_lines(PATCH) == {"libs/x.py": [11, 21], "libs/y.py": [2, 3]}


def test_a_statement_is_counted_each_time_it_runs(tmp_path: Path, counts: dict[str, int]) -> None:
    run(tmp_path, "for n in range(5):\n    if n > 2:\n        m = n\n", 3)
    assert counts == {"x.py:3": 2}


def test_a_part_of_a_longer_condition_is_counted_when_it_is_evaluated(
    tmp_path: Path, counts: dict[str, int]
) -> None:
    text = "found = [\n    n\n    for n in range(5)\n    if n > 1\n    and n != 3\n]\n"
    assert run(tmp_path, text, 5)["found"] == [2, 4]
    assert counts == {"x.py:5": 3}


def test_code_that_never_runs_has_no_count(tmp_path: Path, counts: dict[str, int]) -> None:
    run(
        tmp_path, '"""Text."""\n\nfrom __future__ import annotations\n\ndef f():\n    return 1\n', 6
    )
    assert counts == {}


def test_the_counts_of_all_processes_are_added(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"x.py:3": 2}')
    (tmp_path / "2.json").write_text('{"x.py:3": 1, "x.py:9": 4}')
    assert reach.collect(tmp_path) == {"x.py:3": 3, "x.py:9": 4}
