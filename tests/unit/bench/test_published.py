"""The results that pages of the documentation have are those of bench.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import published
from bench.published import PAGE, SHOWN, filled, merged, read_rows, rows_of
from bench.report import Measured, measured, plain_document
from bench.suite import document
from bench.suite.outcome import Outcome
from bench.suite.settings import FULL

DURABILITY = ("bench", "durability")
MACHINE = {"processor": "P", "cores": 2, "memory_gb": 8, "python": "3.11.1", "kernel": "6"}


def of_durability(value: float, commit: str = "abc1234") -> dict[str, Any]:
    (name,) = SHOWN[DURABILITY]
    found = Outcome([Measured(name, value, "", target=">= 0.5", met=value >= 0.5)])
    content = document.content(
        "full", FULL, {"durability": found}, {}, {"durability": measured(commit)}, {}
    )
    return content | {"machine": MACHINE}


def test_the_page_has_the_results_of_the_file() -> None:
    assert filled(PAGE.read_text(), read_rows()) == PAGE.read_text(), published.OUT_OF_DATE


def test_the_file_has_results_that_are_shown_and_no_others() -> None:
    shown = {(*key, name) for key, names in SHOWN.items() for name in names}
    assert {(row["bench"], row["part"], row["name"]) for row in read_rows()} <= shown


def test_a_new_run_replaces_the_rows_of_its_parts_alone() -> None:
    before = read_rows()
    new = rows_of("bench", of_durability(0.4))
    after = merged(before, new)
    assert len(after) == len(before)
    changed = [row for row in after if row not in before]
    assert [(row["value"], row["met"], row["commit"]) for row in changed] == [
        (0.4, False, "abc1234")
    ]
    assert "| 0.4 |  | >= 0.5 (missed) | `abc1234` | 20" in filled(PAGE.read_text(), after)


@pytest.mark.parametrize("commit", ["abc1234+", ""])
def test_results_of_uncommitted_files_are_rejected(commit: str) -> None:
    with pytest.raises(ValueError, match="differ from a commit"):
        rows_of("bench", of_durability(0.6, commit))


def test_a_result_with_another_name_is_rejected() -> None:
    renamed = of_durability(0.6)
    renamed["results"][0]["name"] = "another"
    with pytest.raises(ValueError, match="has no result"):
        rows_of("bench", renamed)


def test_a_bench_without_parts_has_rows() -> None:
    content = plain_document([Measured(name, 1, "s") for name in SHOWN["packages", ""]])
    content["measured"] = measured("abc1234")
    assert [row["part"] for row in rows_of("packages", content)] == ["", ""]


def test_runs_are_taken_from_files_that_say_what_they_measured(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(of_durability(0.7)))
    (tmp_path / "packages.json").write_text('{"results": []}')
    assert [row["value"] for row in published.measured_rows(tmp_path)] == [0.7]


def test_a_page_that_differs_from_the_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert published.main(["--check"]) == 0
    by_hand = tmp_path / "performance.md"
    by_hand.write_text(PAGE.read_text().replace("| measurement |", "| measured |"))
    assert by_hand.read_text() != PAGE.read_text()
    monkeypatch.setattr(published, "PAGE", by_hand)
    assert published.main(["--check"]) == 1
    assert "run `make results`" in capsys.readouterr().err
