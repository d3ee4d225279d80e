"""Output of commands: pages of lines and grids, trees, JSON, progress bars and confirmations."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import typer

from sfn.cli.options import FAILED, WRONG_USAGE

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.tree import Tree

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Tone(StrEnum):
    """The meaning of a line; the value is the style in rich."""

    PLAIN = ""
    GOOD = "bold green"
    BAD = "bold red"
    WARNING = "yellow"
    QUIET = "dim"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of cells.

    Attributes:
        columns: the heads of the columns.
        rows: one cell per column each.
        numeric_columns: the columns that are aligned right.
        wide_column: the column that a terminal may wrap.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric_columns: frozenset[str] = frozenset()
    wide_column: str = ""

    @property
    def has_heads(self) -> bool:
        """Return whether any column has a head."""
        return any(name.strip() for name in self.columns)


Page: TypeAlias = Sequence[Line | Grid]


def to_plain_text(page: Page) -> str:
    """Return a page as text for files and pipes: columns aligned, nothing cut off."""
    return "\n".join(line for part in page for line in _lines(part))


def escape(text: str) -> str:
    """Return a foreign text that is safe to print: characters that control a terminal or break a line are escaped."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def format_time(at: datetime) -> str:
    """Return a time in UTC, such as `2026-11-22 18:43:36Z`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _lines(part: Line | Grid) -> Iterable[str]:
    if isinstance(part, Line):
        return [part.text]
    rows = [part.columns, *part.rows] if part.has_heads else part.rows
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    sides = [">" if name in part.numeric_columns else "<" for name in part.columns]
    return ["  ".join(map(_padded, row, widths, sides)).rstrip() for row in rows]


def _padded(cell: str, width: int, side: str) -> str:
    return f"{cell:{side}{width}}"


class ProgressCallback(Protocol):
    """A receiver of progress."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that `done` items of `total` are done; None if the total is not known yet."""
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


def print_json(value: object, *, on_one_line: bool = False) -> None:
    """Print a value as JSON: models, dataclasses and structs, alone or in lists and mappings.

    Args:
        value: the value.
        on_one_line: True for one of several documents (JSON lines).
    """
    from msgspec import to_builtins
    from pydantic_core import to_jsonable_python

    built = to_jsonable_python(value, fallback=to_builtins)
    indent = None if on_one_line else 2
    text = json.dumps(built, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        # A path may have bytes that are not UTF-8, and the terminal may have another encoding.
        text = json.dumps(built, indent=indent)
    typer.echo(text)


def clear_screen() -> None:
    """Clear the screen, if standard output is a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().clear()


def print_error(text: str) -> None:
    """Print a line to standard error."""
    typer.echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless `--yes` was passed.

    Raises:
        Exit: 1 if the answer is no; 2 if standard input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        print_error(f"{question} Refusing to ask on a non-interactive terminal. Pass --yes.")
        raise typer.Exit(WRONG_USAGE)
    # typer.confirm would write to standard output, which may be a pipe.
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        print_error("canceled: nothing was changed")
        raise typer.Exit(FAILED)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """Show a progress bar on standard error, if that is a terminal.

    Args:
        label: the text before the bar.
        total: the number of items; None if it is not known yet.
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

    # A table's name may contain rich's markup, so it must not be parsed.
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


_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024


@dataclass(slots=True)
class TreeNode:
    """A line of a tree, with its children."""

    text: str
    tone: Tone = Tone.PLAIN
    children: list[TreeNode] = field(default_factory=list)

    def add(self, text: str, tone: Tone = Tone.PLAIN) -> TreeNode:
        """Add a child with this text, and return it."""
        node = TreeNode(text, tone)
        self.children.append(node)
        return node


def print_tree(root: TreeNode) -> None:
    """Print a tree to standard output."""
    if not sys.stdout.isatty():
        typer.echo("\n".join(tree_lines(root)))
        return
    from rich.console import Console

    Console(highlight=False).print(_rich_tree(root))


def tree_lines(node: TreeNode, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a tree for files and pipes: two spaces per level, nothing cut off."""
    yield f"{'  ' * depth}{node.text}"
    for one in node.children:
        yield from tree_lines(one, depth + 1)


def format_size(number: int) -> str:
    """Return a size in bytes as text, such as `939 B` or `1.2 MiB`."""
    if number < _STEP:
        return f"{number} B"
    amount = float(number)
    for unit in _UNITS:
        amount /= _STEP
        if amount < _STEP or unit == _UNITS[-1]:
            break
    return f"{amount:.1f} {unit}"


def _rich_tree(node: TreeNode, above: Tree | None = None) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    # The content of a file may contain rich's markup, so it must not be parsed.
    text = Text(node.text, style=node.tone.value, overflow="fold")
    tree = Tree(text, guide_style="dim") if above is None else above.add(text)
    for one in node.children:
        _rich_tree(one, tree)
    return tree
