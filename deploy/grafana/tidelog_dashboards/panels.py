"""The kinds of panels.

A title is a noun phrase, unique in its dashboard. A description says what the panel shows and then
what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel = stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

SECONDS, BYTES, BYTES_PER_SECOND, NUMBER, SHARE = "s", "bytes", "binBps", "short", "percentunit"
RECORDS_PER_SECOND, REQUESTS_PER_SECOND = "suffix: records/s", "reqps"
ERRORS_PER_SECOND = "suffix: errors/s"

GOOD, WATCH, BAD, PLAIN = "green", "orange", "red", "text"

# A panel's size on a grid 24 wide.
STAT_WIDTH, STAT_HEIGHT = 4, 4
WIDE, HALF, THIRD = 24, 12, 8
GRAPH_HEIGHT = 8


class Query(NamedTuple):
    """A PromQL expression.

    `legend`: the legend of a series, with its labels in double braces, or the name of a table's
    column.
    """

    expr: str
    legend: str = ""


Queries = Query | Sequence[Query]


class Steps(NamedTuple):
    """The thresholds of a warning (`watch`) and of a problem (`bad`); None: no threshold."""

    watch: float | None = None
    bad: float | None = None


UNCOLOURED = Steps()


def number(title: str, description: str, expr: str, steps: Steps, unit: str = NUMBER) -> stat.Panel:
    """One value whose colour shows whether it is healthy."""
    return _number(title, description, expr, unit).thresholds(_thresholds(steps))


def exactly_one(title: str, description: str, expr: str) -> stat.Panel:
    """One value that is healthy only at 1."""
    steps = [
        Threshold(value=None, color=BAD),
        Threshold(value=1, color=GOOD),
        Threshold(value=2, color=BAD),
    ]
    return _number(title, description, expr, NUMBER).thresholds(_absolute(steps))


def _number(title: str, description: str, expr: str, unit: str) -> stat.Panel:
    panel = _common(stat.Panel(), title, description, STAT_WIDTH, STAT_HEIGHT)
    return (
        panel.unit(unit)
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .no_value("no data")
        .with_target(_query(Query(expr), "A"))
    )


def graph(
    title: str,
    description: str,
    queries: Queries,
    unit: str = NUMBER,
    steps: Steps = UNCOLOURED,
    width: int = HALF,
) -> timeseries.Panel:
    """Lines over time. `steps` are drawn as dashed lines."""
    panel = _common(timeseries.Panel(), title, description, width, GRAPH_HEIGHT)
    panel = (
        panel.unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(10)
        .show_points(VisibilityMode.NEVER)
        .thresholds(_thresholds(steps))
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
    )
    if steps != UNCOLOURED:
        panel = panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        )
    return panel.targets([_query(query, ref) for ref, query in _with_refs(queries)])


def event_bars(
    title: str, description: str, queries: Queries, width: int = HALF
) -> timeseries.Panel:
    """Stacked bars, for rare events."""
    return (
        graph(title, description, queries, NUMBER, width=width)
        .draw_style(GraphDrawStyle.BARS)
        .fill_opacity(80)
        .decimals(0)
        .stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    )


def timeline(
    title: str, description: str, query: Query, states: Sequence[tuple[str, str]]
) -> statetimeline.Panel:
    """A lane for each series, coloured by its value. `states`: text and colour of 0, 1, …"""
    mapping = ValueMap(
        options={
            str(value): ValueMappingResult(text=text, color=colour, index=value)
            for value, (text, colour) in enumerate(states)
        }
    )
    panel = _common(statetimeline.Panel(), title, description, HALF, GRAPH_HEIGHT)
    return (
        panel.mappings([mapping])
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .merge_values(True)
        .legend(common.VizLegendOptions().show_legend(False))
        .with_target(_query(query, "A"))
    )


def rows(
    title: str,
    description: str,
    queries: Sequence[Query],
    columns: Sequence[str],
    *,
    empty: str,
    units: Sequence[str] = (),
    width: int = HALF,
) -> table.Panel:
    """A table of current values, with a row for each set of labels, the largest first.

    `columns`: the labels that are shown, in their order.
    `queries`: each adds a column named by its `legend`; a query without a legend adds rows only.
    `empty`: the text of a table without rows.
    `units`: the units of the queries' columns.
    """
    panel = _common(table.Panel(), title, description, width, GRAPH_HEIGHT).no_value(empty)
    values = {f"Value #{ref}": query.legend for ref, query in _with_refs(queries)}
    # Grafana adds no letter to the column of a single query.
    if len(queries) == 1:
        values = {"Value": queries[0].legend}
    shown = [*columns, *(name for name, legend in values.items() if legend)]
    panel = panel.targets(
        [
            _query(query, ref).instant().format(PromQueryFormat.TABLE)
            for ref, query in _with_refs(queries)
        ]
    ).transformations(
        [
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": shown}}
            ),
            DataTransformerConfig(
                id_val="organize",
                options={
                    "indexByName": {name: index for index, name in enumerate(shown)},
                    "renameByName": {name: legend for name, legend in values.items() if legend},
                },
            ),
        ]
    )
    for query, unit in zip(queries, units, strict=False):
        panel = panel.override_by_name(query.legend, [DynamicConfigValue("unit", unit)])
    if queries[0].legend:
        panel = panel.sort_by(
            [common.TableSortByFieldState().display_name(queries[0].legend).desc(True)]
        )
    return panel


P = TypeVar("P", stat.Panel, statetimeline.Panel, table.Panel, timeseries.Panel)


def _common(panel: P, title: str, description: str, width: int, height: int) -> P:
    return panel.title(title).description(description).datasource(SOURCE).span(width).height(height)


def _query(query: Query, ref_id: str) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(query.expr).range().ref_id(ref_id).datasource(SOURCE)
    return built.legend_format(query.legend) if query.legend else built


def _with_refs(queries: Queries) -> list[tuple[str, Query]]:
    listed = [queries] if isinstance(queries, Query) else queries
    return [(chr(ord("A") + index), query) for index, query in enumerate(listed)]


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    colours = ((steps.watch, WATCH), (steps.bad, BAD))
    built = [Threshold(value=value, color=colour) for value, colour in colours if value is not None]
    first = PLAIN if steps == UNCOLOURED else GOOD
    return _absolute([Threshold(value=None, color=first), *built])


def _absolute(steps: list[Threshold]) -> dashboard.ThresholdsConfig:
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
