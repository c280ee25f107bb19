"""The committed dashboards match the generator and query series that exist."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog_dashboards.dashboards import files
from unit.deploy import promql

DIRECTORY = Path(__file__).parents[3] / "deploy/grafana/dashboards"
FILES = files()
DASHBOARDS = {name: json.loads(content) for name, content in FILES.items()}

GRID_WIDTH = 24
# Verbs that introduce an action in a description.
_WHAT_TO_DO = re.compile(
    r"\b(check|run|start|compare|bring|lower|raise|do what|divide|place|spread|scrape less|open)\b",
    re.IGNORECASE,
)

Panel = dict[str, Any]


def panels_of(dashboard: dict[str, Any]) -> list[Panel]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in panels_of(dashboard)
]
QUERIES = [
    pytest.param(target, id=f"{name}: {panel['title']} {target['refId']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in panels_of(dashboard)
    for target in panel["targets"]
]


def test_the_committed_files_match_the_generator() -> None:
    committed = {path.name: path.read_text() for path in DIRECTORY.glob("*.json")}

    assert committed == FILES, "run `make dashboards` and commit what it writes"


def test_no_two_dashboards_have_the_same_uid() -> None:
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]

    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_panels_do_not_overlap_and_fit_the_grid(name: str) -> None:
    positions = [panel["gridPos"] for panel in DASHBOARDS[name]["panels"]]

    assert all(position["x"] + position["w"] <= GRID_WIDTH for position in positions)
    for one, other in itertools.combinations(positions, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_no_two_panels_have_the_same_id(name: str) -> None:
    ids = [panel["id"] for panel in DASHBOARDS[name]["panels"]]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_the_first_panels_show_health(name: str) -> None:
    first, *_ = panels_of(DASHBOARDS[name])

    assert first["type"] == "stat"


@pytest.mark.parametrize("panel", PANELS)
def test_panel_titles_are_noun_phrases(panel: Panel) -> None:
    assert not re.match(
        r"(how|is|are|do|does|what|which|where|since|for|who)\b", panel["title"], re.I
    )
    assert panel["title"][-1] not in "?."


@pytest.mark.parametrize("name", sorted(DASHBOARDS))
def test_no_two_panels_have_the_same_title(name: str) -> None:
    titles = [panel["title"] for panel in panels_of(DASHBOARDS[name])]

    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("panel", PANELS)
def test_panel_descriptions_have_an_action(panel: Panel) -> None:
    assert panel["description"].endswith(".")
    assert _WHAT_TO_DO.search(panel["description"])


@pytest.mark.parametrize("panel", PANELS)
def test_numeric_panels_have_a_unit(panel: Panel) -> None:
    if panel["type"] in ("stat", "timeseries"):
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("target", QUERIES)
def test_queries_use_existing_series_and_labels(target: dict[str, Any]) -> None:
    selectors = list(promql.selectors(target["expr"]))

    assert selectors
    for name, labels in selectors:
        assert set(labels) <= promql.labels_of(name)


@pytest.mark.parametrize("target", QUERIES)
def test_every_query_selects_one_cluster(target: dict[str, Any]) -> None:
    assert all("cluster" in labels for _, labels in promql.selectors(target["expr"]))


@pytest.mark.parametrize("target", QUERIES)
def test_aggregations_keep_existing_labels(target: dict[str, Any]) -> None:
    known = frozenset[str]().union(
        *(promql.labels_of(name) for name, _ in promql.selectors(target["expr"]))
    )

    assert all(labels <= known for labels in promql.kept_labels(target["expr"]))


@pytest.mark.parametrize("target", QUERIES)
def test_legends_use_only_kept_labels(target: dict[str, Any]) -> None:
    expected = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
    kept = list(promql.kept_labels(target["expr"]))
    known = [promql.labels_of(name) for name, _ in promql.selectors(target["expr"])]

    assert all(expected <= labels for labels in (kept or known))


@pytest.mark.parametrize("target", QUERIES)
def test_rates_are_applied_to_counters_and_only_to_them(target: dict[str, Any]) -> None:
    counted = promql.counted(target["expr"])
    names = [name for name, _ in promql.selectors(target["expr"])]

    assert all(promql.is_counter(name) for name in counted)
    assert all(name in counted for name in names if promql.is_counter(name))


@pytest.mark.parametrize("target", QUERIES)
def test_no_query_invents_data(target: dict[str, Any]) -> None:
    assert not re.search(r"\bvector\(|\bscalar\(|\babsent", target["expr"])
