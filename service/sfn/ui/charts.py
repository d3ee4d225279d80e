"""Small charts as inline SVG: the lag of the last hour, and the last attempts of a table.

Colours and sizes of text come from the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from markupsafe import Markup, escape

from sfn.admin.table_schemas import OutcomeModel
from sfn.admin.table_verdict import describe_outcome
from sfn.clock import format_ago, format_seconds
from sfn.domain.jobs import DeadLettered, Retry
from sfn.errors import pluralise
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
        bars.append(_bar(number * _BAR, _BAR - 1, height, kind, title))
    label = f"95th percentile of the lag by minute over the last hour, at most {format_seconds(worst)}"
    return _chart(bars, len(minutes) * _BAR, label)


_ATTEMPT: Final = 14
"""Width of the bar of one attempt, with its gap, in pixels."""
_LONGEST: Final = 600.0
"""Seconds of an attempt from which its bar has the full height."""
_FAILED: Final = frozenset({Retry.label, DeadLettered.label})


def attempts_chart(outcomes: Sequence[OutcomeModel], now: datetime) -> Markup:
    """Return a chart of the last attempts: how long each took, on a logarithmic scale, and which failed.

    Args:
        outcomes: the newest first.
        now: the present.
    """
    bars = []
    for number, one in enumerate(reversed(outcomes)):
        took = (one.ended_at - one.claimed_at).total_seconds() if one.claimed_at is not None else 0.0
        share = math.log(min(max(took, _LOWEST), _LONGEST) / _LOWEST) / math.log(_LONGEST / _LOWEST)
        title = f"{format_ago(one.ended_at, now)}: {describe_outcome(one.outcome)}, took {format_seconds(took)}"
        kind = "high" if one.outcome in _FAILED else "bar"
        bars.append(_bar(number * _ATTEMPT, _ATTEMPT - 3, max(3.0, _HEIGHT * share), kind, title))
    failed = sum(one.outcome in _FAILED for one in outcomes)
    label = f"how long each of the last {pluralise(len(outcomes), 'attempt')} took, the oldest first; {failed} failed"
    return _chart(bars, len(outcomes) * _ATTEMPT, label)


def _bar(x: int, width: int, height: float, kind: str, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x}" y="{_HEIGHT - height:.1f}" width="{width}" '
        f'height="{height:.1f}"><title>{escape(title)}</title></rect>'
    )


def _chart(bars: Sequence[str], width: int, label: str) -> Markup:
    # Only numbers, texts of this module and escaped titles are in it.
    return Markup(  # noqa: S704
        f'<svg class="chart" role="img" aria-label="{escape(label)}" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}"><path class="axis" d="M0 {_HEIGHT - 0.5}H{width}"/>{"".join(bars)}</svg>'
    )
