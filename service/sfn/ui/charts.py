"""Small charts as inline SVG: the lag of the last hour. Colours and sizes of text come from the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from sfn.clock import format_seconds
from sfn.worker.lag import LagSummary

_BAR: Final = 3
"""Width of the bar of one minute, with its gap, in pixels."""
_HEIGHT: Final = 28
_LOWEST: Final = 0.01
"""Lag in seconds of a bar without height: bars show the order of magnitude."""
_HIGH: Final = 60.0
"""Lag in seconds from which a bar has the colour of what needs attention."""


def lag_chart(minutes: Sequence[LagSummary | None]) -> Markup:
    """Return a chart of the lag of each minute: its 95th percentile, on a logarithmic scale.

    Args:
        minutes: the oldest first; None for a minute without a publish.
    """
    worst = max((one.worst for one in minutes if one is not None), default=0.0)
    top = max(worst, _HIGH)
    bars = []
    for number, one in enumerate(minutes):
        if one is None:
            continue
        height = max(1.0, _HEIGHT * math.log(max(one.p95, _LOWEST) / _LOWEST) / math.log(top / _LOWEST))
        kind = "high" if one.p95 >= _HIGH else "bar"
        title = f"{len(minutes) - number} min ago: p95 {format_seconds(one.p95)}, {one.count} published"
        bars.append(
            f'<rect class="{kind}" x="{number * _BAR}" y="{_HEIGHT - height:.1f}" width="{_BAR - 1}" '
            f'height="{height:.1f}"><title>{title}</title></rect>'
        )
    width = len(minutes) * _BAR
    label = f"95th percentile of the lag by minute over the last hour, at most {format_seconds(worst)}"
    # Only numbers and texts of this module are in it.
    return Markup(  # noqa: S704
        f'<svg class="chart" role="img" aria-label="{label}" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}"><path class="axis" d="M0 {_HEIGHT - 0.5}H{width}"/>{"".join(bars)}</svg>'
    )
