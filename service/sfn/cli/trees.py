"""A tree on the screen: with guides and colours on a terminal, indented elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import typer

from sfn.cli.pages import Tone

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
