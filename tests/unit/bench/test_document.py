"""The result document of the suite."""

import json
from pathlib import Path
from typing import Any

from bench.report import Measured, at_most
from bench.suite import document
from bench.suite.outcome import Chart, Line, Outcome, Point
from bench.suite.settings import QUICK

CHART = Chart("reading", "Reading", "x", "y", [Line("a", [Point(1, 2.5)])], x_log=True)


def content(
    outcomes: dict[str, Outcome], before: dict[str, Any] | None = None, commit: str = "abc"
) -> dict[str, Any]:
    seconds = dict.fromkeys(outcomes, 1.0)
    measured = {part: {"commit": commit} for part in outcomes}
    return document.content("quick", QUICK, outcomes, seconds, measured, before or {})


def test_the_document_round_trips_as_json() -> None:
    found = Outcome([Measured("speed", 1.23456, "MB/s", 0.5)], [CHART], {"cases": [1]})

    whole = json.loads(json.dumps(content({"reading": found})))

    assert document.results_of(whole) == {"reading": [Measured("speed", 1.2346, "MB/s", 0.5)]}
    assert document.charts_of(whole) == {"reading": [CHART]}
    assert whole["parts"]["reading"]["details"] == {"cases": [1]}


def test_a_repeated_part_replaces_only_itself() -> None:
    missed, met = at_most("wait", 9, 5, "ms"), at_most("wait", 4, 5, "ms")
    alone = Outcome([Measured("memory", 1, "MB")])
    before = content({"latency": Outcome([missed]), "alone": alone})
    assert before["not_met"] == ["wait"]

    after = content({"latency": Outcome([met])}, json.loads(json.dumps(before)), commit="def")

    assert after["not_met"] == []
    assert [row["name"] for row in after["results"]] == ["wait", "memory"]
    assert list(after["parts"]) == ["latency", "alone"]
    assert after["measured"] == {"latency": {"commit": "def"}, "alone": {"commit": "abc"}}


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    missed = at_most("wait", 9, 5, "ms")
    written = content({"latency": Outcome([missed])})
    (row,) = written["results"]
    row["wanted"] = row.pop("target")
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(written))

    assert document.results_of(document.read(file)) == {"latency": [missed]}


def test_only_the_full_form_has_the_name_of_a_complete_run() -> None:
    assert document.name_of("full") == "bench"
    assert document.name_of("custom") == "bench.partial"
