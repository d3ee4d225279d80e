"""The screen: rich's tables and colours on a terminal, plain text and JSON elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import typer
from pydantic_core import to_jsonable_python

from sfn.cli.exits import FAILED, WRONG_USAGE
from sfn.cli.pages import Grid, Line, Page, to_plain_text

if TYPE_CHECKING:
    from rich.console import RenderableType


class ProgressCallback(Protocol):
    """How far something is."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """So many are done; of so many in all, where that is known now."""
        ...


def print_page(page: Page) -> None:
    """Print a page to standard output."""
    if not sys.stdout.isatty():
        typer.echo(to_plain_text(page))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for part in page:
        console.print(_rich_part(part), soft_wrap=isinstance(part, Line))


def print_json(value: object) -> None:
    """Print a value, a model or a dataclass among others, as JSON."""
    built = to_jsonable_python(value)
    text = json.dumps(built, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        # The path of a file may have bytes that are no UTF-8, and a terminal another encoding.
        text = json.dumps(built, indent=2)
    typer.echo(text)


def clear_screen() -> None:
    """Empty the screen, where there is one."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().clear()


def print_error(text: str) -> None:
    """Print a line to standard error."""
    typer.echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless the answer was given with `--yes`.

    Raises:
        Exit: 1 for a no; 2 where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        print_error(f"{question}: expected --yes, as nobody can be asked here, found none")
        raise typer.Exit(WRONG_USAGE)
    # Not typer's: it writes to standard output too.
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        print_error("nothing was done")
        raise typer.Exit(FAILED)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """A bar on standard error, where that is a terminal.

    Args:
        total: how many there are in all, None where that is not known yet.
    """
    if not sys.stderr.isatty():
        yield _ignore_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total)

        def moved(done: int, total: int | None = None) -> None:
            bars.update(task, completed=done, total=total)

        yield moved


def _ignore_progress(done: int, total: int | None = None) -> None:
    pass


def _rich_part(part: Line | Grid) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # A Text and no string: a table's name may look like rich's markup.
    if isinstance(part, Line):
        return Text(part.text, style=part.tone.value)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=part.has_heads)
    for name in part.columns:
        table.add_column(
            name,
            justify="right" if name in part.numeric_columns else "left",
            no_wrap=name != part.wide_column,
            overflow="fold" if name == part.wide_column else "ellipsis",
        )
    for row in part.rows:
        table.add_row(*map(Text, row))
    return table
