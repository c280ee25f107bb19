"""What every dashboard has around its panels: variables, links to its siblings, and marks
where brokers left and controllers changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from tidelog_dashboards.panels import SOURCE, Panel
from tidelog_dashboards.promql import times

TAG = "tidelog"
CLUSTER = 'cluster="$cluster"'
# Services are named as in events and logs: broker-2, controller-1.
BROKERS = f'{CLUSTER}, service=~"broker-$broker"'
SERVICES = f'job="tidelog", {CLUSTER}'


class Variable(NamedTuple):
    """`query`: where its values come from; `regex`: which part of them is taken."""

    name: str
    tells: str
    query: str
    regex: str = ""
    multi: bool = True


CLUSTERS = Variable(
    "cluster", "Which cluster", "label_values(up{job='tidelog'}, cluster)", multi=False
)
BROKER = Variable(
    "broker",
    "Which brokers, by id",
    f'label_values(up{{{SERVICES}, service=~"broker-.+"}}, service)',
    "/broker-(.*)/",
)
TOPIC = Variable(
    "topic",
    "Which topics, among those that have series of their own: the largest of each broker",
    f"label_values(tidelog_topic_log_size_bytes{{{CLUSTER}}}, topic)",
)

Row = tuple[str, Sequence[Panel]]


def new_dashboard(
    uid: str, title: str, tells: str, variables: Sequence[Variable], rows: Sequence[Row]
) -> dashboard.Dashboard:
    built = (
        dashboard.Dashboard(f"Tidelog: {title}")
        .uid(uid)
        .description(tells)
        .tags([TAG])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-1h", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .link(_siblings())
        .annotation(
            _mark(
                "A broker left",
                "red",
                times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0",
            )
        )
        .annotation(
            _mark(
                "A controller took over",
                "blue",
                times("tidelog_controller_elections_total", CLUSTER, "service") + " > 0",
            )
        )
    )
    for variable in (CLUSTERS, *variables):
        built = built.with_variable(_variable(variable))
    for heading, panels in rows:
        built = built.with_row(dashboard.Row(heading))
        for panel in panels:
            built = built.with_panel(panel)
    return built


def _siblings() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Tidelog")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .tooltip("The other dashboards of this cluster")
    )


def _variable(variable: Variable) -> dashboard.QueryVariable:
    built = (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .description(variable.tells)
        .query(variable.query)
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.NATURAL_ASC)
        .multi(variable.multi)
        .include_all(variable.multi)
    )
    if variable.regex:
        built = built.regex(variable.regex)
    if variable.multi:
        built = built.current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    return built


def _mark(name: str, colour: str, expr: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(expr)
    )
