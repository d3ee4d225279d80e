"""The drawing of the errors shows them as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import sfn
from sfn import errors
from sfn.errors import SfnError

BRANCH = 4
"""Columns that a level of the drawing takes."""


def drawn() -> Iterator[tuple[str, str]]:
    """Every error in the drawing, with the one above it."""
    above: list[str] = [SfnError.__name__]
    for margin, name in re.findall(r"^ {4}([ │]*)[├└] (\w+)", errors.__doc__ or "", re.MULTILINE):
        above = [*above[: len(margin) // BRANCH + 1], name]
        yield name, above[-2]


def derived(base: type[SfnError]) -> Iterator[tuple[str, str]]:
    """Every error of the project that more than one module knows, with its base."""
    for error in base.__subclasses__():
        if not error.__name__.startswith("_"):
            yield error.__name__, base.__name__
            yield from derived(error)


def test_the_drawing_shows_every_error_below_its_base() -> None:
    for module in walk_packages(sfn.__path__, "sfn."):
        if module.name != "sfn.__main__":
            import_module(module.name)
    assert sorted(drawn()) == sorted(derived(SfnError))
