"""The queries that Grafana sends to Prometheus for our dashboards, with variables substituted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "deploy/grafana/dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(DIRECTORY.glob("*.json"))
}

_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)")
# The characters that Grafana escapes because they have a meaning in a regular expression.
_SPECIAL = re.compile(r"[\\^$*+?.()|{}\[\]]")

# The query for the labels of all series that a selector matches.
FindSeries = Callable[[str], list[dict[str, str]]]


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """`place`: for example "overview: Firing alerts A"."""

    dashboard: str
    panel: str
    ref: str
    expr: str

    @property
    def is_of_spark(self) -> bool:
        """Whether it queries metrics of Spark drivers; the suite `spark` has their data."""
        return "tidelog_spark_" in self.expr

    @property
    def place(self) -> str:
        return f"{self.dashboard}: {self.panel} {self.ref}"


def queries() -> list[PanelQuery]:
    """The queries of every panel, and of the annotations that all panels of a dashboard show."""
    of_panels = [
        PanelQuery(name, panel["title"], target["refId"], target["expr"])
        for name, dashboard in DASHBOARDS.items()
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    of_marks = [
        PanelQuery(name, f"annotation: {mark['name']}", "", mark["expr"])
        for name, dashboard in DASHBOARDS.items()
        for mark in dashboard["annotations"]["list"]
    ]
    return of_panels + of_marks


def put_in(expr: str, values: Mapping[str, str]) -> str:
    """Raises KeyError for a variable without a value."""
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)


def variables(dashboard: str, cluster: str, rate_interval: str, find: FindSeries) -> dict[str, str]:
    """The values of a dashboard's variables with "All" selected, each found by its own query."""
    values = {"__rate_interval": rate_interval}
    for variable in DASHBOARDS[dashboard]["templating"]["list"]:
        if variable["type"] == "query":
            found = _found(variable, values, find)
            assert found, f"{dashboard}: the variable {variable['name']} has no values"
            values[variable["name"]] = _all_of(found) if variable["multi"] else cluster
    return values


def _found(variable: dict[str, Any], values: Mapping[str, str], find: FindSeries) -> list[str]:
    match = _LABEL_VALUES.fullmatch(variable["query"])
    assert match, variable["query"]
    selector, label = put_in(match[1], values), match[2]
    names = {series[label] for series in find(selector) if label in series}
    if regex := variable.get("regex"):
        part = re.compile(regex.strip("/"))
        names = {found[1] for name in names if (found := part.match(name))}
    return sorted(names)


def _all_of(names: list[str]) -> str:
    # Grafana escapes twice: for the regular expression, and for the string that contains it.
    escaped = [_SPECIAL.sub(r"\\\\\g<0>", name) for name in names]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
