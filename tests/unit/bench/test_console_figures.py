"""Bounds of the web console: each missed bound is named."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.console import results
from bench.console.__main__ import parse
from bench.console.results import Figures, OverviewFigures, verdicts
from bench.console.run import FULL, QUICK
from bench.console.watch import Watched
from bench.report import missed_names, write_form

PAGE = Watched(
    place="overview",
    shown_ms=800.0,
    seconds=30.0,
    long_tasks_ms=(60.0, 99.0),
    longest_processor_ms=70.0,
    busy_percent=4.0,
    faults=(),
)
FIGURES = Figures(
    overview=OverviewFigures(
        partitions=3_000,
        first_ms=250.0,
        answers_ms=(4.0, 5.0, 290.0),
        bytes=9_000,
        map_bytes=90_000,
    ),
    seen_s=1.5,
    pages=(PAGE,),
)


def test_within_all_bounds_nothing_is_named() -> None:
    assert missed_names(verdicts(FIGURES)) == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (
            replace(FIGURES, overview=replace(FIGURES.overview, answers_ms=(4.0, 5.0, 301.0))),
            "overview of 3,000 partitions: slowest answer",
        ),
        (
            replace(FIGURES, overview=replace(FIGURES.overview, first_ms=301.0)),
            "overview of 3,000 partitions: first answer",
        ),
        (
            replace(FIGURES, pages=(replace(PAGE, long_tasks_ms=(60.0, 101.0)),)),
            "overview: longest task in 30 s",
        ),
        (replace(FIGURES, seen_s=3.1), "time until a killed broker is shown"),
        (
            replace(FIGURES, pages=(replace(PAGE, faults=("x",)),)),
            "errors in the browser's console",
        ),
    ],
)
def test_a_missed_bound_is_named(changed: Figures, name: str) -> None:
    assert missed_names(verdicts(changed)) == [name]


def test_a_page_without_a_long_task_has_the_threshold_as_its_longest() -> None:
    assert replace(PAGE, long_tasks_ms=()).longest_ms == 50.0


def test_the_file_holds_what_was_measured_and_what_was_missed(tmp_path: Path) -> None:
    late = replace(FIGURES, seen_s=4.0)
    path = write_form(tmp_path, "bench-console", results.content("full", {}, late))
    written = json.loads(path.read_text())
    assert written["not_met"] == ["time until a killed broker is shown"]
    assert written["seen_s"] == 4.0
    assert written["pages"][0]["long_tasks_ms"] == [60.0, 99.0]
    assert written["overview"]["answers_ms"] == [4.0, 5.0, 290.0]


def test_settings_are_queried_by_name() -> None:
    assert parse(["--watch-s", "12"]) == ("custom", replace(FULL, watch_s=12.0))
    assert parse(["--quick"]) == ("quick", QUICK)
