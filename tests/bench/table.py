"""Figures as people read them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.bench.record import Figure


def shown(figures: Sequence[Figure], console: Console) -> None:
    """Print a table, and below it what the figures are beside their numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("figure", "value", "ratio", "least … most", "goal", "met"):
        table.add_column(heading, no_wrap=True)
    for figure in figures:
        table.add_row(*_cells(figure))
    console.print(table)
    for figure in figures:
        beside = f"beside {figure.compared_with}" if figure.compared_with else ""
        if told := "; ".join(text for text in (beside, figure.note) if text):
            console.print(f"{figure.name}: {told}", soft_wrap=True, highlight=False)


def _cells(figure: Figure) -> list[str]:
    ratio = figure.ratio
    spread = figure.ratios or [run.value for run in figure.runs]
    return [
        figure.name,
        f"{_number(figure.value)} {figure.unit}",
        "" if ratio is None else f"{ratio:.2f}",
        f"{_number(min(spread))} … {_number(max(spread))}" if len(spread) > 1 else "",
        "" if figure.goal is None else str(figure.goal),
        _verdict(figure),
    ]


def _verdict(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    if figure.short:
        return "too short"
    return "[green]yes[/]" if figure.met else "[bold red]no[/]"


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def say(text: str) -> None:
    """How far it is: on a terminal in one line."""
    if sys.stderr.isatty():
        print(f"\r\033[2K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)
