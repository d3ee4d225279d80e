"""The kinds of panels of the dashboard: a tile with one figure, a graph, and a timeline of states."""

from __future__ import annotations

import string
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model

SOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED = "green", "yellow", "red"


@dataclass(frozen=True)
class Query:
    """A query of a panel.

    Attributes:
        expr: PromQL.
        legend: name of its series; Grafana replaces labels in double braces.
    """

    expr: str
    legend: str = ""


def tile(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "none",
    limits: tuple[float, float] | None = None,
    states: dict[str, tuple[str, str]] | None = None,
) -> stat.Panel:
    """Return a tile with the present value of a query.

    Args:
        title: name of the figure.
        description: what the figure counts, and what to do.
        expr: PromQL with one series.
        unit: Grafana's name of the unit.
        limits: value from which the tile is yellow, and value from which it is red. If the second is less than the
            first, small values are bad.
        states: text and colour by value, for a figure that is a state.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(3)
        .height(4)
        .unit(unit)
        .no_value("no data")
        .thresholds(_thresholds(limits))
        .graph_mode(common_model.BigValueGraphMode.NONE)
        .color_mode(common_model.BigValueColorMode.BACKGROUND if limits else common_model.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(Query(expr), "A").instant())
    )
    if states:
        results = {
            value: model.ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(states.items())
        }
        panel.mappings([model.ValueMap(options=results)]).color_mode(common_model.BigValueColorMode.BACKGROUND)
    return panel


def graph(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "none",
    limits: tuple[float, float] | None = None,
    wide: int = 8,
    is_stacked: bool = False,
    is_logarithmic: bool = False,
) -> timeseries.Panel:
    """Return a graph over time.

    Args:
        title: name of the graph.
        description: what the graph shows, and what to do.
        queries: the queries.
        unit: Grafana's name of the unit.
        limits: values at which the graph has a yellow and a red line.
        wide: width; a row has 24.
        is_stacked: whether the series are stacked.
        is_logarithmic: whether the axis is logarithmic.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(wide)
        .height(8)
        .unit(unit)
        .no_value("no data")
        .line_width(1)
        .fill_opacity(30 if is_stacked else 0)
        .show_points(common_model.VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .thresholds(_thresholds(limits))
        .legend(
            common.VizLegendOptions()
            .display_mode(common_model.LegendDisplayMode.LIST)
            .placement(common_model.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_model.TooltipDisplayMode.MULTI)
            .sort(common_model.SortOrder.DESCENDING)
        )
    )
    for query, letter in zip(queries, string.ascii_uppercase, strict=False):
        panel.with_target(_target(query, letter).range())
    if limits:
        style = common_model.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
    if is_stacked:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if is_logarithmic:
        scale = common.ScaleDistributionConfig().type(common_model.ScaleDistribution.LOG).log(10)
        panel.scale_distribution(scale)
    else:
        panel.min(0)
    return panel


def timeline(
    title: str, description: str, *queries: Query, states: dict[str, tuple[str, str]], wide: int = 12
) -> statetimeline.Panel:
    """Return a timeline with a bar for each series, coloured by its value.

    Args:
        title: name of the timeline.
        description: what the timeline shows, and what to do.
        queries: the queries.
        states: text and colour by value.
        wide: width; a row has 24.
    """
    results = {
        value: model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(states.items())
    }
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .span(wide)
        .height(8)
        .unit("none")
        .no_value("no data")
        .thresholds(_thresholds(None))
        .mappings([model.ValueMap(options=results)])
        .show_value(common_model.VisibilityMode.NEVER)
        .merge_values(merge_values=True)
        .row_height(0.8)
        .line_width(0)
        .fill_opacity(80)
    )
    for query, letter in zip(queries, string.ascii_uppercase, strict=False):
        panel.with_target(_target(query, letter).range())
    return panel


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .datasource(SOURCE)
        .ref_id(letter)
        .expr(query.expr)
        .legend_format(query.legend or "__auto")
    )


def _thresholds(limits: tuple[float, float] | None) -> dashboard.ThresholdsConfig:
    first = model.Threshold(value=None, color=GREEN)
    match limits:
        case None:
            steps = [first]
        case (yellow, red) if yellow <= red:
            steps = [first, model.Threshold(value=yellow, color=YELLOW), model.Threshold(value=red, color=RED)]
        case (yellow, red):
            steps = [
                model.Threshold(value=None, color=RED),
                model.Threshold(value=red, color=YELLOW),
                model.Threshold(value=yellow, color=GREEN),
            ]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)
