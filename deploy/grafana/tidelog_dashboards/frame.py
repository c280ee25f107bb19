"""What all dashboards share: variables, links to each other, and annotations for departed brokers
and changed controllers."""

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
    """A variable of a dashboard.

    `query`: the query for its values.
    `regex`: selects a part of each value.
    """

    name: str
    description: str
    query: str
    regex: str = ""
    multi: bool = True


CLUSTERS = Variable(
    "cluster", "The cluster", "label_values(up{job='tidelog'}, cluster)", multi=False
)
BROKER = Variable(
    "broker",
    "The ids of the brokers",
    f'label_values(up{{{SERVICES}, service=~"broker-.+"}}, service)',
    "/broker-(.*)/",
)
TOPIC = Variable(
    "topic",
    "The topics; only the largest of each broker have series of their own",
    f"label_values(tidelog_topic_log_size_bytes{{{CLUSTER}}}, topic)",
)

Row = tuple[str, Sequence[Panel]]


def new_dashboard(
    uid: str, title: str, description: str, variables: Sequence[Variable], rows: Sequence[Row]
) -> dashboard.Dashboard:
    built = (
        dashboard.Dashboard(f"Tidelog: {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-1h", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .link(_links())
        .annotation(
            _annotation(
                "Broker left",
                "red",
                times("tidelog_broker_departures_total", CLUSTER, "cause") + " > 0",
            )
        )
        .annotation(
            _annotation(
                "Controller elected",
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


def _links() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Tidelog")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .tooltip("Other dashboards of this cluster")
    )


def _variable(variable: Variable) -> dashboard.QueryVariable:
    built = (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .description(variable.description)
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


def _annotation(name: str, colour: str, expr: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(expr)
    )
