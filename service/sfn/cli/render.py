"""What a command says to a person, apart from how it gets to the screen."""

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
from sfn.clock import format_duration

# ── pages: What a command says to a person

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Tone(StrEnum):
    """How a line sounds; the value is rich's style."""

    PLAIN = ""
    GOOD = "bold green"
    BAD = "bold red"
    WARNING = "yellow"
    QUIET = "dim"


@dataclass(frozen=True, slots=True)
class Line:
    """One line."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        columns: their heads; those of `numeric_columns` stand right.
        rows: as many cells each.
        wide_column: the column that a screen may cut off or wrap.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric_columns: frozenset[str] = frozenset()
    wide_column: str = ""

    @property
    def has_heads(self) -> bool:
        """Whether its columns have heads."""
        return any(name.strip() for name in self.columns)


Page: TypeAlias = Sequence[Line | Grid]


def to_plain_text(page: Page) -> str:
    """The text that goes into files and pipes: columns aligned, nothing cut off."""
    return "\n".join(line for part in page for line in _lines(part))


def escape(text: str) -> str:
    """A text of somebody else's as a terminal may have it: what would steer it, break the line, or
    can't be written is spelled out.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def pluralise(number: int, thing: str) -> str:
    """`1 table`, `1,204 tables`."""
    plural = thing if number == 1 else thing.removesuffix("y") + ("ies" if thing.endswith("y") else "s")
    return f"{number:,} {plural}"


def format_ago(at: datetime, now: datetime) -> str:
    """`45 s ago`, `in 45 s`."""
    return f"in {format_duration(at - now)}" if at > now else f"{format_duration(now - at)} ago"


def format_time(at: datetime) -> str:
    """`2026-11-22 18:43:36Z`, whatever the zone of the machine."""
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


# ── printing: The screen

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
    """Print a value as JSON: models, dataclasses and structs, alone or in lists and mappings."""
    from msgspec import to_builtins
    from pydantic_core import to_jsonable_python

    built = to_jsonable_python(value, fallback=to_builtins)
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


# ── trees: A tree on the screen

if TYPE_CHECKING:
    from rich.tree import Tree

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024


@dataclass(slots=True)
class TreeNode:
    """A line, and what is below it."""

    text: str
    tone: Tone = Tone.PLAIN
    children: list[TreeNode] = field(default_factory=list)

    def add(self, text: str, tone: Tone = Tone.PLAIN) -> TreeNode:
        """A line below this one."""
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
    """The text that goes into files and pipes: two spaces a level, nothing cut off."""
    yield f"{'  ' * depth}{node.text}"
    for one in node.children:
        yield from tree_lines(one, depth + 1)


def format_size(number: int) -> str:
    """`939 B`, `1.2 MiB`."""
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

    # A Text and no string: what a file says may look like rich's markup.
    text = Text(node.text, style=node.tone.value, overflow="fold")
    tree = Tree(text, guide_style="dim") if above is None else above.add(text)
    for one in node.children:
        _rich_tree(one, tree)
    return tree
